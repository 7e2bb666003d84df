"""Record batches as columns of C: what is taken, and what of hostile arrays is left to the general path."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kudu_core._ext.batch import given_batch
from kudu_core._ext.batch.given_batch import GivenBatch
from kudu_core._ext.few.arrow_rows import format_of
from kudu_core._ext.row.row_writer import RowWriter
from kudu_core._ext.row.shape import MISSING, TAGS
from kudu_core._ext.rules.decide import CALL_DELETE, CALL_INSERT, CALL_UPDATE, CALL_UPSERT
from kudu_core.common.rows.keys import EncodedKeys
from tests.support.oracles.keys import keys as oracle

ROOM = 1 << 20
TYPES = (pa.int64(), pa.string(), pa.int32(), pa.bool_(), pa.binary())
FORMATS = tuple(format_of(type_.__arrow_c_schema__()) for type_ in TYPES)
SCHEMA = pa.schema(list(zip("ksnbz", TYPES, strict=True)))
SIGNED, BINARY = 1, 3
ROWS: list[dict[str, Any]] = [
    {"k": 5, "s": "a\u00e4", "n": -1, "b": True, "z": b"\xff"},
    {"k": -5, "s": None, "n": 2, "b": None, "z": b""},
    {"k": 7, "s": "", "n": 3, "b": False, "z": None},
]


def writer_of(keys: list[int], key_text_is_nullable: bool = True) -> RowWriter:
    columns = [
        ("k", 3, TAGS["signed"], 8, False),
        ("s", 4, TAGS["text"], 0, key_text_is_nullable),
        ("n", 9, TAGS["signed"], 4, False),
        ("b", 10, TAGS["bool"], 1, True),
        ("z", 11, TAGS["bytes"], 0, True),
    ]
    return RowWriter(columns, keys, [MISSING, None, MISSING, b"\1", b"default"])


@pytest.fixture
def writer() -> RowWriter:
    return writer_of([0])


def taken(
    writer: RowWriter, batch: pa.RecordBatch, operation: int = CALL_UPSERT, room: int = ROOM
) -> GivenBatch | None:
    kinds = tuple((i, SIGNED, 8) if i == 0 else (i, BINARY, 0) for i in writer.keys)
    given: Any = batch.__arrow_c_array__()
    return given_batch.batch_of(writer, FORMATS, kinds, *given, operation, room)


def rows_of(rows: list[dict[str, Any]], **types: pa.DataType) -> pa.RecordBatch:
    fields = [pa.field(name, types.get(name) or SCHEMA.field(name).type) for name in rows[0]]
    return pa.RecordBatch.from_pylist(rows, pa.schema(fields))


@pytest.mark.parametrize("operation", [CALL_INSERT, CALL_UPSERT, CALL_UPDATE])
@pytest.mark.parametrize("first", range(3))
def test_keys_are_those_of_the_oracle(first: int, operation: int) -> None:
    for keys in ([0], [4, 0], [0, 4], [4]):
        writer = writer_of(keys)
        rows = [row | {"z": row["z"] or b"\0" + row["k"].to_bytes(1, "big", signed=True)} for row in ROWS]
        batch = taken(writer, rows_of(rows).slice(first), operation)
        assert batch is not None and batch.rows == len(batch) == 3 - first
        names = ["ksnbz"[i] for i in keys]
        columns = [(SIGNED, 8) if i == 0 else (BINARY, 0) for i in keys]
        expected = [oracle.encode(columns, [row[name] for name in names]) for row in rows[first:]]
        found = EncodedKeys(batch.data, batch.offsets)
        assert list(found) == expected and (found.hashes() == batch.hashes).all()


def test_operations(writer: RowWriter) -> None:
    keys = [{"k": row["k"]} for row in ROWS]
    assert taken(writer, rows_of(keys), CALL_DELETE) is not None
    assert taken(writer, rows_of(keys), CALL_UPDATE) is None
    assert taken(writer, rows_of(ROWS), CALL_DELETE) is None
    assert taken(writer, rows_of(keys), CALL_INSERT) is None, "n must be given"
    assert taken(writer, rows_of(ROWS).slice(0, 0)) is None
    some = taken(writer, rows_of(keys), CALL_DELETE)
    assert some is not None and not some.complete(ROOM), "n has no default"
    one, two = (taken(writer, rows_of([{"k": k, "n": 1} for k in range(n)])) for n in (1, 2))
    assert one is not None and two is not None
    assert one.complete(13) and not two.complete(13), "two cells of a default of 7 bytes"


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
        ([{"k": 1, "n": 1, "z": b"y" * ROOM}], {}),
    ],
)
def test_what_is_not_plain_is_not_taken(
    writer: RowWriter, rows: list[dict[str, Any]], types: dict[str, pa.DataType]
) -> None:
    assert taken(writer, rows_of(rows, **types)) is None


def test_columns_that_are_there_twice_or_extensions(writer: RowWriter) -> None:
    one, number = pa.array([1]), pa.array([1], pa.int32())
    assert taken(writer, pa.RecordBatch.from_arrays([one, number, one], ["k", "n", "k"])) is None
    fields = [pa.field("k", pa.int64(), metadata={"ARROW:extension:name": "x"}), pa.field("n", pa.int32())]
    assert taken(writer, pa.RecordBatch.from_arrays([one, number], schema=pa.schema(fields))) is None


def test_repeated_and_large_keys_are_not_taken(seed: int) -> None:
    r = random.Random(seed)
    for count in (2, 5, 100, 3000):
        keys = r.sample(range(10**6), count)
        writer = writer_of([0])
        rows = {"k": keys, "n": [1] * count}
        assert taken(writer, pa.RecordBatch.from_pydict(rows, pa.schema([SCHEMA.field(c) for c in "kn"])))
        rows["k"][r.randrange(1, count)] = keys[0]
        assert not taken(writer, pa.RecordBatch.from_pydict(rows, pa.schema([SCHEMA.field(c) for c in "kn"])))
    by_bytes = writer_of([4])
    assert taken(by_bytes, rows_of([{"z": b"y" * 16384, "n": 1}, {"z": b"x" * 16384, "n": 1}]))
    assert not taken(by_bytes, rows_of([{"z": b"y" * 16385, "n": 1}]))


def buffer(values: Any, dtype: Any = np.uint8) -> pa.Buffer:
    return pa.py_buffer(np.array(values, dtype))


def with_column(name: str, array: pa.Array) -> pa.RecordBatch:
    keys, numbers = pa.array(range(len(array)), pa.int64()), pa.array(range(len(array)), pa.int32())
    return pa.RecordBatch.from_arrays([keys, numbers, array], ["k", "n", name])


@pytest.mark.parametrize(
    ("offsets", "text", "bits", "expected"),
    [
        ([0, 1, 3], b"abc", None, True),
        ([0, 2, 3], b"\xc3\xa4c", None, True),
        ([0, 1, 3], b"\xc3\xa4c", None, False),
        ([0, 3, 3], b"\xed\xa0\x80", None, False),
        ([0, 2, 1], b"abc", None, False),
        ([2, 1, 3], b"abc", None, False),
        ([0, -1, 3], b"abc", None, False),
        ([0, 1, 3], b"abc", 0b01, True),
        ([0, 1, 2], b"a\xff", 0b01, False),
    ],
)
def test_text(writer: RowWriter, offsets: list[int], text: bytes, bits: int | None, expected: bool) -> None:
    valid = None if bits is None else buffer([bits])
    array = pa.Array.from_buffers(pa.string(), 2, [valid, buffer(offsets, np.int32), pa.py_buffer(text)])
    assert (taken(writer, with_column("s", array)) is not None) == expected


def test_counts_of_nulls_that_lie(writer: RowWriter) -> None:
    for said, expected in ((-1, True), (1, True), (2, False)):
        array = pa.Array.from_buffers(pa.bool_(), 2, [buffer([0b01]), buffer([0b01])], null_count=said)
        assert (taken(writer, with_column("b", array)) is not None) == expected


def test_wrong_arguments(writer: RowWriter) -> None:
    given: Any = rows_of(ROWS).__arrow_c_array__()
    with pytest.raises(ValueError, match="4 formats and 1 key columns of 5"):
        given_batch.batch_of(writer, FORMATS[:4], ((0, SIGNED, 8),), *given, CALL_UPSERT, ROOM)
    with pytest.raises(ValueError, match="width 4 is 8"):
        again: Any = rows_of(ROWS).__arrow_c_array__()
        given_batch.batch_of(writer, FORMATS, ((0, SIGNED, 4),), *again, CALL_UPSERT, ROOM)
    with pytest.raises(ValueError, match="PyCapsule"):
        given_batch.batch_of(writer, FORMATS, ((0, SIGNED, 8),), None, None, CALL_UPSERT, ROOM)
