"""Distributed writes without Spark: what the commit checks and adopts, and what may go wrong around it."""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.idempotence.writers import check_txn
from kudu_core.engines.spark import cache
from kudu_core.engines.spark import staging as tasks
from kudu_core.errors import TokenMismatch
from kudu_core.rowset.rows.meta import FileRef
from kudu_core.table.jobs import apply_job, commit
from kudu_core.table.jobs import stager as staging
from kudu_core.table.jobs.job import Job
from kudu_core.table.jobs.resolve import resolve
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.staged import StagedRun
from tests.support.inside import handle_of, set_options, tablets_of
from tests.support.staged import waiting

COLUMNS = [("k", "int64"), ("v", "string")]
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
FILES = {"ingest_threshold_rows": 1, "maintenance": "manual"}
"""Every job goes through files, however small."""


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    kc.create_table(path, SCHEMA, "k").close()
    return path


def make(path: str, **options: Any) -> None:
    kc.create_table(path, SCHEMA, "k", options=FILES | options, partition_by=kc.HashPartition("k", 2)).close()


def begin(path: str, operation: str = "insert", **options: object) -> Job:
    with kc.open_table(path) as table:
        return commit.begin(handle_of(table), operation, COLUMNS, **options)  # type: ignore[arg-type]


def stage(job: Job, name: str, keys: Sequence[int], parts: int = 1, v: str = "") -> list[StagedRun]:
    stager = commit.stager(job, name)
    for part in range(parts):
        mine = keys[part::parts]
        values = [v or f"{k}" for k in mine]
        stager.append(pa.record_batch({"k": pa.array(mine, pa.int64()), "v": values}, SCHEMA))
    runs = stager.finish()
    assert [StagedRun.from_json(run.to_json()) for run in runs] == pickle.loads(pickle.dumps(runs)) == runs
    return runs


def resolved(job: Job, runs: Sequence[StagedRun]) -> list[Resolution]:
    with kc.open_table(job.table_path) as table:
        found = resolve(handle_of(table), job, commit.form_of(job), runs)
    assert [Resolution.from_bytes(one.to_bytes()) for one in found] == found
    return found


def rows_of(path: str) -> dict[int, str]:
    with kc.open_table(path) as table:
        table.verify()
        return {row["k"]: row["v"] for row in table.scan(order="key").to_pylist()}


def keys_of(path: str) -> list[int]:
    return list(rows_of(path))


def files_of(path: str) -> dict[int, str]:
    """Names of the base files of all rowsets, by inode."""
    with kc.open_table(path) as table:
        return {
            os.stat(f"{tablet.directory}/{rowset.meta.base.name}").st_ino: rowset.meta.base.name
            for tablet in tablets_of(table)
            for rowset in tablet.view.rowsets
        }


# ---- what counts ----


def test_only_the_runs_that_the_commit_is_told_of_count(path: str) -> None:
    """Protocol J1: the files of an attempt that lost stay out."""
    job = begin(path)
    runs = [*stage(job, "a", [1, 3, 2], parts=2), *stage(job, "b", [7])]
    stage(job, "zombie", [100])
    assert commit.commit_job(pickle.loads(pickle.dumps(job)), runs).inserted == 4
    assert keys_of(path) == [1, 2, 3, 7]
    assert waiting(path) == []


@pytest.mark.parametrize("small", [True, False])
def test_a_run_that_is_not_what_was_staged_is_refused(path: str, tmp_path: Path, small: bool) -> None:
    if not small:
        path = str(tmp_path / "files")
        make(path)
    for damage in ("footer", "cut", "lost"):
        job = begin(path)
        runs = stage(job, "a", [1, 2, 3])
        file = Path(job.directory, runs[0].file.name)
        data = bytearray(file.read_bytes())
        if damage == "footer":
            data[-20] ^= 1
            file.write_bytes(data)
        elif damage == "cut":
            file.write_bytes(data[:-1])
        else:
            file.unlink()
        with pytest.raises(kc.Corruption):
            commit.commit_job(job, runs)
    job = begin(path)
    [run, *_] = stage(job, "a", [1, 2, 3])
    other = dataclasses.replace(run, file=FileRef(run.file.name, run.file.size, run.file.footer_crc ^ 1))
    with pytest.raises(kc.Corruption, match="footer"):
        commit.commit_job(job, [other])
    with pytest.raises(ValueError, match="no file name"):
        StagedRun.from_json({**run.to_json(), "file": ["../a", 1, 1]})
    assert keys_of(path) == []
    assert waiting(path) == []


def test_a_job_of_another_table_is_refused(path: str, tmp_path: Path) -> None:
    job = begin(path)
    runs = stage(job, "a", [1])
    os.rename(path, tmp_path / "old")
    kc.create_table(path, SCHEMA, "k").close()
    os.rename(tmp_path / "old" / "staging" / job.id, job.directory)
    with pytest.raises(kc.InvalidArgument, match="another one than when the job began"):
        resolved(job, runs)
    with pytest.raises(kc.InvalidArgument, match="another one than when the job began"):
        commit.commit_job(job, runs)
    assert keys_of(path) == []


def test_abandon_removes_a_job_until_its_commit_begins(path: str) -> None:
    job = begin(path)
    stage(job, "a", [1])
    assert not commit.abandon(job)
    assert not os.path.exists(job.directory)
    assert not commit.abandon(job)
    with pytest.raises(FileNotFoundError):
        stage(job, "late", [1])  # an attempt that outlives its job has nowhere to write
    locked = begin(path, lock_timeout_s=0.0)
    runs = stage(locked, "a", [1])
    with kc.open_table(path, "rw"), pytest.raises(kc.Locked):
        commit.commit_job(locked, runs)
    assert not commit.abandon(locked)
    assert commit.resume(path, locked.id).inserted == 1
    with pytest.raises(kc.InvalidArgument):
        commit.resume(path, "../" + locked.id)


def test_a_long_attempt_renews_the_time_of_its_directory(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "HEARTBEAT_S", -1.0)
    job = begin(path)
    stager = commit.stager(job, "a")
    os.utime(job.directory, (0, 0))
    stager.append(pa.record_batch({"k": pa.array([1], pa.int64()), "v": ["1"]}, SCHEMA))
    assert os.stat(job.directory).st_mtime > 0
    assert commit.commit_job(job, stager.finish()).inserted == 1


def test_a_token_holds_for_a_job_without_rows(path: str) -> None:
    for expected in (False, True):
        assert commit.commit_job(begin(path, txn=("a", 3)), []).deduplicated is expected
    with kc.open_table(path) as table:
        assert commit.applied(handle_of(table), check_txn(("a", 3), "skip")) is not None
        assert commit.applied(handle_of(table), check_txn(("a", 4), "skip")) is None
        known = commit.applied(handle_of(table), check_txn(("a", 3)))
        assert known is None, "its rows are compared at the commit"
        with pytest.raises(TokenMismatch, match="cannot be told"):
            commit.applied(handle_of(table), check_txn(("a", 2)))


# ---- resolved before the commit ----


def test_tasks_of_one_process_open_the_table_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And see what was written since it was opened."""
    opened: list[object] = []
    real = cache.open_table

    def counted(*given: Any, **more: Any) -> kc.Table:
        opened.append(given)
        return real(*given, **more)

    monkeypatch.setattr(cache, "open_table", counted)
    path = str(tmp_path / "two")
    make(path)
    written = 0
    for first in (0, 100):
        job = begin(path)
        runs = stage(job, f"a{first}", range(first, first + 100))
        assert len({run.ordinal for run in runs}) == 2
        found = [one for run in runs for one in tasks.resolved(job, [run])]
        assert len(found) == 2 and all(one.cut >= written for one in found)
        result = commit.commit_job(job, runs, resolutions=found)
        assert result.inserted == 100
        written = result.timestamp
    assert len(opened) == 1


@pytest.mark.parametrize("early", [True, False], ids=["tasks", "commit"])
def test_runs_of_new_keys_are_taken_in_as_they_are(tmp_path: Path, early: bool) -> None:
    path = str(tmp_path / "files")
    make(path)
    job = begin(path, "upsert")
    runs = [*stage(job, "a", range(100)), *stage(job, "b", range(1000, 1100))]
    inodes = {os.stat(f"{job.directory}/{run.file.name}").st_ino for run in runs}
    assert len(inodes) == 4
    resolutions = resolved(job, runs) if early else []
    assert commit.commit_job(job, runs, resolutions=resolutions).counts == (200, 0, 0, 0)
    assert set(files_of(path)) == inodes
    # Once more beside them: between and after keys that are there.
    job = begin(path, "insert")
    runs = [*stage(job, "a", range(200, 900)), *stage(job, "b", range(2000, 2100))]
    inodes |= {os.stat(f"{job.directory}/{run.file.name}").st_ino for run in runs}
    assert commit.commit_job(job, runs, resolutions=resolved(job, runs) if early else []).inserted == 800
    assert set(files_of(path)) == inodes
    # Runs that overlap each other become one rowset for each tablet.
    job = begin(path, "insert")
    runs = [*stage(job, "a", range(3000, 4000, 2)), *stage(job, "b", range(3001, 4000, 2))]
    assert commit.commit_job(job, runs, resolutions=resolved(job, runs) if early else []).inserted == 1000
    assert len(files_of(path)) == len(inodes) + 2
    there = [*range(100), *range(200, 900), *range(1000, 1100), *range(2000, 2100), *range(3000, 4000)]
    assert keys_of(path) == there
    assert waiting(path) == []


def test_what_tasks_resolved_is_not_resolved_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "files")
    make(path)
    with kc.open_table(path, "rw") as table:
        table.upsert({"k": list(range(50)), "v": ["disk"] * 50})
        set_options(table, ingest_threshold_rows=1 << 20)
        table.upsert({"k": list(range(50, 100)), "v": ["memory"] * 50})
    built: list[int] = []
    real = apply_job.ingest_sorted.__globals__["_build"]

    def build(engine: Any, rows: Any, tablets: Any, *args: Any, **more: Any) -> Any:
        built.append(len(tablets))
        return real(engine, rows, tablets, *args, **more)

    monkeypatch.setattr("kudu_core.table.ingest.ingest._build", build)
    job = begin(path, "upsert")
    runs = stage(job, "a", range(25, 125), v="new")
    resolutions = resolved(job, runs)
    assert {sum(counts) for counts in zip(*(r.counts for r in resolutions), strict=True)} == {25, 75, 0}
    assert commit.commit_job(job, runs, resolutions=resolutions).counts == (25, 75, 0, 0)
    assert built == [0]
    assert rows_of(path) == {k: "disk" if k < 25 else "new" for k in range(125)}
    for gone in ([30], [60], [124]):  # on disk, in memory before, inserted by a job
        with kc.open_table(path, "rw") as table:
            table.delete(gone)
        job = begin(path, "delete_ignore")
        stager = commit.stager(dataclasses.replace(job, columns=(("k", "int64"),)), "a")
        stager.append(pa.record_batch({"k": pa.array([*gone, 1 + gone[0] % 2], pa.int64())}))
        runs = stager.finish()
        resolutions = resolved(job, runs)
        result = commit.commit_job(job, runs, resolutions=resolutions)
        assert (result.deleted, result.ignored) in {(1, 1), (0, 2)}


@pytest.mark.parametrize("small", [True, False])
def test_each_row_with_an_operation_of_its_own(tmp_path: Path, small: bool) -> None:
    path = str(tmp_path / "files")
    make(path, ingest_threshold_rows=100 if small else 1)
    with kc.open_table(path, "rw") as table:
        table.insert({"k": list(range(10)), "v": ["before"] * 10})
    job = begin(path, "apply")
    stager = commit.stager(job, "a")
    operations = ["delete", "update", "upsert", "insert", "insert_ignore", "delete_ignore"]
    keys = [1, 2, 30, 31, 3, 32]
    stager.append(pa.RecordBatch.from_pydict({"_op": operations, "k": keys, "v": ["job"] * 6}))
    runs = stager.finish()
    result = commit.commit_job(job, runs, resolutions=resolved(job, runs))
    assert result.counts == (2, 1, 1, 2)
    expected = {k: "before" for k in range(10) if k != 1} | {2: "job", 30: "job", 31: "job"}
    assert rows_of(path) == expected
