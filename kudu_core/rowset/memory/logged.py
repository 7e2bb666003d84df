"""Changes of rows in memory as readers find them: by number, by row, by column.

Whoever adds changes (``changelog``) does so at the end, and readers look only at those with timestamps that
are applied; what a snapshot takes from them is ``memory_deltas``.
"""

from __future__ import annotations

import numpy as np

from kudu_core._ext.changes.positions import ChangePositions
from kudu_core._ext.changes.replay import Updates
from kudu_core._ext.index.btree_u64 import BTreeU64
from kudu_core._ext.index.rowid_map import NONE, RowidMap
from kudu_core._ext.row.change_log import ChangePoints
from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_REINSERT
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.rowset.memory.column_log import PIECE, UNSORTED, ColumnLog
from kudu_core.rowset.memory.growing import GrowingNumbers

NARROW_CHANGES = 4096
"""With fewer visible changes than this, looking at all of them costs less than the tree."""

WALKED = 64
"""Changes of one row that are followed one by one; of a row with more, all changes are looked at."""


class LoggedChanges:
    """Changes of the rows of one rowset, numbered in the order of their timestamps."""

    def __init__(self) -> None:
        self._timestamps = GrowingNumbers(np.uint64)
        self._rowids = GrowingNumbers(np.uint32)
        self._ops = GrowingNumbers(np.uint8)
        self._before = GrowingNumbers(np.uint32)
        self._columns: dict[int, ColumnLog] = {}
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
            log.rowids.nbytes + log.numbers.nbytes + log.values.nbytes + log.positions.nbytes
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

    @property
    def liveness_changes(self) -> int:
        """How many changes are DELETE or REINSERT."""
        return self.points.liveness

    def limit(self, snapshot: int) -> int:
        """How many changes a snapshot sees: those numbered below the answer."""
        # In this order: whoever sees a later change sees its timestamp too.
        count = len(self._timestamps)
        if self._newest_ts <= snapshot:
            return count
        return int(np.searchsorted(self._timestamps.view(), np.uint64(snapshot), side="right"))

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

    @property
    def column_ids(self) -> tuple[int, ...]:
        return tuple(self._columns)

    def liveness_parts(self, limit: int) -> list[Updates]:
        """DELETE and REINSERT among the changes numbered below ``limit``: a byte each, 1 for present rows."""
        parts: list[Updates] = []
        if not self.liveness_changes:
            return parts
        for lower in range(0, limit, PIECE):
            upper = min(lower + PIECE, limit)
            full = upper - lower == PIECE  # else of this reader: others see more
            part = self._liveness.get(lower) if full else None
            if part is None:
                _, rowids, ops = self.changes(lower, upper)
                which = np.flatnonzero(ops >= REDO_DELETE)
                rowids, present = rowids[which], (ops[which] == REDO_REINSERT).view(np.uint8)
                positions = ChangePositions(rowids) if len(rowids) > UNSORTED else None
                part = Updates(rowids, present, 1, positions=positions)
                if full:
                    part = self._liveness.setdefault(lower, part)
            parts.append(part)
        return parts

    def searched(self, rows: np.ndarray, limit: int) -> np.ndarray:
        """Numbers below ``limit`` of the changes of single rows, ascending, without the chains: for a moment
        in which the writer has put a change into the map and not yet into its chain."""
        found: np.ndarray = np.flatnonzero(np.isin(self._rowids.view(0, limit), rows)).astype(np.uint32)
        return found

    def of_rows(self, rows: np.ndarray, lower: int, upper: int) -> np.ndarray:
        """Numbers in ``[lower, upper)`` of the changes of single rows, (n,) int64 that ascend strictly;
        ascending, int64."""
        at = self._last.find(rows.astype(np.uint32))
        before = self._before.view()
        found: list[np.ndarray] = []
        for _ in range(WALKED):
            at = at[at != NONE]
            if len(at) and int(at.max()) >= len(before):
                break  # the writer has put it into the map, and not yet into its chain
            at = at[at >= lower]
            if not len(at):
                return np.sort(np.concatenate(found)).astype(np.int64) if found else np.empty(0, np.int64)
            found.append(at[at < upper])
            at = before[at]
        numbers = self.searched(rows, upper).astype(np.int64)
        return numbers[numbers >= lower]

    def in_rows(self, lower: int, upper: int, limit: int) -> np.ndarray:
        """Numbers below ``limit`` of the changes of rows ``[lower, upper)``, ascending, uint32."""
        if limit <= NARROW_CHANGES:
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

    def column_log(self, column_id: int) -> ColumnLog | None:
        """The updates of a column; None: no change sets it."""
        return self._columns.get(column_id)
