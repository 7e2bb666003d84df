"""Jobs whose rows no task stages: they write what staged ones write, as often, whatever dies beside."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.errors import TokenMismatch
from kudu_core.events import TableOpened
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs import held
from kudu_core.table.jobs.job import Job
from kudu_core.table.jobs.job_table import JobTable
from kudu_core.table.lifecycle import maintain, staging_folders
from kudu_core.table.opened import writers
from kudu_core.tablet.maintain.flush_lane import FlushLane
from kudu_core.wal import Log
from tests.support.inside import handle_of
from tests.support.staged import marks, waiting

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("n", pa.int64())])
COLUMNS = [("k", "int64"), ("v", "string")]
BEFORE: dict[int, Any] = {k: ("before", k) for k in range(20)}


def make(path: str, **options: Any) -> None:
    with kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition("k", 3), options=options) as table:
        table.insert([{"k": k, "v": v, "n": n} for k, (v, n) in BEFORE.items()])


def begin(path: str, operation: str = "upsert", columns: Any = COLUMNS, **more: Any) -> Job:
    return jobs.begin(JobTable.at(path), operation, columns, **more)


def batches(keys: Sequence[int], v: str | None = "job", **more: Any) -> list[pa.RecordBatch]:
    columns = {"k": pa.array(keys, pa.int64()), "v": pa.array([v] * len(keys), pa.string())} | more
    whole = pa.table(columns)
    return whole.to_batches(max_chunksize=7)


def staged(job: Job, given: Sequence[pa.RecordBatch]) -> Any:
    """The other way: two attempts, whose runs are committed."""
    runs = []
    for number, part in enumerate((given[::2], given[1::2])):
        stager = jobs.stager(job, f"{number}")
        for batch in part:
            stager.append(batch)
        runs += stager.finish()
    return jobs.commit_job(job, runs)


def rows_of(path: str) -> dict[int, Any]:
    with kc.open_table(path) as table:
        table.verify()
        return {row["k"]: (row["v"], row["n"]) for row in table.scan(order="key").to_pylist()}


KEYS = range(10, 40)
CASES: dict[str, tuple[str, Any, list[pa.RecordBatch], dict[str, Any]]] = {
    "upsert": ("upsert", COLUMNS, batches(KEYS), {}),
    "insert": ("insert", COLUMNS, batches(range(20, 40)), {}),
    "insert refused": ("insert", COLUMNS, batches(KEYS), {}),
    "insert_ignore": ("insert_ignore", COLUMNS, batches(KEYS), {}),
    "update_ignore": ("update_ignore", COLUMNS, batches(KEYS), {}),
    "delete": (
        "delete",
        COLUMNS[:1],
        pa.table({"k": pa.array(range(5, 15), pa.int64())}).to_batches(max_chunksize=3),
        {},
    ),
    "apply": (
        "apply",
        [*COLUMNS, ("_op", "string")],
        batches(KEYS, _op=pa.array(["upsert", "delete_ignore", "insert_ignore"] * 10)),
        {},
    ),
    "a key twice": ("upsert", COLUMNS, batches([*KEYS, 12]), {}),
    "a key twice, the last": (
        "upsert",
        [*COLUMNS, ("at", "int64")],
        batches([*KEYS, *KEYS], at=pa.array([*range(60)], pa.int64())),
        {"on_duplicate": "last", "sequence_by": "at"},
    ),
    "a key twice, the last by a column of the table": (
        "upsert",
        [*COLUMNS, ("n", "int64")],
        batches([*KEYS, *KEYS], n=pa.array([*range(60)], pa.int64())),
        {"on_duplicate": "last", "sequence_by": "n"},
    ),
    "a key twice, any": ("upsert", COLUMNS, batches([*KEYS, 12]), {"on_duplicate": "any"}),
    "no NULL": ("upsert", COLUMNS, batches(KEYS, None), {"ignore_null": True}),
    "NULLs": ("upsert", COLUMNS, batches(KEYS, None), {}),
    "overwrite": ("upsert", COLUMNS, batches(KEYS), {"overwrite": True}),
    "nothing": ("upsert", COLUMNS, [], {}),
}


@pytest.mark.parametrize("threshold", [1, 100_000], ids=["files", "log"])
@pytest.mark.parametrize("case", CASES)
def test_held_rows_are_written_as_staged_ones_are(tmp_path: Path, case: str, threshold: int) -> None:
    """Also with a token: each way knows what the other one has written."""
    operation, columns, given, more = CASES[case]
    found: list[Any] = []
    for name, write in (("staged", staged), ("held", held.commit_held)):
        path = str(tmp_path / name)
        make(path, ingest_threshold_rows=threshold)
        try:
            result = write(begin(path, operation, columns, txn=("job", 7), **more), given)
        except kc.RowErrors as refused:
            found.append((sorted(str(refused).split("\n")[:1]), rows_of(path)))
            assert rows_of(path) == BEFORE
        else:
            found.append((result.counts, result.deduplicated, result.refused, rows_of(path)))
            for again in (staged, held.commit_held):
                repeated = again(begin(path, operation, columns, txn=("job", 7), **more), given)
                assert repeated.deduplicated and repeated.counts == result.counts
            with pytest.raises(TokenMismatch):
                other = given[:-1] or batches([99])
                write(begin(path, operation, columns, txn=("job", 7), **more), other)
        assert waiting(path) == []
    assert found[0][1:] == found[1][1:]


def in_fork(work: Callable[[], object]) -> int:
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


def die_after(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> None:
        real(*args, **more)
        dies()

    return call


STEPS: dict[str, tuple[Any, str, Callable[[Any], Any], bool]] = {
    "before the open": (jobs, "open_handle", lambda real: dies, False),
    "before the record": (Log, "append", lambda real: dies, False),
    "after the record": (Log, "append", die_after, True),
    "not marked": (writers, "leave_mark", lambda real: dies, True),
    "marked": (writers, "leave_mark", die_after, True),
    "removed": (staging_folders, "remove", die_after, True),
    "flushed": (FlushLane, "flush_all", die_after, True),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_is_killed_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = str(tmp_path / "t")
    make(path)
    monkeypatch.setattr(maintain, "REPLAYED_RECORDS", 0)
    job, given = begin(path), batches(KEYS)
    where, name, change, done = STEPS[step]

    def commit() -> None:
        monkeypatch.setattr(where, name, change(getattr(where, name)))
        held.commit_held(job, given)

    assert in_fork(commit) == -signal.SIGKILL
    after = {k: ("before", k) for k in range(10)} | {k: ("job", k if k < 20 else None) for k in KEYS}
    with kc.open_table(path, "rw") as table:
        assert {r["k"]: (r["v"], r["n"]) for r in table.scan().to_pylist()} == (after if done else BEFORE)
    assert rows_of(path) == (after if done else BEFORE)
    if done:
        assert waiting(path) == []
        again = jobs.resume(path, job.id)
        assert again.deduplicated and again.counts == (20, 10, 0, 0) and marks(path) == [job.id]
    else:  # an empty folder, until its grace is over
        with pytest.raises(kc.InvalidArgument, match="knows nothing of a job"):
            jobs.resume(path, job.id)
        assert not jobs.abandon(job) and waiting(path) == []


def test_a_locked_table_keeps_the_rows_for_a_later_commit(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    make(path)
    job = begin(path, txn=("job", 1), lock_timeout_s=0.0)
    with kc.open_table(path, "rw"), pytest.raises(kc.Locked) as caught:
        held.commit_held(job, batches(KEYS))
    assert job.id in caught.value.__notes__[0] and len(caught.value.__notes__) == 1
    jobs.abandon(job)  # as every caller does
    assert rows_of(path) == BEFORE and waiting(path) == [job.id]
    assert jobs.resume(path, job.id).counts == (20, 10, 0, 0)
    again = jobs.resume(path, job.id)
    assert again.deduplicated and waiting(path) == []


@pytest.mark.parametrize("lost", [False, True], ids=["a record", "no record"])
def test_an_end_that_nobody_knows_is_asked_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    path = str(tmp_path / "t")
    make(path)
    job = begin(path)
    real = Log.append

    def fails(log: Log, *given: Any) -> int:
        if not lost:
            real(log, *given)
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patch, pytest.raises((OSError, kc.Poisoned)):
        patch.setattr(Log, "append", fails)
        held.commit_held(job, batches(KEYS))
    jobs.abandon(job)
    result = jobs.resume(path, job.id)
    assert result.counts == (20, 10, 0, 0)
    assert jobs.resume(path, job.id).deduplicated
    assert len(rows_of(path)) == 40 and waiting(path) == []


def test_rows_that_cannot_be_kept_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "t")
    make(path)
    job = begin(path, lock_timeout_s=0.0)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(held, "seal", full)
    with kc.open_table(path, "rw"), pytest.raises(kc.Locked) as caught:
        held.commit_held(job, batches(KEYS))
    assert "could not be kept" in caught.value.__notes__[-1]
    assert not jobs.abandon(job) and waiting(path) == []


def test_what_the_table_has_become_meanwhile(tmp_path: Path) -> None:
    """Another column: fitted.  Another table: refused."""
    path = str(tmp_path / "t")
    make(path)
    job = begin(path)
    with kc.open_table(path, "rw") as table:
        table.alter(drop=["n"], add=[kc.Column("m", pa.int32())])
        assert held.commit_held(job, batches(KEYS), handle=handle_of(table)).counts == (20, 10, 0, 0)
        assert table.get(39) == {"k": 39, "v": "job", "m": None}
    job = begin(path)
    os.rename(path, str(tmp_path / "old"))
    make(path)
    os.makedirs(job.directory)
    with pytest.raises(kc.InvalidArgument, match="another one than when the job began"):
        held.commit_held(job, batches(KEYS))
    assert rows_of(path) == BEFORE


def test_rows_beside_staged_ones_are_staged_too(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    make(path)
    job = begin(path, txn=("job", 1))
    stager = jobs.stager(job, "p0")
    for batch in batches(range(20, 30)):
        stager.append(batch)
    result = held.commit_held(job, batches(range(30, 40)), stager.finish())
    assert result.counts == (20, 0, 0, 0) and waiting(path) == []
    job = begin(path, txn=("job", 1))
    assert held.commit_held(job, batches(range(20, 40))).deduplicated


@pytest.mark.parametrize("manual", [False, True])
def test_a_commit_leaves_a_table_that_opens_without_much_replay(tmp_path: Path, manual: bool) -> None:
    """Unless the table's maintenance is its owner's."""
    path = str(tmp_path / "t")
    make(path, **({"maintenance": "manual"} if manual else {}))
    replayed = []
    for number in range(50):
        held.commit_held(begin(path), batches(range(number, number + 10), f"{number}"))
        events: list[Any] = []
        kc.open_table(path, listener=events.append).close()
        replayed += [event.records_replayed for event in events if isinstance(event, TableOpened)]
    assert max(replayed) == (51 if manual else maintain.REPLAYED_RECORDS)
    assert rows_of(path)[49] == ("49", None)
