"""Each kind of part that sqlglot makes of a text, and what it means here."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from kudu_core.errors import InvalidArgument
from kudu_core.sql.meaning.arithmetic import (
    combined,
    divided,
    interval_of,
    negated,
    remainder,
    whole_quotient,
)
from kudu_core.sql.meaning.casting import cast_to
from kudu_core.sql.meaning.comparing import balanced, compared, listed
from kudu_core.sql.meaning.patterns import like
from kudu_core.sql.meaning.sql_functions import FUNCTIONS, Meaning, Translate, is_true, known_text
from kudu_core.sql.meaning.sql_types import type_of
from kudu_core.sql.meaning.sql_values import number, plain_scalar
from kudu_core.sql.meaning.typed import Typed, constant, folded, literal, must_be, null_of, refused
from kudu_core.sql.sqlglot_trees import quoted

if TYPE_CHECKING:
    from sqlglot import exp

_t = pa.types
_BOOL = pa.bool_()


class Surroundings(Protocol):
    """What some parts ask for beside the parts inside of them."""

    def typed(self, tree: exp.Expr) -> Typed: ...
    def column(self, tree: exp.Expr) -> Typed: ...
    def parameter(self, tree: exp.Expr) -> Typed: ...
    def rows_of(self, tree: exp.Expr) -> pa.ChunkedArray: ...


# ---- leaves


def _literal(translate: Translate, tree: exp.Expr) -> Typed:
    if tree.args.get("is_string"):
        return constant(tree, pa.scalar(str(tree.this)), loose=True)
    return number(tree, str(tree.this))


def _boolean(translate: Translate, tree: exp.Expr) -> Typed:
    return constant(tree, pa.scalar(bool(tree.this)))


def _null(translate: Translate, tree: exp.Expr) -> Typed:
    return null_of(tree, pa.null())


def _column(around: Surroundings, tree: exp.Expr) -> Typed:
    return around.column(tree)


def _placeholder(around: Surroundings, tree: exp.Expr) -> Typed:
    return around.parameter(tree)


def _interval(translate: Translate, tree: exp.Expr) -> Typed:
    part, unit = translate(tree.this), tree.args.get("unit")
    if part.constant is None:
        raise refused(tree, "how long it is, is written down, or given as a $parameter")
    text = str(part.constant.as_py())
    if unit is not None:
        if re.fullmatch(r"[+-]?\d+", text.strip()):
            return interval_of(tree, int(text), unit.name)
        raise refused(tree, "an interval is a whole number of a unit")
    pieces = re.findall(r"([+-]?\d+)\s*([A-Za-z]+)\s*", text)
    if not pieces or "".join(f"{n}{u}" for n, u in pieces) != re.sub(r"\s", "", text):
        raise refused(tree, "an interval is a whole number of a unit, as INTERVAL 3 DAY")
    found = interval_of(tree, int(pieces[0][0]), pieces[0][1])
    for amount, name in pieces[1:]:
        found = combined(tree, "add", found, interval_of(tree, int(amount), name))
    return found


def _scalar_query(around: Surroundings, tree: exp.Expr) -> Typed:
    found = around.rows_of(tree)
    if len(found) > 1:
        raise InvalidArgument(f"SQL: {quoted(tree)} gives {len(found)} rows; one is asked for")
    if not len(found) or not found[0].is_valid:
        return null_of(tree, pa.null())
    return constant(tree, plain_scalar(found[0]), loose=True)


# ---- truth


def _truth(translate: Translate, tree: exp.Expr) -> Typed:
    part = translate(tree)
    if part.is_null:
        return null_of(tree, _BOOL)
    must_be(part, _t.is_boolean(part.type), "a condition")
    return part


def _connected(join: Callable[[Any, Any], Any]) -> Meaning:
    def meaning(translate: Translate, tree: exp.Expr) -> Typed:
        parts = [_truth(translate, part) for part in tree.flatten()]
        return folded(Typed(tree, _BOOL, balanced(join, [part.expression for part in parts])), *parts)

    return meaning


def _not(translate: Translate, tree: exp.Expr) -> Typed:
    part = _truth(translate, tree.this)
    return folded(Typed(tree, _BOOL, ~part.expression), part)


def _is(translate: Translate, tree: exp.Expr) -> Typed:
    kind, part = type(tree.expression).__name__, translate(tree.this)
    if kind == "Null":
        if part.is_constant or part.is_null:
            return constant(tree, pa.scalar(part.is_null))
        return Typed(tree, _BOOL, part.expression.is_null())
    if kind != "Boolean":
        raise refused(tree, "there are IS NULL, IS TRUE, IS FALSE and IS DISTINCT FROM")
    part = _truth(translate, tree.this)
    wanted = part.expression if tree.expression.this else ~part.expression
    return folded(Typed(tree, _BOOL, is_true(wanted)), part)


def _comparison(op: str) -> Meaning:
    def meaning(translate: Translate, tree: exp.Expr) -> Typed:
        if type(tree.expression).__name__ == "Any":
            raise refused(tree, "write IN")
        return compared(tree, op, translate(tree.this), translate(tree.expression))

    return meaning


def _same(negate: bool) -> Meaning:
    """``IS [NOT] DISTINCT FROM``: NULL is a value like others."""

    def meaning(translate: Translate, tree: exp.Expr) -> Typed:
        one, two = translate(tree.this), translate(tree.expression)
        nulls = [literal(True, _BOOL) if part.is_null else part.expression.is_null() for part in (one, two)]
        both = nulls[0] & nulls[1]
        same = is_true(compared(tree, "eq", one, two).expression) | both
        return folded(Typed(tree, _BOOL, ~same if negate else same), one, two)

    return meaning


def _between(translate: Translate, tree: exp.Expr) -> Typed:
    part = translate(tree.this)
    low = compared(tree, "ge", part, translate(tree.args["low"]))
    high = compared(tree, "le", part, translate(tree.args["high"]))
    return folded(Typed(tree, _BOOL, low.expression & high.expression), low, high)


def _in(around: Surroundings, tree: exp.Expr) -> Typed:
    part = around.typed(tree.this)
    query, field = tree.args.get("query"), tree.args.get("field")
    if query is not None:
        found = around.rows_of(query)
        values = [_element(query, one) for one in found.unique()]
    else:
        given = [around.typed(one) for one in ([field] if field is not None else tree.expressions)]
        values = [inner for one in given for inner in _spread(one)]
    return listed(tree, part, values)


def _spread(part: Typed) -> list[Typed]:
    """Of a list that was given as a parameter, its values."""
    if part.constant is None or not _t.is_list(part.type):
        return [part]
    values = part.constant.values
    return [_element(part.tree, one) for one in values]


def _element(tree: exp.Expr, scalar: pa.Scalar) -> Typed:
    if not scalar.is_valid:
        return null_of(tree, pa.null())
    return constant(tree, plain_scalar(scalar), loose=True)


def _like(ignore_case: bool) -> Meaning:
    def meaning(translate: Translate, tree: exp.Expr) -> Typed:
        if type(tree.expression).__name__ in ("Any", "All"):
            raise refused(tree, "write OR between several LIKE")
        text, pattern = translate(tree.this), translate(tree.expression)
        return like(tree, text, pattern, ignore_case=ignore_case)

    return meaning


def _escaped(translate: Translate, tree: exp.Expr) -> Typed:
    inner = tree.this
    kind = type(inner).__name__
    if kind not in ("Like", "ILike"):
        raise refused(tree, "ESCAPE stands after LIKE and ILIKE")
    escape = known_text(translate, tree.expression, tree)
    if len(escape) != 1:
        raise refused(tree, "ESCAPE takes one character")
    text, pattern = translate(inner.this), translate(inner.expression)
    found = like(tree, text, pattern, escape, ignore_case=kind == "ILike")
    return Typed(tree, _BOOL, ~found.expression) if inner.args.get("negate") else found


# ---- numbers


def _binary(how: Callable[..., Typed], *before: str) -> Meaning:
    def meaning(translate: Translate, tree: exp.Expr) -> Typed:
        return how(tree, *before, translate(tree.this), translate(tree.expression))

    return meaning


def _neg(translate: Translate, tree: exp.Expr) -> Typed:
    return negated(tree, translate(tree.this))


def _cast(translate: Translate, tree: exp.Expr) -> Typed:
    kind = tree.args["to"]
    return cast_to(tree, translate(tree.this), type_of(kind), kind.this.name)


def _paren(translate: Translate, tree: exp.Expr) -> Typed:
    return translate(tree.this)


_TWO = ("this", "expression")
MEANINGS: dict[str, tuple[Any, tuple[str, ...]]] = {
    **FUNCTIONS,
    "Literal": (_literal, ("this", "is_string")),
    "Boolean": (_boolean, ("this",)),
    "Null": (_null, ()),
    "Column": (_column, ("this", "table", "db", "catalog")),
    "Dot": (_column, _TWO),
    "Placeholder": (_placeholder, ("this",)),
    "Interval": (_interval, ("this", "unit")),
    "Subquery": (_scalar_query, ("this",)),
    "Paren": (_paren, ("this",)),
    "And": (_connected(operator.and_), _TWO),
    "Or": (_connected(operator.or_), _TWO),
    "Not": (_not, ("this",)),
    "Is": (_is, _TWO),
    "EQ": (_comparison("eq"), _TWO),
    "NEQ": (_comparison("ne"), _TWO),
    "LT": (_comparison("lt"), _TWO),
    "LTE": (_comparison("le"), _TWO),
    "GT": (_comparison("gt"), _TWO),
    "GTE": (_comparison("ge"), _TWO),
    "NullSafeEQ": (_same(negate=False), _TWO),
    "NullSafeNEQ": (_same(negate=True), _TWO),
    "Between": (_between, ("this", "low", "high")),
    "In": (_in, ("this", "expressions", "query", "field")),
    "Like": (_like(ignore_case=False), _TWO),
    "ILike": (_like(ignore_case=True), _TWO),
    "Escape": (_escaped, _TWO),
    "Add": (_binary(combined, "add"), _TWO),
    "Sub": (_binary(combined, "subtract"), _TWO),
    "Mul": (_binary(combined, "multiply"), _TWO),
    "Div": (_binary(divided), (*_TWO, "typed", "safe")),
    "IntDiv": (_binary(whole_quotient), _TWO),
    "Mod": (_binary(remainder), _TWO),
    "Neg": (_neg, ("this",)),
    "Cast": (_cast, ("this", "to")),
}
ASKING = {_column, _placeholder, _scalar_query, _in}
"""Those that are given ``Surroundings``."""
INSTEAD = {
    "TryCast": "write CAST",
    "Exists": "write IN with a query in table.sql()",
    "CurrentDate": "give the day as a $parameter",
    "CurrentTimestamp": "give the time as a $parameter",
    "RegexpLike": "there are LIKE, STARTS_WITH, ENDS_WITH and CONTAINS",
    "SimilarTo": "there are LIKE, STARTS_WITH, ENDS_WITH and CONTAINS",
    "Tuple": "compare columns one by one",
    "Bracket": "elements of lists are not reached",
    "Window": "a SELECT in table.sql() computes over many rows",
    **dict.fromkeys(("Sum", "Count", "Min", "Max", "Avg"), "a SELECT in table.sql() computes over many rows"),
}



__all__ = ["ASKING", "INSTEAD", "MEANINGS", "Surroundings"]
