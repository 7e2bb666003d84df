"""``Table``: what users hold.  Each method checks its arguments and hands over to a walk."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from kudu_core.cfile.pages.container import FileMissing
from kudu_core.common.idempotence.writers import check_txn
from kudu_core.common.partition.declared import HashPartition, RangePartition, declared_dimensions
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.rows.keys import encode_prefix
from kudu_core.common.run.clock import Clock
from kudu_core.common.run.locks import mutex
from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.types import TYPE_BINARY
from kudu_core.common.where import keybounds
from kudu_core.common.where.predicates import compile_where
from kudu_core.errors import ChangesLost, InvalidArgument, ReadOnly, TableExists, UnreplayedWarning
from kudu_core.events import EventListener
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.options import Options
from kudu_core.table.backup.backup import backup
from kudu_core.table.backup.format import BackupResult
from kudu_core.table.backup.restore import restore as restore_table
from kudu_core.table.calls.conform import with_policy
from kudu_core.table.calls.refused import check_on_error
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.changes.changes import Changes, ChangesPlan, window
from kudu_core.table.changes.counts import admitted
from kudu_core.table.changes.tokens import (
    ChangeToken,
    check_change_token,
    make_change_tokens,
    plan_of_changes,
)
from kudu_core.table.lifecycle.alter import alter
from kudu_core.table.lifecycle.create import create
from kudu_core.table.lifecycle.open_reader import open_for_reading
from kudu_core.table.lifecycle.open_writer import open_for_writing
from kudu_core.table.opened.fork import watch
from kudu_core.table.opened.maintain import maintain_now
from kudu_core.table.read import arrow_out, points
from kudu_core.table.read.moment import snapshot_timestamp
from kudu_core.table.read.scan import Scan, ScanPlan, check_batch_rows
from kudu_core.table.read.snapshot import Snapshot
from kudu_core.table.read.tokens import ScanToken, check_token, make_tokens, plan_of
from kudu_core.table.report.stats import layout, metrics, stats
from kudu_core.table.report.verify import Verified, verify
from kudu_core.table.write.batch import Batch
from kudu_core.table.write.door import write_mixed, write_rows, write_where

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

    from kudu_core.fs.api import FileSystem
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.replay.bootstrap import Unreplayed

T = TypeVar("T")

TxnLike = tuple[str, int] | tuple[str, int, str]

DEFAULT_TARGET_ROWS = 2_000_000


def create_table(
    path: str | os.PathLike[str],
    schema: pa.Schema | Sequence[Column | pa.Field],
    primary_key: str | Sequence[str],
    *,
    partition_by: HashPartition | RangePartition | Sequence[HashPartition | RangePartition] = (),
    options: Options | Mapping[str, Any] | None = None,
    exist_ok: bool = False,
    _fs: FileSystem | None = None,
    _clock: Clock | None = None,
) -> Table:
    """Make a table in a new or empty directory and open it for writing.

    Parameters
    ----------
    schema
        An Arrow schema, or a list of ``Column`` (for defaults, encodings and comments).
    primary_key
        Names of the key columns, in key order.  They become NOT NULL.
    partition_by
        Any number of ``HashPartition`` and at most one ``RangePartition``; none: one tablet.
    options
        Stored with the table; what is not given has its default.
    exist_ok
        Open the table that is there, if its schema, key and partitions are these.  Its own options stay
        stored; those that are given hold for this handle, as of ``open_table``.

    Raises
    ------
    TableExists
        There is a table, a file or something else at ``path``; nothing was changed.
    InvalidArgument
        The schema, the key, a partition or an option breaks a rule; nothing was made.
    """
    root = folder_path(path)
    fs = (_fs or PosixFileSystem()).rooted(root)
    wanted = declare(schema, primary_key)
    partitions = declared_dimensions(partition_by)
    settings = Options().overridden(options)
    if exist_ok and fs.exists(f"{root}/TABLE"):
        table = open_table(root, "rw", options=options, _fs=fs, _clock=_clock)
        have = table._engine
        same = have.schema.arrow == wanted.arrow and have.schema.key_names == wanted.key_names
        if not same or not have.partitions.is_cut_as(PartitionSchema.make(have.schema, partitions)):
            table.close()
            raise TableExists(f"the table at {root} has another schema, key or partitions")
        return table
    create(fs, root, wanted, PartitionSchema.make(wanted, partitions), settings, _clock or Clock())
    return open_table(root, "rw", _fs=fs, _clock=_clock)


def open_table(
    path: str | os.PathLike[str],
    mode: str = "r",
    *,
    options: Options | Mapping[str, Any] | None = None,
    timeout_s: float = 0.0,
    listener: EventListener | None = None,
    _fs: FileSystem | None = None,
    _clock: Clock | None = None,
) -> Table:
    """Open a table: any number of times for reading (``"r"``), once for writing (``"rw"``).

    Parameters
    ----------
    options
        Override the table's own for this handle: every option that is named, also with its default.  What is
        in force is ``Table.options``.
    timeout_s
        How long to wait for another writer to let go, in seconds.
    listener
        Called with every event (``kudu_core.events``), on the thread that did the work.

    Raises
    ------
    TableNotFound, Locked, NotSupported
        Nothing was changed.
    Corruption
        Of TABLE, a manifest or the log: nothing was changed.  Of a data file that the replay of the log
        reads, and in mode "rw" of a record of the log that cannot be replayed, though its checksum is good: a
        new epoch has begun, nothing is lost or deleted, and opening again says the same.

    Warns
    -----
    UnreplayedWarning
        In mode "r", of such a record: the table is read as it was before it (``Table.unreplayed``).
    """
    root, clock = folder_path(path), _clock or Clock()
    fs = (_fs or PosixFileSystem()).rooted(root)
    if mode not in ("r", "rw"):
        raise InvalidArgument(f'mode is "r" or "rw", not {mode!r}')
    settings = None if options is None else Options().overridden(options)

    def reader() -> Engine:
        return open_for_reading(fs, root, settings, clock, listener)

    if mode == "rw":
        return open_for_writing(
            fs, root, settings, timeout_s, clock, listener, lambda engine: Table(engine, None)
        )
    table = Table(reader(), reader)
    _warn_of_unreplayed(table.unreplayed)
    return table


def _warn_of_unreplayed(record: Unreplayed | None) -> None:
    if record is not None:
        warnings.warn(
            f"{record}. What is readable is the table as it was before it; kudu_core.repair can put the "
            "record aside",
            UnreplayedWarning,
            stacklevel=3,
        )


def restore(
    src: str | os.PathLike[str],
    path: str | os.PathLike[str],
    at: Any = None,
    *,
    _fs: FileSystem | None = None,
    _clock: Clock | None = None,
) -> Table:
    """Make a new table from a folder of backups and open it for writing.

    It has the columns, partitions and options that the table had at the restored backup, and its rows, all
    with the time of the restore: what happened before cannot be read.  It appears at ``path`` whole
    or not at all.

    Parameters
    ----------
    src
        The folder that ``Table.backup`` wrote to.
    path
        Where the new table is to be.
    at
        Which backup: what ``backup`` returned, or its ``timestamp``.  None: the newest one.

    Raises
    ------
    TableExists
        There is something at ``path``; nothing was changed.
    TableNotFound
        There is no backup at ``src``.
    InvalidArgument
        No backup is of ``at``; the message says which there are.
    Corruption
        A file is damaged or missing, or a backup between is.
    """
    fs, root, clock = _fs or PosixFileSystem(), folder_path(path), _clock or Clock()
    restore_table(fs, folder_path(src), root, at, clock)
    return open_table(root, "rw", _fs=fs, _clock=clock)


class Table:
    """A table, open for reading or writing.  A context manager; safe for any number of threads.

    Does not travel: it refuses to be pickled, and in the child of a fork every call raises
    ``Closed``.
    """

    def __init__(self, engine: Engine, reopen: Callable[[], Engine] | None) -> None:
        self._engine = engine
        self._reopen = reopen
        self._watch = watch(self, engine)
        self._refreshing = mutex()

    # ---- what it is ----

    @property
    def path(self) -> str:
        return self._engine.path

    @property
    def mode(self) -> str:
        return "rw" if self._engine.writer else "r"

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the table's columns."""
        return self._engine.schema.arrow

    @property
    def primary_key(self) -> tuple[str, ...]:
        return self._engine.schema.key_names

    @property
    def partitions(self) -> PartitionSchema:
        return self._engine.partitions

    @property
    def options(self) -> Options:
        """What is in force for this handle: the options stored with the table, and in place of them those
        that it was opened with."""
        return self._engine.options

    @property
    def unreplayed(self) -> Unreplayed | None:
        """The record of the log before which what a handle for reading sees ends, as the record cannot be
        replayed; None where there is none."""
        return self._opened().unreplayed

    @property
    def timestamp(self) -> int:
        """The newest snapshot that this handle can read."""
        return self._opened().visible_ts

    def __repr__(self) -> str:
        return f"<kudu_core.Table {self.path!r} mode={self.mode!r} key={self.primary_key}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Table does not travel to another process: open it there with "
            f"kudu_core.open_table({self.path!r}), in a function for Spark "
            f"kudu_core.spark.table({self.path!r}), or send table.scan_tokens(...)"
        )

    # ---- writes ----

    def insert(
        self,
        data: Any,
        *,
        on_conflict: str = "error",
        on_error: str = "raise",
        txn: TxnLike | None = None,
        on_repeat: str = "check",
    ) -> WriteResult:
        """Add rows with new keys.

        Columns that are missing take their default.  A row whose key is there is refused
        (``on_conflict="error"``) or skipped (``"ignore"``).

        ``txn``, of every write: ``(app_id, version)``, or with the id of what the rows come from as a third
        member, names the write, so that it is applied once however often it is repeated.  An application's
        versions ascend.  A repetition, known by the fingerprint of its rows, does nothing and has the answer
        of the first time, ``deduplicated``.  A version that was applied with other rows, or by another
        source, or that lies too far back to tell, is refused.  ``on_repeat="skip"`` takes every version up to
        the last one for done, whatever its rows: for sources whose rows differ from run to run.  What is new
        among them is then not written.

        Raises
        ------
        RowErrors
            Rows were refused and ``on_error`` is "raise": nothing of the call was applied.
        SchemaMismatch
            A column is unknown or does not fit; nothing was applied.
        TokenMismatch
            ``txn`` names a write that was applied, and this is another one; nothing was applied.
        Poisoned, Fenced, OSError
            The call may or may not have been applied, wholly or not at all.
        """
        op = with_policy("on_conflict", on_conflict, "insert")
        return write_rows(self._engine, op, data, on_error, txn, on_repeat)

    def upsert(
        self,
        data: Any,
        *,
        on_error: str = "raise",
        txn: TxnLike | None = None,
        on_repeat: str = "check",
    ) -> WriteResult:
        """Add rows, or change the given columns of those whose keys are there."""
        return write_rows(self._engine, "upsert", data, on_error, txn, on_repeat)

    def update(
        self,
        data: Any = None,
        *,
        where: Any = None,
        set: Mapping[str, Any] | None = None,
        on_missing: str = "error",
        on_error: str = "raise",
        txn: TxnLike | None = None,
        on_repeat: str = "check",
    ) -> WriteResult:
        """Change the given columns of rows by key, or of all rows that match ``where``.

        ``set`` maps column names to literals or pyarrow expressions over the old row.
        """
        if data is None:
            if where is None or not set:
                raise InvalidArgument("update takes rows with keys, or where= together with set={...}")
            return write_where(self._engine, where, dict(set), on_error, txn, on_repeat)
        if where is not None or set is not None:
            raise InvalidArgument("update takes either rows with keys, or where= and set=, not both")
        op = with_policy("on_missing", on_missing, "update")
        return write_rows(self._engine, op, data, on_error, txn, on_repeat)

    def delete(
        self,
        keys: Any = None,
        *,
        where: Any = None,
        on_missing: str = "error",
        on_error: str = "raise",
        txn: TxnLike | None = None,
        on_repeat: str = "check",
    ) -> WriteResult:
        """Remove rows by key, or all rows that match ``where``."""
        if (keys is None) == (where is None):
            raise InvalidArgument("delete takes either rows with the key columns, or where=")
        if where is not None:
            return write_where(self._engine, where, None, on_error, txn, on_repeat)
        op = with_policy("on_missing", on_missing, "delete")
        return write_rows(self._engine, op, keys, on_error, txn, on_repeat)

    def apply(
        self,
        data: Any,
        op_column: str = "_op",
        *,
        on_error: str = "raise",
        txn: TxnLike | None = None,
        on_repeat: str = "check",
    ) -> WriteResult:
        """Mixed operations, in order: the column ``op_column`` names the operation of each row.

        Operations: insert, insert_ignore, upsert, update, update_ignore, delete, delete_ignore.
        """
        return write_mixed(self._engine, data, op_column, on_error, txn, on_repeat)

    def batch(
        self, *, on_error: str = "raise", txn: TxnLike | None = None, on_repeat: str = "check"
    ) -> Batch:
        """Many calls as one: ``with table.batch() as b: b.insert(...); b.delete(...)``.

        Decided and applied at exit, all or nothing, at one timestamp; each call sees those before it.
        An exception inside the block applies nothing.  ``b.result`` has the sums.
        """
        check_on_error(on_error)
        return Batch(self._opened_for_writing, on_error, check_txn(txn, on_repeat))

    # ---- reads ----

    def get(self, key: Any, columns: Any = None, at: Any = None) -> dict[str, Any] | None:
        """One row by key: a scalar, a tuple in key order, or a dict.  None when it is not there."""
        engine = self._opened()
        try:
            schema = engine.schema
            chosen = schema.columns if columns is None else _project(schema, columns)
            return points.get(engine, key, chosen, at)
        except FileMissing as exc:
            engine = self._newer(engine, exc)
        return points.get(engine, key, _project(engine.schema, columns), at)

    def get_many(self, keys: Any, columns: Any = None, at: Any = None) -> pa.Table:
        """Rows by key, in the order of ``keys``.

        A column ``_found`` (bool) says which are there; the others hold their key and NULLs.
        """
        engine = self._opened()
        try:
            return points.get_many(engine, keys, _project(engine.schema, columns), at)
        except FileMissing as exc:
            engine = self._newer(engine, exc)
        return points.get_many(engine, keys, _project(engine.schema, columns), at)

    def _newer(self, engine: Engine, missing: FileMissing) -> Engine:
        """For a reader under which the writer has replaced a file (protocol R4): what is there now."""
        if self._reopen is None:
            raise missing
        if self._engine is engine:
            self.refresh()
        return self._opened()

    def scan(
        self,
        columns: Any = None,
        where: Any = None,
        *,
        at: Any = None,
        key_range: tuple[Any, Any] | None = None,
        order: str = "any",
        limit: int | None = None,
        batch_rows: int = 65_536,
        dictionary: Sequence[str] = (),
    ) -> Scan:
        """Rows at one snapshot; lazy and re-iterable.

        Parameters
        ----------
        columns
            Names, in the order wanted; None: all.
        where
            A ``pyarrow.compute`` expression, or filter lists ``[("k", ">", 5), ...]``.  NULL and NaN
            compare as in Arrow: a comparison with NULL is not true.  Conditions on one column come first:
            ``(b != 0) & (10 / b > 5)`` does not divide by zero.
        at
            A timestamp, an aware datetime or a ``Snapshot``; None: now.
        key_range
            ``(lower, upper)``, half-open, whole keys or prefixes of them; None for an open end.
        order
            ``"key"``: in key order.
        dictionary
            String or binary columns of the result that come as Arrow dictionaries (int32 indices): three
            times faster to read where a rowset stores them so.  Each batch has its own dictionary;
            ``pyarrow.Table.unify_dictionaries`` makes one of them.
        """
        return self._scan_of(None, at, columns, where, key_range, order, limit, batch_rows, dictionary)

    def _scan_of(
        self,
        schema: Schema | None,
        at: Any,
        columns: Any = None,
        where: Any = None,
        key_range: tuple[Any, Any] | None = None,
        order: str = "any",
        limit: int | None = None,
        batch_rows: int = 65_536,
        dictionary: Sequence[str] = (),
    ) -> Scan:
        """A scan of today's columns, or of those of an earlier moment, which the caller has pinned."""
        while True:
            engine = self._opened()
            snapshot = snapshot_timestamp(engine, at)
            plan = self._plan(
                schema or engine.schema, columns, where, key_range, order, limit, batch_rows, dictionary
            )
            scan = Scan(lambda: self._engine, plan, snapshot, self)
            if schema is not None or engine.schema is plan.schema:
                return scan
            # Altered meanwhile: what the scan asks for might have been left out of a file already.

    def count(self, where: Any = None, at: Any = None) -> int:
        """How many rows there are."""
        return self.scan([], where, at=at).count()

    def snapshot(self, at: Any = None) -> Snapshot:
        """Pin a state of the table for several reads."""
        engine = self._opened()
        timestamp = snapshot_timestamp(engine, at)
        return Snapshot(self, timestamp, engine.pins.pin(timestamp))

    def to_dataset(self, at: Any = None) -> Dataset:
        """The table at one snapshot as a ``pyarrow.dataset.Dataset``.

        DuckDB and Polars (``scan_pyarrow_dataset``) query it with SQL or expressions; the columns and
        the filters that they push down prune as those of ``scan`` do.  The snapshot stays pinned
        while the dataset lives.  What was read stays valid and a scan that has begun ends well,
        also after ``close()``; a new one then raises ``Closed``.

        Raises
        ------
        SnapshotTooOld, SnapshotInFuture
            As ``scan``.
        """
        self._opened()
        assert arrow_out.make_dataset is not None, "importing kudu_core sets it"
        return arrow_out.make_dataset(self, at)

    def changes(
        self,
        since: Any = None,
        until: Any = None,
        *,
        columns: Any = None,
        where: Any = None,
        images: str = "after",
        net: bool = False,
    ) -> Changes:
        """What changed in ``(since, until]``; lazy and re-iterable.

        All changes in order of time: ``_op`` ("insert", "update", "delete"), ``_timestamp`` (uint64) and the
        row after the change; a deletion has its key, and NULLs.  A key has one change at one time.  Where the
        whole table was overwritten, each key of before and after has one.  The cost follows the changes.

        Parameters
        ----------
        since, until
            As ``at`` of a scan.  ``since=None``: first the oldest state that history still has, as inserts
            at its time, ``.since`` of the answer, then the changes after it; ``until=None``: what is
            committed now.  ``.until`` of the answer is the next ``since``.
        where
            Changes whose row after, or for a deletion whose row before, passes.
        images
            "both" adds a struct column ``_before`` with the row before, NULL for an insert.
        net
            One row per key whose state differs between the two times, in order of the keys within
            each tablet; ``_timestamp`` is that of its last change.  With ``since=None``, the rows at
            ``until`` as inserts, in no order.

        Raises
        ------
        ChangesLost
            History no longer reaches back to ``since``.
        """
        return self._changes_of(None, since, until, columns, where, images, net)

    def _changes_of(
        self,
        schema: Schema | None,
        since: Any = None,
        until: Any = None,
        columns: Any = None,
        where: Any = None,
        images: str = "after",
        net: bool = False,
    ) -> Changes:
        """Changes of today's columns, or of those of an earlier moment, which the caller has pinned."""
        if images not in ("after", "both"):
            raise InvalidArgument(f'images is "after" or "both", not {images!r}')
        while True:
            engine = self._opened()
            of = schema or engine.schema
            plan = ChangesPlan(
                of, _project(of, columns), compile_where(where, of), images == "both", bool(net)
            )
            try:
                first, last = window(engine, since, until)
                changes = Changes(lambda: self._engine, plan, first, last, self, first=since is None)
            except ChangesLost:
                if since is None:
                    continue  # where history begins has moved meanwhile
                raise
            if schema is not None or engine.schema is of:
                return changes
            # Altered meanwhile, see ``scan``.

    def scan_tokens(
        self,
        columns: Any = None,
        where: Any = None,
        *,
        at: Any = None,
        key_range: tuple[Any, Any] | None = None,
        batch_rows: int = 65_536,
        target_rows: int = DEFAULT_TARGET_ROWS,
    ) -> list[ScanToken]:
        """Shares of a scan of about ``target_rows`` rows, picklable, all at one snapshot."""
        engine = self._opened()
        plan = self._plan(engine.schema, columns, where, key_range, "any", None, batch_rows)
        snapshot = snapshot_timestamp(engine, at)
        return self._planned(lambda engine: list(make_tokens(engine, plan, snapshot, target_rows)))

    def _planned(self, work: Callable[[Engine], T]) -> T:
        """Plan from key indexes, or tell of statistics; once more where the writer has meanwhile replaced a
        file (protocol R4)."""
        engine = self._opened()
        try:
            return work(engine)
        except FileMissing as exc:
            engine = self._newer(engine, exc)
        return work(engine)

    def scan_token(self, token: ScanToken) -> Scan:
        """The scan of one share.  A reader that is behind the token's snapshot refreshes first."""
        engine = self._opened()
        check_token(token)
        behind = token.timestamp > engine.visible_ts or token.schema_version > engine.schema.version
        if self._reopen is not None and behind:
            self.refresh()
        while True:
            engine = self._opened()
            schema, snapshot = engine.schema, snapshot_timestamp(engine, token.timestamp)
            scan = Scan(lambda: self._engine, plan_of(engine, token), snapshot, self)
            if engine.schema is schema:
                return scan

    def change_tokens(
        self,
        since: Any,
        until: Any = None,
        *,
        columns: Any = None,
        where: Any = None,
        images: str = "after",
        net: bool = False,
        target_rows: int = DEFAULT_TARGET_ROWS,
    ) -> list[ChangeToken]:
        """Shares of about ``target_rows`` of the changes in ``(since, until]``, picklable.

        Each is of one partition and, but for net ones, of a part of the time, so changes of different shares
        are in no order.  ``since=None`` only with ``net``: the rows at ``until`` as inserts; of all changes
        the first state is read by ``scan_tokens(at=...)``.

        Raises
        ------
        ChangesLost
            History no longer reaches back to ``since``.
        """
        if since is None and not net:
            raise InvalidArgument(
                "since=None is for net changes; read a state by scan_tokens(at=S), then the changes since S"
            )
        changes = self._changes_of(None, since, until, columns, where, images, net)
        first, last, engine = changes.since, changes.until, self._opened()

        def window_of(plan: ChangesPlan, end: int) -> Changes:
            return Changes(lambda: self._engine, plan, first, end, self, first=False)

        return make_change_tokens(
            engine, window_of, changes.plan, first, last, target_rows, first=since is None
        )

    def change_token(self, token: ChangeToken) -> Changes:
        """The changes of one share.  A reader that is behind the token's end refreshes first."""
        engine = self._opened()
        check_change_token(engine, token)
        behind = token.timestamp > engine.visible_ts or token.schema_version > engine.schema.version
        if self._reopen is not None and behind:
            self.refresh()
        while True:
            engine = self._opened()
            schema, plan = engine.schema, plan_of_changes(engine, token)
            first, last = window(engine, token.since, token.timestamp)
            changes = Changes(lambda: self._engine, plan, first, last, self, first=token.first)
            if engine.schema is schema:
                return changes

    def _changes_within(self, since: int, until: int, max_rows: int) -> int:
        """The latest time, ``until`` at most, up to which there are about ``max_rows`` changes after
        ``since``; always later than ``since``."""
        if until <= since:
            return since

        def changes(end: int) -> Changes:
            return self._changes_of(None, since, end, ())

        window(self._opened(), since, until)
        return admitted(self._opened(), changes, since, until, max_rows)

    @staticmethod
    def _plan(
        schema: Schema,
        columns: Any,
        where: Any,
        key_range: tuple[Any, Any] | None,
        order: str,
        limit: int | None,
        batch_rows: int,
        dictionary: Sequence[str] = (),
    ) -> ScanPlan:
        if order not in ("any", "key"):
            raise InvalidArgument(f'order is "any" or "key", not {order!r}')
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise InvalidArgument(f"limit is a whole number from 0 or None, not {limit!r}")
        compiled = compile_where(where, schema)
        lower, upper = _key_range(schema, key_range)
        if compiled is not None:
            lower, upper = keybounds.intersect((lower, upper), keybounds.key_bounds(schema, compiled.terms))
        projected = _project(schema, columns)
        return ScanPlan(
            schema=schema,
            columns=projected,
            filter=compiled,
            lower=lower,
            upper=upper,
            ordered=order == "key",
            limit=limit,
            batch_rows=check_batch_rows(batch_rows),
            tablet_ids=None,
            dictionary=_coded(projected, dictionary),
        )

    # ---- changing it ----

    def alter(
        self,
        *,
        add: Sequence[Column | pa.Field] | pa.Schema = (),
        drop: Sequence[str] = (),
        rename: Mapping[str, str] | None = None,
        add_range: tuple[Any, Any] | list[tuple[Any, Any]] | None = None,
        drop_range: tuple[Any, Any] | list[tuple[Any, Any]] | None = None,
    ) -> int:
        """Change columns and ranges, all of it or nothing, beside running scans and writes.

        Nothing stored is rewritten.  Rows that exist read an added column's default; every snapshot, also an
        older one, is read with the columns of today, but a scan that was made before keeps its own.  A column
        dropped and added again under its name is another column.

        Parameters
        ----------
        add
            Columns to add, nullable or with a default.
        drop, rename
            Names of columns, none of the key.  Columns are dropped, then renamed, all at once, then added.
        add_range, drop_range
            A range ``(lower, upper)`` of the table's ``RangePartition``, or a list of them.  A range is
            dropped, with its rows, by its exact bounds; snapshots from before still see them.  Ranges are
            dropped before others are added: one that is in both is emptied.

        Returns
        -------
        The timestamp of the change.

        Raises
        ------
        InvalidArgument
            A column or range breaks a rule; it is named and nothing has changed.
        Poisoned, Fenced, OSError
            It may or may not have happened, wholly or not at all.
        """
        engine = self._opened_for_writing()
        return alter(
            engine, add=add, drop=drop, rename=rename, add_range=add_range, drop_range=drop_range
        )

    # ---- looking after it ----

    def flush(self) -> None:
        """Write everything that only memory and the log hold into rowsets; durable when it returns."""
        engine = self._opened_for_writing()
        engine.log.wait_durable(engine.log.cut())
        assert engine.maintenance is not None
        engine.maintenance.flush_all()

    def compact(self, full: bool = False) -> None:
        """Merge what makes reading slow, as background maintenance would; ``full``: all of it.

        With ``full`` rowsets that overlap, or lie side by side and are small, become rowsets of about
        ``rowset_target_bytes`` that overlap nowhere, without the rows that nobody can see any more.
        Answers stay the same at every readable time.  Flush before, if what only memory holds is to
        take part.
        """
        engine = self._opened_for_writing()
        assert engine.compactions is not None
        engine.compactions.compact_all(full=full)
        engine.compactions.collect_garbage()

    def maintain(self, budget_s: float | None = None) -> int:
        """Do what background maintenance would do now, until nothing is worth it; how many operations it did.

        Flushes of what is large or old or holds the log, compactions and merges that pay, history and files
        that nobody needs; what gains most for its cost comes first.  With ``maintenance="manual"`` nothing of
        it happens by itself.  Answers stay the same at every readable time.

        Parameters
        ----------
        budget_s
            Seconds after which no other operation is begun; None: no limit.

        Raises
        ------
        OSError
            An operation failed; it is left alone for some seconds, so that a call after it does the others.
        """
        return maintain_now(self._opened_for_writing(), budget_s)

    def gc(self) -> None:
        """Drop the history that ``history_retention_s`` and pinned snapshots no longer keep, and the files
        that nothing names and nobody can be reading any more."""
        engine = self._opened_for_writing()
        assert engine.compactions is not None
        engine.compactions.collect_history()
        engine.compactions.collect_garbage()

    def backup(self, dst: str | os.PathLike[str], since: Any = None) -> BackupResult:
        """Write the table as it is now, or what changed since an earlier backup, to a folder elsewhere.

        Others read and write meanwhile.  The folder may hold any number of backups of this table;
        ``kudu_core.restore`` makes a table of one of them and of those that it continues.  A backup
        appears whole, durable and with checksums, or not at all.  It holds states: neither history
        nor ``txn`` tokens.

        Parameters
        ----------
        dst
            A folder for backups of this table alone; made if need be.
        since
            None: all rows.  What ``backup`` returned, or its ``timestamp``, or "last" for the last one in
            ``dst``: only what changed since then.  With nothing written since, that one is the answer.

        Raises
        ------
        InvalidArgument
            No backup in ``dst`` is of ``since``, or the folder holds something else.
        ChangesLost
            History no longer reaches back to ``since``: make a full backup.
        Locked
            Another backup to ``dst`` is under way.
        Corruption
            A backup that the new one continues is damaged or incomplete.
        OSError
            Such as a full disk; nothing is left of the backup.
        """
        return backup(self, folder_path(dst), since)

    def refresh(self) -> None:
        """Make what was written since the handle was opened readable, up to a record that cannot be replayed
        (``unreplayed``), of which it warns.

        A writer's handle always sees the newest state; there it does nothing.
        """
        engine = self._opened()
        if self._reopen is None:
            return
        with self._refreshing:  # two at once would leave one engine behind, or go back in time
            engine = self._opened()
            fresh = self._reopen()
            before, after = self._watch, watch(self, fresh)
            floor = max(engine.pins.floor, fresh.oldest_ts)
            met = fresh.unreplayed if fresh.unreplayed != engine.unreplayed else None
            # Plain stores: an interrupt comes before all of them or after.
            engine.pins.floor = floor
            fresh.pool, engine.pool = engine.pool, fresh.pool
            fresh.pins = engine.pins
            self._engine, self._watch = fresh, after
            before.detach()  # or it would keep the old engine and its files
            engine.retire()
        _warn_of_unreplayed(met)

    def stats(self, by: str = "table") -> pa.Table:
        """Sizes and counts by "table", "tablet", "rowset" or "column"."""
        return self._planned(lambda engine: stats(engine, by))

    def history(self) -> pa.Table:
        """What maintenance has done since this handle was opened, oldest first: the last 1,000 operations.

        Columns: ``finished`` (UTC), ``operation`` ("flush", "delta flush", "minor", "major", "merge",
        "history gc", "log gc", "file gc", "purge", "ingest"), ``tablet``, ``elapsed_s``, ``rows``,
        ``rowsets_read``, ``rowsets_written``, ``input_bytes``, ``output_bytes``, ``freed_bytes``, and the
        ``error`` of one that failed and is tried again.  NULL where an operation has no such number.  It is
        not stored: a listener (``open_table(listener=...)``) is told the same and may keep it.
        """
        return self._opened().journal.table()

    def metrics(self) -> dict[str, float]:
        """Numbers of this handle, by name.

        Now: ``memory_store_bytes``, ``memory_work_bytes`` (what flushes and merges under way hold beside the
        stores), ``memory_limit_bytes``, ``log_bytes``, ``rowsets``, ``lost_files`` and
        ``lost_bytes`` (in ``lost/``), ``tokens`` (writers known by their ``txn``), ``page_cache_bytes``,
        ``page_cache_kept_bytes`` (of pages used more than once),
        ``page_cache_pages``, ``page_cache_limit_bytes``.  Since it was opened: ``page_cache_hits``,
        ``page_cache_misses``, ``page_cache_evicted``, ``throttled_count`` and ``throttled_s`` (writers that
        were made to wait), ``tokens_dropped``, and of each operation of ``history()`` that has happened
        ``<operation>_count``, ``_errors``, ``_elapsed_s``, ``_rows``, ``_input_bytes``, ``_output_bytes``,
        ``_freed_bytes``.
        """
        return metrics(self._opened())

    def verify(self) -> Verified:
        """Read and check TABLE, manifests, the log and every byte of the newest state's files.

        Nothing comes from a cache: the table is opened anew for that, beside this handle.  What it calls
        sound opens and reads whole.  The answer says what was read, and names what lies in the folders and
        was not: ``lost/``, ``staging/``, files that nothing names, and names that are none of ours.

        Raises
        ------
        Corruption
            At the first damage, with file and offset.
        """
        return verify(self._opened())

    def layout(self) -> str:
        """The rowsets of every tablet, as text."""
        return layout(self._opened())

    def close(self) -> None:
        """Make everything durable and let go of the table.  Idempotent.

        What was read stays valid, and an iteration of a scan that has begun goes on to its end.
        """
        self._engine.close()
        self._watch.detach()  # last: after an interrupt the end of the handle or of Python closes it

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _opened(self) -> Engine:
        engine = self._engine
        engine.check_open()
        return engine

    def _opened_for_writing(self) -> Engine:
        engine = self._opened()
        if not engine.writer:
            raise ReadOnly(f'{engine.path} is open for reading; open it with mode="rw" to write')
        engine.check_writable()
        return engine


# ---- arguments ----


def folder_path(path: str | os.PathLike[str]) -> str:
    """An absolute path; ``InvalidArgument`` for what is none."""
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgument(f"{path!r} is no path of a table")
    return str(Path(text).absolute())


def _project(schema: Schema, columns: Any) -> tuple[StoredColumn, ...]:
    if isinstance(columns, str):
        raise InvalidArgument(f"columns is a list of names: [{columns!r}]")
    return schema.project(columns)


def _coded(columns: Sequence[StoredColumn], names: Sequence[str]) -> frozenset[int]:
    """Ids of the columns that are to come as dictionaries."""
    if isinstance(names, str):
        raise InvalidArgument(f"dictionary is a list of names: [{names!r}]")
    by_name = {column.name: column for column in columns}
    for name in names:
        if name not in by_name:
            raise InvalidArgument(f"dictionary: {name!r} is not a column of the scan")
        if by_name[name].type.kind != TYPE_BINARY:
            raise InvalidArgument(f"dictionary: {name!r} is {by_name[name].type}, not a string or binary")
    return frozenset(by_name[name].id for name in names)


def _key_range(schema: Schema, key_range: tuple[Any, Any] | None) -> tuple[bytes | None, bytes | None]:
    if key_range is None:
        return None, None
    if not isinstance(key_range, tuple | list) or len(key_range) != 2:
        raise InvalidArgument("key_range is (lower, upper), each a key, a prefix of one, or None")
    lower, upper = (None if k is None else encode_prefix(schema, k) for k in key_range)
    return lower, upper


__all__ = [
    "Table",
    "create_table",
    "open_table",
    "restore",
]
