"""Tables inside functions that run in Spark's workers."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.common.run.clock import Clock
from kudu_core.engines.spark import cache


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "customers")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    with kc.create_table(path, schema, "id", partition_by=kc.HashPartition("id", 2)) as table:
        table.insert({"id": range(0, 1000, 2), "name": [f"c{i}" for i in range(0, 1000, 2)]})
        table.flush()
    return path


def test_a_dimension_is_looked_up_by_key(spark: SparkSession, path: str) -> None:
    facts = spark.range(0, 2000, 1, 2).selectExpr("id % 1000 as customer")

    @F.pandas_udf("string")  # type: ignore[call-overload,untyped-decorator]
    def by_pandas(ids: pd.Series) -> pd.Series:
        found = ks.table(path).get_many(ids.to_frame("id"), ["name"])
        return found["name"].to_pandas()

    def by_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = ks.table(path).get_many(batch.rename_columns(["id"]), ["name"])
            yield pa.RecordBatch.from_arrays(
                [batch.column(0), found["name"].combine_chunks()], names=["customer", "name"]
            )

    wanted = {i: f"c{i}" if i % 2 == 0 else None for i in range(1000)}
    for joined in (
        facts.withColumn("name", by_pandas("customer")),
        facts.mapInArrow(by_arrow, "customer bigint, name string"),
    ):
        rows = joined.collect()
        assert len(rows) == 2000
        assert {row.customer: row.name for row in rows} == wanted


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_captured_table_opens_itself_in_the_tasks(spark: SparkSession, path: str, mode: str) -> None:
    with kc.open_table(path, mode) as table, table.snapshot() as before:
        if mode == "rw":
            table.upsert({"id": [0], "name": ["new"]})

        def look_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                names = [rows.get_many(batch.column(0))["name"].combine_chunks() for rows in (table, before)]
                yield pa.RecordBatch.from_arrays([batch.column(0), *names], ["id", "now", "before"])

        rows = spark.range(0, 6, 1, 2).mapInArrow(look_up, "id bigint, now string, before string").collect()
        names = {0: "c0", 1: None, 2: "c2", 3: None, 4: "c4", 5: None}
        assert {row.id: row.before for row in rows} == names
        assert {row.id: row.now for row in rows} == names | ({0: "new"} if mode == "rw" else {})


def test_a_process_has_one_table_of_a_path(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache._forget()
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(ks.table(path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(table) for table in found}) == 1
    with kc.open_table(path, "rw") as writer:
        writer.upsert({"id": [1], "name": ["new"]})
    assert ks.table(path).get(1) is None, "the state that the process has opened"
    assert ks.table(path, refresh_s=0).get(1) == {"id": 1, "name": "new"}
    clock = [100.0]
    monkeypatch.setattr(Clock, "monotonic_s", staticmethod(lambda: clock[0]))
    cache._forget()
    ks.table(path)
    with kc.open_table(path, "rw") as writer:
        writer.delete([1])
    clock[0] = 109.0
    assert ks.table(path, refresh_s=10).get(1) is not None
    clock[0] = 111.0
    assert ks.table(path, refresh_s=10).get(1) is None
    cache._forget()


def test_a_table_that_is_behind_is_refreshed_and_one_that_was_replaced_opened(tmp_path: Path) -> None:
    path = tmp_path / "t"
    schema = pa.schema([("k", pa.int64()), ("a", pa.int64())])
    with kc.create_table(path, schema, "k") as writer:
        writer.insert({"k": [1], "a": [1]})
        assert ks.table(path).get(1) == {"k": 1, "a": 1}
        at = writer.upsert({"k": [1], "a": [2]}).timestamp
        assert ks.table(path, at=at).get(1, at=at) == {"k": 1, "a": 2}
    shutil.rmtree(path)
    with kc.create_table(path, schema, "k") as writer:
        writer.insert({"k": [1], "a": [3]})
        assert ks.table(path).get(1) == {"k": 1, "a": 3}
    shutil.rmtree(path)
    with pytest.raises(kc.TableNotFound):
        ks.table(path)


def test_a_table_that_a_function_has_closed_is_opened_anew(path: str) -> None:
    """By whatever else of the process needs it: shares of a scan, tasks of a write, other functions."""
    with kc.open_table(path) as table:
        token = table.scan_tokens()[0]
    takes: list[Callable[[], Any]] = [
        lambda: cache.newest_handle(path).opened(),
        lambda: cache.handle_for(token).opened(),
        lambda: cache.table(path).count(),
    ]
    for take in takes:
        cache.table(path).close()
        take()
