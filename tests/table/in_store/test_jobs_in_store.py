"""Distributed writes of a table in an object store: files stay where tasks have put them, and one record
names them (protocol B13)."""

from __future__ import annotations

from dataclasses import replace

import pytest

import kudu_core as kc
from kudu_core.errors import StoreError
from kudu_core.objects.api import ALWAYS
from kudu_core.table.jobs import apply_job as small
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.held import commit_held
from kudu_core.table.jobs.resolve import resolve
from kudu_core.table.opened.handle import handle_of
from tests.support.fs.faulty import SimulatedCrash
from tests.support.inside import forgetting
from tests.support.objects.fates import Rule
from tests.support.objects.faulty import FaultyStore
from tests.support.objects.jobs import (
    COLUMNS,
    TIME,
    begun,
    job_files,
    made,
    patch_clients,
    rows,
    small_logs,
    staged,
    store_of_jobs,
)  # fmt: skip
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import URL, guard_deletes, opened, rows_of, taken_over


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryObjectStore:
    return store_of_jobs(monkeypatch)


def test_runs_become_rowsets_where_they_are(store: MemoryObjectStore) -> None:
    with made(store, tablets=2):
        pass
    job = begun("insert")
    runs = staged(job, rows(range(20_000)), rows(range(20_000, 40_000)))
    before = job_files(store)
    result = jobs.commit_job(job, runs)
    assert result.inserted == 40_000 and not result.deduplicated
    assert job_files(store) == before
    assert not [name for name in store.objects if name.startswith("tablets/") and name.endswith(".rows")]
    guard_deletes(store)
    with opened(store) as table:
        assert rows_of(table) == {n: n for n in range(40_000)}
        assert not table.verify().foreign
    assert jobs.commit_job(job, runs).deduplicated
    assert jobs.resume(URL, job.id).deduplicated
    assert jobs.abandon(job)
    with opened(store, "rw") as table:
        table.upsert([{"k": 1, "v": -1}])
        table.compact(full=True)
        assert rows_of(table) == {n: n if n != 1 else -1 for n in range(40_000)}


def test_resolved_changes_are_taken_in_where_they_are(store: MemoryObjectStore) -> None:
    with made(store, tablets=2) as table:
        table.insert(rows(range(20_000)))
        table.upsert([{"k": 5, "v": 50}])
    job = begun()
    runs = staged(job, rows(range(10_000, 20_000), 1), rows(range(20_000, 30_000), 1))
    with opened(store) as reader:
        found = resolve(handle_of(reader), job, jobs.form_of(job), runs)
    assert found
    files = {name for name in store.objects if name.startswith("tablets/")}
    result = jobs.commit_job(job, runs, None, found)
    assert (result.inserted, result.updated) == (10_000, 10_000)
    added = {name for name in store.objects if name.startswith("tablets/")} - files
    assert len(added) == 1, "the change that memory had of a rowset that got a file of changes"
    with opened(store) as table:
        wanted = {n: n + (n >= 10_000) for n in range(30_000)} | {5: 50}
        assert rows_of(table) == wanted
        table.verify()


def test_a_commit_of_many_files_asks_little(
    store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever there is: no file is opened, none is moved, and one record names all."""
    with made(store, tablets=4) as table:
        table.insert(rows(range(-20_000, 0)))
    job = begun("insert")
    runs = staged(job, *(rows(range(n * 50, n * 50 + 50)) for n in range(250)))
    assert len(runs) == 1000
    monkeypatch.setattr(small, "is_small", lambda *_: False)
    counted = FaultyStore(store)
    patch_clients(monkeypatch, counted)
    assert jobs.commit_job(job, runs).inserted == 12_500
    asked = [f"{one.op} {one.path}" for one, _ in counted.fates.log]
    assert len(asked) < 30, "\n".join(asked)
    assert sum(one.startswith("put log/") for one in asked) == 2, "a fence, and the record"
    assert [one for one in asked if " files/" in one or " tablets/" in one] == [f"list files/{job.id}"]
    with opened(store) as table:
        assert len(rows_of(table)) == 32_500


def test_a_job_whose_JOB_is_gone_is_refused_though_its_files_are_there(store: MemoryObjectStore) -> None:
    with made(store):
        pass
    job = begun()
    runs = staged(job, rows(range(12_000)))
    store.delete([f"staging/{job.id}/JOB"])
    with pytest.raises(kc.InvalidArgument, match="knows nothing of a job"):
        jobs.commit_job(job, runs)
    with opened(store) as table:
        assert rows_of(table) == {}


def test_files_are_those_that_tasks_told_of(store: MemoryObjectStore) -> None:
    with made(store):
        pass
    for cut, said in ((9, "ends before|has"), (0, "is missing")):
        job = begun("insert")
        [run] = staged(job, rows(range(12_000)))
        name = f"files/{job.id}/{run.file.name}"
        whole = store.objects[name].data
        store.delete([name])
        if cut:
            store.put(name, whole[:-cut], ALWAYS)
        with pytest.raises(kc.Corruption, match=said):
            jobs.commit_job(job, [run])
    with opened(store) as table:
        assert rows_of(table) == {}


def killed_commit(monkeypatch: pytest.MonkeyPatch, fate: str, nth: int) -> bool:
    """A driver killed at its ``nth`` request of a commit, and another one that goes on; whether it was."""
    small_logs(monkeypatch)
    memory = store_of_jobs(monkeypatch)
    with made(memory, tablets=2, file_grace_s=0.0) as table:
        table.upsert(rows(range(10)))
        table.flush()
        table.upsert([{"k": 3, "v": 33}])
    job = begun()
    runs = staged(job, rows(range(5, 6_000), 1), rows(range(6_000, 12_000), 1))
    guard_deletes(memory)
    before = {n: n if n != 3 else 33 for n in range(10)}
    after = before | {n: n + 1 for n in range(5, 12_000)}
    faulty = FaultyStore(memory, [Rule(fate, nth=nth)])  # type: ignore[arg-type]
    patch_clients(monkeypatch, faulty)
    die = forgetting(monkeypatch, jobs)
    try:
        assert jobs.commit_job(job, runs).updated == 5
    except SimulatedCrash:
        pass
    except (kc.KuduError, OSError):
        if not faulty.crashed:
            raise
    die()
    monkeypatch.undo()
    small_logs(monkeypatch)
    patch_clients(monkeypatch, memory)
    memory.objects.pop("LEASE", None)
    with opened(memory) as reader:
        seen = rows_of(reader)
    assert seen in (before, after), (fate, nth)
    with opened(memory, "rw", clock=TIME) as other:  # which makes a checkpoint, and sweeps
        other.compact(full=True)
        other.gc()
        assert rows_of(other) == seen
    is_sealed = b'"runs": null' not in memory.objects[f"staging/{job.id}/JOB"].data
    again = jobs.resume(URL, job.id) if is_sealed and nth % 2 else jobs.commit_job(job, runs)
    assert again.deduplicated is (seen == after)
    assert jobs.commit_job(job, runs).deduplicated and jobs.abandon(job)
    with opened(memory, "rw", clock=TIME) as other:
        assert rows_of(other) == after
        other.gc()
        other.gc()
        found = other.verify()
        assert (found.unnamed, found.foreign) == ((), ())
    return faulty.crashed


@pytest.mark.parametrize("fate", ["crash before", "crash after"])
def test_a_driver_killed_at_each_request(fate: str) -> None:
    nth = 1
    while True:
        with pytest.MonkeyPatch.context() as patch:
            if not killed_commit(patch, fate, nth):
                break
        nth += 1
        assert nth < 1000
    assert nth > 10


def test_JOB_is_looked_for_after_the_mark(store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that gave the job up, and whose mark is gone by now, may have come between."""
    with made(store):
        pass
    job = begun()
    runs = staged(job, rows(range(12_000)))
    real = jobs.open_handle

    def swept(*arguments: object, **named: object) -> object:
        store.delete([f"staging/{job.id}/JOB"])
        return real(*arguments, **named)

    monkeypatch.setattr(jobs, "open_handle", swept)
    with pytest.raises(kc.InvalidArgument, match="knows nothing of a job"):
        jobs.commit_job(job, runs)
    with opened(store) as table:
        assert rows_of(table) == {}


def test_a_driver_that_was_replaced_takes_no_files_away(store: MemoryObjectStore) -> None:
    """It refuses, by what it knows, what another one has committed by then."""
    with made(store, clock=TIME, file_grace_s=0.0) as table:
        table.insert(rows([5]))
        job = begun("insert")
        runs = staged(job, rows(range(12_000)))
        later = taken_over(store)
        later.delete([{"k": 5}])
        guard_deletes(store)
        assert jobs.commit_job(job, runs, handle_of(later)).inserted == 12_000
        store.delete([f"staging/{job.id}.committed"])  # as if that had come too late
        with pytest.raises(kc.RowErrors):
            jobs.commit_job(job, runs, handle_of(table))
        with pytest.raises(kc.Fenced):
            table.close()
    assert rows_of(later) == {n: n for n in range(12_000)}
    later.close()


def test_a_commit_through_an_open_table(store: MemoryObjectStore) -> None:
    with made(store, tablets=2) as table:
        job = jobs.begin(handle_of(table), "insert", COLUMNS)
        runs = staged(job, rows(range(12_000)))
        assert jobs.commit_job(job, runs, handle_of(table)).inserted == 12_000
        assert jobs.resume(URL, job.id, handle_of(table)).deduplicated
        refused = jobs.begin(handle_of(table), "insert", COLUMNS)
        runs = staged(refused, rows(range(11_999, 24_000)))
        with pytest.raises(kc.RowErrors, match="1 row"):
            jobs.commit_job(refused, runs, handle_of(table))
        assert f"staging/{refused.id}/JOB" not in store.objects
        with pytest.raises(kc.InvalidArgument, match="knows nothing of a job"):
            jobs.commit_job(refused, runs, handle_of(table))
        over = jobs.begin(handle_of(table), "insert", COLUMNS, overwrite=True)
        runs = staged(over, rows(range(5)))
        assert jobs.commit_job(over, runs, handle_of(table)).inserted == 5
        assert rows_of(table) == {n: n for n in range(5)}
        assert not table.verify().foreign
    with opened(store) as table:
        assert rows_of(table) == {n: n for n in range(5)}


def test_few_rows_of_a_job_go_through_the_log(store: MemoryObjectStore) -> None:
    with made(store):
        pass
    job = begun()
    assert commit_held(job, [rows(range(5))]).inserted == 5
    assert not job_files(store)
    with opened(store, "rw"):
        job = begun()
        with pytest.raises(kc.Locked) as told:
            commit_held(replace(job, lock_timeout_s=0.0), [rows(range(5, 10))])
        assert any(job.id in note for note in told.value.__notes__)
    assert jobs.resume(URL, job.id).inserted == 5
    with opened(store) as table:
        assert rows_of(table) == {n: n for n in range(10)}


def test_a_mark_that_cannot_be_put_fails_no_commit(
    store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made(store):
        pass
    job = begun()
    runs = staged(job, rows(range(12_000)))
    real = store.put

    def put(path: str, *rest: object) -> object:
        if path.endswith(".committed"):
            raise StoreError("denied")
        return real(path, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(store, "put", put)
        assert jobs.commit_job(job, runs).inserted == 12_000
    assert jobs.commit_job(job, runs).deduplicated
