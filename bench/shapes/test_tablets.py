"""Some thousand changes over 256 tablets: flush and compact, which wait for the disk at each tablet.

    ci/bench.sh bench/shapes/test_tablets.py

"together" is the work as it is, several tablets at a time; "in turn" the same with one tablet at a time, in
the same run.  As a test it runs smaller, for the answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from bench.shapes.report import Line, Report
from kudu_core.tablet.maintain import together

OPTIONS = {"durability": "none", "maintenance": "manual"}
ROUNDS = 3
ROWS_OF_A_TABLET = 40
GOAL_S = 1.0


@pytest.fixture(scope="module")
def tablets(request: pytest.FixtureRequest) -> int:
    return 256 if request.config.getoption("benchmark_enable") else 8


@pytest.fixture
def keys(tablets: int) -> np.ndarray:
    return np.arange(ROWS_OF_A_TABLET * tablets) * (ROUNDS + 2)


@pytest.fixture
def table(tmp_path: Path, tablets: int, keys: np.ndarray) -> Iterator[kc.Table]:
    rows = pa.table({"k": keys, "v": keys, "s": keys.astype(str)})
    partition_by = kc.HashPartition(["k"], tablets)
    with kc.create_table(
        tmp_path / "t", rows.schema, "k", partition_by=partition_by, options=OPTIONS
    ) as table:
        table.insert(rows)
        table.flush()
        yield table


@pytest.fixture(params=["together", "in turn"], autouse=True)
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "in turn":
        monkeypatch.setattr(together, "TABLETS_AT_ONCE", 1)
    return str(request.param)


def insert_between(table: kc.Table, keys: np.ndarray, number: int) -> None:
    new = keys[::2] + number
    table.insert({"k": new, "v": new, "s": new.astype(str)})


def update(table: kc.Table, keys: np.ndarray, number: int) -> None:
    table.update({"k": keys[::2], "v": np.full(len(keys[::2]), number)})


def rounds(benchmark: Any, before: Callable[[int], object], act: Callable[[], object]) -> None:
    """``before`` is not timed; it is told the number of the round, from 1."""
    number = 0

    def prepare() -> None:
        nonlocal number
        number += 1
        before(number)

    benchmark.pedantic(act, setup=prepare, rounds=ROUNDS)


@pytest.mark.benchmark(group="flush of new rows")
def test_flush_of_new_rows(benchmark: Any, table: kc.Table, keys: np.ndarray) -> None:
    rounds(benchmark, lambda number: insert_between(table, keys, number), table.flush)
    assert table.count() >= len(keys) + len(keys[::2])


@pytest.mark.benchmark(group="flush of changes")
def test_flush_of_changes(benchmark: Any, table: kc.Table, keys: np.ndarray) -> None:
    rounds(benchmark, lambda number: update(table, keys, number), table.flush)
    assert table.scan(where=[("v", "<=", ROUNDS)]).count() >= len(keys[::2])


@pytest.mark.benchmark(group="flush and compaction")
@pytest.mark.parametrize("full", [False, True], ids=["what pays", "full"])
def test_flush_and_compact(
    benchmark: Any,
    report: Report,
    table: kc.Table,
    keys: np.ndarray,
    tablets: int,
    full: bool,
    how: str,
) -> None:
    spent: list[float] = []

    def before(number: int) -> None:
        update(table, keys, number)
        insert_between(table, keys, number)

    def act() -> None:
        began = time.perf_counter()
        table.flush()
        table.compact(full=full)
        spent.append(time.perf_counter() - began)

    rounds(benchmark, before, act)
    assert table.count() >= len(keys) + len(keys[::2])
    if full:
        assert int(table.metrics()["rowsets"]) == tablets
    if how == "together":
        name = f"flush and compact, {'full' if full else 'what pays'}"
        report.add(Line("flush and compact", name, f"{tablets} tablets", min(spent), GOAL_S))
