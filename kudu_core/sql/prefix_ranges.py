"""Queries in which ``LIKE 'ab%'`` stands beside the range of texts that it means, which DuckDB hands down."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kudu_core.errors import InvalidArgument, NotSupported
from kudu_core.sql.meaning.patterns import after_prefix, prefix_of
from kudu_core.sql.sqlglot_trees import sqlglot_of, statement_tree, written

if TYPE_CHECKING:
    from sqlglot import exp

_HAS_LIKE = re.compile(r"\blike\b", re.IGNORECASE)
_EXPLAINS = re.compile(r"\s*explain(\s+analyze)?\s", re.IGNORECASE)


def with_ranges(text: str) -> str:
    """The same query; as it is where it has no such test, or where sqlglot does not read it."""
    if not _HAS_LIKE.search(text):
        return text
    explains = _EXPLAINS.match(text)
    if explains is not None:
        return text[: explains.end()] + with_ranges(text[explains.end() :])
    try:
        tree = statement_tree(text)
    except (InvalidArgument, NotSupported):
        return text
    from sqlglot import exp

    if not isinstance(tree, exp.Query):
        return text
    tests = [test for test in tree.find_all(exp.Like) if _prefix(test)]
    for test in tests:
        test.replace(_with_range(test, _prefix(test)))
    try:
        return written(tree) if tests else text
    except sqlglot_of().errors.SqlglotError:
        return text


def _prefix(test: exp.Like) -> str:
    """What texts begin with that pass a test of a column; empty where that is not known."""
    from sqlglot import exp

    column, pattern = test.this, test.expression
    known = isinstance(column, exp.Column) and isinstance(pattern, exp.Literal) and pattern.is_string
    if not known or isinstance(test.parent, exp.Escape) or test.args.get("negate"):
        return ""
    return prefix_of(pattern.name)


def _with_range(test: exp.Like, prefix: str) -> exp.Expr:
    """Of what LIKE is true, its range is too, and both are NULL of NULL: so it may stand anywhere."""
    from sqlglot import exp

    found = exp.and_(test.copy(), exp.GTE(this=test.this.copy(), expression=exp.Literal.string(prefix)))
    end = after_prefix(prefix)
    if end is not None:
        found = exp.and_(found, exp.LT(this=test.this.copy(), expression=exp.Literal.string(end)))
    return exp.paren(found)


__all__ = ["with_ranges"]
