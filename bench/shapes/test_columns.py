"""A table of 2,000 columns: opened for its first row, and the changes of one of its columns.

    ci/bench.sh bench/shapes/test_columns.py

Processor time; a figure of its own, beside no peer.  As a test it has 2,000 columns too, of fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from bench.shapes.peers import THREADS, Ours
from bench.shapes.report import OURS, Line, Report
from bench.shapes.shapes import Shape, rows_of, sized
from bench.shapes.timing import Effort, Timed, in_turns

GOAL_OF_OPENING_S, GOAL_OF_A_CHANGE_S = 10e-3, 5e-6
CALLS = 5
"""That change one column of half of the rows."""
NAMES = ("100 columns", "500 columns", "2,000 columns")


@dataclass
class Changed:
    shape: Shape
    table: kc.Table
    path: Any
    since: int
    until: int
    rows: int
    """That were changed at least once."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = NAMES if metafunc.config.getoption("benchmark_enable") else NAMES[-1:]
    metafunc.parametrize("changed", names, indirect=True, scope="module")
    if "net" in metafunc.fixturenames:
        metafunc.parametrize("net", [False, True], ids=["all", "net"])


@pytest.fixture(scope="module")
def changed(
    request: pytest.FixtureRequest, timed: bool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Changed]:
    shape = sized(request.param, timed)
    engine = Ours(tmp_path_factory.mktemp("columns") / "t", shape)
    engine.fill()
    table, rng = engine.table, np.random.default_rng(6)
    keys, touched = rows_of(shape)["k"].to_numpy(), set()
    since = until = table.timestamp
    for call in range(CALLS):
        chosen = rng.permutation(keys)[: len(keys) // 2]
        touched.update(chosen.tolist())
        until = table.update({"k": chosen, "p1": np.full(len(chosen), -1 - call)}).timestamp
    table.flush()
    yield Changed(shape, table, engine.path, since, until, len(touched))
    engine.close()


def test_open_and_first_row(benchmark: Any, note: Any, changed: Changed, effort: Effort) -> None:
    def first(call: int) -> pa.RecordBatch:
        with kc.open_table(changed.path, options={"scan_threads": THREADS}) as reader:
            return next(iter(reader.scan(["p3"], limit=1)))

    found = benchmark.pedantic(in_turns, ({OURS: first}, effort), rounds=1)
    assert found[OURS].answer.num_rows == 1
    goal = GOAL_OF_OPENING_S if changed.shape.columns > 1000 else None
    note("open, and the first row", "open, and the first row", changed.shape.name, found, goal)


def test_changes_of_one_column(
    benchmark: Any, report: Report, changed: Changed, effort: Effort, net: bool
) -> None:
    def read(call: int) -> pa.Table:
        return changed.table.changes(changed.since, changed.until, net=net).to_table()

    found: dict[str, Timed] = benchmark.pedantic(in_turns, ({OURS: read}, effort), rounds=1)
    spent = found[OURS]
    count = changed.rows if net else CALLS * (changed.shape.rows // 2)
    assert len(spent.answer) == count
    assert set(spent.answer["_op"].to_pylist()) == {"update"}
    assert set(spent.answer["p1"].to_pylist()) <= set(range(-CALLS, 0))
    name = f"changes of one column, {'net' if net else 'all'}"
    goal = GOAL_OF_A_CHANGE_S if changed.shape.columns > 1000 else None
    made = Line("changes of one column", name, changed.shape.name, spent.best_s / count, goal)
    benchmark.extra_info |= made.to_json()
    report.add(made)
