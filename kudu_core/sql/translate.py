"""SQL conditions and expressions as those of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.errors import InvalidArgument
from kudu_core.sql.meaning.assigning import assigned
from kudu_core.sql.meaning.meanings import ASKING, INSTEAD, MEANINGS
from kudu_core.sql.meaning.sql_values import parameter
from kudu_core.sql.meaning.typed import INTERVAL, Typed, folded, literal, named, refused
from kudu_core.sql.named_columns import NamedRow, NamedRows
from kudu_core.sql.sql_text import SqlExpression
from kudu_core.sql.sqlglot_trees import condition_tree, quoted

if TYPE_CHECKING:
    from sqlglot import exp

_t = pa.types
_BOOL = pa.bool_()
Subquery = Callable[["exp.Expr"], pa.Table]
"""Runs a query that stands inside of an expression."""


def expression_of(
    text: str | SqlExpression,
    schema: pa.Schema | Sequence[pa.Schema],
    *,
    rows: Sequence[str] = (),
    parameters: Mapping[str, Any] | None = None,
    condition: bool = False,
) -> pc.Expression:
    """An SQL condition, or another expression over columns, as one of ``pyarrow.compute``.

    Parameters
    ----------
    text
        In DuckDB's dialect; or what ``expr`` has made.
    schema
        Of the columns.  With ``rows`` one for each of them, or one for all.
    rows
        Of an expression over several rows their names: ``("old", "new")`` makes ``old.n`` of the text
        ``pc.field("old", "n")``, and so of ``n`` where only one of them has such a column.
    parameters
        What ``$name`` stands for.
    condition
        Whether what is not true or false is refused.

    Raises
    ------
    InvalidArgument
        The text is no SQL, which points at the place; names no column; or has a part that Arrow cannot
        compute, which is quoted.
    NotSupported
        sqlglot is not installed.
    """
    if not rows:
        assert isinstance(schema, pa.Schema)
        named_rows = [NamedRow(schema, "", ("this",))]
    else:
        schemas = [schema] * len(rows) if isinstance(schema, pa.Schema) else schema
        named_rows = [NamedRow(one, row, (row,)) for row, one in zip(rows, schemas, strict=True)]
    given = text if isinstance(text, SqlExpression) else SqlExpression(text)
    known = {**given.parameters, **(parameters or {})}
    tree = condition_tree(given.text)
    translation = Translation(NamedRows(tuple(named_rows)), known)
    return translation.condition(tree) if condition else translation.expression(tree)


def value_of(text: SqlExpression, schema: pa.Schema, name: str) -> pc.Expression:
    """The same of a new value of a column, in that column's type."""
    tree = condition_tree(text.text)
    columns = NamedRows((NamedRow(schema, "", ("this",)),))
    return Translation(columns, text.parameters).value(tree, columns.named(tree, name))


class Translation:
    """What trees mean over some columns."""

    def __init__(
        self, columns: NamedRows, parameters: Mapping[str, Any], subquery: Subquery | None = None
    ) -> None:
        self._columns = columns
        self._parameters = parameters
        self._subquery = subquery

    def condition(self, tree: exp.Expr) -> pc.Expression:
        """Of a tree that must be true or false."""
        found = self._guarded(tree)
        if found.is_null:
            return literal(None, _BOOL)
        if not _t.is_boolean(found.type):
            raise InvalidArgument(
                f"SQL: {quoted(tree)} is {named(found.type)}, no condition; compare it with something"
            )
        return found.expression

    def expression(self, tree: exp.Expr) -> pc.Expression:
        """Of any tree."""
        found = self._guarded(tree)
        if found.type == INTERVAL:
            raise refused(tree, "an interval is added to a date or a timestamp")
        return found.expression

    def value(self, tree: exp.Expr, column: Typed) -> pc.Expression:
        """Of a new value of a column."""
        return self._guarded(tree, lambda one: assigned(self.typed(one), column)).expression

    def typed(self, tree: exp.Expr) -> Typed:
        """Of a part."""
        if tree is None:  # as of an operator at the end of the text
            raise InvalidArgument("SQL: something is missing beside an operator")
        name = type(tree).__name__
        meaning, arguments = MEANINGS.get(name, (None, ()))
        if meaning is None:
            raise refused(tree, INSTEAD.get(name, "there is no such function or operator here: docs/sql.md"))
        others = [one for one, value in tree.args.items() if value and one not in (*arguments, "negate")]
        if others:
            raise refused(tree, f"of it {', '.join(others)} is not understood here")
        found: Typed = meaning(self if meaning in ASKING else self.typed, tree)
        if tree.args.get("negate"):
            return folded(Typed(tree, _BOOL, ~found.expression), found)
        return found

    def column(self, tree: exp.Expr) -> Typed:
        return self._columns.column(tree)

    def parameter(self, tree: exp.Expr) -> Typed:
        if not isinstance(tree.this, str):
            raise refused(tree, "give parameters names, as $n")
        return parameter(tree, tree.this, self._parameters)

    def rows_of(self, tree: exp.Expr) -> pa.ChunkedArray:
        """The only column of a query inside of the text."""
        if self._subquery is None:
            raise refused(tree, "queries inside of conditions are for table.sql()")
        found = self._subquery(tree)
        if found.num_columns != 1:
            raise InvalidArgument(f"SQL: {quoted(tree)} gives {found.num_columns} columns; one is asked for")
        return found.column(0)

    def _guarded(self, tree: exp.Expr, read: Callable[[exp.Expr], Typed] | None = None) -> Typed:
        try:
            return (read or self.typed)(tree)
        except RecursionError:
            raise InvalidArgument(f"SQL {quoted(tree)}: too many parts stand inside one another") from None
        except (pa.ArrowException, OverflowError, UnicodeError) as error:
            raise InvalidArgument(f"SQL {quoted(tree)}: {error}") from None


__all__ = ["Subquery", "Translation", "expression_of", "value_of"]
