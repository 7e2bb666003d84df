"""``CAST`` as in DuckDB, and the one type to which several values are brought."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.errors import InvalidArgument
from kudu_core.sql.meaning.sql_types import MOST_DIGITS, as_decimal, in_common
from kudu_core.sql.meaning.sql_values import blob, fitted, of_text, uuid_bytes
from kudu_core.sql.meaning.typed import (
    INTERVAL,
    Typed,
    constant,
    folded,
    is_moment,
    is_number,
    is_text,
    literal,
    named,
    null_of,
    refused,
    with_a_digit,
)
from kudu_core.sql.sqlglot_trees import quoted

if TYPE_CHECKING:
    from sqlglot import exp

_t = pa.types


def cast_to(tree: exp.Expr, part: Typed, type_: pa.DataType, name: str) -> Typed:
    """``CAST(part AS name)``, which is ``type_``."""
    if part.is_null:
        return null_of(tree, type_)
    if name == "UUID":
        if part.is_uuid:
            return part
        if part.constant is None or not is_text(part.type):
            raise refused(tree, "write the UUID down as text")
        return uuid_bytes(part)
    if part.type == type_:
        return Typed(tree, type_, part.expression, part.constant)
    if part.constant is not None and is_text(part.type):
        value = pa.scalar(blob(part.constant.as_py())) if _t.is_binary(type_) else of_text(part, type_)
        return constant(tree, value)
    return folded(Typed(tree, type_, _cast(tree, part, type_)), part)


def _cast(tree: exp.Expr, part: Typed, type_: pa.DataType) -> pc.Expression:
    given, x = part.type, part.expression
    if is_number(given) and is_number(type_):
        return _number(part, type_)
    if is_text(type_) and (_t.is_integer(given) or _t.is_decimal(given) or _t.is_boolean(given)):
        return x.cast(type_)
    if is_text(type_) and _t.is_date(given):
        return part.as_type(pa.date32()).expression.cast(type_)
    if _t.is_boolean(given) and (_t.is_integer(type_) or _t.is_floating(type_)):
        return x.cast(type_)
    if _t.is_boolean(type_) and (_t.is_integer(given) or _t.is_floating(given)):
        return x.cast(type_)
    if is_text(given) and (is_number(type_) or is_moment(type_) or _t.is_boolean(type_)):
        return x.cast(type_)
    if is_moment(given) and is_moment(type_):
        return x.cast(type_, safe=False)
    if _t.is_timestamp(given) and _t.is_time(type_):
        return x.cast(type_, safe=False)
    if _t.is_time(given) and _t.is_time(type_):
        return x.cast(type_, safe=False)
    raise refused(tree, f"no value of {named(given)} becomes {named(type_)}: SELECT in table.sql() may do it")


def _number(part: Typed, type_: pa.DataType) -> pc.Expression:
    """Rounded as DuckDB does: floats to the even integer, but to decimals, and decimals, away from zero."""
    part = with_a_digit(part)
    given, x = part.type, part.expression
    if _t.is_floating(type_):
        return part.as_type(type_, safe=False).expression
    if _t.is_integer(type_):
        if _t.is_floating(given):
            x = pc.round(x, ndigits=0, round_mode="half_to_even")
        elif _t.is_decimal(given):
            x = pc.round(x, ndigits=0, round_mode="half_towards_infinity")
        return x.cast(type_)
    if _t.is_integer(given):
        whole = as_decimal(given).precision
        wide = pa.decimal128(min(whole + type_.scale, MOST_DIGITS), type_.scale)
        return x.cast(wide).cast(type_)
    if _t.is_floating(given):  # Arrow would round to the even neighbour
        scale = literal(float(10**type_.scale), pa.float64())
        steps = pc.multiply(x.cast(pa.float64(), safe=False), scale)
        x = pc.divide(pc.round(steps, ndigits=0, round_mode="half_towards_infinity"), scale)
    if _t.is_decimal(given) and given.scale > type_.scale:
        x = pc.round(x, ndigits=type_.scale, round_mode="half_towards_infinity")
    return x.cast(type_)


def brought_together(tree: exp.Expr, parts: Sequence[Typed]) -> tuple[pa.DataType, list[Typed]]:
    """Values of which any may be the answer, in one type; ``InvalidArgument`` where they have none."""
    found = pa.null()
    for part in sorted(parts, key=lambda one: one.loose):
        if part.loose and not _t.is_null(found) and fitted(part, found) is not None:
            continue
        both = in_common(found, part.type)
        if both is None:
            raise InvalidArgument(
                f"SQL: {quoted(tree)} gives {named(found)} or {named(part.type)}; CAST one of them"
            )
        found = both
    if _t.is_nested(found) or found == INTERVAL:
        raise refused(tree, f"it would give {named(found)}")
    return found, [_brought(part, found) for part in parts]


def _brought(part: Typed, type_: pa.DataType) -> Typed:
    if part.is_null:
        return null_of(part.tree, type_)
    known = fitted(part, type_) if part.loose else None
    return known or part.as_type(type_, safe=not _t.is_floating(type_))


__all__ = ["brought_together", "cast_to"]
