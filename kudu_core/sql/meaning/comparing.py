"""Comparisons in SQL: with NULL they are NULL, and NaN is equal to itself and larger than every number.

A constant becomes one of the type of what it is compared with, exactly: what lies between two values of that
type, or beyond them all, decides the comparison by itself.  So comparisons of columns with constants keep the
form that pruning reads.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from math import isnan
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.errors import InvalidArgument
from kudu_core.sql.meaning.sql_types import as_decimal, in_common
from kudu_core.sql.meaning.sql_values import exactly_numeric, fitted, may_meet, met_by_text, uuid_bytes
from kudu_core.sql.meaning.steps import size_of, steps_of
from kudu_core.sql.meaning.typed import Typed, constant, is_text, literal, named, null_of
from kudu_core.sql.sqlglot_trees import quoted

if TYPE_CHECKING:
    from sqlglot import exp

_t = pa.types
_BOOL = pa.bool_()
_FLIPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in _FLIPPED
}


def compared(tree: exp.Expr, op: str, left: Typed, right: Typed) -> Typed:
    """``left op right``, ``op`` one of "eq", "ne", "lt", "le", "gt" and "ge"."""
    if left.is_null or right.is_null:
        return null_of(tree, _BOOL)
    if left.is_constant and not right.is_constant:
        left, right, op = right, left, _FLIPPED[op]
    if left.is_uuid and right.is_constant and is_text(right.type):
        right = uuid_bytes(right)
    if right.is_constant:
        found = _with_constant(tree, op, left, right)
        if found is not None:
            return found
    if left.is_constant and is_text(left.type) and left.loose:
        left = fitted(left, right.type) or left
    type_ = in_common(left.type, right.type)
    if type_ is None or _t.is_nested(type_):
        raise InvalidArgument(
            f"SQL: {quoted(tree)}: {named(left.type)} does not compare with {named(right.type)}; CAST one of "
            "them to the other's type"
        )
    if pa.uint64() in (left.type, right.type) and _t.is_signed_integer(type_):
        type_ = as_decimal(pa.uint64())  # of which both sides have all values
    if _t.is_timestamp(type_) and type_.tz:
        type_ = pa.timestamp(type_.unit, "UTC")
    one, two = (_for_comparing(side, type_) for side in (left, right))
    return Typed(tree, _BOOL, _of_values(op, one.expression, two.expression, type_))


def _for_comparing(side: Typed, type_: pa.DataType) -> Typed:
    if _t.is_timestamp(type_) and type_.tz:  # both as numbers, where one may have no zone: it is in UTC then
        naive = pa.timestamp(type_.unit)
        stamped = side if _t.is_timestamp(side.type) and side.type.tz else side.as_type(naive)
        if _t.is_timestamp(stamped.type) and stamped.type.unit != type_.unit:
            stamped = stamped.as_type(pa.timestamp(type_.unit, stamped.type.tz))
        return stamped.as_type(pa.int64())
    return side.as_type(type_, safe=not _t.is_floating(type_))


def _of_values(op: str, one: pc.Expression, two: pc.Expression, type_: pa.DataType) -> pc.Expression:
    plain = _OPERATORS[op](one, two)
    if not _t.is_floating(type_):
        return plain
    nan, other = pc.is_nan(one), pc.is_nan(two)
    with_nan = {
        "eq": plain | (nan & other),
        "ne": plain & ~(nan & other),
        "lt": plain | (other & ~nan),
        "le": plain | other,
        "gt": plain | (nan & ~other),
        "ge": plain | nan,
    }[op]
    return pc.if_else(plain.is_valid(), with_nan, literal(None, _BOOL))  # where one of them is NULL


def _with_constant(tree: exp.Expr, op: str, left: Typed, right: Typed) -> Typed | None:
    """Of a constant that becomes one of the other side's type; None where it stays what it is."""
    type_, scalar = left.type, right.constant
    assert scalar is not None
    if _t.is_floating(type_):
        if not (right.loose or (_is_numeric(right) and in_common(type_, right.type) == type_)):
            return None  # a DOUBLE that meets a FLOAT is not rounded, unless it is only written down
        found = fitted(right, type_)
        return None if found is None else _with_float(tree, op, left, found)
    if right.loose and is_text(right.type) and not is_text(type_):
        right = met_by_text(right, type_)
        assert right.constant is not None
        scalar = right.constant
    steps = steps_of(type_)
    if steps is None or not (scalar.type == type_ or may_meet(scalar.type, type_)):
        if scalar.type != type_:
            return None
        return Typed(tree, _BOOL, _OPERATORS[op](left.expression, pc.scalar(scalar)))
    size = size_of(scalar)
    if size is None:
        return None
    place = size // steps.step
    between = size != place * steps.step
    if place > steps.most or place < steps.least:
        holds = op in (("lt", "le", "ne") if place > steps.most else ("gt", "ge", "ne"))
        return _decided(tree, left, holds)
    if between and op in ("eq", "ne"):
        return _decided(tree, left, op == "ne")
    if between:
        op = "le" if op in ("lt", "le") else "gt"
    value = scalar if scalar.type == type_ else steps.scalar(place)
    return Typed(tree, _BOOL, _OPERATORS[op](left.expression, pc.scalar(value)))


def _is_numeric(part: Typed) -> bool:
    return exactly_numeric(part.type) or bool(_t.is_floating(part.type))


def _with_float(tree: exp.Expr, op: str, left: Typed, right: Typed) -> Typed:
    assert right.constant is not None
    nan = pc.is_nan(left.expression)
    if isnan(right.constant.as_py()):
        if op in ("le", "gt"):
            return _decided(tree, left, op == "le")
        return Typed(tree, _BOOL, nan if op in ("eq", "ge") else ~nan)
    plain = _OPERATORS[op](left.expression, right.expression)
    return Typed(tree, _BOOL, plain | nan if op in ("gt", "ge") else plain)


def _decided(tree: exp.Expr, part: Typed, holds: bool) -> Typed:
    """What is so of every value, and NULL of NULL."""
    if part.is_constant:
        return constant(tree, pa.scalar(holds))
    found = pc.if_else(part.expression.is_valid(), literal(holds, _BOOL), literal(None, _BOOL))
    return Typed(tree, _BOOL, found)


def listed(tree: exp.Expr, part: Typed, values: Sequence[Typed]) -> Typed:
    """``part IN (values)``: NULL where it is not found and a NULL is among them, or it is NULL itself."""
    if part.is_null:
        return null_of(tree, _BOOL)
    others: list[pc.Expression] = []
    exact: list[pa.Scalar] = []
    for value in values:
        if value.is_null:
            others.append(literal(None, _BOOL))
        elif not value.is_constant or part.is_constant or _t.is_floating(part.type):
            others.append(compared(tree, "eq", part, value).expression)
        else:
            scalar = _as_listed(tree, part, value)
            if scalar is not None:
                exact.append(scalar)
    found: list[pc.Expression] = []
    if exact or not others:
        test = part.expression.isin(pa.array(exact, part.type))
        found.append(pc.if_else(part.expression.is_valid(), test, literal(None, _BOOL)))
    return Typed(tree, _BOOL, balanced(operator.or_, [*found, *others]))


def _as_listed(tree: exp.Expr, part: Typed, value: Typed) -> pa.Scalar | None:
    """A value of a list in the type of what is looked for; None where no value of that type is it."""
    if part.is_uuid and is_text(value.type):
        value = uuid_bytes(value)
    found = fitted(value, part.type)
    if found is None and not may_meet(value.type, part.type):
        compared(tree, "eq", part, value)  # says that they do not compare
    return None if found is None else found.constant


def balanced(join: Callable[[Any, Any], Any], parts: Sequence[pc.Expression]) -> pc.Expression:
    """Many parts as one, in a tree that is not deep."""
    whole = list(parts)
    while len(whole) > 2:
        whole = [reduce(join, whole[at : at + 2]) for at in range(0, len(whole), 2)]
    return reduce(join, whole)


__all__ = ["balanced", "compared", "listed"]
