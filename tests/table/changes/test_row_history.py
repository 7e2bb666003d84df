"""``table.history_of(key)``: every version of a row, the same in every state of its table."""

from __future__ import annotations

import pickle
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core._ext.base.status import NeedsGeneralPath
from kudu_core.cfile.files import delta_file
from kudu_core.cfile.files.delta_file import DeltaFile
from kudu_core.rowset.memory import logged
from kudu_core.table.changes import changes as module
from kudu_core.table.changes import row_history
from tests.support.inside import oldest_ts_of, wait_durable
from tests.support.models.history import SCHEMA, VALUES, History, random_batch, random_rows
from tests.support.models.versions import Version, check_versions, versions_of
from tests.support.tables import Make

KEYS = range(30)
PARTITIONS: dict[str, list[Any]] = {
    "one": [],
    "hash": [kc.HashPartition(["k"], 3)],
    "ranges": [kc.RangePartition(["k"], [(0, 15), (15, 40)])],
}
ROW = pa.schema([("k", pa.int64()), ("a", pa.int64())])


def told(table: kc.Table, key: Any, **window: Any) -> list[Version]:
    versions = table.history_of(key, list(VALUES), **window)
    return versions_of(versions, [tuple(row[name] for name in VALUES) for row in versions.to_pylist()])


def check_all(table: kc.Table, history: History) -> dict[int, list[Version]]:
    found = {key: told(table, key) for key in KEYS}
    for key, versions in found.items():
        check_versions(history.past, (key,), versions, oldest_ts_of(table), None, history.past.times[-1])
    return found


@pytest.mark.parametrize("partition_by", PARTITIONS)
def test_versions_are_what_every_moment_has(
    tmp_path: Path, seed: int, long: bool, partition_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, in files, folded, merged, altered, overwritten; and no upkeep changes the answer."""
    monkeypatch.setattr(logged, "WALKED", 3)
    for run in range(10 if long else 1):
        rng = random.Random(f"{seed}-{partition_by}-{run}")
        monkeypatch.setattr(module, "STRETCH_EVENTS", rng.choice((1 << 20, 16)))
        history = History()
        options = {"maintenance": "manual", "ingest_threshold_rows": 30, "durability": "none"}
        table = kc.create_table(
            tmp_path / f"t{run}", SCHEMA, "k", partition_by=PARTITIONS[partition_by], options=options
        )
        for step in range(10):
            for _ in range(3):
                batch = random_batch(rng, history.model, KEYS, rng.choice((1, 4, 40)), whole=step % 2 > 0)
                history.write(table, batch)
            if step == 4:
                table.alter(add=[kc.Column("late", pa.int64(), default=7)])
                table.update({"k": [next(iter(history.model.state()))[0]], "late": [1]})
                table.alter(drop=["late"])
            if step == 6:
                history.overwrite(table, random_rows(rng, KEYS, 20))
            found = check_all(table, history)
            if step % 4 < 2:
                table.flush()
            elif rng.random() < 0.8:
                table.compact(full=step % 4 == 3)
            assert check_all(table, history) == found, "upkeep has changed the history of a row"
            with table.snapshot(rng.choice(history.writes)) as past:
                key = rng.choice(KEYS)
                shorter = past.history_of(key, list(VALUES))
                assert shorter.equals(table.history_of(key, list(VALUES), until=past.timestamp))
            since, until = sorted(rng.choice([0, *history.past.times]) for _ in range(2))
            for key in rng.sample(KEYS, 4):
                some = told(table, key, since=since, until=until)
                check_versions(history.past, (key,), some, 0, since, until)
        assert sum(map(len, found.values())) > 100
        table.flush()
        with kc.open_table(tmp_path / f"t{run}") as reader:
            assert {key: told(reader, key) for key in KEYS} == found
        table.close()


def test_a_range_that_was_dropped(make: Make) -> None:
    """The drop ends its versions, and the range that comes after it goes on with the same row."""
    table = make(ROW, partition_by=[kc.RangePartition(["k"], [(0, 10)])])
    table.insert([{"k": 1, "a": 1}])
    table.flush()
    table.alter(drop_range=(0, 10), add_range=(0, 10))
    assert table.get(1) is None
    dropped = table.history_of(1)
    assert dropped["_valid_to"].null_count == 0
    table.insert([{"k": 1, "a": 2}])
    ends, begins = dropped["_valid_to"][0].as_py(), table.timestamp
    found = table.history_of(1)
    assert found["_op"].to_pylist() == ["insert", "insert"]
    assert found["_valid_to"].to_pylist() == [ends, None] and found["_valid_from"][1].as_py() == begins
    assert table.get(1, at=ends) is None and table.get(1, at=ends - 1) == {"k": 1, "a": 1}


def test_where_history_has_ended(make: Make) -> None:
    """What was there when history begins has no beginning; what was deleted before is not told."""
    table = make(ROW, history_retention_s=0, file_grace_s=0)
    table.insert([{"k": k, "a": k} for k in range(5)])
    table.update([{"k": 3, "a": -3}])
    table.delete([{"k": 4}])
    table.flush()
    table.gc()
    oldest = oldest_ts_of(table)
    assert oldest > 0
    assert table.history_of(3).to_pylist() == [
        {"_valid_from": None, "_valid_to": None, "_op": None, "k": 3, "a": -3}
    ]
    assert table.history_of(4).num_rows == 0
    changed = table.upsert([{"k": 3, "a": 33}, {"k": 4, "a": 44}]).timestamp
    assert [row[:3] for row in versions_of(table.history_of(3), [(), ()])] == [
        (None, changed, None),
        (changed, None, "update"),
    ]
    assert [row[:3] for row in versions_of(table.history_of(4), [()])] == [(changed, None, "insert")]
    assert table.history_of(3, since=oldest).num_rows == 2
    assert table.history_of(3, since=changed).num_rows == 1
    for since in (1, oldest - 1, datetime(2020, 1, 1, tzinfo=UTC)):
        with pytest.raises(kc.ChangesLost, match="history reaches back"):
            table.history_of(3, since=since)
    with pytest.raises(kc.SnapshotTooOld):
        table.history_of(3, until=oldest - 1)


def test_history_that_is_dropped_meanwhile(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at where history begins and the pin: the answer begins later, or is refused."""
    table = make(ROW, history_retention_s=0, file_grace_s=0)
    first = table.insert([{"k": 1, "a": 1}]).timestamp

    def drop() -> None:
        table.update([{"k": 1, "a": 2}])
        table.flush()
        table.compact(full=True)
        table.gc()

    with monkeypatch.context() as patch:
        known = row_history.Changes.__init__

        def late(*arguments: Any, **more: Any) -> None:
            patch.setattr(row_history.Changes, "__init__", known)
            drop()
            known(*arguments, **more)

        patch.setattr(row_history.Changes, "__init__", late)
        assert table.history_of(1).to_pylist() == [
            {"_valid_from": None, "_valid_to": None, "_op": None, "k": 1, "a": 2}
        ]
    since = oldest_ts_of(table)
    assert first < since
    with monkeypatch.context() as patch:
        known_since = row_history.readable_since

        def early(*arguments: Any) -> int:
            patch.setattr(row_history, "readable_since", known_since)
            found = known_since(*arguments)
            drop()
            return found

        patch.setattr(row_history, "readable_since", early)
        with pytest.raises(kc.ChangesLost):
            table.history_of(1, since=since)


def test_what_is_asked_for(make: Make) -> None:
    table = make(ROW)
    times = [table.upsert([{"k": 1, "a": a}]).timestamp for a in (1, 2, 2)]
    found = table.history_of(1, ["a"])
    assert found.schema.names == ["_valid_from", "_valid_to", "_op", "a"]
    assert found.schema.types[:2] == [pa.uint64(), pa.uint64()]
    # An update begins a version, also where it changes nothing.
    assert found["a"].to_pylist() == [1, 2, 2] and found["_valid_from"].to_pylist() == times
    assert table.history_of(1, []).num_rows == 3
    assert table.history_of(1, since=times[1] - 1)["a"].to_pylist() == [1, 2, 2]
    assert table.history_of(1, since=times[1])["a"].to_pylist() == [2, 2]
    until = table.history_of(1, until=times[1])
    assert until["_valid_to"].to_pylist() == [times[1], None]
    assert table.history_of(1, since=table.timestamp)["a"].to_pylist() == [2]
    with pytest.raises(kc.InvalidArgument, match="lies after until"):
        table.history_of(1, since=times[1], until=times[0])
    with pytest.raises(kc.SnapshotInFuture):
        table.history_of(1, until=times[2] + (10**12 << 12))


def test_a_row_that_is_not_there(make: Make) -> None:
    table = make(ROW, partition_by=[kc.RangePartition(["k"], [(0, 10)])])
    table.insert([{"k": 1, "a": 1}])
    for key in (2, 99):
        assert table.history_of(key).num_rows == 0
        assert table.history_of(key).schema == table.history_of(1).schema
    table.delete([1])
    [ended] = table.history_of(1).to_pylist()
    assert ended["_valid_to"] == table.timestamp


def test_forms_of_keys_and_columns(make: Make) -> None:
    """A key is given as ``get`` takes it; nested columns are seen as they were declared."""
    schema = pa.schema(
        [("host", pa.string()), ("n", pa.int32()), ("l", pa.list_(pa.int32())), ("v", pa.int64())]
    )
    table = make(schema, key=["host", "n"])
    table.insert([{"host": "a", "n": 1, "l": [1, 2], "v": 1}, {"host": "a", "n": 2, "l": None, "v": 2}])
    table.update([{"host": "a", "n": 1, "l": [None]}])
    table.alter(add=[kc.Column("late", pa.int64(), default=7)])
    wanted = [([1, 2], 1, 7), ([None], 1, 7)]
    for key in (("a", 1), {"host": "a", "n": 1}, ["a", 1]):
        rows = table.history_of(key).to_pylist()
        assert [(row["l"], row["v"], row["late"]) for row in rows] == wanted
    assert table.history_of(("a", 1)).schema.field("l").type == pa.list_(pa.int32())
    assert table.history_of(("a", 2), ["v", "l"]).schema.names[3:] == ["v", "l"]


@pytest.mark.parametrize(
    ("key", "said"), [("x", "'k'"), (None, "'k'"), ({"q": 1}, "q"), ((1, 2), "k"), ([1, 2], "k")]
)
def test_a_wrong_key_is_named(make: Make, key: Any, said: str) -> None:
    table = make(ROW)
    table.insert([{"k": 1, "a": 2}])
    with pytest.raises(kc.InvalidArgument, match=said):
        table.history_of(key)


def test_a_column_with_a_name_of_ours(make: Make) -> None:
    table = make(pa.schema([("k", pa.int64()), ("_valid_to", pa.int64())]))
    table.insert([{"k": 1, "_valid_to": 2}])
    with pytest.raises(kc.InvalidArgument, match=r"'_valid_to'.*rename"):
        table.history_of(1)
    assert table.history_of(1, ["k"]).num_rows == 1
    with pytest.raises(kc.InvalidArgument, match="'q'"):
        table.history_of(1, ["q"])


def test_what_is_visible_is_told(make: Make) -> None:
    """As ``get`` sees it: ``changes`` waits until it is durable."""
    table = make(ROW, durability="none")
    table.insert([{"k": 1, "a": 1}])
    assert table.get(1) == {"k": 1, "a": 1}
    assert table.history_of(1)["a"].to_pylist() == [1]


def test_readers_and_snapshots(make: Make, path: Path) -> None:
    table = make(ROW, durability="sync")
    table.insert([{"k": 1, "a": 1}])
    with kc.open_table(path) as reader, table.snapshot() as snapshot:
        table.update([{"k": 1, "a": 2}])
        arrived = pickle.loads(pickle.dumps(snapshot))
        for before in (reader, reader.snapshot(), snapshot, arrived):
            assert before.history_of(1, ["a"])["a"].to_pylist() == [1]
        reader.refresh()
        assert reader.history_of(1).equals(table.history_of(1))
        assert snapshot.history_of(1, ["a"], since=snapshot).num_rows == 1
    with pytest.raises(kc.Closed):
        snapshot.history_of(1)
    with kc.open_table(path, refresh_s=0) as follower:
        table.update([{"k": 1, "a": 3}])
        assert follower.history_of(1)["a"].to_pylist() == [1, 2, 3]


def test_pieces_of_a_long_history(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a row with more changes than are put together at a time each version still has both its ends."""
    monkeypatch.setattr(module, "STRETCH_EVENTS", 4)
    table = make(ROW)
    for a in range(40):
        table.upsert([{"k": 1, "a": a}])
        if a % 10 == 9:
            table.delete([1])
            table.flush()
    found = table.history_of(1)
    assert found["a"].num_chunks > 1 and found["a"].to_pylist() == list(range(40))
    begins, ends = found["_valid_from"].to_pylist(), found["_valid_to"].to_pylist()
    joined = [end == begin for end, begin in zip(ends, begins[1:], strict=False)]
    assert joined == [a % 10 != 9 for a in range(39)] and ends[-1] is not None


def test_only_files_that_have_the_row_are_read(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of twenty files of changes the row is in two: of the others its rowid is looked for, and no more."""
    table = make(ROW, ingest_threshold_rows=10)
    table.insert({"k": range(1000), "a": range(1000)})
    table.flush()
    for call in range(20):
        first = 0 if call in (7, 13) else 1
        table.update({"k": range(first, 1000, 2), "a": [1000 + call] * len(range(first, 1000, 2))})
    wait_durable(table)
    read: list[str] = []
    known = DeltaFile.entries_of

    def entries_of(self: DeltaFile, rows: Any) -> Any:
        read.append(self.file.path)
        return known(self, rows)

    monkeypatch.setattr(DeltaFile, "entries_of", entries_of)
    for wanted in (
        lambda handle: handle.history_of(500)["a"].to_pylist(),
        lambda handle: [row["a"] for row in handle.changes(key=500).to_pylist()],
        lambda handle: [row["a"] for row in handle.changes(key=500, images="both").to_pylist()],
    ):
        for handle in (table, kc.open_table(path)):
            read.clear()
            assert wanted(handle) == [500, 1007, 1013]
            assert len(set(read)) == 2
            if handle is not table:
                handle.close()
    read.clear()
    assert table.history_of(501).num_rows == 19
    assert len(set(read)) == 18


@pytest.mark.parametrize("how", ["kept", "large", "general"])
def test_where_a_row_is_looked_for(make: Make, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Of large files by pages; and where the rowids of a small one cannot be kept, so too."""
    if how == "large":
        monkeypatch.setattr(delta_file, "KEPT_PAGES", 0)
    if how == "general":
        monkeypatch.setattr(DeltaFile, "points", property(lambda self: Refusing()))
    table = make(ROW, ingest_threshold_rows=10)
    table.insert({"k": range(50_000), "a": range(50_000)})
    table.update({"k": range(0, 50_000, 2), "a": [-1] * 25_000})
    table.update({"k": range(0, 40_000, 3), "a": [-2] * 13_334})
    table.delete(list(range(0, 50_000, 7)))
    wait_durable(table)
    for compacted in (False, True):
        if compacted:
            table.compact(full=True)
        for key, changed in ((0, [-1, -2]), (39_999, [-2]), (49_999, []), (49_998, [-1])):
            found = table.history_of(key)
            assert found["a"].to_pylist() == [key, *changed]
            assert (found["_valid_to"].null_count == 0) == (key % 7 == 0)


class Refusing:
    """``DeltaPoints`` of a file of which nothing can be kept."""

    def touched(self, rows: Any) -> Any:
        raise NeedsGeneralPath

    def newest(self, *arguments: Any) -> Any:
        raise NeedsGeneralPath
