"""Histories that have broken stores like this one, each by name."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.tables import Make

Rows = list[dict[str, Any]]


class Recorder:
    """A table, and the rows that each write left."""

    def __init__(self, table: kc.Table) -> None:
        self.table = table
        self.states: list[tuple[int, Rows]] = []

    def rows(self, at: int | None = None, table: kc.Table | None = None) -> Rows:
        return (table or self.table).scan(["k", "a"], order="key", at=at).to_pylist()

    def after(self, result: kc.WriteResult | None) -> None:
        assert result is not None
        self.states.append((result.timestamp, self.rows()))

    def check(self, table: kc.Table | None = None) -> None:
        for ts, rows in self.states:
            assert self.rows(ts, table) == rows, ts
            assert (table or self.table).count(at=ts) == len(rows)


@pytest.mark.parametrize("path_of_writes", ["log", "ingest"])
def test_a_row_that_lives_in_one_rowset_after_another(make: Make, path: Path, path_of_writes: str) -> None:
    """Its history jumps between rowsets; a ghost on disk is never revived in place."""
    table = make(durability="sync", ingest_threshold_rows=1 if path_of_writes == "ingest" else 100)
    seen = Recorder(table)
    for life in range(5):
        seen.after(table.insert({"k": [1], "a": [life * 10]}))
        if life % 2:
            table.flush()
        seen.after(table.update({"k": [1], "a": [life * 10 + 1]}))
        table.flush()
        seen.after(table.delete([1]))
        if life % 3 == 0:
            table.flush()
        assert table.get(1) is None and table.count() == 0
    seen.check()
    table.close()
    with kc.open_table(path, "rw") as again:
        seen.check(again)
        assert again.insert({"k": [1], "a": [99]}).inserted == 1
        assert again.count() == 1


def test_delete_in_an_old_rowset_and_insert_into_memory_at_one_time(make: Make) -> None:
    table = make()
    seen = Recorder(table)
    seen.after(table.insert({"k": [1, 2], "a": [1, 1]}))
    table.flush()
    seen.after(table.delete([2]))
    with table.batch() as batch:
        batch.delete([1])
        batch.insert({"k": [1, 2], "a": [5, 5]})
        batch.delete([2])
        batch.insert({"k": [2], "a": [6]})
    seen.after(batch.result)
    assert seen.rows() == [{"k": 1, "a": 5}, {"k": 2, "a": 6}]
    for _ in range(2):
        seen.check()
        table.flush()


def test_an_update_before_a_delete_in_one_batch_is_not_seen(make: Make) -> None:
    table = make()
    table.insert({"k": [1], "a": [1]})
    table.flush()
    with table.batch() as batch:
        batch.update({"k": [1], "a": [2]})
        batch.delete([1])
    assert batch.result is not None
    for ts in (batch.result.timestamp, None):
        assert table.count(at=ts) == 0 and table.get(1, at=ts) is None
        assert table.scan(where=pc.field("a") == 2, at=ts).count() == 0
    assert table.get(1, ["a"], at=batch.result.timestamp - 1) == {"a": 1}


def test_ten_thousand_updates_of_one_row_in_one_batch(make: Make) -> None:
    """One net change, though a flush runs beside it."""
    table = make(flush_threshold_bytes=65_536)
    table.insert({"k": [1, 2], "a": [0, 0]})
    table.flush()
    stop = threading.Event()

    def flush() -> None:
        while not stop.is_set():
            table.flush()

    thread = threading.Thread(target=flush)
    thread.start()
    try:
        for round_ in range(3):
            values = np.arange(10_000) + round_ * 10_000
            result = table.update({"k": np.ones(10_000, np.int64), "a": values})
            assert result.updated == 10_000
            assert table.get(1, ["a"]) == {"a": int(values[-1])}
            assert table.get(1, ["a"], at=result.timestamp - 1) == {"a": max(0, round_ * 10_000 - 1)}
    finally:
        stop.set()
        thread.join()
    changes = sum(table.stats("rowset")["memory_changes"].to_pylist())
    table.flush()
    assert changes <= 3
    assert table.get(1, ["a"]) == {"a": 29_999} and table.get(2, ["a"]) == {"a": 0}


def test_a_row_inserted_and_deleted_in_one_batch_leaves_nothing(make: Make) -> None:
    table = make()
    with table.batch() as batch:
        batch.insert({"k": [1, 2], "a": [1, 1]})
        batch.delete([1])
    assert batch.result is not None and batch.result.counts == (2, 0, 1, 0)
    assert table.get(1, at=batch.result.timestamp) is None
    table.flush()
    assert table.stats()["rows_stored"].to_pylist() == [1]


def test_counts_after_everything(make: Make, path: Path) -> None:
    """Live rows, after ghosts are revived, flushed and replayed."""
    table = make(durability="sync", partition_by=kc.HashPartition("k", 3))
    live: set[int] = set()
    rng = np.random.default_rng(5)
    for step in range(30):
        keys = np.unique(rng.integers(0, 60, 15))
        if step % 3:
            table.upsert({"k": keys, "a": keys})
            live |= set(keys.tolist())
        else:
            table.delete(keys.tolist(), on_missing="ignore")
            live -= set(keys.tolist())
        if step % 7 == 0:
            table.flush()
        if step % 11 == 0:
            table.close()
            table = kc.open_table(path, "rw")
        assert table.count() == len(live)
        assert table.scan(["k"], order="key").to_table()["k"].to_pylist() == sorted(live)
    table.close()


def test_flushing_nothing(make: Make) -> None:
    table = make()
    for _ in range(3):
        table.flush()
    assert table.stats()["rowsets"].to_pylist() == [0]
    table.insert({"k": [1]})
    table.delete([1])
    table.flush()
    table.flush()
    assert table.count() == 0
    ts = table.insert({"k": [1]}).timestamp
    table.delete([1])
    assert table.count(at=ts) == 1


def test_rowsets_of_one_row_in_key_order(make: Make) -> None:
    table = make(pa.schema([("k", pa.string()), ("v", pa.int64())]))
    keys = [f"{n * 37 % 40:02d}" for n in range(40)]
    for n, key in enumerate(keys):
        table.insert({"k": [key], "v": [n]})
        table.flush()
    assert table.stats()["rowsets"].to_pylist() == [40]
    for batch_rows in (1, 3, 100):
        found = table.scan(order="key", batch_rows=batch_rows).to_table()
        assert found["k"].to_pylist() == sorted(keys)
    assert table.scan(order="key", limit=3).to_table()["k"].to_pylist() == ["00", "01", "02"]
    assert table.get("25", ["v"]) == {"v": keys.index("25")}


def test_a_scan_goes_on_with_the_files_it_began_with(make: Make) -> None:
    table = make(pa.schema([("k", pa.int64()), ("v", pa.int64())]))
    table.insert({"k": np.arange(50_000), "v": np.zeros(50_000, np.int64)})
    table.flush()
    scan = iter(table.scan(["v"], batch_rows=1000))
    first = next(scan)
    table.update({"k": np.arange(50_000), "v": np.ones(50_000, np.int64)})
    table.flush()
    table.delete(where=pc.field("k") < 25_000)
    table.flush()
    rest = pa.Table.from_batches([first, *scan])
    assert rest.num_rows == 50_000 and pc.sum(rest["v"]).as_py() == 0
    assert table.count() == 25_000


def test_ingests_beside_writes_of_the_same_keys(make: Make) -> None:
    """An ingest decides before it holds a mutex, and again when it lost to another write."""
    table = make(ingest_threshold_rows=200, durability="none")
    errors: list[BaseException] = []
    balance = [0, 0]

    def work(number: int, size: int) -> None:
        rng = np.random.default_rng(number)
        try:
            for _ in range(25):
                keys = np.unique(rng.integers(0, 400, size))
                done = table.insert({"k": keys, "a": keys}, on_conflict="ignore")
                assert done.inserted + done.ignored == len(keys)
                gone = table.delete(keys.tolist(), on_missing="ignore")
                assert gone.deleted + gone.ignored == len(keys)
                balance[number] += done.inserted - gone.deleted
        except BaseException as error:  # noqa: BLE001  told below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(0, 600)), threading.Thread(target=work, args=(1, 20))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert table.count() == sum(balance)
    keys = table.scan(["k"], order="key").to_table()["k"].to_pylist()
    assert keys == sorted(set(keys))
