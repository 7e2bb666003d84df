"""A replay of records in groups leaves what a replay of one record after the other leaves."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.tablet.replay import bootstrap, groups
from kudu_core.tablet.replay.groups import GroupSize
from kudu_core.tablet.store import records
from tests.support.faults import TINY, drop, segments_of
from tests.support.inside import engine_of

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
OPTIONS = {"durability": "none", "maintenance": "manual"}


def rows(keys: Any, value: int) -> pa.Table:
    keys = np.asarray(keys, np.int64)
    text = [None if (int(key) + value) % 5 == 0 else f"{value}" * (int(key) % 7) for key in keys]
    return pa.table({"k": keys, "v": keys * 1000 + value, "s": pa.array(text, pa.string())})


def random_call(table: kc.Table, rng: random.Random, number: int, live: set[int], many: int) -> None:
    """One write, of few keys out of ``many``: so that groups meet keys that they have, or rarely do."""
    op = rng.choice(("insert", "upsert", "upsert", "update", "one column", "delete", "delete"))
    if op == "insert":
        free = [key for key in rng.sample(range(many), min(many, 12)) if key not in live]
        table.insert(rows(free, number))
        live.update(free)
    elif op == "upsert":
        keys = rng.sample(range(many), min(many, rng.randrange(1, 9)))
        table.upsert(rows(keys, number), txn=("app", number) if rng.random() < 0.3 else None)
        live.update(keys)
    else:
        keys = rng.sample(sorted(live), min(len(live), rng.randrange(1, 9)))
        if op == "update":
            table.update(rows(keys, number))
        elif op == "one column":
            table.update({"k": keys, "v": [number] * len(keys)})
        else:
            table.delete({"k": keys})
            live.difference_update(keys)


def unfinished(path: Path, rng: random.Random, tablets: int, many: int, calls: int) -> list[int]:
    """A table that was not closed, with rows on disk, in memory and dead; the times of its writes."""
    partition_by = kc.HashPartition(["k"], tablets) if tablets > 1 else ()
    table = kc.create_table(path, SCHEMA, "k", partition_by=partition_by, options=OPTIONS)
    live = set(rng.sample(range(many), many // 3))
    times = [table.insert(rows(sorted(live), 0)).timestamp]
    table.flush()
    for number in range(1, calls):
        random_call(table, rng, number, live, many)
        times.append(engine_of(table).log.last_record_ts)
        if rng.random() < 0.05:
            table.flush()
        if number == calls // 2:
            table.alter(add=[pa.field("extra", pa.int32())])
    drop(table)
    return sorted(set(times))


@contextmanager
def group_sizes(monkeypatch: pytest.MonkeyPatch, size: int | None) -> Iterator[list[int]]:
    """Groups of so many records; None: as they are.  What is given are the sizes of those laid."""
    laid: list[int] = []
    real = bootstrap.Replay.apply_group

    def counted(replay: bootstrap.Replay, waiting: Any) -> int:
        count = real(replay, waiting)
        laid.append(count)
        return count

    with monkeypatch.context() as patched:
        patched.setattr(bootstrap.Replay, "apply_group", counted)
        if size is not None:
            patched.setattr(GroupSize, "next_size", lambda sizes: size)
        yield laid


def log_state(log: ChangeLog) -> tuple[Any, ...]:
    columns = {}
    for column_id in sorted(log.column_ids):
        numbers, rowids, values = log.column_changes(column_id, 0, len(log))
        cells = [None if values.is_null(row) else values.cell(row) for row in range(values.length)]
        columns[column_id] = numbers.tolist(), rowids.tolist(), cells
    return (*(part.tolist() for part in log.changes(0, len(log))), columns)


def memory_state(table: kc.Table) -> list[Any]:
    """What lies in memory, store by store, in its order."""
    state: list[Any] = []
    for tablet in engine_of(table).tablets:
        for memory in (tablet.view.active, *tablet.view.frozen):
            cells = {i: memory.read(i, 0, len(memory)) for i in memory.schema.by_id}
            columns = {
                i: [None if c.is_null(row) else c.cell(row) for row in range(c.length)]
                for i, c in cells.items()
                if c is not None
            }
            live = memory.is_live(np.arange(len(memory))).tolist()
            logs = [log_state(log) for log in memory.logs]
            state.append((memory.inserted(0, len(memory)).tolist(), columns, live, logs))
        for rowset in tablet.view.rowsets:
            assert isinstance(rowset, DiskRowSet)
            state.append((rowset.id, [log_state(log) for log in rowset.memory_stores]))
        state.append(tablet.newest_applied)
    return state


def look(path: Path, times: list[int], mode: str) -> dict[str, Any]:
    with kc.open_table(path, mode, options=OPTIONS if mode == "rw" else None) as table:
        tokens = engine_of(table).writers.applied_writes
        found: dict[str, Any] = {"memory": memory_state(table), "tokens": dict(tokens)}
        for ts in times:
            found[f"at {ts}"] = table.scan(at=ts).to_table().sort_by("k").to_pylist()
        changes = table.changes(since=times[0]).to_table().to_pylist()
        found["changes"] = sorted(changes, key=lambda row: (row["_timestamp"], row["k"], str(row)))
    return found


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("tablets", [1, 5])
@pytest.mark.parametrize("many", [30, 3000])
def test_groups_leave_what_single_records_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, tablets: int, many: int, seed: int, long: bool
) -> None:
    grouped = 0
    for run in range(40 if long else 2):
        rng = random.Random(seed * 10_000 + run)
        path = tmp_path / f"{run}"
        times = unfinished(path, rng, tablets, many, 60)
        shutil.copytree(path, tmp_path / f"{run} again")
        with group_sizes(monkeypatch, 1) as laid:
            expected = look(path, times, mode)
        assert not laid
        with group_sizes(monkeypatch, rng.choice((None, 3, 50))) as laid:
            assert look(tmp_path / f"{run} again", times, mode) == expected
        grouped += sum(laid)
    assert grouped >= 4, "no records were laid together"


def test_small_records_of_many_tablets_are_looked_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tablets, records = tmp_path / "t", 16, 12
    table = kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition(["k"], tablets), options=OPTIONS)
    for number in range(records):
        table.insert(rows(range(number * 100, number * 100 + 100), number))
    drop(table)
    calls = []
    real = groups.locate_newest
    monkeypatch.setattr(groups, "locate_newest", lambda *a, **k: calls.append(1) or real(*a, **k))
    with kc.open_table(path, "r") as reader:
        assert reader.count() == records * 100
    assert len(calls) == tablets


@pytest.mark.parametrize("flushed", [False, True])
def test_keys_that_come_again_as_updates_go_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushed: bool
) -> None:
    """Of rows on disk, in memory, and of the group itself; each time sees its own values."""
    path = tmp_path / "t"
    table = kc.create_table(path, SCHEMA, "k", options=OPTIONS)
    table.insert(rows(range(50), 0))
    if flushed:
        table.flush()
    times, states = [], []
    for number in range(1, 9):
        table.upsert(rows([3, 7, 100, 100 + number, 40 + number], number))
        times.append(engine_of(table).log.last_record_ts)
        states.append(table.scan().to_table().sort_by("k"))
    drop(table)
    with group_sizes(monkeypatch, None) as laid, kc.open_table(path, "r") as reader:
        for ts, state in zip(times, states, strict=True):
            assert reader.scan(at=ts).to_table().sort_by("k") == state
        assert [row["v"] for row in reader.changes(key=100).to_table().to_pylist()] == [
            100_000 + number for number in range(1, 9)
        ]
    assert laid == [8 if flushed else 9]


def test_a_key_in_every_record_is_not_tried_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, records = tmp_path / "t", 500
    table = kc.create_table(path, SCHEMA, "k", options=OPTIONS)
    for number in range(records):
        table.upsert(rows([7], number))
        table.delete({"k": [7]})
    drop(table)
    with group_sizes(monkeypatch, None) as laid, kc.open_table(path, "r") as reader:
        assert reader.get(7) is None
        assert reader.count() == 0
    assert 0 < len(laid) <= 8, laid


@pytest.mark.parametrize("small_segments", [False, True])
def test_a_broken_record_in_a_group_ends_the_picture_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_segments: bool
) -> None:
    """The records before it are laid, those after it are not; the record and its place are told, also where a
    group goes on in another segment."""
    path, count, broken = tmp_path / "t", 24, -1
    with segments_of(TINY) if small_segments else nullcontext():
        table = kc.create_table(path, SCHEMA, "k", options=OPTIONS)
        table.close()
        table = kc.open_table(path, "rw", options=OPTIONS)
        for number in range(count):
            table.insert(rows([number], number))
        drop(table)
    segments = len(list((path / "wal").glob("*.log")))
    assert segments > 3 if small_segments else segments == 1
    real = records.decode

    def decode(data: memoryview, where: str, offset: int) -> records.Payload:
        payload = real(data, where, offset)
        if int.from_bytes(bytes(payload.sections[0].block.columns[1].values[:8]), "little") == broken:
            raise kc.Corruption(where, offset, "forged")
        return payload

    monkeypatch.setattr(records, "decode", decode)
    for broken in range(1, count):
        with group_sizes(monkeypatch, None) as laid:
            with pytest.warns(kc.errors.UnreplayedWarning):
                reader = kc.open_table(path, "r")
            with reader:
                assert sorted(reader.scan().to_table()["k"].to_pylist()) == list(range(broken))
                assert reader.unreplayed is not None
                assert reader.unreplayed.path.endswith(".log")
                assert reader.unreplayed.offset > 0
        assert broken - sum(laid) in (0, 1)  # one before it may go alone


def test_sizes_of_groups_follow_what_comes_of_them() -> None:
    sizes = GroupSize()
    assert sizes.next_size() == groups.FIRST_RECORDS
    sizes.tried(groups.FIRST_RECORDS, groups.FIRST_RECORDS)
    assert sizes.next_size() == 2 * groups.FIRST_RECORDS
    sizes.tried(5, 5)  # the log had no more
    assert sizes.next_size() == 2 * groups.FIRST_RECORDS
    sizes.tried(32, 3)
    assert sizes.next_size() == 6
    sizes.tried(6, 0)
    assert [sizes.next_size() for _ in range(groups.SINGLE_RECORDS)] == [1] * groups.SINGLE_RECORDS
    assert sizes.next_size() == groups.FIRST_RECORDS
    sizes.tried(groups.FIRST_RECORDS, 1)
    assert [sizes.next_size() for _ in range(2 * groups.SINGLE_RECORDS + 1)][-2:] == [1, groups.FIRST_RECORDS]
