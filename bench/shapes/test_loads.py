"""Bulk loads of every shape and what they leave on disk, beside Parquet with zstd, its rows sorted alike.

    ci/bench.sh bench/shapes/test_loads.py

Processor time, in turns.  The rows come in no order, and both sort them; and once in the order of keys, which
spares both the sorting.  As a test it runs small, for the answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.shapes.operations import check
from bench.shapes.peers import Ours, Parquet
from bench.shapes.report import OURS, Line, Report
from bench.shapes.shapes import PLAIN, Shape, parts_of, rows_of, sized
from bench.shapes.timing import Effort, Timed

TESTED = ("narrow", "cells of 100 KB", "100 columns")
"""When no times are taken."""
GOAL_OF_TIME, GOAL_OF_BYTES = 1.2, 1.05


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = [shape.name for shape in PLAIN] if metafunc.config.getoption("benchmark_enable") else TESTED
    metafunc.parametrize("shape", names, indirect=True, scope="module")


@pytest.fixture(scope="module")
def shape(request: pytest.FixtureRequest, timed: bool) -> Iterator[Shape]:
    yield sized(request.param, timed)
    rows_of.cache_clear()


def loads(folder: Path, shape: Shape, rows: pa.Table, ordered: bool, rounds: int) -> dict[str, Any]:
    """Both loaded anew each round; the last of each stays, with the least time of its loads as ``best_s``."""
    engines: dict[str, Any] = {}
    for number in range(rounds):
        for made in (Ours, Parquet):
            if made.name in engines:
                engines[made.name].close()
            engine: Any = made(folder / f"{made.name} {number}", shape)
            load = super(Parquet, engine).load if ordered and made is Parquet else engine.load
            started = time.process_time()
            load(rows)
            if made is Ours:
                engine.table.flush()
            spent = time.process_time() - started
            known = engines.get(made.name)
            engine.best_s = spent if known is None else min(spent, known.best_s)
            engines[made.name] = engine
    return engines


@pytest.mark.parametrize("order", ["in no order", "in the order of keys"])
def test_load(
    benchmark: Any, note: Any, report: Report, tmp_path: Path, shape: Shape, order: str, effort: Effort
) -> None:
    ordered = order == "in the order of keys"
    rows = rows_of(shape) if ordered else pa.concat_tables(parts_of(shape))
    rounds = min(5, effort.least_rounds + 1) if effort.most_rounds > 1 else 1
    engines = benchmark.pedantic(loads, (tmp_path, shape, rows, ordered, rounds), rounds=1)
    found = {name: Timed(engine.best_s, None, 0) for name, engine in engines.items()}
    note("bulk load", f"bulk load, {order}", shape.name, found, GOAL_OF_TIME)
    engines[OURS].settle()
    if not ordered:
        ours, peer = (engines[name].size() / 1e6 for name in (OURS, "Parquet"))
        line = "bytes on disk"
        report.add(Line(line, line, shape.name, ours, GOAL_OF_BYTES, peer, "Parquet", "MB"))
    for engine in engines.values():
        check(engine.scan(None), rows_of(shape), ordered=False)
        engine.close()
