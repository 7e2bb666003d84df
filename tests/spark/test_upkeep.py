"""Tables checked, backed up and maintained through Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kudu_core as kc
from kudu_core import spark as ks
from kudu_core.engines.spark import upkeep
from kudu_core.table.jobs import merge_job
from tests.support.inside import set_options, tablets_of
from tests.support.staged import waiting

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int32()), ("u", pa.uint64())])


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    with kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition("k", 3)) as table:
        table.insert({"k": range(5000), "v": range(5000), "u": [2**64 - 1] * 5000})
        table.flush()
        table.update({"k": range(0, 5000, 7), "v": [1] * len(range(0, 5000, 7))})
    return path


def rows(path: Any) -> list[dict[str, Any]]:
    with kc.open_table(path) as table:
        found: list[dict[str, Any]] = table.scan(order="key").to_table().to_pylist()
        return found


def test_verify_reads_what_the_table_does(spark: SparkSession, path: str) -> None:
    with kc.open_table(path) as table:
        wanted = table.verify()
    assert ks.verify(spark, path) == wanted
    assert wanted.files > 0
    damaged = next(Path(path).rglob("*.rows"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 3] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(kc.Corruption) as told:
        ks.verify(spark, path)
    assert told.value.path == str(damaged) and told.value.offset >= 0


def test_a_backup_by_tasks_is_one_like_any_other(spark: SparkSession, path: str, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    full = ks.backup(spark, path, folder, target_rows_per_task=1000)
    before = rows(path)
    files = [name for name in os.listdir(folder / os.listdir(folder)[0]) if name.endswith(".arrow")]
    with kc.open_table(path, "rw") as table:
        table.upsert({"k": range(4990, 5010), "v": [3] * 20})
        table.delete([0, 1])
        more = ks.backup(spark, table, folder, since=full)
        assert ks.backup(spark, table, folder, "last") == more, "nothing was written since"
    assert more.timestamp > full.timestamp
    kc.restore(folder, tmp_path / "new").close()
    kc.restore(folder, tmp_path / "old", at=full).close()
    assert rows(tmp_path / "new") == rows(path)
    assert rows(tmp_path / "old") == before
    assert len(files) != 1
    with pytest.raises(kc.InvalidArgument, match="another table"):
        kc.create_table(tmp_path / "other", SCHEMA, "k").close()
        ks.backup(spark, tmp_path / "other", folder)


def test_a_restore_by_tasks_makes_the_same_table(spark: SparkSession, tmp_path: Path) -> None:
    """Of a full backup and two that continue it, at the last and at the one before."""
    path, folder = tmp_path / "table", tmp_path / "backups"
    by, options = kc.HashPartition("k", 3), {"ingest_threshold_rows": 1, "flush_age_s": 77}
    with kc.create_table(path, SCHEMA, "k", partition_by=by, options=options) as table:
        table.insert({"k": range(3000), "v": range(3000), "u": [2**64 - 1] * 3000})
        made = [ks.backup(spark, table, folder, target_rows_per_task=1000)]
        table.upsert({"k": range(2990, 3010), "v": [3] * 20})
        table.delete([0, 1])
        made.append(table.backup(folder, "last"))
        table.insert({"k": [0], "v": [5]})
        made.append(table.backup(folder, "last"))
    for number, at in enumerate((made[1].timestamp, None)):
        ks.restore(spark, folder, tmp_path / f"{number}", at, target_rows_per_task=500)
        kc.restore(folder, tmp_path / f"wanted{number}", at).close()
        names = str(number), f"wanted{number}"
        with kc.open_table(tmp_path / names[0]) as found, kc.open_table(tmp_path / names[1]) as wanted:
            assert found.schema == wanted.schema and found.partitions == wanted.partitions
            assert found.options == wanted.options
            assert found.scan(order="key").to_table() == wanted.scan(order="key").to_table()
            assert found.changes().to_table()["_timestamp"].unique().to_pylist() == [found.timestamp]
            found.verify()
            assert waiting(found.path) == []
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_a_restore_that_fails_leaves_nothing(spark: SparkSession, path: str, tmp_path: Path) -> None:
    folder, new = tmp_path / "backups", tmp_path / "new"
    with pytest.raises(kc.TableNotFound, match="no backup"):
        ks.restore(spark, folder, new)
    made = ks.backup(spark, path, folder)
    with pytest.raises(kc.InvalidArgument, match=f"there are {made.timestamp}"):
        ks.restore(spark, folder, new, 5)
    with pytest.raises(kc.InvalidArgument, match="target_rows"):
        ks.restore(spark, folder, new, target_rows_per_task=0)
    with pytest.raises(kc.TableExists):
        ks.restore(spark, folder, path)
    damaged = next(folder.rglob("*.arrow"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(kc.Corruption, match="checksum") as told:
        ks.restore(spark, folder, new)
    assert told.value.path == str(damaged)
    damaged.unlink()
    with pytest.raises(kc.Corruption, match="missing"):
        ks.restore(spark, folder, new)
    assert not [name for name in os.listdir(tmp_path) if name.startswith((".", "new"))]


def test_a_backup_that_fails_leaves_nothing(spark: SparkSession, path: str, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    with kc.open_table(path, "rw") as table:
        table.flush()  # opening it reads no pages then
    damaged = next(Path(path).rglob("*.rows"))
    data = bytearray(damaged.read_bytes())
    for place in range(len(data) // 8, len(data) // 2, 64):
        data[place] ^= 255
    damaged.write_bytes(data)
    with pytest.raises(kc.Corruption):
        ks.backup(spark, path, folder)
    assert [name for name in os.listdir(folder) if name != "LOCK"] == []


def test_maintenance_as_a_job(spark: SparkSession, path: str) -> None:
    with kc.open_table(path, "rw", options={"maintenance": "manual", "ingest_threshold_rows": 10}) as table:
        for first in range(16):
            table.upsert({"k": range(first, 5000, 8), "v": [first] * len(range(first, 5000, 8))})
            table.flush()
        files = table.stats().to_pylist()
        with pytest.raises(kc.Locked):
            ks.maintain(spark, path)
        assert ks.maintain(spark, table, 0) == 0
    before = rows(path)
    assert ks.maintain(spark, path, 60) > 0
    assert rows(path) == before
    with kc.open_table(path) as table:
        assert table.stats().to_pylist() != files
    with pytest.raises(kc.InvalidArgument, match="budget_s"):
        ks.maintain(spark, path, -1)


def scattered(path: Path) -> str:
    """Three tablets of rowsets that overlap, with changes in memory."""
    by, options = kc.HashPartition("k", 3), {"maintenance": "manual", "ingest_threshold_rows": 10}
    with kc.create_table(path, SCHEMA, "k", partition_by=by, options=options) as table:
        for first in range(6):
            table.upsert({"k": range(first, 3000, 6), "v": [first] * len(range(first, 3000, 6))})
        set_options(table, ingest_threshold_rows=10**6)
        table.update({"k": range(0, 3000, 9), "v": [-1] * len(range(0, 3000, 9))})
        table.delete(list(range(0, 3000, 100)))
    return str(path)


def layout(table: kc.Table) -> list[Any]:
    rowsets = [(t.id, r.meta) for t in tablets_of(table) for r in t.view.rowsets]
    return sorted((id, meta.min_key, meta.max_key, meta.rows) for id, meta in rowsets)


def marked(where: Path, fails: Callable[[int], bool] = lambda earlier: False) -> Any:
    """``build_merges`` as tasks run it, which leave a file there, and may fail then.

    ``fails`` is told how many files were there before."""
    usual, folder = upkeep.build_merges, str(where)

    def build(tasks: Any, wanted: pa.Schema) -> Any:
        context = TaskContext.get()
        assert context is not None
        name = f"{context.stageId()}-{context.partitionId()}-{context.attemptNumber()}"
        told, earlier = list(usual(tasks, wanted)), len(os.listdir(folder))
        open(f"{folder}/{name}", "w").close()
        if fails(earlier):  # what it has written is there
            raise OSError(28, "no room in the worker")
        yield from told

    return build


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every merge is built by tasks, which leave files there; the first attempt fails."""
    monkeypatch.setattr(merge_job, "SMALL_BYTES", 0)
    (tmp_path / "marks").mkdir()
    monkeypatch.setattr(upkeep, "build_merges", marked(tmp_path / "marks", lambda earlier: earlier == 0))
    return tmp_path / "marks"


def test_merges_are_built_by_tasks(spark: SparkSession, tmp_path: Path, marks: Path) -> None:
    """With the rows, the history and the files' bounds that a merge on the driver gives."""
    here, there = scattered(tmp_path / "here"), scattered(tmp_path / "there")
    with kc.open_table(here, "rw", options={"maintenance": "manual"}) as table:
        done = table.maintain()
    assert ks.maintain(spark, there) == done >= 3
    attempts = [name.split("-")[-1] for name in os.listdir(marks)]
    assert attempts.count("0") >= 3 and attempts.count("1") >= 1
    with kc.open_table(here) as wanted, kc.open_table(there) as found:
        assert layout(found) == layout(wanted)
        columns = ["_op", "k", "v", "u"]
        changes = [t.changes().to_table().select(columns).to_pylist() for t in (found, wanted)]
        assert changes[0] == changes[1] and len(changes[0]) > 3000
        assert rows(there) == rows(here)
        found.verify()
    assert waiting(there) == []
    assert ks.maintain(spark, there) == 0


def test_what_is_written_while_tasks_merge(
    spark: SparkSession, tmp_path: Path, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, usual, written = scattered(tmp_path / "t"), upkeep.collected, []

    with kc.open_table(path, "rw", options={"maintenance": "manual"}) as table:

        def collected(frame: Any) -> Any:
            table.update({"k": [7, 8], "v": [100 + len(written), 0]})
            found = usual(frame)
            written.append(table.upsert({"k": [7, 5000 + len(written)], "v": [200 + len(written), 1]}))
            if len(written) == 1:
                table.flush()
            return found

        monkeypatch.setattr(upkeep, "collected", collected)
        assert ks.maintain(spark, table) >= 3
        state = {row["k"]: row["v"] for row in rows_of(table)}
        assert len(written) >= 3 and state[7] >= 200 and state[8] == 0
        assert [state[5000 + number] for number in range(len(written))] == [1] * len(written)
        table.verify()
    assert {row["k"]: row["v"] for row in rows(path)} == state


def test_a_merge_whose_task_fails_did_not_happen(
    spark: SparkSession, tmp_path: Path, marks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = scattered(tmp_path / "t")
    with kc.open_table(path, "rw", options={"maintenance": "manual"}) as table:
        table.flush()
        before = layout(table), rows_of(table)
        monkeypatch.setattr(upkeep, "build_merges", marked(marks, lambda earlier: True))
        with pytest.raises(PySparkException, match="no room in the worker"):
            ks.maintain(spark, table)
        assert (layout(table), rows_of(table)) == before
        assert waiting(path) == [] and os.listdir(marks)
        table.verify()


def rows_of(table: kc.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan(order="key").to_pylist()
    return found
