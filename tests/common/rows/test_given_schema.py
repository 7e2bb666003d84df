"""A schema is taken of whatever has one: names, types, what may be NULL, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.schema.given_schema import given_schema
from kudu_core.errors import InvalidArgument

TABLE = pa.table({"k": [1, 2], "v": [0.5, None]})
FRAME = TABLE.to_pandas()


class OnlyStream:
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return TABLE.__arrow_c_stream__(requested_schema)


class Delta:
    """As much of ``deltalake.DeltaTable`` as is looked at: what its schema says is one of Arrow."""

    class Stored:
        def to_arrow(self) -> pa.Schema:
            return TABLE.schema

    def schema(self) -> Stored:
        return self.Stored()


def unread() -> Iterator[pa.RecordBatch]:
    raise AssertionError("no row is read")
    yield


SOURCES: dict[str, Callable[[], Any]] = {
    "schema": lambda: TABLE.schema,
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "reader": lambda: pa.RecordBatchReader.from_batches(TABLE.schema, unread()),
    "dataset": lambda: ds.dataset(TABLE),
    "scanner": lambda: ds.dataset(TABLE).scanner(),
    "stream": OnlyStream,
    "Delta": Delta,
    "pandas": lambda: FRAME,
    "pandas, no rows": lambda: FRAME.iloc[:0],
    "pandas, a level with a name": lambda: FRAME.set_index("k"),
    "Polars": lambda: pl.from_arrow(TABLE),
    "Polars, lazy": lambda: pl.from_arrow(TABLE).lazy(),  # type: ignore[union-attr]
    "Polars' schema": lambda: pl.from_arrow(TABLE).schema,  # type: ignore[union-attr]
    "DuckDB": lambda: duckdb.sql("SELECT 1::BIGINT AS k, 0.5::DOUBLE AS v"),
    "dict": lambda: {"k": pa.int64(), "v": "float64"},
    "pairs": lambda: [("k", "int64"), ("v", pa.float64())],
    "a generator of pairs": lambda: (pair for pair in [("k", "int64"), ("v", "float64")]),
    "all sorts of columns": lambda: [Column("k", "int64"), ["v", "float64"]],
    "fields": lambda: [pa.field("k", pa.int64()), ("v", "float64")],
}


@pytest.mark.parametrize("source", SOURCES)
def test_of_everything_that_has_one(source: str) -> None:
    found = declare(SOURCES[source](), "k")
    assert [(c.name, str(c.type), c.nullable) for c in found.columns] == [
        ("k", "int64", False),
        ("v", "float64", True),
    ]
    assert found.key_names == ("k",)


def test_a_reader_still_has_its_rows() -> None:
    reader = TABLE.to_reader()
    declare(reader, "k")
    assert reader.read_all().num_rows == 2


def test_what_fields_say_stays_and_what_pandas_notes_goes() -> None:
    fields = [pa.field("k", pa.int64(), False), pa.field("v", pa.int8(), metadata={"comment": "what it is"})]
    found = declare(pa.schema(fields, {"pandas": "{}"}), "k")
    assert [c.comment for c in found.columns] == ["", "what it is"]
    assert not declare(FRAME, "k").arrow.metadata


def test_levels_of_an_index_come_first_if_they_have_names() -> None:
    index = pd.MultiIndex.from_tuples([(1, 2, 3)], names=["a", None, "b"])
    frame = pd.DataFrame({"v": [1.5]}, index=index)
    assert [field.name for field in given_schema(frame)] == ["a", "b", "v"]
    twice = pd.DataFrame({"a": [1], "v": [2]}, index=pd.Index([7], name="a"))
    assert [field.name for field in given_schema(twice)] == ["a", "v"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("orders.parquet", "a schema is a pa.Schema, .*'orders.parquet'"),
        (5, "a schema is a pa.Schema, .* not 5"),
        (None, "not None"),
        (pa.int64(), "not the type int64"),
        (pa.table, "a schema is"),
        (pl.DataFrame, "a schema is"),
        ([("k", "int64", True)], r"a pa\.Field or \(name, type\), not \('k', 'int64', True\)"),
        ([(5, "int64")], r"not \(5, 'int64'\)"),
        ({5: "int64"}, r"not \(5, 'int64'\)"),
        ({"k": "no type"}, "'k'.*no type"),
        ({"k": object()}, "'k'"),
        ([5], "not 5"),
        (pa.field("k", pa.int64()), "Field"),
        ([], "at least one column"),
        ({}, "at least one column"),
    ],
    ids=repr,
)
def test_what_has_none_is_refused(wrong: Any, told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        declare(wrong, "k")


def test_of_a_frame_of_many_kinds_the_column_is_named() -> None:
    frame = pd.DataFrame({"k": [1], "odd": [[1, "a"]]})
    with pytest.raises(InvalidArgument, match="odd"):
        declare(frame, "k")
    with pytest.raises(InvalidArgument, match="a column's name is text, not 0"):
        declare(pd.DataFrame([[1]]), "k")
    twice = pd.DataFrame([[1, 2]], columns=["k", "k"])
    with pytest.raises(InvalidArgument, match="'k' is declared twice"):
        declare(twice, "k")


def test_no_package_is_imported() -> None:
    code = """
import sys
import kudu_core
before = set(sys.modules)
from kudu_core.common.schema.declare import declare
declare({"k": "int64"}, "k")
assert not {"pandas", "polars", "pyarrow.dataset"} & (sys.modules.keys() - before)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
