"""Ascending uint32 columns, such as rowids and entries: where values lie, by the bounds of pages alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kudu_core.cfile.columns.reader import ColumnReader

if TYPE_CHECKING:
    I64 = npt.NDArray[np.int64]
    U32 = npt.NDArray[np.uint32]


def limits(column: ColumnReader) -> tuple[int, int]:
    """The least and the largest value of a column of whole numbers, as the footer has them."""
    zone = column.zone
    width = column.spec.type.width
    if zone.minimum is None or zone.maximum is None or {len(zone.minimum), len(zone.maximum)} != {width}:
        column.file.damaged(column.file.footer_extent.offset, "footer: bounds of rowids or times")
    return int.from_bytes(zone.minimum, "little"), int.from_bytes(zone.maximum, "little")


def page_bounds(column: ColumnReader) -> tuple[list[int], list[int]]:
    """Least and largest value of each page of an ascending uint32 column."""
    if column.page_count == 1:
        low, high = limits(column)
        if low > high:
            column.file.damaged(column.extent.offset, "the bounds of a page do not ascend")
        return [low], [high]
    index = column.index()
    lows, highs = (
        np.ascontiguousarray(index[end]).view("<u4").ravel().astype(np.int64) for end in ("low", "high")
    )
    if bool((lows > highs).any()) or bool((lows[1:] < highs[:-1]).any()):
        column.file.damaged(column.index_extent.offset, "the bounds of pages do not ascend")
    return lows.tolist(), highs.tolist()


def some(column: ColumnReader, wanted: I64) -> tuple[I64, U32]:
    """Of an ascending uint32 column: the cells with one of these values, which ascend strictly, and the
    values.  Only pages that may have one are read."""
    if not len(wanted):
        return np.empty(0, np.int64), np.empty(0, np.uint32)
    if len(wanted) == 1:
        lower, upper, equal = span(column, int(wanted[0]), int(wanted[0]) + 1)
        return np.arange(lower, upper), equal
    if column.page_count == 1:
        first, end = np.zeros(1, np.int64), np.ones(1, np.int64)
    else:
        index = column.index()
        lows = np.ascontiguousarray(index["low"]).view("<u4").ravel()
        highs = np.ascontiguousarray(index["high"]).view("<u4").ravel()
        first, end = np.searchsorted(highs, wanted), np.searchsorted(lows, wanted, side="right")
        there = first < end
        first, end = first[there], end[there]
        if not len(first):
            return np.empty(0, np.int64), np.empty(0, np.uint32)
    begins = np.ones(len(first), bool)  # of runs of pages: both ends never descend
    begins[1:] = first[1:] > end[:-1]
    lasts = np.append(begins[1:], True)
    bits = column.page_bits
    ranges = [
        (lower << bits, min(upper << bits, column.rows))
        for lower, upper in zip(first[begins].tolist(), end[lasts].tolist(), strict=True)
    ]
    values: Any = column.read_ranges(ranges).values.view("<u4")
    cells = np.concatenate([np.arange(lower, upper) for lower, upper in ranges])
    at = np.searchsorted(wanted, values)
    known = at < len(wanted)
    known[known] = wanted[at[known]] == values[known]
    return cells[known], values[known]


def span(column: ColumnReader, lower: int, upper: int) -> tuple[int, int, U32]:
    """Of an ascending uint32 column: the cells with values in [lower, upper), and those values."""
    if column.page_count == 1:
        first_page, end_page = 0, 1
    else:
        index = column.index()
        lows = np.ascontiguousarray(index["low"]).view("<u4").ravel()
        highs = np.ascontiguousarray(index["high"]).view("<u4").ravel()
        first_page = int(np.searchsorted(highs, lower))
        end_page = int(np.searchsorted(lows, upper))
    if first_page >= end_page:
        return 0, 0, np.empty(0, np.uint32)
    base = first_page << column.page_bits
    end = min(end_page << column.page_bits, column.rows)
    values: Any = column.read(base, end).values.view("<u4")
    begin = int(np.searchsorted(values, lower))
    stop = int(np.searchsorted(values, upper))
    found = values[begin:stop]
    if len(found) and not lower <= int(found.min()) <= int(found.max()) < upper:
        # Callers index with these: they must hold whatever order the file keeps.
        column.file.damaged(column.extent.offset, "rowids or entries do not ascend")
    return base + begin, base + stop, found
