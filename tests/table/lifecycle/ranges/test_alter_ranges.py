"""Ranges added and dropped: which rows there are at which time, what changes tell, when files go."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.clock import ManualClock
from tests.support.inside import tablets_of
from tests.table.lifecycle.ranges.conftest import BUCKETS, cells, days, keys_of, reopened


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
