"""A shape in every engine, and the report of what was measured.

Timed, a shape has its full size and is measured beside its peers; run as a test it is small, and is there for
the answers.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from bench.shapes import peers
from bench.shapes.operations import Asked
from bench.shapes.report import Line, Report
from bench.shapes.shapes import Shape
from bench.shapes.timing import QUICK, Effort, Timed

ROOT = Path(__file__).parents[2]
NEEDED = {"RocksDB": "rocksdict", "DuckDB": "duckdb"}


class Engines(dict[str, Any]):
    """Each made when it is asked for, with all rows, and what shall be in its cache in its cache."""

    def __init__(self, shape: Shape, folder: Path, timed: bool) -> None:
        super().__init__()
        self.shape, self.folder, self.timed = shape, folder, timed
        self.asked = Asked(shape)

    def __missing__(self, name: str) -> Any:
        engine = peers.ENGINES[name](self.folder / name, self.shape)
        self[name] = engine
        engine.fill()
        if self.timed and not self.shape.cache_part:
            engine.warm()
        return engine

    def close(self) -> None:
        for engine in self.values():
            engine.close()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="session")
def timed(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("benchmark_enable"))


@pytest.fixture(scope="session")
def effort(timed: bool) -> Effort:
    return Effort() if timed else QUICK


@pytest.fixture(scope="session")
def report(timed: bool) -> Report:
    path = ROOT / f"build/bench/shapes-{time.strftime('%Y%m%d-%H%M%S')}.json"
    return Report(path if timed else None)


@pytest.fixture
def note(benchmark: Any, report: Report) -> Any:
    """``note(line, operation, shape, found, goal)``: ours beside the best of the peers."""

    def add(line: str, operation: str, shape: str, found: dict[str, Timed], goal: float | None) -> None:
        others = {name: spent.best_s for name, spent in found.items() if name != peers.OURS}
        name = min(others, key=others.__getitem__) if others else ""
        made = Line(line, operation, shape, found[peers.OURS].best_s, goal, others.get(name), name)
        benchmark.extra_info |= made.to_json()
        report.add(made)

    return add


def installed(names: tuple[str, ...], timed: bool) -> list[str]:
    """The peers that are there; when times are taken, all have to be."""
    if timed:
        return list(names)
    import importlib.util

    return [n for n in names if n not in NEEDED or importlib.util.find_spec(NEEDED[n]) is not None]
