"""Every shape of the benchmarks and every operation on it, in each state that a table goes through.

The answers are compared with a plain dict of the rows; the operations are those that ``bench/shapes`` times.
Then random operations on tables of a shape, beside the model: ``--long`` makes them many.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from bench.shapes.operations import READS, UPDATES, Asked, check
from bench.shapes.peers import Condition
from bench.shapes.shapes import PLAIN, SPREAD, sized
from tests.support.differential import SHAPED, code_of, failure_of, shaped_case, shrink
from tests.support.models.shaped import STATES, Shaped, load
from tests.support.tables import Make

LIKE_OTHERS = ("500 columns", "16 tablets", "256 tablets", "200 rowsets")
"""When they are small."""
SHAPES = [shape.name for shape in (*PLAIN, *SPREAD) if shape.name not in LIKE_OTHERS]

REPEATED = ("get", "get_many", "rows in key order")
"""Lines of operations that ask for another key at each call."""


class Opened:
    """The calls that operations have, on a table as a user has it."""

    def __init__(self, table: kc.Table) -> None:
        self.table = table
        self.get = table.get

    def rows_of(self, keys: list[int]) -> Any:
        return self.table.get_many(keys).drop_columns("_found")

    def first_rows(self, key: int, limit: int) -> Any:
        return self.table.scan(order="key", limit=limit, key_range=(key, None)).to_table()

    def scan(self, names: list[str] | None) -> Any:
        return self.table.scan(names).to_table()

    def where(self, names: list[str] | None, condition: Condition) -> Any:
        return self.table.scan(names, condition.expression).to_table()


@contextmanager
def telling(what: str, seed: int) -> Iterator[None]:
    """A failure says where it was."""
    try:
        yield
    except Exception as error:
        error.add_note(f"{what}; seed {seed}")
        raise


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_operation_gives_the_rows_of_the_shape(make: Make, shape: str, state: str, seed: int) -> None:
    kept = Shaped(sized(shape, timed=False), seed)
    table = kept.create(make)
    load(kept, table)
    STATES[state](kept, table)
    opened, wanted = Opened(table), Asked(kept.shape, kept.wanted())
    for operation in READS.values():
        for call in range(2 if operation.line in REPEATED else 1):
            with telling(f"{operation.name}, call {call}", seed):
                found = operation.act(opened, wanted, call)
                check(found, operation.wanted(wanted, call), ordered=operation.ordered)
    for name, share in UPDATES.items():
        with telling(name, seed):
            update_where(table, wanted.of_values(share).expression)


def update_where(table: kc.Table, where: pc.Expression) -> None:
    """It changes the rows that match and no others; the state before it and the changes say so too."""
    before, columns = table.timestamp, ["k", "n", "f"]
    there = table.scan(columns, order="key").to_table()
    meant = set(there.filter(where)["k"].to_pylist())
    assert table.update(where=where, set={"f": pc.field("f") + 1}).updated == len(meant)
    changed = pc.is_in(there["k"], pa.array(sorted(meant), pa.int64()))
    after = table.scan(columns, order="key").to_table()
    assert after["f"] == pc.if_else(changed, pc.add(there["f"], 1), there["f"])
    assert after.drop_columns("f") == there.drop_columns("f")
    assert table.scan(columns, at=before, order="key").to_table() == there
    changes = table.changes(before, table.timestamp, columns=["k"]).to_table()
    assert sorted(changes["k"].to_pylist()) == sorted(meant)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case_seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--seed")
        count = 40 if metafunc.config.getoption("--long") else 1
        metafunc.parametrize("case_seed", range(first, first + count))
        metafunc.parametrize("shape", SHAPED)


@pytest.mark.timeout(1800)
def test_engine_and_model_agree_on_a_shape(shape: str, case_seed: int, long: bool) -> None:
    steps = SHAPED[shape][1]
    case = shaped_case(shape, case_seed, 2 * steps if long else steps)
    failure = failure_of(case)
    if failure is None:
        return
    small = shrink(case, lambda c: failure_of(c) is not None)
    told = f"{shape}, seed {case_seed}: {failure}\n\nShortest found:\n\n{code_of(small)}\n"
    pytest.fail(told, pytrace=False)
