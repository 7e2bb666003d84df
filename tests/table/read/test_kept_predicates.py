"""A predicate that is asked for again is not read anew and says what it said: by counts, by answers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core._ext.scan.cell_set import CellSet
from kudu_core.cfile.readers import scan_reader
from kudu_core.common.schema.declare import declare
from kudu_core.common.schema.schema import Schema
from kudu_core.common.where.predicates import Filter, compile_where
from kudu_core.rowset.scan.scan import ScanSpec
from kudu_core.table.opened import kept_plans
from kudu_core.table.opened.handle import handle_of
from kudu_core.table.opened.kept_plans import KeptPlans
from kudu_core.table.write import where as where_writes
from tests.support.tables import Make

NUMBERS = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("f", pa.float64()), ("b", pa.bool_())])
ROWS = 50
F = pc.field


class Compiled:
    """Counts how often a predicate is compiled."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("compile_where", "compile_given"):
            usual = getattr(kept_plans, name)
            patch.setattr(kept_plans, name, lambda *given, usual=usual: self._counted(usual, given))

    def _counted(self, usual: Any, given: Any) -> Filter | None:
        self.count += 1
        found: Filter | None = usual(*given)
        return found


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    return Compiled(monkeypatch)


@pytest.fixture
def table(make: Make) -> kc.Table:
    made = make(NUMBERS)
    made.insert(
        {"k": range(ROWS), "v": range(ROWS), "f": [i / 2 for i in range(ROWS)], "b": [True, False] * 25}
    )
    return made


def keys(found: pa.Table) -> list[int]:
    return sorted(found["k"].to_pylist())


PREDICATES: dict[str, Any] = {
    "a filter list": lambda: [("k", ">=", 3), ("v", "<", 9)],
    "a list of values": lambda: [("v", "in", [7, 3, 5])],
    "an expression": lambda: (F("k") >= 3) & (F("v") < 9),
    "an expression that fails on rows": lambda: (F("k") > 0) & (pc.divide(pc.scalar(20), F("k")) > 4),
}


@pytest.mark.parametrize("where", PREDICATES.values(), ids=PREDICATES)
def test_scans_updates_and_deletes_compile_a_predicate_once(
    table: kc.Table, compiled: Compiled, where: Any
) -> None:
    expected = keys(table.scan(where=where()).to_table())
    assert expected and compiled.count == 1
    for columns in (None, ["k"], ["k", "v"]):
        assert keys(table.scan(columns, where()).to_table()) == expected
    assert table.count(where()) == len(expected)
    assert keys(table.scan(where=where(), key_range=(5, None)).to_table()) == [k for k in expected if k >= 5]
    assert table.scan(["k"], where(), limit=1).to_table().num_rows == 1
    assert table.update(where=where(), set={"f": 1.5}).updated == len(expected)
    assert table.delete(where=where()).deleted == len(expected)
    assert table.count(where()) == 0 and compiled.count == 1
    table.alter(rename={"f": "g"})
    assert table.count(where()) == 0 and compiled.count == 2


def test_a_kept_predicate_is_compiled_once_for_each_column_of_a_file(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.flush()
    sets: list[CellSet] = []
    specs: list[ScanSpec] = []

    def counted(made: Any, kept: list[Any]) -> Any:
        def make(*given: Any, **named: Any) -> Any:
            kept.append(made(*given, **named))
            return kept[-1]

        return make

    monkeypatch.setattr(scan_reader, "CellSet", counted(CellSet, sets))
    monkeypatch.setattr(where_writes, "ScanSpec", counted(ScanSpec, specs))
    for value in range(3):
        for least in (3, 5, 3):  # the file keeps the last set of a column
            rows = [k for k in range(ROWS) if least <= k < 9]
            where = (F("v") >= least) & (F("v") < 9)
            assert table.update(where=where, set={"f": value / 2}).updated == len(rows)
            assert keys(table.scan(where=where).to_table()) == rows
            assert (
                keys(table.scan(where=[("v", ">=", least), ("v", "<", 9), ("f", "=", value / 2)]).to_table())
                == rows
            )
    assert len(specs) == 2
    before = len(sets)
    for _ in range(5):
        assert table.count(F("v") < 9) == 9
    assert len(sets) == before + 1
    many = list(range(0, 40, 2))  # as many intervals
    for _ in range(2):
        assert table.count([("v", "in", many)]) == 20
    assert len(sets) == before + 3
    assert table.count(F("v") < 9) == 9 and len(sets) == before + 3


def test_other_predicates_in_turns_find_other_pages(make: Make) -> None:
    table = make(NUMBERS)
    rows = 40_000
    every = {"k": range(rows), "v": range(rows), "f": [0.0] * rows, "b": [True] * rows}
    table.insert(every)
    table.flush()
    for _ in range(3):
        for least, end in ((0, 5), (39_990, 40_000), (20_000, 20_100)):
            found = table.scan(where=[("v", ">=", least), ("v", "<", end)])
            assert keys(found.to_table()) == list(range(least, end))
            assert found.explain().pages_pruned > 0
            assert (
                table.update(where=(F("v") >= least) & (F("v") < end), set={"f": 1.5}).updated == end - least
            )


def test_what_is_kept_goes_with_the_schema(table: kc.Table) -> None:
    assert table.count([("f", "<", 1)]) == 2
    table.alter(rename={"f": "g"})
    with pytest.raises(kc.InvalidArgument, match="no column 'f'"):
        table.count([("f", "<", 1)])
    with pytest.raises(kc.InvalidArgument, match="no column 'f'"):
        table.delete(where=F("f") < 1)


def test_a_list_of_filters_that_is_changed_afterwards(table: kc.Table, compiled: Compiled) -> None:
    values = [1, 2]
    where = [("k", "in", values)]
    assert keys(table.scan(where=where).to_table()) == [1, 2]
    values[0] = 7
    assert keys(table.scan(where=where).to_table()) == [2, 7]
    where.append(("v", "<", 5))
    assert keys(table.scan(where=where).to_table()) == [2]
    assert keys(table.scan(where=[("k", "in", [1, 2])]).to_table()) == [1, 2] and compiled.count == 3


def test_memory_behind_an_expression_that_is_changed_afterwards(table: kc.Table) -> None:
    """What is kept refers to none of it: NaN in a list of floats is left to pyarrow."""
    floats = np.array([1.0, np.nan])
    for _ in range(2):
        assert table.count(F("f").isin(pa.array(floats))) == 1
        assert keys(table.scan(where=F("f").isin([1.0, np.nan])).to_table()) == [2]
        floats[0] = 2.0
        assert keys(table.scan(where=F("f").isin([1.0, np.nan])).to_table()) == [2]
        assert keys(table.scan(where=F("f").isin(pa.array(floats))).to_table()) == [4]
        floats[0] = 1.0


def test_equal_values_of_other_types_are_other_predicates(table: kc.Table) -> None:
    for _ in range(2):
        assert keys(table.scan(where=[("v", "=", 1)]).to_table()) == [1]
        assert keys(table.scan(where=[("v", "=", 1.0)]).to_table()) == [1]
        assert keys(table.scan(where=[("b", "=", True)]).to_table()) == list(range(0, ROWS, 2))
        with pytest.raises(kc.InvalidArgument):
            table.scan(where=[("v", "=", True)])
        with pytest.raises(kc.InvalidArgument):
            table.scan(where=[("b", "=", 1)])
        assert table.count(F("f").isin([0.0])) == 1 and table.count(F("f").isin([-0.0])) == 0
        assert table.count([("f", "in", [0.0])]) == 1 and table.count([("f", "in", [-0.0])]) == 0


def test_a_predicate_that_every_row_passes(table: kc.Table, compiled: Compiled) -> None:
    for _ in range(2):
        assert table.scan(where=pc.scalar(True), key_range=(10, 20)).to_table().num_rows == 10
        assert table.scan(where=[]).count() == ROWS
        assert table.update(where=pc.scalar(True), set={"v": 1}).updated == ROWS
        with pytest.raises(kc.InvalidArgument, match="selects every row"):
            table.delete(where=[])
    assert compiled.count == 2


def test_values_of_an_iterator_are_read_once(table: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the columns change between the check of a write and its walk, the predicate is read again."""
    engine = handle_of(table).engine
    usual = engine.memory.admit

    def altering() -> None:
        monkeypatch.setattr(engine.memory, "admit", usual)
        table.alter(rename={"f": "g"})

    monkeypatch.setattr(engine.memory, "admit", altering)
    assert table.delete(where=[("k", "in", iter([1, 2]))]).deleted == 2


def test_how_many_are_kept_and_how_many_bytes() -> None:
    schema = _schema()
    plans: KeptPlans[Any] = KeptPlans(schema)
    for number in range(3 * kept_plans._MOST_PREDICATES):
        plans.predicate([("k", "=", number)])
        plans.predicate(F("k") == number)
        assert 0 < len(plans.sizes()) <= kept_plans._MOST_PREDICATES
    long = kept_plans._LARGEST // 8 - 200
    for first in range(12):
        for where in ([("k", "in", list(range(first, first + long)))], F("k").isin(list(range(first, long)))):
            once = plans.predicate(where)
            assert plans.predicate(where) is once
            assert kept_plans._LARGEST // 2 < sum(plans.sizes()) <= kept_plans._MOST_BYTES
    longer = list(range(kept_plans._LARGEST // 8 + 1))
    for where in ([("k", "in", longer)], F("k").isin(longer)):
        assert plans.predicate(where) is not plans.predicate(where)
    one = plans.predicate([("k", "=", 1)])
    for number in range(30):
        one.put((number,), None)
        assert len(one.plans) <= kept_plans._MOST_OF_ONE


def test_a_kept_predicate_says_what_it_says_when_it_is_compiled_anew() -> None:
    schema, rng = _schema(), random.Random(11)
    plans: KeptPlans[Any] = KeptPlans(schema)
    values = [
        0,
        1,
        True,
        False,
        1.0,
        0.0,
        -0.0,
        2.5,
        None,
        [1, 2],
        [True],
        [1.0, None],
        [0.0, -0.0],
        (1,),
        {3},
    ]
    batch = pa.record_batch(
        [pa.array([0, 1, 2, 3, None]), pa.array([0, 1, 2, 3, None]), pa.array([0.0, -0.0, 1.0, 2.5, None]),
         pa.array([True, False, None, True, False])],
        schema=NUMBERS,
    )  # fmt: skip
    seen = 0
    for _ in range(1500):
        where: Any = [_filter(rng, values) for _ in range(rng.randrange(1, 3))]
        try:
            expected = compile_where(where, schema)
        except kc.InvalidArgument:
            with pytest.raises(kc.InvalidArgument):
                plans.predicate(where)
            continue
        assert expected is not None
        for given in (where, expected.expression):
            found = plans.predicate(given).filter
            assert found is not None and found.terms == expected.terms
            assert found.conditions == expected.conditions
            assert (found.rest is None) == (expected.rest is None)
            assert found.mask(batch).tolist() == expected.mask(batch).tolist()
        seen += 1
    assert seen > 500


def _filter(rng: random.Random, values: list[Any]) -> tuple[Any, ...]:
    value = rng.choice(values)
    ops = (
        ["in", "not in"] if isinstance(value, list | tuple | set) else ["=", "!=", "<", "<=", ">", ">=", "=="]
    )
    return rng.choice(NUMBERS.names), rng.choice(ops), value


def _schema() -> Schema:
    return declare(NUMBERS, ["k"])
