"""``restore_to``: the rows of a past time are those of now, as one record; what was since stays readable."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.write.whole import restore_to as module
from tests.support.tables import Make
from tests.table.manage.worlds import PLACES, World, found


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("retention_s", [None, 86_400])
def test_any_time_of_a_random_past(place: str, retention_s: int | None, tmp_path: Path, seed: int) -> None:
    """Also the time before another restore, and before a truncation."""
    rng = random.Random(seed)
    world = World(place, tmp_path, history_retention_s=retention_s)
    world.note()
    for number in range(7):
        world.churn(rng, 4)
        if number == 3:
            world.table.truncate()
            world.rows = {}
            world.note()
        at = rng.choice(list(world.then))
        world.note()
        before = world.rows
        result = world.table.restore_to(at)
        differ = {k for k in before.keys() | world.then[at].keys() if before.get(k) != world.then[at].get(k)}
        assert result.inserted + result.updated + result.deleted == len(differ)
        assert result.inserted == len(differ - before.keys())
        assert result.deleted == len(differ - world.then[at].keys())
        world.rows = world.then[at]
        world.note()
        assert found(world.table) == world.rows
        if number in (2, 5):
            world.reopen()
    world.check()
    world.table.verify()
    world.table.close()


def test_one_record_that_another_undoes(make: Make) -> None:
    table = make()
    first = table.insert({"k": [1, 2], "a": [10, 20]}).timestamp
    second = table.upsert({"k": [2, 3], "a": [21, 30]}).timestamp
    result = table.restore_to(first)
    assert (result.inserted, result.updated, result.deleted) == (0, 1, 1)
    changes = table.changes(second).to_table()
    assert set(changes["_timestamp"].to_pylist()) == {result.timestamp} and len(changes) == 2
    assert table.verify().records == 3
    again = table.restore_to(second)
    assert (again.inserted, again.updated, again.deleted) == (1, 1, 0)
    assert table.scan(["k", "a"], order="key").to_table()["a"].to_pylist() == [10, 21, 30]
    assert table.count(at=result.timestamp) == 2
    nothing = table.restore_to(table.timestamp)
    assert nothing.counts == (0, 0, 0, 0) and nothing.timestamp == again.timestamp
    assert table.verify().records == 4, "where nothing differs, nothing is written"


def test_more_rows_than_memory_takes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    spilled = []
    usual = module.sorted_or_spilled

    def counting(engine: Any, calls: Any, staging: str, files: Any, most_bytes: int) -> Any:
        rows = usual(engine, calls, staging, files, min(most_bytes, 1000))
        spilled.append(type(rows.runs[0]).__name__)
        return rows

    monkeypatch.setattr(module, "sorted_or_spilled", counting)
    table = make(partition_by=kc.HashPartition(["k"], 3))
    keys = list(range(5000))
    before = table.insert(pa.table({"k": keys, "a": keys, "s": [f"s{k}" for k in keys]})).timestamp
    table.flush()
    table.update(where=[("k", ">=", 2500)], set={"a": -1})
    table.delete([*range(1000)])
    table.insert({"k": [*range(5000, 6000)]})
    want = table.scan(at=before, order="key").to_table()
    result = table.restore_to(before)
    assert (result.inserted, result.updated, result.deleted) == (1000, 2500, 1000)
    assert spilled == ["SpilledRun"]
    assert table.scan(order="key").to_table() == want


def test_columns_that_came_and_went(make: Make) -> None:
    table = make()
    then = table.insert({"k": [1, 2], "a": [10, 20], "s": ["x", "y"]}).timestamp
    table.flush()
    table.alter(drop=["s"], rename={"a": "b"}, add=[kc.Column("new", "int32", default=7)])
    table.update({"k": [1], "new": [8]})
    table.update({"k": [2], "b": [21]})
    table.insert({"k": [3], "b": [30], "new": [9]})
    assert table.restore_to(then).counts == (0, 2, 1, 0)
    assert table.scan(order="key").to_pylist() == [
        {"k": 1, "b": 10, "must": 7, "new": 7}, {"k": 2, "b": 20, "must": 7, "new": 7}
    ]  # fmt: skip


def test_ranges_that_came_and_went(make: Make) -> None:
    table = make(partition_by=kc.RangePartition(["k"], bounds=[(0, 10), (10, 20)]))
    then = table.insert({"k": [1, 11]}).timestamp
    table.alter(drop_range=(0, 10), add_range=(20, 30))
    table.insert({"k": [21]})
    now = table.timestamp
    with pytest.raises(kc.InvalidArgument, match=r"1 rows of .* dropped since, as {'k': 1}.*add_range"):
        table.restore_to(then)
    assert table.timestamp == now and table.scan(["k"], order="key").to_table()["k"].to_pylist() == [11, 21]
    table.alter(add_range=(0, 10))
    table.restore_to(then)
    assert table.scan(["k"], order="key").to_table()["k"].to_pylist() == [1, 11]


def test_every_kind_of_column(make: Make) -> None:
    pair = pa.struct([("x", pa.int32()), ("y", pa.string())])
    schema = pa.schema([
        ("k", pa.string()), ("d", pa.decimal128(12, 2)), ("b", pa.bool_()),
        ("when", pa.timestamp("us", "UTC")), ("l", pa.list_(pair)), ("m", pa.map_(pa.string(), pa.int64())),
    ])  # fmt: skip
    table = make(schema)
    when = datetime(2026, 1, 2, tzinfo=UTC)
    row = {"k": "a", "d": None, "b": True, "when": when, "l": [{"x": 1, "y": None}, None], "m": [("z", 1)]}
    then = table.insert([row, {"k": "b"}, {"k": "c", "l": [], "m": []}]).timestamp
    want = table.scan(order="key").to_table()
    table.upsert([{"k": "a", "b": None, "l": None, "m": [("q", None)]}])
    table.upsert([{"k": "b", "l": [{"x": 2, "y": "w"}]}])
    table.delete(["c"])
    table.flush()
    table.restore_to(then)
    assert table.scan(order="key").to_table() == want


def test_what_is_refused(make: Make, path: Path) -> None:
    table = make(history_retention_s=0)
    old = table.insert({"k": [1, 2, 3]}).timestamp
    table.delete([3])
    table.flush()
    table.compact(full=True)
    with pytest.raises(kc.SnapshotTooOld):
        table.restore_to(old)
    with pytest.raises(kc.InvalidArgument, match="looks like seconds"):
        table.restore_to(1767225600)
    with kc.open_table(path) as reader, pytest.raises(kc.ReadOnly):
        reader.restore_to(old)
    assert table.count() == 2


def test_nothing_comes_between(make: Make) -> None:
    """What writers insert meanwhile is of before the restore, and gone with it, or of after it."""
    table = make(partition_by=kc.HashPartition(["k"], 4), durability="sync")
    then = table.insert({"k": [-1, -2]}).timestamp
    stop = threading.Event()
    times: list[tuple[int, set[int]]] = []

    def write(first: int) -> None:
        key = first
        while not stop.is_set():
            keys = [key, key + 2, key + 4]
            times.append((table.insert({"k": keys}).timestamp, set(keys)))
            key += 6

    threads = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    restored = []
    for _ in range(6):
        seen = len(times)
        while len(times) < seen + 3:
            pass
        restored.append(table.restore_to(then).timestamp)
    stop.set()
    for thread in threads:
        thread.join()
    for ts in restored:
        assert set(table.scan(["k"], at=ts).to_table()["k"].to_pylist()) == {-1, -2}
    left = set().union(*(keys for ts, keys in times if ts > restored[-1]))
    assert set(table.scan(["k"]).to_table()["k"].to_pylist()) == {-1, -2} | left
