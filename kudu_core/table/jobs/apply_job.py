"""What a job comes to in its table, once that is open for writing: all its rows, as one record."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.clock import Clock
from kudu_core.common.run.cycles import cycles_left
from kudu_core.errors import InvalidArgument
from kudu_core.fs.base import NoFolder
from kudu_core.objects.urls import is_url
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.ingest.accept import Resolved
from kudu_core.table.ingest.build import SortedRows
from kudu_core.table.ingest.ingest import ingest_sorted, staging_of
from kudu_core.table.ingest.overwrite import overwrite_sorted
from kudu_core.table.jobs.check_staged import check_columns, check_files, named
from kudu_core.table.jobs.job import Job, form_of, is_sealed, sealed
from kudu_core.table.jobs.resolve import sorted_rows
from kudu_core.table.jobs.small import calls_of, is_small
from kudu_core.table.lifecycle.locations import location_of
from kudu_core.table.lifecycle.staging_folders import MAX_SEALED_BYTES, SEALED
from kudu_core.table.opened.job_marks import job_directory
from kudu_core.table.opened.record import already_applied, once
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.spilled import OpenRuns
from kudu_core.table.runs.staged import StagedRun
from kudu_core.table.write.door import write_parts
from kudu_core.table.write.expired_rows import sweep

if TYPE_CHECKING:
    from kudu_core.common.idempotence.writers import Txn
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.opened.engine import Engine


def files_of(job: Job) -> FileSystem:
    """The files of its table."""
    return files_at(job.table_path, job.storage_options)


def files_at(path: str, storage_options: Mapping[str, Any] | None) -> FileSystem:
    """Those of a table that need not be open."""
    return location_of(path, storage_options=storage_options, clock=Clock()).fs


def seal(job: Job, runs: Sequence[StagedRun], fs: FileSystem | None = None) -> bool:
    """Note what is to be committed; False where nothing is left of the job's folder."""
    fs, file = fs or files_of(job), f"{job_directory(job.table_path, job.id)}/{SEALED}"
    try:
        if is_url(job.table_path):
            fs.read_bytes(file, MAX_SEALED_BYTES)  # a put would bring back what was given up
        fs.replace_file(file, sealed(job, runs))
    except (FileNotFoundError, NoFolder):
        return False
    return True


def another_table(path: str) -> InvalidArgument:
    return InvalidArgument(f"the table at {path} is another one than when the job began; run the job again")


def unknown_job(path: str, job_id: str) -> InvalidArgument:
    return InvalidArgument(
        f"{path} knows nothing of a job {job_id!r}. Either it was never begun there, or it was refused or "
        "abandoned, or its rows waited for longer than staging_grace_s: then none of them is in the table. "
        "Or it was committed, longer ago than staging_grace_s: then all of them are. Look for one of them. "
        "A write with txn= may be run again at any time: it is not applied twice"
    )


def apply_runs(
    engine: Engine,
    job: Job,
    runs: Sequence[StagedRun],
    resolutions: Sequence[Resolution] = (),
    *,
    has_job: bool = False,
) -> WriteResult:
    """Apply staged runs as one record, for ``committed``.  ``has_job``: JOB listed them before."""
    txn = named(job, runs)
    repeated = None if txn is None else already_applied(engine, txn)
    if repeated is not None:
        return repeated
    if engine.uuid.hex() != job.table_uuid:
        raise another_table(engine.path)
    if has_job and engine.in_store:  # it must be there also after the look for the mark (protocol B13)
        has_job = is_sealed(engine.fs, engine.path, job.id)
    if not has_job and not seal(job, runs, engine.fs):
        raise unknown_job(engine.path, job.id)
    form = form_of(job)
    check_columns(engine, form, runs)
    with cycles_left(len(runs)), closing(OpenRuns(engine.fs)) as files:
        rows = sorted_rows(job, form, runs, files)
        if engine.schema.version == form.schema.version and engine.partitions == form.partitions:
            rows = replace(rows, schema=engine.schema, partitions=engine.partitions)
        check_files(engine, job, runs, resolutions)
        if is_small(engine.options, runs) and not job.overwrite:
            return write_parts(engine, calls_of(rows), txn=txn, job=job.id)
        rows.job = job.id

        def ingest() -> WriteResult:
            engine.memory.admit()
            if engine.schema.ttl is not None and not job.overwrite:
                sweep(engine)
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
    resolved = Resolved(job.directory, runs, resolutions, overwriting=job.overwrite)
    # Beside the runs, so that it has their grace, and under another name for each try.  In a store new files
    # get their names in the tablets at once.
    folder = f"{job.directory}/commit-{uuid.uuid4().hex[:12]}"
    if not engine.home.in_place:
        engine.fs.mkdir(folder)
    with staging_of(engine) if engine.home.in_place else nullcontext(folder) as staging:
        if job.overwrite:
            return overwrite_sorted(engine, rows, txn=txn, staging=staging, resolved=resolved)
        return ingest_sorted(engine, rows, on_error="raise", txn=txn, staging=staging, resolved=resolved)


__all__ = ["another_table", "apply_runs", "files_at", "files_of", "seal", "unknown_job"]
