"""Benchmarks run once, as tests, unless ``ci/bench.sh`` (or ``--benchmark-enable``) asks for their times.

Each measures the answer's time and then checks the answer; each is reported with the rows that it moved,
so that runs of different sizes can be compared.
"""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from typing import Any

import pytest

from bench.shapes.report import OURS, Line, Report
from bench.shapes.timing import Timed

ROOT = Path(__file__).parents[1]


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is collected stays until the end: no collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def seed() -> int:
    """Where the random data begins: fixed unless ``KUDU_CORE_SEED`` says otherwise."""
    return int(os.environ.get("KUDU_CORE_SEED", "0"))


@pytest.fixture(scope="session")
def timed(request: pytest.FixtureRequest) -> bool:
    """Whether times are taken; else the answers are what counts."""
    return bool(request.config.getoption("benchmark_enable"))


@pytest.fixture(scope="session")
def report(timed: bool) -> Report:
    """Lines of the table of goals."""
    path = ROOT / f"build/bench/shapes-{time.strftime('%Y%m%d-%H%M%S')}.json"
    return Report(path if timed else None)


@pytest.fixture
def note(benchmark: Any, report: Report) -> Any:
    """``note(line, operation, shape, found, goal)``: ours beside the best of the peers."""

    def add(line: str, operation: str, shape: str, found: dict[str, Timed], goal: float | None) -> None:
        others = {name: spent.best_s for name, spent in found.items() if name != OURS}
        name = min(others, key=others.__getitem__) if others else ""
        made = Line(line, operation, shape, found[OURS].best_s, goal, others.get(name), name)
        benchmark.extra_info |= made.to_json()
        report.add(made)

    return add


def pytest_benchmark_update_json(output_json: dict[str, Any]) -> None:
    """Rows a second beside each time, for whatever says how many rows it had."""
    for bench in output_json["benchmarks"]:
        rows = bench["extra_info"].get("rows")
        if rows:
            bench["extra_info"]["rows_per_s"] = rows / bench["stats"]["min"]
