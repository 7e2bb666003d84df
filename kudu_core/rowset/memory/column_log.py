"""Updates of one column in memory, in the order of their changes, and where the rows of each page lie."""

from __future__ import annotations

import numpy as np

from kudu_core._ext.changes.positions import ChangePositions
from kudu_core.rowset.memory.growing import GrowingColumn, GrowingNumbers

PIECE = 1 << 16
"""Updates of a column that scans find by buckets of rows; counted once, when there are so many."""

UNSORTED = 2048
"""So many updates at the end of a log are looked at one by one."""


class _PositionsByPage:
    """Where the changes of each page's rows lie in a log, by pieces of 65,536.  Made when a scan asks."""

    __slots__ = ("_last", "_positions")

    def __init__(self) -> None:
        self._positions: dict[int, ChangePositions] = {}
        self._last: tuple[int, ChangePositions] | None = None
        """Of the unfinished end of the log: good for scans at the same moment, with its first position."""

    @property
    def nbytes(self) -> int:
        last = self._last
        return sum(one.nbytes for one in list(self._positions.values())) + (last[1].nbytes if last else 0)

    def parts(self, rowids: np.ndarray) -> list[tuple[int, int, ChangePositions | None]]:
        """(lower, upper, positions or None) of pieces of a log's prefix: for every reader, but the last."""
        count = len(rowids)
        found: list[tuple[int, int, ChangePositions | None]] = []
        for lower in range(0, count, PIECE):
            upper = min(lower + PIECE, count)
            full = upper - lower == PIECE  # else of this reader: others see more
            positions = self._positions.get(lower) if full else self._at_end(lower, upper)
            if positions is None and upper - lower > UNSORTED:
                positions = ChangePositions(rowids[lower:upper])
                if full:
                    positions = self._positions.setdefault(lower, positions)
                else:
                    self._last = lower, positions
            found.append((lower, upper, positions))
        return found

    def _at_end(self, lower: int, upper: int) -> ChangePositions | None:
        last = self._last
        return last[1] if last and last[0] == lower and last[1].count == upper - lower else None


class ColumnLog:
    """Updates of one column: rowid, change number and value, by change number."""

    __slots__ = ("numbers", "positions", "rowids", "values")

    def __init__(self, width: int) -> None:
        self.rowids = GrowingNumbers(np.uint32)
        self.numbers = GrowingNumbers(np.uint32)
        self.values = GrowingColumn(width)
        self.positions = _PositionsByPage()

    def prefix(self, limit: int) -> int:
        """How many updates belong to changes numbered below ``limit``."""
        numbers = self.numbers.view()
        return int(np.searchsorted(numbers, numbers.dtype.type(limit)))  # of another type all are converted
