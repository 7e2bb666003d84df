"""Sets of values of one column, as what a comparison with constants is true of.

The values of a type lie on a line: integers, dates, times, unscaled decimals and bools as integers;
floats as the integers that order like them, NaN outside the infinities; strings as bytes.  A set is a list of
half-open intervals on the line, ascending and apart, and whether NULL belongs to it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kudu_core.common.types.types import TYPE_BINARY, TYPE_FLOAT, TYPE_UNSIGNED, ColumnType
from kudu_core.common.types.values import Physical

Place = Any
"""An int, or bytes."""
Interval = tuple[Place, Place | None]
"""From the first place to before the second one; None: to the end of the line."""


@dataclass(frozen=True, slots=True)
class ValueSet:
    """Values and, perhaps, NULL."""

    intervals: tuple[Interval, ...]
    null: bool = False

    def __and__(self, other: ValueSet) -> ValueSet:
        found: list[Interval] = []
        for low, high in self.intervals:
            for low_2, high_2 in other.intervals:
                first = max(low, low_2)
                last = high if high_2 is None else high_2 if high is None else min(high, high_2)
                if last is None or first < last:
                    found.append((first, last))
        return ValueSet(_apart(found), self.null and other.null)

    def __or__(self, other: ValueSet) -> ValueSet:
        return ValueSet(_apart((*self.intervals, *other.intervals)), self.null or other.null)

    def without(self, other: ValueSet) -> ValueSet:
        """What is not in the other set."""
        return self & ValueSet(_gaps(other.intervals, self.intervals), not other.null)


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


# ------------------------------------------------------------------------------ the line of a type


def float_place(raw: int, width: int) -> int:
    """The bits of a float as an integer in the order of floats: NaN lie beyond the infinities."""
    sign = 1 << 8 * width - 1
    return raw ^ (2 * sign - 1 if raw & sign else sign)


def _of_float(value: float, width: int) -> int:
    packed = struct.pack("<d" if width == 8 else "<f", value)
    return float_place(int.from_bytes(packed, "little"), width)


def line(type_: ColumnType) -> ValueSet:
    """Every value of a type but NULL."""
    if type_.kind == TYPE_BINARY:
        return ValueSet(((b"", None),))
    if type_.kind in (TYPE_FLOAT, TYPE_UNSIGNED) or type_.name == "bool":
        return ValueSet(((0, 1 << 8 * type_.width),))
    half = 1 << 8 * type_.width - 1
    return ValueSet(((-half, half),))


def numbers(type_: ColumnType) -> ValueSet:
    """Every value that compares: all but NULL and NaN."""
    if type_.kind != TYPE_FLOAT:
        return line(type_)
    infinity = float("inf")
    return ValueSet(((_of_float(-infinity, type_.width), _of_float(infinity, type_.width) + 1),))


def _cell(type_: ColumnType, value: Physical) -> tuple[Place, Place]:
    """The first place that equals the value, and the one behind the last."""
    if type_.kind == TYPE_BINARY:
        assert isinstance(value, bytes)
        return value, value + b"\0"
    if type_.kind == TYPE_FLOAT:
        number = float(value)
        if number == 0:  # two floats
            return _of_float(-0.0, type_.width), _of_float(0.0, type_.width) + 1
        place = _of_float(number, type_.width)
        return place, place + 1
    return int(value), int(value) + 1


def compared(type_: ColumnType, op: str, value: Physical) -> ValueSet:
    """Values that are "eq", "lt", "le", "gt" or "ge" a constant (never NaN)."""
    low, high = _cell(type_, value)
    sought: dict[str, Interval] = {
        "eq": (low, high),
        "lt": (line(type_).intervals[0][0], low),
        "le": (line(type_).intervals[0][0], high),
        "gt": (high, None),
        "ge": (low, None),
    }
    return ValueSet(_apart([sought[op]])) & numbers(type_)


def listed(type_: ColumnType, values: Iterable[Physical]) -> ValueSet:
    """Values that are in a list."""
    return ValueSet(_apart(_cell(type_, value) for value in values)) & numbers(type_)


def prefixed(low: bytes, end: bytes | None) -> ValueSet:
    """Strings with a prefix; ``end`` is the first string behind them."""
    return ValueSet(((low, end),))
