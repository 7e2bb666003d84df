"""Declaring a table's schema, keeping it, changing it."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import pickle

import pyarrow as pa
import pytest

from kudu_core.common.schema.alter import altered
from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import InvalidArgument

FIELDS = pa.schema([("v", pa.float64()), ("b", pa.string()), ("a", pa.int32())])


def test_key_columns_become_not_null_and_keep_their_place() -> None:
    schema = declare(FIELDS, ["b", "a"])
    assert schema.names == ("v", "b", "a")
    assert schema.key_names == ("b", "a")
    assert [c.name for c in schema.value_columns] == ["v"]
    assert schema.arrow == pa.schema(
        [("v", pa.float64()), pa.field("b", pa.string(), False), pa.field("a", pa.int32(), False)]
    )


def test_types_may_be_given_by_name() -> None:
    schema = declare([Column("k", "int64"), Column("t", "timestamp[us,UTC]")], "k")
    assert schema.by_name["t"].type.arrow == pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("columns", "key", "named"),
    [
        ([Column("", "int64")], "", "name"),
        ([Column("a", "int64"), Column("a", "int8")], "a", "'a' is declared twice"),
        ([Column("_op_x", "int64")], "_op_x", "_op"),
        ([Column("_timestamp", "int64")], "_timestamp", "_timestamp"),
        ([Column("_before", "int64")], "_before", "_before"),
        ([Column("k", "float64")], "k", "'k'"),
        ([Column("k", "bool")], "k", "'k'"),
        ([Column("k", pa.list_(pa.int8()))], "k", "'k'"),
        ([Column("k", "int64"), Column("x", "int65")], "k", "'x'"),
        ([Column("k", "int64", default=1)], "k", "'k'"),
        ([Column("k", "int64"), Column("x", "int8", default=300)], "k", "'x'"),
        ([Column("k", "int64"), Column("x", "int8", default="1")], "k", "'x'"),
        ([Column("k", "int64"), Column("x", "int8", encoding="zip")], "k", "'x'"),
        ([Column("k", "int64"), Column("x", "int8", compression="zip")], "k", "'x'"),
        ([Column("k", "int64"), Column("x", "int8", encoding="bitshuffle")], "k", "'x'.*int8"),
        ([Column("k", "int64"), Column("x", "float64", encoding="delta")], "k", "'x'.*float64"),
        ([Column("k", "int64"), Column("x", "bool", encoding="delta")], "k", "'x'.*bool"),
        ([Column("k", "int64"), Column("x", "string", encoding="rle")], "k", "'x'.*string"),
        ([Column("k", "int64"), Column("x", "int64", encoding="dictionary")], "k", "'x'.*int64"),
        ([Column("k", "int64", encoding="delta"), Column("j", "int64")], ["k", "j"], "'k'.*last"),
        ([Column("k", "int64"), Column("x", "int8", comment="x" * 257)], "k", "'x'"),
        ([Column("k", "int64")], "j", "'j'"),
        ([Column("k", "int64")], ["k", "k"], "'k'"),
        ([Column("k", "int64")], [], "primary key"),
        ([Column("x" * 257, "int64")], "k", "x"),
        ([], "k", "column"),
        (["k"], "k", "'k'"),
        ("k int64", "k", "k int64"),
    ],
)
def test_a_mistake_names_the_column(columns: object, key: object, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        declare(columns, key)  # type: ignore[arg-type]


def _full() -> Schema:
    utc = dt.datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
    return declare(
        [
            Column("k", "int64", comment="the key"),
            Column("i", "uint64", default=2**64 - 1),
            Column("f", "float64", default=float("inf")),
            Column("g", "float32", default=0.1),
            Column("s", "string", False, default="gr\0üße", encoding="dictionary", compression="zstd"),
            Column("b", "binary", default=b"\xff\0"),
            Column("o", "bool", default=False),
            Column("d", "date32", default=dt.date(1969, 12, 31)),
            Column("t", "timestamp[us,UTC]", default=utc),
            Column("n", "timestamp[us]", default=utc.replace(tzinfo=None)),
            Column("m", "decimal128(38,10)", default=decimal.Decimal("-1234567890123456789.0123456789")),
        ],
        "k",
    )


def test_defaults_are_stored_exactly() -> None:
    schema = _full()
    stored = json.loads(json.dumps(schema.to_json()))
    back = Schema.from_json(stored)
    assert back == schema
    assert back.to_json() == stored
    assert {c["name"]: c["write_default"] for c in stored["columns"]}["b"] == "/wA="
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert back.arrow.equals(schema.arrow, check_metadata=True)


def test_a_schema_out_of_a_schema_is_the_same() -> None:
    schema = _full()
    again = declare(schema.arrow, "k")
    assert again.arrow.equals(schema.arrow, check_metadata=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s.pop("columns"),
        lambda s: s["columns"][0].pop("type"),
        lambda s: s["columns"].append(s["columns"][0]),
        lambda s: s.update(key=[99]),
        lambda s: s.update(key=[]),
        lambda s: s.update(next_id=2),
        lambda s: s["columns"][1].update(write_default="x"),
    ],
)
def test_a_stored_schema_with_a_fault_raises(damage: object) -> None:
    stored = _full().to_json()
    damage(stored)  # type: ignore[operator]
    with pytest.raises((KeyError, TypeError, ValueError)):
        Schema.from_json(stored)


def test_projection_names_what_is_wrong() -> None:
    schema = declare(FIELDS, "a")
    assert [c.name for c in schema.project(["a", "v"])] == ["a", "v"]
    assert schema.project(None) == schema.columns
    for columns, named in ((["zz"], "'zz'"), (["a", "a"], "'a'"), ("a", "list")):
        with pytest.raises(InvalidArgument, match=named):
            schema.project(columns)


# -------------------------------------------------------------------------------------- alter


def test_a_column_dropped_and_added_again_is_another_column() -> None:
    schema = declare(FIELDS, "a")
    old = schema.by_name["v"].id
    dropped = altered(schema, drop=["v"])
    again = altered(dropped, add=[Column("v", "float64")])
    assert (dropped.version, again.version) == (2, 3)
    assert again.by_name["v"].id not in {c.id for c in schema.columns}
    assert old not in again.by_id
    both = altered(schema, drop=["v"], add=[Column("v", "int8")])
    assert both.by_name["v"].id != old


def test_names_may_be_swapped() -> None:
    schema = declare(FIELDS, "a")
    swapped = altered(schema, rename={"v": "b", "b": "v"})
    assert swapped.by_name["b"].id == schema.by_name["v"].id


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"drop": ["a"]}, "'a'"),
        ({"drop": ["zz"]}, "'zz'"),
        ({"drop": [3]}, "3"),
        ({"drop": ["v"], "rename": {"v": "w"}}, "'v'"),
        ({"rename": ["v"]}, "'v'"),
        ({"add": "v"}, "'v'"),
        ({"add": [7]}, "7"),
        ({"rename": {"zz": "y"}}, "'zz'"),
        ({"rename": {"v": "b"}}, "'b'"),
        ({"rename": {"v": "_op"}}, "_op"),
        ({"add": [Column("v", "int8")]}, "'v'"),
        ({"add": [Column("n", "int8", False)]}, "'n'"),
    ],
)
def test_a_change_that_cannot_be_names_the_column(changes: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        altered(declare(FIELDS, "a"), **changes)  # type: ignore[arg-type]


def test_an_added_column_that_is_not_null_needs_a_default() -> None:
    schema = altered(declare(FIELDS, "a"), add=[Column("n", "int8", False, default=3)])
    assert schema.by_name["n"].read_default == 3
