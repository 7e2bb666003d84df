"""Orders of integers: stable ones, counted where few differ, else by one sort of machine words; which differ.

numpy's stable sorts of 64-bit integers compare and move twice as much as its plain sort, which is vectorised;
value and position in one word sort the same way, wherever both fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.changes.times import order_of_few

I64 = npt.NDArray[np.int64]


def stable_order(values: npt.NDArray[np.uint64]) -> I64 | None:
    """(n,) int64: the stable permutation that puts (n,) uint64 in order; None when they are."""
    count = len(values)
    if count < 2 or bool((values[1:] >= values[:-1]).all()):
        return None
    few = order_of_few(np.ascontiguousarray(values))
    if few is not None:
        return few
    low = values.min()
    bits = int(count - 1).bit_length()
    if int(values.max() - low).bit_length() + bits > 64:
        compared: I64 = np.argsort(values, kind="stable")
        return compared
    words = (values - low) << np.uint64(bits)
    words |= np.arange(count, dtype=np.uint64)
    words.sort()
    words &= np.uint64((1 << bits) - 1)
    order: I64 = words.view(np.int64)
    return order


def order_of_pairs(first: I64, second: npt.NDArray[np.uint64]) -> I64:
    """The stable permutation that puts pairs in order: by ``first``, not negative, then by ``second``."""
    by_second = stable_order(second)
    keys = first.astype(np.uint64)
    if by_second is not None:
        keys = keys[by_second]
    by_first = stable_order(keys)
    if by_first is None:
        return np.arange(len(first)) if by_second is None else by_second
    return by_first if by_second is None else by_second[by_first]


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values that differ of (n,) integers, in order: what ``np.unique`` says.

    numpy 2.4 puts them into a hash table, which takes 200 ns a value where many differ (700 where they are a
    million); to sort them takes 15, and to see that they are sorted 1.
    """
    if len(values) < 2:
        return values.copy()
    if bool((values[1:] < values[:-1]).any()):
        values = np.sort(values)
    first = np.empty(len(values), np.bool_)
    first[0] = True
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return values[first]


__all__ = ["distinct", "order_of_pairs", "stable_order"]
