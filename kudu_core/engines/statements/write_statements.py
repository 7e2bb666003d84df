"""UPDATE, DELETE and INSERT as the table's own calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kudu_core.engines.statements.in_duckdb import Queries
from kudu_core.errors import InvalidArgument, NotSupported
from kudu_core.sql.named_columns import NamedRow, NamedRows
from kudu_core.sql.sqlglot_trees import quoted, written
from kudu_core.sql.translate import Translation

if TYPE_CHECKING:
    from sqlglot import exp

    from kudu_core.table.calls.result import WriteResult


def run_update(queries: Queries, tree: exp.Expr) -> WriteResult:
    """``UPDATE this SET a = ..., ... WHERE ...``."""
    only(tree, "this", "expressions", "where", "with_")
    columns, translation = _over(queries, tree)
    set_: dict[str, Any] = {}
    for one in tree.expressions:
        name, value = assignment(one, columns, translation)
        if name in set_:
            raise InvalidArgument(f"SQL: column {name!r} is set twice")
        set_[name] = value
    return queries.table.update(where=_where(tree, translation), set=set_)


def run_delete(queries: Queries, tree: exp.Expr) -> WriteResult:
    """``DELETE FROM this WHERE ...``."""
    only(tree, "this", "where", "with_")
    _, translation = _over(queries, tree)
    return queries.table.delete(where=_where(tree, translation))


def run_insert(queries: Queries, tree: exp.Expr) -> WriteResult:
    """``INSERT INTO this [(columns)] VALUES ... | SELECT ...``, whose rows DuckDB makes."""
    only(tree, "this", "expression", "conflict", "alternative", "by_name", "with_", "stored", "is_function")
    check_target(queries, tree.this)
    table, query = queries.table, tree.args.get("expression")
    if query is None:
        raise NotSupported(f"SQL: {quoted(tree)}: give VALUES or a SELECT")
    if tree.args.get("with_") is not None:
        query.set("with_", tree.args["with_"])
    text = written(query)
    row = NamedRow(table.schema)
    given = [part.name for part in tree.this.expressions]
    if tree.args.get("by_name"):
        given = queries.columns_of(text)
    names = [_column_named(row, name) for name in given] or list(table.schema.names)
    rows = queries.as_columns(text, names)
    rows = pa.table(dict(zip(names, rows.columns, strict=True)))
    if tree.args.get("alternative") == "REPLACE":
        return table.upsert(rows)
    return table.insert(rows, on_conflict="ignore" if _ignores(tree) else "error")


def _column_named(row: NamedRow, name: str) -> str:
    found = row.found(name)
    if found is None:
        raise InvalidArgument(f"SQL: no column {name!r}; there are {', '.join(row.schema.names)}")
    return found


def _ignores(tree: exp.Expr) -> bool:
    conflict, alternative = tree.args.get("conflict"), tree.args.get("alternative")
    if conflict is not None:
        if getattr(conflict.args.get("action"), "name", "").upper() != "DO NOTHING":
            raise NotSupported(
                f"SQL: {quoted(conflict)}: rows that are there are skipped, ON CONFLICT DO NOTHING, or "
                "replaced, INSERT OR REPLACE; MERGE computes new ones of both"
            )
        return True
    if alternative not in (None, "IGNORE"):
        raise NotSupported(f"SQL: INSERT OR {alternative}: there are OR REPLACE and OR IGNORE")
    return alternative == "IGNORE"


# ---- what several statements have ----


def only(tree: exp.Expr, *names: str) -> None:
    """``NotSupported`` for a clause of a statement that is not among those named."""
    for name, value in tree.args.items():
        if value and name not in names:
            part = value[0] if isinstance(value, list) else value
            what = quoted(part) if hasattr(part, "sql") else name.rstrip("_").upper()
            kind = f"{type(tree).__name__.upper()} with {name.rstrip('_').upper()} {what}"
            raise NotSupported(
                f"SQL: {kind} is not understood; "
                "MERGE joins a table with others, and SELECT computes"
            )


def check_target(queries: Queries, tree: exp.Expr) -> None:
    """``InvalidArgument`` where another table than this one would be written."""
    name = tree.this.name if type(tree).__name__ == "Schema" else tree.name
    if name.lower() not in [one.lower() for one in queries.names]:
        raise InvalidArgument(f"SQL: the table is called {' or '.join(queries.names)}, not {name!r}")


def names_in(queries: Queries, tree: exp.Expr) -> tuple[str, ...]:
    """What may stand before the columns of the table that a statement writes."""
    check_target(queries, tree)
    return (*queries.names, *([tree.alias] if tree.alias else ()))


def assignment(tree: exp.Expr, columns: NamedRows, translation: Translation) -> tuple[str, Any]:
    """The column and the value of ``a = ...``, where the column is one of ``columns``."""
    if type(tree).__name__ != "EQ":
        raise InvalidArgument(f"SQL: {quoted(tree)}: SET takes column = value")
    path, column = columns.target(tree.this)
    return path, translation.value(tree.expression, column)


def subquery_of(queries: Queries, tree: exp.Expr) -> Any:
    """What runs a query inside of a statement, with the statement's own WITH."""
    shared = tree.args.get("with_")

    def run(query: exp.Expr) -> pa.Table:
        inner = query.this if type(query).__name__ == "Subquery" else query
        text = written(inner)
        if shared is not None:
            text = f"{written(shared)} {text}"
        return queries.rows(text)

    return run


def _over(queries: Queries, tree: exp.Expr) -> tuple[NamedRows, Translation]:
    """The columns of the table, and what trees over them mean."""
    names = names_in(queries, tree.this)
    columns = NamedRows((NamedRow(queries.table.schema, "", names),))
    return columns, Translation(columns, queries.values, subquery_of(queries, tree))


def _where(tree: exp.Expr, translation: Translation) -> Any:
    where = tree.args.get("where")
    if where is None:
        raise InvalidArgument(
            f"SQL: {type(tree).__name__.upper()} without WHERE is about every row; say so: WHERE true"
        )
    return translation.condition(where.this)


__all__ = ["assignment", "names_in", "only", "run_delete", "run_insert", "run_update", "subquery_of"]
