"""What a user reads of a mistake with the data source: our sentence, then a traceback."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kudu_core as kc
from kudu_core.engines.spark.codes import coded

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())])


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    with kc.create_table(path, SCHEMA, "k") as table:
        table.insert({"k": range(10), "v": ["x"] * 10})
    return path


@pytest.fixture
def df(spark: SparkSession) -> DataFrame:
    return spark.range(10).selectExpr("id AS k", "'y' AS v")


def save(df: DataFrame, path: str, **options: str) -> None:
    df.write.format("kudu_core").mode("append").options(**options).save(path)


def locked(df: DataFrame, path: str) -> None:
    with kc.open_table(path, "rw"):
        save(df, path, lockTimeoutS="0.05")


def damaged(df: DataFrame, path: str) -> None:
    """A task, and no planner, finds the damage."""
    with kc.open_table(path, "rw") as table:
        table.upsert({"k": range(30_000), "v": [f"{n * 7919 % 65537}" for n in range(30_000)]})
        table.flush()
    loaded = df.sparkSession.read.format("kudu_core").load(path)
    for file in Path(path).glob("tablets/*/*.rows"):
        whole = bytearray(file.read_bytes())
        whole[len(whole) // 2] ^= 255
        file.write_bytes(bytes(whole))
    loaded.selectExpr("sum(length(v) + k)").collect()


def streamed(df: DataFrame, path: str) -> None:
    loaded = df.sparkSession.readStream.format("kudu_core").load(path)
    writer = loaded.withColumnRenamed("v", "w").writeStream.format("kudu_core").trigger(availableNow=True)
    writer.option("checkpointLocation", path + "-checkpoint").start(path).awaitTermination()


MISTAKES: dict[str, tuple[Callable[[DataFrame, str], Any], str]] = {
    "no table": (
        lambda df, path: df.sparkSession.read.format("kudu_core").load(path + "2"),
        "[KUDU_TABLE_NOT_FOUND] there is no table at ",
    ),
    "an option": (
        lambda df, path: df.sparkSession.read.format("kudu_core").option("colums", "k").load(path),
        "[KUDU_INVALID_ARGUMENT] no option 'colums' to read a table; did you mean columns?",
    ),
    "a column": (
        lambda df, path: df.sparkSession.read.format("kudu_core").option("columns", "w").load(path),
        "[KUDU_INVALID_ARGUMENT] no column 'w'",
    ),
    "a predicate": (
        lambda df, path: df.sparkSession.read.format("kudu_core").option("where", "[5").load(path),
        "[KUDU_INVALID_ARGUMENT] where is no JSON",
    ),
    "a frame's column": (
        lambda df, path: save(df.withColumn("w", F.lit(1)), path),
        "[KUDU_SCHEMA_MISMATCH] the table has no column 'w'",
    ),
    "a frame's type": (
        lambda df, path: save(df.withColumn("v", F.lit(1.5)), path),
        "[KUDU_SCHEMA_MISMATCH] column 'v' is string",
    ),
    "a table to write": (
        lambda df, path: save(df, path + "2"),
        "[KUDU_TABLE_NOT_FOUND] there is no table at ",
    ),
    "a key that is there": (
        lambda df, path: save(df, path, operation="insert"),
        "[KUDU_ROW_ERRORS] 10 rows were refused (10 already_present)",
    ),
    "a key twice": (
        lambda df, path: save(df.union(df), path),
        "[KUDU_ROW_ERRORS] 10 rows were refused (10 duplicate_in_batch)",
    ),
    "a writer beside": (locked, "[KUDU_LOCKED] "),
    "damage": (damaged, "[KUDU_CORRUPTION] "),
    "a stream": (streamed, "[KUDU_SCHEMA_MISMATCH] the table has no column 'w'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_our_sentence_stands_before_the_traceback(df: DataFrame, path: str, mistake: str) -> None:
    make, sentence = MISTAKES[mistake]
    with pytest.raises(PySparkException) as caught:
        make(df, path)
    text = str(caught.value)
    before = text.partition("Traceback")[0]
    assert sentence in before, text
    # In front of it stands what Spark was about, in its words, and the class.
    words, _, _ = before.partition(sentence)
    assert "\tat " not in words and "File " not in words
    assert words.rpartition("\n")[2].endswith(": ") and "kudu_core.errors." in words


@pytest.mark.parametrize("shortened", [False, True])
def test_a_traceback_follows_also_where_spark_shortens_it(shortened: bool) -> None:
    """Spark sets the cause of what it shortens to None."""

    def fail() -> None:
        error = kc.InvalidArgument("no such thing")
        error.add_note("Say another.")
        raise error

    with pytest.raises(kc.KuduError) as caught, coded():
        fail()
    error = caught.value
    if shortened:
        error.__cause__ = None
    lines = "".join(traceback.format_exception(error)).splitlines()
    sentence = "[KUDU_INVALID_ARGUMENT] no such thing. Say another."
    assert lines[0] == f"kudu_core.errors.InvalidArgument: {sentence}"
    assert lines[-1].endswith(f"SparkTaskError: {sentence}")
    assert any(line.endswith("in fail") for line in lines), "where it was raised"
    assert sum(line == "Traceback (most recent call last):" for line in lines) == 1
    assert os.path.basename(__file__) in "".join(lines)
