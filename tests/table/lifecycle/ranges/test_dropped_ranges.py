"""The end of a dropped range: when its files go, who may still see it, and what tells of it."""

from __future__ import annotations

import os

import pytest

import kudu_core as kc
from kudu_core.events import Event, TableAltered, TabletsPurged
from tests.support.clock import ManualClock
from tests.table.lifecycle.ranges.conftest import BUCKETS, HOUR, SCHEMA, cells, days, keys_of, reopened


def directories(table: kc.Table) -> set[str]:
    return set(os.listdir(f"{table.path}/tablets"))


def test_a_dropped_tablet_goes_when_no_snapshot_may_see_it(table: kc.Table, clock: ManualClock) -> None:
    events: list[Event] = []
    table.close()
    table = kc.open_table(table.path, "rw", listener=events.append, _clock=clock)
    start = table.timestamp
    with table.snapshot() as pinned:
        scan = table.scan()
        running = iter(table.scan(batch_rows=5))
        next(running)
        ts = table.alter(drop_range=(0, 10))
        table.flush()
        clock.advance(2 * HOUR)
        table.insert([{"day": 15, "id": 50}])
        table.gc()
        assert keys_of(pinned.scan()) == keys_of(scan) == cells(range(20))
        assert len(directories(table)) == 2 * BUCKETS
    del scan
    table.gc()
    assert len(directories(table)) == 2 * BUCKETS  # the scan that runs holds the snapshot
    assert sum(batch.num_rows for batch in running) == 75
    del running
    for _ in range(2):
        table.gc()
    assert len(directories(table)) == BUCKETS
    assert [type(e) for e in events if isinstance(e, TableAltered | TabletsPurged)] == [
        TableAltered,
        TabletsPurged,
    ]
    for mode in ("rw", "r", "rw"):
        with pytest.raises(kc.SnapshotTooOld):
            table.scan(at=start)
        with pytest.raises(kc.SnapshotTooOld):
            table.get((1, 1), at=start)
        with pytest.raises(kc.SnapshotTooOld):
            table.get_many([(1, 1)], at=ts - 1)
        with pytest.raises(kc.ChangesLost):
            table.changes(ts - 1)
        assert table.count() == 41
        assert table.get((1, 1)) is None
        assert table.stats().to_pylist()[0]["tablets_dropped"] == 0
        table = reopened(table, clock, mode)
    new = table.alter(add_range=(0, 10))
    table.insert(days(range(10)))
    assert new > ts
    assert table.count() == 81
    assert directories(table) == {f"{i:08d}" for i in (*range(4, 7), *range(7, 10))}  # no id is used twice
    assert reopened(table, clock, "r").count() == 81


def test_what_a_purge_left_behind_goes_at_the_next_open(table: kc.Table, clock: ManualClock) -> None:
    table.flush()
    running = iter(table.scan(batch_rows=5, order="key"))
    next(running)
    table.alter(drop_range=(0, 10))
    clock.advance(2 * HOUR)
    table.insert([{"day": 15, "id": 50}])
    del running
    table.close()
    table = kc.open_table(table.path, "rw", options={"file_grace_s": 3600}, _clock=clock)
    table.gc()
    assert len(directories(table)) == 2 * BUCKETS  # a reader of another process may be at them
    assert table.stats().to_pylist()[0]["tablets_dropped"] == 0
    table = reopened(table, clock)
    assert len(directories(table)) == BUCKETS
    assert table.count() == 41
    table.close()


def test_a_reader_never_takes_a_purged_tablet_for_an_empty_one(table: kc.Table, clock: ManualClock) -> None:
    table.flush()
    before = table.timestamp
    reader = kc.open_table(table.path, _clock=clock)
    scan = reader.scan(at=before)
    table.alter(drop_range=(0, 10))
    clock.advance(2 * HOUR)
    table.insert([{"day": 15, "id": 50}])
    table.gc()
    table.gc()
    assert len(directories(table)) == BUCKETS
    with pytest.raises(kc.SnapshotTooOld):
        scan.to_table()
    reader.refresh()
    assert reader.count() == 41
    with pytest.raises(kc.SnapshotTooOld):
        reader.scan(at=before)
    reader.close()


def test_a_token_of_a_dropped_range(table: kc.Table, clock: ManualClock) -> None:
    tokens = table.scan_tokens()
    table.alter(drop_range=(0, 10))
    assert sum(table.scan_token(token).count() for token in tokens) == 80
    assert {token.tablet_id for token in table.scan_tokens()} == {4, 5}, "6 has no rows"
    clock.advance(2 * HOUR)
    table.insert([{"day": 15, "id": 50}])
    table.gc()
    for token in tokens:
        with pytest.raises(kc.SnapshotTooOld):
            table.scan_token(token)


def test_what_tells_of_the_table_tells_of_dropped_tablets(table: kc.Table) -> None:
    table.flush()
    ts = table.alter(drop_range=(0, 10), add_range=(20, 30))
    [stats] = table.stats().to_pylist()
    assert (stats["tablets"], stats["tablets_dropped"]) == (2 * BUCKETS, BUCKETS)
    by_tablet = table.stats("tablet").to_pylist()
    assert [t["dropped_ts"] for t in by_tablet] == [ts] * 3 + [None] * 6
    assert [t["created_ts"] for t in by_tablet] == [0] * 6 + [ts] * 3
    assert table.layout().count(f"dropped at {ts}") == BUCKETS
    assert table.verify().files == sum(t["rowsets"] for t in by_tablet) > BUCKETS


def test_create_with_exist_ok_takes_the_ranges_of_today(table: kc.Table, clock: ManualClock) -> None:
    table.alter(drop_range=(0, 10), add_range=(20, 30))
    table.close()

    def create(bounds: list[tuple[int, int]]) -> kc.Table:
        cut = [kc.HashPartition("id", BUCKETS), kc.RangePartition("day", bounds)]
        return kc.create_table(
            table.path, SCHEMA, ["day", "id"], partition_by=cut, exist_ok=True, _clock=clock
        )

    create([(20, 30), (10, 20)]).close()
    with pytest.raises(kc.TableExists):
        create([(0, 10), (10, 20)])


def test_the_id_of_a_purged_tablet_is_not_used_again(table: kc.Table, clock: ManualClock) -> None:
    """Not even the largest: the log and a reader may still know it as another tablet."""
    table.flush()
    table.alter(drop_range=(10, 20))
    clock.advance(2 * HOUR)
    table.insert([{"day": 5, "id": 50}])
    table.gc()
    table.gc()
    assert directories(table) == {f"{i:08d}" for i in range(1, 4)}
    for drop in (False, True):
        table = reopened(table, clock)
        table.alter(add_range=(20, 30) if drop else (10, 20))
        table.insert(days(range(20, 30) if drop else range(10, 20)))
        assert table.count() == 41 + 40 * (1 + drop)
    assert directories(table) == {f"{i:08d}" for i in (*range(1, 4), *range(7, 13))}
    table.close()
