"""Readers of a table in an object store: files vanish under them, and they look at TABLE in time (protocol
B9, B10, B14)."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.errors import Corruption
from kudu_core.fs.missing import FileMissing
from tests.support.clock import ManualClock
from tests.support.inside import after_opening, forget
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created, opened, requests_of, rows_of, spent

NUMBERS = np.random.default_rng(1).integers(0, 1 << 60, 200_000)
ROWS = pa.table({"k": np.arange(len(NUMBERS)), "v": NUMBERS})  # in files that are not fetched whole
SMALL = int((NUMBERS[:100_000] < 1 << 59).sum())


def rewritten(table: kc.Table, store: MemoryObjectStore) -> None:
    """Other files hold the rows, and those of before are deleted."""
    before = {name for name in store.objects if name.endswith(".rows")}
    keys = pa.array(range(100_000, 200_000))
    values = np.random.default_rng().integers(1 << 59, 1 << 60, len(keys))
    table.upsert(pa.table({"k": keys, "v": values}))
    table.flush()
    table.compact(full=True)
    for _ in range(1000):
        table.gc()
        if not before & set(store.objects):
            return
        time.sleep(0.001)
    raise AssertionError(f"{before} are still there")


def test_reads_begin_again_where_a_file_has_vanished() -> None:
    store = MemoryObjectStore()
    writer = created(store, file_grace_s=0.0)
    writer.insert(ROWS)
    for read in (
        lambda reader: reader.get(7) == {"k": 7, "v": int(NUMBERS[7])},
        lambda reader: reader.get_many(pa.table({"k": [7, 8]})).num_rows == 2,
        lambda reader: reader.scan().to_table().num_rows == 200_000,
        lambda reader: reader.count() == 200_000,
        lambda reader: reader.scan(where=[("k", "<", 100_000), ("v", "<", 1 << 59)]).count() == SMALL,
    ):
        reader = opened(store)
        rewritten(writer, store)
        assert read(reader)
        reader.close()
    writer.close()


def test_answers_begin_again_where_an_open_file_vanishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryObjectStore()
    writer = created(store, file_grace_s=0.0)
    writer.insert(ROWS)
    waiting = list[int]()
    after_opening(monkeypatch, lambda: rewritten(writer, store) if waiting and waiting.pop() else None)
    for answer in (
        lambda scan: scan.count() == SMALL,
        lambda scan: scan.min_max("v")[0] == min(NUMBERS[:100_000]),
        lambda scan: scan.to_table().num_rows == SMALL,
        lambda scan: scan.explain().rowsets_pruned == 0,
    ):
        with opened(store) as reader:
            waiting.append(1)
            assert answer(reader.scan(where=[("k", "<", 100_000), ("v", "<", 1 << 59)]))
            assert not waiting
    writer.close()


@pytest.mark.parametrize("net", [False, True])
def test_changes_begin_again_where_an_open_file_vanishes(net: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryObjectStore()
    writer = created(store, file_grace_s=0.0)
    since = writer.insert(pa.table({"k": [-1], "v": [0]})).timestamp
    writer.insert(ROWS)
    waiting = list[int]()
    after_opening(monkeypatch, lambda: rewritten(writer, store) if waiting and waiting.pop() else None)
    for answer in (
        lambda changes: sum(batch.num_rows for batch in changes) >= len(ROWS),
        lambda changes: changes.counts()[1].sum() >= len(ROWS),
    ):
        with opened(store) as reader:
            waiting.append(1)
            assert answer(reader.changes(since, net=net))
            assert not waiting
    writer.close()


def test_a_scan_in_the_middle_says_what_has_happened() -> None:
    store = MemoryObjectStore()
    writer = created(store, tablets=4, file_grace_s=0.0)
    writer.insert(ROWS)
    reader = opened(store)
    scan = iter(reader.scan(order="key", batch_rows=100))
    next(scan)
    for name in [name for name in store.objects if name.endswith(".rows")]:
        del store.objects[name]
    with pytest.raises(kc.SnapshotTooOld, match="file_grace_s, 0 s, for which files stay"):
        for _ in scan:
            pass
    reader.close()
    writer.close()


def test_a_file_that_the_newest_state_lacks_is_damage() -> None:
    store = MemoryObjectStore()
    with created(store) as writer:
        writer.insert(ROWS)
    (name,) = [name for name in store.objects if name.endswith(".rows")]
    del store.objects[name]
    with opened(store) as reader:
        with pytest.raises(FileMissing):
            reader.get(7)
        with pytest.raises(Corruption, match="the file is missing"):
            reader.scan().to_table()
        with pytest.raises(Corruption, match="the file is missing"):
            reader.verify()


def test_a_follower_looks_at_table_once_in_half_of_the_grace() -> None:
    store, clock = MemoryObjectStore(), ManualClock()
    writer = created(store, file_grace_s=100.0, clock=clock)
    writer.upsert([{"k": 1, "v": 1}])
    reader = opened(store, clock=clock)
    for seconds, gets in ((10, 1), (35, 1), (10, 3), (10, 1)):
        clock.advance(seconds)
        before = requests_of(store)
        reader.refresh()
        assert (spent(store, before)["get"] > 1) == (gets > 1), seconds
    reader.close()
    writer.close()


def test_the_log_that_was_shortened_meanwhile_is_not_taken_for_its_end() -> None:
    """A probe that is answered late says nothing: the objects of then may be gone."""
    store, clock = MemoryObjectStore(), ManualClock()
    writer = created(store, file_grace_s=100.0, clock=clock)
    writer.upsert([{"k": 1, "v": 1}])
    reader = opened(store, clock=clock)
    real = store.get_ranges

    def late(path: str, ranges: object) -> list[bytes]:
        clock.advance(60)
        return real(path, ranges)  # type: ignore[arg-type]

    store.get_ranges = late  # type: ignore[method-assign,assignment]
    before = requests_of(store)
    reader.refresh()
    assert spent(store, before)["get"] > 1, "TABLE is asked"
    store.get_ranges = real  # type: ignore[method-assign]
    reader.close()
    writer.close()


def test_now_is_readable_where_nobody_writes() -> None:
    store, clock = MemoryObjectStore(), ManualClock()
    writer = created(store, clock=clock)
    writer.upsert([{"k": 1, "v": 1}])
    clock.advance(5)
    with opened(store, clock=clock) as reader, pytest.raises(kc.SnapshotInFuture):
        reader.get(1, at=clock.now_us() << 12)
    writer.close()
    with opened(store, clock=clock) as reader:
        clock.advance(5)
        assert reader.get(1, at=clock.now_us() << 12) == {"k": 1, "v": 1}
        again = opened(store, "rw", clock=clock)
        with pytest.raises(kc.SnapshotInFuture):
            reader.get(1, at=clock.now_us() << 12)
        forget(again)
        with pytest.raises(kc.SnapshotInFuture):  # an expired lease says nothing
            reader.get(1, at=clock.now_us() << 12)


def test_the_grace_of_a_table_is_not_made_shorter_by_a_handle() -> None:
    store = MemoryObjectStore()
    created(store, file_grace_s=100.0).close()
    with pytest.raises(kc.InvalidArgument, match="its readers rely on that"):
        opened(store, "rw", options={"file_grace_s": 5})
    with opened(store, "rw", options={"file_grace_s": 500}) as table:
        assert rows_of(table) == {}
