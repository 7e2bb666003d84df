"""Calls of 1, 10 and 30 rows that are not synced, beside RocksDB with the same rows.

    ci/bench.sh bench/shapes/test_calls.py

Processor time, in turns; rows are given as dicts, and lie ready.  ``test_few_rows`` has calls of other sizes
and forms, for ours alone.  As a test it runs small, for the answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.shapes import peers
from bench.shapes.conftest import installed
from bench.shapes.operations import check
from bench.shapes.report import OURS
from bench.shapes.shapes import SHAPES, rows_of, sized
from bench.shapes.timing import Effort, in_turns

GOAL = 1.2
CALLS = {1: 400, 10: 150, 30: 60}
"""Of a round."""
ROUNDS = Effort(9, 9, single=True)


@pytest.fixture(scope="module")
def given() -> Iterator[pa.Table]:
    """Narrow rows."""
    yield rows_of(SHAPES["narrow"].scaled(0.06))
    rows_of.cache_clear()


@pytest.mark.parametrize("count", CALLS)
def test_rows_a_call(
    benchmark: Any,
    note: Any,
    tmp_path: Path,
    given: pa.Table,
    count: int,
    timed: bool,
    effort: Effort,
) -> None:
    shape = sized("narrow", timed)
    calls = CALLS[count] if timed else 2
    engines = {
        name: peers.ENGINES[name](tmp_path / name, shape) for name in [OURS, *installed(("RocksDB",), timed)]
    }
    rows = given.to_pylist()
    batches = {name: _calls(rows, count) for name in engines}

    def act(name: str) -> Any:
        def run(call: int) -> int:
            engine = engines[name]
            for batch in itertools.islice(batches[name], calls):
                engine.insert_rows(batch)
            return call

        return run

    acts = {name: act(name) for name in engines}
    found = benchmark.pedantic(in_turns, (acts, ROUNDS if timed else effort), rounds=1)
    for name, spent in found.items():
        spent.best_s /= calls
        done = (spent.call + 1) * calls * count
        wanted = given.take(pa.array(range(0, done, 7)))
        check(engines[name].rows_of(wanted["k"].to_pylist()), wanted, ordered=True)
        engines[name].close()
    note("rows a call, not synced", f"{count} rows a call", "narrow", found, GOAL)


def _calls(rows: list[dict[str, Any]], count: int) -> Iterator[list[dict[str, Any]]]:
    for first in range(0, len(rows), count):
        yield rows[first : first + count]
