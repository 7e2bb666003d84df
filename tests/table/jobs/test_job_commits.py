"""Commits of distributed writes: applied once and answered always, whatever dies or is written beside."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.format import names
from kudu_core.table.ingest import commit_parts as committing
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.job import Job
from kudu_core.table.jobs.resolve import resolve
from kudu_core.table.lifecycle import staging_folders
from kudu_core.table.opened.job_marks import leave_marks
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.staged import StagedRun
from tests.support.clock import ManualClock
from tests.support.faults import TINY, drop, segments_of
from tests.support.fs.faulty import CHANGES, FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import (
    engine_of,
    handle_of,
    job_locks_of,
    log_of,
    never_sweep,
    sweep_soon,
)
from tests.support.staged import marks, waiting

PATH = "/d/t"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
COLUMNS = [("k", "int64"), ("v", "string")]
FILES = {"ingest_threshold_rows": 1, "maintenance": "manual", "file_grace_s": 0}
"""Every job goes through files, however small."""
LOG = {"maintenance": "manual", "file_grace_s": 0}


def batch(keys: Sequence[int], v: str) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(keys, pa.int64()), "v": [v] * len(keys)}, SCHEMA)


def stage(
    table: kc.Table, keys: Sequence[int], operation: str = "insert", v: str = "job", **more: Any
) -> tuple[Job, list[StagedRun]]:
    job = jobs.begin(handle_of(table), operation, COLUMNS, **more)
    stager = jobs.stager(job, "p0-a0", engine_of(table).fs)
    stager.append(batch(keys, v))
    return job, stager.finish()


def resolved(path: str | Path, job: Job, runs: Sequence[StagedRun]) -> list[Resolution]:
    with kc.open_table(path) as reader:
        found = resolve(handle_of(reader), job, jobs.form_of(job), runs)
    assert found
    return found


def rows_of(table: kc.Table) -> dict[int, str]:
    rows = table.scan(order="key").to_pylist()
    assert len({row["k"] for row in rows}) == len(rows), "a key is there twice"
    return {row["k"]: row["v"] for row in rows}


def forget(table: kc.Table) -> None:
    """Write and flush until the log has dropped all that was in it."""
    first = log_of(table).segments[0].seq
    for number in count():
        assert number < 100, "the log drops nothing"
        table.upsert(batch(range(1000, 1020), "other").to_pylist())
        table.flush()
        table.gc()
        if log_of(table).segments[0].seq > first + 1:
            return


# ---- every point at which the process may die ----

STORIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "log": (LOG, {}),
    "log, none": ({**LOG, "durability": "none"}, {}),
    "files": (FILES, {}),
    "files, none": ({**FILES, "durability": "none"}, {}),
    "token": (FILES, {"txn": ("app", 1)}),
    "overwrite": (FILES, {"overwrite": True}),
}
BEFORE = dict.fromkeys(range(10), "before")
KEYS = range(20, 50)


@pytest.mark.parametrize("story", STORIES)
def test_a_commit_is_applied_once_and_answered_always(story: str, seed: int, long: bool) -> None:
    """Protocol J2: the process dies at each call that changes a file, maybe with the machine; others open the
    table before somebody asks again, and what they write may push the record out of the log."""
    options, more = STORIES[story]
    clock = ManualClock()
    disk = MemoryFileSystem()
    disk.mkdir("/d")
    table = kc.create_table(PATH, SCHEMA, "k", options=options, _fs=disk, _clock=clock)
    table.upsert(batch(range(10), "before").to_pylist())
    job, runs = stage(table, KEYS, **more)
    table.close()
    disk.sync_all()
    after = dict.fromkeys(KEYS, "job") | ({} if more.get("overwrite") else BEFORE)
    outcomes = set()
    for number in count(1):
        there = disk.crash_clone(seed, keep="all")
        faulty = FaultyFileSystem(there, [Rule(CHANGES, nth=number, error="crash")], seed=seed + number)
        died = False
        opened = None
        try:
            opened = kc.open_table(PATH, "rw", _fs=faulty, _clock=clock)
            first = jobs.commit_job(job, runs, handle_of(opened))
            assert first.counts == (30, 0, 0, 0) and not first.deduplicated
        except SimulatedCrash:
            died = True
        drop(opened)
        for case in range(9 if long else 1):
            keep = ("none", "random", "all")[(case + number) % 3]
            cut = there.crash_clone(seed + number + case, keep=keep)
            outcomes.add(_asked_again(cut, clock, job, runs, after, (case + number) // 3 % 3, seed))
        if not died:
            break
    assert outcomes == {True, False}, "not every end was met"


def _asked_again(
    disk: MemoryFileSystem,
    clock: ManualClock,
    job: Job,
    runs: Sequence[StagedRun],
    after: dict[int, str],
    opens: int,
    seed: int,
) -> bool:
    """Whether the job had been applied."""

    def opened() -> kc.Table:
        return kc.open_table(PATH, "rw", _fs=disk, _clock=clock)

    expected = dict(after)
    with segments_of(TINY):
        for number in range(opens):
            with opened() as table:
                applied = 20 in rows_of(table)
                if number and applied:
                    forget(table)
                    expected |= dict.fromkeys(range(1000, 1020), "other")
        with opened() as table:
            applied = 20 in rows_of(table)
            if not applied and not disk.exists(f"{job.directory}/JOB"):
                with pytest.raises(kc.InvalidArgument, match="knows nothing of a job"):
                    jobs.resume(PATH, job.id, handle_of(table))
                first = jobs.commit_job(job, runs, handle_of(table))
            else:
                first = jobs.resume(PATH, job.id, handle_of(table))
            assert (first.counts, first.deduplicated) == ((30, 0, 0, 0), applied)
            resumed = jobs.resume(PATH, job.id, handle_of(table))
            for again in (resumed, jobs.commit_job(job, runs, handle_of(table))):
                assert again.deduplicated
                assert (again.counts, again.timestamp) == (first.counts, first.timestamp)
            assert rows_of(table) == expected
        with opened() as table:
            assert jobs.resume(PATH, job.id, handle_of(table)).timestamp == first.timestamp
            assert rows_of(table) == expected
            table.verify()
    assert disk.listdir(f"{PATH}/staging") == [names.mark_of_job(job.id)]
    return applied


def test_the_log_forgets_no_job_that_has_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol J3: a commit fails behind its record, without a mark; then the process drops the record."""
    with segments_of(TINY):
        table = kc.create_table(tmp_path / "t", SCHEMA, "k", options=FILES)
        job, runs = stage(table, KEYS)

        def fails(*_: object) -> None:
            raise OSError(errno.EIO, "the disk is gone for a moment")

        with monkeypatch.context() as patch:
            patch.setattr(committing, "sync_manifests", fails)
            with pytest.raises(OSError, match="for a moment"):
                jobs.commit_job(job, runs, handle_of(table))
        assert marks(table.path) == [] and waiting(table.path) == [job.id]
        never_sweep(table)  # no sweep comes to its help
        forget(table)
        assert marks(table.path) == [job.id]
        table.close()
        with kc.open_table(table.path, "rw") as again:
            assert engine_of(again).writers.applied_jobs == {}, "the log still has the record"
            known = jobs.resume(table.path, job.id, handle_of(again))
            assert known.deduplicated and known.inserted == 30
            assert len(rows_of(again)) == 50


def test_a_mark_that_cannot_be_written_is_written_before_the_log_forgets(tmp_path: Path) -> None:
    faulty = FaultyFileSystem(kc.fs.PosixFileSystem())
    with segments_of(TINY):
        table = kc.create_table(tmp_path / "t", SCHEMA, "k", options=FILES, _fs=faulty)
        job, runs = stage(table, KEYS)
        full = Rule(frozenset({"create"}), path_glob="*.committed.*", error=errno.ENOSPC, sticky=True)
        faulty.rules.append(full)
        assert jobs.commit_job(job, runs, handle_of(table)).inserted == 30
        sweep_soon(table)
        with pytest.raises(OSError, match="space"):
            table.gc()
        assert full.fired and marks(table.path) == [] and job.id in engine_of(table).writers.applied_jobs
        assert jobs.resume(table.path, job.id, handle_of(table)).deduplicated
        with pytest.raises(OSError, match="space"):
            forget(table)
        faulty.rules.clear()
        forget(table)
        assert marks(table.path) == [job.id]
        table.close()


def test_no_mark_says_what_a_power_cut_can_take_back(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, clock = MemoryFileSystem(), ManualClock()
    disk.mkdir("/d")
    disk.sync_all()
    table = kc.create_table(PATH, SCHEMA, "k", options={**LOG, "durability": "none"}, _fs=disk, _clock=clock)
    job, runs = stage(table, KEYS)
    engine = engine_of(table)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine, "wait_visible", dies)
        with pytest.raises(KeyboardInterrupt):
            jobs.commit_job(job, runs, handle_of(table))
    known = engine.writers.applied_jobs[job.id]
    assert len(rows_of(table)) == 30 and known.ts > engine.committed_ts
    staging_folders.sweep_staging(engine, opening=True)
    leave_marks(disk, PATH, engine.writers.applied_jobs, engine.committed_ts)
    assert disk.listdir(f"{PATH}/staging") == [job.id]
    cut = disk.crash_clone(keep="none")
    drop(table)
    with kc.open_table(PATH, "rw", _fs=cut, _clock=clock) as again:
        assert rows_of(again) == {}
        assert not jobs.resume(PATH, job.id, handle_of(again)).deduplicated
        assert len(rows_of(again)) == 30


@pytest.mark.parametrize("options", [FILES, LOG], ids=["files", "log"])
def test_two_commits_of_one_job_at_once(tmp_path: Path, options: dict[str, Any]) -> None:
    """By two threads with one table: the second is told what came of the first."""
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        for number in range(5):
            job, runs = stage(table, range(100 * number, 100 * number + 9), "upsert")
            found: list[Any] = []
            start = threading.Barrier(3)

            def commit(
                job: Job = job, runs: list[StagedRun] = runs, start: Any = start, found: list[Any] = found
            ) -> None:
                start.wait()
                found.append(jobs.commit_job(job, runs, handle_of(table)))

            threads = [threading.Thread(target=commit) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert {result.counts for result in found} == {(9, 0, 0, 0)}
            assert sorted(result.deduplicated for result in found) == [False, True, True]
        assert len(rows_of(table)) == 45 and not job_locks_of(table)
