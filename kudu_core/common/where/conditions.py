"""Conditions: the parts of a predicate that are evaluated on what is stored.

A condition says exactly which values of one column pass.  A predicate is the conjunction of its conditions,
one a column, and of a rest that pyarrow evaluates (``predicates.Filter``).  Only what has the meaning
that pyarrow gives it becomes a condition, NULL and NaN included; anything unusual is left to the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types import values
from kudu_core.common.types.keycodec import prefix_successor
from kudu_core.common.types.types import TYPE_BINARY, TYPE_BOOL, TYPE_DECIMAL, TYPE_FLOAT, ColumnType
from kudu_core.common.types.values import Physical
from kudu_core.common.where.expressions import Call, Literal, Node, Ref
from kudu_core.common.where.terms import COMPARISONS, FLIPPED, constant
from kudu_core.common.where.valuesets import (
    NOTHING,
    NULL,
    ValueSet,
    compared,
    line,
    listed,
    numbers,
    prefixed,
)

_t = pa.types
_MATCHES_NULL, _SKIPS_NULL = 0, 1  # SetLookupOptions


@dataclass(frozen=True, slots=True)
class Condition:
    """Rows pass whose cell of the column is in the set."""

    column_id: int
    type: ColumnType
    passing: ValueSet


@dataclass(frozen=True, slots=True)
class _Truth:
    """Of which values of a column an expression is true, and of which it is false; else it is NULL."""

    column: StoredColumn
    true: ValueSet
    false: ValueSet


def conditions_of(nodes: Sequence[Node | None], schema: Schema) -> tuple[tuple[Condition, ...], list[int]]:
    """The conditions that conjuncts amount to, one a column, and which conjuncts they leave to pyarrow."""
    found: dict[int, Condition] = {}
    left: list[int] = []
    for place, node in enumerate(nodes):
        truth = None if node is None else _truth(node, schema)
        if truth is None:
            left.append(place)
            continue
        column, passing = truth.column, truth.true
        if column.id in found:
            passing = passing & found[column.id].passing
        found[column.id] = Condition(column.id, column.type, passing)
    return tuple(found.values()), left


def _truth(node: Node, schema: Schema) -> _Truth | None:
    """What an expression over one column is true and false of; None: not known."""
    if isinstance(node, Ref):
        column = schema.by_name.get(node.name)
        if column is None or column.type.kind != TYPE_BOOL:
            return None
        return _split(column, compared(column.type, "eq", True))
    if not isinstance(node, Call):
        return None
    if node.function == "invert":
        inner = _truth(node.arguments[0], schema)
        return None if inner is None else _Truth(inner.column, inner.false, inner.true)
    if node.function in ("and_kleene", "or_kleene"):
        left, right = (_truth(argument, schema) for argument in node.arguments)
        if left is None or right is None or left.column.id != right.column.id:
            return None
        if node.function == "and_kleene":
            return _Truth(left.column, left.true & right.true, left.false | right.false)
        return _Truth(left.column, left.true | right.true, left.false & right.false)
    if node.function in COMPARISONS or node.function == "not_equal":
        return _comparison(node, schema)
    if node.function == "if_else":
        return _where_valid(node, schema)
    return _of_one(node, schema)


def _where_valid(node: Call, schema: Schema) -> _Truth | None:
    """``if_else(is_valid(c), ..., null)``, as DuckDB writes ``c IN (...)``."""
    test, inner, other = node.arguments
    if not isinstance(other, Literal) or other.scalar.is_valid:
        return None
    if not isinstance(test, Call) or test.function != "is_valid":
        return None
    valid, truth = _truth(test, schema), _truth(inner, schema)
    if valid is None or truth is None or valid.column.id != truth.column.id:
        return None
    return _Truth(truth.column, truth.true & valid.true, truth.false & valid.true)


def _split(column: StoredColumn, true: ValueSet) -> _Truth:
    """True of these values, false of all others, NULL of NULL."""
    return _Truth(column, true, line(column.type).without(true))


def _comparison(node: Call, schema: Schema) -> _Truth | None:
    left, right = node.arguments
    op = COMPARISONS.get(node.function, "eq")
    if isinstance(left, Literal):
        left, right, op = right, left, FLIPPED[op]
    if not isinstance(left, Ref) or not isinstance(right, Literal):
        return None
    column = schema.by_name.get(left.name)
    value = None if column is None else _constant(column.type, right.scalar)
    if column is None or value is None:
        return None
    truth = _split(column, compared(column.type, op, value))
    if node.function == "not_equal":
        return _Truth(column, truth.false, truth.true)
    return truth


def _of_one(node: Call, schema: Schema) -> _Truth | None:
    if len(node.arguments) != 1 or not isinstance(node.arguments[0], Ref):
        return None
    column = schema.by_name.get(node.arguments[0].name)
    if column is None:
        return None
    options = node.options or {}
    every = line(column.type)
    if node.function == "is_valid":
        return _Truth(column, every, NULL)
    if node.function == "is_null":
        nan_is_null = options.get("nan_is_null")
        valid = numbers(column.type) if nan_is_null is not None and nan_is_null.as_py() else every
        return _Truth(column, NULL | every.without(valid), valid)
    if node.function == "is_nan" and column.type.kind == TYPE_FLOAT:
        return _split(column, every.without(numbers(column.type)))
    if node.function == "is_in":
        return _in_list(column, options)
    if node.function in ("starts_with", "match_like") and column.type.kind == TYPE_BINARY:
        true = _pattern(node.function, options)
        return None if true is None else _split(column, true)
    return None


def _in_list(column: StoredColumn, options: dict[str, pa.Scalar]) -> _Truth | None:
    value_set, matching = options.get("value_set"), options.get("null_matching_behavior")
    if value_set is None or matching is None or matching.as_py() not in (_MATCHES_NULL, _SKIPS_NULL):
        return None
    if column.type.kind == TYPE_FLOAT:
        return None  # NaN and the two zeros are found by rules of their own
    found: list[Physical] = []
    null = NOTHING
    for scalar in value_set.values:
        if not scalar.is_valid:
            null = NULL if matching.as_py() == _MATCHES_NULL else null
            continue
        value = _constant(column.type, scalar)
        if value is None:
            return None
        found.append(value)
    true = listed(column.type, found) | null
    return _Truth(column, true, (line(column.type) | NULL).without(true))


def _pattern(function: str, options: dict[str, pa.Scalar]) -> ValueSet | None:
    """Strings with a prefix; equal to one, where a pattern has no wild cards."""
    ignore_case, found = options.get("ignore_case"), options.get("pattern")
    if ignore_case is None or ignore_case.as_py() or found is None:
        return None
    pattern = found.as_py()
    raw = pattern.encode() if isinstance(pattern, str) else bytes(pattern)
    if function == "match_like":
        if not raw.endswith(b"%") or any(wild in raw[:-1] for wild in b"%_\\"):
            return None
        raw = raw[:-1]
    return prefixed(raw, prefix_successor(raw) if raw else None)


def _constant(type_: ColumnType, literal: pa.Scalar) -> Physical | None:
    """The literal, where pyarrow compares it with every cell of such a column by value, without an error.

    ``constant`` knows whether the value is exact in the type.  Beyond that, where pyarrow casts the column,
    the cast must not fail: a uint64 to int64, a time to a finer unit, a large integer to a double.
    """
    if not literal.is_valid:
        return None
    given = literal.type
    if type_.is_timestamp or type_.is_date:
        if type_.is_date and given != type_.arrow:
            return None
        if type_.is_timestamp and (not _t.is_timestamp(given) or given.unit != type_.arrow.unit):
            return None
        if constant(type_, literal) is None:
            return None
        return int(literal.value)
    if _t.is_integer(type_.arrow):
        if not _t.is_integer(given):
            return None
        if type_.width == 8 and _t.is_signed_integer(given) != _t.is_signed_integer(type_.arrow):
            return None
    if type_.kind == TYPE_DECIMAL and not _t.is_decimal128(given):
        return None
    found = constant(type_, literal)
    return None if found is None else values.physical(type_, found[0])
