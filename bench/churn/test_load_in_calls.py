"""A load in ten calls beside the same in one: speed, disk, and what a merge of the ten would have cost.

    KUDU_CORE_BENCH_ROWS=5000000 ci/bench.sh bench/churn/test_load_in_calls.py

``gets``: point reads right after the load, beside whatever maintenance does by then.  In ``extra_info``:
processor time of all threads, and the most bytes of the folder by those at the end.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from bench.compare import data

GETS = 3000


def folder_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


@pytest.mark.parametrize("maintenance", ["manual", "background"])
@pytest.mark.parametrize("calls", [1, 10])
def test_load(benchmark: Any, tmp_path: Path, calls: int, maintenance: str) -> None:
    benchmark.group = "load in calls"
    rows = data.readings()
    each = -(-len(rows) // calls)
    made: list[kc.Table] = []
    largest = 0

    def fresh() -> None:
        for before in made:
            before.close()  # or its merges would begin beside the next load
        path = tmp_path / f"t{len(made)}"
        made.append(kc.create_table(path, rows.schema, data.KEY, options={"maintenance": maintenance}))

    def load() -> None:
        nonlocal largest
        for first in range(0, len(rows), each):
            made[-1].insert(rows.slice(first, each))
            largest = max(largest, folder_bytes(Path(made[-1].path)))

    begun = time.process_time()
    benchmark.pedantic(load, setup=fresh, rounds=3 if data.ROWS >= 1_000_000 else 1)
    benchmark.extra_info["processor time of a load, s"] = (time.process_time() - begun) / len(made)
    benchmark.extra_info["largest folder by the last"] = largest / folder_bytes(Path(made[-1].path))
    table = made[-1]
    keys = data.keys(GETS)
    begun = time.perf_counter()
    found = [table.get(key) for key in keys]
    benchmark.extra_info["get, us"] = 1e6 * (time.perf_counter() - begun) / GETS
    assert all(row is not None for row in found)
    assert table.count() == len(rows)
    table.close()
