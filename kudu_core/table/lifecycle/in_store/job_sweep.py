"""What distributed writes leave in an object store, and who takes it away (protocol B13).

What a task puts may come late, and what a LIST lacks may be there.  So nothing is judged by a name alone: a
job is over when its mark says so, or when GET finds neither mark nor JOB, by which somebody could commit it.
One that nobody ends is given up by a record in the log, which whoever would commit it finds.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kudu_core.common.format import names
from kudu_core.common.format.names import job_of_mark, mark_of_job
from kudu_core.common.idempotence.writers import GIVEN_UP, AppliedWrite
from kudu_core.common.run.locks import Claim
from kudu_core.errors import Closed
from kudu_core.table.lifecycle.staging_folders import FRESH_S, SEALED, SWEEP_S, conclude
from kudu_core.table.opened.job_marks import read_mark
from kudu_core.table.opened.record import recorded
from kudu_core.tablet.store import records
from kudu_core.wal import RECORD_KIND_INGEST

if TYPE_CHECKING:
    from kudu_core.objects.api import ObjectStore
    from kudu_core.table.lifecycle.in_store.table_object import TableObject
    from kudu_core.table.opened.engine import Engine

FILES: Final = names.job_files("")[1:]
STAGING: Final = "staging"
_NONE = (0, 0, 0, 0)


@dataclass(slots=True)
class _Left:
    """What a LIST shows of a job; times in seconds since 1970, of the store's clock."""

    files: list[str]
    newest_s: float = 0.0
    has_job: bool = False
    marked_s: float | None = None


class JobSweep:
    """The sweep of one table that is open for writing."""

    def __init__(self, engine: Engine, store: ObjectStore, table: TableObject, request_life_s: float) -> None:
        """``request_life_s``: a mark outlives the last put that may arrive."""
        self._engine = engine
        self._store = store
        self._table = table
        self._request_life_s = request_life_s
        # A process that opens the table for one commit leaves it to others.
        wait_s = SWEEP_S if engine.options.maintenance == "background" else 0.0
        self._next_s = engine.clock.monotonic_s() + wait_s

    def due(self) -> list[str]:
        """Names of objects that nobody needs, and nobody ever will; nothing before its time has come."""
        engine, now_s = self._engine, self._engine.clock.monotonic_s()
        if now_s < self._next_s or engine.poisoned is not None:
            return []
        self._next_s = now_s + max(SWEEP_S, engine.options.staging_grace_s / 4)
        oldest_s = self._ago(max(engine.options.staging_grace_s, FRESH_S))
        over: list[str] = []
        for job_id, left in self._listed().items():
            if job_id not in engine.writers.committing:
                over += self._of(job_id, left, oldest_s)
        # After the jobs were found to be over: nobody takes a file of them in any more.
        named = self._named() if over else ()
        chosen = [name for name in over if name not in named]
        if chosen:
            # A later writer may have committed one of them: then the choice may be wrong.
            self._table.prove()
        return chosen

    def _ago(self, seconds: float) -> float:
        return self._engine.clock.now_us() / 1e6 - seconds

    def _listed(self) -> dict[str, _Left]:
        found: dict[str, _Left] = {}
        for entry in (*self._store.entries(FILES), *self._store.entries(STAGING)):
            _, name, *beneath = entry.name.split("/", 2)
            marked = None if beneath else job_of_mark(name)
            job_id = marked or name
            if not names.is_job(job_id):
                continue
            left = found.setdefault(job_id, _Left([]))
            if marked is not None:
                left.marked_s = entry.mtime_s
                continue
            left.files.append(entry.name)
            left.newest_s = max(left.newest_s, entry.mtime_s)
            left.has_job |= entry.name == _job_name(job_id)
        return found

    def _of(self, job_id: str, left: _Left, oldest_s: float) -> Iterable[str]:
        """What may go of one job, unless a tablet names it."""
        if left.marked_s is None and not self._is_over(job_id, left, oldest_s):
            return ()
        over_s = left.newest_s if left.marked_s is None else left.marked_s
        if over_s >= oldest_s:
            return ()
        if left.files:
            return left.files
        is_old = left.marked_s is not None and left.marked_s < self._ago(self._request_life_s)
        return (f"{STAGING}/{mark_of_job(job_id)}",) if is_old else ()

    def _is_over(self, job_id: str, left: _Left, oldest_s: float) -> bool:
        """Of a job whose mark is not listed.  One that nobody has ended in time is given up."""
        engine = self._engine
        known = engine.writers.applied_jobs.get(job_id)
        if known is not None:
            if known.ts <= engine.committed_ts:
                conclude(engine, job_id, known)
            return False  # the next look finds the mark, and the time at which it was put
        if self._is_marked(job_id):
            return False
        if not left.has_job and not self._has_job(job_id):
            return True
        if left.newest_s < oldest_s:
            self._give_up(job_id)
        return False

    def _is_marked(self, job_id: str) -> bool:
        return read_mark(self._engine.fs, self._engine.path, job_id) is not None

    def _has_job(self, job_id: str) -> bool:
        try:
            self._store.read_ranges(_job_name(job_id), [(0, 1)])
        except FileNotFoundError:
            return False
        return True

    def _give_up(self, job_id: str) -> None:
        """By a record: a driver that opens the table later finds it, one that opened it before is fenced."""
        engine = self._engine
        with suppress(Closed), engine.writers.job_lock(job_id), Claim(engine.writers.committing, job_id):
            # It may have been committed since the look, and its mark is all that is known of that then.
            if job_id in engine.writers.applied_jobs or self._is_marked(job_id):
                return
            said = {"parts": {}, "counts": list(_NONE), "job": job_id, "given_up": True}
            record = records.encode(records.Payload((), [], said))
            with recorded(engine, RECORD_KIND_INGEST, engine.schema.version, record) as ts:
                known = engine.writers.applied_jobs[job_id] = AppliedWrite(GIVEN_UP, ts, _NONE)
            engine.log.wait_durable(ts)
            conclude(engine, job_id, known)

    def _named(self) -> set[str]:
        """The files of jobs that tablets name, or have dropped and not deleted yet."""
        return {
            name
            for tablet in self._engine.tablets
            for name in tablet.state.files | tablet.state.retired
            if names.is_job_file(name)
        }


def _job_name(job_id: str) -> str:
    return f"{STAGING}/{job_id}/{SEALED}"


__all__ = ["JobSweep"]
