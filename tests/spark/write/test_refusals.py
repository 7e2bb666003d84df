"""Writes of DataFrames that are refused, and what the message says instead."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kudu_core as kc
from kudu_core import spark as ks
from tests.spark.write.test_write import (
    BEFORE,
    PARTITIONS,
    SCHEMA,
    Frame,
    Write,
    by_driver,
    by_format,
    by_function,
    columns,
    make,
    rows_of,
    staging,
)


@pytest.mark.parametrize(
    ("columns_", "operation", "message"),
    [
        ("1 as v", "upsert", "key column 'k' is missing"),
        ("id as k, 1 as w", "upsert", "no column 'w'.*it has k, v, s"),
        ("id as K, 1 as v", "upsert", "no column 'K' .did you mean 'k'"),
        ("cast(id as string) as k", "upsert", "column 'k' is int64.*DataFrame has string; cast it"),
        ("id as k, 1.5d as v", "upsert", "column 'v' is int32.*DataFrame has double"),
        ("id as k, array(1) as v", "upsert", "column 'v'.*array<int>"),
        ("id as k, 1 as v", "delete", r"key columns only; write df.select\(k\)"),
        ("id as k", "update", "column to set beside the key"),
        ("id as k", "apply", "string column '_op'"),
        ("id as k, 1 as v, 2 as v", "upsert", "'v' is twice"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_before_any_task(
    spark: SparkSession, path: str, columns_: str, operation: str, message: str
) -> None:
    make(path)
    df = spark.range(2).selectExpr(*columns_.split(", "))
    with pytest.raises(kc.SchemaMismatch, match=message):
        ks.write(df, path, operation)
    assert staging(path) == []


def test_by_format_a_frame_that_does_not_fit_says_so_too(spark: SparkSession, path: str) -> None:
    make(path)
    df = spark.range(2).selectExpr("id as k", "1 as w")
    with pytest.raises(PySparkException, match=r"\[KUDU_SCHEMA_MISMATCH\] the table has no column 'w'"):
        by_format(df, path, "upsert")
    assert staging(path) == []


@pytest.mark.parametrize("write", [by_function, by_driver])
def test_a_value_that_does_not_fit_fails_the_job(spark: SparkSession, path: str, write: Write) -> None:
    make(path)
    df = spark.range(1 << 33, (1 << 33) + 2).selectExpr("id as k", "id as v")
    with pytest.raises(kc.SchemaMismatch, match=r"column 'v', row .*: int64 does not fit int32"):
        write(df, path, "upsert")
    with pytest.raises(PySparkException, match=r"\[KUDU_SCHEMA_MISMATCH\] column 'v'"):
        by_format(df, path, "upsert")
    assert rows_of(path) == {}


def test_arguments_are_checked_before_anything_runs(spark: SparkSession, path: str) -> None:
    df = spark.range(2).selectExpr("id as k")
    with pytest.raises(kc.InvalidArgument, match="operation 'merge' is none of insert"):
        ks.write(df, path, "merge")
    with pytest.raises(kc.InvalidArgument, match="on_duplicate"):
        ks.write(df, path, on_duplicate="last")
    with pytest.raises(kc.InvalidArgument, match="repartition"):
        ks.write(df, path, repartition="yes")
    with pytest.raises(kc.InvalidArgument, match='mode is "append" or "overwrite", not'):
        ks.write(df, path, mode="replace")
    with pytest.raises(kc.InvalidArgument, match='"insert" or "upsert", not \'update\''):
        ks.write(df, path, "update", mode="overwrite")
    with pytest.raises(kc.InvalidArgument, match="txn"):
        ks.write(df, path, txn=("", 1))
    with pytest.raises(kc.TableNotFound, match="create_table"):
        ks.write(df, path)
    with pytest.raises(kc.InvalidArgument, match="StructType"):
        ks.create(path, SCHEMA, "k")


@pytest.mark.parametrize(
    ("write", "threshold"),
    [(by_function, 1), (by_driver, 10_000), (by_format, 10_000)],
    ids=["function", "driver", "format"],
)
def test_overwrite_is_one_change(
    frame: Frame, path: str, spark: SparkSession, write: Write, threshold: int
) -> None:
    """Resolved by tasks, and by the commit; also of few rows there are files."""
    make(path, BEFORE, partition_by=PARTITIONS, options={"ingest_threshold_rows": threshold})
    with kc.open_table(path) as table:
        before = table.timestamp
    new = {k: (k, "new") for k in range(2, 60)}
    for given in (new, dict(reversed(new.items()))):
        write(frame(columns(given)), path, "insert", mode="overwrite", txn=("nightly", 1))
        assert rows_of(path) == new
    with kc.open_table(path) as table:
        table.verify()
        assert {r["k"] for r in table.scan(at=before).to_pylist()} == BEFORE.keys()
        told = table.changes(before).to_pylist()
        assert len({row["_timestamp"] for row in told}) == 1
        assert sorted(row["k"] for row in told if row["_op"] != "insert") == [1, 2, 3] and len(told) == 59
        assert ks.count(spark, path) == 58 and ks.count(spark, path, at=before) == 3
    assert staging(path) == []


def test_overwrite_by_rows_that_are_refused_and_by_none(frame: Frame, path: str) -> None:
    make(path, BEFORE, partition_by=PARTITIONS)
    twice = frame({"k": pa.array([5, 5], pa.int64()), "v": pa.array([1, 2], pa.int32())})
    with pytest.raises(PySparkException, match=r"\[KUDU_ROW_ERRORS\]"):
        by_format(twice, path, "upsert", mode="overwrite")
    assert rows_of(path) == BEFORE
    last = ks.write(twice, path, mode="overwrite", on_duplicate="last", sequence_by="v")
    assert last.counts == (1, 0, 0, 0) and rows_of(path) == {5: (2, None)}
    by_format(twice.limit(0), path, "upsert", mode="overwrite")
    assert rows_of(path) == {}
    assert staging(path) == []


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        (None, {}, '"Append" or "Overwrite" mode instead'),
        ("ignore", {}, '"Append" or "Overwrite" mode instead'),
        ("overwrite", {"operation": "delete"}, r"\[KUDU_INVALID_ARGUMENT\] mode \"overwrite\" puts new rows"),
        ("append", {"operation": "merge"}, r"\[KUDU_INVALID_ARGUMENT\] operation 'merge' is none of"),
        ("append", {"opperation": "upsert"}, r"\[KUDU_INVALID_ARGUMENT\].*did you mean operation\?"),
        ("append", {"columns": "k"}, "columns is an option of read, not of write"),
        ("append", {"txnVersion": "1"}, "txnAppId and txnVersion go together"),
        ("append", {"txnAppId": "a", "txnVersion": "x"}, "txnVersion is a whole number"),
        ("append", {"lockTimeoutS": "-1"}, "lockTimeoutS is a number of seconds"),
        ("append", {"onDuplicate": "last"}, "sequence_by go together"),
        ("append", {"ignoreNull": "perhaps"}, "ignoreNull"),
    ],
)
def test_by_format_modes_and_options_that_do_not_exist_say_what_does(
    spark: SparkSession, path: str, mode: str | None, options: dict[str, str], message: str
) -> None:
    make(path, BEFORE)
    writer = spark.range(2).selectExpr("id as k").write.format("kudu_core").options(**options)
    with pytest.raises(PySparkException, match=message):
        (writer if mode is None else writer.mode(mode)).save(path)
    assert rows_of(path) == BEFORE
    assert staging(path) == []


def test_by_format_a_path_must_be_given_and_hold_a_table(spark: SparkSession, path: str) -> None:
    writer = spark.range(2).selectExpr("id as k").write.format("kudu_core").mode("append")
    with pytest.raises(PySparkException, match=r"\[KUDU_INVALID_ARGUMENT\] no path: .*\.save"):
        writer.save()
    with pytest.raises(PySparkException, match=r"\[KUDU_TABLE_NOT_FOUND\].*create_table"):
        writer.save(path)
    make(path)
    with pytest.raises(PySparkException, match="partitioning"):
        writer.partitionBy("k").save(path)


def test_sql_inserts_through_a_view(spark: SparkSession, path: str) -> None:
    make(path, BEFORE)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW kudu_view USING kudu_core OPTIONS (path '{path}')")
    assert spark.sql("SELECT sum(v) FROM kudu_view").collect()[0][0] == 60
    spark.sql("INSERT INTO kudu_view VALUES (2, 21, 'bb'), (4, 40, 'd')")
    assert rows_of(path) == BEFORE | {2: (21, "bb"), 4: (40, "d")}
