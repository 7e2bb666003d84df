"""SQL text that stands where a value or an expression may stand, marked as such."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kudu_core.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """SQL text, and the values of its ``$names``.  Immutable; pickles."""

    text: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise InvalidArgument(f"SQL is text, not {self.text!r}")


def expr(text: str, /, **parameters: Any) -> SqlExpression:
    """SQL text over the columns of a table, for ``set=`` and ``where=``.

    In ``set=`` plain text is a value; this marks what is to be computed.  ``$name`` stands for a value that
    is given by name, as it is: nothing of it is read as SQL.  docs/sql.md says what is understood.

    >>> stock.update(where=kc.expr("name = $who", who="ink"), set={"price": kc.expr("price * 2")}).updated
    1
    >>> stock.get(2, ["price"])
    {'price': 8.0}

    Raises
    ------
    InvalidArgument
        Not here, but where it is used: the text is no SQL, names no column, or has a part that Arrow cannot
        compute; that part is quoted.
    """
    return SqlExpression(text, parameters)


__all__ = ["SqlExpression", "expr"]
