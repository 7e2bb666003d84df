"""``Table.alter(change={...: {"type": ...}})``: types whose cells are others, in every state of a table."""

from __future__ import annotations

import datetime as dt
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.table.jobs import commit
from tests.support.inside import engine_of, handle_of, schema_of
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import URL
from tests.table.lifecycle.altering.conftest import STATES

OPTIONS = {"maintenance": "manual", "scan_threads": 1, "file_grace_s": 0, "ingest_threshold_rows": 20}
NOON = dt.datetime(2026, 1, 1, 12)
LATE = dt.datetime(2026, 1, 1, 12, 0, 0, 1)
DAY = dt.date(2026, 1, 1)

CHANGES: list[tuple[str, str, Any, Any, Any]] = [
    # from, to, a value of the one, the same of the other, another one of the other
    ("int8", "int16", -100, -100, 30_000),
    ("int16", "int64", -30_000, -30_000, 2**60),
    ("int32", "int64", 2**31 - 1, 2**31 - 1, 2**31),
    ("uint8", "uint32", 255, 255, 2**32 - 1),
    ("uint8", "int16", 255, 255, -1),
    ("uint32", "int64", 2**32 - 1, 2**32 - 1, -(2**60)),
    ("int16", "float32", -7, -7.0, 0.5),
    ("int32", "float64", 2**31 - 1, 2**31 - 1.0, 0.5),
    ("float16", "float64", 1.5, 1.5, 0.1),
    ("float32", "float64", 1.5, 1.5, 0.1),
    ("timestamp[s]", "timestamp[us]", NOON, NOON, LATE),
    ("timestamp[ms,UTC]", "timestamp[us,UTC]", NOON.replace(tzinfo=dt.UTC), NOON.replace(tzinfo=dt.UTC),
     LATE.replace(tzinfo=dt.UTC)),
    ("time32[s]", "time64[us]", dt.time(1), dt.time(1), dt.time(1, 0, 0, 1)),
    ("duration[s]", "duration[us]", dt.timedelta(1), dt.timedelta(1), dt.timedelta(0, 0, 1)),
    ("date32", "timestamp[us]", DAY, dt.datetime(2026, 1, 1), LATE),
    ("date32", "date64", DAY, DAY, dt.date(2027, 1, 1)),
    # and back, where all values fit
    ("int64", "int8", 100, 100, -128),
    ("int32", "uint16", 2**16 - 1, 2**16 - 1, 0),
    ("float64", "float32", 1.5, 1.5, 0.5),
    ("timestamp[us]", "timestamp[s]", NOON, NOON, NOON.replace(hour=1)),
]  # fmt: skip
PLACES = [*STATES]


IDS = [f"{case[0]}-{case[1]}" for case in CHANGES]


def places_of(number: int, long: bool) -> list[str]:
    """One for each case; all in the long run."""
    return PLACES if long else [PLACES[number % len(PLACES)]]


def make(path: Path, type_: str, **more: Any) -> kc.Table:
    columns = [kc.Column("k", "int64"), kc.Column("v", type_, **more)]
    return kc.create_table(str(path / "t"), columns, "k", options=OPTIONS)


def values(scan: Any) -> dict[int, Any]:
    return {row["k"]: row["v"] for row in scan.to_pylist()}


@pytest.mark.parametrize("number", range(len(CHANGES)), ids=IDS)
def test_values_stay_and_others_come(tmp_path: Path, number: int, long: bool) -> None:
    before, after, old, same, other = CHANGES[number]
    for name in places_of(number, long):
        (tmp_path / name).mkdir()
        with make(tmp_path / name, before, default=old) as table:
            table.insert([{"k": 1, "v": old}, {"k": 2, "v": None}, {"k": 3, "v": old}])
            STATES[name](table)
            _check(table, after, old, same, other)


def _check(table: kc.Table, after: str, old: Any, same: Any, other: Any) -> None:
    since = table.timestamp
    scan, changes, reader = table.scan(), table.changes(), kc.open_table(table.path)
    told = reader.scan().to_table()
    type_of_before = table.schema.field("v").type
    table.alter(change={"v": {"type": after}})
    arrow = table.schema.field("v").type
    assert values(scan) == {1: old, 2: None, 3: old}, "a scan keeps its columns"
    assert scan.to_table().schema.field("v").type == type_of_before
    assert {row["k"]: row["v"] for row in changes.to_table().to_pylist()} == {1: old, 2: None, 3: old}
    assert reader.scan().to_table() == told
    reader.refresh()
    table.update([{"k": 1, "v": other}])
    table.insert([{"k": 4}])
    table.insert(pa.table({"k": pa.array(range(10, 40)), "v": pa.array([other] * 30, arrow)}))
    assert values(scan) == {1: old, 2: None, 3: old}
    wanted = {1: other, 2: None, 3: same, 4: same}
    for handle in (table, reader):
        handle.refresh()
        _check_rows(handle, since, arrow, wanted, same, other)
    reader.close()
    table.close()
    with kc.open_table(table.path, "rw") as again:
        _check_rows(again, since, arrow, wanted, same, other)
        again.flush()
        _check_rows(again, since, arrow, wanted, same, other)
        again.verify()
        again.compact(full=True)
        _check_rows(again, since, arrow, wanted, same, other)
        again.verify()


def _check_rows(
    handle: kc.Table, since: int, arrow: pa.DataType, wanted: dict[int, Any], same: Any, other: Any
) -> None:
    assert handle.schema.field("v").type == arrow
    found = handle.scan(where=pc.field("k") < 10).to_table()
    assert found.schema.field("v").type == arrow
    assert values(found) == wanted
    assert {k: handle.get(k)["v"] for k in wanted} == wanted
    assert {k: handle.get(k, at=since)["v"] for k in (1, 2, 3)} == {1: same, 2: None, 3: same}
    assert values(handle.scan(at=since)) == {1: same, 2: None, 3: same}
    many = handle.get_many([3, 4])
    assert many.schema.field("v").type == arrow and many["v"].to_pylist() == [same, same]
    assert handle.count([("v", "==", other)]) == 31
    assert handle.count([("v", "==", same)]) == 2
    assert handle.count([("v", "==", same)], at=since) == 2
    assert handle.count(pc.field("v").is_null()) == 1
    assert handle.scan(where=pc.field("k") < 10).min_max("v") == (min(same, other), max(same, other))
    assert handle.scan(where=[("v", "==", same)], order="key", limit=1).to_pylist() == [{"k": 3, "v": same}]
    rows = handle.changes(since, where=pc.field("k") < 10, images="both").to_table().to_pylist()
    assert [(r["_op"], r["k"], r["v"], (r["_before"] or {}).get("v")) for r in rows] == [
        ("update", 1, other, same),
        ("insert", 4, same, None),
    ]
    told = handle.history_of(3)
    assert told.schema.field("v").type == arrow and set(told["v"].to_pylist()) == {same}


REFUSED: list[tuple[str, str, Any, Any]] = [
    # from, to, a value that is none of the other, one that is
    ("int64", "int32", 2**31, 2**31 - 1),
    ("int64", "uint64", -1, 2**63 - 1),
    ("uint64", "int64", 2**63, 2**63 - 1),
    ("uint8", "int8", 128, 127),
    ("float64", "float32", 0.1, 0.5),
    ("timestamp[s]", "timestamp[ns]", dt.datetime(2400, 1, 1), dt.datetime(2262, 4, 11)),
    ("timestamp[us]", "timestamp[ms]", LATE, NOON),
    ("timestamp[us,UTC]", "timestamp[s,UTC]", LATE.replace(tzinfo=dt.UTC), NOON.replace(tzinfo=dt.UTC)),
    ("duration[us]", "duration[s]", dt.timedelta(0, 0, 1), dt.timedelta(1)),
    ("time64[us]", "time32[ms]", dt.time(1, 0, 0, 1), dt.time(1)),
    ("date32", "timestamp[ns]", dt.date(2400, 1, 1), dt.date(2262, 4, 11)),
]


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[f"{one[0]}-{one[1]}" for one in REFUSED])
def test_values_that_do_not_fit(tmp_path: Path, number: int, long: bool) -> None:
    """In any state that can be read; a value that cannot any more does not matter, nor to zone maps."""
    before, after, wrong, right = REFUSED[number]
    change = {"v": {"type": after}}
    for name in places_of(number, long):
        (tmp_path / name).mkdir()
        with make(tmp_path / name, before) as table:
            table.insert([{"k": 1, "v": right}, {"k": 2, "v": wrong}, {"k": 3}, {"k": 4, "v": right}])
            STATES[name](table)
            with pytest.raises(kc.InvalidArgument, match=r"'v' cannot become .* 1 row, .*k = 2"):
                table.alter(change=change)
            table.update([{"k": 2, "v": right}])
            with pytest.raises(kc.InvalidArgument, match=r"'v' cannot become .*in a past state"):
                table.alter(change=change)
            assert str(schema_of(table).column("v").type) == before
            table.alter(change=change, options={"history_retention_s": 0})
            for _ in range(2):
                kept = values(table.scan())
                assert kept.keys() == {1, 2, 3, 4} and kept[1] == kept[2] == kept[4] and kept[3] is None
                assert table.count([("v", "==", kept[1])]) == 3
                assert table.get(1)["v"] == table.get(2)["v"] == kept[1]
                table.flush()
            if "float" not in before:  # a float of Python is rounded
                with pytest.raises(kc.InvalidArgument, match="'v'"):
                    table.insert([{"k": 9, "v": wrong}])
            table.compact(full=True)
            assert values(table.scan()) == kept


def test_nan_and_infinity_are_floats_of_any_width(tmp_path: Path) -> None:
    with make(tmp_path, "float64") as table:
        table.insert([{"k": 1, "v": float("nan")}, {"k": 2, "v": float("inf")}, {"k": 3, "v": -0.0}])
        table.flush()
        table.alter(change={"v": {"type": "float32"}})
        found = values(table.scan())
        assert str(found[1]) == "nan" and found[2] == float("inf") and str(found[3]) == "-0.0"
        assert table.count([("v", ">", 1.0)]) == 1


def test_there_and_back_again(tmp_path: Path) -> None:
    """Files of each time, read as the type of today; and scans of each time, by what they were."""
    steps = ["int16", "int32", "int64", "int16", "int8", "float64", "float32", "float64"]
    with make(tmp_path, "int8", default=7) as table:
        scans, wanted = [], {}
        for number, step in enumerate(steps):
            wanted[number] = number
            table.insert([{"k": number, "v": number}])
            table.flush()
            table.upsert([{"k": 0, "v": number}])
            wanted[0] = number
            if number % 3 == 1:
                table.flush()
                table.compact()
            scans.append((table.scan(), dict(wanted), table.timestamp))
            if number == 5:
                with pytest.raises(kc.InvalidArgument, match="int8"):
                    table.alter(change={"v": {"type": "string"}})
            table.alter(change={"v": {"type": step}})
            for scan, rows, moment in scans:
                assert values(scan) == rows
                assert values(table.scan(at=moment)) == rows
        assert len(schema_of(table).column("v").older) == len(steps)
        table.close()
        with kc.open_table(table.path, "rw") as again:
            assert values(again.scan()) == wanted
            again.compact(full=True)
            assert values(again.scan()) == wanted
            for _, rows, moment in scans:
                assert values(again.scan(at=moment)) == rows
            again.verify()


def test_a_column_that_was_added_keeps_what_older_rows_read(tmp_path: Path) -> None:
    with make(tmp_path, "int64") as table:
        table.insert([{"k": 1}])
        table.alter(add=[kc.Column("w", "int16", default=300)])
        table.insert([{"k": 2}])
        with pytest.raises(kc.InvalidArgument, match="'w': int16 cannot become int8: its default 300"):
            table.alter(change={"w": {"type": "int8"}})
        table.alter(change={"w": {"type": "float64"}})
        table.insert([{"k": 3}])
        assert [row["w"] for row in table.scan(order="key").to_pylist()] == [300.0] * 3


def test_keys_stay(tmp_path: Path) -> None:
    columns = [kc.Column("k", "int32"), kc.Column("v", "int64")]
    with (
        kc.create_table(str(tmp_path / "t"), columns, "k") as table,
        pytest.raises(kc.InvalidArgument, match="'k': in a key int32 cannot become int64: keys are"),
    ):
        table.alter(change={"k": {"type": "int64"}})


@pytest.mark.parametrize("count", [3, 30])
def test_a_job_that_began_before(tmp_path: Path, count: int) -> None:
    with make(tmp_path, "int32") as table:
        cells = pa.array([5] * count, pa.int32())
        batch = pa.RecordBatch.from_pydict({"k": pa.array(range(count)), "v": cells})
        job = commit.begin(handle_of(table), "insert", [("k", "int64"), ("v", "int32")])
        stager = commit.stager(job, "a", engine_of(table).fs)
        stager.append(batch)
        runs = stager.finish()
        table.alter(change={"v": {"type": "int64"}})
        assert commit.commit_job(job, runs, handle_of(table)).inserted == count
        assert table.count([("v", "==", 5)]) == count
        assert table.get(1) == {"k": 1, "v": 5}
        table.verify()


def test_a_repeated_write_is_known(tmp_path: Path) -> None:
    with make(tmp_path, "int32") as table:
        rows = {"k": [1], "v": [5]}
        first = table.insert(rows, txn=("app", 1))
        table.alter(change={"v": {"type": "int64"}}, order=["v"])
        assert table.insert(rows, txn=("app", 1)).timestamp == first.timestamp
        assert table.count() == 1


def test_backups_and_clones_from_before_and_after(tmp_path: Path) -> None:
    folder = str(tmp_path / "backups")
    with make(tmp_path, "int32") as table:
        table.insert([{"k": k, "v": k} for k in range(40)])
        first = table.backup(folder)
        table.update([{"k": 1, "v": 100}])
        second = table.backup(folder, first)
        table.alter(change={"v": {"type": "int64"}})
        table.insert([{"k": 100, "v": 2**40}])
        table.backup(folder, second)
        rows, schema = values(table.scan()), table.schema
        table.clone(str(tmp_path / "clone"))
        with kc.open_table(str(tmp_path / "clone"), "rw") as clone:
            assert values(clone.scan()) == rows and clone.schema == schema
            clone.update([{"k": 2, "v": 2**50}])
            clone.verify()
    with kc.restore(folder, str(tmp_path / "again")) as again:
        assert again.schema == schema
        assert values(again.scan()) == rows
        again.verify()


def test_a_damaged_table_is_repaired(tmp_path: Path) -> None:
    with make(tmp_path, "int32") as table:
        table.insert([{"k": k, "v": k} for k in range(5)])
        table.flush()
        table.update([{"k": 1, "v": 7}])
        table.flush()
        table.alter(change={"v": {"type": "int64"}}, rename={"k": "key"})
        table.update([{"key": 2, "v": 10**15}])
        table.flush()
    for segment in Path(table.path).glob("wal/*.log"):
        segment.unlink()  # files alone tell
    manifest = next(Path(table.path).glob("tablets/*/MANIFEST"))
    data = bytearray(manifest.read_bytes())
    data[len(data) // 2] ^= 255
    manifest.write_bytes(data)
    kc.repair(table.path, str(tmp_path / "again"), dry_run=False)
    with kc.open_table(str(tmp_path / "again")) as again:
        found = {row["key"]: row["v"] for row in again.scan().to_pylist()}
        assert found == {0: 0, 1: 7, 2: 10**15, 3: 3, 4: 4}
        assert again.schema.field("v").type == pa.int64()


@pytest.mark.parametrize("place", PLACES)
def test_fields_of_structs(tmp_path: Path, place: str) -> None:
    inner = pa.struct([pa.field("n", pa.int16(), False), pa.field("t", pa.timestamp("s"))])
    columns = [kc.Column("k", "int64"), kc.Column("v", pa.struct([pa.field("in", inner)]))]
    with kc.create_table(str(tmp_path / "t"), columns, "k", options=OPTIONS) as table:
        one = {"in": {"n": 5, "t": NOON}}
        table.insert([{"k": 1, "v": one}, {"k": 2, "v": None}, {"k": 3, "v": {"in": None}}])
        STATES[place](table)
        since, scan, before = table.timestamp, table.scan(), {1: one, 2: None, 3: {"in": None}}
        table.alter(change={"v.in.n": {"type": "int64"}, "v.in.t": {"type": "timestamp[ms]"}})
        assert values(scan) == before
        table.upsert([{"k": 4, "v": {"in": {"n": 2**40, "t": None}}}])
        wanted = {**before, 4: {"in": {"n": 2**40, "t": None}}}
        for handle in (table, kc.open_table(table.path)):
            type_ = handle.schema.field("v").type.field("in").type
            assert (type_.field("n").type, type_.field("t").type) == (pa.int64(), pa.timestamp("ms"))
            assert values(handle.scan()) == wanted
            assert values(handle.scan(at=since)) == before
            assert {k: handle.get(k)["v"] for k in wanted} == wanted
            assert handle.count([("v.in.n", ">", 4)]) == 2
            if handle is not table:
                handle.close()
        table.flush()
        table.compact(full=True)
        assert values(table.scan()) == wanted and values(table.scan(at=since)) == before
        table.verify()


def test_what_was_planned_before_gives_the_new_type(tmp_path: Path) -> None:
    with make(tmp_path, "int32") as table:
        table.insert([{"k": k, "v": k} for k in range(5)])
        table.flush()
        since = table.timestamp
        table.update([{"k": 1, "v": 10}])
        shares = table.scan_tokens(["v"], where=[("v", ">=", 3)])
        changed = table.change_tokens(since, columns=["v"], where=[("v", ">", 9)])
        batches = iter(table.scan(order="key", batch_rows=2))
        first = next(batches)
        sent = pickle.dumps(table.scan(["v"]))
        arrived = pickle.loads(sent)
        assert arrived.count() == 5
        table.alter(change={"v": {"type": "int64"}})
        rest = pa.Table.from_batches([first, *batches])
        assert rest["v"].to_pylist() == [0, 10, 2, 3, 4], "a scan that has begun goes on"
        with kc.open_table(table.path) as reader:
            for handle in (table, reader):
                found = pa.concat_tables(handle.scan_token(share).to_table() for share in shares)
                assert found.schema.field("v").type == pa.int64()
                assert sorted(found["v"].to_pylist()) == [3, 4, 10]
                told = pa.concat_tables(handle.change_token(share).to_table() for share in changed)
                assert told["v"].to_pylist() == [10]
        assert sorted(arrived.to_table()["v"].to_pylist()) == [0, 2, 3, 4, 10]
        assert sorted(pickle.loads(sent).to_table()["v"].to_pylist()) == [0, 2, 3, 4, 10]


def test_a_batch_that_has_read(tmp_path: Path) -> None:
    with make(tmp_path, "int32") as table:
        table.insert([{"k": 1, "v": 1}])
        with pytest.raises(kc.Conflict, match="another type"), table.batch() as batch:
            batch.get(1)
            batch.upsert([{"k": 1, "v": 2}])
            table.alter(change={"v": {"type": "int64"}})


def test_in_a_store() -> None:
    store = MemoryObjectStore()
    columns = [kc.Column("k", "int64"), kc.Column("v", "int32")]
    with kc.create_table(URL, columns, "k", options={"maintenance": "manual"}, _requests=store) as table:
        table.insert([{"k": 1, "v": 1}])
        reader = kc.open_table(URL, _requests=store)
        scan = reader.scan()
        table.alter(change={"v": {"type": "int64"}})
        table.insert([{"k": 2, "v": 10**15}])
        assert scan.to_pylist() == [{"k": 1, "v": 1}]
        wanted = [{"k": 1, "v": 1}, {"k": 2, "v": 10**15}]
        reader.refresh()
        for handle in (table, reader):
            assert handle.scan(order="key").to_pylist() == wanted
        reader.close()
    for mode in ("r", "rw"):
        with kc.open_table(URL, mode, _requests=store) as again:
            assert again.scan(order="key").to_pylist() == wanted
            assert [again.get(1), again.get(2)] == wanted
