"""A predicate that Arrow does not evaluate for the types of its columns and constants is refused at once."""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.types import values
from kudu_core.common.where.predicates import Filter, compile_where
from kudu_core.errors import InvalidArgument
from tests.support.cases.comparisons import COLUMNS, PREDICATES
from tests.support.cases.constants import of_stored_types

F = pc.field
SCHEMA = declare([Column("k", "int64"), *(Column(name, cells.type) for name, cells in COLUMNS.items())], "k")
ROWS = pa.table({"k": pa.array(range(4), pa.int64()), **COLUMNS})
NULLS = ROWS.slice(3)
GUARDS = {
    "condition": F("k") == -1,
    "term": F("k") > 2.5,
    "behind another failure": pc.divide(pc.scalar(1), F("k")) > 5,
}


def is_refused(where: pc.Expression) -> bool:
    try:
        compile_where(where, SCHEMA)
    except InvalidArgument:
        return True
    return False


def is_refused_by_arrow(where: pc.Expression) -> bool:
    try:
        NULLS.filter(of_stored_types(where, SCHEMA))
    except pa.ArrowException:
        return True
    return False


def test_what_arrow_refuses_for_the_types_is_refused_whatever_stands_before_it(seed: int, long: bool) -> None:
    rng = random.Random(seed)
    some = PREDICATES if long else rng.sample(PREDICATES, 500)
    refused = 0
    for where in some:
        expected = is_refused_by_arrow(where)
        assert is_refused(where) == expected, where
        guard = rng.choice(list(GUARDS.values()))
        assert is_refused(guard & where) == expected, (guard, where)
        assert is_refused(where & guard) == expected, (guard, where)
        refused += expected
    assert 0 < refused < len(some)


@pytest.mark.parametrize(
    "where",
    [
        F("float64") == 2**60,
        F("float32") < 2**25,
        F("string").isin([]),
        F("decimal_38_0") == pa.scalar("1.00").cast(pa.decimal128(3, 2)),
        F("decimal_5_2") < pa.scalar("100").cast(pa.decimal128(38, 0)),
        F("time") < pa.scalar(0, pa.timestamp("us", "UTC")),
        F("zoned") < pa.scalar(0, pa.timestamp("us")),
        F("string") > 5,
        F("string") + 1 > 2,
    ],
    ids=str,
)
@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_hides_no_mistake_of_types(where: pc.Expression, guard: str) -> None:
    for whole in (where, GUARDS[guard] & where, where & GUARDS[guard]):
        with pytest.raises(InvalidArgument, match="where"):
            compile_where(whole, SCHEMA)


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (F("float64") == pa.scalar(2.5, pa.float16()), 2.5),
        (F("string") == pa.scalar("a", pa.string_view()), "a"),
        (F("string").isin(pa.array(["a"], pa.string_view())), "a"),
        (F("string").isin(pa.array(["a"]).dictionary_encode()), "a"),
        (F("binary") == pa.scalar(b"a", pa.binary_view()), b"a"),
        (F("binary").isin(pa.array([b"a"], pa.binary(1))), b"a"),
        (F("decimal_5_2") == pa.scalar("1.50").cast(pa.decimal32(5, 2)), Decimal("1.50")),
    ],
    ids=str,
)
def test_constants_of_types_for_which_arrow_has_few_functions(where: pc.Expression, wanted: object) -> None:
    found = compile_where(where, SCHEMA)
    assert isinstance(found, Filter)
    assert found.rest is None
    assert [value for term in found.terms for value in term.physical()] == [
        value for term in found.terms for value in [values.physical(term.type, wanted)]
    ]


def test_what_is_refused_for_its_types_says_what_compares() -> None:
    with pytest.raises(InvalidArgument, match=r"not in range.*constant of the column's own type"):
        compile_where(F("float64") > 1_600_000_000_000_000_000, SCHEMA)
    compile_where(F("float64") > pa.scalar(1_600_000_000_000_000_000.0), SCHEMA)


def test_values_guarded_from_a_failure_are_let_pass() -> None:
    """A row of NULLs would be divided by zero, but the guard does not let it pass."""
    divided = pc.divide(pc.scalar(10), pc.coalesce(F("int64"), pc.scalar(0))) > 1
    found = compile_where((F("int64") > 0) & divided, SCHEMA)
    assert isinstance(found, Filter)
    assert found.mask(ROWS.to_batches()[0]).tolist() == [False] * 4


@pytest.mark.parametrize("column", ["float32", "float64"])
def test_an_integer_in_a_list_of_filters_is_a_float_if_it_is_exact_as_one(column: str) -> None:
    found = compile_where([(column, "=", 2**60)], SCHEMA)
    assert isinstance(found, Filter)
    assert found.rest is None
    assert found.mask(ROWS.to_batches()[0]).tolist() == [False, False, True, False]
    for inexact in (2**60 + 1, 10**400):
        with pytest.raises(InvalidArgument):
            compile_where([(column, "=", inexact)], SCHEMA)


@pytest.mark.parametrize("value", [np.datetime64("2024-01-01"), np.timedelta64(1, "D")], ids=repr)
@pytest.mark.parametrize("column", ["int64", "string", "float64"])
def test_values_that_arrow_has_no_type_for_are_refused_as_ours(column: str, value: object) -> None:
    for given in ((column, "==", value), (column, "in", [value])):
        with pytest.raises(InvalidArgument):
            compile_where([given], SCHEMA)
