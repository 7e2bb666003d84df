"""``Table.sql``: tells the kinds of statement apart, and runs each.

SELECT and its kin run in DuckDB over a snapshot of the table.  UPDATE, DELETE, INSERT and MERGE become the
table's own calls: they are decided and applied as those are, whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kudu_core.common.schema.column_names import is_unicode
from kudu_core.engines.statements.in_duckdb import THIS, Queries
from kudu_core.engines.statements.merge_statement import run_merge
from kudu_core.engines.statements.write_statements import run_delete, run_insert, run_update
from kudu_core.errors import InvalidArgument
from kudu_core.sql.prefix_ranges import with_ranges
from kudu_core.sql.sqlglot_trees import shortened, statement_tree

if TYPE_CHECKING:
    from kudu_core.table.table import Table

_BEFORE = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
"""What may stand before the first word of a statement."""
_WRITES = {"UPDATE": run_update, "DELETE": run_delete, "INSERT": run_insert, "MERGE": run_merge}
_QUERIES = ("SELECT", "EXPLAIN", "PRAGMA", "MULTI")
"""Statements of DuckDB's that only read, as it calls them."""
_INSTEAD = {
    "ALTER": "table.alter()", "CREATE": "kudu_core.create_table()", "DROP": "table.alter(drop=...)",
    "TRUNCATE": "DELETE FROM this WHERE true", "COPY": "DuckDB over table.to_dataset()",
    "BEGIN": "table.batch()", "COMMIT": "table.batch()",
}  # fmt: skip


def run_sql(table: Table, text: str, parameters: Mapping[str, Any]) -> Any:
    """What ``Table.sql`` gives."""
    if not isinstance(text, str) or not text.strip() or not is_unicode(text):
        raise InvalidArgument(f"sql takes the text of one statement, not {text!r}")
    words = text[_BEFORE.match(text).end() :].split(maxsplit=1)  # type: ignore[union-attr]
    first = re.split(r"\W", words[0], maxsplit=1)[0].upper() if words else ""
    with Queries(table, names_of(table), parameters) as queries:
        if first in _WRITES or first == "WITH":
            tree = statement_tree(text)
            run = _WRITES.get(type(tree).__name__.upper())
            if run is not None:
                return run(queries, tree)
        if first in _INSTEAD:
            raise _refused(text, first)
        kinds = queries.statements(text)
        if len(kinds) != 1:
            said = f"one statement is asked for, there are {len(kinds)}"
            raise InvalidArgument(f"SQL {shortened(text)}: {said}")
        if kinds[0] not in _QUERIES:
            raise _refused(text, first)
        return queries.rows(with_ranges(text))


def names_of(table: Table) -> tuple[str, ...]:
    """What a table is called in its statements: ``this``, and as its folder is."""
    folder = table.path.rstrip("/").rpartition("/")[2]
    return (THIS,) if not folder or folder.lower() == THIS else (THIS, folder)


def _refused(text: str, first: str) -> InvalidArgument:
    instead = _INSTEAD.get(first)
    more = f"; for {first} there is {instead}" if instead else ""
    return InvalidArgument(
        f"SQL {shortened(text)}: sql() runs SELECT, WITH, EXPLAIN, UPDATE, DELETE, INSERT and MERGE{more}"
    )


__all__ = ["run_sql"]
