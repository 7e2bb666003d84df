"""Eight threads that insert 1,000 rows a call into one table, each call durable when it returns.

``pytest bench/engine/test_eight_writers.py --benchmark-enable``: time by the wall, since the disk is a part
of it.  ``extra_info`` has the rows a second, and the fsyncs a call: the writers share them.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from bench.engine.test_write_batches import ROWS, SCHEMA, batches
from tests.support.inside import log_of

WRITERS, CALLS = 8, 100


@pytest.mark.benchmark(group="eight writers, 1,000 rows a call")
@pytest.mark.parametrize("durability", ["none", "sync"])
@pytest.mark.parametrize("tablets", [1, 8])
def test_insert(benchmark: Any, tmp_path: Path, tablets: int, durability: str, timed: bool) -> None:
    calls = CALLS if timed else 3
    given = batches("kabs", WRITERS * calls)
    tables: list[kc.Table] = []
    fsyncs: list[int] = []
    settings = {"maintenance": "manual", "memory_limit_bytes": 4 << 30, "durability": durability}

    def table() -> tuple[tuple[kc.Table], dict[str, Any]]:
        tables.append(
            kc.create_table(
                tmp_path / f"t{len(tables)}",
                SCHEMA,
                "k",
                partition_by=kc.HashPartition("k", tablets) if tablets > 1 else (),
                options=settings,
            )
        )
        return (tables[-1],), {}

    def write(table: kc.Table, own: list[Any]) -> None:
        for batch in own:
            table.insert(batch)

    def run(table: kc.Table) -> None:
        before = log_of(table).fsyncs
        threads = [
            threading.Thread(target=write, args=(table, given[i::WRITERS])) for i in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        fsyncs.append(log_of(table).fsyncs - before)

    benchmark.pedantic(run, setup=table, rounds=5 if timed else 1)
    rows = len(given) * ROWS
    if timed:
        benchmark.extra_info["rows a second"] = round(rows / benchmark.stats.stats.median)
    benchmark.extra_info["fsyncs a call"] = round(min(fsyncs) / len(given), 3)
    for one in tables:
        assert one.count() == rows
        one.close()
