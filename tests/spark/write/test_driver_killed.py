"""kill -9 of the process that commits a distributed write, at every step; several drivers; late attempts."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.errors import TokenMismatch
from kudu_core.table.ingest import commit_parts as committing
from kudu_core.table.ingest import overwrite
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.job import Job
from kudu_core.table.jobs.resolve import resolve
from kudu_core.table.lifecycle import posix_home
from kudu_core.table.lifecycle import staging_folders as staged_room
from kudu_core.table.opened import writers
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.staged import StagedRun
from kudu_core.wal import Log
from tests.support.inside import handle_of, set_options, sweep_soon, tablets_of
from tests.support.staged import marks, waiting

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
BEFORE = dict.fromkeys(range(60), "before")
AFTER = BEFORE | dict.fromkeys(range(40, 140), "job")


def make(path: str) -> None:
    """Four tablets with rows on disk, in memory and deleted."""
    options = {"ingest_threshold_rows": 1, "maintenance": "manual"}
    with kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition("k", 4), options=options) as table:
        table.upsert({"k": list(range(50)), "v": ["before"] * 50})
        set_options(table, ingest_threshold_rows=1 << 20)
        table.upsert({"k": list(range(50, 70)), "v": ["before"] * 20})
        table.delete(list(range(60, 70)))


def staged(path: str, operation: str = "upsert", v: str = "job", **more: Any) -> tuple[Job, list[StagedRun]]:
    with kc.open_table(path) as table:
        job = jobs.begin(handle_of(table), operation, [("k", "int64"), ("v", "string")], **more)
    runs: list[StagedRun] = []
    for number, keys in enumerate([range(40, 90), range(90, 140)]):
        stager = jobs.stager(job, f"{number}")
        stager.append(pa.RecordBatch.from_pydict({"k": list(keys), "v": [v] * len(keys)}))
        runs += stager.finish()
    return job, runs


def resolved(job: Job, runs: list[StagedRun]) -> list[Resolution]:
    with kc.open_table(job.table_path) as table:
        return resolve(handle_of(table), job, jobs.form_of(job), runs)


def rows_of(path: str) -> dict[int, str]:
    with kc.open_table(path) as table:
        table.verify()
        return {row["k"]: row["v"] for row in table.scan(order="key").to_pylist()}


def in_fork(work: Callable[[], object]) -> int:
    """The child's end: its exit code, or minus the signal that killed it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def dies(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_call(number: int, real: Callable[..., Any]) -> Callable[..., Any]:
    calls = [0]

    def call(*args: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            dies()
        return real(*args, **more)

    return call


def die_after(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> None:
        real(*args, **more)
        dies()

    return call


STEPS: dict[str, tuple[Any, str, Callable[[Any], Any], bool]] = {
    "before the commit": (jobs, "commit_job", lambda real: dies, False),
    "sealed": (jobs, "open_handle", lambda real: dies, False),
    "built": (committing.install, "link", lambda real: dies, False),
    "linked 2 of 4": (committing.install, "link", lambda real: at_call(3, real), False),
    "before the record": (Log, "append", lambda real: dies, False),
    "after the record": (Log, "append", die_after, True),
    "installed 0 of 4": (committing.install, "install", lambda real: dies, True),
    "installed 2 of 4": (committing.install, "install", lambda real: at_call(3, real), True),
    "installed 4 of 4": (writers, "leave_mark", lambda real: dies, True),
    "marked": (writers, "leave_mark", die_after, True),
    "removed": (staged_room, "remove", die_after, True),
}


@pytest.mark.parametrize("early", [True, False], ids=["tasks", "commit"])
@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_is_killed_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, early: bool
) -> None:
    path = str(tmp_path / "table")
    make(path)
    job, runs = staged(path)
    resolutions = resolved(job, runs) if early else []
    where, name, change, done = STEPS[step]

    def commit() -> None:
        monkeypatch.setattr(where, name, change(getattr(where, name)))
        jobs.commit_job(job, runs, resolutions=resolutions)

    assert in_fork(commit) == -signal.SIGKILL
    settled = ("marked", "removed", "installed 4 of 4")
    assert rows_of(path) in ([AFTER] if step in settled else [BEFORE, AFTER])
    if step == "before the commit":
        assert not jobs.abandon(job)
    with kc.open_table(path, "rw") as table:
        assert {r["k"]: r["v"] for r in table.scan().to_pylist()} == (AFTER if done else BEFORE)
        table.verify()
    # Where the record is durable the staging has gone; else it waits for whoever commits it, once.
    left = waiting(path)
    assert left == ([] if done or step == "before the commit" else [job.id])
    if left:
        assert not jobs.abandon(job)
        result = jobs.resume(path, job.id)
        assert result.counts == (80, 20, 0, 0) and not result.deduplicated
        assert rows_of(path) == AFTER
    if step == "before the commit":
        with pytest.raises(kc.InvalidArgument, match="knows nothing of a job"):
            jobs.resume(path, job.id)
    else:
        for again in (jobs.resume(path, job.id), jobs.commit_job(job, runs)):
            assert again.deduplicated and again.counts == (80, 20, 0, 0)
        assert jobs.abandon(job) and rows_of(path) == AFTER
        assert marks(path) == [job.id]
    assert waiting(path) == []


OVER = dict.fromkeys(range(40, 140), "job")
OVER_STEPS: dict[str, tuple[Any, str, Callable[[Any], Any], bool]] = {
    "directories 2 of 4": (posix_home, "open_manifest", lambda real: at_call(3, real), False),
    **{step: STEPS[step] for step in ("linked 2 of 4", "before the record", "after the record")},
    "installed 2 of 4": STEPS["installed 2 of 4"],
    "before TABLE": (overwrite, "adopt", lambda real: dies, True),
    "after TABLE": (overwrite, "adopt", die_after, True),
}


@pytest.mark.parametrize(("step", "early"), [(step, i % 2 == 0) for i, step in enumerate(OVER_STEPS)])
def test_a_driver_that_is_killed_has_overwritten_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, early: bool
) -> None:
    path = str(tmp_path / "table")
    make(path)
    job, runs = staged(path, overwrite=True, txn=("over", 1))
    resolutions = resolved(job, runs) if early else []
    where, name, change, done = OVER_STEPS[step]

    def commit() -> None:
        monkeypatch.setattr(where, name, change(getattr(where, name)))
        jobs.commit_job(job, runs, resolutions=resolutions)

    assert in_fork(commit) == -signal.SIGKILL
    settled = ("before TABLE", "after TABLE")  # nothing but the writer's death is between
    assert rows_of(path) in ([OVER] if step in settled else [BEFORE, OVER])
    with kc.open_table(path, "rw") as table:
        assert {r["k"]: r["v"] for r in table.scan().to_pylist()} == (OVER if done else BEFORE)
        table.verify()
        assert len(os.listdir(f"{path}/tablets")) == len(tablets_of(table)) == (8 if done else 4)
    assert waiting(path) == ([] if done else [job.id])
    if not done:
        result = jobs.resume(path, job.id)
        assert result.counts == (100, 0, 0, 0) and not result.deduplicated
        assert rows_of(path) == OVER
    # The job run again, by its token.
    job, runs = staged(path, overwrite=True, txn=("over", 1))
    assert jobs.commit_job(job, runs).deduplicated
    job, runs = staged(path, v="again", overwrite=True, txn=("over", 1))
    with pytest.raises(TokenMismatch, match="as many rows"):
        jobs.commit_job(job, runs)
    assert rows_of(path) == OVER
    assert waiting(path) == []


@pytest.mark.parametrize("step", ["after the record", "installed 2 of 4", "marked", "removed"])
def test_a_commit_repeated_by_another_driver_is_not_applied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Nor without a token."""
    path = str(tmp_path / "table")
    make(path)
    job, runs = staged(path)
    where, name, change, _ = STEPS[step]

    def commit() -> None:
        monkeypatch.setattr(where, name, change(getattr(where, name)))
        jobs.commit_job(job, runs)

    assert in_fork(commit) == -signal.SIGKILL
    again = jobs.commit_job(job, runs)
    assert again.deduplicated and again.counts == (80, 20, 0, 0)
    assert rows_of(path) == AFTER
    assert waiting(path) == []


def test_a_commit_that_failed_after_its_record_is_neither_undone_nor_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "table")
    make(path)
    job, runs = staged(path)

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(committing, "sync_manifests", fails)
        with kc.open_table(path, "rw") as table, pytest.raises((OSError, kc.Poisoned)):
            jobs.commit_job(job, runs, handle_of(table))
    jobs.abandon(job)  # as Spark does when a commit raises
    assert jobs.resume(path, job.id).deduplicated
    kc.open_table(path, "rw").close()
    assert rows_of(path) == AFTER
    assert waiting(path) == []


def test_abort_finds_the_record_of_a_commit_that_reported_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "table")
    make(path)
    job, runs = staged(path)
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "conclude", lambda engine, job_id, known: None)
        jobs.commit_job(job, runs)
    assert marks(path) == [] and waiting(path) == [job.id]
    assert jobs.abandon(job)
    assert rows_of(path) == AFTER
    kc.open_table(path, "rw").close()
    assert waiting(path) == []


def test_two_drivers_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    make(path)
    works = [staged(path, v=name) for name in ("one", "two")]
    found = [resolved(*work) for work in works]
    children = []
    for (job, runs), resolutions in zip(works, found, strict=True):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                jobs.commit_job(job, runs, resolutions=resolutions)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    rows = rows_of(path)
    [last] = {rows[k] for k in range(40, 140)}
    assert last in ("one", "two")
    assert rows == BEFORE | dict.fromkeys(range(40, 140), last)
    assert waiting(path) == []


def test_an_attempt_that_outlives_its_job_changes_nothing(tmp_path: Path) -> None:
    """Failed, repeated and duplicated attempts: files that nobody tells of; and one that is still writing."""
    path = str(tmp_path / "table")
    make(path)
    job, runs = staged(path)
    zombie = jobs.stager(job, "zombie")
    zombie.append(pa.RecordBatch.from_pydict({"k": [7], "v": ["zombie"]}))
    failed = jobs.stager(job, "failed")
    failed.append(pa.RecordBatch.from_pydict({"k": [8], "v": ["failed"]}))
    failed.finish()
    twice = [resolved(job, runs), resolved(job, runs)]
    jobs.commit_job(job, runs, resolutions=twice[1])
    with pytest.raises(FileNotFoundError):
        zombie.finish()
    with pytest.raises(FileNotFoundError):
        resolved(job, runs)
    assert rows_of(path) == AFTER
    assert waiting(path) == []


def test_staging_of_dead_jobs_goes_at_an_open_and_in_maintenance(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    make(path)
    dead, young = staged(path)[0], staged(path)[0]
    os.utime(dead.directory, (0, 0))
    with kc.open_table(path, "rw", options={"staging_grace_s": 3600.0}) as table:
        assert waiting(path) == [young.id]
        late = staged(path)[0]
        os.utime(late.directory, (0, 0))
        sweep_soon(table)
        table.maintain()
        assert waiting(path) == [young.id]
        os.utime(young.directory, (0, 0))
        table.maintain()  # not at every turn
        assert waiting(path) == [young.id]
