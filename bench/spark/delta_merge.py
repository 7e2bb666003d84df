"""Delta Lake's MERGE of 1% of the rows, as ``test_spark.py`` upserts them: for its figure beside ours.

    python bench/spark/delta_merge.py [rows]

Needs a PySpark that Delta's package is built for, which is not always the one that kudu_core runs on: then in
a virtual environment of its own.  Set ``DELTA_PACKAGE`` to the package of that Spark.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time

from pyspark.sql import SparkSession

PACKAGE = os.environ.get("DELTA_PACKAGE", "io.delta:delta-spark_4.2_2.13:4.4.0")
ROUNDS = 4


def main(rows: int) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.driver.memory", "4g")
        .config("spark.jars.packages", PACKAGE)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.range(0, rows, 1, 2).selectExpr(
        "concat('host', id % 100) as host", "timestamp_micros(id * 1000000) as at",
        "cast(id % 7 as int) as code", "sin(id) as value", "xxhash64(id) as n",
        "if(id % 5 = 0, null, cast(id as string)) as note",
    ).cache()  # fmt: skip
    frame.count()
    folder = tempfile.mkdtemp()
    try:
        path = os.path.join(folder, "table")
        started = time.perf_counter()
        frame.write.format("delta").save(path)
        print(f"write {time.perf_counter() - started:.2f} s")
        changed = frame.where("pmod(xxhash64(at), 100) = 0").selectExpr("host", "at", "value + 1 as value")
        changed.createOrReplaceTempView("changed")
        for _ in range(ROUNDS):
            started = time.perf_counter()
            spark.sql(
                f"merge into delta.`{path}` t using changed s on t.host = s.host and t.at = s.at "
                "when matched then update set t.value = s.value"
            ).collect()
            print(f"merge {time.perf_counter() - started:.2f} s")
    finally:
        shutil.rmtree(folder)
        spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000)
