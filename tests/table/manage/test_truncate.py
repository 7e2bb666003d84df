"""``truncate``: nothing is there after it, everything before it, and it costs no row."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

import kudu_core as kc
from tests.support.fs.faulty import FaultyFileSystem
from tests.support.fs.memory import MemoryFileSystem
from tests.support.fs.slow import SCHEMA, rows
from tests.support.tables import Make
from tests.table.manage.worlds import PLACES, World


@pytest.mark.parametrize("place", PLACES)
def test_what_is_there_after_it_and_before_it(place: str, tmp_path: Path, seed: int) -> None:
    for number in range(3):
        rng = random.Random(seed * 100 + number)
        world = World(place, tmp_path / str(number)) if place == "store" else World(place, made(tmp_path))
        world.churn(rng)
        before = world.note()
        held, tokens = world.table.snapshot(), world.table.scan_tokens()
        at = world.table.truncate()
        assert at > before and world.table.timestamp == at
        world.rows = {}
        world.note()
        changes = world.table.changes(before, images="both").to_table()
        assert set(changes["_op"].to_pylist()) <= {"delete"}
        assert sorted(changes["k"].to_pylist()) == sorted(world.then[before])
        gone = {c["k"]: (c["_before"]["v"], c["_before"]["s"]) for c in changes.to_pylist()}
        assert gone == world.then[before]
        world.check()
        assert sum(world.table.scan_token(token).count() for token in tokens) == len(world.then[before])
        assert held.scan().count() == len(world.then[before])
        held.close()
        world.churn(rng)
        world.check()
        world.reopen()
        world.check()
        world.table.verify()
        world.table.close()


def made(tmp_path: Path) -> Path:
    folder = tmp_path / f"f{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("place", PLACES)
def test_its_files_go_with_the_history(place: str, tmp_path: Path) -> None:
    world = World(place, tmp_path, history_retention_s=0, file_grace_s=0)
    world.write(random.Random(1), range(50), 50)
    world.table.flush()
    before = world.table.timestamp
    world.table.truncate()
    world.table.insert({"k": [1]})
    world.table.gc()
    world.table.gc()
    with pytest.raises(kc.SnapshotTooOld):
        world.table.count(at=before)
    ids = world.table.stats("tablet").column("tablet").to_pylist()
    assert len(ids) == 2 and min(ids) > 2, "the old tablets are purged"
    world.reopen()
    assert world.table.count() == 1
    world.table.close()


def test_after_an_alter_and_in_ranges(make: Make) -> None:
    part = kc.RangePartition(["k"], bounds=[(0, 10), (10, 20)])
    table = make(partition_by=part)
    table.insert({"k": [1, 11], "a": [1, 2]})
    table.alter(add=[kc.Column("more", "int64", default=5)], drop_range=(0, 10))
    before = table.timestamp
    table.truncate()
    table.alter(add_range=(0, 10))
    assert table.count() == 0 and table.schema.names[-1] == "more"
    table.insert({"k": [2, 12]})
    assert table.scan(["k", "more"], order="key").to_pylist() == [{"k": 2, "more": 5}, {"k": 12, "more": 5}]
    assert table.scan(["k", "more"], at=before).to_pylist() == [{"k": 11, "more": 5}]
    with pytest.raises(kc.RowErrors):
        table.insert({"k": [20]})


def test_tokens_stay(make: Make) -> None:
    table = make()
    table.insert({"k": [1]}, txn=("job", 1))
    table.truncate()
    assert table.insert({"k": [1]}, txn=("job", 1)).deduplicated and table.count() == 0


def test_a_reader_may_not(make: Make, path: Path) -> None:
    make().insert({"k": [1]})
    with kc.open_table(path) as reader, pytest.raises(kc.ReadOnly):
        reader.truncate()


def test_writers_beside_it(make: Make) -> None:
    """Each of their writes comes before it or after it, and none is lost between."""
    table = make(durability="sync", ingest_threshold_rows=100)
    stop = threading.Event()
    times: dict[int, int] = {}

    def write(first: int) -> None:
        key = first
        while not stop.is_set():
            many = list(range(key, key + (150 if key % 7 == 0 else 1) * 4, 4))
            ts = table.insert({"k": many}).timestamp
            times.update(dict.fromkeys(many, ts))
            key = many[-1] + 4

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    last = 0
    for _ in range(5):
        while len(times) < 50:
            pass
        last = table.truncate()
    stop.set()
    for thread in threads:
        thread.join()
    there = set(table.scan(["k"]).to_table()["k"].to_pylist())
    assert there == {key for key, ts in times.items() if ts > last}
    assert times and min(times.values()) < last


def test_what_it_costs() -> None:
    """As many calls of the file system for a thousand rows as for ten."""
    calls = []
    for count in (10, 1000):
        memory = MemoryFileSystem()
        memory.mkdir("/d")
        fs = FaultyFileSystem(memory)
        options = {"maintenance": "manual", "ingest_threshold_rows": 500}
        table = kc.create_table("/d/t", SCHEMA, "k", options=options, _fs=fs)
        table.insert(rows(0, count))
        table.flush()
        before = fs.calls
        table.truncate()
        calls.append(fs.calls - before)
        assert table.count() == 0
        table.close()
    assert calls[0] == calls[1] < 60
