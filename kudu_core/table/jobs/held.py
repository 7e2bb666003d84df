"""Jobs of few rows, which no task stages: they come to whoever commits, and go through the log as one call.

Their rows are held in memory, and their record has the job's id as that of any job.  Only where the commit
does not come to an end that is known, because the table is locked or a disk fails, are they staged and
sealed, so that ``resume`` finds what it finds of every job.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kudu_core.common.idempotence.fingerprint import NO_ROWS
from kudu_core.errors import Corruption, InvalidArgument, RowErrors, StoreError
from kudu_core.fs.base import NoFolder
from kudu_core.table.jobs.apply_job import another_table, apply_runs, seal
from kudu_core.table.jobs.commit import commit_job, committed, opened_for, stager
from kudu_core.table.jobs.job import form_of
from kudu_core.table.jobs.small import held_call
from kudu_core.table.write.door import write_parts

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.calls.call import Call
    from kudu_core.table.calls.result import WriteResult
    from kudu_core.table.jobs.job import Job
    from kudu_core.table.jobs.stager import JobStager
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle
    from kudu_core.table.runs.staged import StagedRun


def commit_held(
    job: Job,
    batches: Iterable[pa.RecordBatch],
    runs: Sequence[StagedRun] = (),
    handle: Handle | None = None,
) -> WriteResult:
    """Commit the rows of batches in the table's types, as ``commit_job`` does, whose errors these are.

    ``runs``: what attempts have staged.  Where there are any, or many rows, and in an overwrite, the rows of
    the batches are staged here and now.
    """
    attempt = _given(job, batches, None if handle is None else handle.opened().fs)
    if runs or job.overwrite or not attempt.is_small:
        return commit_job(job, [*runs, *attempt.finish()], handle)
    try:
        with opened_for(job, handle) as engine:
            mine = replace(job, table_path=engine.path)
            return committed(engine, mine, lambda: _apply(engine, mine, attempt))
    except (InvalidArgument, RowErrors, Corruption):
        raise  # refused, and nothing is left of it
    except BaseException as exc:
        _keep(job, attempt, exc)
        raise


def stage_held(job: Job, batches: Iterable[pa.RecordBatch]) -> list[StagedRun]:
    """Stage what attempts have handed back, beside what others have staged."""
    return _given(job, batches).finish()


def _given(job: Job, batches: Iterable[pa.RecordBatch], fs: FileSystem | None = None) -> JobStager:
    attempt = stager(job, f"held-{uuid.uuid4().hex[:12]}", fs)
    for batch in batches:
        attempt.append(batch)
    return attempt


def _apply(engine: Engine, job: Job, attempt: JobStager) -> WriteResult:
    form = form_of(job)
    if engine.uuid.hex() != job.table_uuid:
        raise another_table(engine.path)
    if engine.schema.version != form.schema.version or engine.partitions != form.partitions:
        return apply_runs(engine, job, attempt.finish())  # which fits them to the table of today
    held = attempt.held()
    calls: list[Call] = []
    rows = NO_ROWS
    if held is not None:
        call, sequence, fingerprint = held
        calls.append(held_call(form, call, sequence, unique=job.on_duplicate != "any"))
        rows = fingerprint or NO_ROWS
    txn = None if job.txn is None else job.txn.of(rows)
    return write_parts(engine, iter(calls), txn=txn, job=job.id)


def _keep(job: Job, attempt: JobStager, error: BaseException) -> None:
    """Stage what was held, for ``resume``, unless it was applied and its folder is gone."""
    try:
        seal(job, attempt.finish())
    except (OSError, StoreError, Corruption) as problem:
        if not isinstance(problem, FileNotFoundError | NoFolder):
            error.add_note(f"The rows could not be kept for kudu_core.spark.commit: {problem}")


__all__ = ["commit_held", "stage_held"]
