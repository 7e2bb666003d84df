"""Reads through Spark on two cores: beside Parquet, and beside the same batches yielded from memory.

Six columns.  The rows are the 60,000 of the room unless KUDU_CORE_BENCH_ROWS says more; the
published figures are of 5,000,000.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.support.inside import schema_of

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.engines.spark.scan import frame_of, read_tokens, shared_out
from kudu_core.engines.spark.schema import spark_schema
from kudu_core.table.read.tokens import ScanToken

ROWS = int(os.environ.get("KUDU_CORE_BENCH_ROWS", "60000"))
KEY = ["host", "at"]


@pytest.fixture(scope="module")
def paths(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One table of four tablets and a directory of Parquet with the same rows in the same order of keys."""
    root = tmp_path_factory.mktemp("reads")
    df = spark.range(0, ROWS, 1, 4).selectExpr(
        "concat('host', id % 1000) as host", "timestamp_micros(id * 1000000) as at",
        "cast(id % 7 as int) as code", "sin(id) as value", "xxhash64(id) as n",
        "if(id % 5 = 0, null, concat('note', id % 50)) as note",
    )  # fmt: skip
    table, parquet = str(root / "table"), str(root / "parquet")
    ks.create(table, df, KEY, partition_by=kc.HashPartition("host", 4))
    ks.write(df, table, "insert")
    df.repartition(4, "host").sortWithinPartitions(*KEY).write.parquet(parquet)
    return {"table": table, "parquet": parquet}


@pytest.mark.benchmark(group="spark: two columns and a predicate, summed")
@pytest.mark.parametrize("source", ["table", "parquet"])
def test_two_columns_and_a_predicate(
    benchmark: Any, spark: SparkSession, paths: dict[str, str], source: str
) -> None:
    def read() -> Any:
        if source == "table":
            df = ks.scan(spark, paths["table"], ["code", "value"], [("code", ">", 3)])
        else:
            df = spark.read.parquet(paths["parquet"]).where("code > 3").select("code", "value")
        return df.agg(F.count("*"), F.sum("code"), F.sum("value")).first()

    benchmark.extra_info["rows"] = ROWS
    found = benchmark.pedantic(read, rounds=7, warmup_rounds=2)
    assert found[0] == sum(len(range(code, ROWS, 7)) for code in (4, 5, 6))


def from_memory(tokens: Sequence[ScanToken], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What ``read_tokens`` yields, kept by the worker process since it was first read there."""
    kept = sys.modules.setdefault("_kudu_core_bench_kept", types.ModuleType("kept")).__dict__
    key = repr([(token.tablet_id, token.lower, token.timestamp) for token in tokens])
    if key not in kept:
        kept[key] = list(read_tokens(tokens, wanted))
    yield from kept[key]


@pytest.mark.benchmark(group="spark: six columns, counted")
@pytest.mark.parametrize("source", ["table", "floor", "parquet"])
def test_six_columns(benchmark: Any, spark: SparkSession, paths: dict[str, str], source: str) -> None:
    with kc.open_table(paths["table"]) as table:
        schema = spark_schema(schema_of(table))
        tasks = shared_out(table.scan_tokens(), 2_000_000, 2)

    def frame() -> DataFrame:
        if source == "table":
            return ks.scan(spark, paths["table"])
        if source == "floor":
            return frame_of(spark, tasks, schema, from_memory)
        return spark.read.parquet(paths["parquet"])

    benchmark.extra_info["rows"] = ROWS
    assert benchmark.pedantic(lambda: frame().count(), rounds=7, warmup_rounds=3) == ROWS


@pytest.mark.benchmark(group="spark: rows counted by manifests")
def test_count(benchmark: Any, spark: SparkSession, paths: dict[str, str]) -> None:
    assert benchmark.pedantic(lambda: ks.count(spark, paths["table"]), rounds=7, warmup_rounds=1) == ROWS
