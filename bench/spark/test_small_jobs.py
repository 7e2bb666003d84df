"""Small jobs through Spark beside Parquet in the same session, in turns, by the wall, medians.

    ci/bench.sh bench/spark/test_small_jobs.py

What a job of few rows costs is Spark's planning, tasks and processes, and what we add to them.  As a test it
runs each once, for the answers.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kudu_core as kc
from kudu_core import spark as ks

KEYS = ["host", "at"]
ROWS, BATCH_ROWS, READ_ROWS = 500, 10_000, 1000
TABLETS = (1, 8, 64)
WARM, ROUNDS = 3, 9


def rows_of(spark: SparkSession, count: int) -> DataFrame:
    frame = spark.range(0, count, 1, 2).selectExpr(
        "concat('host', id % 100) as host", "timestamp_micros(id * 1000000) as at",
        "cast(id % 7 as int) as code", "sin(id) as value", "xxhash64(id) as n",
        "if(id % 5 = 0, null, cast(id as string)) as note",
    ).cache()  # fmt: skip
    assert frame.count() == count
    return frame


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> dict[int, DataFrame]:
    return {count: rows_of(spark, count) for count in (ROWS, BATCH_ROWS, READ_ROWS)}


@pytest.fixture(scope="module")
def tables(frames: dict[int, DataFrame], tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """By the number of tablets."""
    root = tmp_path_factory.mktemp("small")
    paths = {count: str(root / f"{count}") for count in TABLETS}
    for count, path in paths.items():
        partition_by = kc.HashPartition("host", count) if count > 1 else ()
        ks.create(path, frames[ROWS], KEYS, partition_by=partition_by)
    return paths


def by_format(frame: DataFrame, path: str) -> None:
    frame.write.format("kudu_core").mode("append").option("operation", "upsert").save(path)


def medians(acts: dict[str, Callable[[], Any]], timed: bool) -> dict[str, float]:
    """Median milliseconds of each."""
    spent: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(WARM + ROUNDS if timed else 1):
        for name, act in acts.items():
            started = time.perf_counter()
            act()
            spent[name].append(time.perf_counter() - started)
    return {name: statistics.median(found[WARM if timed else 0 :]) * 1e3 for name, found in spent.items()}


def compared(benchmark: Any, acts: dict[str, Callable[[], Any]], timed: bool) -> None:
    found = benchmark.pedantic(medians, (acts, timed), rounds=1)
    for name, took in found.items():
        benchmark.extra_info[name] = f"{took:.0f} ms, {took / found['Parquet']:.2f} of Parquet"
        if timed:
            print(f"{name:36} {benchmark.extra_info[name]}")


@pytest.mark.parametrize("rows", [ROWS, BATCH_ROWS])
def test_write(
    benchmark: Any,
    frames: dict[int, DataFrame],
    tables: dict[int, str],
    tmp_path: Path,
    rows: int,
    timed: bool,
) -> None:
    frame, batches = frames[rows], iter(range(1000))
    acts: dict[str, Callable[[], Any]] = {
        "Parquet": lambda: frame.write.mode("overwrite").parquet(str(tmp_path / "p"))
    }
    for count, path in tables.items():
        acts[f"ks.write, {count} tablets"] = partial(ks.write, frame, path)
        acts[f"df.write.format, {count} tablets"] = partial(by_format, frame, path)
    each = ks.foreach_batch(tables[8], f"batches of {rows}")
    acts["ks.foreach_batch, 8 tablets"] = lambda: each(frame, next(batches))
    compared(benchmark, acts, timed)
    for path in tables.values():
        with kc.open_table(path) as table:
            assert table.count() >= rows


def test_read(
    benchmark: Any, spark: SparkSession, frames: dict[int, DataFrame], tmp_path: Path, timed: bool
) -> None:
    path, parquet = str(tmp_path / "t"), str(tmp_path / "p")
    ks.create(path, frames[READ_ROWS], KEYS, partition_by=kc.HashPartition("host", 8))
    ks.write(frames[READ_ROWS], path)
    frames[READ_ROWS].write.parquet(parquet)
    sums: dict[str, list[Any]] = {}

    def summed(name: str, frame: DataFrame) -> None:
        sums.setdefault(name, []).append(frame.agg(F.count("*"), F.sum("code")).first())

    acts: dict[str, Callable[[], Any]] = {
        "Parquet": lambda: summed("Parquet", spark.read.parquet(parquet)),
        "ks.scan": lambda: summed("ks.scan", ks.scan(spark, path)),
        "read.format": lambda: summed("read.format", spark.read.format("kudu_core").load(path)),
    }
    compared(benchmark, acts, timed)
    assert {tuple(row) for found in sums.values() for row in found} == {
        (READ_ROWS, sum(k % 7 for k in range(READ_ROWS)))
    }


def test_many_small_commits(
    benchmark: Any, frames: dict[int, DataFrame], tmp_path: Path, timed: bool
) -> None:
    """The last commits of many beside the first: what a commit leaves must not slow down those after it."""
    path, commits = str(tmp_path / "t"), 96 if timed else 3
    ks.create(path, frames[ROWS], KEYS, partition_by=kc.HashPartition("host", 8))
    spent: list[float] = []

    def work() -> None:
        for _ in range(commits):
            started = time.perf_counter()
            ks.write(frames[ROWS], path)
            spent.append(time.perf_counter() - started)

    benchmark.pedantic(work, rounds=1)
    third = len(spent) // 3
    first, last = statistics.median(spent[:third]), statistics.median(spent[-third:])
    benchmark.extra_info["commits"] = f"first third {first * 1e3:.0f} ms, last {last * 1e3:.0f} ms"
    if timed:
        print(benchmark.extra_info["commits"])
    with kc.open_table(path) as table:
        assert table.count() == ROWS
    shutil.rmtree(path)
