"""``Table``: what users hold.  Each method checks its arguments and hands over to a walk.

Its reading methods are in ``table_reads.py``, its writes in ``table_writes.py``, what every container has in
``table_manners.py``; ``entry.py`` makes and opens tables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kudu_core.common.schema.alter import SAME
from kudu_core.common.schema.ttl import told_ttl
from kudu_core.table.backup.backup import backup
from kudu_core.table.backup.backup_place import place_at
from kudu_core.table.changes.fitting_states import check_states
from kudu_core.table.lifecycle.alter import alter
from kudu_core.table.lifecycle.maintain import check_budget, collect_now, compact_now, flush_now, maintain_now
from kudu_core.table.table_administration import TableAdministration
from kudu_core.table.table_engines import TableEngines
from kudu_core.table.table_manners import TableManners
from kudu_core.table.table_reads import TableReads
from kudu_core.table.table_writes import TableWrites
from kudu_core.table.write.expired_rows import sweep

if TYPE_CHECKING:
    from datetime import timedelta

    import pyarrow as pa

    from kudu_core.common.partition.partitions import PartitionSchema
    from kudu_core.common.schema.declare import Column
    from kudu_core.objects.api import Requests
    from kudu_core.options import Options
    from kudu_core.table.backup.backup_manifest import BackupResult
    from kudu_core.table.calls.arguments import ProgressLike
    from kudu_core.tablet.replay.replay_log import Unreplayed


class Table(TableWrites, TableReads, TableEngines, TableManners, TableAdministration):
    """A table, open for reading or writing.  A context manager; safe for any number of threads.

    Travels to other processes by pickle, as a reader that opens the table there at its first use and reads
    the newest state then; to fix a state, send a ``Snapshot``.  A writer travels so too: what its handle
    shows is durable before it has gone, and what arrives can only read.  With it go the options that were
    given for the handle and ``storage_options``, but no listener.  Where another table is at the path by
    then, the first use raises ``TableNotFound``.  In the child of a fork a reader opens the table anew
    likewise; a writer belongs to the parent, and what reads or writes rows through it raises ``Closed``.

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
        """"rw" or "r": whether this handle writes."""
        return "rw" if self._handle.writes else "r"

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
    def ttl(self) -> tuple[str, timedelta] | None:
        """The column with the time of a row, and how long the row lives after it; None: for ever."""
        schema = self._handle.engine.schema
        return told_ttl(schema.ttl, schema.by_id)

    @property
    def options(self) -> Options:
        """What is in force for this handle: the options stored with the table, and in place of them those
        that it was opened with.  What None stands for is in ``metrics()``."""
        return self._handle.engine.asked_options

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
        of = "not open yet" if self._handle.is_unopened else f"key={self.primary_key}"
        return f"<kudu_core.Table {self.path!r} mode={self.mode!r} {of}>"

    # ---- changing it ----

    def alter(
        self,
        *,
        add: Sequence[Column | pa.Field] | pa.Schema = (),
        drop: Sequence[str] = (),
        rename: Mapping[str, str] | None = None,
        change: Mapping[str, Mapping[str, Any]] | None = None,
        order: Sequence[str] = (),
        add_range: tuple[Any, Any] | list[tuple[Any, Any]] | None = None,
        drop_range: tuple[Any, Any] | list[tuple[Any, Any]] | None = None,
        options: Options | Mapping[str, Any] | None = None,
        ttl: Any = SAME,
    ) -> int:
        """Change columns, ranges and options, all of it or nothing, beside running scans and writes.

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
            Names of columns; those of the key stay.  Columns are dropped, then renamed, all at once, then
            changed, by their new names, then added, then put in order.
        change
            By column: ``type`` (one that is stored alike: docs/alter.md), ``nullable``, ``default`` (of rows
            written from now on that do not give it; None: NULL, or none), ``comment``.  No longer nullable
            becomes what is NULL in no state that can be read.
        order
            Names of columns that come first, in this order; the others follow as they stand.
        add_range, drop_range
            A range ``(lower, upper)`` of the table's ``RangePartition``, or a list of them.  A range is
            dropped, with its rows, by its exact bounds; snapshots from before still see them.  Ranges are
            dropped before others are added: one that is in both is emptied.
        options
            Stored with the table from now on; the others stay.  What keeps history, flushes, sizes of files
            and graces holds for this handle at once, others when they refresh or open; log, threads and
            memory (``durability``, ``group_interval_s``, ``maintenance``, ``maintenance_threads``,
            ``memory_limit_bytes``, ``page_cache_bytes``, ``scan_threads``) at the next open.
        ttl
            As of ``create_table``; None: rows do not expire any more (docs/ttl.md).

        Returns
        -------
        The timestamp of the change.

        Raises
        ------
        InvalidArgument
            A column, range or option breaks a rule; it is named and nothing has changed.
        Poisoned, Fenced, OSError
            It may or may not have happened, wholly or not at all.
        """
        engine = self._handle.for_writing()
        return alter(
            engine, add=add, drop=drop, rename=rename, change=change, order=order,
            add_range=add_range, drop_range=drop_range, options=options, ttl=ttl,
            fit=partial(check_states, self._handle),
        )  # fmt: skip

    # ---- looking after it ----

    def flush(self) -> None:
        """Write everything that only memory and the log hold into rowsets; durable when it returns.

        >>> stock.flush()
        >>> int(stock.metrics()["rowsets"])
        1
        """
        flush_now(self._handle.for_writing())

    def compact(self, full: bool = False, *, progress: ProgressLike = None) -> None:
        """Merge what makes reading slow, as background maintenance would; ``full``: all of it.

        With ``full`` rowsets that overlap, or lie side by side and are small, become rowsets of about
        ``rowset_target_bytes`` that overlap nowhere, without the rows that nobody can see any more.
        Answers stay the same at every readable time.  Flush before, if what only memory holds is to
        take part.  ``progress`` as of ``backup``; one that is cancelled leaves done what it had done.

        >>> stock.compact(full=True)
        >>> stock.count()
        3
        """
        engine = self._handle.for_writing()
        sweep(engine)
        compact_now(engine, full=full, progress=progress)

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
        engine = self._handle.for_writing()
        check_budget(budget_s)
        return bool(sweep(engine)) + maintain_now(engine, budget_s)

    def gc(self) -> None:
        """Drop the history that ``history_retention_s`` and pinned snapshots no longer keep, the files that
        nothing names and nobody can be reading any more, and what the log has of changes that are in files.

        >>> stock.gc()
        """
        collect_now(self._handle.for_writing())

    def backup(
        self,
        dst: str | os.PathLike[str],
        since: Any = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        progress: ProgressLike = None,
        _requests: Requests | None = None,
    ) -> BackupResult:
        """Write the table as it is now, or what changed since an earlier backup, to a folder elsewhere, or to
        an object store.

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
            A folder for backups of this table alone; made if need be.  Or a URL.
        since
            None: all rows.  What ``backup`` returned, or its ``timestamp``, or "last" for the last one in
            ``dst``: only what changed since then.  With nothing written since, that one is the answer.
        storage_options
            As of ``kudu_core.open_table``, for a URL in ``dst``.
        progress
            True: a line on standard error shows how far it is.  Or it is called with each ``WorkEvent``
            (``done``, ``total``, ``unit``, ``rate``, ``cancel()``): docs/observability.md.

        Raises
        ------
        InvalidArgument
            No backup in ``dst`` is of ``since``, or the folder holds something else.
        ChangesLost
            History no longer reaches back to ``since``: make a full backup.
        Locked
            Another backup to ``dst`` is under way, or has come before this one.
        Corruption
            A backup that the new one continues is damaged or incomplete.
        OSError
            Such as a full disk.  There is no backup then; what is left of it, if anything, has a hidden name
            and goes with the next one.
        StoreError
            There is no backup then, unless it says ``unknown``: then there may be.
        """
        engine = self._handle.opened()
        place = place_at(dst, storage_options, engine.clock, fs=engine.fs.local, requests=_requests)
        return backup(self._handle, place, since, progress=progress)

    def refresh(self) -> None:
        """Make what was written since the handle was opened readable, up to a record that cannot be replayed
        (``unreplayed``), of which it warns.

        A writer's handle always sees the newest state; there it does nothing.

        >>> reader = kc.open_table(stock.path)
        >>> stock.insert([{"id": 4}]).inserted, reader.count(), reader.refresh(), reader.count()
        (1, 3, None, 4)
        """
        self._handle.refresh()

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


__all__ = ["Table"]
