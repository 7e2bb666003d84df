"""Tables of every shape through Spark on two cores, beside the floor of the pipeline, in turns, by the wall.

    ci/bench.sh bench/spark/test_shapes.py

The floor of a scan: the same batches, which the worker has in memory already.  That of a write: the same
rows, routed and sorted by Spark and drained in Python.  As a test it runs small, for the answers.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.inside import engine_of, schema_of

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

import kudu_core as kc
from bench.shapes.operations import check
from bench.shapes.report import OURS
from bench.shapes.shapes import PLAIN, Shape, rows_of, sized
from bench.shapes.timing import QUICK, Effort, in_turns
from bench.spark.test_reads import from_memory
from bench.spark.test_spark import drained
from kudu_core import spark as ks
from kudu_core.engines.spark.scan import frame_of, shared_out
from kudu_core.engines.spark.schema import spark_schema
from kudu_core.engines.spark.write import routed

GOAL = 1.5
FLOOR = "the pipeline alone"
TABLETS = 4
TESTED = ("narrow", "100 columns")
"""When no times are taken."""
READING = Effort(5, 7, 20.0, single=True)
WRITING = Effort(2, 3, 20.0, single=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    timed = metafunc.config.getoption("benchmark_enable")
    names = [shape.name for shape in PLAIN if timed or shape.name in TESTED]
    metafunc.parametrize("shape", names, indirect=True, scope="module")


@pytest.fixture(scope="module")
def shape(request: pytest.FixtureRequest, timed: bool) -> Iterator[Shape]:
    yield sized(request.param, timed)
    rows_of.cache_clear()


@pytest.fixture(scope="module")
def path(shape: Shape, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with all rows of the shape."""
    made = str(tmp_path_factory.mktemp("shapes") / "t")
    with kc.create_table(
        made, rows_of(shape).schema, "k", partition_by=kc.HashPartition("k", TABLETS)
    ) as table:
        table.insert(rows_of(shape))
        table.flush()
    return made


def test_scan(benchmark: Any, note: Any, spark: SparkSession, shape: Shape, path: str, timed: bool) -> None:
    with kc.open_table(path) as table:
        schema = spark_schema(schema_of(table))
        tasks = shared_out(table.scan_tokens(), 2_000_000, 2)
    acts = {
        OURS: lambda call: ks.scan(spark, path).count(),
        FLOOR: lambda call: frame_of(spark, tasks, schema, from_memory).count(),
    }
    for act in acts.values():  # each worker keeps its batches after it has read them once
        for call in range(3 if timed else 1):
            act(call)
    effort = READING if timed else QUICK
    found = benchmark.pedantic(in_turns, (acts, effort), {"clock": time.perf_counter}, rounds=1)
    assert {spent.answer for spent in found.values()} == {shape.rows}
    if not timed:
        check(ks.scan(spark, path).toArrow(), rows_of(shape), ordered=False)
    note("Spark: scan", "ks.scan, counted", shape.name, found, GOAL)


def test_write(
    benchmark: Any, note: Any, spark: SparkSession, shape: Shape, tmp_path: Path, timed: bool
) -> None:
    source = str(tmp_path / "rows.parquet")
    written = str(tmp_path / "t")
    frame = _frame(spark, shape, source)
    partition_by = kc.HashPartition("k", TABLETS)
    ks.create(written, frame, "k", partition_by=partition_by)
    with kc.open_table(written) as table:
        schema, partitions = schema_of(table), engine_of(table).partitions

    def fresh(_: str) -> None:
        shutil.rmtree(written)
        ks.create(written, frame, "k", partition_by=partition_by)

    def floor(call: int) -> int:
        counted = routed(frame, schema, partitions).mapInArrow(drained, "rows long").collect()
        return int(sum(row.rows for row in counted))

    def write(call: int) -> int:
        ks.write(frame, written, "upsert")
        return shape.rows

    effort = WRITING if timed else QUICK
    given = {"clock": time.perf_counter, "before": fresh}
    # Ours last: what it has written is looked at.
    found = benchmark.pedantic(in_turns, ({FLOOR: floor, OURS: write}, effort), given, rounds=1)
    assert {spent.answer for spent in found.values()} == {shape.rows}
    with kc.open_table(written) as table:
        check(table.scan().to_table(), rows_of(shape), ordered=False)
    note("Spark: write", "ks.write, upsert", shape.name, found, GOAL)


def _frame(spark: SparkSession, shape: Shape, path: str) -> DataFrame:
    """All rows of a shape, kept by Spark."""
    import pyarrow.parquet as pq

    pq.write_table(rows_of(shape), path, row_group_size=max(1, shape.rows // 2))
    frame = spark.read.parquet(path).cache()
    assert frame.count() == shape.rows
    return frame
