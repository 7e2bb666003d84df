"""Columns of another kind than the table's: read where that is exact, else refused by value and row."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kudu_core.common.rows.arrow_in import batches
from kudu_core.common.rows.conform import conform
from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.types.casts import cast
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InvalidArgument, SchemaMismatch

D = decimal.Decimal
UTC = dt.UTC


def _given(type_: str, cells: Any) -> list[Any]:
    """What a column of that type holds of the cells."""
    schema = declare([Column("k", "int64"), Column("x", type_)], "k")
    found: list[Any] = []
    data = {"k": np.arange(len(cells)), "x": cells}
    for batch in batches(data, schema):
        block = conform(schema, batch).block
        column = schema.by_name["x"]
        found += block.columns[column.id].to_arrow(column.type).to_pylist()
    return found


TEXT = [
    ("date32", "2026-01-05", dt.date(2026, 1, 5)),
    ("date32", "0001-01-01", dt.date(1, 1, 1)),
    ("timestamp[us]", "2026-01-05", dt.datetime(2026, 1, 5)),
    ("timestamp[us]", "2026-01-05T10:30", dt.datetime(2026, 1, 5, 10, 30)),
    ("timestamp[us]", "2026-01-05 10:30:01.123456", dt.datetime(2026, 1, 5, 10, 30, 1, 123456)),
    ("timestamp[us]", "2026-01-05 10:30:01.123456000", dt.datetime(2026, 1, 5, 10, 30, 1, 123456)),
    ("timestamp[us,UTC]", "2026-01-05T10:30:00Z", dt.datetime(2026, 1, 5, 10, 30, tzinfo=UTC)),
    ("timestamp[us,UTC]", "2026-01-05T10:30:00+02:00", dt.datetime(2026, 1, 5, 8, 30, tzinfo=UTC)),
    ("timestamp[us,UTC]", "2026-01-05 10:30:00.5000000-02", dt.datetime(2026, 1, 5, 12, 30, 0, 500000, UTC)),
]
FORMS: dict[str, Any] = {
    "list": lambda text: [None, text],
    "string": lambda text: pa.array([None, text]),
    "large string": lambda text: pa.array([None, text], pa.large_string()),
    "view": lambda text: pa.array([None, text], pa.string_view()),
    "dictionary": lambda text: pa.array([None, text]).dictionary_encode(),
    "chunks": lambda text: pa.chunked_array([[None], [text]], pa.string()),
    "slice": lambda text: pa.array(["junk", None, text]).slice(1),
    "series": lambda text: pd.Series([None, text]),
    "category": lambda text: pd.Series([None, text], dtype="category"),
    "numpy objects": lambda text: np.array([None, text], object),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("type_", "text", "expected"), TEXT)
def test_text_of_times_is_read_exactly(form: str, type_: str, text: str, expected: Any) -> None:
    assert _given(type_, FORMS[form](text)) == [None, expected]


def test_text_among_other_values() -> None:
    assert _given("date32", [dt.date(2026, 1, 4), "2026-01-05", None]) == [
        dt.date(2026, 1, 4),
        dt.date(2026, 1, 5),
        None,
    ]
    instant = dt.datetime(2026, 1, 5, tzinfo=UTC)
    assert _given("timestamp[us,UTC]", [instant, "2026-01-05T00:00Z"]) == [instant, instant]


NO_TIMES = [
    ("date32", "5.1.2026", r"is no date32; write 2026-01-05, or parse it: pc\.strptime"),
    ("date32", "2026-01-05T00:00:00", "is no date32"),
    ("date32", "2026-02-30", "is no date32"),
    ("date32", "", "is no date32"),
    ("timestamp[us]", "tomorrow", "is no timestamp.us.; write 2026-01-05T10:30:00, with no more places"),
    ("timestamp[us]", "2026-01-05T10:30:00.1234567", "is no timestamp.us.; write .*no more places than us"),
    ("timestamp[us]", "2026-01-05T10:30:00Z", "has a zone, and the column is timestamp.us., without one"),
    ("timestamp[us]", "1767225600", "is no timestamp"),
    ("timestamp[us,UTC]", "2026-01-05T10:30:00", "has no zone, and the column is timestamp.us,UTC.; write"),
    ("timestamp[us,UTC]", "2026-01-05", "has no zone"),
    ("timestamp[us,UTC]", "2026-01-05T10:30:00 Europe/Berlin", "is no timestamp.us,UTC.; write .*10:30:00Z"),
]


@pytest.mark.parametrize("mixed", [False, True], ids=["all text", "mixed"])
@pytest.mark.parametrize(("type_", "text", "told"), NO_TIMES)
def test_text_that_is_no_time_is_named_with_its_row(type_: str, text: str, told: str, mixed: bool) -> None:
    good = next(text for of, text, _ in TEXT if of == type_)
    first = next(value for of, _, value in TEXT if of == type_) if mixed else good
    with pytest.raises(InvalidArgument, match=rf"column 'x', row 2: '{text}' {told}"):
        _given(type_, [first, None, text, good])


def test_rows_are_numbered_over_batches() -> None:
    schema = declare([Column("k", "int64"), Column("x", "date32")], "k")
    table = pa.table({"k": range(6), "x": ["2026-01-05"] * 4 + ["no", None]})
    with pytest.raises(SchemaMismatch, match="row 4: 'no'"):
        list(batches(table.to_reader(max_chunksize=3), schema))
    rows = ({"k": k, "x": "2026-01-05" if k < 70_000 else "no"} for k in range(70_001))
    with pytest.raises(SchemaMismatch, match="row 70000: 'no'"):
        list(batches(rows, schema))


NAIVE, AWARE = dt.datetime(2026, 1, 5, 1), dt.datetime(2026, 1, 5, 1, tzinfo=UTC)
MISFITS = [
    ("int32", ["5", "6"], r"is int32; .* string .*: row 1 has '5'; write int\(text\)"),
    ("int32", [1.5, 2.0], r"is int32; .* double .*: row 1 has 1.5; write int\(number\)"),
    ("uint64", pa.array([None, "5"], pa.string_view()), r"row 1 has '5'; write int\(text\), or .*pa\.uint64"),
    ("float64", ["1.5"], r"row 1 has '1.5'; write float\(text\)"),
    ("decimal128(9,2)", pa.array([None, 1.5]), r"row 1 has 1.5; write decimal\.Decimal\(text\)"),
    ("decimal128(9,2)", pa.array([None, "1.5"]), r"row 1 has '1.5'; write decimal\.Decimal\(text\)"),
    ("timestamp[us,UTC]", [NAIVE], r"row 1 has datetime.*; say in which .*replace\(tzinfo=timezone\.utc\)"),
    ("timestamp[us]", [AWARE], r"row 1 has datetime.*; write value\.astimezone\(zone\)"),
    ("date32", [NAIVE], r"row 1 has datetime.*; write value\.date\(\)"),
    ("string", [5], r"row 1 has 5; write str\(number\)"),
]


@pytest.mark.parametrize(("type_", "cells", "told"), MISFITS, ids=lambda v: v if isinstance(v, str) else "")
def test_what_does_not_fit_is_told_with_value_row_and_remedy(type_: str, cells: Any, told: str) -> None:
    data = [None, *cells] if isinstance(cells, list) else cells
    with pytest.raises(SchemaMismatch, match=f"'x' .*{told}"):
        _given(type_, data)


def test_what_was_refused_only_for_a_value_still_is() -> None:
    with pytest.raises(SchemaMismatch, match="row 1"):
        _given("int8", pa.array([1, 300]))
    with pytest.raises(SchemaMismatch, match="data of type string does not fit; write"):
        _given("int8", pa.array([None, None], pa.string()))


def test_broken_text_is_found_before_it_is_read() -> None:
    offsets = pa.array([0, 10, 4], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"2026-01-05")])
    with pytest.raises(SchemaMismatch, match="broken Arrow data"):
        _given("date32", text)
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2]), text], ["k", "x"])
    schema = declare([Column("k", "int64"), Column("x", "int64")], "k")
    with pytest.raises(SchemaMismatch, match="broken Arrow data"):
        list(batches(batch, schema))


TYPES = ["int32", "float64", "string", "binary", "bool", "date32", "timestamp[us,UTC]", "decimal128(9,2)"]


@pytest.mark.parametrize("type_", TYPES)
def test_columns_of_pandas_without_a_value_are_null(type_: str) -> None:
    schema = declare([Column("k", "int64"), Column("x", type_)], "k")
    for nothing in ([np.nan, np.nan], [None, None], [pd.NA, pd.NA], [np.nan, None]):
        for made in (pd.DataFrame({"k": [1, 2], "x": nothing}), {"k": [1, 2], "x": pd.Series(nothing)}):
            [batch] = batches(made, schema)
            column = schema.by_name["x"]
            cells = conform(schema, batch).block.columns[column.id].to_arrow(column.type)
            assert cells.to_pylist() == [None, None]
    for empty in (pd.DataFrame({"k": [], "x": []}), pd.DataFrame({"k": [], "x": []}, dtype="float64")):
        [batch] = batches(empty, schema)
        assert conform(schema, batch).block.rows == 0


def test_floats_of_pandas_with_a_value_are_no_text() -> None:
    with pytest.raises(SchemaMismatch, match=r"'x' is string; .* row 1 has 1\.5"):
        _given("string", pd.Series([np.nan, 1.5]))
    assert _given("int32", pd.Series([np.nan, 5.0])) == [None, 5]
    with pytest.raises(InvalidArgument, match="'x' is int32"):
        _given("int32", pd.Series([np.nan, 5.5]))


def test_categories_of_polars_are_taken_as_their_text() -> None:
    views = pa.DictionaryArray.from_arrays(
        pa.array([1, None, 0], pa.uint32()), pa.array(["a", "b"], pa.string_view())
    )
    found = cast(views, ColumnType.parse("string"), "c")
    assert found.to_pylist() == ["b", None, "a"]


@pytest.mark.parametrize("number", [np.True_, np.int8(3), np.float64(0.5)], ids=repr)
@pytest.mark.parametrize("is_list", [False, True])
def test_numbers_of_numpy_among_its_times_are_refused(number: Any, is_list: bool) -> None:
    """pyarrow 26 ends the process."""
    cells = [np.datetime64(5, "us"), number]
    type_ = pa.list_(pa.timestamp("us")) if is_list else pa.timestamp("us")
    schema = declare(pa.schema([("k", pa.int64()), ("x", type_)]), "k")
    with pytest.raises(InvalidArgument, match=r"column 'x.*', row 1: "):
        list(batches({"k": [1, 2], "x": [[], cells] if is_list else cells}, schema))


@pytest.mark.parametrize("type_", [pa.int64(), pa.bool_(), pa.float64(), pa.string(), None], ids=str)
@pytest.mark.parametrize("number", [np.True_, np.int8(3), np.float64(0.5)], ids=repr)
def test_times_of_numpy_among_its_numbers_are_refused(number: Any, type_: pa.DataType | None) -> None:
    """Likewise in other columns, and in those that the table does not have."""
    fields = [("k", pa.int64()), *([("x", type_)] if type_ is not None else [])]
    schema = declare(pa.schema(fields), "k")
    with pytest.raises(InvalidArgument, match="column 'x'"):
        list(batches({"k": [1, 2, 3], "x": [None, np.datetime64(5, "us"), number]}, schema))
