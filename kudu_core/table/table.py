"""``Table``: what users hold.  Each method checks its arguments and hands over to a walk."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core.common.partition.declared import HashPartition, RangePartition
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.run.clock import Clock
from kudu_core.common.schema.declare import Column
from kudu_core.events import EventListener
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.options import Options
from kudu_core.table.backup.backup import backup
from kudu_core.table.backup.backup_manifest import BackupResult
from kudu_core.table.backup.restore import restore as restore_table
from kudu_core.table.calls.conform import with_policy
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.changes.change_tokens import ChangeToken, change_tokens, changes_of
from kudu_core.table.changes.changes import Changes, open_changes
from kudu_core.table.changes.changes_plan import ChangesRequest
from kudu_core.table.lifecycle.alter import alter
from kudu_core.table.lifecycle.handles import create_handle, folder_path, open_handle
from kudu_core.table.lifecycle.maintain import maintain_now
from kudu_core.table.opened.handle import HandleOwner
from kudu_core.table.read import arrow_out, points
from kudu_core.table.read.plan import BATCH_ROWS, ScanRequest
from kudu_core.table.read.scan import Scan, count, open_scan
from kudu_core.table.read.snapshot import Snapshot, open_snapshot
from kudu_core.table.read.tokens import DEFAULT_TARGET_ROWS, ScanToken, scan_of, scan_tokens
from kudu_core.table.report.stats import layout, metrics, stats
from kudu_core.table.report.verify import Verified, verify
from kudu_core.table.write import door
from kudu_core.table.write.batch import Batch
from kudu_core.table.write.door import TxnLike

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

    from kudu_core.fs.api import FileSystem
    from kudu_core.tablet.replay.bootstrap import Unreplayed


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

    >>> kc.create_table(path, pa.schema([("id", pa.int64())]), "id").insert([{"id": 7}]).inserted
    1

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
    handle = create_handle(
        path, schema, primary_key,
        partition_by=partition_by, options=options, exist_ok=exist_ok, fs=_fs, clock=_clock,
    )  # fmt: skip
    return Table(handle)


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

    >>> with kc.open_table(stock.path) as reader:
    ...     reader.count()
    3

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
    return Table(
        open_handle(
            path, mode, options=options, timeout_s=timeout_s, listener=listener, fs=_fs, clock=_clock
        )
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

    >>> stock.backup(folder).total
    3
    >>> kc.restore(folder, path).count()
    3

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
    restore_table(_fs or PosixFileSystem(), folder_path(src), folder_path(path), at, _clock or Clock())
    return open_table(path, "rw", _fs=_fs, _clock=_clock)


class Table(HandleOwner):
    """A table, open for reading or writing.  A context manager; safe for any number of threads.

    Does not travel: it refuses to be pickled, and in the child of a fork what reads or writes rows raises
    ``Closed``.

    >>> with kc.open_table(stock.path) as table:
    ...     table.get(1)
    {'id': 1, 'name': 'pen', 'price': 1.5}
    """

    # ---- what it is ----

    @property
    def path(self) -> str:
        return self._handle.path

    @property
    def mode(self) -> str:
        return "rw" if self._handle.engine.writer else "r"

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the table's columns."""
        return self._handle.engine.schema.arrow

    @property
    def primary_key(self) -> tuple[str, ...]:
        return self._handle.engine.schema.key_names

    @property
    def partitions(self) -> PartitionSchema:
        return self._handle.engine.partitions

    @property
    def options(self) -> Options:
        """What is in force for this handle: the options stored with the table, and in place of them those
        that it was opened with."""
        return self._handle.engine.options

    @property
    def unreplayed(self) -> Unreplayed | None:
        """The record of the log before which what a handle for reading sees ends, as the record cannot be
        replayed; None where there is none."""
        return self._handle.opened().unreplayed

    @property
    def timestamp(self) -> int:
        """The newest snapshot that this handle can read."""
        return self._handle.opened().visible_ts

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
        versions ascend.  A repetition, known by the fingerprint of its rows, does nothing; its answer is
        ``deduplicated`` and has, of the last version, the timestamp and counts of the first time, and in
        ``refused`` how many rows were refused then, but not which (``WriteResult``).  A version that was
        applied with other rows, or by another source, or that lies too far back to tell, is refused.
        ``on_repeat="skip"`` takes every version up to the last one for done, whatever its rows: for sources
        whose rows differ from run to run.  What is new among them is then not written.

        >>> stock.insert([{"id": 4, "name": "cap", "price": 0.5}], txn=("till", 1)).inserted
        1

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
        operation = with_policy("on_conflict", on_conflict, "insert")
        return door.write_rows(self._handle.engine, operation, data, on_error, txn, on_repeat)

    def upsert(
        self,
        data: Any,
        *,
        on_error: str = "raise",
        txn: TxnLike | None = None,
        on_repeat: str = "check",
    ) -> WriteResult:
        """Add rows, or change the given columns of those whose keys are there.

        >>> stock.upsert([{"id": 1, "price": 2.0}, {"id": 4, "price": 0.5}]).counts
        (1, 1, 0, 0)
        """
        return door.write_rows(self._handle.engine, "upsert", data, on_error, txn, on_repeat)

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

        >>> stock.update(where=pc.field("price") > 2, set={"price": pc.field("price") * 2}).updated
        2
        """
        return door.update(self._handle.engine, data, where, set, on_missing, on_error, txn, on_repeat)

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
        """Remove rows by key, or all rows that match ``where``.

        >>> stock.delete([{"id": 1}]).deleted, stock.delete([2, 3]).deleted  # keys of one column, bare
        (1, 2)
        """
        return door.delete(self._handle.engine, keys, where, on_missing, on_error, txn, on_repeat)

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

        >>> stock.apply({"_op": ["update", "delete"], "id": [1, 2], "price": [2.0, None]}).counts
        (0, 1, 1, 0)
        """
        return door.write_mixed(self._handle.engine, data, op_column, on_error, txn, on_repeat)

    def batch(
        self, *, on_error: str = "raise", txn: TxnLike | None = None, on_repeat: str = "check"
    ) -> Batch:
        """Many calls as one: ``with table.batch() as b: b.insert(...); b.delete(...)``.

        Decided and applied at exit, all or nothing, at one timestamp; each call sees those before it.
        An exception inside the block applies nothing.  ``b.result`` has the sums.

        >>> with stock.batch() as b:
        ...     b.delete([{"id": 1}])
        ...     b.insert([{"id": 4}])
        """
        return Batch(self._handle, on_error, txn, on_repeat)

    # ---- reads ----

    def get(self, key: Any, columns: Any = None, at: Any = None) -> dict[str, Any] | None:
        """One row by key: a scalar, a tuple in key order, or a dict.  None when it is not there.

        >>> stock.get(2, ["name"])
        {'name': 'ink'}
        """
        return points.get(self._handle, key, columns, at)

    def get_many(self, keys: Any, columns: Any = None, at: Any = None) -> pa.Table:
        """Rows by key, in the order of ``keys``.

        A column ``_found`` (bool) says which are there; the others hold their key and NULLs.

        >>> stock.get_many([3, 9], ["name"]).to_pylist()
        [{'name': 'pad', '_found': True}, {'name': None, '_found': False}]
        """
        return points.get_many(self._handle, keys, columns, at)

    def scan(
        self,
        columns: Any = None,
        where: Any = None,
        *,
        at: Any = None,
        key_range: tuple[Any, Any] | None = None,
        order: str = "any",
        limit: int | None = None,
        batch_rows: int = BATCH_ROWS,
        dictionary: Sequence[str] = (),
    ) -> Scan:
        """Rows at one snapshot; lazy and re-iterable.

        >>> stock.scan(["name"], pc.field("price") > 2, order="key").to_pylist()
        [{'name': 'ink'}, {'name': 'pad'}]

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
            ``"key"``: in key order.  The first batches are small then, and grow.
        dictionary
            String or binary columns of the result that come as Arrow dictionaries (int32 indices): three
            times faster to read where a rowset stores them so.  Each batch has its own dictionary;
            ``pyarrow.Table.unify_dictionaries`` makes one of them.
        """
        request = ScanRequest(columns, where, key_range, order, limit, batch_rows, dictionary)
        return open_scan(self._handle, request, at)

    def count(self, where: Any = None, at: Any = None) -> int:
        """How many rows there are.

        >>> stock.count([("price", ">", 2)])
        2
        """
        return count(self._handle, where, at)

    def snapshot(self, at: Any = None) -> Snapshot:
        """Pin a state of the table for several reads.

        >>> with stock.snapshot() as before:
        ...     stock.delete([{"id": 1}]).deleted, stock.count(), before.scan().count()
        (1, 2, 3)
        """
        return open_snapshot(self._handle, at)

    def to_dataset(self, at: Any = None) -> Dataset:
        """The table at one snapshot as a ``pyarrow.dataset.Dataset``.

        DuckDB and Polars (``scan_pyarrow_dataset``) query it with SQL or expressions; the columns and
        the filters that they push down prune as those of ``scan`` do.  The snapshot stays pinned
        while the dataset lives, like one of ``snapshot()``.  What was read stays valid and a scan that
        has begun ends well, also after ``close()``; a new one then raises ``Closed``.

        >>> stock.to_dataset().to_table(filter=pc.field("price") > 2).num_rows
        2

        Raises
        ------
        SnapshotTooOld, SnapshotInFuture
            As ``scan``.
        """
        self._handle.opened()
        return arrow_out.make_dataset(self._handle, at)

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

        >>> since = stock.delete([{"id": 1}]).timestamp - 1
        >>> stock.changes(since, columns=["id"]).to_table()["_op"].to_pylist()
        ['delete']

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
        return open_changes(self._handle, ChangesRequest(columns, where, images, net), since, until)

    def scan_tokens(
        self,
        columns: Any = None,
        where: Any = None,
        *,
        at: Any = None,
        key_range: tuple[Any, Any] | None = None,
        batch_rows: int = BATCH_ROWS,
        target_rows: int = DEFAULT_TARGET_ROWS,
    ) -> list[ScanToken]:
        """Shares of a scan of about ``target_rows`` rows, picklable, all at one snapshot.

        >>> [token.rows for token in stock.scan_tokens(["name"])]
        [3]
        """
        request = ScanRequest(columns, where, key_range, batch_rows=batch_rows)
        return scan_tokens(self._handle, request, at, target_rows)

    def scan_token(self, token: ScanToken) -> Scan:
        """The scan of one share.  A reader that is behind the token's snapshot refreshes first.

        >>> [stock.scan_token(token).count() for token in stock.scan_tokens()]
        [3]
        """
        return scan_of(self._handle, token)

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

        >>> len(stock.change_tokens(None, net=True))
        1

        Raises
        ------
        ChangesLost
            History no longer reaches back to ``since``.
        """
        request = ChangesRequest(columns, where, images, net)
        return change_tokens(self._handle, request, since, until, target_rows)

    def change_token(self, token: ChangeToken) -> Changes:
        """The changes of one share.  A reader that is behind the token's end refreshes first.

        >>> [stock.change_token(t).to_table().num_rows for t in stock.change_tokens(None, net=True)]
        [3]
        """
        return changes_of(self._handle, token)

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

        >>> at = stock.alter(add=[kc.Column("shelf", "string", default="A")], rename={"name": "label"})
        >>> stock.get(1)
        {'id': 1, 'label': 'pen', 'price': 1.5, 'shelf': 'A'}

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
        engine = self._handle.for_writing()
        return alter(
            engine, add=add, drop=drop, rename=rename, add_range=add_range, drop_range=drop_range
        )

    # ---- looking after it ----

    def flush(self) -> None:
        """Write everything that only memory and the log hold into rowsets; durable when it returns.

        >>> stock.flush()
        >>> int(stock.metrics()["rowsets"])
        1
        """
        engine = self._handle.for_writing()
        engine.log.wait_durable(engine.log.cut())
        assert engine.maintenance is not None
        engine.maintenance.flush_all()

    def compact(self, full: bool = False) -> None:
        """Merge what makes reading slow, as background maintenance would; ``full``: all of it.

        With ``full`` rowsets that overlap, or lie side by side and are small, become rowsets of about
        ``rowset_target_bytes`` that overlap nowhere, without the rows that nobody can see any more.
        Answers stay the same at every readable time.  Flush before, if what only memory holds is to
        take part.

        >>> stock.compact(full=True)
        >>> stock.count()
        3
        """
        engine = self._handle.for_writing()
        assert engine.compactions is not None
        engine.compactions.compact_all(full=full)
        engine.compactions.collect_garbage()

    def maintain(self, budget_s: float | None = None) -> int:
        """Do what background maintenance would do now, until nothing is worth it; how many operations it did.

        Flushes of what is large or old or holds the log, compactions and merges that pay, history and files
        that nobody needs; what gains most for its cost comes first.  With ``maintenance="manual"`` nothing of
        it happens by itself.  Answers stay the same at every readable time.

        >>> stock.maintain(budget_s=60)
        0

        Parameters
        ----------
        budget_s
            Seconds after which no other operation is begun; None: no limit.

        Raises
        ------
        OSError
            An operation failed; it is left alone for some seconds, so that a call after it does the others.
        """
        return maintain_now(self._handle.for_writing(), budget_s)

    def gc(self) -> None:
        """Drop the history that ``history_retention_s`` and pinned snapshots no longer keep, and the files
        that nothing names and nobody can be reading any more.

        >>> stock.gc()
        """
        engine = self._handle.for_writing()
        assert engine.compactions is not None
        engine.compactions.collect_history()
        engine.compactions.collect_garbage()

    def backup(self, dst: str | os.PathLike[str], since: Any = None) -> BackupResult:
        """Write the table as it is now, or what changed since an earlier backup, to a folder elsewhere.

        Others read and write meanwhile.  The folder may hold any number of backups of this table;
        ``kudu_core.restore`` makes a table of one of them and of those that it continues.  A backup
        appears whole, durable and with checksums, or not at all.  It holds states: neither history
        nor ``txn`` tokens.

        >>> full = stock.backup(folder)
        >>> stock.insert([{"id": 4}]).inserted, stock.backup(folder, since=full).inserted
        (1, 1)

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
            Such as a full disk.  There is no backup then; what is left of it, if anything, has a hidden name
            and goes with the next one.
        """
        return backup(self._handle, folder_path(dst), since)

    def refresh(self) -> None:
        """Make what was written since the handle was opened readable, up to a record that cannot be replayed
        (``unreplayed``), of which it warns.

        A writer's handle always sees the newest state; there it does nothing.

        >>> reader = kc.open_table(stock.path)
        >>> stock.insert([{"id": 4}]).inserted, reader.count(), reader.refresh(), reader.count()
        (1, 3, None, 4)
        """
        self._handle.refresh()

    def stats(self, by: str = "table") -> pa.Table:
        """Sizes and counts by "table", "tablet", "rowset" or "column".

        >>> stock.stats("tablet").column("memory_rows").to_pylist()
        [3]
        """
        return self._handle.retrying(stats, by)

    def history(self) -> pa.Table:
        """What maintenance has done since this handle was opened, oldest first: the last 1,000 operations.

        Columns: ``finished`` (UTC), ``operation`` ("flush", "delta flush", "minor", "major", "merge",
        "history gc", "log gc", "file gc", "purge", "ingest"), ``tablet``, ``elapsed_s``, ``rows``,
        ``rowsets_read``, ``rowsets_written``, ``input_bytes``, ``output_bytes``, ``freed_bytes``, and the
        ``error`` of one that failed and is tried again.  NULL where an operation has no such number.  It is
        not stored: a listener (``open_table(listener=...)``) is told the same and may keep it.

        >>> stock.flush()
        >>> stock.history().column("operation").to_pylist()
        ['flush']
        """
        return self._handle.opened().journal.table()

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

        >>> int(stock.metrics()["rowsets"])
        0
        """
        return metrics(self._handle.opened())

    def verify(self) -> Verified:
        """Read and check TABLE, manifests, the log and every byte of the newest state's files.

        Nothing comes from a cache: the table is opened anew for that, beside this handle.  What it calls
        sound opens and reads whole.  The answer says what was read, and names what lies in the folders and
        was not: ``lost/``, ``staging/``, files that nothing names, and names that are none of ours.

        >>> stock.verify().records
        1

        Raises
        ------
        Corruption
            At the first damage, with file and offset.
        """
        return verify(self._handle.opened())

    def layout(self) -> str:
        """The rowsets of every tablet, as text.

        >>> print(stock.layout())
        tablet 1  all rows
          memrowset: 3 rows, 0 changes
        """
        return layout(self._handle.opened())

    def close(self) -> None:
        """Make everything durable and let go of the table.  Idempotent.

        What was read stays valid, and an iteration of a scan that has begun goes on to its end.

        >>> stock.close()
        """
        self._handle.close()

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


__all__ = ["Table", "create_table", "open_table", "restore"]
