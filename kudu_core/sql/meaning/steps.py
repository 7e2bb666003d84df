"""Values of ordered types as whole numbers of steps, so that a constant of any precision compares exactly.

``n > 2.5`` is ``n > 2`` of an integer: what lies between two values of a column's type is brought to the one
below it, and the comparison stays one of the column with a constant of its own type, which prunes.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import isfinite

import numpy as np
import pyarrow as pa

from kudu_core.sql.meaning.typed import INTERVAL

_t = pa.types
_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Steps:
    """The values of a type: all multiples of ``step`` from ``least`` to ``most`` steps.

    Numbers are counted by themselves, moments, times and durations in nanoseconds.
    """

    type: pa.DataType
    step: Fraction
    least: int
    most: int

    def scalar(self, place: int) -> pa.Scalar:
        """The value of so many steps."""
        type_ = self.type
        if _t.is_decimal(type_):
            digits = tuple(map(int, str(abs(place))))
            return pa.scalar(Decimal((int(place < 0), digits, -type_.scale)), type_)
        if _t.is_integer(type_):
            return pa.scalar(place, type_)
        whole = pa.int32() if type_.bit_width == 32 else pa.int64()
        if _t.is_date64(type_):
            place *= 86_400_000
        return pa.scalar(place, whole).cast(type_)


def steps_of(type_: pa.DataType) -> Steps | None:
    """Of a type; None where it has no steps, as floats and text."""
    if _t.is_integer(type_):
        bits = type_.bit_width
        if _t.is_unsigned_integer(type_):
            return Steps(type_, Fraction(1), 0, (1 << bits) - 1)
        return Steps(type_, Fraction(1), -(1 << bits - 1), (1 << bits - 1) - 1)
    if _t.is_decimal(type_):
        most = 10**type_.precision - 1
        return Steps(type_, Fraction(1, 10**type_.scale), -most, most)
    if _t.is_date(type_):
        bits = 31 if _t.is_date32(type_) else 36
        return Steps(type_, Fraction(_DAY), -(1 << bits), (1 << bits) - 1)
    if _t.is_timestamp(type_) or _t.is_duration(type_):
        return Steps(type_, Fraction(_NANOS[type_.unit]), -(1 << 63), (1 << 63) - 1)
    if _t.is_time(type_):
        return Steps(type_, Fraction(_NANOS[type_.unit]), 0, _DAY // _NANOS[type_.unit])
    return None


def size_of(scalar: pa.Scalar) -> Fraction | None:
    """A value as the number by which its ``Steps`` are counted; None where it has none."""
    type_ = scalar.type
    if _t.is_integer(type_) or _t.is_decimal(type_):
        return Fraction(scalar.as_py())
    if _t.is_floating(type_):
        # As it is written: 0.1 is a tenth, of floats too.
        value = np.float32(scalar.as_py()) if _t.is_float32(type_) else scalar.as_py()
        return Fraction(str(value)) if isfinite(value) else None
    if _t.is_date32(type_):
        return Fraction(scalar.value * _DAY)
    if _t.is_date64(type_):
        return Fraction(scalar.value * 10**6)
    if _t.is_timestamp(type_) or _t.is_duration(type_) or _t.is_time(type_):
        return Fraction(scalar.value * _NANOS[type_.unit])
    if type_ == INTERVAL:
        months, days, nanos = scalar.as_py()
        return None if months else Fraction(days * _DAY + nanos)
    return None


def exact(scalar: pa.Scalar, type_: pa.DataType) -> pa.Scalar | None:
    """A value as one of another type, if it is one."""
    if scalar.type == type_:
        return scalar
    steps, size = steps_of(type_), size_of(scalar)
    if steps is None or size is None:
        return None
    place = size / steps.step
    if place.denominator != 1 or not steps.least <= place.numerator <= steps.most:
        return None
    return steps.scalar(place.numerator)


__all__ = ["Steps", "exact", "size_of", "steps_of"]
