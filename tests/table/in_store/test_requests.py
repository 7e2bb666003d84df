"""How many requests an operation of a table in an object store takes (docs/protocol-objects.md)."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.lifecycle.in_store import store_home
from kudu_core.table.lifecycle.in_store.put_ids import put_id_of
from kudu_core.table.lifecycle.in_store.table_object import place_of, read_table
from kudu_core.tablet.maintain import scoring
from kudu_core.wal.objects import object_log, object_tail
from tests.support.inside import flush_lane_of, log_of
from tests.support.objects.memory import MemoryObjectStore, client
from tests.support.objects.tables import URL, created, opened, requests_of, rows_of, spent


def batch(first: int, count: int) -> pa.Table:
    return pa.table({"k": list(range(first, first + count)), "v": [first] * count})


@pytest.mark.parametrize("tablets", [1, 64])
@pytest.mark.parametrize("rows", [1, 30, 5000])
def test_a_synced_write_of_any_size_over_any_number_of_tablets_is_one_put(tablets: int, rows: int) -> None:
    store = MemoryObjectStore()
    table = created(store, tablets=tablets)
    before = requests_of(store)
    table.upsert(batch(0, rows))
    assert spent(store, before) == {"put": 1}
    with table.batch() as both:
        both.upsert(batch(0, rows))
        both.delete([{"k": 0}])
    assert spent(store, before) == {"put": 2}
    table.close()


def test_metrics_count_the_requests_of_a_handle() -> None:
    store = MemoryObjectStore()
    with created(store) as table:
        table.upsert([{"k": 1, "v": 1}])
        before, lists = table.metrics(), store.counts()["requests_list"]
        table.upsert([{"k": 1, "v": 2}])
        after = table.metrics()
        assert after["requests_put"] == before["requests_put"] + 1
        assert after["bytes_put"] > before["bytes_put"] and after["repeated"] == 0
        assert after["requests_list"] == lists, "to look asks for nothing"
        assert "memrowset: 1 rows" in table.layout()


def test_a_bulk_load_of_many_tablets_is_one_put_of_the_log_beside_its_files() -> None:
    store = MemoryObjectStore()
    table = created(store, tablets=16)
    before, log = requests_of(store), len([name for name in store.objects if name.startswith("log/")])
    table.insert(batch(0, 200_000))
    files = [name for name in store.objects if name.endswith(".rows")]
    assert len(files) == 16
    assert len([name for name in store.objects if name.startswith("log/")]) == log + 1
    assert spent(store, before) == {"put": 17}
    table.close()


def test_a_flush_is_its_file_and_one_put_of_the_log() -> None:
    store = MemoryObjectStore()
    table = created(store)
    table.upsert(batch(0, 100))
    before = requests_of(store)
    table.flush()
    assert spent(store, before) == {"put": 2}
    table.close()


def test_a_refresh_with_nothing_new_is_one_get() -> None:
    store = MemoryObjectStore()
    table = created(store, tablets=8)
    table.upsert(batch(0, 100))
    reader = opened(store)
    for _ in range(3):
        before = requests_of(store)
        reader.refresh()
        assert spent(store, before) == {"get": 1}
    table.upsert([{"k": 5, "v": 77}])
    reader.refresh()
    assert reader.get(5) == {"k": 5, "v": 77}
    reader.close()
    table.close()


def test_a_refresh_asks_for_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tablets there are, and however much of the log behind the last checkpoint."""
    store = MemoryObjectStore()
    table = created(store, tablets=8)
    for n in range(300):
        table.upsert(batch(n, 1))
    table.flush()
    table.gc()
    for n in range(40):
        table.upsert(batch(n, 1))
    assert place_of(read_table(client(store, ids=put_id_of), URL)[0]).snapshots
    asked: list[str] = []

    def noted(call: Any) -> Any:
        def told(name: str, *more: Any) -> Any:
            asked.append(name)
            return call(name, *more)

        return told

    for call in ("get", "get_ranges"):
        monkeypatch.setattr(store, call, noted(getattr(store, call)))
    reader = opened(store)
    for n in range(1, 4):
        for m in range(n):
            table.upsert([{"k": 5, "v": 10 * n + m}])
        asked.clear()
        reader.refresh()
        # Whether there is anything, TABLE, and waves of two and eight: the new ones, and what is missing.
        assert len(asked) <= 4 + (0 if n == 1 else 8), asked
        assert reader.get(5) == {"k": 5, "v": 10 * n + n - 1}
    for n in range(260):
        table.upsert([{"k": n, "v": -n}])
    table.flush()
    table.gc()
    table.upsert([{"k": 5, "v": 7}])
    reader.refresh()  # the log was shortened meanwhile
    assert reader.get(5) == {"k": 5, "v": 7} and rows_of(reader) == rows_of(table)
    reader.close()
    table.close()


def test_a_reader_of_a_table_that_is_another_by_now() -> None:
    """Made anew at the same place, though names are to be used once: nothing of the old one is shown."""
    store = MemoryObjectStore()
    with created(store) as table:
        table.upsert([{"k": 1, "v": 1}])
        reader = opened(store)
        assert rows_of(reader) == {1: 1}
    for name in list(store.objects):
        store.objects.pop(name)
    with created(store) as table:
        for n in range(3):
            table.upsert([{"k": 2, "v": n}])
        with pytest.raises(kc.TableNotFound, match="another one is there"):
            reader.refresh()
        with opened(store) as newer:
            assert rows_of(newer) == {2: 2}
    reader.close()


def test_opening_for_reading_asks_for_table_snapshots_and_the_log() -> None:
    store = MemoryObjectStore()
    table = created(store, tablets=8)
    for n in range(5):
        table.upsert(batch(n, 1))
    before = requests_of(store)
    with opened(store) as reader:
        assert len(rows_of(reader)) == 5
    # TABLE, the fence and five commits, and the number that is missing; a wave asks for some behind it too.
    assert spent(store, before)["get"] <= 1 + 15
    table.close()


def test_many_threads_share_puts() -> None:
    """While one put is under way the records of the others gather; never are two under way."""
    store = MemoryObjectStore()
    together: list[int] = []
    under_way = 0
    gate = threading.Lock()
    real = store.put

    def put(path: str, data: bytes, condition: object) -> str:
        nonlocal under_way
        if not path.startswith("log/"):
            return real(path, data, condition)  # type: ignore[arg-type]
        with gate:
            under_way += 1
            together.append(under_way)
        threading.Event().wait(0.01)
        try:
            return real(path, data, condition)  # type: ignore[arg-type]
        finally:
            with gate:
                under_way -= 1

    store.put = put  # type: ignore[method-assign,assignment]
    table = created(store)
    before = requests_of(store)

    def writer(number: int) -> None:
        for n in range(10):
            table.upsert([{"k": 1000 * number + n, "v": n}])

    threads = [threading.Thread(target=writer, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(together) == 1
    assert spent(store, before)["put"] <= 100, "of 320 calls"
    assert table.count() == 320
    table.close()


def test_a_checkpoint_is_due_by_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_log, "CHECKPOINT_OBJECTS", 20)
    store = MemoryObjectStore()
    table = created(store, tablets=4, file_grace_s=0.0)
    for n in range(9):
        table.upsert([{"k": n, "v": n}])
    table.flush()
    table.flush()
    assert not [name for name in store.objects if name.endswith(".manifest")], "not yet worth it"
    for n in range(9):
        table.upsert([{"k": n, "v": -n}])
    table.flush()
    assert len([name for name in store.objects if name.endswith(".manifest")]) == 4
    table.gc()
    assert len([name for name in store.objects if name.startswith("log/")]) < 12, "objects of before are gone"
    table.close()
    before = requests_of(store)
    with opened(store) as reader:
        assert rows_of(reader) == {n: -n for n in range(9)}
    assert spent(store, before)["get"] < 30


@pytest.mark.parametrize("tablets", [1, 5])
def test_small_writes_never_make_a_long_log(monkeypatch: pytest.MonkeyPatch, tablets: int) -> None:
    """Memory that only old objects keep is flushed, so that a checkpoint can let them go."""
    most = 40
    monkeypatch.setattr(scoring, "LOG_TARGET_BYTES", most * object_tail.REQUEST_BYTES)
    monkeypatch.setattr(object_log, "CHECKPOINT_OBJECTS", 10)
    store = MemoryObjectStore()
    table = created(store, tablets=tablets)
    longest = 0
    for k in range(400):
        table.upsert([{"k": k % 90, "v": k}])
        flush_lane_of(table).run_due()
        longest = max(longest, len(log_of(table).segments))
    assert most - 5 < longest <= most + 10 + 5, "its own records, of a flush of each tablet, too"
    asked: list[str] = []
    get = store.get
    monkeypatch.setattr(store, "get", lambda path, limit: (asked.append(path), get(path, limit))[1])
    with opened(store) as reader:
        assert reader.count() == 90
    assert len([path for path in asked if path.startswith("log/")]) <= longest + 8
    table.close()


def test_a_clean_close_of_a_long_log_makes_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_home, "CLOSE_OBJECTS", 5)
    store = MemoryObjectStore()
    with created(store) as table:
        for n in range(20):
            table.upsert([{"k": n, "v": n}])
    assert not [name for name in store.objects if name.endswith(".manifest")], "rows are in the log alone"
    with opened(store, "rw") as table:
        table.flush()
    before = requests_of(store)
    with opened(store) as reader:
        assert len(rows_of(reader)) == 20
    assert spent(store, before)["get"] < 12


def test_only_what_is_missing_is_asked_of_the_client() -> None:
    """No listing is asked for on the way of a write, a read or an open."""
    store = MemoryObjectStore()
    table = created(store, tablets=4)
    before = requests_of(store)
    table.upsert(batch(0, 1000))
    table.flush()
    table.delete([{"k": 1}])
    table.compact(full=True)
    assert table.count() == 999
    table.close()
    with opened(store, "rw") as table, opened(store) as reader:
        assert reader.count() == table.count() == 999
        assert isinstance(reader, kc.Table)
    assert spent(store, before).get("list", 0) <= 4, "for what others have left"
