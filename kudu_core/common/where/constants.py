"""The constants of a predicate: as exact values of a column's type, and whether comparing them can fail."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, isnan
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.types import values
from kudu_core.common.types.types import TYPE_BINARY, TYPE_BOOL, TYPE_DECIMAL, TYPE_FLOAT, ColumnType
from kudu_core.common.types.values import Physical
from kudu_core.common.where.expressions import Literal
from kudu_core.errors import InvalidArgument

_t = pa.types
EXACT_IN_DOUBLE = 1 << 53
"""Integers of larger size are rounded when Arrow compares them as doubles."""
_LARGEST_IN_FLOATS = {4: 1 << 24, 8: EXACT_IN_DOUBLE}
"""Of floats of so many bytes: the size of integers up to which Arrow takes them for such floats."""
_MOST_DIGITS = 38  # of a decimal128


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal that is not NULL, compared with a column."""

    type: ColumnType
    literal: Literal
    exact: tuple[Any] | None
    """It as an exact value of the column's type.  None where Arrow would not compare it with such a value by
    value: the types differ in more than width, or the literal is not exact in the column's type."""
    is_steady: bool
    """Whether Arrow compares it with every cell of such a column by value, without an error.  Where Arrow
    casts the column, the cast must not fail: a uint64 to int64, a time to a finer unit, a large integer to a
    double.  Nor must the types or the literal be such that it compares them with no cell at all."""

    @staticmethod
    def of(type_: ColumnType, literal: Literal) -> Constant:
        if literal.type is type_:
            return Constant(type_, literal, (literal.exact,), True)
        scalar = literal.scalar
        exact = _exact(type_, scalar)
        steady = exact is not None and is_steady(type_, scalar.type) and _is_taken(type_, scalar)
        return Constant(type_, literal, exact, steady)

    @property
    def physical(self) -> Physical:
        """Of one that is steady."""
        assert self.is_steady and self.exact is not None
        if self.type.is_temporal:
            return int(self.literal.scalar.value)
        return values.physical(self.type, self.exact[0])


def _exact(type_: ColumnType, literal: pa.Scalar) -> tuple[Any] | None:
    if _t.is_dictionary(literal.type):
        return None
    try:
        if not is_comparable(type_, literal.type):
            return None
        if type_.is_temporal:
            return (values.python(type_, pc.cast(literal, type_.arrow).value),)
        value = literal.as_py()
        if type_.kind == TYPE_FLOAT:
            exact = values.exact(type_, value)
            return (exact,) if exact == value and not isnan(exact) else None
        if _t.is_floating(literal.type):
            if value != floor(value) or abs(value) >= EXACT_IN_DOUBLE:
                return None
            value = int(value)
        return (values.exact(type_, value),)
    except (InvalidArgument, OverflowError, ValueError, pa.ArrowException):
        return None


def is_comparable(type_: ColumnType, given: pa.DataType) -> bool:
    """Whether Arrow compares a column with constants of a type by value."""
    if type_.kind == TYPE_BOOL:
        return bool(_t.is_boolean(given))
    if type_.is_timestamp:
        return bool(_t.is_timestamp(given) and (given.tz is None) == (type_.arrow.tz is None))
    if type_.is_date:
        return bool(_t.is_date(given))
    if type_.is_time_of_day:
        return bool(_t.is_time(given))
    if type_.is_duration:
        return bool(_t.is_duration(given))
    if type_.is_long_decimal:
        return bool(_t.is_decimal(given) or _t.is_integer(given))
    if type_.is_string:
        return bool(_t.is_string(given) or _t.is_large_string(given) or given == pa.string_view())
    if type_.kind == TYPE_BINARY:
        return bool(_t.is_binary(given) or _t.is_large_binary(given) or given == pa.binary_view())
    if type_.kind == TYPE_DECIMAL:
        return bool(_t.is_decimal(given) or _t.is_integer(given))
    if type_.kind == TYPE_FLOAT:
        return bool(_t.is_floating(given) or _t.is_integer(given))
    return bool(_t.is_integer(given) or _t.is_float64(given))


def is_steady(type_: ColumnType, given: pa.DataType) -> bool:
    """Whether it does so without an error, whatever the cell; of a type that is comparable."""
    if type_.is_timestamp:
        return bool(given.unit == type_.arrow.unit)
    if type_.is_temporal:
        return bool(given == type_.arrow)
    if type_.is_long_decimal:
        return bool(given == type_.value.declared)
    if type_.kind == TYPE_DECIMAL:
        return bool(_t.is_decimal128(given) and given.scale >= 0 and _digits(type_, given) <= _MOST_DIGITS)
    if type_.kind == TYPE_BINARY:
        return given not in (pa.string_view(), pa.binary_view())
    if type_.kind == TYPE_FLOAT:
        return not _t.is_float16(given)
    if _t.is_integer(type_.arrow):
        same_sign = _t.is_signed_integer(given) == _t.is_signed_integer(type_.arrow)
        return bool(_t.is_integer(given) and (type_.width < 8 or same_sign))
    return True


def _digits(type_: ColumnType, given: pa.DataType) -> int:
    """The digits of the decimals to which Arrow brings both sides before it compares them."""
    own = type_.arrow
    return int(max(own.precision - own.scale, given.precision - given.scale) + max(own.scale, given.scale))


def _is_taken(type_: ColumnType, literal: pa.Scalar) -> bool:
    """Whether Arrow takes the literal for a float, if the column has floats; a large integer it does not."""
    if type_.kind != TYPE_FLOAT or not _t.is_integer(literal.type):
        return True
    return bool(abs(literal.as_py()) <= _LARGEST_IN_FLOATS[type_.width])
