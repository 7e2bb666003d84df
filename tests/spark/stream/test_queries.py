"""Whole streaming queries: a table that follows another, batches that are written once, refusals."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.engines.spark.stream.stream_sink import KuduStreamWriter, query_of
from kudu_core.engines.spark.versions.streaming import LIMITS
from tests.spark.stream.conftest import SCHEMA, state
from tests.support.staged import waiting


def forget_last_commit(checkpoint: Path) -> int:
    """As if the driver had died between the batch and the note of it; the number of the batch."""
    last = max(int(name) for name in os.listdir(checkpoint / "commits") if name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink()
    return last


def run(df: DataFrame, checkpoint: Path, start: Callable[[Any], Any]) -> Any:
    query = start(df.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True))
    query.awaitTermination()
    return query


def test_a_table_follows_another_batch_by_batch(spark: SparkSession, path: str, tmp_path: Path) -> None:
    """Source and sink together; every batch once, also the one that is repeated."""
    copy = str(tmp_path / "copy")
    kc.create_table(copy, SCHEMA, "k").close()
    checkpoint = tmp_path / "checkpoint"
    stream = spark.readStream.format("kudu_core").option("readChanges", "true")
    if LIMITS:
        stream = stream.option("maxRowsPerTrigger", "600")
    # insert, update and delete are strict: applied twice they would fail.
    applied = stream.load(path).drop("_timestamp")

    def start(writer: Any) -> Any:
        return writer.format("kudu_core").option("operation", "apply").start(copy)

    run(applied, checkpoint, start)
    assert state(copy) == state(path)
    with kc.open_table(copy) as table:
        before = table.timestamp
    assert forget_last_commit(checkpoint) >= int(LIMITS)
    with kc.open_table(path, "rw") as table:
        table.delete([5, 6])
        table.insert({"k": [7000], "v": [7]})
    # Before PySpark 4.2 a query with this trigger has one batch: the one that is repeated, and then the next.
    queries = [run(applied, checkpoint, start) for _ in range(1 if LIMITS else 2)]
    assert len([p for query in queries for p in query.recentProgress if p.numInputRows]) == 2
    assert state(copy) == state(path)
    with kc.open_table(copy) as table:
        told = table.changes(before).to_pylist()
        assert sorted((r["_op"], r["k"]) for r in told) == [("delete", 5), ("delete", 6), ("insert", 7000)]
    assert waiting(copy) == []


def test_foreach_batch_writes_each_batch_once(spark: SparkSession, path: str, tmp_path: Path) -> None:
    sums = str(tmp_path / "sums")
    kc.create_table(sums, pa.schema([("part", pa.int64()), ("n", pa.int64())]), "part").close()
    counts = (
        spark.readStream.format("kudu_core").load(path).groupBy((F.col("k") % 3).alias("part")).count()
    ).withColumnRenamed("count", "n")
    checkpoint = tmp_path / "checkpoint"

    def start(writer: Any) -> Any:
        return writer.outputMode("update").foreachBatch(ks.foreach_batch(sums, "sums")).start()

    run(counts, checkpoint, start)
    with kc.open_table(sums) as table:
        wanted = table.timestamp
        assert sum(row["n"] for row in table.scan().to_table().to_pylist()) == 998
    forget_last_commit(checkpoint)
    run(counts, checkpoint, start)
    with kc.open_table(sums) as table:
        assert table.timestamp == wanted, "nothing was written"
    with kc.open_table(path, "rw") as table:
        table.insert({"k": [9000]})
    run(counts, checkpoint, start)
    with pytest.raises(PySparkException, match="knows 'sums' as the name of the writes of"):
        run(counts, tmp_path / "another", start)


def test_a_query_that_does_not_tell_its_id_has_none(spark: SparkSession) -> None:
    """Outside of a query, and with Spark Connect, where there is no context to ask."""
    assert query_of(spark.range(1)) is None

    class Connected:
        @property
        def sparkContext(self) -> None:
            raise PySparkException("there is no context")

    assert query_of(SimpleNamespace(sparkSession=Connected())) is None  # type: ignore[arg-type]


def test_a_sink_refuses_what_it_cannot_do(spark: SparkSession, path: str) -> None:
    schema = StructType.fromDDL("k bigint, v int")
    with pytest.raises(kc.KuduError, match=r'\[KUDU_NOT_SUPPORTED\].*outputMode\("update"\)'):
        KuduStreamWriter({"path": path}, schema, overwrite=True)
    with pytest.raises(kc.KuduError, match="leave txnVersion out"):
        KuduStreamWriter({"path": path, "txnVersion": "3"}, schema, overwrite=False)
    with pytest.raises(kc.KuduError, match='on_repeat is "check"'):
        KuduStreamWriter({"path": path, "onRepeat": "ask"}, schema, overwrite=False)
    with pytest.raises(kc.KuduError, match="no option 'oepration'"):
        KuduStreamWriter({"path": path, "oepration": "insert"}, schema, overwrite=False)
    writer = KuduStreamWriter({"path": path, "checkpointLocation": "x"}, schema, overwrite=False)
    assert not os.path.exists(f"{path}/staging") or waiting(path) == []
    first, second = pickle.loads(pickle.dumps((writer, writer)))
    assert first._job == second._job == writer._job
    with pytest.raises(kc.InvalidArgument, match="operation"):
        ks.foreach_batch(path, "a", "merge")
    with pytest.raises(kc.InvalidArgument, match="on_repeat"):
        ks.foreach_batch(path, "a", on_repeat="ask")


def test_a_copy_takes_the_last_change_of_each_key(spark: SparkSession, path: str, tmp_path: Path) -> None:
    """As docs/spark.md has it: several changes of a key in one batch, also of keys that came and went."""
    copy = str(tmp_path / "copy")
    kc.create_table(copy, SCHEMA, "k").close()
    last = F.when(F.col("_op") == "delete", "delete_ignore").otherwise("upsert")
    stream = spark.readStream.format("kudu_core").option("readChanges", "true").load(path)

    def start(writer: Any) -> Any:
        options = {"operation": "apply", "onDuplicate": "last", "sequenceBy": "_timestamp"}
        return writer.format("kudu_core").options(**options).start(copy)

    for _ in range(2):
        run(stream.withColumn("_op", last), tmp_path / "checkpoint", start)
        assert state(copy) == state(path)
        with kc.open_table(path, "rw") as table:
            table.upsert({"k": [8000, 8001, 1], "v": [1, 1, 1]})
            table.delete([8000])
            table.delete([8001])
            table.upsert({"k": [8001, 1], "v": [2, 2]})
            table.delete([2])
            table.insert({"k": [2], "v": [3]})
    run(stream.withColumn("_op", last), tmp_path / "checkpoint", start)
    assert state(copy) == state(path)
