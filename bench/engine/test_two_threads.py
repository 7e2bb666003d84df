"""Two threads on one table: two writers, and a writer beside a scanner, each beside one thread alone.

A round is a fixed piece of work for each thread; ``rows`` in extra_info counts that of all of them, so a
round divides into the aggregate throughput.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.float64()), ("b", pa.int64()), ("s", pa.string())])
ROUND = 60_000
"""Rows that a writer inserts in a round."""
SCANNED = 400_000
SCANS = 20


def rows(first: int, count: int) -> pa.Table:
    k = np.arange(first, first + count)
    words = pa.array(["ok", "warn", "error"]).take(pa.array(k % 3))
    return pa.table({"k": k, "a": k / 4, "b": k * 7, "s": words}, schema=SCHEMA)


def together(*works: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


class Writer:
    """Inserts new rows, batch after batch, into keys of its own.

    The batches are made before the round: made in it, by pyarrow and under the GIL, they would be what is
    measured.
    """

    def __init__(self, table: kc.Table, number: int, batch: int) -> None:
        self.table = table
        self.batch = batch
        self.next = (number + 1) << 40
        self.batches: list[pa.Table] = []

    def prepare(self) -> None:
        for _ in range(ROUND // self.batch):
            self.batches.append(rows(self.next, self.batch))
            self.next += self.batch

    def __call__(self) -> None:
        for batch in self.batches:
            self.table.insert(batch)
        self.batches.clear()


@pytest.fixture
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    durability, buckets = request.param
    by = [kc.HashPartition(["k"], buckets)] if buckets > 1 else []
    options = {"durability": durability, "scan_threads": 1}
    with kc.create_table(tmp_path / "t", SCHEMA, "k", partition_by=by, options=options) as made:
        made.insert(rows(0, SCANNED))
        yield made


TABLES = [("sync", 1), ("sync", 4), ("none", 1), ("none", 4)]
IDS = [f"{durability}, {buckets} tablets" for durability, buckets in TABLES]


@pytest.mark.parametrize("table", TABLES, ids=IDS, indirect=True)
@pytest.mark.parametrize("batch", [1000, 20_000])
@pytest.mark.parametrize("threads", [1, 2])
def test_writers(
    benchmark: Any, table: kc.Table, threads: int, batch: int, request: pytest.FixtureRequest
) -> None:
    """The same work, of two writers, on one thread or on one each."""
    benchmark.group = f"{request.node.callspec.id.partition('-')[2]}: writers"
    writers = [Writer(table, number, batch) for number in range(2)]
    before = table.count()
    benchmark.extra_info["rows"] = len(writers) * ROUND

    def prepare() -> None:
        for writer in writers:
            writer.prepare()

    def in_turn() -> None:
        for writer in writers:
            writer()

    work = writers if threads == 2 else [in_turn]
    benchmark.pedantic(together(*work), setup=prepare, rounds=9, warmup_rounds=1)
    done = sum(w.next - ((n + 1) << 40) for n, w in enumerate(writers))
    assert table.count() == before + done


@pytest.mark.parametrize("table", [("sync", 1), ("none", 1)], ids=["sync", "none"], indirect=True)
@pytest.mark.parametrize("who", ["writer alone", "scanner alone", "writer beside scanner"])
def test_a_writer_beside_a_scanner(benchmark: Any, table: kc.Table, who: str) -> None:
    """The slower of the two ends the round: beside each other they should take little longer."""
    writer = Writer(table, 0, 1000)

    def scan() -> None:
        for _ in range(SCANS):
            found = sum(batch.num_rows for batch in table.scan(["k", "a", "s"], where=[("k", "<", SCANNED)]))
            assert found == SCANNED

    works = {"writer alone": [writer], "scanner alone": [scan], "writer beside scanner": [writer, scan]}[who]
    benchmark.extra_info["rows"] = (writer in works) * ROUND + (scan in works) * SCANS * SCANNED
    prepare = writer.prepare if writer in works else None
    benchmark.pedantic(together(*works), setup=prepare, rounds=9, warmup_rounds=1)
