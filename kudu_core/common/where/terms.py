"""Terms: the parts of a predicate simple enough to prune with.

A term compares one column with constants.  A row that passes the predicate satisfies every term;
the reverse need not hold, so terms rule rows, pages, rowsets and tablets out and never in.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import ceil, floor, isfinite, isnan
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types import values
from kudu_core.common.types.keycodec import prefix_successor
from kudu_core.common.types.types import TYPE_BINARY, TYPE_BOOL, TYPE_DECIMAL, TYPE_FLOAT, ColumnType
from kudu_core.common.where.expressions import Call, Literal, Node, Ref
from kudu_core.errors import InvalidArgument

_t = pa.types
# Integers of larger size are rounded when Arrow compares them as doubles.
_EXACT_IN_DOUBLE = 1 << 53


@dataclass(frozen=True, slots=True)
class Term:
    """``column op value``.

    ``op`` is "eq", "lt", "le", "gt", "ge", "in" (``value`` a tuple, ascending, may be empty),
    "prefix" (of a string or binary), "is_null" or "not_null" (``value`` None).  Values are exact
    Python values of the column's type, never NaN.
    """

    column_id: int
    op: str
    value: Any
    type: ColumnType
    _sought: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.op == "in":
            sought: Any = sorted({_comparable(value) for value in self.value})
        else:
            sought = None if self.value is None else _comparable(self.value)
        object.__setattr__(self, "_sought", sought)

    def may_match(self, minimum: Any, maximum: Any, null_count: int, nan_count: int, rows: int) -> bool:
        """Whether any of ``rows`` cells may satisfy the term.

        ``minimum`` and ``maximum`` enclose the cells that are neither null nor NaN; None = not
        known.  Strings may be given as bytes.
        """
        if self.op == "is_null":
            return null_count > 0
        if self.op == "not_null":
            return null_count < rows
        if null_count + nan_count >= rows:
            return False  # null and NaN satisfy no comparison
        low = None if minimum is None else _comparable(minimum)
        high = None if maximum is None else _comparable(maximum)
        return self._within(low, high)

    def _within(self, low: Any, high: Any) -> bool:
        value = self._sought
        if self.op == "in":
            first = 0 if low is None else bisect_left(value, low)
            return first < len(value) and (high is None or value[first] <= high)
        above_low = low is None or low <= value
        below_high = high is None or value <= high
        if self.op == "eq":
            return above_low and below_high
        if self.op == "ge":
            return below_high
        if self.op == "gt":
            return high is None or value < high
        if self.op == "le":
            return above_low
        if self.op == "lt":
            return low is None or low < value
        assert self.op == "prefix"
        end = prefix_successor(value)
        return below_high and (low is None or end is None or low < end)

    def physical(self) -> list[values.Physical]:
        """The constants as physical values, ascending."""
        given = self.value if self.op == "in" else (self.value,)
        return sorted({values.physical(self.type, value) for value in given})

    def __str__(self) -> str:
        return f"#{self.column_id} {self.op}" + ("" if self.value is None else f" {self.value!r}")


def _comparable(value: Any) -> Any:
    """Text as bytes: their orders agree, and a bound that was cut may be no text."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


# ------------------------------------------------------------------------- terms of an expression

FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}
_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
COMPARISONS = {"equal": "eq", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"}


def terms_of(node: Node, schema: Schema) -> tuple[Term, ...]:
    """Terms that every row satisfies for which the expression is true."""
    if isinstance(node, Ref):
        return _only(_bool_term(node, schema, True))
    if not isinstance(node, Call):
        return ()
    arguments = node.arguments
    if node.function in ("and_kleene", "and"):
        return tuple(chain.from_iterable(terms_of(a, schema) for a in arguments))
    if node.function == "if_else" and len(arguments) == 3 and _never_true(arguments[2]):
        return terms_of(arguments[0], schema) + terms_of(arguments[1], schema)
    if node.function in ("or_kleene", "or"):
        return _only(_union([terms_of(a, schema) for a in arguments]))
    if node.function == "invert":
        return _only(_negation(arguments[0], schema))
    return _only(_leaf(node, schema))


def _only(term: Term | None) -> tuple[Term, ...]:
    return () if term is None else (term,)


def _never_true(node: Node) -> bool:
    return isinstance(node, Literal) and (not node.scalar.is_valid or node.scalar.as_py() is False)


def _union(sides: Sequence[tuple[Term, ...]]) -> Term | None:
    """``a = 1 or a in (2, 3)`` is a list of values."""
    found: set[Any] = set()
    for side in sides:
        if len(side) != 1 or side[0].op not in ("eq", "in") or side[0].column_id != sides[0][0].column_id:
            return None
        found.update(side[0].value if side[0].op == "in" else (side[0].value,))
    term = sides[0][0]
    return Term(term.column_id, "in", _ascending(found), term.type)


def _negation(node: Node, schema: Schema) -> Term | None:
    if isinstance(node, Ref):
        return _bool_term(node, schema, False)
    term = _leaf(node, schema) if isinstance(node, Call) else None
    if term is None:
        return None
    if term.op in ("is_null", "not_null"):
        return Term(term.column_id, "not_null" if term.op == "is_null" else "is_null", None, term.type)
    # NaN < 1 is false, so its negation is true of NaN, which no bound encloses.
    if term.op in _NEGATED and term.type.kind != TYPE_FLOAT and isinstance(node, Call) and _is_plain(node):
        return _comparison(node, schema, negate=True)
    return None


def _is_plain(node: Call) -> bool:
    return node.function in COMPARISONS


def _bool_term(node: Ref, schema: Schema, value: bool) -> Term | None:
    column = schema.by_name.get(node.name)
    if column is None or column.type.kind != TYPE_BOOL:
        return None
    return Term(column.id, "eq", value, column.type)


def _leaf(node: Call, schema: Schema) -> Term | None:
    if node.function in COMPARISONS:
        return _comparison(node, schema)
    column = _column(node, schema)
    if column is None:
        return None
    options = {name: scalar.as_py() for name, scalar in (node.options or {}).items() if name != "value_set"}
    if node.function == "is_valid":
        return Term(column.id, "not_null", None, column.type)
    if node.function == "is_null":
        if options.get("nan_is_null") and column.type.kind == TYPE_FLOAT:
            return None
        return Term(column.id, "is_null", None, column.type)
    if node.function == "is_in" and node.options is not None:
        return _in_list(column, node.options)
    if node.function in ("starts_with", "match_like") and not options.get("ignore_case", True):
        return _prefix(node.function, column, options.get("pattern"))
    return None


def _column(node: Call, schema: Schema) -> StoredColumn | None:
    if len(node.arguments) != 1 or not isinstance(node.arguments[0], Ref):
        return None
    return schema.by_name.get(node.arguments[0].name)


def _comparison(node: Call, schema: Schema, *, negate: bool = False) -> Term | None:
    op = COMPARISONS[node.function]
    left, right = node.arguments
    if isinstance(left, Literal):
        left, right, op = right, left, FLIPPED[op]
    if not isinstance(left, Ref) or not isinstance(right, Literal) or not right.scalar.is_valid:
        return None
    column = schema.by_name.get(left.name)
    if column is None:
        return None
    if negate:
        op = _NEGATED[op]
    found = constant(column.type, right.scalar)
    if found is not None:
        return Term(column.id, op, found[0], column.type)
    return _tightened(column, op, right.scalar)


def _tightened(column: StoredColumn, op: str, literal: pa.Scalar) -> Term | None:
    """``a > 2.5`` on integers is ``a >= 3``."""
    if not _t.is_integer(column.type.arrow) or not _t.is_float64(literal.type):
        return None
    number = literal.as_py()
    if not isfinite(number) or abs(number) >= _EXACT_IN_DOUBLE or op == "eq":
        return None
    whole, op = (floor(number), "le") if op in ("lt", "le") else (ceil(number), "ge")
    try:
        return Term(column.id, op, values.exact(column.type, whole), column.type)
    except InvalidArgument:
        return None


def _in_list(column: StoredColumn, options: dict[str, pa.Scalar]) -> Term | None:
    value_set, matching = options.get("value_set"), options.get("null_matching_behavior")
    if value_set is None or matching is None or matching.as_py() not in (0, 1):
        return None
    listed: list[Any] = []
    for scalar in value_set.values:
        if not scalar.is_valid:
            if matching.as_py() == 0 and column.nullable:
                return None  # the list matches NULL, which no value stands for
            continue
        found = constant(column.type, scalar)
        if found is None:
            return None
        listed.append(found[0])
    return Term(column.id, "in", _ascending(listed), column.type)


def _prefix(function: str, column: StoredColumn, pattern: Any) -> Term | None:
    if column.type.kind != TYPE_BINARY or not isinstance(pattern, str | bytes):
        return None
    if isinstance(pattern, bytes):
        try:
            pattern = pattern.decode()
        except UnicodeDecodeError:
            return None
    if function == "match_like":
        wild = [at for at in (pattern.find(c) for c in "%_\\") if at >= 0]
        pattern = pattern[: min(wild, default=len(pattern))]
    if not pattern:
        return None
    return Term(column.id, "prefix", pattern if column.type.is_string else pattern.encode(), column.type)


def _ascending(listed: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(set(listed), key=_comparable))


# ------------------------------------------------------------------------------------- constants


def constant(type_: ColumnType, literal: pa.Scalar) -> tuple[Any] | None:
    """The literal as an exact value of the column's type, in a tuple.

    None when Arrow would not compare it with such a column value by value: the types differ in
    more than width, or the literal is not exact in the column's type.
    """
    if _t.is_dictionary(literal.type):
        return None
    try:
        if not _comparable_types(type_, literal):
            return None
        if type_.is_timestamp or type_.is_date:
            literal = pc.cast(literal, type_.arrow)
        value = literal.as_py()
        if type_.kind == TYPE_FLOAT:
            exact = values.exact(type_, value)
            return (exact,) if exact == value and not isnan(exact) else None
        if _t.is_floating(literal.type):
            if value != floor(value) or abs(value) >= _EXACT_IN_DOUBLE:
                return None
            value = int(value)
        return (values.exact(type_, value),)
    except (InvalidArgument, OverflowError, ValueError, pa.ArrowException):
        return None


def _comparable_types(type_: ColumnType, literal: pa.Scalar) -> bool:
    given = literal.type
    if type_.kind == TYPE_BOOL:
        return bool(_t.is_boolean(given))
    if type_.is_timestamp:
        return bool(_t.is_timestamp(given) and (given.tz is None) == (type_.arrow.tz is None))
    if type_.is_date:
        return bool(_t.is_date(given))
    if type_.is_string:
        return bool(_t.is_string(given) or _t.is_large_string(given) or given == pa.string_view())
    if type_.kind == TYPE_BINARY:
        return bool(_t.is_binary(given) or _t.is_large_binary(given) or given == pa.binary_view())
    if type_.kind == TYPE_DECIMAL:
        return bool(_t.is_decimal(given) or _t.is_integer(given))
    if type_.kind == TYPE_FLOAT:
        return bool(_t.is_floating(given) or _t.is_integer(given))
    return bool(_t.is_integer(given) or _t.is_float64(given))
