"""Conditions and values of clauses that are given as SQL text, over the columns of both rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kudu_core.errors import InvalidArgument
from kudu_core.sql.sql_text import SqlExpression
from kudu_core.sql.where_text import is_text
from kudu_core.table.merge.sides import NEW, OLD

if TYPE_CHECKING:
    import pyarrow as pa

    from kudu_core.common.schema.schema import Schema


def has_text(where: Any, set_: Mapping[str, Any] | None) -> bool:
    values = set_.values() if isinstance(set_, Mapping) else ()
    return is_text(where) or any(isinstance(value, SqlExpression) for value in values)


class ClauseText:
    """What text means in one clause."""

    def __init__(self, schema: Schema, given: pa.Schema, sides: tuple[str, ...], place: str) -> None:
        """``given``: of the rows that are given.  ``sides``: which rows are.  ``place``: in messages."""
        from kudu_core.sql.named_columns import NamedRow, NamedRows

        of = {OLD: schema.arrow, NEW: given}
        self._rows = NamedRows(tuple(NamedRow(of[side], side, (side,)) for side in sides))
        self._target = NamedRows((NamedRow(schema.arrow),))
        self._place = place

    def condition(self, where: Any) -> Any:
        """A condition as an expression; as it is, where it is no text."""
        if not is_text(where):
            return where
        from kudu_core.sql.sqlglot_trees import condition_tree
        from kudu_core.sql.translate import Translation

        text = where if isinstance(where, SqlExpression) else SqlExpression(where)
        try:
            return Translation(self._rows, text.parameters).condition(condition_tree(text.text))
        except InvalidArgument as error:
            raise InvalidArgument(f"{self._place}: {error}") from None

    def values(self, set_: Mapping[str, Any]) -> dict[str, Any]:
        """Columns and what they get, with expressions in the place of text that is marked as such."""
        from kudu_core.sql.sqlglot_trees import condition_tree
        from kudu_core.sql.translate import Translation

        made = dict(set_)
        for name, value in set_.items():
            if isinstance(value, SqlExpression):
                tree = condition_tree(value.text)
                try:
                    column = self._target.named(tree, name)
                    made[name] = Translation(self._rows, value.parameters).value(tree, column)
                except InvalidArgument as error:
                    raise InvalidArgument(f"{self._place}: column {name!r}: {error}") from None
        return made


__all__ = ["ClauseText", "has_text"]
