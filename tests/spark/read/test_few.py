"""Scans of few rows, read where they are planned; shares that are many; one tablet read by several tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.engines.spark import few
from kudu_core.engines.spark import scan as scan_module
from kudu_core.engines.spark.scan import one_each, tokens_for
from kudu_core.engines.spark.source import KuduReader
from kudu_core.table.read.plan import ScanRequest
from tests.support.inside import handle_of

ROWS = 200


@pytest.fixture
def path(path: str) -> str:
    """Two tablets with rows on disk and in memory."""
    schema = pa.schema([pa.field("k", pa.int64(), False), ("s", pa.string()), ("u", pa.uint64())])
    with kc.create_table(path, schema, "k", partition_by=kc.HashPartition("k", 2)) as table:
        data = pa.table({"k": range(ROWS), "s": [f"s{i % 10}" for i in range(ROWS)], "u": range(ROWS)})
        table.insert(data.slice(0, 150))
        table.flush()
        table.insert(data.slice(150))
    return path


def test_few_rows_are_read_when_the_frame_is_made(
    spark: SparkSession, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows, types and limits; the table may change, or go."""
    asked: list[dict[str, Any]] = [
        {},
        {"columns": ["s", "k"]},
        {"where": pc.field("k") < 20},
        {"where": pc.field("k") < 0},
        {"limit": 7},
        {"limit": 0},
        {"columns": ["u"], "where": pc.field("s") == "s3", "limit": 3},
    ]
    by_tasks = [ks.scan(spark, path, **more) for more in asked]
    monkeypatch.setattr(few, "READ_ROWS", ROWS)
    monkeypatch.setattr(scan_module, "frame_of", None)
    by_driver = [ks.scan(spark, path, **more) for more in asked]
    for more, one, other in zip(asked, by_tasks, by_driver, strict=True):
        assert one.schema == other.schema
        if "limit" in more:
            assert one.count() == other.count() == (20 if more["limit"] > 20 else more["limit"])
        else:
            assert sorted(one.collect()) == sorted(other.collect())
    with kc.open_table(path, "rw") as table:
        table.delete(range(100))
    assert by_driver[0].count() == ROWS


def test_what_is_few(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By rows, by those that a task is to have, by bytes, and by what the table has."""
    with kc.open_table(path) as table:
        handle, tokens = handle_of(table), table.scan_tokens()
        wanted = pa.schema([pa.field("k", pa.int64(), False), ("s", pa.string()), ("u", pa.decimal128(20))])

        def found(target: int = 10**6, limit: int | None = None) -> int | None:
            batches = few.few_scanned(handle, tokens, wanted, target, limit)
            return None if batches is None else sum(batch.num_rows for batch in batches)

        monkeypatch.setattr(few, "READ_ROWS", ROWS)
        assert found() == ROWS and found(ROWS - 1) is None
        monkeypatch.setattr(few, "READ_ROWS", ROWS - 1)
        assert found() is None and found(limit=9) == 9
        monkeypatch.setattr(few, "READ_ROWS", ROWS)
        monkeypatch.setattr(few, "READ_BYTES", 100)
        assert found() is None and found(limit=1) == 1
        monkeypatch.setattr(few, "READ_BYTES", 1 << 20)
        monkeypatch.setattr(few, "READ_STORED_BYTES", 100)
        assert found() is None


def test_by_format_few_rows_travel_with_the_plan(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    struct = StructType([StructField("k", LongType(), False)])
    reader = KuduReader({"path": path}, struct)
    planned = reader.partitions()
    assert len(planned) == 2
    monkeypatch.setattr(few, "READ_ROWS", ROWS)
    [partition] = reader.partitions()
    rows = [k for batch in reader.read(partition) for k in batch.column(0).to_pylist()]
    assert sorted(rows) == list(range(ROWS))
    read = [k for part in planned for batch in reader.read(part) for k in batch.column(0).to_pylist()]
    assert sorted(read) == sorted(rows)
    assert KuduReader({"path": path, "where": '[["k", "<", 0]]'}, struct).partitions() == []


def test_each_task_has_one_share(spark: SparkSession) -> None:
    for count in (1, 4, 16, 64):
        placed = one_each(spark, [f"{i}".encode() for i in range(count)])
        assert placed.rdd.getNumPartitions() == count
        found = placed.mapInArrow(rows_of_each, "rows long, task string").collect()
        assert sorted(row.rows for row in found) == [1] * count
        assert sorted(row.task for row in found) == sorted(f"{i}" for i in range(count))


def rows_of_each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    cells = [cell.decode() for batch in batches for cell in batch.column(0).to_pylist()]
    yield pa.RecordBatch.from_pydict({"rows": [len(cells)], "task": [" ".join(cells)]})


def test_one_tablet_is_cut_for_cores_that_are_free(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with kc.open_table(path) as table:

        def cut(cores: int, target: int = 10**6) -> list[Any]:
            return tokens_for(handle_of(table), ScanRequest(["k"]), None, target, cores)

        assert len(cut(8)) == 2  # few rows
        monkeypatch.setattr(scan_module, "LEAST_ROWS", 20)
        assert len(cut(2)) == 2 and len(cut(8)) > 4
        monkeypatch.setattr(scan_module, "LEAST_ROWS", 101)
        assert len(cut(8)) == 2
        finer = cut(8, 20)
        assert sum(token.rows for token in finer) == ROWS and len({t.timestamp for t in finer}) == 1
