"""Attempts of tasks that fail, are repeated or are late: each row counts once, or the job not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kudu_core import spark as ks
from kudu_core.engines.spark import write as write_module
from kudu_core.engines.spark.source import KuduWriter, Staged
from pyspark_kudu_core import DefaultSource
from tests.spark.write.test_write import BEFORE, make, rows_of, staging

THRESHOLDS = pytest.mark.parametrize("threshold", [1, 100_000], ids=["staged", "held"])
"""Tasks stage their rows, or hand them back because they are few."""


def failing_after(inner: Any, marker: str, *, attempts: int) -> Any:
    """A staging function whose first attempts in one partition fail after they have staged."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        staged = list(inner(batches))
        context = TaskContext.get()
        if staged and context.partitionId() == 1 and context.attemptNumber() < attempts:
            Path(marker, f"{context.taskAttemptId()}").touch()
            raise RuntimeError("the attempt fails after it staged")
        yield from staged

    return run


@THRESHOLDS
def test_an_attempt_that_fails_after_it_staged_leaves_no_row_twice(
    spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threshold: int
) -> None:
    make(path, options={"ingest_threshold_rows": threshold})
    marker = tmp_path / "failed"
    marker.mkdir()
    inner = write_module.staging_function
    monkeypatch.setattr(
        write_module, "staging_function", lambda job: failing_after(inner(job), str(marker), attempts=1)
    )
    df = spark.range(0, 400, 1, 2).selectExpr("id as k", "cast(id as int) as v")
    assert ks.write(df, path, "insert").counts == (400, 0, 0, 0)
    assert len(os.listdir(marker)) == 1
    assert sorted(rows_of(path)) == list(range(400))
    assert staging(path) == []


@THRESHOLDS
def test_a_job_that_fails_changes_nothing(
    spark: SparkSession, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threshold: int
) -> None:
    make(path, BEFORE, options={"ingest_threshold_rows": threshold})
    marker = tmp_path / "failed"
    marker.mkdir()
    inner = write_module.staging_function
    monkeypatch.setattr(
        write_module, "staging_function", lambda job: failing_after(inner(job), str(marker), attempts=9)
    )
    df = spark.range(0, 400, 1, 2).selectExpr("id as k", "cast(id as int) as v")
    with pytest.raises(PySparkException, match="fails after it staged"):
        ks.write(df, path, "upsert")
    assert len(os.listdir(marker)) == 2
    assert rows_of(path) == BEFORE
    assert staging(path) == []


@THRESHOLDS
def test_by_format_a_retried_attempt_counts_once_and_a_failed_job_not_at_all(
    spark: SparkSession, path: str, threshold: int
) -> None:
    class Writer(KuduWriter):
        attempts = 0

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
            staged = super().write(iterator)
            context = TaskContext.get()
            if context.partitionId() == 1 and context.attemptNumber() < self.attempts:
                raise RuntimeError("the attempt fails after it staged")
            return staged

    class Flaky(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return "kudu_core_flaky"

        def writer(self, schema: Any, overwrite: bool) -> KuduWriter:
            attempts = int(self.options.pop("attempts"))
            writer = Writer(self.options, schema, overwrite)
            writer.attempts = attempts
            return writer

    make(path, BEFORE, options={"ingest_threshold_rows": threshold})
    spark.dataSource.register(Flaky)
    df = spark.range(100, 500, 1, 2).selectExpr("id as k", "cast(id as int) as v")

    def write(attempts: int) -> None:
        df.write.format("kudu_core_flaky").mode("append").options(operation="insert", attempts=attempts).save(
            path
        )

    with pytest.raises(PySparkException):
        write(9)
    assert rows_of(path) == BEFORE
    write(1)
    assert sorted(rows_of(path)) == [1, 2, 3, *range(100, 500)]
    # An attempt that ran on after the abort may have left its job's directory for the sweep.
    deadline = time.monotonic() + 5
    while len(staging(path)) > 1 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(staging(path)) <= 1
