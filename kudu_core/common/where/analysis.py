"""What a predicate says of single columns: each conjunct is read once, and told in two ways.

A conjunct is a tree of tests, each of one column against constants.  *Terms* are true of every row that
passes; the reverse need not hold, so they rule rows, pages, rowsets and tablets out and never in.  A
*condition* says exactly which values of a column pass.  It is made only where every test has the meaning
that pyarrow gives it, NULL and NaN included, and fails on no cell; anything unusual is left to pyarrow, which
evaluates the rest of the predicate (``predicates.Filter``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, floor, isfinite
from typing import Any

import pyarrow as pa

from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types import values
from kudu_core.common.types.types import TYPE_FLOAT, ColumnType
from kudu_core.common.where.constants import EXACT_IN_DOUBLE, Constant
from kudu_core.common.where.expressions import Literal, Node
from kudu_core.common.where.listed import Listed
from kudu_core.common.where.reading import ColumnTest, Combined, Tested, read
from kudu_core.common.where.sets import NOTHING, NULL, ValueSet, compared, line, listed, numbers, prefixed
from kudu_core.errors import InvalidArgument

_t = pa.types
_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}


@dataclass(frozen=True, slots=True)
class Term:
    """``column op value``.

    ``op`` is "eq", "lt", "le", "gt", "ge", "in" (``value`` a tuple or ``Listed``, ascending, may be empty),
    "prefix" (of a string or binary), "is_null" or "not_null" (``value`` None).  Values are exact
    Python values of the column's type, never NaN.
    """

    column_id: int
    op: str
    value: Any
    type: ColumnType

    def physical(self) -> list[values.Physical]:
        """The constants as physical values, ascending."""
        if isinstance(self.value, Listed):
            return self.value.physical
        if self.op == "prefix":  # of a type whose values have so many bytes it is no value
            return [self.value.encode() if isinstance(self.value, str) else self.value]
        given = self.value if self.op == "in" else (self.value,)
        return sorted({values.physical(self.type, value) for value in given})

    @property
    def passing(self) -> ValueSet | None:
        """The values that satisfy it; None for one that asks for NULL alone."""
        if self.op in ("is_null", "not_null"):
            return None
        if isinstance(self.value, Listed):
            return self.value.passing
        constants = self.physical()
        if self.op == "in":
            return listed(self.type, constants)
        if self.op == "prefix":
            assert isinstance(constants[0], bytes)
            return prefixed(constants[0])
        return compared(self.type, self.op, constants[0])

    def __str__(self) -> str:
        return f"#{self.column_id} {self.op}" + ("" if self.value is None else f" {_shown(self.value)}")


def _shown(value: Any) -> str:
    """A term's value for people; times that Python does not have as their numbers."""
    if isinstance(value, pa.Scalar):
        return f"{value.value} as {value.type}"
    if isinstance(value, tuple | Listed) and any(isinstance(one, pa.Scalar) for one in value):
        return f"({', '.join(map(_shown, value))})"
    return repr(value)


def passing_all(terms: Iterable[Term]) -> ValueSet | None:
    """The values that satisfy all of these terms on one column; None where none of them compares."""
    found: ValueSet | None = None
    for term in terms:
        passing = term.passing
        if passing is not None:
            found = passing if found is None else found & passing
    return found


@dataclass(frozen=True, slots=True)
class Condition:
    """Rows pass whose cell of the column is in the set."""

    column_id: int
    type: ColumnType
    passing: ValueSet


@dataclass(frozen=True, slots=True)
class Conjunct:
    """What is known of one part of a conjunction."""

    terms: tuple[Term, ...]
    """Every row satisfies them for which the part is true."""
    condition: Condition | None
    """All that it says, if it is that."""


def analyse(node: Node, schema: Schema) -> Conjunct:
    """What an expression says of single columns of the schema."""
    tested = read(node, schema)
    terms, truth = _terms(tested), _truth(tested)
    known = None if truth is None else Condition(truth.column.id, truth.column.type, truth.true)
    return Conjunct(terms, known)


def merged(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Conditions all of which hold, as one for each column."""
    found: dict[int, Condition] = {}
    for condition in conditions:
        known = found.get(condition.column_id)
        passing = condition.passing if known is None else condition.passing & known.passing
        found[condition.column_id] = Condition(condition.column_id, condition.type, passing)
    return tuple(found.values())


# ---- terms


def _terms(tested: Tested) -> tuple[Term, ...]:
    if isinstance(tested, ColumnTest):
        return _only(_term(tested))
    if not isinstance(tested, Combined):
        return ()
    function, arguments = tested.function, tested.arguments
    if function in ("and_kleene", "and"):
        return tuple(chain.from_iterable(map(_terms, arguments)))
    if function == "if_else":
        known = len(arguments) == 3 and _is_never_true(arguments[2])
        return _terms(arguments[0]) + _terms(arguments[1]) if known else ()
    if function == "invert":
        return _only(_negation(arguments[0]))
    return _only(_union(list(map(_terms, arguments))))


def _only(term: Term | None) -> tuple[Term, ...]:
    return () if term is None else (term,)


def _is_never_true(tested: Tested) -> bool:
    return isinstance(tested, Literal) and (not tested.scalar.is_valid or tested.scalar.as_py() is False)


def _union(sides: Sequence[tuple[Term, ...]]) -> Term | None:
    """``a = 1 or a in (2, 3)`` is a list of values."""
    found: list[Any] = []
    for side in sides:
        if len(side) != 1 or side[0].op not in ("eq", "in") or side[0].column_id != sides[0][0].column_id:
            return None
        found.extend(side[0].value if side[0].op == "in" else (side[0].value,))
    term = sides[0][0]
    return Term(term.column_id, "in", _ascending(found, term.type), term.type)


def _negation(tested: Tested) -> Term | None:
    if not isinstance(tested, ColumnTest):
        return None
    column = tested.column
    if tested.op == "is_true":
        return Term(column.id, "eq", False, column.type)
    term = _term(tested)
    if term is None:
        return None
    if term.op in ("is_null", "not_null"):
        return Term(column.id, "not_null" if term.op == "is_null" else "is_null", None, column.type)
    # NaN < 1 is false, so its negation is true of NaN, which no bound encloses.
    if tested.op in _NEGATED and column.type.kind != TYPE_FLOAT:
        return _comparison(column, _NEGATED[tested.op], tested.constants[0])
    return None


def _term(test: ColumnTest) -> Term | None:
    column = test.column
    if test.op in ("is_null", "not_null"):
        return None if test.with_nan else Term(column.id, test.op, None, column.type)
    if test.op == "is_true":
        return Term(column.id, "eq", True, column.type)
    if test.op == "in":
        exact = [constant.exact for constant in test.constants]
        if None in exact or (test.with_null and column.nullable):
            return None  # a list that matches NULL is no list of values
        if test.many is not None:
            return Term(column.id, "in", test.many, column.type)
        listed_values = _ascending((one[0] for one in exact if one is not None), column.type)
        return Term(column.id, "in", listed_values, column.type)
    if test.op == "prefix":
        return _prefix(column, test.text)
    return None if test.op in ("ne", "is_nan") else _comparison(column, test.op, test.constants[0])


def _comparison(column: StoredColumn, op: str, constant: Constant) -> Term | None:
    if constant.exact is not None:
        return Term(column.id, op, constant.exact[0], column.type)
    # ``a > 2.5`` on integers is ``a >= 3``.
    if not _t.is_integer(column.type.arrow) or not _t.is_float64(constant.literal.scalar.type):
        return None
    number = constant.literal.scalar.as_py()
    if not isfinite(number) or abs(number) >= EXACT_IN_DOUBLE or op == "eq":
        return None
    whole, op = (floor(number), "le") if op in ("lt", "le") else (ceil(number), "ge")
    try:
        return Term(column.id, op, values.exact(column.type, whole), column.type)
    except InvalidArgument:
        return None


def _prefix(column: StoredColumn, text: bytes) -> Term | None:
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        return None
    value = decoded if column.type.is_string else text
    return Term(column.id, "prefix", value, column.type) if text else None


def _ascending(found: Iterable[Any], type_: ColumnType) -> tuple[Any, ...]:
    """Values in order, each once; text in the order of its bytes.  Python takes the two hours that a change
    of clocks gives one name for one."""
    known = {values.physical(type_, one): one for one in found}
    return tuple(known[number] for number in sorted(known))


# ---- conditions


@dataclass(frozen=True, slots=True)
class _Truth:
    """Of which values of a column an expression is true, and of which it is false; else it is NULL."""

    column: StoredColumn
    true: ValueSet
    known_false: ValueSet | None
    """None: every other value but NULL, which is made when it is asked for."""

    @property
    def false(self) -> ValueSet:
        found = self.known_false
        return line(self.column.type).without(self.true) if found is None else found


def _truth(tested: Tested) -> _Truth | None:
    """What an expression over one column is true and false of; None: not known."""
    if isinstance(tested, ColumnTest):
        return _truth_of_test(tested)
    if not isinstance(tested, Combined):
        return None
    if tested.function == "invert":
        inner = _truth(tested.arguments[0])
        return None if inner is None else _Truth(inner.column, inner.false, inner.true)
    if tested.function == "if_else":
        return _where_valid(tested)
    if tested.function not in ("and_kleene", "or_kleene"):
        return None
    left, right = map(_truth, tested.arguments)
    if left is None or right is None or left.column.id != right.column.id:
        return None
    if tested.function == "and_kleene":
        return _Truth(left.column, left.true & right.true, left.false | right.false)
    return _Truth(left.column, left.true | right.true, left.false & right.false)


def _where_valid(combined: Combined) -> _Truth | None:
    """``if_else(is_valid(c), ..., null)``, as DuckDB writes ``c IN (...)``."""
    test, inner, other = combined.arguments
    if not isinstance(other, Literal) or other.scalar.is_valid:
        return None
    if not isinstance(test, ColumnTest) or test.op != "not_null":
        return None
    truth = _truth(inner)
    if truth is None or test.column.id != truth.column.id:
        return None
    return _Truth(truth.column, truth.true & line(truth.column.type), truth.false & line(truth.column.type))


def _truth_of_test(test: ColumnTest) -> _Truth | None:
    column, type_ = test.column, test.column.type
    if test.op == "not_null":
        return _Truth(column, line(type_), NULL)
    if test.op == "is_null":
        valid = numbers(type_) if test.with_nan else line(type_)
        return _Truth(column, NULL | line(type_).without(valid), valid)
    if test.op == "is_nan":
        return _split(column, line(type_).without(numbers(type_)))
    if test.op == "is_true":
        return _split(column, compared(type_, "eq", True))
    if test.op == "prefix":
        return _split(column, prefixed(test.text)) if test.is_all else None
    if not test.is_steady or not all(constant.is_steady for constant in test.constants):
        return None
    if test.op == "in":
        if type_.kind == TYPE_FLOAT:
            return None  # NaN and the two zeros are found by rules of their own
        few = listed(type_, (one.physical for one in test.constants))
        true = (few if test.many is None else test.many.passing) | (NULL if test.with_null else NOTHING)
        return _Truth(column, true, (line(type_) | NULL).without(true))
    truth = _split(column, compared(type_, "eq" if test.op == "ne" else test.op, test.constants[0].physical))
    return _Truth(column, truth.false, truth.true) if test.op == "ne" else truth


def _split(column: StoredColumn, true: ValueSet) -> _Truth:
    """True of these values, false of all others, NULL of NULL."""
    return _Truth(column, true, None)
