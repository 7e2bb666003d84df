"""The door of writes: each call takes one way, and the door alone chooses which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.table.write import door, found_walk, log_walk
from kudu_core.wal import RECORD_KIND_INGEST, RECORD_KIND_WRITE
from tests.support.cases.logged import Logged

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
INGEST_ROWS = 100
MEMORY_BYTES = 16 << 20
WAYS: dict[str, tuple[Any, str]] = {
    "row": (door, "write_row"),
    "log": (log_walk, "write_calls"),
    "files": (door, "ingest_calls"),
    "spilled": (door, "ingest_spilled"),
    "few rows": (door, "write_few"),
    "found": (found_walk, "write_found"),
    "collected to files": (door, "ingest_collected"),
}


def rows(count: int, v: int = 0) -> pa.Table:
    return pa.table({"k": range(count), "v": pa.array([v] * count, pa.int64())}, schema=SCHEMA)


def batches(count: int) -> Iterator[pa.RecordBatch]:
    return iter(rows(count).to_batches(max_chunksize=10))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[kc.Table]:
    options = {
        "maintenance": "manual",
        "ingest_threshold_rows": INGEST_ROWS,
        "memory_limit_bytes": MEMORY_BYTES,
    }
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        table.insert(rows(2 * INGEST_ROWS))
        yield table


@pytest.fixture
def taken(table: kc.Table, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ways that were taken; "... -" of one that gave the write back."""
    ways: list[str] = []

    def watched(way: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            done = real(*arguments, **more)
            ways.append(way if done is not None else f"{way} -")
            return done

        return call

    for way, (owner, name) in WAYS.items():
        monkeypatch.setattr(owner, name, watched(way, getattr(owner, name)))
    return ways


@pytest.fixture
def logged(table: kc.Table) -> Logged:
    """The records that are appended."""
    return Logged(table)


@pytest.mark.parametrize(
    ("write", "ways", "kind"),
    [
        (lambda t: t.upsert([{"k": 1, "v": 1}]), ["row"], RECORD_KIND_WRITE),
        (lambda t: t.upsert([{"k": 1, "v": np.int64(1)}]), ["row -", "log"], RECORD_KIND_WRITE),
        (lambda t: t.upsert([{"k": 1, "v": 1}, {"k": 2, "v": 1}]), ["few rows"], RECORD_KIND_WRITE),
        (lambda t: t.upsert([{"k": 1, "v": 1}, {"k": 1, "v": 2}]), ["few rows -", "log"], RECORD_KIND_WRITE),
        (lambda t: t.upsert([{"k": 1, "v": 1}], txn=("a", 1)), ["log"], RECORD_KIND_WRITE),
        (lambda t: t.upsert(rows(2)), ["few rows"], RECORD_KIND_WRITE),
        (lambda t: t.upsert(rows(2), txn=("a", 1)), ["log"], RECORD_KIND_WRITE),
        (lambda t: t.upsert(batches(2)), ["log"], RECORD_KIND_WRITE),
        (lambda t: t.upsert(batches(INGEST_ROWS - 1)), ["log"], RECORD_KIND_WRITE),
        (lambda t: t.upsert(rows(INGEST_ROWS)), ["few rows -", "files"], RECORD_KIND_INGEST),
        (lambda t: t.upsert(batches(INGEST_ROWS)), ["files"], RECORD_KIND_INGEST),
        (lambda t: t.update(where=pc.field("k") < 9, set={"v": 1}), ["found"], RECORD_KIND_WRITE),
        (
            lambda t: t.update(where=pc.field("k") >= 0, set={"v": 1}),
            ["found -", "collected to files"],
            RECORD_KIND_INGEST,
        ),
    ],
)
def test_each_write_takes_its_way_and_makes_one_record(
    table: kc.Table,
    taken: list[str],
    logged: Logged,
    write: Callable[[kc.Table], Any],
    ways: list[str],
    kind: int,
) -> None:
    write(table)
    assert (taken, [record.kind for record in logged.new()]) == (ways, [kind])
    table.verify()


def test_a_call_that_memory_does_not_hold_is_spilled(
    table: kc.Table, taken: list[str], logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "KEPT_DIVISOR", MEMORY_BYTES)
    assert table.upsert(batches(30)).updated == 30
    assert (taken, [record.kind for record in logged.new()]) == (["spilled"], [RECORD_KIND_INGEST])


def test_a_batch_goes_through_the_door(table: kc.Table, taken: list[str]) -> None:
    with table.batch() as batch:
        batch.delete([1])
        batch.upsert(rows(5, v=1))
    with table.batch() as large:
        large.upsert(rows(INGEST_ROWS, v=2))
    with table.batch():
        pass
    assert taken == ["log", "files"]
