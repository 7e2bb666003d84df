"""The first small jobs of a session of Spark: each in a session of its own, beside what Spark takes alone.

    python -m bench.spark.first_jobs [rounds]

Spark alone: the first write of Parquet, the first ``mapInArrow``, and the first write and read of a data
source in Python that does nothing (Spark starts four processes for it, of which each loads PySpark).  Before
each a job without Python has warmed the session.  Printed are medians of the first and of the second call, in
seconds.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kudu_core as kc
from bench.spark.conftest import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 500
EMPTY_SOURCE = '''
from pyspark.sql.datasource import (
    DataSource, DataSourceReader, DataSourceWriter, InputPartition, WriterCommitMessage
)


class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "empty_source"

    def schema(self):
        return "host string, at timestamp, code int"

    def reader(self, schema):
        return Reader()

    def writer(self, schema, overwrite):
        return Writer()


class Reader(DataSourceReader):
    def partitions(self):
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition):
        return iter(())


class Writer(DataSourceWriter):
    def write(self, rows):
        for _ in rows:
            pass
        return WriterCommitMessage()

    def commit(self, messages):
        pass
'''
JOBS = (
    "Parquet", "mapInArrow", "ks.write", "ks.scan",
    "empty source, write", "df.write.format", "empty source, read", "read.format",
)  # fmt: skip


def frame_of(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr(
        "concat('host', id % 100) as host", "timestamp_micros(id * 1000000) as at",
        "cast(id % 7 as int) as code",
    )  # fmt: skip


def session() -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def run_job(name: str, folder: str) -> None:
    """Print the seconds of two calls."""
    from kudu_core import spark as ks

    spark = session()
    path, parquet = os.path.join(folder, "table"), os.path.join(folder, "parquet")
    frame = frame_of(spark)
    frame.write.mode("overwrite").parquet(parquet)
    spark.read.parquet(parquet).selectExpr("sum(code)").collect()

    def by_format(source: str) -> Any:
        return frame.write.format(source).mode("append").option("operation", "upsert").save(path)

    def summed(found: DataFrame) -> Any:
        return found.selectExpr("sum(code)").collect()

    jobs: dict[str, Callable[[], Any]] = {
        "Parquet": lambda: frame.write.mode("overwrite").parquet(parquet + "2"),
        "mapInArrow": lambda: frame.mapInArrow(lambda batches: batches, frame.schema).count(),
        "ks.write": lambda: ks.write(frame, path),
        "ks.scan": lambda: summed(ks.scan(spark, path)),
        "empty source, write": lambda: by_format("empty_source"),
        "df.write.format": lambda: by_format("kudu_core"),
        "empty source, read": lambda: summed(spark.read.format("empty_source").load(path)),
        "read.format": lambda: summed(spark.read.format("kudu_core").load(path)),
    }
    for _ in range(2):
        begun = time.perf_counter()
        jobs[name]()
        print(time.perf_counter() - begun, flush=True)
    spark.stop()


def make_table(folder: str) -> None:
    import pyarrow as pa

    schema = pa.schema(
        [("host", pa.string()), ("at", pa.timestamp("us", "UTC")), ("code", pa.int32())]
    )
    path = os.path.join(folder, "table")
    kc.create_table(path, schema, ["host", "at"], partition_by=kc.HashPartition("host", 8)).close()
    source = Path(folder, "pyspark_empty_source")
    source.mkdir()
    (source / "__init__.py").write_text(EMPTY_SOURCE)


def main(rounds: int) -> None:
    taken: dict[str, list[list[float]]] = {name: [] for name in JOBS}
    root = str(Path(__file__).parents[2])
    for _ in range(rounds):
        folder = tempfile.mkdtemp()
        try:
            make_table(folder)
            paths = filter(None, [root, folder, os.environ.get("PYTHONPATH")])
            own = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
            for name in JOBS:
                command = [sys.executable, "-m", "bench.spark.first_jobs", "--job", name, folder]
                printed = subprocess.run(
                    command, env=own, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
                taken[name].append([float(line) for line in printed.stdout.split()])
        finally:
            shutil.rmtree(folder)
    for name, found in taken.items():
        first, second = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{name:22} first {first:.2f} s, second {second:.2f} s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        run_job(*sys.argv[2:4])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
