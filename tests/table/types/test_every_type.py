"""Every flat Arrow type as a column and as a key, through every door and in every state of a table."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.tables import Make

BERLIN = "Europe/Berlin"
DAY = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
TYPES: dict[str, tuple[pa.DataType, Any, Any]] = {
    "timestamp[s]": (pa.timestamp("s"), dt.datetime(2020, 1, 1), dt.datetime(1950, 1, 1)),
    "timestamp[ms] of a zone": (pa.timestamp("ms", BERLIN), DAY, dt.datetime(2021, 7, 1, tzinfo=dt.UTC)),
    "timestamp[us] of an offset": (pa.timestamp("us", "+02:00"), DAY, dt.datetime(2021, 7, 1, tzinfo=dt.UTC)),
    "timestamp[ns]": (pa.timestamp("ns"), np.datetime64(123456789, "ns"), np.datetime64(1000, "ns")),
    "timestamp[ns] in UTC": (pa.timestamp("ns", "UTC"), DAY, dt.datetime(2021, 7, 1, tzinfo=dt.UTC)),
    "date64": (pa.date64(), dt.date(2020, 1, 1), dt.date(1960, 1, 1)),
    "time32[s]": (pa.time32("s"), dt.time(1, 2, 3), dt.time(23, 59, 59)),
    "time32[ms]": (pa.time32("ms"), dt.time(1, 2, 3, 4000), dt.time(23, 59, 59)),
    "time64[us]": (pa.time64("us"), dt.time(1, 2, 3, 4), dt.time(23, 59, 59)),
    "time64[ns]": (pa.time64("ns"), dt.time(1, 2, 3, 4), dt.time(23, 59, 59)),
    "duration[s]": (pa.duration("s"), dt.timedelta(1), dt.timedelta(-5)),
    "duration[ns]": (pa.duration("ns"), dt.timedelta(1), np.timedelta64(-5, "ns")),
    "float16": (pa.float16(), 1.5, -0.25),
    "decimal32": (pa.decimal32(5, 2), Decimal("1.25"), Decimal(-3)),
    "decimal64": (pa.decimal64(15, 2), Decimal("1.25"), Decimal(-3)),
    "decimal256": (pa.decimal256(30, 2), Decimal("1.25"), Decimal(-3)),
    "decimal256 of 60 digits": (pa.decimal256(60, 2), Decimal("1.25"), Decimal(-3)),
    "fixed_size_binary": (pa.binary(3), b"abc", b"\0\0\0"),
    "large_string": (pa.large_string(), "a", "c"),
    "large_binary": (pa.large_binary(), b"a", b"c"),
    "string_view": (pa.string_view(), "a", "a long string of more than twelve bytes"),
    "binary_view": (pa.binary_view(), b"a", b"a long string of more than twelve bytes"),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), "a", "c"),
    "dictionary of integers": (pa.dictionary(pa.int32(), pa.int64()), 1, 5),
    "uuid": (pa.uuid(), uuid.UUID(int=5), uuid.UUID(int=7)),
    "json": (pa.json_(), "{}", "[]"),
    "bool8": (pa.bool8(), True, False),
    "an extension type": (pa.opaque(pa.int32(), "kind", "vendor"), 1, 5),
    "interval": (pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3]), pa.MonthDayNano([-1, 2, 3])),
    "null": (pa.null(), None, None),
}
NO_KEYS = ("float16", "bool8", "interval", "json", "null", "an extension type")
NO_ORDER = (*NO_KEYS[1:], "dictionary", "dictionary of integers")


def _memory(table: kc.Table, path: Path) -> kc.Table:
    return table


def _flushed(table: kc.Table, path: Path) -> kc.Table:
    table.flush()
    return table


def _churned(table: kc.Table, path: Path) -> kc.Table:
    table.flush()
    row = table.scan(where=pc.field("k") == 2).to_table()
    table.delete([2])
    table.insert(row)
    table.flush()
    return table


def _merged(table: kc.Table, path: Path) -> kc.Table:
    _churned(table, path).compact()
    return table


def _replayed(table: kc.Table, path: Path) -> kc.Table:
    table.close()
    return kc.open_table(path, "rw")


STATES: dict[str, Callable[[kc.Table, Path], kc.Table]] = {
    "memory": _memory, "flushed": _flushed, "churned": _churned, "merged": _merged, "replayed": _replayed,
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", TYPES)
def test_values_come_back_as_they_went_in(make: Make, tmp_path: Path, name: str, state: str) -> None:
    type_, one, other = TYPES[name]
    table = make(pa.schema([("k", pa.int64()), ("v", type_)]), at=tmp_path / "t")
    table.insert({"k": [1, 2, 3], "v": [one, None, other]})
    table = STATES[state](table, tmp_path / "t")
    found = table.scan(order="key").to_table()
    found.validate(full=True)
    assert found.schema.field("v").type == table.schema.field("v").type == type_
    first, _, third = cells = found["v"].to_pylist()
    assert (first == one, third == other) == (True, True) or name in ("timestamp[ns]", "duration[ns]")
    assert [table.get(k)["v"] for k in (1, 2, 3)] == cells  # type: ignore[index]
    many = table.get_many([3, 9, 1])
    many.validate(full=True)
    assert (many.schema.field("v").type, many["v"].to_pylist()) == (type_, [third, None, first])
    dataset = table.to_dataset().to_table()
    assert (dataset.schema.field("v").type, sorted(dataset["k"].to_pylist())) == (type_, [1, 2, 3])
    told = table.changes(images="both").to_table()
    told.validate(full=True)
    assert told.schema.field("v").type == told.schema.field("_before").type.field("v").type == type_
    for again in (found, found.to_batches()[0], [{"k": 1, "v": first}], {"k": [1], "v": [first]}):
        table.upsert(again)
    table.update(where=[("k", "==", 3)], set={"v": third})
    after = table.scan(order="key").to_table()
    assert after["v"].to_pylist() == cells
    assert table.count(where=pc.field("v").is_null()) == cells.count(None)
    if name != "null":
        _conditions(table, name, first, third)
    table.close()


def _conditions(table: kc.Table, name: str, one: Any, other: Any) -> None:
    assert table.count(where=[("v", "==", one)]) == 1
    assert table.count(where=[("v", "in", [one, other])]) == 2
    if name in NO_ORDER:
        return
    low, high = table.scan().min_max("v")
    assert {low, high} == {one, other}
    assert table.count(where=[("v", ">", low)]) == table.count(where=[("v", "<", high)]) == 1
    if not name.startswith(("time64[ns]", "timestamp[ns]", "duration[ns]")):
        own = pa.array([low], table.schema.field("v").type)[0] if name != "uuid" else None
        if own is not None:
            assert table.count(where=pc.field("v") > own) == 1, "a constant of the column's own type"


@pytest.mark.parametrize("name", [name for name in TYPES if name not in NO_KEYS])
def test_keys_of_the_type(make: Make, tmp_path: Path, name: str) -> None:
    type_, one, other = TYPES[name]
    table = make(pa.schema([("k", type_), ("n", pa.int64())]), at=tmp_path / "t")
    table.insert({"k": [one, other], "n": [1, 2]})
    for state in (_memory, _flushed, _replayed):
        table = state(table, tmp_path / "t")
        rows = table.scan(order="key").to_table()
        assert rows.schema.field("k").type == type_
        keys = dict(zip(rows["n"].to_pylist(), rows["k"].to_pylist(), strict=True))
        assert table.get(keys[1]) == {"k": keys[1], "n": 1}
        assert table.get_many([keys[2]]).to_pylist() == [{"k": keys[2], "n": 2, "_found": True}]
        with pytest.raises(kc.RowErrors) as refused:
            table.insert({"k": [keys[1]], "n": [5]})
        assert refused.value.errors["key"].to_pylist() == [{"k": keys[1]}]
        if "integers" not in name:
            ordered = sorted(keys.values())
            assert rows["k"].to_pylist() == ordered
            assert table.count(where=[("k", "<", ordered[1])]) == 1
            assert table.scan(key_range=(ordered[1], None)).to_table()["k"].to_pylist() == ordered[1:]
    assert table.delete([keys[1]]).deleted == 1
    table.close()


def test_a_backup_has_rows_of_every_type(make: Make, tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), *((name, type_) for name, (type_, _, _) in TYPES.items())])
    table = make(schema, at=tmp_path / "t")
    table.insert([{"k": place, **{n: given[place] for n, given in TYPES.items()}} for place in (1, 2)])
    table.backup(tmp_path / "b")
    table.upsert([{"k": 3, **{n: given[1] for n, given in TYPES.items()}}])
    table.delete([1])
    table.backup(tmp_path / "b", since="last")
    with kc.restore(tmp_path / "b", tmp_path / "restored") as again:
        assert again.schema == table.schema
        wanted, found = (t.scan(order="key").to_table() for t in (table, again))
        assert found.schema == wanted.schema
        assert found.to_pylist() == wanted.to_pylist()


REFUSED = [
    (pa.time32("s"), pa.array([86_400], pa.int32()).view(pa.time32("s")), "'v', row 0.*not within a day"),
    (pa.date64(), pa.array([1], pa.int64()).view(pa.date64()), "'v', row 0.*whole number of days"),
    (pa.binary(3), pa.array([b"abc", b"ab"]), "'v', row 1: 2 bytes are no fixed_size_binary"),
    (pa.uuid(), pa.array([b"abc"]), "'v', row 0: 3 bytes are no uuid"),
    (pa.float16(), pa.array([0.1], pa.float32()), "'v', row 0.*not exact"),
    (pa.decimal256(60, 2), pa.array([b"\x80" * 32]), "'v' is decimal256.*binary does not fit"),
    (pa.null(), pa.array([True]), "'v' is null; data of type bool"),
    (pa.timestamp("s"), pa.array([1], pa.timestamp("ms")), "'v', row 0"),
    (pa.month_day_nano_interval(), pa.array([b"0" * 16]), "'v' is month_day_nano_interval"),
]


@pytest.mark.parametrize(("type_", "array", "why"), REFUSED, ids=[str(one[0]) for one in REFUSED])
@pytest.mark.parametrize("door", ["table", "batch", "bulk"])
def test_what_is_no_value_of_the_type_is_refused(
    make: Make, type_: pa.DataType, array: pa.Array, why: str, door: str
) -> None:
    options = {"ingest_threshold_rows": 1} if door == "bulk" else {}
    table = make(pa.schema([("k", pa.int64()), ("v", type_)]), **options)
    rows = pa.table({"k": list(range(len(array))), "v": array})
    with pytest.raises(kc.SchemaMismatch, match=why):
        table.insert(rows if door != "batch" else rows.to_batches()[0])
    assert table.count() == 0


def test_nanoseconds_of_pandas_are_not_dropped(make: Make) -> None:
    """pyarrow makes microseconds of a list of pandas' times."""
    import pandas as pd

    table = make(pa.schema([("k", pa.int64()), ("v", pa.timestamp("ns")), ("u", pa.timestamp("us"))]))
    table.insert({"k": [1], "v": [pd.Timestamp(123456789)]})
    assert table.get(1)["v"] == pd.Timestamp(123456789)  # type: ignore[index]
    with pytest.raises(kc.InvalidArgument, match=r"'u', row 0.*whole number of microseconds"):
        table.insert({"k": [2], "u": [pd.Timestamp(123456789)]})
    table.insert([{"k": 3, "v": pd.Timestamp.min}])
    assert table.get(3)["v"] == pd.Timestamp.min  # type: ignore[index]


def test_an_unknown_zone_is_refused_by_name(make: Make) -> None:
    with pytest.raises(kc.InvalidArgument, match=r"column 'v': timestamp\[us,Mars/Phobos\].*Europe/Berlin"):
        make(pa.schema([("k", pa.int64()), ("v", pa.timestamp("us", "Mars/Phobos"))]))
    with pytest.raises(kc.InvalidArgument, match=r"column 'v'.*null.*nullable"):
        make([kc.Column("k", "int64"), kc.Column("v", pa.null(), nullable=False)])


def test_an_extension_type_that_nobody_knows_keeps_its_name(make: Make) -> None:
    field = pa.field("v", pa.int32(), metadata={"ARROW:extension:name": "none.of.ours"})
    table = make(pa.schema([pa.field("k", pa.int64()), field]))
    table.insert({"k": [1], "v": [5]})
    assert table.scan().schema.field("v").metadata[b"ARROW:extension:name"] == b"none.of.ours"
    assert table.get(1) == {"k": 1, "v": 5}
