"""Whatever is handed to a write, as record batches in the table's types."""

from __future__ import annotations

import datetime as dt
import decimal
import sys
import types
from collections.abc import Iterator

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kudu_core.common.rows.arrow_in import batches
from kudu_core.common.rows.conform import Conformed, conform
from kudu_core.common.rows.pandas_frames import is_pandas_frame
from kudu_core.common.schema.declare import Column, declare
from kudu_core.errors import InvalidArgument, SchemaMismatch

D = decimal.Decimal
SCHEMA = declare(
    [
        Column("s", "string"),
        Column("k", "int64"),
        Column("f", "float32"),
        Column("d", "decimal128(10,2)"),
        Column("t", "timestamp[us,UTC]"),
        Column("n", "int16", False),
    ],
    "k",
)
TABLE = pa.table({"k": [1, 2, 3], "s": ["a", None, "c"]})


def _rows(data: object) -> list[dict[str, object]]:
    return [row for batch in batches(data, SCHEMA) for row in batch.to_pylist()]


EXPECTED = TABLE.to_pylist()


class _OnlyStream:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return TABLE.__arrow_c_stream__(requested_schema)


class _OnlyArray:
    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


SOURCES = {
    "table": lambda: TABLE,
    "chunks": lambda: pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
    "batch": lambda: TABLE.to_batches()[0],
    "reader": lambda: TABLE.to_reader(1),
    "stream capsule": _OnlyStream,
    "array capsule": _OnlyArray,
    "struct array": lambda: TABLE.to_struct_array().chunk(0),
    "polars": lambda: pl.from_arrow(TABLE),
    "duckdb": lambda: duckdb.from_arrow(TABLE),
    "pandas": TABLE.to_pandas,
    "pandas index": lambda: TABLE.to_pandas().set_index("k"),
    "dict of lists": TABLE.to_pydict,
    "dict of arrays": lambda: {"k": np.array([1, 2, 3]), "s": TABLE["s"]},
    "dict of series": lambda: {"k": pd.Series([1, 2, 3]), "s": pl.Series(["a", None, "c"])},
    "dict of a range": lambda: {"k": range(1, 4), "s": ("a", None, "c")},
    "list of dicts": lambda: EXPECTED,
    "dicts of a generator": lambda: (row for row in EXPECTED),
    "list of batches": lambda: TABLE.to_batches(1),
    "generator of tables": lambda: (TABLE.slice(i, 1) for i in range(3)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_rows(source: str) -> None:
    rows = [{"k": row["k"], "s": row["s"]} for row in _rows(SOURCES[source]())]
    assert rows == EXPECTED


@pytest.mark.parametrize(
    "data",
    [
        TABLE.slice(0, 0),
        TABLE.slice(0, 0).to_reader(),
        pl.from_arrow(TABLE).clear(),
        {"k": [], "s": []},  # type: ignore[union-attr]
        TABLE.to_pandas().iloc[:0],
    ],
)
def test_no_rows_still_show_their_columns(data: object) -> None:
    (batch,) = batches(data)
    assert batch.num_rows == 0
    assert set(batch.schema.names) == {"k", "s"}


@pytest.mark.parametrize("data", [[], {}, pa.table({}), iter(()), pd.DataFrame()])
def test_no_columns_and_no_rows_are_nothing(data: object) -> None:
    assert list(batches(data)) == []


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (5, "int"),
        (None, "NoneType"),
        ("text", "str"),
        (np.zeros(3), "ndarray"),
        ([1, 2], "int"),
        ([[1, 2]], "list"),
        ({"k": 1, "s": "a"}, "'k'"),
        ({"k": [1], "s": "a"}, "'s'"),
        ({"k": [1, 2], "s": ["a"]}, "'s' has 1 rows"),
        ({"k": [1, "x"]}, "'k'"),
        ({5: [1]}, "5"),
        ([{}], "column"),
        (pa.array([1, 2]), "column"),
        ({"k": np.zeros((2, 2))}, "'k'"),
    ],
)
def test_what_is_no_rows_is_refused(data: object, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        list(batches(data, SCHEMA))


def test_a_source_that_fails_half_way_passes_its_exception_on() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise ZeroDivisionError

    seen = batches(failing())
    assert next(seen).num_rows == 3
    with pytest.raises(ZeroDivisionError):
        next(seen)


def test_rows_that_lack_a_column_are_kept_apart_in_order() -> None:
    rows = [{"k": 1, "s": "a"}, {"s": "b", "k": 2}, {"k": 3}, {"k": 4, "s": None}]
    found = list(batches(rows))
    assert [sorted(b.schema.names) for b in found] == [["k", "s"], ["k"], ["k", "s"]]
    assert [v for b in found for v in b["k"].to_pylist()] == [1, 2, 3, 4]


def test_python_values_take_the_columns_type() -> None:
    (batch,) = batches({"k": [1], "f": [0.1], "d": [D("1.5")], "n": [3]}, SCHEMA)
    block = conform(SCHEMA, batch).block
    assert block.columns[SCHEMA.by_name["f"].id].values.view(np.float32)[0] == np.float32(0.1)
    (mixed,) = batches({"k": [1, 2], "d": [D("1.5"), 7]}, SCHEMA)
    assert mixed["d"].to_pylist() == [D("1.50"), D("7.00")]
    wide = declare([Column("k", "uint64")], "k")
    (large,) = batches({"k": [1, 2**64 - 1]}, wide)
    assert large["k"].to_pylist() == [1, 2**64 - 1]


@pytest.mark.parametrize(
    ("columns", "named"),
    [({"f": [1e300]}, "float32"), ({"d": [1.5]}, "row 0"), ({"d": [D(1), D("1.234")]}, "row 1")],
)
def test_python_values_that_do_not_fit_name_their_row(columns: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        rows = len(next(iter(columns.values())))
        list(batches({"k": [1] * rows, **columns}, SCHEMA))  # type: ignore[arg-type]


def test_pandas_integers_with_gaps_are_integers() -> None:
    frame = pd.DataFrame({"k": [1, 2], "n": [np.nan, 5.0]})
    (batch,) = batches(frame, SCHEMA)
    assert batch["n"].to_pylist() == [None, 5]
    with pytest.raises(InvalidArgument, match="'n'"):
        list(batches(pd.DataFrame({"k": [1], "n": [1.5]}), SCHEMA))


# ------------------------------------------------------------------------------------- conform


def _conformed(**columns: pa.Array) -> Conformed:
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return conform(SCHEMA, batch)


def _one(type_name: str, array: pa.Array) -> list[object]:
    schema = declare([Column("k", "int64"), Column("x", type_name)], "k")
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(array))), array], names=["k", "x"])
    column = schema.by_name["x"]
    return conform(schema, batch).block.columns[column.id].to_arrow(column.type).to_pylist()


T0 = dt.datetime(2024, 1, 2, 3, 4, 5)
FITS = [
    ("int8", pa.array([1, None, -128], pa.int64()), [1, None, -128]),
    ("uint64", pa.array([1, 2], pa.int8()), [1, 2]),
    ("int64", pa.array([1, None]).dictionary_encode(), [1, None]),
    ("int64", pa.nulls(2), [None, None]),
    ("float64", pa.array([1.5], pa.float32()), [1.5]),
    ("float32", pa.array([1.5, None, float("inf")], pa.float64()), [1.5, None, float("inf")]),
    ("float64", pa.array([1, 2**53]), [1.0, float(2**53)]),
    ("string", pa.array(["a", None], pa.large_string()), ["a", None]),
    ("string", pa.array(["a" * 50, None], pa.string_view()), ["a" * 50, None]),
    ("string", pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
    ("string", pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]), ["a", "a", "b"]),
    ("binary", pa.array([b"ab", None], pa.binary(2)), [b"ab", None]),
    ("binary", pa.array([b"ab", None], pa.large_binary()), [b"ab", None]),
    ("date32", pa.array([T0.date()], pa.date64()), [T0.date()]),
    ("timestamp[us]", pa.array([T0], pa.timestamp("s")), [T0]),
    ("timestamp[us]", pa.array([T0], pa.timestamp("ns")), [T0]),
    (
        "timestamp[us,UTC]",
        pa.array([0], pa.timestamp("ms", "Asia/Tokyo")),
        [dt.datetime(1970, 1, 1, tzinfo=dt.UTC)],
    ),
    ("decimal128(10,2)", pa.array([D("1.2000")]), [D("1.20")]),
    ("decimal128(10,2)", pa.array([7, None]), [D("7.00"), None]),
    ("decimal128(38,10)", pa.array([2**64 - 1], pa.uint64()), [D(2**64 - 1)]),
    ("decimal128(38,0)", pa.array([D(10) ** 37], pa.decimal256(76, 10)), [D(10) ** 37]),
]


@pytest.mark.parametrize(
    ("name", "array", "expected"), FITS, ids=lambda v: str(getattr(v, "type", "")) or None
)
def test_a_cast_keeps_every_value(name: str, array: pa.Array, expected: list[object]) -> None:
    assert _one(name, array) == expected


MISFITS = [
    ("int8", pa.array([128])),
    ("uint8", pa.array([-1])),
    ("int64", pa.array([1.0])),
    ("int64", pa.array([True])),
    ("int64", pa.array(["1"])),
    ("bool", pa.array([1])),
    ("float32", pa.array([0.1])),
    ("float64", pa.array([2**53 + 1])),
    ("string", pa.array([b"a"])),
    ("string", pa.array([1])),
    ("binary", pa.array(["a"])),
    ("date32", pa.array([T0], pa.timestamp("us"))),
    ("date32", pa.array([1], pa.date64())),
    ("timestamp[us]", pa.array([1001], pa.timestamp("ns"))),
    ("timestamp[us]", pa.array([2**62], pa.timestamp("s"))),
    ("timestamp[us]", pa.array([T0], pa.timestamp("us", "UTC"))),
    ("timestamp[us,UTC]", pa.array([T0], pa.timestamp("us"))),
    ("timestamp[us]", pa.array([T0.date()])),
    ("timestamp[us]", pa.array([5])),
    ("decimal128(4,2)", pa.array([D("1.234")])),
    ("decimal128(4,2)", pa.array([D("100.00")])),
    ("decimal128(4,2)", pa.array([100])),
    ("decimal128(4,2)", pa.array([1.5])),
    ("int64", pa.array([[1]])),
]


@pytest.mark.parametrize(("name", "array"), MISFITS, ids=lambda v: str(getattr(v, "type", v)))
def test_a_cast_that_would_change_a_value_names_column_and_types(name: str, array: pa.Array) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        _one(name, array)
    assert "'x'" in str(caught.value)
    assert name in str(caught.value)
    assert str(array.type) in str(caught.value)


def test_a_batch_says_which_columns_it_gives() -> None:
    found = _conformed(s=pa.array(["a"]), k=pa.array([1], pa.int8()))
    assert found.given == {SCHEMA.by_name["s"].id, SCHEMA.by_name["k"].id}
    assert found.status is None
    assert next(iter(found.block.columns)) == SCHEMA.by_name["k"].id


def test_nulls_in_required_columns_are_matters_of_their_rows() -> None:
    from kudu_core._ext.rules.decide import NULL_IN_REQUIRED

    found = _conformed(k=pa.array([1, None, 3, 4]), s=pa.array([None] * 4), n=pa.array([1, 2, None, 4]))
    assert found.status is not None
    assert found.status.tolist() == [0, NULL_IN_REQUIRED, NULL_IN_REQUIRED, 0]


@pytest.mark.parametrize(
    ("names", "named"),
    [(["k", "zz"], "'zz'"), (["k", "k"], "'k' is there twice"), (["s"], "'k' is missing")],
)
def test_wrong_columns_are_named(names: list[str], named: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1])] * len(names), names=names)
    with pytest.raises(SchemaMismatch, match=named):
        conform(SCHEMA, batch)


def test_extra_columns_are_handed_back() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["insert"])], names=["k", "_op"])
    found = conform(SCHEMA, batch, allow_extra=("_op",))
    assert found.extra["_op"].to_pylist() == ["insert"]
    assert conform(SCHEMA, batch, required=(), allow_extra=("_op",)).block.rows == 1


def test_pandas_that_another_thread_is_just_importing(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow imports it when it is first wanted, in whatever thread that is."""
    assert is_pandas_frame(pd.DataFrame()) and not is_pandas_frame({"k": [1]})
    for begun in (None, types.ModuleType("pandas")):
        monkeypatch.setitem(sys.modules, "pandas", begun)
        assert not is_pandas_frame({"k": [1]})
