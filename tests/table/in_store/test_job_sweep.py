"""What distributed writes leave in an object store, and when it goes (protocol B13)."""

from __future__ import annotations

import gc

import pytest

import kudu_core as kc
from kudu_core.common.run.locks import Claim
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.job import Job
from kudu_core.table.lifecycle.in_store import job_sweep
from kudu_core.table.opened.handle import handle_of
from kudu_core.table.runs.staged import StagedRun
from tests.support.inside import engine_of, tablets_of
from tests.support.objects.jobs import TIME, begun, job_files, made, rows, small_logs, staged, store_of_jobs
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import URL, guard_deletes, opened, rows_of, taken_over


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryObjectStore:
    return store_of_jobs(monkeypatch)


def committed_job(store: MemoryObjectStore, **options: object) -> tuple[Job, list[StagedRun]]:
    """Of a new table: a job of 12,000 rows, whose file is the only rowset."""
    with made(store, **options):
        pass
    job = begun("insert")
    runs = staged(job, rows(range(12_000)))
    jobs.commit_job(job, runs)
    return job, runs


@pytest.mark.parametrize("ended", ["committed", "abandoned", "given up", "forgotten"])
def test_what_jobs_leave_goes_in_time(
    ended: str, store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made(store, clock=TIME, file_grace_s=10.0, staging_grace_s=1000.0) as table:
        table.insert(rows(range(100)))
        table.flush()
    job = begun()
    runs = staged(job, rows(range(50, 12_000), 1))
    late = staged(job, rows(range(5)))
    assert late
    if ended == "committed":
        assert jobs.commit_job(job, runs).updated == 50
    elif ended == "abandoned":
        assert not jobs.abandon(job)
        staged(job, rows(range(5)))  # an attempt that comes late
    elif ended == "forgotten":
        store.delete([f"staging/{job.id}/JOB"])
    guard_deletes(store)
    is_there = ended == "committed"
    wanted = {n: n + (is_there and n >= 50) for n in range(12_000 if is_there else 100)}
    with opened(store, "rw", clock=TIME) as table:
        table.gc()
        before = job_files(store)
        TIME.advance(999.0)
        table.gc()
        assert job_files(store) == before, "within the grace"
        for _ in range(4):
            TIME.advance(1001.0)
            table.gc()
        assert rows_of(table) == wanted
        named = {name for tablet in tablets_of(table) for name in tablet.state.files}
        assert job_files(store) == named & before
        marked = [name for name in store.objects if name.startswith("staging/")]
        assert marked == ([] if ended in ("abandoned", "forgotten") else [f"staging/{job.id}.committed"])
        TIME.advance(31 * 86_400.0)
        for _ in range(4):
            TIME.advance(1001.0)
            table.gc()
        assert not [name for name in store.objects if name.startswith("staging/")]
        assert rows_of(table) == wanted
        if ended == "committed":
            assert named
            table.compact(full=True)
            for _ in range(4):
                TIME.advance(1001.0)
                table.gc()
            assert not job_files(store), "the table's own by then, as any of its files"
        assert rows_of(table) == wanted


def test_a_job_that_was_given_up_is_refused(store: MemoryObjectStore) -> None:
    with made(store, clock=TIME, staging_grace_s=1000.0) as table:
        job = begun()
        runs = staged(job, rows(range(12_000)))
        TIME.advance(2000.0)
        table.gc()
        assert store.objects[f"staging/{job.id}.committed"].data == b'"given up"'
    for again in (lambda: jobs.commit_job(job, runs), lambda: jobs.resume(URL, job.id)):
        with pytest.raises(kc.InvalidArgument, match="knows nothing of a job"):
            again()
    assert not jobs.abandon(job)
    # By the record alone, as long as the log has it.
    store.delete([f"staging/{job.id}.committed"])
    with pytest.raises(kc.InvalidArgument, match="knows nothing of a job"):
        jobs.commit_job(job, runs)
    with opened(store) as table:
        assert rows_of(table) == {}


def test_a_sweep_that_was_overtaken_chooses_nothing(store: MemoryObjectStore) -> None:
    """A job that this writer has given up for itself may have been committed by a later one."""
    with made(store, clock=TIME, staging_grace_s=1000.0, file_grace_s=0.0) as table:
        job = begun()
        runs = staged(job, rows(range(12_000)))
        later = taken_over(store)
        guard_deletes(store)
        assert jobs.commit_job(job, runs, handle_of(later)).inserted == 12_000
        TIME.advance(2000.0)
        for _ in range(3):
            with pytest.raises(kc.Fenced):
                table.gc()
            TIME.advance(2000.0)
        with pytest.raises(kc.Fenced):
            table.close()
    assert rows_of(later) == {n: n for n in range(12_000)}
    later.close()


@pytest.mark.parametrize("by", ["close", "flush"])
def test_the_mark_is_there_before_the_record_goes(
    by: str, store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the commit did not come to put it."""
    monkeypatch.setattr(jobs, "conclude", lambda *_: None)
    job, runs = committed_job(store)
    assert f"staging/{job.id}.committed" not in store.objects
    small_logs(monkeypatch, closes=by == "close")
    with opened(store, "rw", clock=TIME) as table:
        for n in range(6):
            table.upsert([{"k": -1 - n, "v": 0}])
            if by == "flush":
                table.flush()
    assert f"staging/{job.id}.committed" in store.objects
    with opened(store) as reader:
        assert job.id not in engine_of(reader).writers.applied_jobs, "its record is gone"
    assert jobs.commit_job(job, runs).deduplicated
    with opened(store) as table:
        assert table.count() == 12_006


def test_files_of_jobs_are_collected_as_any(store: MemoryObjectStore) -> None:
    """A long grace of jobs does not keep what the table has dropped; a scan does."""
    committed_job(store, file_grace_s=0.0, history_retention_s=0)
    with opened(store, "rw", clock=TIME) as table:
        held = tablets_of(table)[0].view
        table.delete([{"k": n} for n in range(12_000)])
        TIME.advance(1.0)
        table.compact(full=True)
        for _ in range(3):
            TIME.advance(90_000.0)
            table.gc()
        assert job_files(store), "somebody reads it"
        del held
        gc.collect()
        table.gc()
        assert not job_files(store)


def test_what_an_earlier_writer_has_dropped_goes(store: MemoryObjectStore) -> None:
    committed_job(store, file_grace_s=10.0, history_retention_s=0)
    with opened(store, "rw", clock=TIME) as table:
        table.delete([{"k": n} for n in range(12_000)])
        TIME.advance(1.0)
        table.compact(full=True)
        assert job_files(store)
    with opened(store, "rw", clock=TIME) as table:
        table.gc()
        assert job_files(store)
        TIME.advance(11.0)
        table.gc()
        assert not job_files(store)


@pytest.mark.parametrize("ended", [True, False])
def test_a_list_is_not_believed_in_what_it_lacks(ended: bool, store: MemoryObjectStore) -> None:
    with made(store, staging_grace_s=1000.0):
        pass
    job = begun()
    runs = staged(job, rows(range(12_000)), rows(range(5)))
    if ended:
        jobs.commit_job(job, runs[:1])
    real = store.list
    store.list = lambda prefix: [] if prefix == "staging" else real(prefix)  # type: ignore[method-assign]
    with opened(store, "rw", clock=TIME) as table:
        for _ in range(3):
            TIME.advance(2000.0)
            table.gc()
    mark = store.objects[f"staging/{job.id}.committed"].data
    assert (mark == b'"given up"') is not ended
    assert len(job_files(store)) == 2, "over for nobody knows how long"
    del store.list  # type: ignore[method-assign]
    with opened(store, "rw", clock=TIME) as table:
        for _ in range(3):
            TIME.advance(4000.0)
            table.gc()
        assert len(job_files(store)) == ended
        assert table.count() == 12_000 * ended


def test_a_job_that_is_being_committed_is_left_alone(store: MemoryObjectStore) -> None:
    with made(store, clock=TIME, staging_grace_s=1000.0) as table:
        job = begun()
        runs = staged(job, rows(range(12_000)))
        writers = engine_of(table).writers
        with Claim(writers.committing, job.id):
            for _ in range(3):
                TIME.advance(2000.0)
                table.gc()
        assert jobs.commit_job(job, runs, handle_of(table)).inserted == 12_000


def test_a_job_that_is_committed_under_a_sweep_is_not_given_up(
    store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look whether it is over and the record that would give it up."""
    with made(store, clock=TIME, staging_grace_s=1000.0) as table:
        job = begun("insert")
        runs = staged(job, rows(range(12_000)))
        real, done = job_sweep.Claim, []

        def overtaken(ids: set[str], job_id: str) -> Claim:
            if not done:
                done.append(jobs.commit_job(job, runs, handle_of(table)))
            return real(ids, job_id)

        monkeypatch.setattr(job_sweep, "Claim", overtaken)
        TIME.advance(2000.0)
        table.gc()
        assert done[0].inserted == 12_000
        assert jobs.resume(URL, job.id, handle_of(table)).deduplicated
        assert store.objects[f"staging/{job.id}.committed"].data != b'"given up"'
