"""Python's values inside of nested ones: they are what a flat column takes, and none is rounded."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc

INSTANT = dt.datetime(2020, 1, 1, 12, 0, 0, 5)
ROUNDED = [
    (pa.int32(), 1.5),
    (pa.int8(), Decimal("1.5")),
    (pa.float32(), 1e300),
    (pa.date32(), INSTANT),
    (pa.timestamp("s"), INSTANT),
    (pa.timestamp("us"), INSTANT.replace(tzinfo=dt.UTC)),
    (pa.timestamp("us", "UTC"), INSTANT),
    (pa.time32("s"), INSTANT.time()),
    (pa.duration("s"), dt.timedelta(microseconds=5)),
    (pa.date32(), 5),
    (pa.string(), b"abc"),
    (pa.float64(), True),
    (pa.list_(pa.string()), "abc"),
    (pa.list_(pa.int8()), b"abc"),
]


def table_of(path: Any, type_: pa.DataType) -> kc.Table:
    return kc.create_table(path, pa.schema([("id", pa.int64()), ("v", type_)]), "id")


@pytest.mark.parametrize(("type_", "value"), ROUNDED, ids=str)
def test_no_value_is_rounded_inside_of_a_nested_one(tmp_path: Any, type_: pa.DataType, value: Any) -> None:
    forms = [
        (pa.list_(type_), [value]),
        (pa.struct([("f", type_)]), {"f": value}),
        (pa.map_(pa.string(), type_), {"k": value}),
    ]
    for number, (nested, cell) in enumerate(forms):
        with table_of(tmp_path / str(number), nested) as table:
            with pytest.raises((kc.InvalidArgument, kc.SchemaMismatch), match=r"column 'v.*row 1"):
                table.insert([{"id": 1, "v": None}, {"id": 2, "v": cell}, {"id": 3, "v": None}])
            assert table.count() == 0


class Point(NamedTuple):
    y: int
    x: int


def test_values_that_flat_columns_take_are_taken(tmp_path: Any) -> None:
    one = uuid.UUID(int=5)
    type_ = pa.struct([
        ("ids", pa.list_(pa.uuid())),
        ("at", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
        ("vector", pa.list_(pa.float32(), 2)),
        ("m", pa.map_(pa.string(), pa.uint64())),
        ("json", pa.list_(pa.json_())),
    ])  # fmt: skip
    cell = {
        "ids": [one, str(one), None],
        "at": Point(y=1, x=2),
        "vector": np.array([0.1, np.nan]),
        "m": [["a", 2**64 - 1]],
        "json": ["{}"],
    }
    with table_of(tmp_path / "t", type_) as table:
        table.insert([{"id": 1, "v": cell}, {"id": 2, "v": {"vector": None, "at": (3, None)}}])
        found = table.get(1)["v"]
        assert found["ids"] == [one, one, None]
        assert found["at"] == {"x": 2, "y": 1}
        assert found["vector"][0] == np.float32(0.1) and np.isnan(found["vector"][1])
        assert found["m"] == [("a", 2**64 - 1)] and found["json"] == ["{}"]
        assert table.get(2)["v"] == {
            "ids": None, "at": {"x": 3, "y": None}, "vector": None, "m": None, "json": None,
        }  # fmt: skip


@pytest.mark.parametrize("dtype", ["int16", "float64", "datetime64[ns]", "bool", "U1", "object"])
def test_vectors_of_numpy(tmp_path: Any, dtype: str) -> None:
    types = {"float64": pa.float64(), "datetime64[ns]": pa.timestamp("us"), "bool": pa.bool_()}
    vectors = [np.array([1, 0], dtype), None, np.array([], dtype), np.array([1], dtype)]
    expected = [None if vector is None else vector.tolist() for vector in vectors]
    if dtype.startswith("datetime"):
        expected = [[dt.datetime(1970, 1, 1) for _ in cell] if cell else cell for cell in expected]
        vectors = [None if vector is None else np.zeros_like(vector) for vector in vectors]
    element = types.get(dtype, pa.string() if dtype == "U1" else pa.int32())
    with table_of(tmp_path / "t", pa.list_(element)) as table:
        table.insert({"id": [1, 2, 3, 4], "v": vectors})
        assert table.scan(["v"], order="key").to_table().column(0).to_pylist() == expected
        if dtype == "float64":
            with pytest.raises(kc.SchemaMismatch, match="does not fit"):
                table.insert({"id": [5], "v": [np.array(["a"])]})


def test_maps_of_pandas_come_back(tmp_path: Any) -> None:
    import pandas as pd

    with table_of(tmp_path / "t", pa.map_(pa.string(), pa.int32())) as table:
        rows = [{"id": 1, "v": [("a", 1), ("b", 2)]}, {"id": 2, "v": None}, {"id": 3, "v": []}]
        table.insert(rows)
        table.upsert(table.to_pandas())
        assert table.scan(order="key").to_pylist() == rows
        table.upsert(pd.DataFrame({"id": [2], "v": [{"k": 5}]}))
        assert table.get(2)["v"] == [("k", 5)]
        with pytest.raises(kc.SchemaMismatch, match="does not fit"):
            table.upsert(pd.DataFrame({"id": [2], "v": [{"k": 1.5}]}))


def test_types_that_are_stored_as_others_in_a_struct(tmp_path: Any) -> None:
    fields = {
        "i": (pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3])),
        "d": (pa.decimal256(50, 2), Decimal("1.25")),
        "h": (pa.float16(), 1.5),
        "u": (pa.uuid(), uuid.UUID(int=7)),
        "z": (pa.timestamp("us", "UTC"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        "b": (pa.bool8(), True),
        "f": (pa.binary(3), b"abc"),
    }
    type_ = pa.struct([(name, kind) for name, (kind, _) in fields.items()])
    cell = {name: value for name, (_, value) in fields.items()}
    with table_of(tmp_path / "t", type_) as table:
        table.insert([{"id": 1, "v": cell}, {"id": 2, "v": None}, {"id": 3, "v": None}])
        table.update(where=pc.field("id") == 2, set={"v": cell})
        for name, value in cell.items():
            table.update(where=pc.field("id") == 3, set={f"v.{name}": value})
        rows = table.scan(["v"], order="key").to_table()
        assert rows.column(0).type == type_
        assert [table.get(key)["v"] for key in (1, 2, 3)] == [cell] * 3
