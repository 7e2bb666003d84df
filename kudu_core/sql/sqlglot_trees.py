"""SQL text as sqlglot's trees.  Nobody else calls its parser, and what it cannot read is pointed at here."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from kudu_core.errors import InvalidArgument, NotSupported

if TYPE_CHECKING:
    from sqlglot import exp

_MOST_SHOWN = 200


def sqlglot_of() -> Any:
    """The package; ``NotSupported`` where it is not installed."""
    try:
        import sqlglot
    except ImportError:
        raise NotSupported(
            "SQL text needs sqlglot, which is not installed: pip install 'kudu-core[sql]'"
        ) from None
    return sqlglot


@cache
def dialect() -> Any:
    """DuckDB's, in which ``$a`` is always a parameter and begins no text that ends at another dollar."""
    sqlglot_of()
    from sqlglot.dialects.duckdb import DuckDB

    tokenizer = type("Tokenizer", (DuckDB.Tokenizer,), {"HEREDOC_STRINGS": []})
    return type("KuduCoreSql", (DuckDB,), {"Tokenizer": tokenizer})


def condition_tree(text: str) -> exp.Expr:
    """The tree of a condition or of another expression."""
    before = "SELECT "
    [select, *more] = _trees(before + _checked(text), text, len(before))
    from sqlglot import exp

    found = select.expressions if isinstance(select, exp.Select) else []
    others = {name for name, value in select.args.items() if value and name != "expressions"}
    if more or others or len(found) != 1 or isinstance(found[0], exp.Alias | exp.Star):
        raise InvalidArgument(
            f"SQL {shortened(text)}: one condition or expression is asked for, as n > 5 AND s LIKE 'a%'; a "
            "whole statement is for table.sql()"
        )
    tree: exp.Expr = found[0]
    return tree


def statement_tree(text: str) -> exp.Expr:
    """The tree of one statement."""
    found = [tree for tree in _trees(_checked(text), text, 0) if tree is not None]
    if len(found) != 1:
        raise InvalidArgument(f"SQL {shortened(text)}: one statement is asked for, there are {len(found)}")
    tree: exp.Expr = found[0]
    return tree


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidArgument(f"SQL is text, not {text!r}")
    if not text.strip():
        raise InvalidArgument("SQL: the text is empty")
    return text


def _trees(text: str, given: str, before: int) -> list[Any]:
    """Of the statements in ``text``, of which the user gave what stands from ``before`` on."""
    sqlglot = sqlglot_of()
    try:
        return list(sqlglot.parse(text, dialect=dialect()))
    except sqlglot.errors.ParseError as error:
        [first, *_] = error.errors or [{}]
        raise InvalidArgument(_pointed(given, first, before, str(error))) from None
    except sqlglot.errors.TokenError:
        raise InvalidArgument(
            f"SQL {shortened(given)}: it cannot be cut into words; is a quote or a comment not closed?"
        ) from None
    except RecursionError:
        raise InvalidArgument(f"SQL {shortened(given)}: too many parts stand inside one another") from None


def _pointed(given: str, first: dict[str, Any], before: int, otherwise: str) -> str:
    """What is wrong, with the line of the text and a mark under the place."""
    number, column = first.get("line"), first.get("col")
    lines = given.splitlines()
    what = str(first.get("description") or otherwise).rstrip(".")
    if what.startswith("Required keyword"):
        what = "something is missing after it"
    if number is None or column is None or not 1 <= number <= len(lines):
        return f"SQL {shortened(given)}: {what}"
    # sqlglot counts to the end of what it marks.
    marked = str(first.get("highlight") or " ")
    at = max(column - len(marked) - (before if number == 1 else 0), 0)
    line = lines[number - 1]
    return f"SQL, line {number}, at {marked!r}: {what}\n  {line}\n  {' ' * at}{'^' * len(marked)}"


def quoted(tree: exp.Expr) -> str:
    """A part of the text, as it may be written, in backquotes."""
    try:
        return shortened(written(tree))
    except (sqlglot_of().errors.SqlglotError, RecursionError):
        return shortened(type(tree).__name__)


def written(tree: exp.Expr) -> str:
    """A tree as text that DuckDB reads."""
    ignore = sqlglot_of().ErrorLevel.IGNORE  # what DuckDB does not have, it says itself
    text: str = tree.sql(dialect=dialect(), normalize_functions=False, unsupported_level=ignore)
    return text


def shortened(text: str) -> str:
    """Of a text what fits into a message, in backquotes."""
    flat = " ".join(text.split())
    return f"`{flat if len(flat) <= _MOST_SHOWN else flat[:_MOST_SHOWN] + '...'}`"


__all__ = ["condition_tree", "quoted", "shortened", "sqlglot_of", "statement_tree", "written"]
