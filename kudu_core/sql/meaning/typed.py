"""A part of an SQL text as an expression of Arrow, with the type of its values, which decides what it means.

Arrow itself says types only when it binds an expression to a schema, and casts by rules of its own; so here
every type is known, and every cast is written down.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.errors import InvalidArgument
from kudu_core.sql.sqlglot_trees import quoted

if TYPE_CHECKING:
    from sqlglot import exp

_t = pa.types
INTERVAL = pa.month_day_nano_interval()
_EXACT_DIGITS = 18
"""Of decimals whose digits an int64 holds."""


@dataclass(frozen=True, slots=True)
class Typed:
    """``tree`` is what was written, for messages."""

    tree: exp.Expr
    type: pa.DataType
    expression: pc.Expression
    constant: pa.Scalar | None = None
    """Its value, where it has one, of ``type``."""
    loose: bool = False
    """A number or a text as it is written down, whose type is that of what it meets."""
    is_uuid: bool = False
    """Its bytes are those of UUIDs, which are written as text."""

    @property
    def is_null(self) -> bool:
        return bool(_t.is_null(self.type)) or (self.constant is not None and not self.constant.is_valid)

    @property
    def is_constant(self) -> bool:
        return self.constant is not None

    def as_type(self, type_: pa.DataType, *, safe: bool = True) -> Typed:
        """Cast by Arrow's rules; ``safe``: what does not fit fails."""
        if self.type == type_:
            return self
        if self.constant is not None:
            return constant(self.tree, _cast(self, type_, safe=safe))
        if _t.is_decimal(self.type) and _t.is_floating(type_) and self.type.precision <= _EXACT_DIGITS:
            return Typed(self.tree, type_, _as_float(self.expression, self.type, type_))
        return Typed(self.tree, type_, self.expression.cast(type_, safe=safe))

    def made(self, type_: pa.DataType, expression: pc.Expression) -> Typed:
        """Another expression of the same text."""
        return Typed(self.tree, type_, expression)


def constant(tree: exp.Expr, scalar: pa.Scalar, *, loose: bool = False) -> Typed:
    """A value."""
    return Typed(tree, scalar.type, pc.scalar(scalar), scalar, loose)


def null_of(tree: exp.Expr, type_: pa.DataType) -> Typed:
    """A NULL of a type."""
    return constant(tree, pa.scalar(None, type_))


def _as_float(expression: pc.Expression, given: pa.DataType, type_: pa.DataType) -> pc.Expression:
    """A decimal as the nearest float, which Arrow's cast does not always give."""
    scale = 10**given.scale
    unscaled = pc.multiply(expression, literal(Decimal(scale), pa.decimal128(given.scale + 1, 0)))
    whole = unscaled.cast(pa.int64()).cast(pa.float64(), safe=False)
    return pc.divide(whole, literal(float(scale), pa.float64())).cast(type_, safe=False)


def _cast(typed: Typed, type_: pa.DataType, *, safe: bool) -> pa.Scalar:
    assert typed.constant is not None
    if _t.is_decimal(typed.type) and _t.is_floating(type_):
        value = typed.constant.as_py()
        return pa.scalar(None if value is None else float(value), type_)
    try:
        return pc.cast(typed.constant, type_, safe=safe)
    except pa.ArrowException as error:
        raise InvalidArgument(f"SQL {quoted(typed.tree)} is no {type_}: {error}") from None


def folded(typed: Typed, *parts: Typed) -> Typed:
    """The value of what has only constant parts, which makes it one too; itself, where it has others or its
    computation fails, which is told when rows are read."""
    if not all(part.is_constant for part in parts):
        return typed
    from pyarrow import acero  # it imports pyarrow.dataset, and that pandas

    source = acero.TableSourceNodeOptions(pa.table({"row": pa.array([0])}))
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", source),
            acero.Declaration("project", acero.ProjectNodeOptions([typed.expression], ["value"])),
        ]
    )
    try:
        found = plan.to_table(use_threads=False).column(0)[0]
    except pa.ArrowException:
        return typed
    return constant(typed.tree, found)


def refused(tree: exp.Expr, instead: str) -> InvalidArgument:
    """The error of a part that has no translation; ``instead`` says what to write."""
    return InvalidArgument(f"SQL: {quoted(tree)} cannot be computed here; {instead}")


def with_a_digit(part: Typed) -> Typed:
    """A decimal with room for one more digit, which rounding may need."""
    type_ = part.type
    if not _t.is_decimal(type_) or type_.precision >= 38:
        return part
    return part.as_type(pa.decimal128(type_.precision + 1, type_.scale))


def is_number(type_: pa.DataType) -> bool:
    return bool(_t.is_integer(type_) or _t.is_floating(type_) or _t.is_decimal(type_))


def is_moment(type_: pa.DataType) -> bool:
    return bool(_t.is_date(type_) or _t.is_timestamp(type_))


def is_text(type_: pa.DataType) -> bool:
    return bool(_t.is_string(type_))


def must_be(part: Typed, holds: bool, wanted: str) -> None:
    """``InvalidArgument`` unless ``holds``, saying what was wanted."""
    if not holds:
        raise InvalidArgument(f"SQL: {quoted(part.tree)} is {named(part.type)}; {wanted} is asked for there")


def named(type_: pa.DataType) -> str:
    """What a type is called in messages."""
    if type_ == INTERVAL:
        return "an interval"
    return "NULL" if _t.is_null(type_) else str(type_)


def literal(value: Any, type_: pa.DataType) -> pc.Expression:
    """A constant for use inside of an expression."""
    return pc.scalar(pa.scalar(value, type_))


__all__ = [
    "INTERVAL", "Typed", "constant", "folded", "is_moment", "is_number", "is_text", "literal", "must_be",
    "named", "null_of", "refused", "with_a_digit",
]  # fmt: skip
