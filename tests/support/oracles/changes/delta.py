"""What ``_ext.changes.delta`` means, on lists.  Slow on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def replay(
    cells: Sequence[T], first_row: int, rowids: Sequence[int], new: Sequence[T], order: Sequence[int]
) -> list[T]:
    out = list(cells)
    for k in order:
        assert 0 <= rowids[k] - first_row < len(out)
        out[rowids[k] - first_row] = new[k]
    return out


def last_per_row(first_row: int, n: int, rowids: Sequence[int], order: Sequence[int]) -> list[int]:
    return replay([-1] * n, first_row, rowids, range(len(rowids)), order)
