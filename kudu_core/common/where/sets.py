"""Sets of values of one column: what comparisons with constants are true of.

The values of a type lie on a line of *places*.  The place of a fixed-width value is an unsigned integer that
orders as the value does: of signed ones with the sign bit flipped, of floats the bits in the order of the
numbers, NaN beyond the infinities.  The place of a string is its bytes.  A set is a list of half-open
intervals of places, ascending and apart, and whether NULL belongs to it.  The intervals are a tuple; of many
numbers they are arrays (``spans.py``).

The two floats that are zero have a place each, and no set tells one from the other.  Where cells or their
bounds are made into places, -0.0 therefore becomes 0.0: a bound may be either, whichever the column holds.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kudu_core.common.types.keycodec import prefix_successor, successor
from kudu_core.common.types.types import TYPE_BINARY, TYPE_BOOL, TYPE_FLOAT, TYPE_UNSIGNED, ColumnType
from kudu_core.common.types.values import Physical
from kudu_core.common.where.spans import Spans

U64 = npt.NDArray[np.uint64]

Place = Any
"""An int, or bytes."""
Interval = tuple[Place, Place | None]
"""From the first place to before the second one; None: to the end of the line, of strings alone."""

_LIFT_64 = (1 << 127) - (1 << 63)
_MOST_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class ValueSet:
    """Values and, perhaps, NULL."""

    intervals: Sequence[Interval]
    null: bool = False

    @property
    def is_one_value(self) -> bool:
        """Not so of the two zeros of floats, which are one value in two places."""
        if self.null or len(self.intervals) != 1:
            return False
        low, high = self.intervals[0]
        return bool(high == (successor(low) if isinstance(low, bytes) else low + 1))

    def __and__(self, other: ValueSet) -> ValueSet:
        """In one step for each interval: lists of many values are cut by bounds."""
        one, two = self.intervals, other.intervals
        if isinstance(one, Spans) or isinstance(two, Spans):
            return ValueSet(Spans.of(one) & Spans.of(two), self.null and other.null)
        found: list[Interval] = []
        i = j = 0
        while i < len(one) and j < len(two):
            low = max(one[i][0], two[j][0])
            end, other_end = one[i][1], two[j][1]
            first_ends = other_end is None or (end is not None and end <= other_end)
            high = end if first_ends else other_end
            if high is None or low < high:
                found.append((low, high))
            if first_ends:
                i += 1
            else:
                j += 1
        return ValueSet(tuple(found), self.null and other.null)

    def __or__(self, other: ValueSet) -> ValueSet:
        one, two = self.intervals, other.intervals
        if isinstance(one, Spans) or isinstance(two, Spans):
            return ValueSet(Spans.of(one) | Spans.of(two), self.null or other.null)
        return ValueSet(_apart((*one, *two)), self.null or other.null)

    def without(self, other: ValueSet) -> ValueSet:
        """What is not in the other set."""
        gaps: Sequence[Interval]
        if isinstance(other.intervals, Spans):
            gaps = ~other.intervals
        else:
            gaps = _gaps(other.intervals, self.intervals)
        return self & ValueSet(gaps, not other.null)

    def meets(self, low: Place | None, high: Place | None) -> bool:
        """Whether a value of the set lies in [low, high]; None: open."""
        first = 0 if low is None else bisect_right(self.intervals, (False, low), key=_end)
        return first < len(self.intervals) and (high is None or self.intervals[first][0] <= high)


def _end(interval: Interval) -> tuple[bool, Place | None]:
    """The end of an interval, an open one last."""
    return interval[1] is None, interval[1]


def _apart(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Ascending, and none that meet or are empty."""
    result: list[Interval] = []
    for low, high in sorted(intervals, key=lambda interval: interval[0]):
        if high is not None and high <= low:
            continue
        if result and (result[-1][1] is None or low <= result[-1][1]):
            before, end = result[-1]
            result[-1] = (before, None if end is None or high is None else max(end, high))
        else:
            result.append((low, high))
    return tuple(result)


def _gaps(intervals: Sequence[Interval], around: Sequence[Interval]) -> tuple[Interval, ...]:
    """What the intervals leave of the line from the first place of ``around`` on."""
    if not around:
        return ()
    low: Place | None = around[0][0]
    found: list[Interval] = []
    for first, last in intervals:
        if low is not None and low < first:
            found.append((low, first))
        low = None if low is None or last is None else max(low, last)
    if low is not None:
        found.append((low, None))
    return tuple(found)


NOTHING = ValueSet(())
NULL = ValueSet((), True)


# ---- the sets of a type


def line(type_: ColumnType) -> ValueSet:
    """Every value of a type but NULL."""
    if type_.kind == TYPE_BINARY:
        return ValueSet(((b"", None),))
    return ValueSet(((0, 1 << 8 * type_.width),))


def numbers(type_: ColumnType) -> ValueSet:
    """Every value that compares: all but NULL and NaN."""
    if type_.kind != TYPE_FLOAT:
        return line(type_)
    infinity = float("inf")
    return ValueSet(((_of_float(-infinity, type_.width), _of_float(infinity, type_.width) + 1),))


def compared(type_: ColumnType, op: str, value: Physical) -> ValueSet:
    """Values that are "eq", "lt", "le", "gt" or "ge" a constant (never NaN)."""
    low, high = _cell(type_, value)
    [(least, end)] = numbers(type_).intervals
    first, last = {
        "eq": (low, high),
        "lt": (least, low),
        "le": (least, high),
        "gt": (high, end),
        "ge": (low, end),
    }[op]
    return ValueSet(((first, last),)) if last is None or first < last else NOTHING


def listed(type_: ColumnType, values: Iterable[Physical]) -> ValueSet:
    """Values that are in a list (never NaN)."""
    return ValueSet(_apart(_cell(type_, value) for value in values))


def listed_cells(type_: ColumnType, cells: npt.NDArray[np.uint8]) -> ValueSet:
    """As ``listed``, of raw cells of at most 8 bytes (none of them NaN), (n x width,) uint8, in any order."""
    highs = places_of(type_, cells)
    lows = highs
    if type_.kind == TYPE_FLOAT:  # zero is two floats
        zero = np.uint64(place_of(type_, 0.0))
        lows = np.where(highs == zero, np.uint64(_of_float(-0.0, type_.width)), highs)
    return ValueSet(Spans.joined(lows, highs))


def prefixed(prefix: bytes) -> ValueSet:
    """Strings that begin with a prefix; with the empty one all do."""
    return ValueSet(((prefix, prefix_successor(prefix)),))


def _cell(type_: ColumnType, value: Physical) -> tuple[Place, Place]:
    """The first place that equals the value, and the one behind the last."""
    if type_.kind == TYPE_BINARY:
        assert isinstance(value, bytes)
        return value, successor(value)
    last = place_of(type_, value)
    if type_.kind == TYPE_FLOAT and value == 0:  # two floats
        return _of_float(-0.0, type_.width), last + 1
    return last, last + 1


# ---- the places of values


def place_of(type_: ColumnType, value: Physical) -> Place:
    """The place of a physical value; of both zeros that of 0.0."""
    if type_.kind == TYPE_BINARY:
        return value
    if type_.kind == TYPE_FLOAT:
        return _of_float(float(value) + 0.0, type_.width)
    if type_.kind in (TYPE_UNSIGNED, TYPE_BOOL):
        return int(value)
    return int(value) + (1 << 8 * type_.width - 1)


def _of_float(value: float, width: int) -> int:
    raw = int.from_bytes(struct.pack("<d" if width == 8 else "<f", value), "little")
    sign = 1 << 8 * width - 1
    return raw ^ (2 * sign - 1 if raw & sign else sign)


def places_of(type_: ColumnType, raw: npt.NDArray[np.uint8]) -> U64:
    """Places of raw cells, (n x width,) uint8; zeros are 0.0, decimals clipped as in ``closed_ends``."""
    if type_.width == 16:
        halves = raw.view("<i8").reshape(-1, 2)
        low, high = halves[:, 0], halves[:, 1]
        fits = high == low >> 63
        inside = np.where(fits, low, np.where(high < 0, np.int64(-(2**63)), np.int64(2**63 - 1)))
        result: U64 = inside.view(np.uint64) ^ np.uint64(1 << 63)
        return result
    bits = raw.view(f"<u{type_.width}").astype(np.uint64)
    if type_.kind in (TYPE_UNSIGNED, TYPE_BOOL):
        return bits
    sign = np.uint64(1 << 8 * type_.width - 1)
    if type_.kind != TYPE_FLOAT:
        return bits ^ sign
    bits = np.where(bits == sign, np.uint64(0), bits)
    most = np.uint64((1 << 8 * type_.width) - 1)
    ordered: U64 = np.where(bits & sign, bits ^ most, bits | sign)
    return ordered


def closed_ends(type_: ColumnType, values: ValueSet) -> U64:
    """(n, 2) first and last places of the intervals of fixed-width values, in 64 bits.

    Of decimals they are clipped to what an int64 holds, which leaves no value out.
    """
    if isinstance(values.intervals, Spans):
        return values.intervals.ends
    pairs = [(low, high - 1) for low, high in values.intervals if high is not None]
    assert len(pairs) == len(values.intervals)
    if type_.width == 16:
        narrowed: list[tuple[int, int]] = []
        for low, high in ((_narrowed(low), _narrowed(high)) for low, high in pairs):
            if narrowed and low <= narrowed[-1][1]:
                low, high = narrowed[-1][0], max(high, narrowed.pop()[1])
            narrowed.append((low, high))
        pairs = narrowed
    return np.array(pairs, np.uint64).reshape(-1, 2)


def _narrowed(place: int) -> int:
    return min(max(place - _LIFT_64, 0), _MOST_64)
