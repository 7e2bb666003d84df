"""Changes of rows in memory, addressed by rowid, in timestamp order.

A DeltaMemStore is one of these; a MemRowSet keeps one for the changes of its own rows.  Per
column there is a log of (rowid, change number, value); a hash map gives each row's last change and
every change names the row's change before it: a point read walks that chain, or searches its index
where it is long.  Since the
logs are in timestamp order, what a snapshot sees is a prefix: a scan replays it over the decoded
column by direct addressing.

Source: Kudu's DeltaMemStore (tablet/deltamemstore.h), with columnar logs in place of a tree of
row changes; ``kudu_core/rowset/memory/__init__.py`` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kudu_core._ext.base.status import Elsewhere
from kudu_core._ext.changes import delta
from kudu_core._ext.changes.replay import Run, Updates
from kudu_core._ext.index.btree import BTreeU64
from kudu_core._ext.index.rowid_map import RowidMap
from kudu_core._ext.row.changes import ChangePoints
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.errors import InternalError
from kudu_core.rowset.memory import growing
from kudu_core.rowset.memory.growing import GrowingColumn, GrowingNumbers, StoreFull
from kudu_core.rowset.rows.delta_view import DELETE, REINSERT

if TYPE_CHECKING:
    from kudu_core._ext.row.codec import Cell

_BUCKET_SHIFT = 14
"""Changes are sorted into buckets of a page's rows (16,384) when a scan replays them."""

_LIVENESS = -1
"""Stands for a column id, of which there is none below 0 here."""

_NARROW_CHANGES = 4096
"""With fewer visible changes than this, looking at all of them costs less than the tree."""


_RUN_BITS = 16
_RUN = 1 << _RUN_BITS
"""Updates of a column that scans find by buckets of rows; counted once, when there are so many."""

_UNSORTED = 2048
"""So many updates at the end of a log are looked at one by one."""


class _Runs:
    """Where the changes of each page's rows lie in a log, by runs of 65,536.  Made when a scan asks."""

    __slots__ = ("_last", "_runs")

    def __init__(self) -> None:
        self._runs: dict[int, Run] = {}
        self._last: tuple[int, Run] | None = None
        """Of the unfinished end of the log: good for scans at the same moment, with its first position."""

    @property
    def nbytes(self) -> int:
        last = self._last
        return sum(run.nbytes for run in list(self._runs.values())) + (last[1].nbytes if last else 0)

    def parts(self, rowids: np.ndarray) -> list[tuple[int, int, Run | None]]:
        """(lower, upper, run or None) of pieces of a log's prefix: the same for every reader but the last."""
        count = len(rowids)
        found: list[tuple[int, int, Run | None]] = []
        for lower in range(0, count, _RUN):
            upper = min(lower + _RUN, count)
            full = upper - lower == _RUN  # else of this reader: others see more
            run = self._runs.get(lower) if full else self._at_end(lower, upper)
            if run is None and upper - lower > _UNSORTED:
                run = Run(rowids[lower:upper])
                if full:
                    run = self._runs.setdefault(lower, run)
                else:
                    self._last = lower, run
            found.append((lower, upper, run))
        return found

    def _at_end(self, lower: int, upper: int) -> Run | None:
        last = self._last
        return last[1] if last and last[0] == lower and last[1].count == upper - lower else None


class _ColumnLog:
    """Updates of one column: rowid, change number and value, by change number."""

    __slots__ = ("numbers", "rowids", "runs", "values")

    def __init__(self, width: int) -> None:
        self.rowids = GrowingNumbers(np.uint32)
        self.numbers = GrowingNumbers(np.uint32)
        self.values = GrowingColumn(width)
        self.runs = _Runs()

    def prefix(self, limit: int) -> int:
        """How many updates belong to changes numbered below ``limit``."""
        return int(np.searchsorted(self.numbers.view(), limit))


@dataclass(frozen=True, slots=True)
class Change:
    """Columns set to new values for some rows, or rows removed or revived, at one timestamp."""

    op: int
    rowids: np.ndarray
    """(n,) uint32, no rowid twice within one timestamp."""
    columns: Mapping[int, ColumnBuffers]
    """New values by column id, n rows each; empty for a DELETE."""


class ChangeLog:
    """Changes of the rows of one rowset.

    One writer at a time (the tablet's mutex); any number of readers, who look only at changes
    with timestamps that are applied.
    """

    def __init__(self) -> None:
        self._timestamps = GrowingNumbers(np.uint64)
        self._rowids = GrowingNumbers(np.uint32)
        self._ops = GrowingNumbers(np.uint8)
        self._before = GrowingNumbers(np.uint32)
        self._columns: dict[int, _ColumnLog] = {}
        self._last = RowidMap()
        self._tree = BTreeU64()
        self._liveness: dict[int, Updates] = {}
        """DELETE and REINSERT of 65,536 changes, by the number of the first; made when a scan asks."""
        self.points = ChangePoints(
            self._timestamps.kernel,
            self._rowids.kernel,
            self._ops.kernel,
            self._before.kernel,
            self._last,
        )
        """The same changes, for reads of one row."""
        self.first_ts: int | None = None
        self.last_ts = 0
        self._newest_ts = 0
        self.frozen_at: int | None = None
        """The cut at which it stopped taking changes; None while active."""

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def nbytes(self) -> int:
        logs = sum(
            log.rowids.nbytes + log.numbers.nbytes + log.values.nbytes + log.runs.nbytes
            for log in list(self._columns.values())  # a copy: the writer may add one meanwhile
        )
        return (
            logs
            + sum(len(part) for part in list(self._liveness.values()))
            + self._timestamps.nbytes
            + self._rowids.nbytes
            + self._ops.nbytes
            + self._before.nbytes
            + self._last.nbytes
            + self.points.nbytes
        )

    @property
    def allocated(self) -> int:
        """Bytes of its buffers, with the room in them: laying what was reserved leaves it as it is."""
        logs = sum(
            log.rowids.allocated + log.numbers.allocated + log.values.allocated
            for log in self._columns.values()
        )
        own = (self._timestamps, self._rowids, self._ops, self._before)
        return logs + sum(numbers.allocated for numbers in own) + self._last.nbytes

    def data_bytes(self, column_id: int) -> int:
        """Of the cells of a column of any length."""
        log = self._columns.get(column_id)
        return 0 if log is None else log.values.data_bytes

    def reserve(self, changes: Sequence[Change]) -> None:
        """Make room for changes, so that appending them allocates nothing and is not refused.

        ``StoreFull``: the log cannot take them.  As after MemoryError, it holds what it held.
        """
        count = sum(len(change.rowids) for change in changes)
        is_empty = not len(self)
        if len(self) + count > growing.MAX_ROWS:
            raise StoreFull(f"{len(self)} changes and {count} more", empty=is_empty)
        needed: dict[int, tuple[int, int, int]] = {}
        for change in changes:
            for column_id, values in change.columns.items():
                _, rows, size = needed.get(column_id, (0, 0, 0))
                more = 0 if values.offsets is None else int(values.offsets[-1]) - int(values.offsets[0])
                needed[column_id] = values.width, rows + values.length, size + more
        for column_id, (width, rows, size) in needed.items():
            log = self._columns.get(column_id)
            if log is None:
                log = self._new_column(column_id, width)
            try:
                log.values.reserve(rows, size)
            except OverflowError as exc:
                raise StoreFull(f"changes of column {column_id}: {exc}", empty=is_empty) from exc
            log.rowids.reserve(rows)
            log.numbers.reserve(rows)
        self.points.reserve(count)

    def append(self, ts: int, change: Change) -> None:
        """Add changes at ``ts``, which is not below any before it; of no row twice."""
        count = len(change.rowids)
        if not count:
            return
        self._begin(ts)
        rowids = np.ascontiguousarray(change.rowids, np.uint32)
        first = len(self._timestamps)
        for column_id, values in change.columns.items():
            log = self._columns.get(column_id)
            if log is None:
                log = self._new_column(column_id, values.width)
            log.values.append(values)
            log.rowids.append(rowids)
            log.numbers.append_ascending(first, count)
        # Last: a reader finds a change by its timestamp.
        self.points.append_rows(ts, change.op, rowids)
        if self.first_ts is None:
            self.first_ts = ts
        self.last_ts = ts

    def reserve_one(
        self, ids: tuple[int | None, ...], widths: Sequence[int], cells: list[Cell]
    ) -> None:
        """``reserve`` for ``append_one``; ``OverflowError``: a column is more than half full."""
        while (new := self.points.reserve_one(ids, cells)) >= 0:
            column_id = ids[new]
            assert column_id is not None
            self._new_column(column_id, widths[new])

    def append_one(
        self, ts: int, op: int, rowid: int, ids: tuple[int | None, ...], cells: list[Cell]
    ) -> None:
        """``append`` of one change, which was reserved.

        ``ids`` and ``cells`` by column: a cell is bytes, None for NULL, or ``...`` where the change does not
        set the column; so it is where the id is None.
        """
        self._begin(ts)
        self.points.append_one(ts, op, rowid, ids, cells)
        if self.first_ts is None:
            self.first_ts = ts
        self.last_ts = ts

    def _begin(self, ts: int) -> None:
        """Before changes at ``ts`` are laid: whether they may be."""
        if self.frozen_at is not None:
            raise InternalError("a frozen store takes no changes")
        if ts < self.last_ts:
            raise InternalError(
                f"a change of {ts} after one of {self.last_ts}: changes arrive in the order of their times"
            )
        self._newest_ts = ts  # first: see ``limit``

    @property
    def liveness_changes(self) -> int:
        """How many changes are DELETE or REINSERT."""
        return self.points.liveness

    def _new_column(self, column_id: int, width: int) -> _ColumnLog:
        log = self._columns[column_id] = _ColumnLog(width)
        self.points.add(column_id, log.numbers.kernel, log.rowids.kernel, log.values.kernel)
        return log

    def limit(self, snapshot: int) -> int:
        """How many changes a snapshot sees: those numbered below the answer."""
        # In this order: whoever sees a later change sees its timestamp too.
        count = len(self._timestamps)
        if self._newest_ts <= snapshot:
            return count
        return int(np.searchsorted(self._timestamps.view(), np.uint64(snapshot), side="right"))

    def at(self, snapshot: int) -> MemoryDeltas:
        return MemoryDeltas(self, self.limit(snapshot))

    def changes(self, lower: int, upper: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(timestamps, rowids, ops) of the changes numbered ``[lower, upper)``, as views."""
        return (
            self._timestamps.view(lower, upper),
            self._rowids.view(lower, upper),
            self._ops.view(lower, upper),
        )

    def column_changes(
        self, column_id: int, lower: int, upper: int
    ) -> tuple[np.ndarray, np.ndarray, ColumnBuffers]:
        """(change numbers, rowids, values) of one column, changes numbered ``[lower, upper)``."""
        log = self._columns[column_id]
        first, last = log.prefix(lower), log.prefix(upper)
        return log.numbers.view(first, last), log.rowids.view(first, last), log.values.read(first, last)

    def moved(self, numbers: np.ndarray, rowids: np.ndarray) -> ChangeLog:
        """A new log with some of the changes, in their order, at other rowids.

        ``numbers`` (n,) ascending change numbers, ``rowids`` (n,) uint32 where they go.
        """
        columns = {}
        for column_id, log in self._columns.items():
            known = log.numbers.view()
            at = np.searchsorted(numbers, known)
            at[at == len(numbers)] = 0
            mine = np.flatnonzero(numbers[at] == known) if len(numbers) else at[:0]
            if len(mine):
                columns[column_id] = (at[mine].astype(np.uint32), log.values.read(0, len(known)).take(mine))
        timestamps, _, ops = self.changes(0, len(self))
        return ChangeLog.of(timestamps[numbers], rowids, ops[numbers], columns)

    @staticmethod
    def of(
        timestamps: np.ndarray,
        rowids: np.ndarray,
        ops: np.ndarray,
        columns: Mapping[int, tuple[np.ndarray, ColumnBuffers]],
    ) -> ChangeLog:
        """A log of changes in the order of their timestamps, (n,) uint64, uint32, uint8.

        ``columns``: by id the numbers of the changes that set the column (ascending), and the values.
        """
        out = ChangeLog()
        if not len(timestamps):
            return out
        assert bool((timestamps[1:] >= timestamps[:-1]).all()), "changes lie in timestamp order"
        rowids = np.ascontiguousarray(rowids, np.uint32)
        out._timestamps.append(timestamps)
        out._rowids.append(rowids)
        out._ops.append(ops)
        out._before.append(out._last.exchange(rowids, 0))
        out.points.count_liveness(int((ops >= DELETE).sum()))
        out.first_ts, out.last_ts = int(timestamps[0]), int(timestamps[-1])
        out._newest_ts = out.last_ts
        for column_id, (numbers, values) in columns.items():
            new = out._new_column(column_id, values.width)
            new.values.append(values)
            new.numbers.append(numbers)
            new.rowids.append(rowids[numbers])
        return out

    def liveness_parts(self, limit: int) -> list[Updates]:
        """DELETE and REINSERT among the changes numbered below ``limit``: a byte each, 1 for present rows."""
        parts: list[Updates] = []
        if not self.liveness_changes:
            return parts
        for lower in range(0, limit, _RUN):
            upper = min(lower + _RUN, limit)
            full = upper - lower == _RUN  # else of this reader: others see more
            part = self._liveness.get(lower) if full else None
            if part is None:
                _, rowids, ops = self.changes(lower, upper)
                which = np.flatnonzero(ops >= DELETE)
                rowids, present = rowids[which], (ops[which] == REINSERT).view(np.uint8)
                run = Run(rowids) if len(rowids) > _UNSORTED else None
                part = Updates(rowids, present, 1, run=run)
                if full:
                    part = self._liveness.setdefault(lower, part)
            parts.append(part)
        return parts

    @property
    def column_ids(self) -> tuple[int, ...]:
        return tuple(self._columns)

    def last_changes(self, rowids: np.ndarray) -> np.ndarray:
        """Number of the newest change of each rowid, (n,) uint32, ``NONE`` where there is none."""
        return self._last.find(np.ascontiguousarray(rowids, np.uint32))

    def searched(self, rows: np.ndarray, limit: int) -> np.ndarray:
        """Numbers below ``limit`` of the changes of single rows, ascending, without the chains: for a moment
        in which the writer has put a change into the map and not yet into its chain."""
        found: np.ndarray = np.flatnonzero(np.isin(self._rowids.view(0, limit), rows)).astype(np.uint32)
        return found

    def in_rows(self, lower: int, upper: int, limit: int) -> np.ndarray:
        """Numbers below ``limit`` of the changes of rows ``[lower, upper)``, ascending, uint32."""
        if limit <= _NARROW_CHANGES:
            rowids = self._rowids.view(0, limit)
            return np.flatnonzero((rowids >= lower) & (rowids < upper)).astype(np.uint32)
        self._fill_tree(limit)
        keys = self._tree.range(lower << 32, upper << 32)
        numbers = (keys & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        return np.sort(numbers[numbers < limit])

    @property
    def _in_tree(self) -> int:
        """How many changes the tree holds.  Its own count: an interrupt may come right after it is filled."""
        return int(self._tree.count)

    def _fill_tree(self, limit: int) -> None:
        """Bring changes below ``limit`` into the tree keyed (rowid, change number)."""
        with self._tree.lock:
            first = self._in_tree
            if first >= limit:
                return
            rowids = self._rowids.view(first, limit)
            keys = (rowids.astype(np.uint64) << np.uint64(32)) | np.arange(first, limit, dtype=np.uint64)
            keys.sort()
            self._tree.insert_sorted(keys)


class MemoryDeltas:
    """The first ``limit`` changes of a ``ChangeLog``, as a ``DeltaView``."""

    def __init__(self, log: ChangeLog, limit: int) -> None:
        self.log = log
        self.limit = limit
        self._buckets: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._parts: dict[int, list[Updates]] = {}

    def touches(self, column_id: int) -> bool:
        return self.limit > 0 and column_id in self.log._columns

    def changes_liveness(self) -> bool:
        return self.limit > 0 and self.log.liveness_changes > 0

    def updates(self, column_id: int, lower: int, upper: int) -> tuple[np.ndarray, ColumnBuffers] | None:
        if not self.touches(column_id):
            return None
        if upper - lower == 1:
            return self.updates_of(column_id, np.array([lower]))
        numbers, rowids, values = self.log.column_changes(column_id, 0, self.limit)
        if self._is_narrow(upper - lower, len(numbers)):
            wanted = self.log.in_rows(lower, upper, self.limit)
            picked = np.searchsorted(numbers, wanted)
            found = picked < len(numbers)
            picked = picked[found]
            picked = picked[numbers[picked] == wanted[found]]
        else:
            picked = self._bucketed(column_id, rowids, lower, upper)
        if not len(picked):
            return None
        picked = picked.astype(np.int64)
        return rowids[picked], values.take(picked)

    def parts(self, column_id: int, lower: int, upper: int) -> list[Updates] | None:
        parts = self._parts.get(column_id)
        if parts is None:
            if not self.touches(column_id):
                return []
            log = self.log._columns[column_id]
            width = log.values.width
            if width == 0:
                return None
            rowids = log.rowids.view(0, log.prefix(self.limit))
            parts = []
            for first, end, run in log.runs.parts(rowids):
                values = log.values.read(first, end)
                parts.append(Updates(rowids[first:end], values.values, width, values.validity, run=run))
            self._parts[column_id] = parts
        return parts

    def liveness_parts(self, lower: int, upper: int) -> list[Updates]:
        parts = self._parts.get(_LIVENESS)
        if parts is None:
            parts = self._parts[_LIVENESS] = self.log.liveness_parts(self.limit)
        return parts

    def liveness(self, lower: int, upper: int) -> tuple[np.ndarray, np.ndarray] | None:
        if not self.changes_liveness():
            return None
        if upper - lower == 1:
            return self.liveness_of(np.array([lower]))
        _, rowids, ops = self.log.changes(0, self.limit)
        if self._is_narrow(upper - lower, len(rowids)):
            numbers = self.log.in_rows(lower, upper, self.limit)
        else:
            numbers = self._bucketed(-1, rowids, lower, upper)
        ops = ops[numbers]
        keep = ops >= DELETE
        if not keep.any():
            return None
        numbers = numbers[keep]
        return rowids[numbers], (ops[keep] == REINSERT).astype(np.uint8)

    def updates_of(self, column_id: int, rows: np.ndarray) -> tuple[np.ndarray, ColumnBuffers] | None:
        if not self.touches(column_id):
            return None
        rows = np.ascontiguousarray(rows, np.int64)
        log = self.log._columns[column_id]
        try:
            which, places = self.log.points.newest(column_id, rows, self.limit)
            rowids = rows[which].astype(np.uint32)
        except Elsewhere:
            wanted = self.log.searched(rows, self.limit)
            numbers = log.numbers.view(0, log.prefix(self.limit))
            places = np.flatnonzero(np.isin(numbers, wanted))
            rowids = log.rowids.view(0, len(numbers))[places]
        if not len(places):
            return None
        return rowids, log.values.read(0, int(places.max()) + 1).take(places)

    def liveness_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        if not self.changes_liveness():
            return None
        rows = np.ascontiguousarray(rows, np.int64)
        _, rowids, ops = self.log.changes(0, self.limit)
        try:
            _, numbers = self.log.points.newest(None, rows, self.limit)
        except Elsewhere:
            numbers = self.log.searched(rows, self.limit)
            numbers = numbers[ops[numbers] >= DELETE]
        if not len(numbers):
            return None
        return rowids[numbers], (ops[numbers] == REINSERT).astype(np.uint8)

    @staticmethod
    def _is_narrow(rows: int, changes: int) -> bool:
        """Whether a read of ``rows`` rows is better served by the tree than by bucketing all."""
        return changes > _NARROW_CHANGES and rows < 1 << (_BUCKET_SHIFT - 2)

    def _bucketed(self, column_id: int, rowids: np.ndarray, lower: int, upper: int) -> np.ndarray:
        """Positions of the changes of rows ``[lower, upper)`` in ``rowids``, ascending per row.

        The counting sort by pages of rows is done once per view and column.
        """
        if column_id not in self._buckets:
            self._buckets[column_id] = delta.bucket_sort(rowids, _BUCKET_SHIFT)
        starts, order = self._buckets[column_id]
        first = min(lower >> _BUCKET_SHIFT, len(starts) - 1)
        last = min(((upper - 1) >> _BUCKET_SHIFT) + 1, len(starts) - 1)
        picked = order[int(starts[first]) : int(starts[last])]
        if lower & ((1 << _BUCKET_SHIFT) - 1) or upper & ((1 << _BUCKET_SHIFT) - 1):
            inside = rowids[picked]
            picked = picked[(inside >= lower) & (inside < upper)]
        return picked
