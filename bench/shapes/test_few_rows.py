"""Calls of few rows: 1 to 1,000 a call, given as dicts and as a RecordBatch, not synced.

    ci/bench.sh bench/shapes/test_few_rows.py

Beside them RocksDB with a WriteBatch of the same rows, as JSON under an encoded key.  Times are processor
time of one call; each round writes calls of its own, whose rows lie ready.  As a test it runs once, for the
answers, and without RocksDB where that is not installed.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("a", pa.float64()),
        ("b", pa.float64()),
        ("c", pa.int64()),
        ("status", pa.string()),
    ]
)
ROWS_A_CALL = (1, 2, 5, 10, 30, 100, 1000)
TABLETS = {"one tablet": 1, "16 tablets": 16}
Rows = list[dict[str, Any]]


def rows_of(first: int, count: int) -> Rows:
    return [
        {"id": i, "name": f"name {i}", "a": i * 0.5, "b": i * 0.25, "c": i * 3, "status": "ok"}
        for i in range(first, first + count)
    ]


def as_batch(rows: Rows) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, SCHEMA.empty_table().select(list(rows[0])).schema)


FORMS: dict[str, Callable[[Rows], Any]] = {"dicts": list, "batch": as_batch}
WORKS: dict[str, Callable[[Rows], Rows]] = {
    "insert": lambda rows: rows,
    "upsert": lambda rows: rows,
    "update": lambda rows: [{"id": row["id"], "a": 1.5} for row in rows],
    "delete": lambda rows: [{"id": row["id"]} for row in rows],
}


@pytest.fixture
def calls(request: pytest.FixtureRequest) -> int:
    """In a round, whose time is divided by it."""
    return 100 if request.config.getoption("benchmark_enable") else 2


@pytest.fixture
def table(tmp_path: Path, tablets: str) -> Iterator[kc.Table]:
    options = {"durability": "none", "maintenance": "manual"}
    count = TABLETS[tablets]
    parts = [kc.HashPartition(["id"], count)] if count > 1 else []
    with kc.create_table(tmp_path / "t", SCHEMA, ["id"], partition_by=parts, options=options) as made:
        yield made


def measured(
    benchmark: Any, rows: int, calls: int, given: Iterator[Any], write: Callable[[Any], Any]
) -> None:
    """Rounds of calls that are made beforehand; the time is that of a round."""
    benchmark.extra_info |= {"rows": rows * calls, "rows_a_call": rows, "calls": calls}

    def ready() -> tuple[tuple[Any], dict[str, Any]]:
        return (list(itertools.islice(given, calls)),), {}

    def run(round_: list[Any]) -> None:
        for data in round_:
            write(data)

    benchmark.pedantic(run, setup=ready, rounds=5 if rows >= 1000 else 15, warmup_rounds=1)


@pytest.mark.parametrize("tablets", TABLETS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", ROWS_A_CALL)
@pytest.mark.benchmark(group="inserts of few rows", timer=time.process_time)
def test_new_rows(benchmark: Any, table: kc.Table, calls: int, rows: int, form: str) -> None:
    given = (FORMS[form](rows_of(first, rows)) for first in itertools.count(0, rows))
    inserted = [0]

    def write(data: Any) -> None:
        inserted[0] += table.upsert(data).inserted

    measured(benchmark, rows, calls, given, write)
    assert table.count() == inserted[0] > 0
    assert table.get(0) == rows_of(0, 1)[0]


@pytest.mark.parametrize("tablets", TABLETS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("home", ["memory", "disk"])
@pytest.mark.parametrize("rows", [10, 30])
@pytest.mark.parametrize("work", ["upsert", "update", "delete"])
@pytest.mark.benchmark(group="changes of few rows", timer=time.process_time)
def test_rows_that_exist(
    benchmark: Any, table: kc.Table, calls: int, rows: int, form: str, home: str, work: str
) -> None:
    there = 20 * rows * calls
    table.insert(as_batch(rows_of(0, there)))
    if home == "disk":
        table.flush()
    given = (FORMS[form](WORKS[work](rows_of(first, rows))) for first in itertools.count(0, rows))
    changed = [0]

    def write(data: Any) -> None:
        result = getattr(table, work)(data)
        changed[0] += result.updated + result.deleted

    measured(benchmark, rows, calls, given, write)
    assert changed[0] % (rows * calls) == 0
    assert table.count() == there - (changed[0] if work == "delete" else 0)


@pytest.mark.parametrize("rows", ROWS_A_CALL)
@pytest.mark.benchmark(group="inserts of few rows", timer=time.process_time)
def test_rocksdb(benchmark: Any, tmp_path: Path, calls: int, rows: int) -> None:
    rocksdict = pytest.importorskip("rocksdict")
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    store = rocksdict.Rdict(str(tmp_path / "rocks"), options)

    def write(data: Rows) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for row in data:
            batch.put(row["id"].to_bytes(8, "big"), json.dumps(row).encode())
        store.write(batch)

    given = (rows_of(first, rows) for first in itertools.count(0, rows))
    measured(benchmark, rows, calls, given, write)
    assert json.loads(store[(0).to_bytes(8, "big")]) == rows_of(0, 1)[0]
    store.close()
