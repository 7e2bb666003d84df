"""Columns of rows that lie in several runs, put together in an order.

Each way asks for the least copying that its rows allow: none where they are a stretch of one batch of
the caller, one gather where batches hold them, a read and a gather where files do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.table.calls.call import Call
from kudu_core.table.runs.sorted import MemoryRun, RunSpan


class RunCells(Protocol):
    """The cells of some rows, in some order."""

    def column(self, column_id: int) -> ColumnBuffers: ...
    def reordered(self, order: np.ndarray | None) -> RunCells:
        """The same rows in another order, (n,) int64; None: in this one.  Each column is asked for once, and
        these are not used any more."""
        ...


def cells_of(spans: Sequence[RunSpan]) -> RunCells:
    """The rows of all spans, one span after the other."""
    held = [(run, lower, upper) for run, lower, upper in spans if isinstance(run, MemoryRun)]
    if len(held) < len(spans):
        return _Read(spans)
    source = held[0][0].source
    if any(run.source is not source for run, _, _ in held):
        return _Interleaved.of(held)
    stretches = [(run.lower + lower, run.lower + upper) for run, lower, upper in held if run.order is None]
    if len(stretches) == len(held) and all(a[1] == b[0] for a, b in pairwise(stretches)):
        return _Stretch(source, stretches[0][0], stretches[-1][1])
    return _Scattered(source, np.concatenate([run.rows(lower, upper) for run, lower, upper in held]))


class _Stretch:
    """All rows between two of one batch."""

    def __init__(self, source: Call, lower: int, upper: int) -> None:
        self._source, self._lower, self._upper = source, lower, upper

    def column(self, column_id: int) -> ColumnBuffers:
        return self._source.block.columns[column_id].slice(self._lower, self._upper)

    def reordered(self, order: np.ndarray | None) -> RunCells:
        return self if order is None else _Scattered(self._source, order + self._lower)


class _Scattered:
    """Rows of one batch."""

    def __init__(self, source: Call, rows: np.ndarray) -> None:
        self._source, self._rows = source, rows

    def column(self, column_id: int) -> ColumnBuffers:
        return self._source.block.columns[column_id].take(self._rows)

    def reordered(self, order: np.ndarray | None) -> RunCells:
        return self if order is None else _Scattered(self._source, self._rows[order])


class _Interleaved:
    """Rows of several batches."""

    def __init__(self, sources: Sequence[Call], which: np.ndarray, rows: np.ndarray) -> None:
        self._sources, self._which, self._rows = sources, which, rows

    @staticmethod
    def of(spans: Sequence[tuple[MemoryRun, int, int]]) -> _Interleaved:
        sources: list[Call] = []
        which = []
        for run, lower, upper in spans:
            if not sources or sources[-1] is not run.source:
                sources.append(run.source)
            which.append(np.full(upper - lower, len(sources) - 1, np.int32))
        rows = [run.rows(lower, upper) for run, lower, upper in spans]
        return _Interleaved(sources, np.concatenate(which), np.concatenate(rows))

    def column(self, column_id: int) -> ColumnBuffers:
        parts = [source.block.columns[column_id] for source in self._sources]
        return ColumnBuffers.interleave(parts, self._which, self._rows)

    def reordered(self, order: np.ndarray | None) -> RunCells:
        if order is None:
            return self
        return _Interleaved(self._sources, self._which[order], self._rows[order])


class _Read:
    """Rows of runs in files.  A column that is asked for before the order is known is kept for after."""

    def __init__(self, spans: Sequence[RunSpan]) -> None:
        self._spans = spans
        self._kept: dict[int, ColumnBuffers] = {}

    def column(self, column_id: int) -> ColumnBuffers:
        if column_id not in self._kept:
            self._kept[column_id] = ColumnBuffers.concat(self._parts(column_id))
        return self._kept[column_id]

    def reordered(self, order: np.ndarray | None) -> RunCells:
        return _ReadInOrder(self._spans, self._kept, order)

    def _parts(self, column_id: int) -> list[ColumnBuffers]:
        return [run.column(column_id, lower, upper) for run, lower, upper in self._spans]


class _ReadInOrder(_Read):
    """The same, each column asked for once: nothing is kept."""

    def __init__(
        self, spans: Sequence[RunSpan], kept: dict[int, ColumnBuffers], order: np.ndarray | None
    ) -> None:
        super().__init__(spans)
        self._kept, self._order = kept, order

    def column(self, column_id: int) -> ColumnBuffers:
        order, read = self._order, self._kept.pop(column_id, None)
        if read is not None:
            return read if order is None else read.take(order)
        parts = self._parts(column_id)
        if order is None or len(parts) == 1:
            read = ColumnBuffers.concat(parts)
            return read if order is None else read.take(order)
        # One copy: of large cells there is no room for another.
        ends = np.cumsum([0, *(part.length for part in parts)])
        which = np.searchsorted(ends[1:], order, side="right").astype(np.int32)
        return ColumnBuffers.interleave(parts, which, order - ends[which])
