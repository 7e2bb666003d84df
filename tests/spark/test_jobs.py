"""Jobs and staged runs, without Spark: what the commit checks, and what may go wrong around it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table import jobs
from kudu_core.table.jobs import Job
from kudu_core.table.runs import RunWriter, StagedRun

COLUMNS = [("k", "int64"), ("v", "string")]
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    kc.create_table(path, SCHEMA, "k").close()
    return path


def begin(path: str, operation: str = "insert", **options: object) -> Job:
    with kc.open_table(path) as table:
        return jobs.begin(table, operation, COLUMNS, **options)  # type: ignore[arg-type]


def stage(job: Job, name: str, keys: list[int], parts: int = 1) -> StagedRun:
    writer = RunWriter(PosixFileSystem(), job.directory, name, SCHEMA)
    for part in range(parts):
        mine = keys[part::parts]
        writer.append(pa.record_batch({"k": pa.array(mine, pa.int64()), "v": [f"{k}" for k in mine]}, SCHEMA))
    run = writer.finish()
    assert run == pickle.loads(pickle.dumps(run))
    return run


def keys_of(path: str) -> list[int]:
    with kc.open_table(path) as table:
        return [row["k"] for row in table.scan(order="key").to_pylist()]


def test_only_the_runs_that_the_commit_is_told_of_count(path: str) -> None:
    job = begin(path)
    runs = [stage(job, "a", [1, 3, 2], parts=2), stage(job, "b", [7])]
    stage(job, "zombie", [100])
    assert jobs.commit_job(pickle.loads(pickle.dumps(job)), runs).inserted == 4
    assert keys_of(path) == [1, 2, 3, 7]
    assert os.listdir(f"{path}/staging") == []


def test_a_run_that_is_not_what_was_staged_is_refused(path: str) -> None:
    for damage in ("flip", "cut", "lost", "other"):
        job = begin(path)
        run = stage(job, "a", [1, 2, 3])
        file = Path(job.directory, "a")
        data = bytearray(file.read_bytes())
        if damage == "flip":
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
        elif damage == "cut":
            file.write_bytes(data[:-1])
        elif damage == "lost":
            file.unlink()
        else:
            run = StagedRun("../a", run.rows, run.size, run.crc)
        with pytest.raises(kc.Corruption):
            jobs.commit_job(job, [run])
    assert keys_of(path) == []
    assert os.listdir(f"{path}/staging") == []


def test_a_job_of_another_table_or_schema_is_refused(path: str, tmp_path: Path) -> None:
    job = begin(path)
    run = stage(job, "a", [1])
    os.rename(path, tmp_path / "old")
    kc.create_table(path, SCHEMA, "k").close()
    os.rename(tmp_path / "old" / "staging" / job.id, job.directory)
    with pytest.raises(kc.InvalidArgument, match="another one than when the job began"):
        jobs.commit_job(job, [run])
    assert keys_of(path) == []


def test_abandon_removes_a_job_until_its_commit_begins(path: str) -> None:
    job = begin(path)
    stage(job, "a", [1])
    jobs.abandon(job)
    assert not os.path.exists(job.directory)
    jobs.abandon(job)
    with pytest.raises(FileNotFoundError):
        stage(job, "late", [1])  # an attempt that outlives its job has nowhere to write
    locked = begin(path, lock_timeout_s=0.0)
    run = stage(locked, "a", [1])
    with kc.open_table(path, "rw"), pytest.raises(kc.Locked):
        jobs.commit_job(locked, [run])
    jobs.abandon(locked)
    assert jobs.resume(path, locked.id).inserted == 1
    with pytest.raises(kc.InvalidArgument):
        jobs.resume(path, "../" + locked.id)


def test_staging_that_nobody_renewed_goes_when_the_table_is_opened(path: str) -> None:
    old, young = begin(path), begin(path)
    os.utime(old.directory, (0, 0))
    kc.open_table(path, "rw").close()
    assert os.listdir(f"{path}/staging") == [young.id]


def test_a_long_run_renews_the_time_of_its_directory(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kudu_core.table.runs.HEARTBEAT_S", -1.0)
    job = begin(path)
    writer = RunWriter(PosixFileSystem(), job.directory, "a", SCHEMA)
    os.utime(job.directory, (0, 0))
    writer.append(pa.record_batch({"k": pa.array([1], pa.int64()), "v": ["1"]}, SCHEMA))
    assert os.stat(job.directory).st_mtime > 0
    assert jobs.commit_job(job, [writer.finish()]).inserted == 1


def test_a_token_holds_for_a_job_without_rows(path: str) -> None:
    for expected in (False, True):
        assert jobs.commit_job(begin(path, txn=("a", 3)), []).deduplicated is expected
    with kc.open_table(path) as table:
        assert jobs.applied(table, ("a", 3)) is not None
        assert jobs.applied(table, ("a", 4)) is None
