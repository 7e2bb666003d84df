"""Nested columns in jobs whose NULL means that a row gives nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.rows.flattened import flat_batch
from kudu_core.table.jobs import commit
from tests.support.inside import handle_of

SCHEMA = pa.schema([
    ("k", pa.int64()),
    ("s", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
    ("l", pa.list_(pa.string())),
    pa.field("r", pa.list_(pa.int8()), False),
])  # fmt: skip


@pytest.mark.parametrize("threshold", [1, 1000])
def test_a_null_keeps_all_of_a_nested_column(tmp_path: Path, threshold: int) -> None:
    old: dict[str, Any] = {"k": 1, "s": {"x": 1, "y": ["a"]}, "l": ["q", None], "r": [1]}
    given = [
        {"k": 1, "s": None, "l": None, "r": [3]},
        {"k": 2, "s": {"x": None, "y": ["z"]}, "l": [None], "r": [4]},
        {"k": 3, "s": None, "l": None, "r": []},
    ]
    options = kc.Options(ingest_threshold_rows=threshold)
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        table.insert([old])
        batch, _, _ = flat_batch(
            handle_of(table).opened().schema, pa.RecordBatch.from_pylist(given, schema=SCHEMA)
        )
        columns = [(field.name, str(field.type)) for field in batch.schema]
        job = commit.begin(handle_of(table), "upsert", columns, ignore_null=True)
        stager = commit.stager(job, "0")
        stager.append(batch)
        commit.commit_job(job, stager.finish(), handle_of(table))
        assert table.scan(order="key").to_pylist() == [{**old, "r": [3]}, *given[1:]]


@pytest.mark.parametrize("name", ["s.x", "s:null", "l[]"])
def test_a_frame_of_spark_gives_no_part_of_a_nested_column(tmp_path: Path, name: str) -> None:
    types = pytest.importorskip("pyspark.sql.types")
    from kudu_core.engines.spark.schema import staged_columns

    kinds = {"s.x": types.IntegerType(), "s:null": types.BooleanType(), "l[]": types.BinaryType()}
    frame = types.StructType([
        types.StructField("k", types.LongType()), types.StructField(name, kinds[name]),
    ])  # fmt: skip
    with kc.create_table(tmp_path / "t", SCHEMA, "k") as table:
        schema = handle_of(table).opened().schema
        with pytest.raises(kc.SchemaMismatch, match=r"is a part of column .* gives as a whole"):
            staged_columns(frame, schema, "upsert")
