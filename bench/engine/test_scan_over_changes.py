"""Changes under a scan: 10% of the rows of one double updated, in memory, in one file, in ten; 5% deleted.

Each layout is scanned beside a clean table of the same rows in the same run; updates come in random order of
keys.  ``KUDU_CORE_BENCH_DELTA_ROWS`` sets the size (1,000,000).

pytest bench/engine/test_scan_over_changes.py
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc

ROWS = int(os.environ.get("KUDU_CORE_BENCH_DELTA_ROWS", "1000000"))
CALL = 10_000
SCHEMA = pa.schema([("id", pa.int64()), ("load", pa.float64()), ("temp", pa.float64())])
PICKED = np.random.default_rng(7).choice(ROWS, ROWS // 10, replace=False)
NEW = np.round(np.random.default_rng(8).normal(50, 10, len(PICKED)), 2)


def update(table: kc.Table, lower: int, upper: int) -> None:
    for at in range(lower, upper, CALL):
        some = slice(at, min(at + CALL, upper))
        table.update({"id": PICKED[some], "load": NEW[some]})


def in_files(table: kc.Table, files: int) -> None:
    for k in range(files):
        update(table, k * len(PICKED) // files, (k + 1) * len(PICKED) // files)
        table.flush()


def delete(table: kc.Table) -> None:
    for at in range(0, len(PICKED) // 2, CALL):
        table.delete({"id": PICKED[at : min(at + CALL, len(PICKED) // 2)]})


LAYOUTS: dict[str, Callable[[kc.Table], None]] = {
    "clean": lambda table: None,
    "10% updated in memory": lambda table: update(table, 0, len(PICKED)),
    "10% updated in one file": lambda table: in_files(table, 1),
    "10% updated in ten files": lambda table: in_files(table, 10),
    "5% deleted in memory": delete,
    "5% deleted in a file": lambda table: (delete(table), table.flush())[0],
}


@pytest.fixture(scope="module", params=LAYOUTS)
def made(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, kc.Table, int]]:
    path: Path = tmp_path_factory.mktemp("deltas") / "t"
    rng = np.random.default_rng(0)
    options = {"durability": "none", "maintenance": "manual", "memory_limit_bytes": 1 << 30}
    with kc.create_table(path, SCHEMA, ["id"], options=options) as table:
        load = np.round(rng.normal(50, 10, ROWS), 2)
        table.insert({"id": np.arange(ROWS), "load": load, "temp": load})
        table.flush()
        before = table.insert({"id": [ROWS], "load": [1.0], "temp": [1.0]}).timestamp
        table.delete({"id": [ROWS]})
        LAYOUTS[request.param](table)
        yield request.param, table, before


def check(name: str, found: pa.Table) -> None:
    """What was updated is there, and what was deleted is not."""
    assert found.num_rows == (ROWS - len(PICKED) // 2 if "deleted" in name else ROWS)
    if "updated" in name:
        assert (found["load"].to_numpy()[PICKED] == NEW).all()


@pytest.mark.benchmark(group="scan of one double column, changes below")
def test_scan_of_the_changed_column(benchmark: Any, made: tuple[str, kc.Table, int]) -> None:
    name, table, _ = made
    benchmark.extra_info |= {"rows": ROWS}
    check(name, benchmark(lambda: table.scan(["load"]).to_table()))


@pytest.mark.benchmark(group="scan of another double column, changes below")
def test_scan_of_another_column(benchmark: Any, made: tuple[str, kc.Table, int]) -> None:
    _, table, _ = made
    assert benchmark(lambda: table.scan(["temp"]).to_table()).num_rows


@pytest.mark.benchmark(group="scan of one double column before the changes")
def test_scan_of_the_past(benchmark: Any, made: tuple[str, kc.Table, int]) -> None:
    _, table, before = made
    assert benchmark(lambda: table.scan(["load"], at=before).to_table()).num_rows == ROWS + 1


@pytest.mark.benchmark(group="count, changes below")
def test_count(benchmark: Any, made: tuple[str, kc.Table, int]) -> None:
    name, table, _ = made
    assert benchmark(lambda: table.scan().count()) == (ROWS - len(PICKED) // 2 if "deleted" in name else ROWS)
