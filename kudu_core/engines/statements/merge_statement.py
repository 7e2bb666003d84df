"""MERGE as the calls of ``Table.merge``: its clauses in their order, over the rows of both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.engines.statements.in_duckdb import Queries
from kudu_core.engines.statements.write_statements import assignment, names_in, only, subquery_of
from kudu_core.errors import InvalidArgument, NotSupported
from kudu_core.sql.named_columns import NamedRow, NamedRows
from kudu_core.sql.sqlglot_trees import quoted
from kudu_core.sql.translate import Translation

if TYPE_CHECKING:
    from sqlglot import exp

OLD, NEW = "old", "new"
"""The row that is there, and the row of the source, in expressions of ``Table.merge``."""


def run_merge(queries: Queries, tree: exp.Expr) -> Any:
    """``MERGE INTO this USING source ON ... WHEN ...``."""
    only(tree, "this", "using", "on", "using_cond", "whens", "with_")
    if not hasattr(queries.table, "merge"):
        raise NotSupported("SQL: MERGE needs table.merge(), which this version does not have")
    targets = names_in(queries, tree.this)
    source, sources = _source(queries, tree)
    key = list(queries.table.primary_key)
    source, renamed = _with_key(tree, key, source, targets, sources)
    old = NamedRow(queries.table.schema, OLD, targets)
    new = NamedRow(source.schema, NEW, sources, renamed)
    clauses = _Clauses(queries, tree, old, new)
    merge: Any = queries.table.merge(source, on=key)
    for when in tree.args["whens"].expressions:
        merge = clauses.add(merge, when)
    return merge.execute()


def _source(queries: Queries, tree: exp.Expr) -> tuple[pa.Table, tuple[str, ...]]:
    """The rows of the source, and what may stand before its columns."""
    using = tree.args["using"]
    if type(using).__name__ == "Table":
        names = tuple(one for one in (using.alias, using.name) if one)
        given = queries.source(using.name)
        if given is not None and hasattr(given, "__arrow_c_stream__"):
            return pa.table(given), names
    else:
        names = (using.alias,) if using.alias else ()
    from sqlglot import exp

    return subquery_of(queries, tree)(exp.select("*").from_(using.copy())), names


def _with_key(
    tree: exp.Expr, key: list[str], source: pa.Table, targets: tuple[str, ...], sources: tuple[str, ...]
) -> tuple[pa.Table, dict[str, str]]:
    """The source with its columns of the key under the key's names, and which of its names became which."""
    row = NamedRow(source.schema, NEW, sources)
    pairs = _pairs(tree, key, row, targets, sources)
    if sorted(pairs) != sorted(key):
        raise InvalidArgument(
            f"SQL: {quoted(tree.args.get('on') or tree.this)}: ON of MERGE says that each column of the key, "
            f"{', '.join(key)}, equals one of the source, and no more; conditions stand in WHEN ... AND"
        )
    renamed = {given: name for name, given in pairs.items() if given != name}
    names = [renamed.get(name, name) for name in source.column_names]
    if len(set(names)) != len(names):
        raise InvalidArgument(
            f"SQL: the source has a column of the key's, {', '.join(key)}, beside the one that ON names; "
            "leave it out, by USING (SELECT ...) AS s"
        )
    return source.rename_columns(names), renamed


def _pairs(
    tree: exp.Expr, key: list[str], row: NamedRow, targets: tuple[str, ...], sources: tuple[str, ...]
) -> dict[str, str]:
    """Column of the key -> the source's that equals it."""
    using = tree.args.get("using_cond")
    if using:
        return {part.name: row.found(part.name) or part.name for part in using}
    on = tree.args.get("on")
    pairs: dict[str, str] = {}
    for part in [] if not on else _conjuncts(on):
        sides = (part.this, part.expression) if type(part).__name__ == "EQ" else ()
        for one, other in (sides, sides[::-1]) if sides else ():
            name = _column_of(one, targets)
            given = _column_of(other, sources)
            target = None if name is None else next((k for k in key if k.lower() == name.lower()), None)
            if target is not None and given is not None and row.found(given) is not None:
                pairs[target] = str(row.found(given))
                break
        else:
            raise InvalidArgument(
                f"SQL: {quoted(part)}: ON of MERGE is of comparisons of a column of the key with one of the "
                "source, as s.k = this.k; other conditions stand in WHEN ... AND"
            )
    return pairs


def _conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    kind = type(tree).__name__
    if kind == "Paren":
        return _conjuncts(tree.this)
    return [*_conjuncts(tree.this), *_conjuncts(tree.expression)] if kind == "And" else [tree]


def _column_of(tree: exp.Expr, names: tuple[str, ...]) -> str | None:
    """The name of a column that one of the names stands before; None of anything else."""
    parts = getattr(tree, "parts", ())
    if type(tree).__name__ != "Column" or len(parts) != 2:
        return None
    before, name = (str(part.name) for part in parts)
    return name if before.lower() in [one.lower() for one in names] else None


class _Clauses:
    """``WHEN ...`` as calls."""

    def __init__(self, queries: Queries, tree: exp.Expr, old: NamedRow, new: NamedRow) -> None:
        self._schema = queries.table.schema
        self._key = queries.table.primary_key
        self._old, self._new = old, new
        self._values, self._subquery = queries.values, subquery_of(queries, tree)

    def add(self, merge: Any, when: exp.Expr) -> Any:
        """One more clause."""
        then = when.args["then"]
        action = then.name.upper() if type(then).__name__ == "Var" else type(then).__name__.upper()
        if when.args.get("matched"):
            where = self._where(when, self._old, self._new)
            if action == "DELETE":
                return merge.when_matched_delete(where=where)
            if action == "UPDATE":
                return merge.when_matched(set=self._set(then, self._old, self._new), where=where)
        elif when.args.get("source"):
            where = self._where(when, self._old)
            if action == "DELETE":
                return merge.when_not_matched_by_source_delete(where=where)
            if action == "UPDATE":
                set_ = self._set(then, self._old)
                return merge.when_not_matched_by_source_update(set=set_, where=where)
        elif action == "INSERT":
            where = self._where(when, self._new)
            return merge.when_not_matched_insert(values=self._values_of(then), where=where)
        raise NotSupported(
            f"SQL: {quoted(when)}: WHEN MATCHED takes UPDATE and DELETE, WHEN NOT MATCHED takes INSERT, WHEN "
            "NOT MATCHED BY SOURCE takes UPDATE and DELETE; rows that stay as they are match no clause"
        )

    def _over(self, *rows: NamedRow) -> Translation:
        return Translation(NamedRows(rows), self._values, self._subquery)

    def _where(self, when: exp.Expr, *rows: NamedRow) -> pc.Expression | None:
        condition = when.args.get("condition")
        return None if condition is None else self._over(*rows).condition(condition)

    def _set(self, then: exp.Expr, *rows: NamedRow) -> dict[str, pc.Expression]:
        given = then.args.get("expressions") or []
        if not given or type(given[0]).__name__ == "Star":
            if self._new not in rows:
                raise InvalidArgument("SQL: UPDATE of a row that the source does not have says what to SET")
            return {name: pc.field(NEW, name) for name in self._shared() if name not in self._key}
        target = NamedRows((self._old,))
        return dict(assignment(one, target, self._over(*rows)) for one in given)

    def _values_of(self, then: exp.Expr) -> dict[str, pc.Expression] | None:
        columns, values = then.this, then.args.get("expression")
        if not values:
            self._shared()
            return None
        target = NamedRows((NamedRow(self._schema),))
        named = isinstance(getattr(columns, "expressions", None), list) and columns.expressions
        names = [target.target(one)[0] for one in columns.expressions] if named else self._schema.names
        if len(names) != len(values.expressions):
            raise InvalidArgument(
                f"SQL: {quoted(then)}: {len(values.expressions)} values for {len(names)} columns"
            )
        over = self._over(self._new)
        return {
            name: over.value(value, target.named(value, name))
            for name, value in zip(names, values.expressions, strict=True)
        }

    def _shared(self) -> list[str]:
        """The columns of the source, all of which the table must have."""
        names: list[str] = self._new.schema.names
        others = [name for name in names if name not in self._schema.names]
        if others:
            raise InvalidArgument(
                f"SQL: the source has columns that the table has not, {', '.join(others)}: write out "
                "which are meant"
            )
        return names


__all__ = ["NEW", "OLD", "run_merge"]
