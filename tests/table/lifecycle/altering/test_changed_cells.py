"""``Table.alter(change={...: {"type": ...}})``: types whose cells are others, in every state of a table."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.inside import schema_of
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


@pytest.mark.parametrize("wrong", [2**32, -(2**32) - 7, 2**40 + 3])
def test_bounds_hold_values_that_nobody_can_read(tmp_path: Path, wrong: int) -> None:
    """Of rows that are deleted since, and lie in files: other values are found all the same."""
    with make(tmp_path, "int64") as table:
        table.insert([{"k": k, "v": k + 100} for k in range(50)] + [{"k": 99, "v": wrong}])
        table.flush()
        table.delete([{"k": 99}])
        table.alter(change={"v": {"type": "int32"}}, options={"history_retention_s": 0})
        for value in (100, 149):
            assert table.count([("v", "==", value)]) == 1
            assert table.scan(where=[("v", ">=", value)], order="key").to_pylist()[0]["v"] == value
        assert table.scan().min_max("v") == (100, 149)
        assert table.count([("v", "<", 0)]) == 0
