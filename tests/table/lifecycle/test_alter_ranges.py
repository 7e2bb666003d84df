"""Ranges added and dropped: which rows there are at which time, what changes tell, when files go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.events import Event, TableAltered, TabletsPurged
from tests.support.clock import ManualClock
from tests.support.inside import tablets_of

SCHEMA = pa.schema([("day", pa.int64()), ("id", pa.int64()), ("v", pa.string())])
MANUAL = {"maintenance": "manual", "scan_threads": 1, "file_grace_s": 0}
BUCKETS = 3
HOUR = 3600.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def table(tmp_path: Path, clock: ManualClock) -> Iterator[kc.Table]:
    made = kc.create_table(
        str(tmp_path / "t"),
        SCHEMA,
        ["day", "id"],
        partition_by=[kc.HashPartition("id", BUCKETS), kc.RangePartition("day", [(0, 10), (10, 20)])],
        options={**MANUAL, "history_retention_s": HOUR},
        _clock=clock,
    )
    made.insert(days(range(20)))
    yield made
    made.close()


def days(wanted: range, ids: range = range(4), v: str = "x") -> dict[str, list[Any]]:
    keys = [(day, id_) for day in wanted for id_ in ids]
    return {"day": [k[0] for k in keys], "id": [k[1] for k in keys], "v": [f"{v}{k}" for k in keys]}


def keys_of(scan: Any) -> set[tuple[int, int]]:
    found = scan.to_table()
    keys = list(zip(found["day"].to_pylist(), found["id"].to_pylist(), strict=True))
    assert len(set(keys)) == len(keys)
    return set(keys)


def cells(wanted: range, ids: range = range(4)) -> set[tuple[int, int]]:
    return {(day, id_) for day in wanted for id_ in ids}


def reopened(table: kc.Table, clock: ManualClock, mode: str = "rw") -> kc.Table:
    table.close()
    return kc.open_table(table.path, mode, _clock=clock)


def ordinals(table: kc.Table) -> set[int]:
    return {t.partition.ordinal for t in tablets_of(table)}


@pytest.mark.parametrize("flushed", [False, True])
def test_a_dropped_range_is_seen_by_snapshots_from_before(
    table: kc.Table, clock: ManualClock, flushed: bool
) -> None:
    if flushed:
        table.flush()
    before = table.timestamp
    ts = table.alter(drop_range=(0, 10))
    for mode in ("rw", "r", "rw"):
        assert keys_of(table.scan()) == keys_of(table.scan(at=ts)) == cells(range(10, 20))
        assert keys_of(table.scan(at=before)) == keys_of(table.scan(at=ts - 1)) == cells(range(20))
        assert keys_of(table.scan(at=before, order="key")) == cells(range(20))
        assert keys_of(table.scan(where=pc.field("day") < 12)) == cells(range(10, 12))
        assert keys_of(table.scan(where=pc.field("day") == 3, at=before)) == cells(range(3, 4))
        assert keys_of(table.scan(key_range=((3,), (11,)), at=before)) == cells(range(3, 11))
        assert table.count() == 40
        assert table.count(at=before) == 80
        assert table.scan().min_max("day") == (10, 19)
        assert table.scan(at=before).min_max("day") == (0, 19)
        assert table.get((3, 1)) is None
        assert table.get((3, 1), at=before) == {"day": 3, "id": 1, "v": "x(3, 1)"}
        assert table.get((13, 1), at=before) == table.get((13, 1))
        many = table.get_many([(3, 1), (13, 1)])
        assert many["_found"].to_pylist() == [False, True]
        assert table.get_many([(3, 1), (13, 1)], at=before)["_found"].to_pylist() == [True, True]
        explained = table.scan().explain()
        assert (explained.tablets, table.scan(at=before).explain().tablets) == (BUCKETS, 2 * BUCKETS)
        table = reopened(table, clock, mode)
    table.close()


@pytest.mark.parametrize("rows", [3, 300])
def test_writes_into_a_dropped_range_find_no_partition(
    table: kc.Table, clock: ManualClock, tmp_path: Path, rows: int
) -> None:
    table.close()
    table = kc.open_table(table.path, "rw", options={"ingest_threshold_rows": 100}, _clock=clock)
    table.alter(drop_range=(0, 10))
    data = days(range(1, 2), range(rows))
    for write in (table.insert, table.upsert, table.update):
        result = write(data, on_error="return")
        assert set(result.errors["code"].to_pylist()) == {"no_partition"}
        assert result.errors.num_rows == rows
    with pytest.raises(kc.RowErrors, match="no_partition"):
        table.insert([{"day": 1, "id": 1}])
    with pytest.raises(kc.RowErrors, match="no_partition"):
        table.delete([{"day": 1, "id": 1}])
    assert table.update(where=pc.field("day") < 11, set={"v": "y"}).updated == 4
    assert table.delete(where=pc.field("day") < 11).deleted == 4
    assert table.count() == 36
    table.close()


def test_the_same_range_again_is_another_tablet(table: kc.Table, clock: ManualClock) -> None:
    start = table.timestamp
    first = ordinals(table)
    table.alter(drop_range=(0, 10), add_range=(0, 10))  # emptied
    emptied = table.timestamp
    table.insert(days(range(3), v="new"))
    filled = table.timestamp
    assert ordinals(table) - first == {6, 7, 8}
    for _ in range(2):
        assert keys_of(table.scan()) == cells(range(3)) | cells(range(10, 20))
        assert keys_of(table.scan(at=emptied)) == cells(range(10, 20))
        assert keys_of(table.scan(at=start)) == cells(range(20))
        assert table.get((1, 1), ["v"]) == {"v": "new(1, 1)"}
        assert table.get((1, 1), at=emptied) is None
        assert table.get((1, 1), ["v"], at=start) == {"v": "x(1, 1)"}
        # A key of the old tablet and of the new one has one net change.
        net = table.changes(start, net=True).to_table()
        by_key = {(r["day"], r["id"]): (r["_op"], r["v"]) for r in net.to_pylist()}
        assert net.num_rows == len(by_key) == 40
        assert by_key[1, 1] == ("update", "new(1, 1)")
        assert by_key[5, 1] == ("delete", None)
        assert table.changes(emptied, net=True).to_table()["_op"].to_pylist() == ["insert"] * 12
        same = table.changes(start, emptied, net=True).to_table()
        assert same["_op"].to_pylist() == ["delete"] * 40
        assert table.changes(filled).to_table().num_rows == 0
        table.flush()
        table = reopened(table, clock)
    table.close()


def test_ranges_may_be_cut_anew(table: kc.Table) -> None:
    start = table.timestamp
    table.alter(drop_range=[(0, 10), (10, 20)], add_range=[(5, 15), (15, None)])
    assert table.count() == 0
    table.insert(days(range(5, 25), range(1)))
    assert keys_of(table.scan()) == cells(range(5, 25), range(1))
    assert keys_of(table.scan(at=start)) == cells(range(20))
    assert table.get((12, 0), at=start) is not None
    assert table.get((4, 0)) is None
    with pytest.raises(kc.RowErrors, match="no_partition"):
        table.insert([{"day": 4, "id": 0}])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"add_range": (5, 6)}, "overlaps"),
        ({"add_range": (None, 1)}, "overlaps"),
        ({"add_range": (30, 30)}, "empty"),
        ({"add_range": [(30, 40), (39, 41)]}, "overlaps"),
        ({"add_range": (30, 40, 50)}, "lower, upper"),
        ({"add_range": ["30"]}, "lower, upper"),
        ({"add_range": ("a", "b")}, "day"),
        ({"drop_range": (0, 20)}, "no range"),
        ({"drop_range": [(0, 10), (0, 10)]}, "no range"),
        ({"drop_range": [(0, 10), (10, 20)]}, "at least one"),
        ({"add_range": (30, 40), "drop": ["zz"]}, "zz"),
        ({"add": [kc.Column("n", "int8")], "drop_range": (1, 2)}, "no range"),
    ],
)
def test_what_breaks_a_rule_of_ranges_changes_nothing(
    table: kc.Table, change: dict[str, Any], named: str
) -> None:
    before, had = table.timestamp, ordinals(table)
    with pytest.raises(kc.InvalidArgument, match=named):
        table.alter(**change)
    assert (table.timestamp, ordinals(table), table.schema.names) == (before, had, ["day", "id", "v"])
    assert sorted(os.listdir(f"{table.path}/tablets")) == [f"{i:08d}" for i in range(1, 7)]


@pytest.mark.parametrize("flushed", [False, True])
def test_changes_tell_the_rows_of_a_dropped_range_as_deleted(
    table: kc.Table, clock: ManualClock, flushed: bool
) -> None:
    start = table.timestamp
    table.delete([{"day": 0, "id": 0}])
    table.update([{"day": 0, "id": 1, "v": "changed"}])
    if flushed:
        table.flush()
    ts = table.alter(drop_range=(0, 10), add=[kc.Column("n", "int8", default=1)])
    after = table.timestamp
    table.insert([{"day": 11, "id": 99}])
    for flush in (False, True):
        if flush:
            table.flush()
        told = table.changes(start, images="both").to_table().to_pylist()
        stamps = [row["_timestamp"] for row in told]
        assert stamps == sorted(stamps)
        dropped = [row for row in told if row["_timestamp"] == ts]
        assert {(r["day"], r["id"]) for r in dropped} == cells(range(10)) - {(0, 0)}
        assert {r["_op"] for r in dropped} == {"delete"}
        [image] = [r for r in dropped if (r["day"], r["id"]) == (0, 1)]
        assert (image["v"], image["n"], image["_before"]["v"], image["_before"]["n"]) == (
            None,
            None,
            "changed",
            1,
        )
        assert len(told) == 2 + 39 + 1
        assert table.changes(after).to_table().num_rows == 1
        assert table.changes(start, ts - 1).to_table().num_rows == 2
        assert table.changes(ts - 1, ts).to_table().num_rows == 39
        assert table.changes(ts, ts).to_table().num_rows == 0
        where = table.changes(start, where=pc.field("v") == "changed").to_table()
        assert where["_op"].to_pylist() == ["update", "delete"]
        net = table.changes(start, net=True).to_table()
        assert sorted(net["_op"].to_pylist()) == ["delete"] * 40 + ["insert"]
        whole = table.changes(None).to_table()
        assert whole.num_rows == 80 + 42
    table = reopened(table, clock)
    assert table.changes(start).to_table().num_rows == 42
    table.close()


def test_state_plus_changes_is_the_later_state(table: kc.Table) -> None:
    """Protocol N14 over drops, refills and cuts of ranges."""
    times = [table.timestamp]
    for step in (
        lambda: table.alter(drop_range=(0, 10)),
        lambda: table.update(where=pc.field("day") == 12, set={"v": "u"}),
        lambda: table.alter(add_range=(0, 5)),
        lambda: table.insert(days(range(5), v="again")),
        table.flush,
        lambda: table.alter(drop_range=[(0, 5), (10, 20)], add_range=(4, 20)),
        lambda: table.insert(days(range(4, 14), v="third")),
        lambda: table.delete(where=pc.field("id") == 2),
        table.flush,
    ):
        step()
        times.append(table.timestamp)

    def state(at: int) -> dict[tuple[int, int], str]:
        return {(r["day"], r["id"]): r["v"] for r in table.scan(at=at).to_pylist()}

    for i, a in enumerate(times):
        for b in times[i:]:
            for net in (False, True):
                now = state(a)
                for row in table.changes(a, b, net=net).to_table().to_pylist():
                    key = row["day"], row["id"]
                    if row["_op"] == "delete":
                        assert key in now, (a, b, net, row)
                        del now[key]
                    else:
                        assert (row["_op"] == "update") == (key in now), (a, b, net, row)
                        now[key] = row["v"]
                assert now == state(b), (a, b, net)


# ------------------------------------------------------------------------------------- the end


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
