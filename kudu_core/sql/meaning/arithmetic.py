"""Sums, products and quotients in SQL, of numbers and of moments.

``/`` gives a float, as in DuckDB.  ``//`` and ``%`` are of integers, and NULL where the divisor is 0: Arrow
computes every part of ``CASE`` and of ``AND`` for all rows, so that nothing could guard them.
"""

from __future__ import annotations

import operator
from calendar import monthrange
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.errors import InvalidArgument
from kudu_core.sql.meaning.sql_types import MOST_DIGITS, as_decimal, in_common
from kudu_core.sql.meaning.sql_values import fitted
from kudu_core.sql.meaning.steps import size_of
from kudu_core.sql.meaning.typed import (
    INTERVAL,
    Typed,
    constant,
    folded,
    is_moment,
    is_number,
    literal,
    must_be,
    named,
    null_of,
    refused,
)
from kudu_core.sql.sqlglot_trees import quoted

if TYPE_CHECKING:
    from sqlglot import exp

_t = pa.types
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul
}  # fmt: skip
_DAY = 86_400 * 10**9


def combined(tree: exp.Expr, op: str, left: Typed, right: Typed) -> Typed:
    """``op`` is "add", "subtract" or "multiply"."""
    if INTERVAL in (left.type, right.type) or is_moment(left.type) or is_moment(right.type):
        return _of_moments(tree, op, left, right)
    if left.is_null or right.is_null:
        other = left.type if right.is_null else right.type
        return null_of(tree, other if is_number(other) else pa.int64())
    for part in (left, right):
        must_be(part, is_number(part.type), "a number")
    left, right = _met(left, right), _met(right, left)
    type_ = in_common(left.type, right.type)
    assert type_ is not None
    if _t.is_decimal(type_):
        return _of_decimals(tree, op, left, right)
    one, two = (side.as_type(type_, safe=not _t.is_floating(type_)) for side in (left, right))
    return folded(Typed(tree, type_, _OPERATORS[op](one.expression, two.expression)), left, right)


def _met(part: Typed, other: Typed) -> Typed:
    """A number that is written down takes the type of what it meets, where it is one of that type."""
    if not part.loose or other.is_constant or _t.is_decimal(other.type):
        return part
    if _t.is_floating(other.type) and _t.is_floating(part.type):
        return part
    return fitted(part, other.type) or part


def _of_decimals(tree: exp.Expr, op: str, left: Typed, right: Typed) -> Typed:
    one, two = (_decimal(side) for side in (left, right))
    scales, whole = (one.type.scale, two.type.scale), [
        side.type.precision - side.type.scale for side in (one, two)
    ]  # fmt: skip
    if op == "multiply":
        precision, scale = one.type.precision + two.type.precision + 1, sum(scales)
    else:
        scale = max(scales)
        precision = max(whole) + scale + 1
    if precision > MOST_DIGITS:
        raise refused(tree, f"it may have {precision} digits, of {MOST_DIGITS}: CAST a part of it to DOUBLE")
    type_ = pa.decimal128(precision, scale)
    return folded(Typed(tree, type_, _OPERATORS[op](one.expression, two.expression)), left, right)


def _decimal(part: Typed) -> Typed:
    if _t.is_decimal(part.type):
        return part
    if part.constant is not None:  # with no more digits than it has
        value = Decimal(part.constant.as_py())
        return constant(part.tree, pa.scalar(value, pa.decimal128(len(value.as_tuple().digits), 0)))
    return part.as_type(as_decimal(part.type))


def divided(tree: exp.Expr, left: Typed, right: Typed) -> Typed:
    """``left / right``: a float; by zero as floats are."""
    for part in (left, right):
        must_be(part, is_number(part.type) or part.is_null, "a number")
    both = in_common(left.type, right.type)
    type_ = both if both is not None and _t.is_floating(both) else pa.float64()
    one, two = (side.as_type(type_, safe=False).expression for side in (left, right))
    return folded(Typed(tree, type_, pc.divide(one, two)), left, right)


def whole_quotient(tree: exp.Expr, left: Typed, right: Typed) -> Typed:
    """``left // right`` of integers, towards zero."""
    one, two, type_ = _integers(tree, left, right, "FLOOR(a / b)")
    return folded(Typed(tree, type_, pc.divide(one, two)), left, right)


def remainder(tree: exp.Expr, left: Typed, right: Typed) -> Typed:
    """``left % right`` of integers, with the sign of the left one."""
    one, two, type_ = _integers(tree, left, right, "CAST both to BIGINT")
    rest = pc.subtract(one, pc.multiply(pc.divide(one, two), two))
    return folded(Typed(tree, type_, rest), left, right)


def _integers(
    tree: exp.Expr, left: Typed, right: Typed, instead: str
) -> tuple[pc.Expression, pc.Expression, pa.DataType]:
    for part in (left, right):
        if not (_t.is_integer(part.type) or part.is_null):
            what = f"{quoted(part.tree)} is {named(part.type)}"
            raise refused(tree, f"// and % are of integers, and {what}; {instead}")
    left, right = _met(left, right), _met(right, left)
    type_ = in_common(left.type, right.type)
    if type_ is None or _t.is_null(type_):
        type_ = pa.int64()
    one, two = left.as_type(type_).expression, right.as_type(type_)
    if two.constant is not None and two.constant.is_valid and two.constant.as_py():
        return one, two.expression, type_
    is_zero = two.expression == literal(0, type_)
    return one, pc.if_else(is_zero, literal(None, type_), two.expression), type_


def negated(tree: exp.Expr, part: Typed) -> Typed:
    """``-part``; of a number that is written down the number."""
    if part.is_null:
        return part
    if part.type == INTERVAL:
        return _interval(tree, *(-one for one in _amounts(part)))
    must_be(part, is_number(part.type), "a number")
    if part.constant is not None:
        value = part.constant.as_py()
        type_ = pa.int64() if _t.is_unsigned_integer(part.type) else part.type
        return constant(tree, pa.scalar(-value, type_), loose=part.loose)
    if _t.is_unsigned_integer(part.type):
        part = part.as_type(pa.int64())
    return part.made(part.type, pc.negate_checked(part.expression))


# ---- moments and intervals


def interval_of(tree: exp.Expr, amount: int, unit: str) -> Typed:
    """So many of a unit."""
    months = {"YEAR": 12, "QUARTER": 3, "MONTH": 1, "DECADE": 120, "CENTURY": 1200}
    days = {"WEEK": 7, "DAY": 1}
    nanos = {"HOUR": 3600 * 10**9, "MINUTE": 60 * 10**9, "SECOND": 10**9, "MILLISECOND": 10**6}
    nanos["MICROSECOND"] = 10**3
    one = unit.upper()
    for name in (one, one.removesuffix("S")):
        if name in months | days | nanos:
            return _interval(
                tree, amount * months.get(name, 0), amount * days.get(name, 0), amount * nanos.get(name, 0)
            )
    raise refused(tree, "an interval is of years, months, weeks, days, hours, minutes or seconds")


def _interval(tree: exp.Expr, months: int, days: int, nanos: int) -> Typed:
    try:
        return constant(tree, pa.scalar(pa.MonthDayNano([months, days, nanos]), INTERVAL))
    except (OverflowError, pa.ArrowException):
        raise InvalidArgument(f"SQL: {quoted(tree)} is too long for an interval") from None


def _amounts(part: Typed) -> tuple[int, int, int]:
    assert part.constant is not None
    months, days, nanos = part.constant.as_py()
    return months, days, nanos


def _of_moments(tree: exp.Expr, op: str, left: Typed, right: Typed) -> Typed:
    if op == "multiply":
        raise refused(tree, "write the interval out")
    if left.type == INTERVAL and right.type == INTERVAL:
        sign = 1 if op == "add" else -1
        sums = (a + sign * b for a, b in zip(_amounts(left), _amounts(right), strict=True))
        return _interval(tree, *sums)
    if op == "add" and not is_moment(left.type):
        left, right = right, left
    if left.is_null or right.is_null:
        return null_of(tree, left.type if is_moment(left.type) else pa.timestamp("us"))
    must_be(left, is_moment(left.type), "a date or a timestamp")
    if right.type == INTERVAL:
        return _moved(tree, left, right if op == "add" else negated(right.tree, right))
    if op == "subtract" and right.loose and not is_number(right.type):
        right = fitted(right, left.type) or right
    if op == "subtract" and is_moment(right.type):
        return _between(tree, left, right)
    if _t.is_date(left.type) and _t.is_integer(right.type):
        days = [side.as_type(pa.date32()).as_type(pa.int32()) if side is left else side.as_type(pa.int32())
                for side in (left, right)]  # fmt: skip
        found = _OPERATORS[op](days[0].expression, days[1].expression).cast(pa.date32())
        return folded(Typed(tree, pa.date32(), found), left, right)
    both = f"{named(left.type)} and {named(right.type)}"
    raise refused(tree, f"{both} do not go together; write INTERVAL 3 DAY")


def _moved(tree: exp.Expr, moment: Typed, by: Typed) -> Typed:
    months, days, nanos = _amounts(by)
    fine = nanos % 1000 != 0 or (_t.is_timestamp(moment.type) and moment.type.unit == "ns")
    unit = "ns" if fine else "us"
    type_ = pa.timestamp(unit, moment.type.tz if _t.is_timestamp(moment.type) else None)
    if moment.constant is not None:
        size = size_of(moment.constant)
        assert size is not None
        moved = _months_on(int(size), months) + days * _DAY + nanos
        return constant(tree, pa.scalar(moved // (1 if fine else 1000), pa.int64()).cast(type_))
    if months:
        raise refused(tree, "months are added to dates that are written down: move them to the other side")
    step = literal((days * _DAY + nanos) // (1 if fine else 1000), pa.int64()).cast(pa.duration(unit))
    return Typed(tree, type_, moment.as_type(type_).expression + step)


def _months_on(nanos: int, months: int) -> int:
    """Of nanoseconds since 1970, so many months later, on the last day of a month that is too short."""
    if not months:
        return nanos
    day, rest = divmod(nanos, _DAY)
    then = date.fromordinal(date(1970, 1, 1).toordinal() + day)
    month = then.year * 12 + then.month - 1 + months
    year, month = month // 12, month % 12 + 1
    moved = date(year, month, min(then.day, monthrange(year, month)[1]))
    return (moved.toordinal() - date(1970, 1, 1).toordinal()) * _DAY + rest


def _between(tree: exp.Expr, left: Typed, right: Typed) -> Typed:
    if _t.is_date(left.type) and _t.is_date(right.type):
        days = [side.as_type(pa.date32()).as_type(pa.int32()) for side in (left, right)]
        one, two = (side.as_type(pa.int64()) for side in days)
        return folded(Typed(tree, pa.int64(), one.expression - two.expression), left, right)
    type_ = in_common(left.type, right.type)
    assert type_ is not None
    one, two = (side.as_type(type_) for side in (left, right))
    return folded(Typed(tree, pa.duration(type_.unit), one.expression - two.expression), left, right)


__all__ = ["combined", "divided", "interval_of", "negated", "remainder", "whole_quotient"]
