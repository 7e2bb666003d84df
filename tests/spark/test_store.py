"""Spark and a table in an object store: over HTTP, so that workers reach it as executors do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.table.jobs import merge_job
from tests.support.objects.server import StoreServer

ROWS = 12_000


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    with StoreServer("s3") as store:
        yield store


@pytest.fixture
def place(server: StoreServer, request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """The URL of a table, and ``storage_options``."""
    return f"{server.url}/{request.node.name}/t", server.options()


def made(
    spark: SparkSession, place: tuple[str, dict[str, Any]], server: StoreServer
) -> tuple[str, dict[str, Any], DataFrame]:
    url, options = place
    df = spark.range(0, ROWS, 1, 2).selectExpr("id as k", "id * 2 as v")
    files = {"ingest_threshold_rows": 5_000}
    ks.create(
        url, df, "k", partition_by=kc.HashPartition("k", 2), options=files, storage_options=options
    )
    return url, options, df


def test_merges_are_built_by_tasks(
    spark: SparkSession,
    place: tuple[str, dict[str, Any]],
    server: StoreServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merge_job, "SMALL_BYTES", 0)
    url, options, _ = made(spark, place, server)
    manual = {"maintenance": "manual"}
    with kc.open_table(url, "rw", options=manual, storage_options=options) as table:
        for part in range(6):
            table.upsert([{"k": k, "v": -part} for k in range(part, ROWS, 100)])
            table.insert([{"k": ROWS + 6 * n + part, "v": 1} for n in range(500)])
            table.flush()
        wanted = table.scan(order="key").to_table()
    del server.seen[:]
    assert ks.maintain(spark, url, storage_options=options)
    built = {path.split("/files/")[1].split("/")[0] for path in server.seen if ".homes" in path}
    assert built, "no merge was built by tasks"
    with kc.open_table(url, storage_options=options) as reader:
        assert reader.scan(order="key").to_table() == wanted
        reader.verify()


def named(options: dict[str, Any]) -> dict[str, str]:
    """``storage_options`` as options of a data source."""
    return {f"storage.{name}": str(value) for name, value in options.items()}


def test_functions(
    spark: SparkSession, place: tuple[str, dict[str, Any]], server: StoreServer, tmp_path: Path
) -> None:
    url, options, df = made(spark, place, server)
    assert ks.write(df, url, "insert", storage_options=options).inserted == ROWS
    assert any("/files/job-" in path for path in server.seen)
    half = df.where("k % 2 = 0").selectExpr("k", "-v as v")
    result = ks.write(half, url, "upsert", txn=("app", 1), storage_options=options)
    assert result.updated == ROWS // 2
    assert ks.write(half, url, "upsert", txn=("app", 1), storage_options=options).deduplicated
    wanted = sum(2 * k if k % 2 else -2 * k for k in range(ROWS))
    found = ks.scan(spark, url, storage_options=options, target_rows_per_task=5000)
    assert found.selectExpr("sum(v)").first()[0] == wanted
    assert ks.count(spark, url, storage_options=options) == ROWS
    changed = ks.changes(spark, url, since=result.timestamp - 1, storage_options=options)
    assert changed.count() == ROWS // 2
    assert ks.write(df.where("k < 100"), url, "insert", mode="overwrite", storage_options=options).inserted
    assert ks.maintain(spark, url, storage_options=options) >= 0
    kept = str(tmp_path / "kept")
    assert ks.backup(spark, url, kept, storage_options=options).total == 100
    with kc.restore(kept, str(tmp_path / "restored")) as restored:
        assert restored.count() == 100
    in_store, anew, back = f"{url}-backups", f"{url}-restored", str(tmp_path / "back")
    assert ks.backup(spark, url, in_store, storage_options=options).total == 100
    ks.write(df.where("k = 7").select("k"), url, "delete", storage_options=options)
    assert ks.backup(spark, url, in_store, "last", storage_options=options).deleted == 1
    ks.restore(spark, in_store, anew, storage_options=options)
    assert ks.count(spark, anew, storage_options=options) == 99
    ks.verify(spark, anew, storage_options=options)
    ks.restore(spark, in_store, back, storage_options=options)
    assert ks.count(spark, back) == 99
    with pytest.raises(kc.TableExists):
        ks.restore(spark, kept, anew, storage_options=options)
    ks.write(df.where("k = 7"), url, "upsert", storage_options=options)
    assert ks.verify(spark, url, storage_options=options).files > 0
    assert ks.count(spark, url, at=result.timestamp, storage_options=options) == ROWS

    def values(batches: Any) -> Any:
        for batch in batches:
            there = ks.table(url, refresh_s=0, storage_options=options)
            yield there.get_many(batch.to_pydict(), ["k", "v"]).select(["k", "v"]).to_batches()[0]

    got = df.where("k < 10").select("k").mapInArrow(values, "k long, v long").collect()
    assert sorted((row.k, row.v) for row in got) == [(k, 2 * k) for k in range(10)]


def test_data_source(spark: SparkSession, place: tuple[str, dict[str, Any]], server: StoreServer) -> None:
    url, options, df = made(spark, place, server)
    df.write.format("kudu_core").options(**named(options)).mode("append").save(url)
    found = spark.read.format("kudu_core").options(**named(options)).option("columns", "v").load(url)
    assert found.columns == ["v"] and found.selectExpr("sum(v)").first()[0] == ROWS * (ROWS - 1)
    df.where("k < 3").write.format("kudu_core").options(**named(options)).mode("overwrite").save(url)
    assert ks.count(spark, url, storage_options=options) == 3


def test_streams(
    spark: SparkSession, place: tuple[str, dict[str, Any]], server: StoreServer, tmp_path: Path
) -> None:
    url, options, df = made(spark, place, server)
    ks.write(df, url, "insert", storage_options=options)
    copy = f"{url}-copy"
    ks.create(copy, df, "k", storage_options=options)
    stream = spark.readStream.format("kudu_core").options(**named(options)).load(url)
    sink = stream.writeStream.format("kudu_core").options(**named(options))
    for added in range(2):
        query = (
            sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start(copy)
        )
        query.awaitTermination(120)
        assert ks.count(spark, copy, storage_options=options) == ROWS + added
        more = spark.createDataFrame([(ROWS + added, 1)], df.schema)
        ks.write(more, url, "insert", storage_options=options)


def test_refusals(spark: SparkSession, tmp_path: Path, server: StoreServer) -> None:
    url, options = f"{server.url}/refusals/t", server.options()
    with pytest.raises(kc.TableNotFound, match="refusals/t"):
        ks.scan(spark, url, storage_options=options)
    with pytest.raises(kc.InvalidArgument, match="storage_options are of an object store"):
        ks.scan(spark, str(tmp_path), storage_options=options)
    with pytest.raises(Exception, match=r"no option 'storage\.a\.b'"):
        spark.read.format("kudu_core").option("storage.a.b", "1").load(url).count()
    with (
        kc.create_table(str(tmp_path / "t"), pa.schema([("k", pa.int64())]), "k") as table,
        pytest.raises(kc.InvalidArgument, match="an open table has its own"),
    ):
        ks.scan(spark, table, storage_options=options)
    with pytest.raises(kc.InvalidArgument, match="storage_options are of an object store"):
        ks.backup(spark, str(tmp_path / "t"), str(tmp_path / "b"), storage_options=options)
    with pytest.raises(kc.StoreDenied, match="no credentials were found"):
        ks.backup(spark, str(tmp_path / "t"), url)
