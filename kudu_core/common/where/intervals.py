"""Intervals of one column: what the terms of a predicate leave of its values.

A fixed-width value is given its *order number*, an unsigned integer that compares as the value does
(signed: the sign bit flipped; floats: the bits in the order of the numbers, -0.0 being 0.0), so an
interval is a pair of numbers, both ends included.  A string interval is half-open, in bytes.
Intervals ascend and lie apart.  NULL and NaN lie in none of them.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kudu_core.common.types.keycodec import prefix_successor, successor
from kudu_core.common.types.types import TYPE_BINARY, TYPE_BOOL, TYPE_FLOAT, TYPE_UNSIGNED, ColumnType
from kudu_core.common.types.values import Physical
from kudu_core.common.where.terms import Term
from kudu_core.common.where.valuesets import ValueSet

U64 = npt.NDArray[np.uint64]

Pair = tuple[Any, Any]
"""(least, greatest) order numbers; or (first bytes, first bytes beyond or None) of strings."""

_LIFT_64 = (1 << 127) - (1 << 63)
_MOST_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Where the values of one column must lie; no pair at all: nowhere."""

    type: ColumnType
    pairs: tuple[Pair, ...]

    @staticmethod
    def of(type_: ColumnType, terms: Iterable[Term]) -> Intervals | None:
        """What terms on one column leave, together; None where none of them compares."""
        found: list[Pair] | None = None
        for term in terms:
            pairs = _pairs(type_, term)
            if pairs is not None:
                found = pairs if found is None else _both(type_, found, pairs)
        return None if found is None else Intervals(type_, tuple(found))

    @staticmethod
    def of_set(type_: ColumnType, passing: ValueSet) -> Intervals:
        """The values of a set, NULL aside; of a type that is no float."""
        if type_.kind == TYPE_BINARY:
            return Intervals(type_, passing.intervals)
        offset = 0 if type_.kind in (TYPE_UNSIGNED, TYPE_BOOL) else 1 << 8 * type_.width - 1
        most = (1 << 8 * type_.width) - 1
        pairs = passing.intervals
        ends = [(low + offset, most if high is None else high + offset - 1) for low, high in pairs]
        return Intervals(type_, tuple(ends))

    def __and__(self, other: Intervals) -> Intervals:
        return Intervals(self.type, tuple(_both(self.type, self.pairs, other.pairs)))

    def meet(self, low: Any, high: Any) -> bool:
        """Whether some value of [low, high] may be in them: order numbers or bytes, None = open."""
        if self.type.kind == TYPE_BINARY:
            first = 0 if low is None else bisect_right(self.pairs, (False, low), key=_string_end)
            return first < len(self.pairs) and (high is None or self.pairs[first][0] <= high)
        first = 0 if low is None else bisect_left(self.pairs, low, key=lambda pair: pair[1])
        return first < len(self.pairs) and (high is None or self.pairs[first][0] <= high)

    def numbers(self) -> U64:
        """(n, 2) order numbers in 64 bits; of decimals clipped to what an int64 holds: never fewer values."""
        pairs = self.pairs
        if self.type.width == 16:
            pairs = tuple((_narrowed(low), _narrowed(high)) for low, high in pairs)
            pairs = _apart(pairs)
        return np.array(pairs, np.uint64).reshape(-1, 2)


def order_number(type_: ColumnType, value: Physical) -> int:
    """The order number of a physical value of a fixed-width type."""
    if type_.kind == TYPE_FLOAT:
        return _order_of_float(type_, float(value))
    if type_.kind in (TYPE_UNSIGNED, TYPE_BOOL):
        return int(value)
    return int(value) + (1 << 8 * type_.width - 1)


def order_numbers(type_: ColumnType, raw: npt.NDArray[np.uint8]) -> U64:
    """Order numbers in 64 bits of many raw cells, (n x width,) uint8; of decimals as ``numbers`` does."""
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


def _narrowed(number: int) -> int:
    return min(max(number - _LIFT_64, 0), _MOST_64)


def _apart(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Join pairs that touch after they were narrowed."""
    out: list[Pair] = []
    for low, high in pairs:
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return tuple(out)


def _order_of_float(type_: ColumnType, value: float) -> int:
    code, bits_code = ("<f", "<I") if type_.width == 4 else ("<d", "<Q")
    bits = int(struct.unpack(bits_code, struct.pack(code, value + 0.0))[0])
    sign = 1 << 8 * type_.width - 1
    if bits == sign:
        bits = 0
    return bits ^ ((sign << 1) - 1) if bits & sign else bits | sign


def _bounds(type_: ColumnType) -> Pair:
    """All numbers of the type; of floats those from -inf to inf."""
    if type_.kind == TYPE_FLOAT:
        return _order_of_float(type_, float("-inf")), _order_of_float(type_, float("inf"))
    return 0, (1 << 8 * type_.width) - 1


def _pairs(type_: ColumnType, term: Term) -> list[Pair] | None:
    if term.op in ("is_null", "not_null"):
        return None
    cells = term.physical()
    if type_.kind == TYPE_BINARY:
        return _string_pairs(term.op, cells)
    least, most = _bounds(type_)
    numbers = [order_number(type_, cell) for cell in cells]
    if term.op in ("eq", "in"):
        return [(number, number) for number in numbers]
    low, high = {
        "ge": (numbers[0], most),
        "gt": (numbers[0] + 1, most),
        "le": (least, numbers[0]),
        "lt": (least, numbers[0] - 1),
    }[term.op]
    return [(low, high)] if low <= high else []


def _string_pairs(op: str, cells: Sequence[Any]) -> list[Pair]:
    if op in ("eq", "in"):
        return [(cell, successor(cell)) for cell in cells]
    cell = cells[0]
    if op == "prefix":
        return [(cell, prefix_successor(cell))]
    low, high = {
        "ge": (cell, None),
        "gt": (successor(cell), None),
        "le": (b"", successor(cell)),
        "lt": (b"", cell),
    }[op]
    return [] if high is not None and low >= high else [(low, high)]


def _string_end(pair: Pair) -> tuple[bool, bytes]:
    """The end of a string interval, an open one last."""
    return pair[1] is None, pair[1] or b""


def _both(type_: ColumnType, one: Sequence[Pair], other: Sequence[Pair]) -> list[Pair]:
    """The intersection of two ascending lists."""
    strings = type_.kind == TYPE_BINARY
    out: list[Pair] = []
    i = j = 0
    while i < len(one) and j < len(other):
        low = max(one[i][0], other[j][0])
        a, b = one[i][1], other[j][1]
        first_ends = b is None or (a is not None and a <= b)
        high = a if first_ends else b
        if (strings and (high is None or low < high)) or (not strings and low <= high):
            out.append((low, high))
        if first_ends:
            i += 1
        else:
            j += 1
    return out
