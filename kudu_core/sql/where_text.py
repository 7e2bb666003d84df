"""Where a predicate, or new values, may be SQL text: brought to expressions of Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kudu_core.errors import InvalidArgument
from kudu_core.sql.sql_text import SqlExpression

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema


def is_text(where: Any) -> bool:
    return isinstance(where, str | SqlExpression)


def without_text(where: Any, schema: Schema) -> Any:
    """A predicate that may be SQL text, as an expression over the columns of a schema; others as they are."""
    if not is_text(where):
        return where
    from kudu_core.sql.translate import expression_of

    try:
        return expression_of(where, schema.arrow, condition=True)
    except InvalidArgument as error:
        raise InvalidArgument(f"where: {error}") from None


def text_identity(where: Any) -> tuple[str, str] | None:
    """What SQL text is known by; None where it has parameters."""
    if isinstance(where, str):
        return "sql", where
    return None if where.parameters else ("sql", where.text)


def values_without_text(set_: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """``set=`` whose ``SqlExpression`` are expressions of Arrow; plain text in it is a value."""
    if not any(isinstance(value, SqlExpression) for value in set_.values()):
        return dict(set_)
    from kudu_core.sql.translate import value_of

    made: dict[str, Any] = {}
    for name, value in set_.items():
        if isinstance(value, SqlExpression):
            try:
                value = value_of(value, schema.arrow, name)
            except InvalidArgument as error:
                raise InvalidArgument(f"set: column {name!r}: {error}") from None
        made[name] = value
    return made


__all__ = ["is_text", "text_identity", "values_without_text", "without_text"]
