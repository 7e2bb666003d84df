"""Bad input is refused with words that help, and changes nothing."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.tables import Make

TYPES = pa.schema(
    [
        ("k", pa.int64()),
        ("i8", pa.int8()),
        ("u64", pa.uint64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("o", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us")),
        ("tz", pa.timestamp("us", "UTC")),
        ("x", pa.decimal128(9, 2)),
    ]
)


@pytest.mark.parametrize(
    "column, value, message",
    [
        ("nobody", pa.array([1]), r"column 'nobody' is unknown; the table has k, i8"),
        ("i8", pa.array([128]), r"column 'i8', row 0: int64 does not fit int8"),
        ("i8", pa.array(["1"]), r"column 'i8' is int8; data of type string does not fit"),
        ("i8", pa.array([1.5]), r"column 'i8' is int8; data of type double does not fit"),
        ("u64", pa.array([-1]), r"column 'u64', row 0: int64 does not fit uint64"),
        ("f32", pa.array([0.1]), r"column 'f32', row 0: double does not fit float"),
        ("f64", pa.array([2**53 + 1]), r"column 'f64', row 0: int64 does not fit"),
        ("s", pa.array([b"x"]), r"column 's' is string; data of type binary does not fit"),
        ("s", pa.array([1]), r"column 's' is string; data of type int64 does not fit"),
        ("b", pa.array(["x"]), r"column 'b' is binary; data of type string does not fit"),
        ("o", pa.array([1]), r"column 'o' is bool; data of type int64 does not fit"),
        ("d", pa.array([dt.datetime(2020, 1, 1)]), r"column 'd' is date32"),
        (
            "t",
            pa.array([1], pa.timestamp("ns")),
            r"column 't', row 0: timestamp\[ns\] does not fit timestamp\[us\]",
        ),
        ("t", pa.array([1], pa.timestamp("us", "UTC")), r"column 't' is timestamp\[us\]"),
        ("tz", pa.array([1], pa.timestamp("us")), r"column 'tz' is timestamp\[us,UTC\]"),
        (
            "x",
            pa.array([decimal.Decimal("1.234")]),
            r"column 'x', row 0: decimal128\(4, 3\) does not fit decimal128\(9,2\)",
        ),
        (
            "x",
            pa.array([decimal.Decimal("12345678.00")]),
            r"column 'x', row 0: .* does not fit decimal128\(9,2\)",
        ),
        ("x", pa.array([1.5]), r"column 'x' is decimal128\(9,2\); data of type double does not fit"),
        ("i8", pa.array([[1]]), r"column 'i8' is int8; data of type list"),
    ],
)
def test_what_does_not_fit_names_column_and_types(
    make: Make, column: str, value: pa.Array, message: str
) -> None:
    table = make(TYPES)
    table.insert({"k": [1]})
    before, ts = table.scan().to_pylist(), table.timestamp
    for write in (table.insert, table.upsert, table.update):
        with pytest.raises(kc.SchemaMismatch, match=message):
            write({"k": [2], column: value})
    assert table.scan().to_pylist() == before
    assert table.timestamp == ts


@pytest.mark.parametrize(
    "column, given, stored",
    [
        ("i8", pa.array([5], pa.int64()), 5),
        ("u64", pa.array([5], pa.int8()), 5),
        ("f64", pa.array([5], pa.int32()), 5.0),
        ("f32", pa.array([0.5], pa.float64()), 0.5),
        ("s", pa.array(["x"]).dictionary_encode(), "x"),
        ("s", pa.array(["x"], pa.large_string()), "x"),
        ("s", pa.array(["x"], pa.string_view()), "x"),
        ("b", pa.array([b"x"], pa.large_binary()), b"x"),
        ("b", pa.array([b"xy"], pa.binary(2)), b"xy"),
        ("t", pa.array([2], pa.timestamp("s")), dt.datetime(1970, 1, 1, 0, 0, 2)),
        ("t", pa.array([2000], pa.timestamp("ns")), dt.datetime(1970, 1, 1, 0, 0, 0, 2)),
        ("tz", pa.array([0], pa.timestamp("ms", "Asia/Tokyo")), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        ("d", pa.array([86_400_000], pa.date64()), dt.date(1970, 1, 2)),
        ("x", pa.array([7]), decimal.Decimal("7.00")),
        ("x", pa.array([decimal.Decimal("1.500")]), decimal.Decimal("1.50")),
        ("s", pa.nulls(1), None),
    ],
)
def test_what_is_exact_is_taken(make: Make, column: str, given: pa.Array, stored: Any) -> None:
    table = make(TYPES)
    table.insert({"k": [1], column: given})
    assert table.get(1, [column]) == {column: stored}
    table.flush()
    assert table.scan([column]).to_pylist() == [{column: stored}]


@pytest.mark.parametrize(
    "data", [1, "k", b"k", None, [1, 2], [{}], {"k": 5}, {"k": [1, 2], "i8": [1]}, {1: [1]}]
)
def test_what_is_no_table_of_rows(make: Make, data: Any) -> None:
    table = make(TYPES)
    with pytest.raises(kc.InvalidArgument):
        table.upsert(data)
    assert table.count() == 0


def test_zero_columns(table: kc.Table) -> None:
    nothing = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    with pytest.raises(kc.InvalidArgument):
        table.insert(nothing)
    with pytest.raises(kc.InvalidArgument):
        table.insert(pa.Table.from_batches([nothing]))
    assert table.insert({}).counts == (0, 0, 0, 0)
    with pytest.raises(kc.SchemaMismatch, match="column 'k' is missing"):
        table.insert({"a": [1]})
    with pytest.raises(kc.SchemaMismatch, match="column 'k' is missing"):
        table.insert({"a": []})


def test_columns_given_twice(table: kc.Table) -> None:
    double = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["k", "k"])
    with pytest.raises(kc.SchemaMismatch, match="'k' is there twice"):
        table.insert(double)


@pytest.mark.parametrize("buckets", [0, 3])
def test_rows_outside_every_partition(make: Make, buckets: int) -> None:
    parts: list[Any] = [kc.RangePartition("k", [(0, 10), (20, 30)])]
    if buckets:
        parts.append(kc.HashPartition("k", buckets))
    table = make(partition_by=parts)
    data = {"k": [-1, 0, 9, 10, 19, 20, 29, 30]}
    with pytest.raises(kc.RowErrors, match="4 no_partition") as refused:
        table.insert(data)
    assert refused.value.errors["row"].to_pylist() == [0, 3, 4, 7]
    assert table.count() == 0
    result = table.insert(data, on_error="return")
    assert result.inserted == 4
    assert table.get(10) is None and table.get(20) is not None
    assert [r["k"] for r in table.scan(["k"], order="key").to_pylist()] == [0, 9, 20, 29]
    # Nothing can be there, and yet an update there is an error of its row, not "ignored".
    result = table.delete({"k": [15]}, on_missing="ignore", on_error="return")
    assert result.errors is not None and result.errors["code"].to_pylist() == ["no_partition"]
    found = table.get_many([15, 20], ["k"]).to_pylist()
    assert found == [{"k": 15, "_found": False}, {"k": 20, "_found": True}]


@pytest.mark.parametrize("threshold", [1, 100_000])
def test_keys_of_more_than_16_kib(make: Make, threshold: int) -> None:
    table = make(
        pa.schema([("a", pa.string()), ("b", pa.binary()), ("v", pa.string())]),
        ("a", "b"),
        ingest_threshold_rows=threshold,
    )
    largest = 16_384 - 2 - 1  # "a" ends with two bytes
    table.insert({"a": ["a" * largest], "b": [b"b"], "v": ["x"]})
    with pytest.raises(kc.RowErrors, match="too_large"):
        table.insert({"a": ["a" * largest], "b": [b"bb"]})
    result = table.insert({"a": ["a" * 20_000, "c"], "b": [b"", b""]}, on_error="return")
    assert result.inserted == 1
    assert result.errors is not None and result.errors["code"].to_pylist() == ["too_large"]
    assert table.get(("a" * largest, b"b"), ["v"]) == {"v": "x"}
    assert table.get(("a" * 40_000, b"")) is None
    table.flush()
    assert table.get(("a" * largest, b"b"), ["v"]) == {"v": "x"}


def test_rows_of_more_than_64_mib(make: Make) -> None:
    table = make()
    result = table.insert({"k": [1, 2], "s": ["x" * ((64 << 20) + 1), "y"]}, on_error="return")
    assert result.inserted == 1
    assert result.errors is not None
    assert result.errors.to_pylist() == [{"row": 0, "code": "too_large", "key": {"k": 1}}]


def test_a_batch_that_cannot_fit_into_memory(make: Make) -> None:
    table = make(memory_limit_bytes=16 << 20, ingest_threshold_bytes=64 << 30)
    with pytest.raises(kc.MemoryLimit, match="memory_limit_bytes"):
        table.insert({"k": list(range(20)), "s": ["x" * (1 << 20)] * 20})
    assert table.count() == 0
    assert table.insert({"k": [1]}).inserted == 1


# ---- arguments


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.insert({"k": [1]}, on_conflict="replace"),
        lambda t: t.update({"k": [1], "a": [1]}, on_missing="skip"),
        lambda t: t.delete({"k": [1]}, on_missing="skip"),
        lambda t: t.update(where=[("k", "=", 1)], set={"a": 1}, on_missing="skip"),
        lambda t: t.delete(where=[("k", "=", 1)], on_missing="skip"),
        lambda t: t.upsert({"k": [1]}, on_error="ignore"),
        lambda t: t.upsert({"k": [1]}, txn="job"),
        lambda t: t.upsert({"k": [1]}, txn=("job", -1)),
        lambda t: t.upsert({"k": [1]}, txn=("", 1)),
        lambda t: t.upsert({"k": [1]}, txn=("job", 1.5)),
        lambda t: t.batch(on_error="no"),
        lambda t: t.apply({"k": [1], "_op": ["merge"]}),
        lambda t: t.apply({"k": [1], "_op": [None]}),
        lambda t: t.apply({"k": [1], "_op": [1]}),
        lambda t: t.apply({"k": [1]}),
        lambda t: t.apply({"k": [1], "a": ["insert"]}, op_column="a"),
        lambda t: t.apply({"k": [1], "_op": ["update"]}),
        lambda t: t.delete(),
        lambda t: t.delete({"k": [1]}, where=[("k", "=", 1)]),
        lambda t: t.update({"k": [1]}),
        lambda t: t.scan(["nobody"]),
        lambda t: t.scan("k"),
        lambda t: t.scan(["k", "k"]),
        lambda t: t.scan(where=[("nobody", "=", 1)]),
        lambda t: t.scan(where=[("k", "~", 1)]),
        lambda t: t.scan(where="k ="),
        lambda t: t.scan(where="nobody = 1"),
        lambda t: t.scan(where=[("k", "=", "text")]),
        lambda t: t.scan(order="desc"),
        lambda t: t.scan(limit=-1),
        lambda t: t.scan(limit=1.5),
        lambda t: t.scan(batch_rows=0),
        lambda t: t.scan(key_range=5),
        lambda t: t.scan(key_range=((1, 2), None)),
        lambda t: t.scan(key_range=("text", None)),
        lambda t: t.scan(at="now"),
        lambda t: t.scan(at=dt.datetime(2020, 1, 1)),
        lambda t: t.scan(at=-1),
        lambda t: t.scan(at=True),
        lambda t: t.get("text"),
        lambda t: t.get(None),
        lambda t: t.get((1, 2)),
        lambda t: t.get({"a": 1}),
        lambda t: t.get({"k": 1, "a": 1}),
        lambda t: t.get(1.5),
        lambda t: t.get(2**63),
        lambda t: t.get(True),
        lambda t: t.get(1, ["nobody"]),
        lambda t: t.get_many([1, None]),
        lambda t: t.get_many([1, "text"]),
        lambda t: t.get_many(pa.array([1, None])),
        lambda t: t.get_many(pa.array(["text"])),
        lambda t: t.get_many({"a": [1]}),
        lambda t: t.stats(by="page"),
        lambda t: t.scan_tokens(target_rows=0),
        lambda t: kc.open_table(t.path, "w"),
        lambda t: kc.open_table(t.path, options={"durabilty": "sync"}),
    ],
)
def test_arguments_that_make_no_sense(table: kc.Table, call: Any) -> None:
    table.insert({"k": [1]})
    ts = table.timestamp
    with pytest.raises(kc.InvalidArgument) as refused:
        call(table)
    assert str(refused.value)
    assert table.count() == 1 and table.timestamp == ts


def test_keys_of_the_wrong_shape(make: Make) -> None:
    table = make(pa.schema([("a", pa.string()), ("b", pa.int8()), ("v", pa.int8())]), ("a", "b"))
    table.insert({"a": ["x"], "b": [1], "v": [5]})
    for key in (
        "x",
        ("x",),
        ("x", 1, 2),
        ("x", 300),
        (1, "x"),
        {"a": "x"},
        {"a": "x", "b": 1, "c": 1},
        ("x", None),
    ):
        with pytest.raises(kc.InvalidArgument):
            table.get(key)
    wanted = {"a": "x", "b": 1, "v": 5}
    assert table.get(("x", 1)) == table.get(["x", 1]) == table.get({"b": 1, "a": "x"}) == wanted
    with pytest.raises(kc.InvalidArgument, match="one array is not enough"):
        table.get_many(pa.array(["x"]))
