"""Two executors, each a process with workers of its own, on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys

from pyspark.sql import SparkSession

import kudu_core as kc
from kudu_core import spark as ks

builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("kudu_core cluster")
for name, value in {
    "spark.ui.enabled": "false", "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "localhost", "spark.ui.showConsoleProgress": "false",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
path = sys.argv[1]
df = spark.range(0, 20_000, 1, 4).selectExpr("id as k", "id * 2 as v")
ks.create(path, df, "k", partition_by=kc.HashPartition("k", 4))
assert ks.write(df, path, "insert").inserted == 20_000
df.where("k % 2 = 0").selectExpr("k", "-v as v").write.format("kudu_core").mode("append").save(path)
expected = sum(2 * k if k % 2 else -2 * k for k in range(20_000))
assert ks.scan(spark, path).selectExpr("sum(v)").first()[0] == expected
spark.stop()
print("done")
"""


def test_executors_in_other_processes_stage_and_read(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    env = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "table")],
        env=env, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.stdout.endswith("done\n"), done.stderr[-4000:]
