"""Whether values of a nested type are equal, for which Arrow has no function.

NULL within a value equals NULL, as it does where Python compares lists and dicts; numbers compare as Arrow
compares them, so that NaN equals nothing and the two zeros are one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools = npt.NDArray[np.bool_]
_t = pa.types
_ELEMENTS_AT_ONCE = 1 << 20


def equals_one(array: pa.Array, one: pa.Array) -> Bools:
    """(rows,) bool: where an array has the value of an array of one row and the same type.

    NULL equals NULL."""
    rows = len(array)
    step = max(1, _ELEMENTS_AT_ONCE // max(1, one.nbytes))
    parts = [
        equal(array.slice(first, step), one.take(pa.array(np.zeros(min(step, rows - first), np.int64))))
        for first in range(0, rows, step)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.bool_), *parts])


def equal(left: pa.Array, right: pa.Array) -> Bools:
    """(rows,) bool: where two arrays of one type have the same value.  NULL equals NULL."""
    here, there = valid(left), valid(right)
    both = here & there
    if _t.is_struct(left.type):
        for number in range(left.type.num_fields):
            some = np.flatnonzero(both)
            if len(some) < len(both):
                told = pa.array(some)
                both[some] = equal(left.field(number).take(told), right.field(number).take(told))
            else:
                both &= equal(left.field(number), right.field(number))
    elif is_list(left.type):
        both[both] = _equal_lists(left, right, np.flatnonzero(both))
    else:
        both &= pc.fill_null(pc.equal(left, right), False).to_numpy(zero_copy_only=False)
    return both | ~(here | there)


def _equal_lists(left: pa.Array, right: pa.Array, rows: npt.NDArray[np.int64]) -> Bools:
    """Of these rows, in which both have a list."""
    (starts, sizes), (others, other_sizes) = bounds_of(left), bounds_of(right)
    same: Bools = sizes[rows] == other_sizes[rows]
    some = rows[same & (sizes[rows] > 0)]
    if not len(some):
        return same
    counts = sizes[some]
    ends = np.cumsum(counts)
    within = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
    mine = left.values.take(pa.array(np.repeat(starts[some], counts) + within))
    theirs = right.values.take(pa.array(np.repeat(others[some], counts) + within))
    every = np.logical_and.reduceat(equal(mine, theirs), ends - counts)
    same[same & (sizes[rows] > 0)] = every
    return same


def bounds_of(lists: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each list begins among ``lists.values``, and its length; both (rows,) int64."""
    rows, type_ = len(lists), lists.type
    if _t.is_fixed_size_list(type_):
        starts = (np.arange(rows) + lists.offset) * type_.list_size
        return starts, np.full(rows, type_.list_size, np.int64)
    offsets = lists.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    return offsets[:-1], np.diff(offsets)


def elements_at(lists: pa.Array, index: int) -> pa.Array:
    """One element of each list: NULL where the list is NULL or shorter."""
    starts, sizes = bounds_of(lists)
    missing = ~(valid(lists) & (sizes > index))
    return lists.values.take(pa.array(starts + index, pa.int64(), mask=missing))


def is_list(type_: pa.DataType) -> bool:
    """Of the kinds that expressions see (``assembled.seen_type``)."""
    return bool(
        _t.is_list(type_) or _t.is_large_list(type_) or _t.is_fixed_size_list(type_) or _t.is_map(type_)
    )


def valid(array: pa.Array) -> Bools:
    found: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return found.copy()


__all__ = ["bounds_of", "elements_at", "equal", "equals_one", "is_list", "valid"]
