"""What one snapshot takes from changes in memory: those up to a number, replayed over columns and rows."""

from __future__ import annotations

import numpy as np

from kudu_core._ext.base.status import NeedsGeneralPath
from kudu_core._ext.changes import positions
from kudu_core._ext.changes.replay import Updates
from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_REINSERT
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.rowset.memory.logged import NARROW_CHANGES, LoggedChanges

_BUCKET_SHIFT = 14
"""Changes are sorted into buckets of a page's rows (16,384) when a scan replays them."""

_LIVENESS = -1
"""Stands for a column id, of which there is none below 0 here."""


class MemoryDeltas:
    """The first ``limit`` changes of a ``ChangeLog``, as a ``DeltaView``."""

    def __init__(self, log: LoggedChanges, limit: int) -> None:
        self.log = log
        self.limit = limit
        self._buckets: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._parts: dict[int, list[Updates]] = {}

    def touches(self, column_id: int) -> bool:
        return self.limit > 0 and self.log.column_log(column_id) is not None

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
            log = self.log.column_log(column_id) if self.limit > 0 else None
            if log is None:
                return []
            width = log.values.width
            if width == 0:
                return None
            rowids = log.rowids.view(0, log.prefix(self.limit))
            parts = []
            for first, end, at in log.positions.parts(rowids):
                values = log.values.read(first, end)
                parts.append(Updates(rowids[first:end], values.values, width, values.validity, positions=at))
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
        keep = ops >= REDO_DELETE
        if not keep.any():
            return None
        numbers = numbers[keep]
        return rowids[numbers], (ops[keep] == REDO_REINSERT).astype(np.uint8)

    def updates_of(self, column_id: int, rows: np.ndarray) -> tuple[np.ndarray, ColumnBuffers] | None:
        log = self.log.column_log(column_id) if self.limit > 0 else None
        if log is None:
            return None
        rows = np.ascontiguousarray(rows, np.int64)
        try:
            which, places = self.log.points.newest(column_id, rows, self.limit)
            rowids = rows[which].astype(np.uint32)
        except NeedsGeneralPath:
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
        except NeedsGeneralPath:
            numbers = self.log.searched(rows, self.limit)
            numbers = numbers[ops[numbers] >= REDO_DELETE]
        if not len(numbers):
            return None
        return rowids[numbers], (ops[numbers] == REDO_REINSERT).astype(np.uint8)

    @staticmethod
    def _is_narrow(rows: int, changes: int) -> bool:
        """Whether a read of ``rows`` rows is better served by the tree than by bucketing all."""
        return changes > NARROW_CHANGES and rows < 1 << (_BUCKET_SHIFT - 2)

    def _bucketed(self, column_id: int, rowids: np.ndarray, lower: int, upper: int) -> np.ndarray:
        """Positions of the changes of rows ``[lower, upper)`` in ``rowids``, ascending per row.

        The counting sort by pages of rows is done once per view and column.
        """
        if column_id not in self._buckets:
            self._buckets[column_id] = positions.bucket_sort(rowids, _BUCKET_SHIFT)
        starts, order = self._buckets[column_id]
        first = min(lower >> _BUCKET_SHIFT, len(starts) - 1)
        last = min(((upper - 1) >> _BUCKET_SHIFT) + 1, len(starts) - 1)
        picked = order[int(starts[first]) : int(starts[last])]
        if lower & ((1 << _BUCKET_SHIFT) - 1) or upper & ((1 << _BUCKET_SHIFT) - 1):
            inside = rowids[picked]
            picked = picked[(inside >= lower) & (inside < upper)]
        return picked
