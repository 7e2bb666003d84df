"""Tables of the claims: maintenance by hand, so that what lies where is known."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc

ROWS = int(os.environ.get("KUDU_CORE_BENCH_ROWS", "20000"))
ROUNDS = 3 if ROWS < 100_000 else 9
OPTIONS = {
    "maintenance": "manual",
    "durability": "none",
    "history_retention_s": None,
    "memory_limit_bytes": 2 << 30,
    "ingest_threshold_rows": 1 << 20,
}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., kc.Table]]:
    """``make(name, columns, key)``: a table, closed at the end."""
    made = []

    def table(name: str, columns: dict[str, str], key: str) -> kc.Table:
        made.append(kc.create_table(tmp_path / name, columns, key, options=OPTIONS))
        return made[-1]

    yield table
    for one in made:
        one.close()


@pytest.fixture
def measure(benchmark: Any) -> Callable[..., Any]:
    """``measure(work, counts)``: the answer of the work, its time taken, what was counted beside it told."""

    def run(work: Callable[[], Any], **counts: Any) -> Any:
        benchmark.extra_info |= {"rows": ROWS, **counts}
        return benchmark.pedantic(work, rounds=ROUNDS, iterations=1, warmup_rounds=1)

    return run


def pages_looked_at(table: kc.Table) -> int:
    """Pages that reads have asked for since the table was opened, in the cache or not."""
    metrics = table.metrics()
    return int(metrics["page_cache_hits"] + metrics["page_cache_misses"])
