"""Through Spark on two cores: a table written and read, beside Parquet in the same session."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.inside import engine_of, schema_of

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.engines.spark.write import routed

ROWS = int(os.environ.get("KUDU_CORE_BENCH_ROWS", "60000"))
LAYOUTS = {"one": (), "hash4": kc.HashPartition("host", 4)}
KEYS = ["host", "at"]


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    df = spark.range(0, ROWS, 1, 2).selectExpr(
        "concat('host', id % 100) as host", "timestamp_micros(id * 1000000) as at",
        "cast(id % 7 as int) as code", "sin(id) as value", "xxhash64(id) as n",
        "if(id % 5 = 0, null, cast(id as string)) as note",
    )  # fmt: skip
    df = df.cache()
    assert df.count() == ROWS
    return df


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("route", ["tablet", "none", "format"])
def test_write(benchmark: Any, frame: DataFrame, tmp_path: Path, layout: str, route: str) -> None:
    path = str(tmp_path / "table")

    def setup() -> None:
        shutil.rmtree(path, ignore_errors=True)
        ks.create(path, frame, KEYS, partition_by=LAYOUTS[layout])

    def write() -> None:
        if route == "format":
            frame.write.format("kudu_core").mode("append").option("operation", "upsert").save(path)
        else:
            ks.write(frame, path, "upsert", repartition=route)

    benchmark.extra_info["rows"] = ROWS
    benchmark.pedantic(write, setup=setup, rounds=3, warmup_rounds=1)
    with kc.open_table(path) as table:
        assert table.count() == ROWS


def drained(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sink", ["jvm", "python"])
def test_write_to_nowhere(benchmark: Any, frame: DataFrame, tmp_path: Path, layout: str, sink: str) -> None:
    """What ``test_write[tablet-...]`` does before it stages: rows routed and sorted by Spark; and, to Python,
    handed over as Arrow."""
    path = str(tmp_path / "table")
    ks.create(path, frame, KEYS, partition_by=LAYOUTS[layout])
    with kc.open_table(path) as table:
        schema, partitions = schema_of(table), engine_of(table).partitions
    rows = routed(frame, schema, partitions) if len(partitions.partitions) > 1 else frame

    def write() -> None:
        if sink == "jvm":
            rows.write.format("noop").mode("overwrite").save()
        else:
            counted = rows.mapInArrow(drained, "rows long").collect()
            assert sum(row.rows for row in counted) == ROWS

    benchmark.extra_info["rows"] = ROWS
    benchmark.pedantic(write, rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("engine", ["kudu_core", "deltalake"])
def test_upsert_of_one_percent(
    benchmark: Any, spark: SparkSession, frame: DataFrame, tmp_path: Path, engine: str
) -> None:
    """The frame in a table, then every hundredth row of it with another value."""
    path = str(tmp_path / engine)
    changed = frame.where("pmod(xxhash64(at), 100) = 0").selectExpr("host", "at", "value + 1 as value")
    if engine == "kudu_core":
        ks.create(path, frame, KEYS, partition_by=LAYOUTS["hash4"])
        ks.write(frame, path, "insert")

        def upsert() -> None:
            ks.write(changed, path, "upsert")

    else:
        deltalake = pytest.importorskip("deltalake")
        deltalake.write_deltalake(path, frame.toArrow())

        def upsert() -> None:
            merger = deltalake.DeltaTable(path).merge(
                changed.toArrow(), "t.host = s.host and t.at = s.at", source_alias="s", target_alias="t"
            )
            merger.when_matched_update({"value": "s.value"}).execute()

    benchmark.extra_info["rows"] = changed.count()
    benchmark.pedantic(upsert, rounds=3, warmup_rounds=1)


def test_write_parquet(benchmark: Any, frame: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "parquet")
    benchmark.extra_info["rows"] = ROWS
    benchmark.pedantic(lambda: frame.write.mode("overwrite").parquet(path), rounds=3, warmup_rounds=1)


@pytest.fixture(scope="module")
def paths(frame: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("read")
    for layout, partition_by in LAYOUTS.items():
        ks.create(root / layout, frame, KEYS, partition_by=partition_by)
        ks.write(frame, root / layout, "insert")
    frame.write.parquet(str(root / "parquet"))
    return {name: str(root / name) for name in (*LAYOUTS, "parquet")}


def _read(spark: SparkSession, paths: dict[str, str], source: str, columns: list[str] | None) -> DataFrame:
    if source == "parquet":
        df = spark.read.parquet(paths["parquet"])
        return df if columns is None else df.select(columns)
    if source == "format":
        reader = spark.read.format("kudu_core")
        if columns is not None:
            reader = reader.option("columns", ",".join(columns))
        return reader.load(paths["one"])
    return ks.scan(spark, paths[source], columns)


@pytest.mark.parametrize("columns", [None, ["code", "value"]], ids=["all", "two"])
@pytest.mark.parametrize("source", ["one", "hash4", "format", "parquet"])
def test_read(
    benchmark: Any, spark: SparkSession, paths: dict[str, str], source: str, columns: list[str] | None
) -> None:
    def read() -> Any:
        df = _read(spark, paths, source, columns)
        df.write.format("noop").mode("overwrite").save()
        return df

    benchmark.extra_info["rows"] = ROWS
    df = benchmark.pedantic(read, rounds=5, warmup_rounds=1)
    assert df.count() == ROWS
