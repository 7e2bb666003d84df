"""``table.changes(key=...)``: what filtering all changes by the key gives, found without the other rows."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.rowset.memory import logged
from kudu_core.table.changes import changes as module
from tests.support.inside import oldest_ts_of, wait_durable
from tests.support.models.history import SCHEMA, History, random_batch, random_rows
from tests.support.tables import Make

KEYS = range(40)
PARTITIONS: dict[str, list[Any]] = {
    "one": [],
    "hash": [kc.HashPartition(["k"], 3)],
    "ranges": [kc.RangePartition(["k"], [(0, 15), (15, 40)])],
    "both": [kc.HashPartition(["k"], 2), kc.RangePartition(["k"], [(None, 20), (20, None)])],
}


def check_keys(table: kc.Table, since: int | None, until: int | None, rng: random.Random) -> int:
    """One key, and several, against filtering; returns how many changes there were of several."""
    count = 0
    for net in (False, True):
        for images in ("after", "both"):
            every = table.changes(since, until, images=images, net=net)
            rows = every.to_pylist()
            for asked in (rng.sample(KEYS, 1), rng.sample(KEYS, 7) * 2, [99]):
                key: Any = asked if len(asked) > 1 else rng.choice((asked[0], (asked[0],), {"k": asked[0]}))
                some = table.changes(since, every.until, images=images, net=net, key=key)
                found = some.to_pylist()
                assert (some.since, some.until) == (every.since, every.until)
                assert _sorted(found) == _sorted([row for row in rows if row["k"] in asked]), (key, net)
                if not net:
                    assert [r["_timestamp"] for r in found] == sorted(r["_timestamp"] for r in found)
                count += len(found)
    some = table.changes(since, until, columns=["b"], where=pc.field("a") > 0, key=list(KEYS)).to_pylist()
    assert _sorted(some) == _sorted(
        table.changes(since, until, columns=["b"], where=pc.field("a") > 0).to_pylist()
    )
    return count


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=str)


@pytest.mark.parametrize("partition_by", PARTITIONS)
def test_keys_against_filtering_all_changes(
    tmp_path: Path, seed: int, long: bool, partition_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, in files, folded, merged, altered, overwritten, dropped, and where history has ended."""
    monkeypatch.setattr(logged, "WALKED", 3)
    for run in range(12 if long else 1):
        rng = random.Random(f"{seed}-{partition_by}-{run}")
        monkeypatch.setattr(module, "STRETCH_EVENTS", rng.choice((1 << 20, 16)))
        history = History()
        table = kc.create_table(
            tmp_path / f"t{run}",
            SCHEMA,
            "k",
            partition_by=PARTITIONS[partition_by],
            options={"maintenance": "manual", "ingest_threshold_rows": 30, "durability": "none"},
        )
        told = 0
        for step in range(14):
            for _ in range(3):
                batch = random_batch(rng, history.model, KEYS, rng.choice((1, 4, 40)), whole=step % 2 > 0)
                history.write(table, batch)
            if step % 4 < 2:
                table.flush()
            elif rng.random() < 0.7:
                table.compact(full=step % 4 == 3)
            if step == 4:
                table.alter(add=[kc.Column("late", pa.int64(), default=7)])
                table.alter(drop=["late"])
            if step == 7:
                history.overwrite(table, random_rows(rng, KEYS, 20))
            if step == 9 and partition_by == "ranges":
                table.alter(drop_range=(0, 15), add_range=(0, 15))
                table.insert(pa.Table.from_pylist(random_rows(rng, range(15), 5), schema=SCHEMA))
                break  # the model knows no ranges
            if step % 4 == 3:
                wait_durable(table)
                since, until = sorted(rng.choice([0, *history.writes]) for _ in range(2))
                told += check_keys(table, since, until, rng)
        wait_durable(table)
        told += check_keys(table, 0, None, rng) + check_keys(table, None, None, rng)
        with kc.open_table(tmp_path / f"t{run}") as reader:
            told += check_keys(reader, 0, None, rng)
        assert told > 50
        table.close()


def test_where_history_has_ended(make: Make) -> None:
    """The state that is left comes first; what was before is an error, as without keys."""
    table = make(SCHEMA, history_retention_s=0, file_grace_s=0)
    table.insert([{"k": k, "a": k} for k in KEYS])
    table.update([{"k": 3, "a": -3}])
    table.delete([{"k": 4}])
    table.flush()
    table.gc()
    assert oldest_ts_of(table) > 0
    table.upsert([{"k": 4, "a": 44}])
    wait_durable(table)
    with pytest.raises(kc.ChangesLost):
        table.changes(1, key=3)
    rows = table.changes(key=[3, 4], columns=["k", "a"]).to_pylist()
    assert [(r["_op"], r["k"], r["a"]) for r in rows] == [("insert", 3, -3), ("insert", 4, 44)]
    assert [r["a"] for r in table.changes(key=4, net=True).to_pylist()] == [44]


def test_history_that_is_dropped_in_part(make: Make) -> None:
    """A pinned moment keeps what came after it, of a folded file too; one before it is gone for every key."""
    table = make(SCHEMA, history_retention_s=0, file_grace_s=0)
    table.insert([{"k": k, "a": 0} for k in range(4)])
    table.update([{"k": 1, "a": 1}])
    last = table.delete([{"k": 3}]).timestamp
    wait_durable(table)
    with table.snapshot() as kept:
        held = table.changes(kept, key=[1, 2])
        assert held.to_pylist() == []
        for a in (2, 3):
            table.update([{"k": 1, "a": a}, {"k": 2, "a": a}])
            table.flush()
        table.delete([{"k": 2}])
        table.insert([{"k": 3, "a": 9}])
        table.compact(full=True)
        table.gc()
        assert oldest_ts_of(table) == kept.timestamp == last
        wait_durable(table)

        def told(key: object, since: object = None, **more: Any) -> list[tuple[str, int | None]]:
            rows = table.changes(since, key=key, **more).to_pylist()
            return [(row["_op"], row["a"]) for row in rows]

        assert told(1) == [("insert", 1), ("update", 2), ("update", 3)]
        assert told(1, kept) == told(1)[1:]
        assert told(1, kept, net=True) == [("update", 3)]
        assert told(2) == [("insert", 0), ("update", 2), ("update", 3), ("delete", None)]
        assert told(2, kept, net=True) == [("delete", None)]
        assert told(2, None, net=True) == []
        assert told(3) == told(3, kept) == [("insert", 9)]  # what was deleted before is not told
        assert [row["_before"] for row in table.changes(kept, key=3, images="both").to_pylist()] == [None]
        for key in (1, 3, 99, [1, 2], []):
            with pytest.raises(kc.ChangesLost, match="history reaches back"):
                table.changes(last - 1, key=key)
    begun = table.changes(key=1)
    table.update([{"k": 1, "a": 4}])
    table.compact(full=True)
    table.gc()
    assert [row["a"] for row in begun.to_pylist()] == [1, 2, 3], "what was begun keeps its history"
    del begun, held
    table.update([{"k": 1, "a": 5}])
    table.compact(full=True)
    table.gc()
    with pytest.raises(kc.ChangesLost):
        table.changes(last, key=1)
    wait_durable(table)
    assert told(1) == [("insert", 5)]


def test_several_columns_and_forms_of_keys(make: Make) -> None:
    schema = pa.schema([("host", pa.string()), ("n", pa.int32()), ("v", pa.int64())])
    table = make(schema, key=["host", "n"])
    table.insert({"host": ["a", "a", "b"], "n": [1, 2, 1], "v": [1, 2, 3]})
    table.flush()
    table.update({"host": ["a", "b"], "n": [2, 1], "v": [20, 30]})
    wait_durable(table)

    def values(key: Any) -> list[int]:
        return [row["v"] for row in table.changes(0, key=key).to_pylist()]

    assert values(("a", 2)) == values({"host": "a", "n": 2}) == [2, 20]
    two = [("a", 2), ("a", 1)]
    keys = pa.table({"host": ["a", "a"], "n": pa.array([2, 1], pa.int32())})
    assert sorted(values(two)) == sorted(values(keys)) == sorted(values(iter(two))) == [1, 2, 20]
    assert values([]) == values(("c", 1)) == []
    changes = table.changes(0, key=iter(two))
    assert changes.to_pylist() == changes.to_pylist()


@pytest.mark.parametrize(
    ("type_", "stored", "given"),
    [
        (pa.binary(), b"ab", [b"ab", bytearray(b"ab"), memoryview(b"ab"), pa.scalar(b"ab")]),
        (pa.int64(), 5, [5, np.int64(5), np.array(5), pa.scalar(5), (5,), {"k": 5}]),
        (pa.timestamp("us"), datetime(2020, 1, 1), [np.datetime64("2020-01-01"), datetime(2020, 1, 1)]),
    ],
)
def test_one_key_as_get_takes_it(make: Make, type_: pa.DataType, stored: Any, given: list[Any]) -> None:
    table = make(pa.schema([("k", type_), ("a", pa.int64())]))
    table.insert([{"k": stored, "a": 1}])
    wait_durable(table)
    for key in given:
        assert table.get(key, ["a"]) == {"a": 1}
        assert table.changes(key=key).to_table()["a"].to_pylist() == [1], repr(key)
        assert table.history_of(key)["a"].to_pylist() == [1], repr(key)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("x", "'k'"),
        ({"k": "x"}, "'k'"),
        ({"q": 1}, "q"),
        ((1, 2), "k"),
        ([1, "x"], "row 1.*'k'"),
        (pa.array(["x"]), "'k'"),
        (pa.table({"q": [1]}), "k"),
    ],
)
def test_a_wrong_key_is_named(make: Make, key: Any, said: str) -> None:
    table = make(SCHEMA)
    table.insert([{"k": 1, "a": 2}])
    with pytest.raises(kc.InvalidArgument, match=said):
        table.changes(0, key=key)


def test_a_row_with_very_many_changes_in_memory(make: Make) -> None:
    """Its chain is not followed to the end; what is found is the same."""
    table = make(SCHEMA, durability="none")
    table.insert([{"k": k, "a": -1} for k in range(3)])
    table.flush()
    for a in range(2 * logged.WALKED + 3):
        table.update([{"k": 1, "a": a}])
        table.update([{"k": 2, "a": a}])
    wait_durable(table)
    found = [row["a"] for row in table.changes(key=1).to_pylist()]
    assert found == [-1, *range(2 * logged.WALKED + 3)]


def test_other_rows_are_not_read(tmp_path: Path) -> None:
    """Pages that a key takes: as many in a table of ten times the rows, rowsets and changes."""
    taken = []
    for times in (1, 10):
        path = tmp_path / f"t{times}"
        options = {"maintenance": "manual", "durability": "none"}
        with kc.create_table(path, SCHEMA, "k", options=options) as table:
            for part in range(times):
                first = part * 100_000
                table.insert(pa.table({"k": range(first, first + 100_000), "a": range(100_000)}))
                table.flush()
            for call in range(3):
                table.update(pa.table({"k": range(0, times * 100_000, 2), "a": [call] * 50_000 * times}))
                table.flush()
                if call == 1:
                    table.compact(full=True)
        with kc.open_table(path) as table:
            rows = table.changes(0, key=50_000, columns=["a"], images="both").to_pylist()
            assert [row["a"] for row in rows] == [50_000, 0, 1, 2]
            taken.append(int(table.metrics()["page_cache_misses"]))
            whole = kc.open_table(path)
            whole.changes(0, columns=["a"], images="both").to_table()
            assert taken[-1] * times < int(whole.metrics()["page_cache_misses"])
            whole.close()
    assert taken[1] <= taken[0] + 5, taken
