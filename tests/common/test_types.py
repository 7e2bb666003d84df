"""Column types, single values, and columns as raw buffers."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import pickle
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.types import values
from kudu_core.common.types.stored_arrays import outward
from kudu_core.common.types.types import ColumnType, extension_name
from kudu_core.errors import InvalidArgument

D = decimal.Decimal
UTC = dt.UTC

NAMES = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "bool",
    "string",
    "binary",
    "date32",
    "timestamp[us]",
    "timestamp[us,UTC]",
    "decimal128(10,2)",
    "decimal128(38,0)",
    "timestamp[s]",
    "timestamp[ns,Europe/Berlin]",
    "date64",
    "time32[s]",
    "time64[ns]",
    "duration[ms]",
]
CONVERTED = {
    "float16": pa.float32(),
    "large_string": pa.string(),
    "string_view": pa.string(),
    "json": pa.string(),
    "large_binary": pa.binary(),
    "binary_view": pa.binary(),
    "fixed_size_binary[5]": pa.binary(),
    "uuid": pa.binary(),
    "month_day_nano_interval": pa.binary(),
    "bool8": pa.int8(),
    "null": pa.bool_(),
    "decimal32(5,2)": pa.decimal128(5, 2),
    "decimal64(18,0)": pa.decimal128(18, 0),
    "decimal256(38,2)": pa.decimal128(38, 2),
    "decimal256(76,2)": pa.binary(),
    "dictionary[string]": pa.string(),
    "dictionary[int64,ordered]": pa.int64(),
    "dictionary[large_string]": pa.string(),
}
"""Types by their names, and as what their cells are stored."""


@pytest.mark.parametrize("name", CONVERTED)
def test_a_type_that_is_stored_otherwise_survives_likewise(name: str) -> None:
    type_ = ColumnType.parse(name)
    assert (type_.name, type_.arrow) == (name, CONVERTED[name])
    assert type_.is_converted
    assert ColumnType.from_arrow(type_.declared) == type_
    assert pickle.loads(pickle.dumps(type_)) == type_
    assert type_.stored == ColumnType.from_arrow(type_.arrow)


def test_an_extension_type_keeps_its_name_and_what_it_says_of_itself() -> None:
    opaque = pa.opaque(pa.int32(), "a kind", "a vendor")
    type_ = ColumnType.from_arrow(opaque)
    assert (type_.declared, type_.arrow) == (opaque, pa.int32())
    assert ColumnType.parse(type_.name).declared == opaque
    unknown = pa.field("v", pa.int32(), metadata={"ARROW:extension:name": "none.of.ours", "x": "y"})
    read = ColumnType.parse(extension_name(unknown))
    assert read.declared == pa.int32()
    assert read.metadata == {b"ARROW:extension:name": b"none.of.ours", b"x": b"y"}


@pytest.mark.parametrize("name", NAMES)
def test_a_type_survives_its_name_its_arrow_type_and_pickle(name: str) -> None:
    type_ = ColumnType.parse(name)
    assert type_.name == name
    assert ColumnType.from_arrow(type_.arrow) == type_
    assert pickle.loads(pickle.dumps(type_)) == type_
    assert type_.width in (0, 1, 2, 4, 8, 16)
    if type_.width and name != "bool":
        assert type_.width * 8 == type_.arrow.bit_width


@pytest.mark.parametrize(
    "arrow", [pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.decimal128(10, -2), pa.binary(0)]
)
def test_other_arrow_types_are_refused_by_name(arrow: pa.DataType) -> None:
    with pytest.raises(InvalidArgument):
        ColumnType.from_arrow(arrow)


@pytest.mark.parametrize(
    "name", ["int", "INT64", "decimal128(39,2)", "decimal128(3,4)", "decimal128(0,0)", ""]
)
def test_unknown_type_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        ColumnType.parse(name)


def test_a_zone_is_given_back_as_it_was_declared() -> None:
    for zone in ("UTC", "Etc/UTC", "+00:00", "Europe/Paris", "-03:30"):
        type_ = ColumnType.from_arrow(pa.timestamp("us", zone))
        assert type_.declared == pa.timestamp("us", zone)
        assert type_.is_utc == (zone in ("UTC", "Etc/UTC", "+00:00"))
        moment = dt.datetime(2024, 7, 1, 12, tzinfo=UTC)
        found = values.exact(type_, moment)
        assert found == moment
        assert found.utcoffset() == pa.scalar(moment, type_.arrow).as_py().utcoffset()


CELLS = [
    ("int8", [-128, 0, 127]),
    ("uint64", [0, 2**64 - 1]),
    ("int64", [-(2**63), np.int64(5), np.uint8(7)]),
    ("float32", [0.1, 1e-40, math.inf, np.float32(0.1)]),
    ("float64", [0.1, -0.0, 3]),
    ("bool", [True, np.False_]),
    ("string", ["", "a\0b", "grüße", np.str_("x")]),
    ("binary", [b"", bytearray(b"\xff"), np.bytes_(b"x")]),
    ("date32", [dt.date(1, 1, 1), dt.date(9999, 12, 31), np.datetime64("2024-02-29")]),
    (
        "timestamp[us]",
        [dt.datetime(1, 1, 1), pd.Timestamp("2024-01-01 00:00:00.000001"), np.datetime64(3000, "ns")],
    ),
    ("timestamp[us,UTC]", [dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5)))]),
    ("decimal128(10,2)", [D("1.5"), 7, D("-99999999.99"), D("1E+3")]),
    ("decimal128(38,0)", [10**38 - 1, -(10**38 - 1)]),
    ("timestamp[s]", [dt.datetime(1, 1, 1), np.datetime64(5, "s")]),
    ("timestamp[ns]", [pd.Timestamp(1), np.datetime64(-1, "ns"), dt.datetime(2024, 1, 1, 0, 0, 0, 1)]),
    ("timestamp[ms,Europe/Berlin]", [dt.datetime(2020, 7, 1, tzinfo=UTC)]),
    ("date64", [dt.date(1, 1, 1), dt.date(9999, 12, 31), np.datetime64("2024-02-29")]),
    ("time32[s]", [dt.time(), dt.time(23, 59, 59)]),
    ("time64[us]", [dt.time(1, 2, 3, 4)]),
    ("time64[ns]", [dt.time(1, 2, 3, 4)]),
    ("duration[s]", [dt.timedelta(seconds=-5), np.timedelta64(5, "m")]),
    ("duration[ns]", [pd.Timedelta(-1), np.timedelta64(7, "ns"), dt.timedelta(days=1)]),
]


SINGLE = [
    ("float16", [0.1, 1.5, -0.0, np.float16(3)]),
    ("bool8", [True, False]),
    ("uuid", [uuid.UUID(int=7), str(uuid.UUID(int=8)), b"0123456789abcdef"]),
    ("json", ["{}"]),
    ("fixed_size_binary[3]", [b"abc", bytearray(b"\0\0\0")]),
    ("decimal32(5,2)", [D("1.25"), 7]),
    ("decimal256(76,2)", [D("1.25"), -7, 10**73]),
    ("month_day_nano_interval", [pa.MonthDayNano([1, -2, 3])]),
    ("dictionary[string]", ["a"]),
    ("large_string", ["grüße"]),
]


@pytest.mark.parametrize(("name", "given_values"), SINGLE)
def test_values_of_types_that_are_stored_otherwise(name: str, given_values: list[object]) -> None:
    type_ = ColumnType.parse(name)
    for value in given_values:
        exact = values.exact(type_, value)
        stored = ColumnBuffers.constant(type_, value, 3).to_arrow(type_)
        assert outward(stored, type_).to_pylist() == [exact] * 3
        assert values.exact(type_, exact) == exact
        assert values.from_json(type_, json.loads(json.dumps(values.to_json(type_, exact)))) == exact


def test_long_decimals_have_the_order_of_their_numbers() -> None:
    type_ = ColumnType.parse("decimal256(60,0)")
    numbers = [-(10**59), -(10**40), -1, 0, 1, 255, 256, 10**40, 10**59]
    assert sorted(numbers) == sorted(numbers, key=lambda n: values.physical(type_, n))


@pytest.mark.parametrize(("name", "given_values"), CELLS)
def test_values_reach_arrow_and_json_unchanged(name: str, given_values: list[object]) -> None:
    type_ = ColumnType.parse(name)
    for value in given_values:
        exact = values.exact(type_, value)
        column = ColumnBuffers.constant(type_, value, 3)
        assert column.to_arrow(type_).to_pylist() == [exact] * 3
        assert values.from_json(type_, json.loads(json.dumps(values.to_json(type_, exact)))) == exact
        assert values.unpack(type_, values.raw_bytes(type_, value)) == values.physical(type_, value)
        assert values.exact(type_, pa.scalar(exact, type_.arrow)) == exact


def test_nan_survives_json() -> None:
    type_ = ColumnType.parse("float64")
    assert math.isnan(values.from_json(type_, json.loads(json.dumps(values.to_json(type_, math.nan)))))


REFUSED = [
    ("int8", [128, -129, 1.0, True, "1", None, D(1)]),
    ("uint8", [-1, 256]),
    ("float32", [1e39, "1", True, 16777217]),
    ("float64", [2**53 + 1, None, D("0.1")]),
    ("bool", [1, 0, "true", None]),
    ("string", [b"x", 1, None, "\ud800"]),
    ("binary", ["x", 1]),
    ("date32", [dt.datetime(2020, 1, 1), "2020-01-01", 5, pd.NaT]),
    (
        "timestamp[us]",
        [dt.datetime(2020, 1, 1, tzinfo=UTC), 5, dt.date(2020, 1, 1), pd.NaT, np.datetime64(1, "ns")],
    ),
    ("timestamp[us,UTC]", [dt.datetime(2020, 1, 1), np.datetime64("2020-01-01"), pd.Timestamp(1, tz="UTC")]),
    ("timestamp[s]", [dt.datetime(2020, 1, 1, 0, 0, 0, 1), pd.Timestamp(1)]),
    ("date64", [dt.datetime(2020, 1, 1)]),
    ("time32[s]", [dt.time(0, 0, 0, 1), dt.time(0, 0, tzinfo=UTC), 5]),
    ("duration[s]", [dt.timedelta(milliseconds=1), np.timedelta64(1, "ms"), np.timedelta64("NaT"), 5]),
    ("duration[ns]", [dt.timedelta(days=200_000)]),
    ("timestamp[ns]", [dt.datetime(1, 1, 1), np.datetime64(2**62, "us")]),
    ("float16", [70_000.0, "1", 2049]),
    ("uuid", ["nothing", b"short", 5]),
    ("fixed_size_binary[3]", [b"ab", b"abcd", "abc"]),
    ("bool8", [1, "true"]),
    ("null", [0, False]),
    ("month_day_nano_interval", [(2**31, 0, 0), dt.timedelta(1)]),
    ("decimal256(76,2)", [D("0.001"), 10**75]),
    ("decimal128(4,2)", [D("100"), D("1.234"), 1.5, D("nan"), D("inf"), "1", D("1E+60")]),
]


@pytest.mark.parametrize(("name", "given_values"), REFUSED)
def test_values_that_do_not_fit_are_refused_with_their_name(name: str, given_values: list[object]) -> None:
    for value in given_values:
        with pytest.raises(InvalidArgument, match="the thing"):
            values.physical(ColumnType.parse(name), value, "the thing")


def test_times_outside_python_keep_their_bytes_through_a_scalar() -> None:
    type_ = ColumnType.parse("timestamp[us,UTC]")
    scalar = pa.scalar(2**62, type_.arrow)
    assert values.physical(type_, scalar) == 2**62
    assert ColumnBuffers.constant(type_, scalar, 1).to_arrow(type_)[0] == scalar
    with pytest.raises(InvalidArgument):
        values.python(type_, 2**62)


# ------------------------------------------------------------------------------------ raw columns

ARRAYS = {
    "bool": [True, None, False, True, True],
    "int16": [1, None, -3, 4, 5],
    "int64": [1, None, 3, 4, 2**62],
    "float64": [1.5, None, math.inf, -0.0, 2.0],
    "string": ["a", None, "", "ccc", "grüße"],
    "binary": [b"\0", None, b"", b"c" * 40, b"x"],
    "decimal128(10,2)": [D("1.25"), None, D("-3.00"), D("0.00"), D("5.01")],
    "timestamp[us,UTC]": [dt.datetime(2020, 1, i, tzinfo=UTC) if i != 2 else None for i in range(1, 6)],
}


def _array(name: str, repeat: int = 9) -> pa.Array:
    return pa.array(ARRAYS[name] * repeat, ColumnType.parse(name).arrow)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrow_slices_come_back_as_they_went_in(name: str) -> None:
    type_ = ColumnType.parse(name)
    whole = _array(name)
    for lower, upper in [(0, 45), (3, 45), (8, 17), (8, 8), (0, 0), (45, 45), (1, 2), (0, 1), (13, 40)]:
        array = whole.slice(lower, upper - lower)
        column = ColumnBuffers.from_arrow(array, type_)
        back = column.to_arrow(type_)
        back.validate(full=True)
        assert back == array
        assert column.null_count == array.null_count
        assert (column.valid_mask() == np.array(array.is_valid())).all()


@pytest.mark.parametrize("name", ARRAYS)
def test_slice_take_and_concat_agree_with_arrow(name: str) -> None:
    type_ = ColumnType.parse(name)
    array = _array(name).slice(2)
    column = ColumnBuffers.from_arrow(array, type_)
    rng = np.random.default_rng(1)
    for _ in range(10):
        lower, upper = sorted(rng.integers(0, len(array) + 1, 2).tolist())
        part = column.slice(lower, upper)
        assert part.to_arrow(type_) == array.slice(lower, upper - lower)
        assert part.compact().to_arrow(type_) == array.slice(lower, upper - lower)
        rows = rng.integers(0, max(1, upper - lower), 20) if upper > lower else np.empty(0, np.int64)
        assert part.take(rows).to_arrow(type_) == array.slice(lower, upper - lower).take(pa.array(rows))
        joined = ColumnBuffers.concat([column.slice(0, lower), part, column.slice(upper, len(array))])
        joined.to_arrow(type_).validate(full=True)
        assert joined.to_arrow(type_) == array


@pytest.mark.parametrize("name", ARRAYS)
def test_arrow_shares_the_memory_of_a_column(name: str) -> None:
    type_ = ColumnType.parse(name)
    array = _array(name)
    column = ColumnBuffers.from_arrow(array, type_)
    shared = column.values.ctypes.data == array.buffers()[-1].address
    assert shared == (name != "bool")
    if name != "bool":
        assert column.to_arrow(type_).buffers()[-1].address == column.values.ctypes.data


def test_nulls_and_constants() -> None:
    for name in ARRAYS:
        type_ = ColumnType.parse(name)
        for length in (0, 1, 9):
            assert ColumnBuffers.nulls(type_, length).to_arrow(type_) == pa.nulls(length, type_.arrow)
            assert ColumnBuffers.constant(type_, None, length).null_count == length
            same = ColumnBuffers.constant(type_, ARRAYS[name][0], length).to_arrow(type_)
            assert same == pa.array([ARRAYS[name][0]] * length, type_.arrow)


@given(st.lists(st.one_of(st.none(), st.text()), max_size=40), st.data())
def test_strings_survive_any_cut(cells: list[str | None], data: st.DataObject) -> None:
    type_ = ColumnType.parse("string")
    column = ColumnBuffers.from_arrow(pa.array(cells, pa.string()), type_)
    lower = data.draw(st.integers(0, len(cells)))
    upper = data.draw(st.integers(lower, len(cells)))
    assert column.slice(lower, upper).to_arrow(type_).to_pylist() == cells[lower:upper]
    assert ColumnBuffers.concat([column.slice(lower, upper)] * 2).to_arrow(type_).to_pylist() == (
        cells[lower:upper] * 2
    )


def test_a_block_of_rows_moves_all_its_columns() -> None:
    string, int64 = ColumnType.parse("string"), ColumnType.parse("int64")
    block = RowBlock(
        {
            7: ColumnBuffers.from_arrow(pa.array(["a", "b", None]), string),
            3: ColumnBuffers.from_arrow(pa.array([1, 2, 3]), int64),
        },
        3,
    )
    names = {7: ("s", string), 3: ("i", int64)}
    assert list(block.columns) == [7, 3]
    assert block.take(np.array([2, 0])).to_arrow(names).to_pylist() == [
        {"s": None, "i": 3},
        {"s": "a", "i": 1},
    ]
    twice = RowBlock.concat([block, block.slice(1, 2)])
    assert twice.rows == 4
    assert twice.select([3]).to_arrow({3: ("i", int64)}).to_pydict() == {"i": [1, 2, 3, 2]}
