"""Terms and conditions of random predicates, held against pyarrow's evaluation of each row.

Columns of every type, compared with constants of any type: of another width, sign, unit or zone, inexact,
out of range, NaN, -0.0, NULL.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.types.types import ColumnType
from kudu_core.common.types.values import unpack
from kudu_core.common.where.analysis import Term
from kudu_core.common.where.predicates import Filter, compile_where
from kudu_core.common.where.sets import ValueSet, place_of
from kudu_core.errors import InvalidArgument
from tests.support import cells
from tests.support.cases.constants import NAMES, constant, of_stored_types

SCHEMA = declare([Column("k", "int64"), *(Column(name, cells.arrow_type(name)) for name in NAMES)], "k")
ROWS = 40


def batch_of(rng: random.Random) -> pa.RecordBatch:
    columns = [pa.array(range(ROWS), pa.int64())]
    for name in NAMES:
        type_ = cells.arrow_type(name)
        pool = [*cells.ugly(type_), None]
        columns.append(cells.to_arrow(rng.choices(pool, k=ROWS), type_))
    return pa.record_batch(columns, names=["k", *NAMES])


def leaf(rng: random.Random, name: str) -> pc.Expression:
    field, what = pc.field(name), rng.randrange(12)
    if what == 0:
        return field.is_null(nan_is_null=rng.random() < 0.5)
    if what == 1:
        return field.is_valid()
    if what == 2:
        listed = [constant(rng, name)]
        listed += [one for one in (constant(rng, name) for _ in range(4)) if one.type == listed[0].type]
        options = pc.SetLookupOptions(pa.array(listed, listed[0].type), skip_nulls=rng.random() < 0.4)
        return pc.Expression._call("is_in", [field], options)
    if what == 3 and name == "bool":
        return field
    if what == 3 and name.startswith("float"):
        return pc.is_nan(field)
    if what in (4, 5) and name in ("string", "binary"):
        text = "".join(rng.choices("aé\0b%_\\", k=rng.randrange(3)))
        ignore_case = rng.random() < 0.1
        if what == 4:
            return pc.starts_with(field, text, ignore_case=ignore_case)
        return pc.match_like(field, text + rng.choice(("", "%")), ignore_case=ignore_case)
    value = pc.scalar(constant(rng, name))
    compare = rng.choice(("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"))
    found: pc.Expression = getattr(field, compare)(value) if what % 2 else getattr(value, compare)(field)
    return found


def predicate(rng: random.Random, depth: int = 3) -> pc.Expression:
    draw, name = rng.random(), rng.choice(NAMES)
    if not depth or draw < 0.35:
        return leaf(rng, name)
    if draw < 0.5:
        return predicate(rng, depth - 1) & predicate(rng, depth - 1)
    if draw < 0.6:
        return predicate(rng, depth - 1) | predicate(rng, depth - 1)
    if draw < 0.7:
        return ~predicate(rng, depth - 1)
    if draw < 0.75:
        return pc.if_else(pc.field(name).is_valid(), leaf(rng, name), pa.scalar(None, pa.bool_()))
    one, other = leaf(rng, name), leaf(rng, name)
    return one & other if draw < 0.9 else one | other


def evaluated(batch: pa.RecordBatch, where: pc.Expression) -> list[bool | None]:
    """What pyarrow says of each row; None: it fails."""
    where, found = of_stored_types(where), list[bool | None]()
    for row in range(batch.num_rows):
        try:
            found.append(pa.Table.from_batches([batch.slice(row, 1)]).filter(where).num_rows == 1)
        except pa.ArrowException:
            found.append(None)
    return found


def belongs(passing: ValueSet, type_: ColumnType, cell: cells.Cell) -> bool:
    if cell is None:
        return passing.null
    if isinstance(cell, str):
        cell = cell.encode()
    if pa.types.is_floating(type_.arrow):
        cell = unpack(type_, cell.to_bytes(type_.width, "little", signed=True))
    place = place_of(type_, cell)
    return passing.meets(place, place)


def satisfies(term: Term, cell: cells.Cell) -> bool:
    if term.passing is None:
        return (cell is None) == (term.op == "is_null")
    return belongs(term.passing, term.type, cell)


def check(found: Filter, batch: pa.RecordBatch, truth: list[bool | None]) -> None:
    known: dict[int, list[cells.Cell]] = {
        column.id: cells.from_arrow(batch.column(column.name)) for column in SCHEMA.columns
    }
    rest = [True] * ROWS if found.rest is None else evaluated(batch, found.rest.expression)
    for row, passes in enumerate(truth):
        if passes:
            assert all(satisfies(term, known[term.column_id][row]) for term in found.terms), row
        held = all(belongs(c.passing, c.type, known[c.column_id][row]) for c in found.conditions)
        if passes is not None and rest[row] is not None:
            assert passes == (held and rest[row]), row
        if found.rest is None:
            assert passes is not None, "a condition fails on no cell"


def test_terms_and_conditions_agree_with_pyarrow(seed: int, long: bool) -> None:
    terms = conditions = whole = 0
    for case in range(3000 if long else 150):
        rng = random.Random(seed * 10_000 + case)
        batch, where = batch_of(rng), predicate(rng)
        truth = evaluated(batch, where)
        try:
            found = compile_where(where, SCHEMA)
        except InvalidArgument:
            assert None in truth, f"seed {seed}, case {case}: {where} is refused without a reason"
            continue
        assert found is not None
        try:
            check(found, batch, truth)
        except AssertionError as error:
            error.add_note(f"seed {seed}, case {case}: {where}")
            raise
        terms += len(found.terms)
        conditions += len(found.conditions)
        whole += found.rest is None
    assert terms and conditions and whole


@pytest.mark.parametrize("name", ["string", "binary"])
def test_a_pattern_that_is_all_prefix_is_a_condition(name: str) -> None:
    for pattern, exact in (("a%", True), ("%", True), ("a", False), ("a%b", False), ("a_%", False)):
        found: Any = compile_where(pc.match_like(pc.field(name), pattern), SCHEMA)
        assert (found.rest is None) == exact, pattern
        assert [term.op for term in found.terms] == (["prefix"] if pattern.strip("%") else []), pattern
