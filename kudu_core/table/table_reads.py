"""What a ``Table`` answers: rows, changes, and what it is made of.  No call here writes to the table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kudu_core.table.changes.change_tokens import ChangeToken, change_tokens, changes_of
from kudu_core.table.changes.changes import Changes, open_changes
from kudu_core.table.changes.changes_plan import ChangesRequest
from kudu_core.table.changes.row_history import history_of
from kudu_core.table.opened.handle import HandleOwner
from kudu_core.table.read import arrow_out, points
from kudu_core.table.read.plan import BATCH_ROWS, ScanRequest
from kudu_core.table.read.scan import Scan, count, open_scan
from kudu_core.table.read.snapshot import Snapshot, open_snapshot
from kudu_core.table.read.tokens import DEFAULT_TARGET_ROWS, ScanToken, scan_of, scan_tokens
from kudu_core.table.report.metrics import Metrics, metrics
from kudu_core.table.report.stats import layout, stats
from kudu_core.table.report.verify import Verified, verify

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.dataset import Dataset

    from kudu_core.page.report_page import Report
    from kudu_core.table.calls.arguments import Images, Order, ProgressLike, StatsBy, Where
    from kudu_core.table.read.moment import At


class TableReads(HandleOwner):
    """The reading half of ``Table``: every method of it is one of ``Table``'s."""

    # ---- rows and changes ----

    def get(self, key: Any, columns: Any = None, at: At = None) -> dict[str, Any] | None:
        """One row by key: a scalar, a tuple in key order, or a dict.  None when it is not there.

        >>> stock.get(2, ["name"])
        {'name': 'ink'}
        """
        handle = self._handle
        age_s = handle.refresh_s
        if age_s is not None and handle.now_s() - handle.refreshed_s >= age_s:
            handle.current()  # the look before saves most reads the call
        if stands_for := next(handle.gets_due):
            return points.get_timed(handle, key, columns, at, stands_for)
        return points.get(handle, key, columns, at)

    def get_many(self, keys: Any, columns: Any = None, at: At = None) -> pa.Table:
        """Rows by key, in the order of ``keys``.

        A column ``_found`` (bool) says which are there; the others hold their key and NULLs.

        >>> stock.get_many([3, 9], ["name"]).to_pylist()
        [{'name': 'pad', '_found': True}, {'name': None, '_found': False}]
        """
        return points.get_many(self._handle.current(), keys, columns, at)

    def scan(
        self,
        columns: Any = None,
        where: Where | None = None,
        *,
        at: At = None,
        key_range: tuple[Any, Any] | None = None,
        order: Order = "any",
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
            A ``pyarrow.compute`` expression, filter lists ``[("k", ">", 5), ...]``, or SQL text, which means
            what it does in DuckDB (docs/sql.md).  Of the others NULL and NaN compare as in Arrow: a
            comparison with NULL is not true.  Conditions on one column come first:
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
        return open_scan(self._handle.current(), request, at)

    def count(self, where: Where | None = None, at: At = None) -> int:
        """How many rows there are.

        >>> stock.count([("price", ">", 2)])
        2
        """
        return count(self._handle.current(), where, at)

    def snapshot(self, at: At = None) -> Snapshot:
        """Pin a state of the table for several reads.

        >>> with stock.snapshot() as before:
        ...     stock.delete([{"id": 1}]).deleted, stock.count(), before.scan().count()
        (1, 2, 3)
        """
        return open_snapshot(self._handle.current(), at, history_of)

    def to_dataset(self, at: At = None) -> Dataset:
        """The table at one snapshot as a ``pyarrow.dataset.Dataset``.

        DuckDB, DataFusion, Dask, Ray and pyarrow query it (docs/engines.md; Polars better by ``lazy``); the
        columns and the filters that they push down prune as those of ``scan`` do.  The snapshot stays pinned
        while the dataset lives, like one of ``snapshot()``.  What was read stays valid and a scan that
        has begun ends well, also after ``close()``; a new one then raises ``Closed``.

        The keys of a join are not handed down: an engine reads all rows of its columns.  Where they are few,
        join them with what ``get_many``, or a scan with ``isin``, has found (1,000 keys of 500,000 rows: 4 ms
        of processor time for 29).

        >>> stock.to_dataset().to_table(filter=pc.field("price") > 2).num_rows
        2

        Raises
        ------
        SnapshotTooOld, SnapshotInFuture
            As ``scan``.
        """
        handle = self._handle.current()
        handle.opened()
        return arrow_out.make_dataset(handle, at)

    def changes(
        self,
        since: At = None,
        until: At = None,
        *,
        columns: Any = None,
        where: Where | None = None,
        images: Images = "after",
        net: bool = False,
        key: Any = None,
    ) -> Changes:
        """What changed in ``(since, until]``; lazy and re-iterable.

        All changes in order of time: ``_op`` ("insert", "update", "delete"), ``_timestamp`` (uint64) and the
        row after the change; a deletion has its key, and NULLs.  A key has one change at one time.  Where the
        whole table was overwritten, each key of before and after has one.  The cost follows the changes.

        >>> since = stock.delete([{"id": 1}]).timestamp - 1
        >>> stock.changes(since, columns=["id"]).to_table()["_op"].to_pylist()
        ['delete']
        >>> stock.changes(key=2, columns=["name"]).to_table()["_op"].to_pylist()
        ['insert']

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
        key
            One key, as ``get`` takes it, or several in a list, an Arrow array or anything with columns: what
            became of these rows alone.  They are looked up as ``get`` does, so the cost follows their
            changes and the number of rowsets, not the changes of others.

        Raises
        ------
        ChangesLost
            History no longer reaches back to ``since``.
        InvalidArgument
            A key that does not fit names its column.
        """
        request = ChangesRequest(columns, where, images, net, key)
        return open_changes(self._handle.current(), request, since, until)

    def history_of(
        self, key: Any, columns: Any = None, since: At = None, until: At = None
    ) -> pa.Table:
        """Every version of one row that history still has, oldest first.

        ``_valid_from`` and ``_valid_to`` are the timestamps from which on and before which ``get(key, at=)``
        finds the version, ``_op`` is what began it ("insert", "update"); then the columns as they were.
        ``_valid_to`` is NULL for a version that is there at ``until``.  ``_valid_from`` and ``_op`` are NULL
        for one that was there when history begins.  While the row is gone no version is valid: one that was
        deleted ends before the next one begins.  An update begins a version also where it changed nothing,
        or no column that is asked for.  The row is looked up as ``get`` does, so the cost follows its
        changes and the number of files, not the changes of others.

        >>> since = stock.update([{"id": 2, "price": 3.5}]).timestamp
        >>> versions = stock.history_of(2, ["price"])
        >>> versions["_op"].to_pylist(), versions["price"].to_pylist()
        (['insert', 'update'], [4.0, 3.5])
        >>> versions["_valid_to"].to_pylist() == [since, None]
        True

        Parameters
        ----------
        key
            One key, as ``get`` takes it.
        columns
            Names, in the order wanted; None: all of today's.
        since
            Only versions that were there at this moment or later, as ``at`` of a scan; None: as far back as
            history reaches.
        until
            The history as it was at this moment; None: now.

        Raises
        ------
        ChangesLost
            History no longer reaches back to ``since``.
        InvalidArgument
            A key that does not fit names its column; a column has the name of one of the three.
        """
        return history_of(self._handle.current(), key, columns, since, until)

    def scan_tokens(
        self,
        columns: Any = None,
        where: Where | None = None,
        *,
        at: At = None,
        key_range: tuple[Any, Any] | None = None,
        batch_rows: int = BATCH_ROWS,
        target_rows: int = DEFAULT_TARGET_ROWS,
    ) -> list[ScanToken]:
        """Shares of a scan of about ``target_rows`` rows, picklable, all at one snapshot.

        >>> [token.rows for token in stock.scan_tokens(["name"])]
        [3]
        """
        request = ScanRequest(columns, where, key_range, batch_rows=batch_rows)
        return scan_tokens(self._handle.current(), request, at, target_rows)

    def scan_token(self, token: ScanToken) -> Scan:
        """The scan of one share.  A reader that is behind the token's snapshot refreshes first.

        >>> [stock.scan_token(token).count() for token in stock.scan_tokens()]
        [3]
        """
        return scan_of(self._handle, token)

    def change_tokens(
        self,
        since: At,
        until: At = None,
        *,
        columns: Any = None,
        where: Where | None = None,
        images: Images = "after",
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
        return change_tokens(self._handle.current(), request, since, until, target_rows)

    def change_token(self, token: ChangeToken) -> Changes:
        """The changes of one share.  A reader that is behind the token's end refreshes first.

        >>> [stock.change_token(t).to_table().num_rows for t in stock.change_tokens(None, net=True)]
        [3]
        """
        return changes_of(self._handle, token)

    # ---- what it is made of ----

    def stats(self, by: StatsBy = "table") -> pa.Table:
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

    def metrics(self) -> Metrics:
        """Numbers of this handle by key, all from the beginning on: docs/observability.md has the list.

        What is so now: memory, log, rowsets, the page cache, and what reads pay until maintenance has done
        its work (``height``, ``merge_debt_bytes``, ``delta_share``, ...).  What has happened since the table
        was opened: ``<operation>_count`` and sums of each operation of ``history()``, calls and their
        seconds (``get_count``, ``write_elapsed_s``, ...), waits, hits and misses.  ``described`` has each
        with its name for monitoring, kind, unit, meaning and labels, and times as histograms;
        ``kudu_core.prometheus_text`` writes them for Prometheus.

        >>> int(stock.metrics()["rowsets"])
        0
        >>> [m.kind for m in stock.metrics().described if m.name == "kudu_core_rowsets"]
        ['gauge']
        """
        return metrics(self._handle.opened())

    def verify(self, *, progress: ProgressLike = None) -> Verified:
        """Read and check TABLE, manifests, the log and every byte of the newest state's files.

        Nothing comes from a cache: the table is opened anew for that, beside this handle.  What it calls
        sound opens and reads whole.  The answer says what was read, and names what lies in the folders and
        was not: ``lost/``, ``staging/``, files that nothing names, and names that are none of ours.
        ``progress`` as of ``backup``.

        >>> stock.verify().records
        1

        Raises
        ------
        Corruption
            At the first damage, with file and offset.
        """
        return verify(self._handle.opened(), progress)

    def layout(self) -> str:
        """The rowsets of every tablet, as text.

        >>> print(stock.layout())
        tablet 1  all rows
          memrowset: 3 rows, 0 changes
        """
        return layout(self._handle.opened())

    def report(self, path: str | os.PathLike[str] | None = None) -> Report:
        """A page on which one sees the table as it is now (docs/page.md); a notebook shows it.

        Tablets, rowsets over their keys, retention, columns, maintenance, memory, log; no row is read.

        >>> stock.report(path + ".html").data.primary_key
        ['id']

        Parameters
        ----------
        path
            Where the page is written too, as one file of HTML that asks for nothing from elsewhere.
        """
        from kudu_core.table.report.gather.gathered import report_of  # with what makes HTML, for few

        return report_of(self._handle.current(), path)
