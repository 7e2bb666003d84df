"""Calls of 1,000 rows of Arrow: by one caller, not synced, by the compiled walk and by the general path, and
synced, waited for one by one and with tickets; by eight threads.

``pytest bench/engine/test_write_batches.py --benchmark-enable``.  ``--benchmark-timer=time.process_time``
leaves out what the machine's other work takes; of the synced calls the disk is the limit, so they need the
wall clock.  ``extra_info`` has the rows of a round, and the fsyncs a call.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.inside import log_of

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.float64()), ("s", pa.string())])
ROWS, CALLS = 1000, 100
OUTSTANDING = 64
WRITERS = 8
COLUMNS = {"insert": "kabs", "upsert": "kabs", "update": "ka", "delete": "k"}


def batches(columns: str, calls: int = CALLS) -> list[pa.RecordBatch]:
    keys = np.random.default_rng(1).permutation(calls * ROWS)
    words = np.array([f"s{i}" for i in range(1000)])
    cells = [keys, keys * 3, keys * 0.5, pa.array(words[keys % 1000])]
    whole = pa.record_batch(cells, schema=SCHEMA).select(list(columns))
    return [whole.slice(first, ROWS) for first in range(0, calls * ROWS, ROWS)]


def made(path: Path, partition_by: Any = (), **options: Any) -> kc.Table:
    settings = {"maintenance": "manual", "memory_limit_bytes": 4 << 30, **options}
    return kc.create_table(path, SCHEMA, "k", partition_by=partition_by, options=settings)


@pytest.mark.benchmark(group="calls of 1,000 rows, not synced")
@pytest.mark.parametrize("operation", COLUMNS)
@pytest.mark.parametrize("way", ["compiled", "general"])
def test_not_synced(benchmark: Any, tmp_path: Path, operation: str, way: str) -> None:
    given: list[Any] = batches(COLUMNS[operation])
    if way == "general":
        given = [
            [batch] for batch in given
        ]  # a list means the same, and is not looked at by the compiled walk
    tables: list[kc.Table] = []

    def table() -> tuple[tuple[kc.Table], dict[str, Any]]:
        tables.append(made(tmp_path / f"t{len(tables)}", durability="none"))
        if operation != "insert":
            for batch in batches("kabs"):
                tables[-1].insert(batch)
        return (tables[-1],), {}

    def run(table: kc.Table) -> None:
        call = getattr(table, operation)
        for batch in given:
            call(batch)

    benchmark.extra_info["rows"] = CALLS * ROWS
    benchmark.pedantic(run, setup=table, rounds=7)
    for one in tables:
        assert one.count() == (0 if operation == "delete" else CALLS * ROWS)
        one.close()


@pytest.mark.benchmark(group="calls of 1,000 rows, one caller")
@pytest.mark.parametrize("how", ["not synced", "waited for", "with tickets"])
def test_durable(benchmark: Any, tmp_path: Path, how: str) -> None:
    given = batches("kabs", 400)
    tables: list[kc.Table] = []
    fsyncs: list[int] = []

    def table() -> tuple[tuple[kc.Table], dict[str, Any]]:
        durability = "none" if how == "not synced" else "sync"
        tables.append(made(tmp_path / f"t{len(tables)}", durability=durability))
        return (tables[-1],), {}

    def run(table: kc.Table) -> None:
        before = log_of(table).fsyncs
        if how == "with tickets":
            waiting: deque[kc.WriteTicket] = deque()
            for batch in given:
                waiting.append(table.insert(batch, wait=False))
                if len(waiting) > OUTSTANDING:
                    waiting.popleft().result()
            while waiting:
                waiting.popleft().result()
        else:
            for batch in given:
                table.insert(batch)
        fsyncs.append(log_of(table).fsyncs - before)

    benchmark.extra_info["rows"] = len(given) * ROWS
    benchmark.pedantic(run, setup=table, rounds=5)
    benchmark.extra_info["fsyncs a call"] = round(min(fsyncs) / len(given), 3)
    for one in tables:
        assert one.count() == len(given) * ROWS
        one.close()


@pytest.mark.benchmark(group="eight writers, 1,000 rows a call")
@pytest.mark.parametrize("durability", ["none", "sync"])
@pytest.mark.parametrize("tablets", [1, 8])
def test_eight_writers(
    benchmark: Any, tmp_path: Path, tablets: int, durability: str, timed: bool
) -> None:
    calls = CALLS if timed else 3
    given = batches("kabs", WRITERS * calls)
    tables: list[kc.Table] = []
    fsyncs: list[int] = []

    def table() -> tuple[tuple[kc.Table], dict[str, Any]]:
        partition_by = kc.HashPartition("k", tablets) if tablets > 1 else ()
        path = tmp_path / f"t{len(tables)}"
        tables.append(made(path, partition_by, durability=durability))
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
