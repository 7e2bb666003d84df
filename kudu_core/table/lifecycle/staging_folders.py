"""The folders of ``staging/``: who may still need one, and who removes it (protocol G6).

A distributed write that is committed leaves a mark, a file in ``staging/`` of its id and ``MARK``, so that
whoever asks again within ``staging_grace_s`` is told when it was.  The record in the log says the same, and
the mark is written before the log may forget it: by the commit, by the next open for writing if the commit
died between or the table was closed under it, or by whoever is about to drop the record.  The job's folder
goes after that, and an attempt of a task that still writes there ends.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from kudu_core.common.format import names
from kudu_core.errors import Corruption, StoreError
from kudu_core.fs.base import temporary_of
from kudu_core.objects.urls import is_url
from kudu_core.table.opened.job_marks import job_directory

if TYPE_CHECKING:
    from kudu_core.common.idempotence.writers import AppliedWrite
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.opened.engine import Engine

SEALED = "JOB"
"""A job's file that lists its runs, written when the commit begins."""
MAX_SEALED_BYTES = 256 << 20
"""Of JOB."""
MARKS_KEPT = 1000
"""Of committed jobs, the newest: a stream that commits every second leaves no more behind."""
HEARTBEAT = "HEARTBEAT"
HEARTBEAT_S = 60.0
"""How often a long run renews its directory's time, by which abandoned staging is told (protocol G6)."""
FRESH_S = 10 * HEARTBEAT_S
"""Somebody may be at work in a folder that changed so short a time ago, whatever ``staging_grace_s`` is."""
SWEEP_S = 60.0
"""So often, at most, maintenance looks for what dead jobs have left."""


def conclude(engine: Engine, job_id: str, known: AppliedWrite) -> None:
    """A job's record is durable: leave the mark of it, and nothing else.  ``Closed``: all is as it was."""
    engine.writers.mark(job_id, known)
    let_go(engine.fs, engine.path, job_id)
    engine.writers.applied_jobs.pop(job_id, None)


def let_go(fs: FileSystem, path: str, job_id: str) -> None:
    """Of a job that is committed: its folder goes.  In a store its files may be the table's by now, and which
    are not is for a writer to say, later (protocol B13)."""
    if not is_url(path):
        remove(fs, job_directory(path, job_id))


def forget(fs: FileSystem, path: str, job_id: str) -> None:
    """Of a job that is not committed and will not be: its folder goes.  In a store JOB goes, without which
    nobody commits it.  Its files are the sweep's: who has been replaced, and does not know, may be wrong."""
    if not is_url(path):
        remove(fs, job_directory(path, job_id))
        return
    with suppress(OSError, StoreError):
        fs.unlink(f"{job_directory(path, job_id)}/{SEALED}")


def remove(fs: FileSystem, directory: str) -> None:
    """What cannot be removed now, because a late attempt still writes there, goes after its grace."""
    with suppress(OSError, Corruption):
        fs.rmtree(directory)


def sweep_staging(engine: Engine, *, opening: bool = False) -> int:
    """Remove staging that nobody can need any more; of how many ingests, jobs and merges.

    Those are what has the names that we give; all else that is there is left alone, and so is what this
    process is at work on.  Jobs, their marks and merges go when they have not changed for
    ``staging_grace_s``, and for ``FRESH_S``.  ``opening``: ingests and merges go at once, as their writer
    held the lease, and is gone.
    """
    now_s = engine.clock.monotonic_s()
    if not opening and now_s < engine.swept_s + min(SWEEP_S, engine.options.staging_grace_s / 4):
        return 0
    engine.swept_s = now_s
    fs, root = engine.fs, f"{engine.path}/staging"
    if not fs.is_dir(root):
        return 0
    found = fs.listdir(root)
    marks = {name for name in found if names.job_of_mark(temporary_of(name) or name)}
    _sweep_marks(engine, marks, opening)
    oldest_s = _oldest_s(engine)
    removed = 0
    for name in filter(names.is_staging, found):
        if name in engine.writers.committing or (name.startswith(names.INGEST) and not opening):
            continue
        path = f"{root}/{name}"
        # Somebody may write or remove it at this moment, or has put a link into it: another time, then.
        with suppress(OSError, Corruption):
            known = engine.writers.applied_jobs.get(name)
            if known is not None:
                if known.ts <= engine.committed_ts:
                    conclude(engine, name, known)
                    removed += 1
            elif (
                (names.is_job(name) and names.mark_of_job(name) in marks)
                or (opening and not names.is_job(name))
                or fs.stat(path).mtime_s < oldest_s
            ):
                fs.rmtree(path)
                removed += 1
    return removed


def _oldest_s(engine: Engine) -> float:
    return engine.clock.now_us() / 1e6 - max(engine.options.staging_grace_s, FRESH_S)


def _sweep_marks(engine: Engine, marks: Collection[str], opening: bool) -> None:
    """Remove marks whose grace is over, the oldest where there are too many, and unfinished ones."""
    fs, root = engine.fs, f"{engine.path}/staging"
    oldest_s = _oldest_s(engine)
    kept = []
    for name in marks:
        with suppress(OSError):
            unfinished = names.job_of_mark(name) is None
            written_s = fs.stat(f"{root}/{name}").mtime_s
            if written_s < oldest_s or (unfinished and opening):
                fs.unlink(f"{root}/{name}", missing_ok=True)
            elif not unfinished:
                kept.append((written_s, name))
    for _, name in sorted(kept)[:-MARKS_KEPT]:
        with suppress(OSError):
            fs.unlink(f"{root}/{name}", missing_ok=True)


__all__ = [
    "MAX_SEALED_BYTES",
    "SEALED",
    "conclude",
    "forget",
    "let_go",
    "remove",
    "sweep_staging",
]
