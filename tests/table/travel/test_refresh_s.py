"""``open_table(refresh_s=)``: a reader that looks for a newer state by itself, when it is time to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.clock import ManualClock
from tests.support.fs.slow import LATE_S, Thread
from tests.support.inside import before_each_open
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created, opened

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
AGE_S = 10.0


@pytest.fixture
def writer(path: Path) -> Iterator[kc.Table]:
    with kc.create_table(path, SCHEMA, "k", options={"maintenance": "manual"}) as table:
        table.insert({"k": [1], "v": [0]})
        yield table


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def reader_of(path: Path, clock: ManualClock, refresh_s: float | None = AGE_S) -> tuple[kc.Table, list[int]]:
    """A reader, and a list that grows with each state that it opens after the first."""
    reader = kc.open_table(path, refresh_s=refresh_s, _clock=clock)
    looks: list[int] = []
    before_each_open(reader, lambda: looks.append(1))
    return reader, looks


READS: dict[str, Callable[[kc.Table], Any]] = {
    "get": lambda t: t.get(1),
    "get of a column": lambda t: t.get(1, ["v"]),
    "get_many": lambda t: t.get_many([1])["v"].to_pylist(),
    "count": lambda t: t.count([("v", "==", 0)]),
    "scan": lambda t: t.scan().to_pylist(),
    "snapshot": lambda t: t.snapshot().get(1),
    "changes": lambda t: t.changes().to_table().num_rows,
    "scan_tokens": lambda t: t.scan_tokens()[0].timestamp,
    "change_tokens": lambda t: t.change_tokens(None, net=True)[0].timestamp,
    "to_dataset": lambda t: t.to_dataset().to_table().to_pylist(),
}


@pytest.mark.parametrize("name", READS)
def test_a_read_refreshes_what_is_older(writer: kc.Table, path: Path, clock: ManualClock, name: str) -> None:
    read = READS[name]
    reader, looks = reader_of(path, clock)
    with reader:
        first = read(reader)
        writer.upsert({"k": [1], "v": [1]})
        clock.advance(AGE_S - 0.5)
        assert read(reader) == first and not looks, "it is not that old yet"
        clock.advance(0.5)
        newest = read(reader)
        assert newest != first and looks == [1]
        with kc.open_table(path, _clock=clock) as fresh:
            assert newest == read(fresh)
        assert read(reader) == newest and looks == [1], "one look, from which its age is counted anew"


def test_without_it_nothing_is_looked_for(writer: kc.Table, path: Path, clock: ManualClock) -> None:
    reader, looks = reader_of(path, clock, None)
    with reader:
        clock.advance(1e6)
        for read in READS.values():
            read(reader)
        assert not looks


def test_zero_looks_before_each_read(writer: kc.Table, path: Path, clock: ManualClock) -> None:
    reader, looks = reader_of(path, clock, 0)
    with reader:
        for number in range(3):
            writer.upsert({"k": [1], "v": [number]})
            assert reader.get(1) == {"k": 1, "v": number} and len(looks) == number + 1


def test_any_refresh_counts(writer: kc.Table, path: Path, clock: ManualClock) -> None:
    """By the caller, too."""
    reader, looks = reader_of(path, clock)
    with reader:
        clock.advance(AGE_S)
        reader.refresh()
        clock.advance(AGE_S - 1)
        reader.get(1)
        assert looks == [1]


def test_threads_make_one_refresh(writer: kc.Table, path: Path, clock: ManualClock) -> None:
    """Those that find it old while one of them looks wait for that look, and make none of their own."""
    reader, looks = reader_of(path, clock)
    begun: list[int] = []

    def get() -> Any:
        begun.append(1)
        return reader.get(1)

    def until_all_wait() -> None:
        while len(begun) < 8:
            time.sleep(0.001)
        time.sleep(0.05)

    with reader:
        before_each_open(reader, until_all_wait)
        writer.upsert({"k": [1], "v": [1]})
        clock.advance(AGE_S)
        threads = [Thread(get) for _ in range(8)]
        for thread in threads:
            thread.join(LATE_S)
        assert [thread.answer[0] for thread in threads] == [{"k": 1, "v": 1}] * 8 and looks == [1]


def test_what_was_begun_keeps_its_state(writer: kc.Table, path: Path, clock: ManualClock) -> None:
    """Scans and snapshots are of one moment; to read them refreshes nothing."""
    reader, looks = reader_of(path, clock)
    with reader:
        scan, snapshot = reader.scan(), reader.snapshot()
        writer.upsert({"k": [1], "v": [1]})
        clock.advance(AGE_S)
        assert scan.to_pylist() == [{"k": 1, "v": 0}] and snapshot.get(1) == {"k": 1, "v": 0}
        assert snapshot.scan().count() == 1 and not looks
        assert reader.get(1) == {"k": 1, "v": 1}
        assert scan.to_pylist() == [{"k": 1, "v": 0}] and snapshot.get(1) == {"k": 1, "v": 0}


def test_a_writer_has_no_use_for_it(path: Path, writer: kc.Table) -> None:
    writer.close()
    for mode in ("rw", "auto"):
        with kc.open_table(path, mode, refresh_s=0) as table:
            table.upsert({"k": [1], "v": [5]})
            assert table.get(1) == {"k": 1, "v": 5}


def test_one_request_where_nothing_is_new() -> None:
    """Of a table in an object store."""
    store, clock = MemoryObjectStore(), ManualClock()
    with created(store, clock=clock) as writer, opened(store, clock=clock, refresh_s=AGE_S) as reader:
        writer.insert({"k": [1], "v": [1]})
        assert reader.count() == 0
        clock.advance(AGE_S)
        assert reader.count() == 1
        clock.advance(AGE_S)
        before = reader.metrics()["requests_get"]
        assert [reader.get(1), reader.get(2), reader.count()] == [{"k": 1, "v": 1}, None, 1]
        assert reader.metrics()["requests_get"] == before + 1


def test_it_travels(writer: kc.Table, path: Path) -> None:
    import pickle

    with kc.open_table(path, refresh_s=0) as reader, pickle.loads(pickle.dumps(reader)) as arrived:
        for number in range(2):
            writer.upsert({"k": [1], "v": [number]})
            assert arrived.get(1) == {"k": 1, "v": number}


@pytest.mark.parametrize("wrong", [-1, "1", True, float("nan"), [1]])
def test_what_is_no_age(writer: kc.Table, path: Path, wrong: Any) -> None:
    with pytest.raises(kc.InvalidArgument, match="refresh_s is a number of seconds"):
        kc.open_table(path, refresh_s=wrong)
