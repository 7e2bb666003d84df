"""What ``_ext.scan.selection`` means: which rows of some ranges have a cell in a set of values."""

from __future__ import annotations

from collections.abc import Sequence

Intervals = Sequence[tuple[int, int]]


def place(cell: bytes, kind: int) -> int:
    """Where a cell lies on the line of unsigned integers: 0 as it is, 1 signed, 2 a float, 3 a code."""
    word = int.from_bytes(cell, "little")
    sign = 1 << 8 * len(cell) - 1
    if kind == 1:
        return word ^ sign
    if kind == 2:
        return word ^ sign if word < sign else 2 * sign - 1 - word
    return word


def belongs(cell: bytes | None, kind: int, intervals: Intervals, nulls: bool) -> bool:
    if cell is None:
        return nulls
    return any(low <= place(cell, kind) <= high for low, high in intervals)


def string_belongs(cell: bytes | None, intervals: Sequence[tuple[bytes, bytes | None]], nulls: bool) -> bool:
    if cell is None:
        return nulls
    return any(low <= cell and (high is None or cell < high) for low, high in intervals)


def rows(ranges: Sequence[tuple[int, int]]) -> list[int]:
    return [row for lower, upper in ranges for row in range(lower, upper)]
