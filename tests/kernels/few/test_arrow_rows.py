"""Record batches of a few rows as cells: what is taken is what dicts of the same rows give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kudu_core._ext.few.arrow_rows import cells_of_batch, format_of
from kudu_core._ext.row.row_writer import RowWriter
from kudu_core._ext.row.shape import MISSING, TAGS
from kudu_core._ext.rules.decide import CALL_DELETE, CALL_INSERT, CALL_UPDATE, CALL_UPSERT

ROOM = 1 << 20
TYPES = (pa.int64(), pa.string(), pa.int32(), pa.bool_(), pa.binary())
FORMATS = tuple(format_of(type_.__arrow_c_schema__()) for type_ in TYPES)
ROWS = [
    {"k": 5, "s": "a\u00e4", "n": -1, "b": True, "z": b"\xff"},
    {"k": -5, "s": None, "n": 2, "b": None, "z": b""},
    {"k": 7, "s": "", "n": 3, "b": False, "z": None},
]
SCHEMA = pa.schema(list(zip("ksnbz", TYPES, strict=True)))


@pytest.fixture
def writer() -> RowWriter:
    columns = [
        ("k", 3, TAGS["signed"], 8, False),
        ("s", 4, TAGS["text"], 0, True),
        ("n", 9, TAGS["signed"], 4, False),
        ("b", 10, TAGS["bool"], 1, True),
        ("z", 11, TAGS["bytes"], 0, True),
    ]
    return RowWriter(columns, [0], [MISSING, None, MISSING, None, None])


def cells(writer: RowWriter, batch: pa.RecordBatch, operation: int = CALL_UPSERT, room: int = ROOM) -> Any:
    return cells_of_batch(writer, FORMATS, *batch.__arrow_c_array__(), operation, room)


def batch_of(rows: list[dict[str, Any]], **types: pa.DataType) -> pa.RecordBatch:
    fields = [pa.field(name, types.get(name) or SCHEMA.field(name).type) for name in rows[0]]
    return pa.RecordBatch.from_pylist(rows, pa.schema(fields))


def test_formats() -> None:
    assert FORMATS == (b"l", b"u", b"i", b"b", b"z")


@pytest.mark.parametrize("first", range(3))
@pytest.mark.parametrize("columns", ["ksnbz", "zbnsk", "kn", "knz"])
@pytest.mark.parametrize("operation", [CALL_INSERT, CALL_UPSERT, CALL_UPDATE])
def test_as_dicts(writer: RowWriter, first: int, columns: str, operation: int) -> None:
    rows = [{name: row[name] for name in columns} for row in ROWS]
    expected = writer.prepare_rows(rows[first:], operation, ROOM)
    assert expected is not None
    assert cells(writer, batch_of(rows).slice(first), operation) == expected


def test_keys_alone_are_deletes(writer: RowWriter) -> None:
    keys = [{"k": row["k"]} for row in ROWS]
    assert cells(writer, batch_of(keys), CALL_DELETE) == writer.prepare_rows(keys, CALL_DELETE, ROOM)
    assert cells(writer, batch_of(keys), CALL_UPDATE) is None
    assert cells(writer, batch_of(ROWS), CALL_DELETE) is None
    assert cells(writer, batch_of(keys), CALL_INSERT) is None  # "n" must be given


@pytest.mark.parametrize(
    ("rows", "types"),
    [
        ([{"k": 1, "n": 1}, {"k": 1, "n": 2}], {}),
        ([{"k": 1, "n": None}], {}),
        ([{"k": None, "n": 1}], {}),
        ([{"s": "a", "n": 1}], {}),
        ([{"k": 1, "n": 1}], {"n": pa.int64()}),
        ([{"k": 1, "n": 1}], {"k": pa.uint64()}),
        ([{"k": 1, "n": 1, "s": "a"}], {"s": pa.large_string()}),
        ([{"k": 1, "n": 1, "s": "a"}], {"s": pa.string_view()}),
        ([{"k": 1, "n": 1, "s": "a"}], {"s": pa.dictionary(pa.int32(), pa.string())}),
        ([{"k": 1, "n": 1, "x": 1}], {"x": pa.int64()}),
    ],
)
def test_what_is_not_plain_is_not_taken(
    writer: RowWriter, rows: list[dict[str, Any]], types: dict[str, pa.DataType]
) -> None:
    assert cells(writer, batch_of(rows, **types)) is None


def test_a_column_that_is_there_twice(writer: RowWriter) -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1]), pa.array([1], pa.int32()), pa.array([1])], ["k", "n", "k"]
    )
    assert cells(writer, batch) is None


def test_a_field_with_metadata_may_be_an_extension(writer: RowWriter) -> None:
    fields = [pa.field("k", pa.int64(), metadata={"ARROW:extension:name": "x"}), pa.field("n", pa.int32())]
    arrays = [pa.array([1]), pa.array([1], pa.int32())]
    assert cells(writer, pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))) is None


def with_column(name: str, array: pa.Array) -> pa.RecordBatch:
    keys = pa.array(range(len(array)), pa.int64())
    numbers = pa.array(range(len(array)), pa.int32())
    if name == "n":
        return pa.RecordBatch.from_arrays([keys, array], ["k", "n"])
    return pa.RecordBatch.from_arrays([keys, numbers, array], ["k", "n", name])


def buffer(values: Any, dtype: Any = np.uint8) -> pa.Buffer:
    return pa.py_buffer(np.array(values, dtype))


@pytest.mark.parametrize(
    ("offsets", "text", "bits", "taken"),
    [
        ([0, 1, 3], b"abc", None, True),
        ([0, 2, 3], b"\xc3\xa4c", None, True),
        ([0, 1, 3], b"\xc3\xa4c", None, False),
        ([0, 3, 3], b"\xed\xa0\x80", None, False),
        ([0, 2, 1], b"abc", None, False),
        ([2, 1, 3], b"abc", None, False),
        ([0, -1, 3], b"abc", None, False),
        ([0, 1, 1], b"abc", 0b01, True),
        ([0, 1, 3], b"abc", 0b01, False),
    ],
)
def test_text(writer: RowWriter, offsets: list[int], text: bytes, bits: int | None, taken: bool) -> None:
    valid = None if bits is None else buffer([bits])
    array = pa.Array.from_buffers(pa.string(), 2, [valid, buffer(offsets, np.int32), pa.py_buffer(text)])
    assert (cells(writer, with_column("s", array)) is not None) == taken


def test_what_lies_under_a_null_is_left_to_the_general_path(writer: RowWriter) -> None:
    plain = pa.Array.from_buffers(pa.bool_(), 2, [buffer([0b01]), buffer([0b01])])
    dirty = pa.Array.from_buffers(pa.bool_(), 2, [buffer([0b01]), buffer([0b11])])
    assert cells(writer, with_column("b", plain))[1][1][3] is None
    assert cells(writer, with_column("b", dirty)) is None


def test_counts_of_nulls_that_lie(writer: RowWriter) -> None:
    for said, taken in ((-1, True), (1, True), (2, False)):
        array = pa.Array.from_buffers(pa.bool_(), 2, [buffer([0b01]), buffer([0b01])], null_count=said)
        assert (cells(writer, with_column("b", array)) is not None) == taken


def test_large_rows_are_not_taken(writer: RowWriter) -> None:
    batch = batch_of([{"k": 1, "n": 1, "s": "x" * 700, "z": b"y" * 300}])
    assert cells(writer, batch, room=1000 + 64 * 5) is None
    assert cells(writer, batch, room=1001 + 64 * 5) is not None
    assert cells(writer, batch_of([{"k": 1, "n": 1, "z": b"y" * (1 << 20)}]), room=1 << 30) is None


def test_rows_that_go_to_files_are_not_copied_before(writer: RowWriter) -> None:
    """Rows that are too large together, though none is by itself: of dicts and of Arrow."""
    rows = [{"k": number, "n": 1, "z": b"y" * 1000} for number in range(5)]
    assert cells(writer, batch_of(rows), room=5000) is None
    assert cells(writer, batch_of(rows), room=5001) is not None
    assert cells(writer, batch_of([*rows, *rows]).slice(2, 5), room=5001) is not None, "of a slice its own"
    assert writer.prepare_rows(rows, CALL_UPSERT, 5000) is None
    assert writer.prepare_rows(rows, CALL_UPSERT, 6000) is not None


def test_wrong_arguments(writer: RowWriter) -> None:
    with pytest.raises(ValueError, match="4 formats of 5 columns"):
        cells_of_batch(writer, FORMATS[:4], *batch_of(ROWS).__arrow_c_array__(), CALL_UPSERT, ROOM)
    with pytest.raises(ValueError, match="PyCapsule"):
        cells_of_batch(writer, FORMATS, None, None, CALL_UPSERT, ROOM)
    with pytest.raises(ValueError, match="PyCapsule"):
        format_of(None)
