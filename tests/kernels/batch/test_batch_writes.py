"""Writes of batches.  That they are those of the general path is tests/table/write/test_batch_rows.py's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core._ext.batch.batch_writes import BatchWrites
from kudu_core._ext.rules.decide import CALL_DELETE, CALL_INSERT, CALL_UPDATE, CALL_UPSERT
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.opened.store_memory import no_memory
from tests.support.inside import engine_of, log_of, poison_of

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def table(path: Path) -> Iterator[kc.Table]:
    with kc.create_table(path, SCHEMA, "k", options={"durability": "none"}) as table:
        yield table


def rows(lower: int, upper: int, columns: str = "kv") -> pa.RecordBatch:
    keys = list(range(lower, upper))
    return pa.record_batch([keys, [f"v{k}" for k in keys]], schema=SCHEMA).select(list(columns))


def writes_of(table: kc.Table, **changed: Any) -> BatchWrites:
    engine = engine_of(table)
    given: dict[str, Any] = {
        "ingest_bytes": 1 << 20, "ingest_rows": 1000, "limit_bytes": 1 << 30, "result": WriteResult,
        "no_memory": no_memory, "checks": True, "locate": lambda *_: pytest.fail("nothing is on disk"),
    }  # fmt: skip
    return BatchWrites(engine, engine.log, engine.memory, **(given | changed))


def test_each_operation(table: kc.Table) -> None:
    writes = writes_of(table)
    records = log_of(table).records
    assert writes.write_batch(CALL_INSERT, False, rows(0, 100)).counts == (100, 0, 0, 0)
    assert writes.write_batch(CALL_UPSERT, False, rows(50, 150)).counts == (50, 50, 0, 0)
    assert writes.write_batch(CALL_UPDATE, True, rows(100, 200)).counts == (0, 50, 0, 50)
    assert writes.write_batch(CALL_DELETE, True, rows(140, 160, "k")).counts == (0, 0, 10, 10)
    assert log_of(table).records == records + 4, "one record a call"
    assert writes.write_batch(CALL_INSERT, True, rows(0, 100)).counts == (0, 0, 0, 100)
    assert writes.write_batch(CALL_DELETE, True, rows(500, 600, "k")).counts == (0, 0, 0, 100)
    assert log_of(table).records == records + 4, "and none where nothing changes"
    assert writes.write_batch(CALL_INSERT, False, rows(0, 100)) is None
    assert writes.write_batch(CALL_UPDATE, False, rows(100, 200)) is None
    assert writes.write_batch(CALL_UPSERT, False, rows(140, 150)) is None, "dead rows are to be revived"
    assert table.scan(order="key").to_table()["k"].to_pylist() == list(range(140))


def test_what_goes_to_files_is_not_taken(table: kc.Table) -> None:
    assert writes_of(table).write_batch(CALL_INSERT, False, rows(0, 1000)) is None
    assert writes_of(table, ingest_bytes=500).write_batch(CALL_INSERT, False, rows(0, 100)) is None
    assert table.count() == 0
    table.close()
    assert writes_of(table).write_batch(CALL_INSERT, False, rows(0, 100)) is None


def test_rowsets_on_disk_are_asked(table: kc.Table) -> None:
    table.insert(rows(0, 100))
    table.flush()
    asked: list[Any] = []

    def locate(view: Any, batch: Any, chosen: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        asked.append((len(view.rowsets), batch.rows, chosen))
        nowhere = np.full(batch.rows, -1, np.int64)
        return nowhere.astype(np.int32), nowhere, nowhere

    assert writes_of(table, locate=locate).write_batch(CALL_INSERT, False, rows(200, 300)).inserted == 100
    assert asked == [(1, 100, None)]


def test_rows_that_take_more_than_was_reserved_poison(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemRowSet, "reserve_insert_batch", lambda *_: None)
    with pytest.raises(AssertionError, match="more than was reserved"):
        writes_of(table).write_batch(CALL_INSERT, False, rows(0, 900))
    assert isinstance(poison_of(table), AssertionError)


def test_without_memory_nothing_happens(table: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(kc.MemoryLimit):
        patch.setattr(MemRowSet, "reserve_insert_batch", none)
        writes_of(table).write_batch(CALL_INSERT, False, rows(0, 100))
    with pytest.raises(kc.MemoryLimit):
        engine_of(table).memory.limit_bytes = 100
        writes_of(table, limit_bytes=100).write_batch(CALL_INSERT, False, rows(0, 100))
    assert log_of(table).records == 0 and table.count() == 0
