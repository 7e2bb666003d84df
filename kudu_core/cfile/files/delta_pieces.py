"""The changes of a ``.delta`` file in pieces of a page each, as scans lay them over rows.

Each is decoded once and kept in the page cache of the file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from kudu_core._ext.changes.replay import Updates
from kudu_core.cfile.columns.reader import ColumnReader
from kudu_core.cfile.files.ascending import page_bounds
from kudu_core.cfile.files.delta_codes import REDO_UPDATE, UNDO_ALIVE
from kudu_core.cfile.pages.container import FileReader
from kudu_core.cfile.pages.page import PAGE_BITS, PAGE_ROWS

_PLACES = -(1 << 48)
"""Places in the page cache of what is kept decoded lie below; above are those of ``point_reader``."""


class DeltaPieces:
    """Those of one file, of which ``rowids`` and ``ops`` are the columns that every entry has."""

    def __init__(self, file: FileReader, rowids: ColumnReader, ops: ColumnReader) -> None:
        self._file = file
        self._rowids = rowids
        self._ops = ops
        self._entries = rowids.rows
        self._known_bounds: dict[int, tuple[list[int], list[int]]] = {}

    def updates(
        self, number: int, positions: ColumnReader, values: ColumnReader, row_lower: int, row_upper: int
    ) -> list[Updates]:
        """Of the file's changed column ``number``, those that rows [row_lower, row_upper) may be in."""
        return self._pieces(
            1 + number,
            positions,
            row_lower,
            row_upper,
            lambda lower, upper: self._updates_of(positions, values, lower, upper),
        )

    def liveness(self, row_lower: int, row_upper: int) -> list[Updates]:
        """Of the entries that are no updates: a byte each, 1 for rows that are present."""
        return self._pieces(0, None, row_lower, row_upper, self._liveness_of)

    def _pieces(
        self,
        number: int,
        positions: ColumnReader | None,
        row_lower: int,
        row_upper: int,
        make: Callable[[int, int], Updates],
    ) -> list[Updates]:
        bounds = self._known_bounds.get(number)
        if bounds is None:
            bounds = self._known_bounds.setdefault(number, self._bounds(positions))
        lows, highs = bounds
        first, end = bisect_left(highs, row_lower), bisect_left(lows, row_upper)
        if first >= end:
            return []
        places = [_PLACES - (number << 32) - k for k in range(first, end)]
        found: list[Updates | None] = self._file.cached(places)
        rows = self._entries if positions is None else positions.rows
        for at, part in enumerate(found):
            if part is None:
                lower = (first + at) * PAGE_ROWS
                try:
                    found[at] = part = make(lower, min(lower + PAGE_ROWS, rows))
                except ValueError:
                    self._file.damaged(self._rowids.extent.offset, "rowids do not ascend")
                self._file.remember(places[at], part)
        return found  # type: ignore[return-value]

    def _bounds(self, positions: ColumnReader | None) -> tuple[list[int], list[int]]:
        """The least and the largest rowid of each piece, as far as page indexes tell."""
        lows, highs = page_bounds(self._rowids)
        if positions is not None and positions.rows != self._entries:
            first, last = page_bounds(positions)
            if last[-1] >= self._entries:
                self._file.damaged(positions.index_extent.offset, "the entries of a column do not ascend")
            lows = [lows[entry >> PAGE_BITS] for entry in first]
            highs = [highs[entry >> PAGE_BITS] for entry in last]
        return lows, highs

    def _updates_of(self, positions: ColumnReader, values: ColumnReader, lower: int, upper: int) -> Updates:
        if positions.rows == self._entries:
            rowids = self._rowids.read(lower, upper).values.view("<u4")
        else:
            found = positions.read(lower, upper).values.view("<u4")
            first, end = int(found[0]), int(found[-1]) + 1
            if end > self._entries or bool((found[1:] <= found[:-1]).any()):
                self._file.damaged(positions.extent.offset, "the entries of a column do not ascend")
            rowids = self._rowids.read(first, end).values.view("<u4")[found - np.uint32(first)]
        new = values.read(lower, upper)
        return Updates(rowids, new.values, new.width, new.validity, ascending=True)

    def _liveness_of(self, lower: int, upper: int) -> Updates:
        rowids, ops = self._rowids.read(lower, upper).values.view("<u4"), self._ops.read(lower, upper).values
        keep = ops != REDO_UPDATE
        return Updates(rowids[keep], (ops[keep] == UNDO_ALIVE).view(np.uint8), 1, ascending=True)
