"""Spark reads no row that has expired, and its jobs write over such rows as over none."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
from pyspark.sql import SparkSession

import kudu_core as kc
from kudu_core import spark as ks
from tests.support.clock import now

LIFETIME = dt.timedelta(days=1)
MANUAL = {"maintenance": "manual", "ingest_threshold_rows": 10}


def test_rows_that_have_expired(spark: SparkSession, path: str) -> None:
    schema = [("k", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("s", pa.string())]
    with kc.create_table(path, schema, "k", ttl=("at", LIFETIME), options=MANUAL) as table:
        old = now() - 2 * LIFETIME
        table.insert([{"k": k, "at": old if k % 2 else now(), "s": "old"} for k in range(40)])
        table.flush()
    alive = list(range(0, 40, 2))
    assert ks.count(spark, path) == 20
    assert sorted(row.k for row in ks.scan(spark, path, ["k"]).collect()) == alive
    read = spark.read.format("kudu_core").load(path)
    assert sorted(row.k for row in read.select("k").collect()) == alive
    frame = spark.range(0, 40, 1, 2).selectExpr("id as k")
    ks.write(frame, path, "upsert")
    with kc.open_table(path) as table:
        rows = table.to_table().sort_by("k").to_pylist()
    assert [row["s"] for row in rows] == ["old", None] * 20, "a row that has expired leaves nothing"
