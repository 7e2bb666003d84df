"""Distributed writes: many processes stage and resolve runs, one commits them all as one record.

    begin -> (tasks: JobStager -> StagedRun) -> (tasks: resolve -> Resolution) -> commit_job    or    abandon

Staging touches no tablet and takes no lock, so an attempt may fail, be repeated or outlive its job: what
the commit is not told of stays an unreferenced file (protocol J1).  ``resolve`` (``resolve.py``) asks a
table that is open for reading; who skips it has the commit do that work, on threads.  The record names
files of the tablets, links or copies of staged ones, so staging may go at any time afterwards.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kudu_core.common.format.names import is_job
from kudu_core.common.idempotence.fingerprint import OVERWRITING as OVERWRITING_ROWS
from kudu_core.common.idempotence.writers import GIVEN_UP, AppliedWrite, Txn
from kudu_core.common.run.locks import Claim
from kudu_core.common.types.types import TYPE_BOOL, TYPE_FLOAT, ColumnType
from kudu_core.errors import (
    Closed,
    Corruption,
    InvalidArgument,
    Locked,
    RowErrors,
    SchemaMismatch,
    StoreError,
)
from kudu_core.events import Event, TableOpened
from kudu_core.objects.urls import is_url
from kudu_core.table.calls.refused import ON_ERROR_HINT
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.jobs.apply_job import another_table, apply_runs, files_at, files_of, seal, unknown_job
from kudu_core.table.jobs.job import JOB_OPERATIONS, Job, check_job, form_of, is_sealed, sealed, unsealed
from kudu_core.table.jobs.job_table import JobTable
from kudu_core.table.jobs.small import is_small
from kudu_core.table.jobs.stager import APPLY, JobStager
from kudu_core.table.lifecycle.handles import open_handle
from kudu_core.table.lifecycle.maintain import settle
from kudu_core.table.lifecycle.staging_folders import SEALED, conclude, forget, let_go
from kudu_core.table.opened.job_marks import job_directory, read_mark
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.staged import StagedRun

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle

IGNORE_HINT = "insert_ignore, update_ignore and delete_ignore leave out rows that are there or missing."
"""A distributed write has no ``on_error``."""
LAST_HINT = 'on_duplicate="last" with sequence_by= takes one of several rows of a key.'


def applied(handle: Handle, txn: Txn | None) -> WriteResult | None:
    """The answer of a write whose token ``handle`` has seen, where that needs no look at its rows.

    None is no promise that it was not applied: a reader may be behind, and rows are compared when they are
    staged, so the commit asks again.

    Raises
    ------
    TokenMismatch
        Whatever its rows, it is no repetition.
    """
    known = None if txn is None else handle.engine.writers.applied_writes.get(txn.app_id)
    if txn is None or known is None:
        return None
    counts = txn.repeats(known, handle.path)
    if counts is None:
        return None
    refused = 0 if txn.version == known.version else None  # its counts are not kept either
    return replace(_repeated(replace(known, counts=counts)), refused=refused)


def _repeated(known: AppliedWrite) -> WriteResult:
    return WriteResult(known.ts, *known.counts, deduplicated=True)


def _answered(path: str, job_id: str, known: AppliedWrite) -> WriteResult:
    """What became of a job before."""
    if known.version == GIVEN_UP:
        raise unknown_job(path, job_id)
    return _repeated(known)


# ---- staging ----


def begin(
    table: Handle | JobTable,
    operation: str,
    columns: Sequence[tuple[str, str]],
    *,
    txn: Txn | tuple[str, int] | tuple[str, int, str] | None = None,
    on_duplicate: str = "error",
    sequence_by: str | None = None,
    ignore_null: bool = False,
    lock_timeout_s: float | None = None,
    overwrite: bool = False,
) -> Job:
    """Make the directory that a job's attempts stage into.  The table may be open for reading, or be known by
    its TABLE alone.

    ``columns``: name and canonical type of what attempts are given; with ``sequence_by`` that column too.
    """
    token = check_job(operation, txn, on_duplicate, sequence_by, ignore_null, overwrite=overwrite)
    known = table if isinstance(table, JobTable) else JobTable.of(table.opened())
    sequence = None
    if sequence_by is not None:
        sequence = next(((name, type_) for name, type_ in columns if name == sequence_by), None)
        if sequence is None:
            raise SchemaMismatch(f"column {sequence_by!r}, which sequence_by names, is missing")
        if ColumnType.parse(sequence[1]).kind in (TYPE_FLOAT, TYPE_BOOL):
            raise SchemaMismatch(f"column {sequence_by!r} is {sequence[1]}, which says no order of rows")
    form = {
        "schema": known.schema.to_json(),
        "partitions": known.partitions.to_json(),
        "options": known.options.to_json(),
        "operation": operation,
        "sequence": sequence,
        "ignore_null": ignore_null,
    }
    job = Job(
        id=f"job-{uuid.uuid4().hex}",
        table_path=known.path,
        table_uuid=known.uuid.hex(),
        form=json.dumps(form),
        operation=operation,
        columns=tuple(columns),
        txn=token,
        on_duplicate=on_duplicate,
        lock_timeout_s=known.options.lock_timeout_s if lock_timeout_s is None else lock_timeout_s,
        overwrite=overwrite,
        storage_options=known.storage_options,
    )
    if is_url(known.path):  # before any of its files is there (protocol B13)
        known.fs.replace_file(f"{job_directory(known.path, job.id)}/{SEALED}", sealed(job, None))
        return job
    known.fs.mkdir(f"{known.path}/staging", exist_ok=True)
    known.fs.mkdir(job.directory)
    known.fs.sync_dir(f"{known.path}/staging")
    return job


def stager(job: Job, name: str, fs: FileSystem | None = None) -> JobStager:
    """For one attempt, whose files' names begin with ``name``, as no other attempt's do."""
    added = None
    if job.txn is not None:
        added = OVERWRITING_ROWS if job.overwrite else 0
    return JobStager(fs or files_of(job), job.directory, form_of(job), name, added)


# ---- committing ----


def commit_job(
    job: Job,
    runs: Sequence[StagedRun],
    handle: Handle | None = None,
    resolutions: Sequence[Resolution] = (),
) -> WriteResult:
    """Commit the runs of the attempts that won, through ``handle`` or one that is opened for it.

    ``resolutions``: what ``resolve`` has found of these runs, of some tablets or of all.

    Raises
    ------
    RowErrors, SchemaMismatch, TokenMismatch, InvalidArgument, Corruption
        Nothing was applied and the runs are gone.  ``InvalidArgument`` also where nothing is known of the
        job; the message says what that may mean.
    Locked
        Another writer kept the table for ``lock_timeout_s``.
    OSError, Poisoned, ...
        The write may have been applied or not.  After these and ``Locked`` the runs are kept: ``resume``
        commits them, unless they are committed already, until they are older than ``staging_grace_s``.
    """
    if handle is None:
        fs = files_of(job)
        known = read_mark(fs, job.table_path, job.id)
        if known is not None:
            let_go(fs, job.table_path, job.id)
            return _answered(job.table_path, job.id, known)
    has_job = handle is None and seal(job, runs)
    with opened_for(job, handle) as engine:
        mine = replace(job, table_path=engine.path)

        def apply() -> WriteResult:
            return apply_runs(engine, mine, runs, resolutions, has_job=has_job)

        return committed(engine, mine, apply)


@contextmanager
def opened_for(job: Job, handle: Handle | None) -> Iterator[Engine]:
    """The job's table, open for writing: that of ``handle``, or opened for as long as this is entered."""
    if handle is not None:
        engine = handle.for_writing()
        if engine.uuid.hex() != job.table_uuid:
            raise another_table(engine.path)
        yield engine
        return
    replayed: list[int] = []

    def note(event: Event) -> None:
        if isinstance(event, TableOpened):
            replayed.append(event.records_replayed)

    try:
        opened = open_handle(
            job.table_path, "rw", timeout_s=job.lock_timeout_s, listener=note,
            storage_options=job.storage_options,
        )  # fmt: skip
    except Locked as exc:
        exc.add_note(
            f"The staged rows are kept: kudu_core.spark.commit({job.table_path!r}, {job.id!r}) writes them "
            "when the table is free."
        )
        raise
    with opened:
        yield opened.engine
        settle(opened.engine, sum(replayed))


def committed(engine: Engine, job: Job, apply: Callable[[], WriteResult]) -> WriteResult:
    """Apply all rows of a job by ``apply``, as one record, or none, unless that was done; then leave the
    job's mark (protocol J2).  What is refused is removed."""
    with engine.writers.job_lock(job.id):
        known = engine.writers.applied_jobs.get(job.id) or read_mark(engine.fs, engine.path, job.id)
        if known is not None:
            engine.wait_visible(known.ts)
            if job.id not in engine.writers.applied_jobs:
                let_go(engine.fs, engine.path, job.id)
            return _answered(engine.path, job.id, known)
        with Claim(engine.writers.committing, job.id):
            result = _applied_or_removed(engine, job, apply)
            if result.refused:  # of a repetition: rows of one key that were dropped; a job is refused whole
                result = replace(result, refused=0)
            engine.log.wait_durable(engine.log.cut())
            counts = (result.inserted, result.updated, result.deleted, result.ignored)
            known = engine.writers.applied_jobs.get(job.id) or AppliedWrite(0, result.timestamp, counts)
            # Else the next sweep or open does it, or whoever would drop the record.
            with suppress(OSError, Corruption, Closed, StoreError):
                conclude(engine, job.id, known)
    return result


def _applied_or_removed(engine: Engine, job: Job, apply: Callable[[], WriteResult]) -> WriteResult:
    try:
        return apply()
    except (InvalidArgument, RowErrors, Corruption) as exc:
        if job.id not in engine.writers.applied_jobs:
            forget(engine.fs, engine.path, job.id)
        if isinstance(exc, RowErrors):
            hint = LAST_HINT if job.overwrite else IGNORE_HINT
            raise RowErrors(str(exc).replace(ON_ERROR_HINT, hint), exc.errors) from None
        raise


# ---- the other ends ----


def abandon(job: Job) -> bool:
    """Remove the staging of a job that will not be committed; whether it was committed all the same.

    Looks for the record first.  Where a commit has begun and none is to be seen, the runs are kept: that
    commit removes them itself, or ``resume`` needs them, or they go after ``staging_grace_s``.
    """
    fs, path = files_of(job), job.table_path
    known = read_mark(fs, path, job.id)
    if known is not None:
        let_go(fs, path, job.id)
        return known.version != GIVEN_UP
    if not is_sealed(fs, path, job.id):
        forget(fs, path, job.id)
        return False
    known = _in_log(path, job.id, job.storage_options)
    return known is not None and known.version != GIVEN_UP


def _in_log(path: str, job_id: str, storage_options: Mapping[str, Any] | None) -> AppliedWrite | None:
    """What the log still says of a committed job."""
    with open_handle(path, storage_options=storage_options) as handle:
        return handle.engine.writers.applied_jobs.get(job_id)


def resume(
    path: str,
    job_id: str,
    handle: Handle | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> WriteResult:
    """Commit a job whose commit found the table locked, or of which nobody knows whether it ended.

    Raises
    ------
    InvalidArgument
        Nothing is known of the job; the message says what that may mean.
    """
    if not is_job(job_id):
        raise InvalidArgument(f"{job_id!r} is no id of a job; that is job- and 32 hex digits")
    if handle is not None:
        path = handle.for_writing().path
    fs = files_at(path, storage_options) if handle is None else handle.engine.fs
    known = read_mark(fs, path, job_id)
    if known is not None:
        let_go(fs, path, job_id)
    elif not is_sealed(fs, path, job_id):
        if handle is None:
            known = _in_log(path, job_id, storage_options)
        else:
            known = handle.engine.writers.applied_jobs.get(job_id)
        if known is None:
            raise unknown_job(path, job_id)
    if known is not None:
        return _answered(path, job_id, known)
    return commit_job(*unsealed(fs, path, job_id, storage_options), handle)


__all__ = [
    "APPLY",
    "JOB_OPERATIONS",
    "Job",
    "abandon",
    "another_table",
    "applied",
    "apply_runs",
    "begin",
    "check_job",
    "commit_job",
    "committed",
    "form_of",
    "is_small",
    "opened_for",
    "resume",
    "seal",
    "stager",
]
