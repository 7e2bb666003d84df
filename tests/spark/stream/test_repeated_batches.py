"""Batches whose number was applied before: repeated by Spark, or other rows under an old number."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kudu_core as kc
from kudu_core import spark as ks

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
ROWS = 100
"""Of each file of the source."""

Run = Callable[..., None]


def by_function(writer: Any, path: str, app_id: str, on_repeat: str) -> Any:
    return writer.foreachBatch(ks.foreach_batch(path, app_id, on_repeat=on_repeat)).start()


def by_format(writer: Any, path: str, app_id: str, on_repeat: str) -> Any:
    options = {"txnAppId": app_id, "onRepeat": on_repeat}
    return writer.format("kudu_core").options(**options).start(path)


ROUTES = pytest.mark.parametrize("start", [by_function, by_format], ids=["function", "format"])


def add_file(tmp_path: Path, number: int) -> None:
    """One file more in the source."""
    (tmp_path / "source").mkdir(exist_ok=True)
    keys = range(ROWS * number, ROWS * (number + 1))
    rows = pa.table({"k": keys, "v": [f"of {number}"] * ROWS}, schema=SCHEMA)
    pq.write_table(rows, tmp_path / "source" / f"{number}.parquet")


def count(path: str) -> int:
    with kc.open_table(path) as table:
        return table.count()


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition("k", 2)).close()
    return path


@pytest.fixture
def run(spark: SparkSession, path: str, tmp_path: Path) -> Run:
    """Run a query until it has written all that its source has."""

    def run(
        start: Any, app_id: str = "orders", on_repeat: str = "check", checkpoint: str = "checkpoint"
    ) -> None:
        stream = spark.readStream.schema("k bigint, v string").parquet(str(tmp_path / "source"))
        writer = stream.writeStream.option("checkpointLocation", str(tmp_path / checkpoint))
        start(writer.trigger(availableNow=True), path, app_id, on_repeat).awaitTermination()

    return run


@ROUTES
def test_a_query_whose_checkpoint_is_lost_loses_no_rows(
    run: Run, path: str, tmp_path: Path, start: Any
) -> None:
    add_file(tmp_path, 0)
    run(start)
    add_file(tmp_path, 1)
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(PySparkException, match=r"knows 'orders' as the name of the writes of .*another s"):
        run(start)
    assert count(path) == ROWS, "nothing was applied, and nobody was told that it was"
    left = [f.name for f in (tmp_path / "table/staging").glob("*")]
    assert all(name.endswith(".committed") for name in left), left
    # The danger that goes with it: batch 0 is taken for done, with the rows that are new in it.
    run(start, on_repeat="skip", checkpoint="skipping")
    assert count(path) == ROWS
    run(start, app_id="orders 2")
    assert count(path) == 2 * ROWS


@ROUTES
def test_a_query_whose_checkpoint_was_set_back_loses_no_rows(
    run: Run, path: str, tmp_path: Path, start: Any
) -> None:
    add_file(tmp_path, 0)
    run(start)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    add_file(tmp_path, 1)
    run(start)
    with kc.open_table(path) as table:
        wanted = table.timestamp
    # Set back by a batch, which comes with the same rows: it is known.
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "older", tmp_path / "checkpoint")
    run(start)
    with kc.open_table(path) as table:
        assert table.timestamp == wanted and table.count() == 2 * ROWS
    # Set back, and the source has gone on: the batch of this number has rows that it had not.
    add_file(tmp_path, 2)
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "older", tmp_path / "checkpoint")
    with pytest.raises(PySparkException, match=r"version 1 of 'orders' .*\(rows: 100 then, 200 now\)"):
        run(start)
    assert count(path) == 2 * ROWS
    run(start, app_id="orders 2")
    assert count(path) == 3 * ROWS
