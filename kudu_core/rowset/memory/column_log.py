"""Updates of one column in memory, in the order of their changes, and where the rows of each page lie."""

from __future__ import annotations

import numpy as np

from kudu_core._ext.changes.replay import Run
from kudu_core.rowset.memory.growing import GrowingColumn, GrowingNumbers

RUN = 1 << 16
"""Updates of a column that scans find by buckets of rows; counted once, when there are so many."""

UNSORTED = 2048
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
        for lower in range(0, count, RUN):
            upper = min(lower + RUN, count)
            full = upper - lower == RUN  # else of this reader: others see more
            run = self._runs.get(lower) if full else self._at_end(lower, upper)
            if run is None and upper - lower > UNSORTED:
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


class ColumnLog:
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
