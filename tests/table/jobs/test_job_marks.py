"""The marks of committed jobs: what is known of a job and for how long, and what sweeps of staging take."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.common.format import names
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.lifecycle import staging_folders
from kudu_core.table.opened import writers
from tests.support.faults import TINY, segments_of
from tests.support.fs.faulty import CHANGES, FaultyFileSystem
from tests.support.inside import (
    engine_of,
    handle_of,
    sweep_soon,
)
from tests.support.staged import marks, waiting
from tests.table.jobs.test_job_commits import FILES, KEYS, SCHEMA, forget, rows_of, stage

# ---- what is known, and for how long ----


def make_old(*paths: str | Path) -> None:
    for path in paths:
        os.utime(path, (0, 0))


def test_after_the_grace_nothing_is_known_and_the_error_says_what_that_means(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with kc.create_table(path, SCHEMA, "k", options=FILES) as table:
        job, runs = stage(table, KEYS)
        jobs.commit_job(job, runs, handle_of(table))
        make_old(path / "staging" / names.mark_of_job(job.id))
    with segments_of(TINY), kc.open_table(path, "rw") as table:
        assert marks(path) == [], "its grace is over"
        assert jobs.resume(table.path, job.id, handle_of(table)).deduplicated, "the log still has the record"
        forget(table)
    with kc.open_table(path, "rw") as table:
        assert marks(path) == [] == waiting(path)
        asks = partial(jobs.resume, table.path, job.id), partial(jobs.commit_job, job, runs)
        for ask in asks:
            with pytest.raises(kc.InvalidArgument, match="staging_grace_s") as caught:
                ask(handle_of(table))
            assert job.id in str(caught.value) and "txn=" in str(caught.value)
        assert len(rows_of(table)) == 50


@pytest.mark.parametrize("job_id", ["../../x", "", "job-1", "job-" + "0" * 32 + "\n", f"merge-{0:032x}"])
def test_what_is_no_id_of_a_job_is_refused(tmp_path: Path, job_id: str) -> None:
    kc.create_table(tmp_path / "t", SCHEMA, "k").close()
    with pytest.raises(kc.InvalidArgument, match="no id of a job"):
        jobs.resume(str(tmp_path / "t"), job_id)


def test_a_retried_commit_whose_folder_is_gone(tmp_path: Path) -> None:
    """Never an error of the system's: the token knows, or the log does, or ours says that nothing does."""
    path = tmp_path / "t"
    with kc.create_table(path, SCHEMA, "k", options=FILES) as table:
        job, runs = stage(table, KEYS, txn=("app", 1))
        assert jobs.commit_job(job, runs, handle_of(table))
        assert not engine_of(table).writers.applied_jobs, "by its mark"
        os.unlink(path / "staging" / names.mark_of_job(job.id))
        assert jobs.commit_job(job, runs, handle_of(table)).deduplicated
        lost, runs = stage(table, [1])
        os.rename(lost.directory, tmp_path / "lost")
        for ask in (partial(jobs.commit_job, lost, runs), partial(jobs.resume, table.path, lost.id)):
            with pytest.raises(kc.InvalidArgument, match="knows nothing of a job"):
                ask(handle_of(table))
    with pytest.raises(kc.InvalidArgument, match="knows nothing of a job"):
        jobs.commit_job(lost, runs)
    with pytest.raises(kc.InvalidArgument, match="knows nothing of a job"):
        jobs.resume(str(path), lost.id)


def test_not_more_marks_are_kept_than_can_be_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_folders, "MARKS_KEPT", 3)
    path = tmp_path / "t"
    with kc.create_table(path, SCHEMA, "k", options=FILES) as table:
        done = []
        for number in range(6):
            job, runs = stage(table, [number])
            jobs.commit_job(job, runs, handle_of(table))
            os.utime(path / "staging" / names.mark_of_job(job.id), (2e9 + number, 2e9 + number))
            done.append(job.id)
        sweep_soon(table)
        table.gc()
        assert marks(path) == sorted(done[3:])


# ---- beside a close ----


def test_a_commit_that_a_close_overtakes_leaves_its_mark_to_the_next_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lease nothing is written: another writer may have the table by then."""
    path = tmp_path / "t"
    real = jobs.conclude

    def overtaken(*given: Any) -> None:
        table.close()
        real(*given)

    monkeypatch.setattr(jobs, "conclude", overtaken)
    with kc.create_table(path, SCHEMA, "k", options=FILES) as table:
        job, runs = stage(table, KEYS)
        assert jobs.commit_job(job, runs, handle_of(table)).inserted == 30
    assert (marks(path), waiting(path)) == ([], [job.id])
    with kc.open_table(path, "rw") as table:
        assert (marks(path), waiting(path)) == ([job.id], [])
        assert jobs.resume(table.path, job.id, handle_of(table)).deduplicated
        assert len(rows_of(table)) == 30


def test_a_close_waits_for_a_mark_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    said: list[str] = []
    come = threading.Event()
    real_mark, real_close = writers.leave_mark, writers.Writers.close
    closing = threading.Thread(target=lambda: table.close())

    def slow_mark(*given: Any) -> None:
        closing.start()
        come.wait()
        closing.join(0.05)  # it would come to its end, if it could
        real_mark(*given)
        said.append("marked")

    def close(of: writers.Writers) -> None:
        come.set()
        real_close(of)
        said.append("closed")

    monkeypatch.setattr(writers, "leave_mark", slow_mark)
    monkeypatch.setattr(writers.Writers, "close", close)
    with kc.create_table(path, SCHEMA, "k", options=FILES) as table:
        job, runs = stage(table, KEYS)
        jobs.commit_job(job, runs, handle_of(table))
        closing.join()
        assert said == ["marked", "closed"]
    assert (marks(path), waiting(path)) == ([job.id], [])


# ---- sweeps ----


def test_a_grace_of_nothing_takes_nothing_that_is_under_way(tmp_path: Path) -> None:
    """``staging_grace_s=0`` means: as soon as nobody can be at work there."""
    path = tmp_path / "t"
    options = {**FILES, "staging_grace_s": 0.0}
    kc.create_table(path, SCHEMA, "k", options=options).close()
    with kc.open_table(path) as reader:
        job, runs = stage(reader, KEYS)
    with kc.open_table(path, "rw") as table:
        assert waiting(path) == [job.id], "its heartbeat is fresh"
        sweep_soon(table)
        table.gc()
        assert waiting(path) == [job.id]

        swept = [0]

        def sweep(call: Any) -> None:
            """At each call of the commit, with all that is in staging made old."""
            if swept[0] < 0 or call.op not in CHANGES:
                return
            number, swept[0] = swept[0], -1
            for name in os.listdir(path / "staging"):
                make_old(path / "staging" / name)
            sweep_soon(table)
            staging_folders.sweep_staging(engine_of(table))
            swept[0] = number + 1

        engine_of(table).fs = FaultyFileSystem(engine_of(table).fs, before=sweep)
        assert jobs.commit_job(job, runs, handle_of(table)).inserted == 30
        assert swept[0] > 5
        engine_of(table).fs = engine_of(table).fs.inner
        assert len(rows_of(table)) == 30
        abandoned, _ = stage(table, [1])
        make_old(abandoned.directory)
        sweep_soon(table)
        table.gc()
        assert waiting(path) == []


def test_sweeps_touch_only_names_that_we_give(tmp_path: Path) -> None:
    """Protocol G6: what is ours goes after its grace, what is not is left alone."""
    path = tmp_path / "t"
    kc.create_table(path, SCHEMA, "k", options={**FILES, "staging_grace_s": 0.0}).close()
    ours = [f"{kind}-{7:032x}" for kind in ("job", "ingest", "merge")]
    mark = names.mark_of_job(ours[0])
    foreign = [
        "notes", "job-1", "JOB", "ingest-", f"merge-{7:032x}x", f"Job-{7:032x}", f"job-{7:032x}\n", "x" * 200,
        f"merge-{7:032x}.committed", ".notes.tmp", f".{ours[1]}.0123.tmp", "back\\slash", "new\nline",
    ]  # fmt: skip
    for name in (*ours, *foreign):
        (path / "staging" / name).mkdir()
        (path / "staging" / name / "file").write_text("x")
    (path / "staging" / mark).write_text("[5,0,0,0,0]")
    (path / "staging" / f".{mark}.0123.tmp").write_text("[5,")
    raw = os.fsencode(path / "staging") + b"/\xff\xfe"
    os.mkdir(raw)
    link = f"job-{8:032x}"
    (path / "staging" / link).symlink_to(tmp_path)
    file = f"merge-{8:032x}"
    (path / "staging" / file).write_text("a file with the name of a folder")
    done = f"job-{9:032x}"
    (path / "staging" / done).mkdir()
    (path / "staging" / names.mark_of_job(done)).write_text("[5,0,0,0,0]")
    at_once = (*ours[1:], done, names.mark_of_job(done), f".{mark}.0123.tmp")
    for name in set(os.listdir(path / "staging")) - set(at_once):
        os.utime(path / "staging" / name, (0, 0), follow_symlinks=False)
    for _ in range(2):
        with kc.open_table(path, "rw") as table:
            sweep_soon(table)
            table.gc()
    left = [*foreign, os.fsdecode(b"\xff\xfe"), link, file, names.mark_of_job(done)]
    assert sorted(os.listdir(path / "staging")) == sorted(left)
    assert all(os.listdir(path / "staging" / name) == ["file"] for name in foreign)


def test_a_mark_that_somebody_is_writing_stays_until_the_next_open(tmp_path: Path) -> None:
    """Its writer may be another thread of this process; behind a lease that was taken there is none."""
    path = tmp_path / "t"
    mark = path / "staging" / f".{names.mark_of_job(f'job-{7:032x}')}.0123.tmp"
    with kc.create_table(path, SCHEMA, "k") as table:
        mark.write_text("[5,")
        sweep_soon(table)
        table.gc()
        assert mark.exists()
    kc.open_table(path, "rw").close()
    assert not mark.exists()
