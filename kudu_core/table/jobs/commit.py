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
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.common.format.names import is_job
from kudu_core.common.idempotence.fingerprint import NO_ROWS
from kudu_core.common.idempotence.fingerprint import OVERWRITING as OVERWRITING_ROWS
from kudu_core.common.idempotence.writers import AppliedWrite, Txn
from kudu_core.common.rows.keys import encode_keys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.run.cycles import cycles_left
from kudu_core.common.run.locks import Claim
from kudu_core.common.types.types import TYPE_BOOL, TYPE_FLOAT, ColumnType
from kudu_core.errors import Corruption, InvalidArgument, Locked, RowErrors, SchemaMismatch
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.calls.call import Call, joined
from kudu_core.table.calls.refused import ON_ERROR_HINT
from kudu_core.table.calls.repeats import last_rows
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.ingest.build import SortedRows
from kudu_core.table.ingest.ingest import ingest_sorted
from kudu_core.table.ingest.overwrite import overwrite_sorted
from kudu_core.table.jobs.job import JOB_OPERATIONS, Job, check_job, form_of, sealed, unsealed
from kudu_core.table.jobs.resolve import Resolution, accept, sorted_rows
from kudu_core.table.jobs.stager import APPLY, Form, JobStager
from kudu_core.table.lifecycle.staging_folders import SEALED, conclude, remove
from kudu_core.table.opened.job_marks import job_directory, read_mark
from kudu_core.table.opened.record import already_applied, once
from kudu_core.table.runs.spilled import OpenRuns
from kudu_core.table.runs.staged import StagedRows, StagedRun, check_run
from kudu_core.table.table import Table, open_table
from kudu_core.table.write.door import write_parts

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.options import Options
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.ingest.part import IngestPart
    from kudu_core.tablet.store.tablet import Tablet

IGNORE_HINT = "insert_ignore, update_ignore and delete_ignore leave out rows that are there or missing."
"""A distributed write has no ``on_error``."""
LAST_HINT = 'on_duplicate="last" with sequence_by= takes one of several rows of a key.'
CHECKED_AT_ONCE = 64
"""Staged files that one call of a worker looks at: handing over each for itself costs more than the look."""


def applied(table: Table, txn: Txn | None) -> WriteResult | None:
    """The answer of a write whose token ``table`` has seen, where that needs no look at its rows.

    None is no promise that it was not applied: a reader may be behind, and rows are compared when they are
    staged, so the commit asks again.

    Raises
    ------
    TokenMismatch
        Whatever its rows, it is no repetition.
    """
    known = None if txn is None else table._engine.writers.applied_writes.get(txn.app_id)
    if txn is None or known is None:
        return None
    counts = txn.repeats(known, table.path)
    return None if counts is None else _repeated(replace(known, counts=counts))


def _repeated(known: AppliedWrite) -> WriteResult:
    return WriteResult(known.ts, *known.counts, deduplicated=True)


# ---- staging ----


def begin(
    table: Table,
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
    """Make the directory that a job's attempts stage into.  ``table`` may be open for reading.

    ``columns``: name and canonical type of what attempts are given; with ``sequence_by`` that column too.
    """
    token = check_job(operation, txn, on_duplicate, sequence_by, ignore_null, overwrite=overwrite)
    engine = table._opened()
    sequence = None
    if sequence_by is not None:
        sequence = next(((name, type_) for name, type_ in columns if name == sequence_by), None)
        if sequence is None:
            raise SchemaMismatch(f"column {sequence_by!r}, which sequence_by names, is missing")
        if ColumnType.parse(sequence[1]).kind in (TYPE_FLOAT, TYPE_BOOL):
            raise SchemaMismatch(f"column {sequence_by!r} is {sequence[1]}, which says no order of rows")
    form = {
        "schema": engine.schema.to_json(),
        "partitions": engine.partitions.to_json(),
        "options": engine.options.to_json(),
        "operation": operation,
        "sequence": sequence,
        "ignore_null": ignore_null,
    }
    job = Job(
        id=f"job-{uuid.uuid4().hex}",
        table_path=engine.path,
        table_uuid=engine.uuid.hex(),
        form=json.dumps(form),
        operation=operation,
        columns=tuple(columns),
        txn=token,
        on_duplicate=on_duplicate,
        lock_timeout_s=engine.options.lock_timeout_s if lock_timeout_s is None else lock_timeout_s,
        overwrite=overwrite,
    )
    engine.fs.mkdir(f"{engine.path}/staging", exist_ok=True)
    engine.fs.mkdir(job.directory)
    engine.fs.sync_dir(f"{engine.path}/staging")
    return job


def stager(job: Job, name: str, fs: FileSystem | None = None) -> JobStager:
    """For one attempt, whose files' names begin with ``name``, as no other attempt's do."""
    added = None
    if job.txn is not None:
        added = OVERWRITING_ROWS if job.overwrite else 0
    return JobStager(fs or _files_of(job.table_path), job.directory, form_of(job), name, added)


def _files_of(table_path: str) -> FileSystem:
    return PosixFileSystem().rooted(table_path)


# ---- committing ----


def commit_job(
    job: Job,
    runs: Sequence[StagedRun],
    table: Table | None = None,
    resolutions: Sequence[Resolution] = (),
) -> WriteResult:
    """Commit the runs of the attempts that won, through ``table`` or one that is opened for it.

    ``resolutions``: what ``resolving.resolve`` has found of these runs, of some tablets or of all.

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
    if table is not None:
        engine = table._opened_for_writing()
        if engine.uuid.hex() != job.table_uuid:
            raise another_table(engine.path)
        return _commit(engine, replace(job, table_path=engine.path), runs, resolutions, is_sealed=False)
    fs = _files_of(job.table_path)
    known = read_mark(fs, job.table_path, job.id)
    if known is not None:
        remove(fs, job.directory)
        return _repeated(known)
    is_sealed = _seal(fs, job, runs)
    try:
        opened = open_table(job.table_path, "rw", timeout_s=job.lock_timeout_s)
    except Locked as exc:
        exc.add_note(
            f"The staged rows are kept: kudu_core.spark.commit({job.table_path!r}, {job.id!r}) writes them "
            "when the table is free."
        )
        raise
    with opened:
        return _commit(opened._engine, job, runs, resolutions, is_sealed=is_sealed)


def _seal(fs: FileSystem, job: Job, runs: Sequence[StagedRun]) -> bool:
    """Note what is to be committed; False where nothing is left of the job's folder."""
    try:
        fs.replace_file(f"{job.directory}/{SEALED}", sealed(job, runs))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _commit(
    engine: Engine, job: Job, runs: Sequence[StagedRun], resolutions: Sequence[Resolution], *, is_sealed: bool
) -> WriteResult:
    """Apply all rows of the runs as one record, or none, unless that was done; then leave the job's mark
    (protocol J2)."""
    with engine.writers.job_lock(job.id):
        known = engine.writers.applied_jobs.get(job.id) or read_mark(engine.fs, engine.path, job.id)
        if known is not None:
            engine.wait_visible(known.ts)
            if job.id not in engine.writers.applied_jobs:
                remove(engine.fs, job.directory)
            return _repeated(known)
        with Claim(engine.writers.committing, job.id):
            result = _apply_or_remove(engine, job, runs, resolutions, is_sealed)
            engine.log.wait_durable(engine.log.cut())
            counts = (result.inserted, result.updated, result.deleted, result.ignored)
            known = engine.writers.applied_jobs.get(job.id) or AppliedWrite(0, result.timestamp, counts)
            with suppress(OSError, Corruption):  # the next sweep does it, or whoever would drop the record
                conclude(engine, job.id, known)
    return result


def _apply_or_remove(
    engine: Engine, job: Job, runs: Sequence[StagedRun], resolutions: Sequence[Resolution], is_sealed: bool
) -> WriteResult:
    """``_apply``; what is refused is removed."""
    try:
        with cycles_left(len(runs)):
            return _apply(engine, job, runs, resolutions, is_sealed)
    except (InvalidArgument, RowErrors, Corruption) as exc:
        if job.id not in engine.writers.applied_jobs:
            remove(engine.fs, job.directory)
        if isinstance(exc, RowErrors):
            hint = LAST_HINT if job.overwrite else IGNORE_HINT
            raise RowErrors(str(exc).replace(ON_ERROR_HINT, hint), exc.errors) from None
        raise


def another_table(path: str) -> InvalidArgument:
    return InvalidArgument(f"the table at {path} is another one than when the job began; run the job again")


def unknown_job(path: str, job_id: str) -> InvalidArgument:
    return InvalidArgument(
        f"{path} knows nothing of a job {job_id!r}. Either it was never begun there, or it was refused or "
        "abandoned, or its rows waited for longer than staging_grace_s: then none of them is in the table. "
        "Or it was committed, longer ago than staging_grace_s: then all of them are. Look for one of them. "
        "A write with txn= may be run again at any time: it is not applied twice"
    )


def _apply(
    engine: Engine, job: Job, runs: Sequence[StagedRun], resolutions: Sequence[Resolution], is_sealed: bool
) -> WriteResult:
    txn = _named(job, runs)
    repeated = None if txn is None else already_applied(engine, txn)
    if repeated is not None:
        return repeated
    if engine.uuid.hex() != job.table_uuid:
        raise another_table(engine.path)
    if not is_sealed and not _seal(engine.fs, job, runs):
        raise unknown_job(engine.path, job.id)
    form = form_of(job)
    _check_columns(engine, form, runs)
    with closing(OpenRuns(engine.fs)) as files:
        rows = sorted_rows(job, form, runs, files)
        if engine.schema.version == form.schema.version and engine.partitions == form.partitions:
            rows = replace(rows, schema=engine.schema, partitions=engine.partitions)
        _check_files(engine, job, runs, resolutions)
        if is_small(engine.options, runs) and not job.overwrite:
            return write_parts(engine, _calls(rows), txn=txn, job=job.id)
        rows.job = job.id

        def ingest() -> WriteResult:
            engine.memory.admit()
            return _ingest(engine, job, rows, txn, runs, resolutions)

        return once(engine, txn, ingest)


def _ingest(
    engine: Engine,
    job: Job,
    rows: SortedRows,
    txn: Txn | None,
    runs: Sequence[StagedRun],
    resolutions: Sequence[Resolution],
) -> WriteResult:
    # Beside the runs, so that it has their grace, and under another name for each try.
    staging = f"{job.directory}/commit-{uuid.uuid4().hex[:12]}"
    engine.fs.mkdir(staging)

    def resolved(tablets: Sequence[Tablet]) -> dict[int, IngestPart]:
        return accept(engine, job.directory, runs, tablets, resolutions, new=job.overwrite)

    if job.overwrite:
        return overwrite_sorted(engine, rows, txn=txn, staging=staging, resolved=resolved)
    return ingest_sorted(engine, rows, on_error="raise", txn=txn, staging=staging, resolved=resolved)


def _named(job: Job, runs: Sequence[StagedRun]) -> Txn | None:
    """The job's token with the fingerprint of all its rows, of which the runs have their shares."""
    if job.txn is None:
        return None
    rows = NO_ROWS
    for run in runs:
        if run.fingerprint is None or run.fingerprint.rows != run.rows:
            reason = "a run of a job with a token has no fingerprint of its rows"
            raise Corruption(f"{job.directory}/{run.file.name}", 0, reason)
        rows += run.fingerprint
    return job.txn.of(rows)


def is_small(options: Options, runs: Sequence[StagedRun]) -> bool:
    """Whether the rows go through the log, as those of a call of this size would."""
    return (
        sum(run.rows for run in runs) < options.ingest_threshold_rows
        and sum(run.nbytes for run in runs) < options.ingest_threshold_bytes
    )


def _calls(rows: SortedRows) -> Iterator[Call]:
    """All rows of some small runs as one call."""
    calls = [replace(call, ignore_null=rows.rules.ignore_null) for call in _each_call(rows)]
    if rows.rules.sequence is None or not calls:
        yield from calls
        return
    [call] = joined(calls)
    column_id, type_ = rows.rules.sequence
    parts = [run.column(column_id, 0, run.run.rows) for run in rows.runs if isinstance(run, StagedRows)]
    kept = last_rows(encode_keys(rows.schema, call.block), ColumnBuffers.concat(parts), type_)
    yield call if kept is None else call.take(kept)


def _each_call(rows: SortedRows) -> Iterator[Call]:
    mixed = len({run.op for run in rows.runs}) > 1
    for number, run in enumerate(rows.runs):
        assert isinstance(run, StagedRows)
        count = run.run.rows
        block = RowBlock({i: run.column(i, 0, count) for i in run.column_ids}, count)
        ops: int | np.ndarray = run.ops(0, count) if run.op is None or mixed else run.op
        yield Call(ops, block, run.status(0, count), unique=run.unique, continues=number > 0)


def _check_columns(engine: Engine, form: Form, runs: Sequence[StagedRun]) -> None:
    """What the job's rows say must have a place in the table of today."""
    for column_id in sorted({column_id for run in runs for column_id in run.column_ids}):
        if column_id not in engine.schema.by_id:
            name = form.schema.by_id[column_id].name
            raise SchemaMismatch(
                f"column {name!r} of {engine.path} was dropped while the job ran; run it again without it"
            )


def _check_files(engine: Engine, job: Job, runs: Sequence[StagedRun], found: Sequence[Resolution]) -> None:
    """Staged files must be those that their writers told of (protocol G3)."""
    told = chain((run.files for run in runs), (resolution.files for resolution in found))
    wanted = list(dict.fromkeys(chain.from_iterable(told)))  # what is adopted is told of twice

    def check(first: int) -> None:
        for file in wanted[first : first + CHECKED_AT_ONCE]:
            check_run(engine.fs, job.directory, file)

    for _ in engine.pool.map(check, range(0, len(wanted), CHECKED_AT_ONCE)):
        pass


# ---- the other ends ----


def abandon(job: Job) -> bool:
    """Remove the staging of a job that will not be committed; whether it was committed all the same.

    Looks for the record first.  Where a commit has begun and none is to be seen, the runs are kept: that
    commit removes them itself, or ``resume`` needs them, or they go after ``staging_grace_s``.
    """
    fs = _files_of(job.table_path)
    if read_mark(fs, job.table_path, job.id) is not None:
        remove(fs, job.directory)
        return True
    if not fs.exists(f"{job.directory}/{SEALED}"):
        remove(fs, job.directory)
        return False
    return _in_log(job.table_path, job.id) is not None


def _in_log(path: str, job_id: str) -> AppliedWrite | None:
    """What the log still says of a committed job."""
    with open_table(path) as table:
        return table._engine.writers.applied_jobs.get(job_id)


def resume(path: str, job_id: str, table: Table | None = None) -> WriteResult:
    """Commit a job whose commit found the table locked, or of which nobody knows whether it ended.

    Raises
    ------
    InvalidArgument
        Nothing is known of the job; the message says what that may mean.
    """
    if not is_job(job_id):
        raise InvalidArgument(f"{job_id!r} is no id of a job; that is job- and 32 hex digits")
    if table is not None:
        path = table._opened_for_writing().path
    fs = _files_of(path) if table is None else table._engine.fs
    directory = job_directory(path, job_id)
    known = read_mark(fs, path, job_id)
    if known is not None:
        remove(fs, directory)
    elif not fs.exists(f"{directory}/{SEALED}"):
        known = _in_log(path, job_id) if table is None else table._engine.writers.applied_jobs.get(job_id)
        if known is None:
            raise unknown_job(path, job_id)
    if known is not None:
        return _repeated(known)
    return commit_job(*unsealed(fs, path, job_id), table)


__all__ = [
    "APPLY",
    "JOB_OPERATIONS",
    "Job",
    "abandon",
    "applied",
    "begin",
    "check_job",
    "commit_job",
    "form_of",
    "is_small",
    "resume",
    "stager",
]
