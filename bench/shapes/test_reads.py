"""Reads of every shape beside its peers: points, rows in key order, scans, predicates, updates where.

    ci/bench.sh bench/shapes/test_reads.py -k "narrow or columns"

Processor time, in turns; tables beyond the page cache also cold, by the wall.  The answers are compared with
the rows themselves after they were timed.  As a test it runs small, for the answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench.shapes.conftest import Engines, installed
from bench.shapes.operations import GOAL_OF_UPDATES, READS, UPDATES, check, goal_of, reads_of
from bench.shapes.peers import drop_from_memory
from bench.shapes.report import OURS
from bench.shapes.shapes import BEYOND, PLAIN, SHAPES, sized
from bench.shapes.timing import Effort, in_turns

TESTED = ("narrow", "cells of 10 KB", "100 columns", "16 tablets", "20 rowsets", "10 x 100 B, 2 x cache")
"""When no times are taken: what matters here is that peers are asked the same.  All shapes are tested by
``tests/stories/test_shapes.py``."""
COLD = Effort(3, 5, 1.0, single=True)
COLD_CALLS = 20
GOAL_OF_ONE_ROW_S = 150e-6

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def engines(
    request: pytest.FixtureRequest, timed: bool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engines]:
    made = Engines(sized(request.param, timed), tmp_path_factory.mktemp("shape"), timed)
    yield made
    made.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Which shapes: ``engines`` is the name of one."""
    if "engines" not in metafunc.fixturenames:
        return
    timed = metafunc.config.getoption("benchmark_enable")
    shapes = [shape for shape in SHAPES.values() if timed or shape.name in TESTED]
    if metafunc.function is test_read:
        cases = [(shape.name, operation.name) for shape in shapes for operation in reads_of(shape)]
        metafunc.parametrize("engines, operation", cases, indirect=["engines"], ids=str)
        return
    if metafunc.function is test_one_row:
        shapes = shapes[:1]
    else:
        meant = BEYOND if metafunc.function is test_cold_get else PLAIN
        shapes = [shape for shape in shapes if shape in meant]
    metafunc.parametrize("engines", [shape.name for shape in shapes], indirect=True)


def test_read(
    benchmark: Any, note: Any, engines: Engines, operation: str, effort: Effort, timed: bool
) -> None:
    chosen, asked = READS[operation], engines.asked
    acts = {
        name: lambda call, engine=engines[name]: chosen.act(engine, asked, call)
        for name in [OURS, *installed(chosen.peers, timed)]
    }
    found = benchmark.pedantic(in_turns, (acts, effort), rounds=1)
    for spent in found.values():
        check(spent.answer, chosen.wanted(asked, spent.call), ordered=chosen.ordered)
    line = f"{chosen.line} beyond the cache" if engines.shape.cache_part else chosen.line
    note(line, operation, engines.shape.name, found, goal_of(chosen, engines.shape))


def test_cold_get(benchmark: Any, note: Any, engines: Engines, timed: bool, effort: Effort) -> None:
    """Twenty keys, after the operating system has forgotten the files; by the wall."""
    chosen, asked = READS["get"], engines.asked
    calls = COLD_CALLS if timed else 2

    def act(engine: Any, call: int) -> Any:
        return [chosen.act(engine, asked, call * calls + i) for i in range(calls)][-1]

    acts = {
        name: lambda call, engine=engines[name]: act(engine, call)
        for name in [OURS, *installed(chosen.peers, timed)]
    }
    found = benchmark.pedantic(
        in_turns,
        (acts, COLD if timed else effort),
        {"clock": time.perf_counter, "before": lambda name: drop_from_memory(engines[name])},
        rounds=1,
    )
    for spent in found.values():
        check(spent.answer, chosen.wanted(asked, (spent.call + 1) * calls - 1), ordered=True)
    goal = goal_of(chosen, engines.shape)
    note("get beyond the cache, cold", "20 x get, cold", engines.shape.name, found, goal)


@pytest.mark.parametrize("operation", UPDATES)
def test_update_where(
    benchmark: Any, note: Any, engines: Engines, operation: str, effort: Effort, timed: bool
) -> None:
    """Each call sets another value, of rows that lie anywhere; in the end every engine has the last one."""
    asked = engines.asked
    condition = asked.of_values(UPDATES[operation])
    wanted = asked.rows.filter(condition.expression)["k"]
    acts = {
        name: lambda call, engine=engines[name]: engine.update_where(condition, call + 0.5)
        for name in [OURS, *installed(("DuckDB",), timed)]
    }
    found = benchmark.pedantic(in_turns, (acts, effort), rounds=1)
    for name, spent in found.items():
        assert spent.answer == len(wanted), name
        after = engines[name].where(["k", "n", "f"], condition)
        assert sorted(after["k"].to_pylist()) == wanted.to_pylist()
        assert pc.all(pc.equal(after["f"], spent.call + 0.5)).as_py()
    for engine in engines.values():
        if engine.name in found:
            restore(engine, asked.rows)
    note("update where", operation, engines.shape.name, found, GOAL_OF_UPDATES)


def restore(engine: Any, rows: pa.Table) -> None:
    """What later works read has to be what it was."""
    if engine.name == OURS:
        engine.table.update(rows.select(["k", "f"]))
        engine.settle()
    else:
        engine.con.register("batch", rows.select(["k", "f"]))
        engine.con.execute("update t set f = batch.f from batch where t.k = batch.k").fetchall()
        engine.con.unregister("batch")


def test_one_row(benchmark: Any, note: Any, engines: Engines, effort: Effort) -> None:
    """The fixed cost of a scan: it returns one row."""
    table, asked = engines[OURS].table, engines.asked

    def act(call: int) -> pa.Table:
        return table.scan(["n"], [("k", "=", asked.points[call % len(asked.points)])]).to_table()

    found = benchmark.pedantic(in_turns, ({OURS: act}, effort), rounds=1)
    spent = found[OURS]
    at = int(np.searchsorted(asked.keys, asked.points[spent.call % len(asked.points)]))
    assert spent.answer["n"].to_pylist() == [asked.rows["n"][at].as_py()]
    note("fixed cost of a scan", "one row by its key", "narrow", found, GOAL_OF_ONE_ROW_S)
