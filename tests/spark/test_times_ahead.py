"""Changes, streams and snapshots of tables whose times no ``long`` of Spark holds."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.engines.spark.versions.streaming import LIMITS
from tests.support.clock import ManualClock
from tests.table.opened.test_times_ahead import STARTS

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int32())])


@pytest.fixture(params=["2041", "2100"])
def written(request: pytest.FixtureRequest, path: str, long: bool) -> list[int]:
    """Times of ten inserts into the table, an update and a deletion."""
    if request.param != "2041" and not long:
        pytest.skip("the border itself in the short run; --long has what lies behind it")
    clock = ManualClock(STARTS[request.param])
    times = []
    with kc.create_table(path, SCHEMA, "k", options={"maintenance": "manual"}, _clock=clock) as table:
        for k in range(10):
            times.append(table.insert({"k": [k], "v": [k]}).timestamp)
            clock.advance(us=4)
        times.append(table.update({"k": [3], "v": [33]}).timestamp)
        clock.advance(us=4)
        times.append(table.delete([4]).timestamp)
    assert times[0] < times[-1] and times[-1] >= 1 << 63
    return times


def state(path: str) -> dict[int, int]:
    with kc.open_table(path) as table:
        return {row["k"]: row["v"] for row in table.scan().to_pylist()}


def test_a_time_that_is_told_is_taken_back(spark: SparkSession, path: str, written: list[int]) -> None:
    told = ks.changes(spark, path, since=0)
    assert told.schema["_timestamp"].dataType == DecimalType(20, 0)
    found = [row["_timestamp"] for row in told.orderBy("_timestamp").collect()]
    assert found == written and all(isinstance(ts, Decimal) for ts in found)
    middle = found[5]
    assert ks.changes(spark, path, since=middle).count() == 6
    assert ks.changes(spark, path, since=found[2], until=middle).count() == 3
    assert ks.count(spark, path, at=middle) == ks.scan(spark, path, at=middle).count() == 6
    load = spark.read.format("kudu_core")
    assert load.option("snapshot", middle).load(path).count() == 6
    given = {"readChanges": "true", "since": found[2], "until": middle}
    assert spark.read.format("kudu_core").options(**given).load(path).count() == 3
    # docs/spark.md: the time of a change as Spark's own.
    times = told.select((F.expr("timestamp_micros(cast(_timestamp / 4096 as bigint))")).alias("t"))
    micros = times.selectExpr("unix_micros(t) as us").orderBy("us")
    assert [row["us"] for row in micros.collect()] == [ts >> 12 for ts in written]


def test_a_stream_goes_on_from_such_a_time(
    spark: SparkSession, path: str, written: list[int], tmp_path: Path
) -> None:
    copy, checkpoint = str(tmp_path / "copy"), str(tmp_path / "checkpoint")
    ks.create(copy, ks.scan(spark, path).schema, "k")

    def follow() -> None:
        stream = spark.readStream.format("kudu_core").options(
            readChanges="true", since=str(written[4]), **({"maxRowsPerTrigger": 2} if LIMITS else {})
        )
        query = (
            stream.load(path)
            .writeStream.format("kudu_core")
            .options(operation="apply", checkpointLocation=checkpoint)
            .options(sequenceBy="_timestamp", onDuplicate="last")
            .trigger(availableNow=True)
            .start(copy)
        )
        query.awaitTermination()

    with kc.open_table(copy, "rw") as table:
        table.insert({"k": [3, 4], "v": [3, 4]})
    follow()
    assert state(copy) == {3: 33, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9}
    with kc.open_table(path, "rw") as table:
        later = table.upsert({"k": [3, 100], "v": [333, 100]}).timestamp
        assert later > written[-1], "a clock that says less does not set the table back"
    follow()
    assert state(copy) == {3: 333, 5: 5, 6: 6, 7: 7, 8: 8, 9: 9, 100: 100}


def test_the_last_of_several_changes_is_known_by_its_time(
    spark: SparkSession, path: str, written: list[int], tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy")
    ks.create(copy, ks.scan(spark, path).schema, "k")
    changes = ks.changes(spark, path, since=0).withColumn("k", F.expr("k % 2"))
    result = ks.write(
        changes.where("_op <> 'delete'").drop("_op"),
        copy,
        "upsert",
        on_duplicate="last",
        sequence_by="_timestamp",
    )
    assert result.inserted == 2 and state(copy) == {0: 8, 1: 33}
