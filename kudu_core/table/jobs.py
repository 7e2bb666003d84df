"""Distributed writes: many processes stage runs, one commits them all as one record.

    begin -> (tasks: RunWriter -> StagedRun) -> commit_job -> commit_runs    or    abandon

Staging touches no tablet and takes no lock, so an attempt may fail, be repeated or outlive its job:
what the commit is not told of stays an unreferenced file.  The commit reads the runs, decides the
rows and appends one record through the same walk as every other write; the record names files of
its own, never staged ones, so staging may go at any time afterwards.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from kudu_core.errors import InvalidArgument, Locked, SchemaMismatch
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.bulk import write_parts
from kudu_core.table.calls import OPERATIONS, apply_calls, conform_calls
from kudu_core.table.result import WriteResult
from kudu_core.table.runs import StagedRun, read_run
from kudu_core.table.table import Table, open_table
from kudu_core.table.write import Txn, check_txn

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.engine import Engine

APPLY = "apply"
OP_COLUMN = "_op"
JOB_OPERATIONS = (*OPERATIONS, APPLY)
ON_DUPLICATE = ("error", "any")
SEALED = "JOB"
"""A job's file that lists its runs, written when the commit begins."""
_MAX_SEALED_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One distributed write, in plain values.  Picklable."""

    id: str
    table_path: str
    table_uuid: str
    schema_version: int
    operation: str
    """One of ``JOB_OPERATIONS``; with "apply" each row names its own in the column ``_op``."""
    columns: tuple[tuple[str, str], ...]
    """Name and canonical type of every column of the runs."""
    txn: Txn | None
    on_duplicate: str
    """"error": rows that repeat a key are refused.  "any": they are applied one after another, in no
    order that anybody promises."""
    lock_timeout_s: float
    """How long the commit waits for another writer to let go of the table."""

    @property
    def directory(self) -> str:
        return f"{self.table_path}/staging/{self.id}"


def check_job(operation: object, txn: object, on_duplicate: object) -> Txn | None:
    """Check what a job is asked to do, before anything is looked at; the token as it is stored."""
    if operation not in JOB_OPERATIONS:
        raise InvalidArgument(f"operation {operation!r} is none of {', '.join(JOB_OPERATIONS)}")
    if on_duplicate not in ON_DUPLICATE:
        raise InvalidArgument(
            f'on_duplicate is "error" (rows that repeat a key are refused) or "any" (one of them wins), '
            f"not {on_duplicate!r}"
        )
    return check_txn(txn)


def applied(table: Table, txn: Txn | None) -> WriteResult | None:
    """The answer of a write whose token ``table`` has seen.

    None is no promise that it was not applied: a reader may be behind, so the commit asks again.
    """
    known = None if txn is None else table._engine.tokens.get(txn[0])
    if txn is None or known is None or txn[1] > known.version:
        return None
    counts = known.counts if txn[1] == known.version else (0, 0, 0, 0)
    return WriteResult(known.ts, *counts, deduplicated=True)


def begin(
    table: Table,
    operation: str,
    columns: Sequence[tuple[str, str]],
    *,
    txn: Txn | None = None,
    on_duplicate: str = "error",
    lock_timeout_s: float | None = None,
) -> Job:
    """Make the directory that a job's attempts stage into.  ``table`` may be open for reading."""
    txn = check_job(operation, txn, on_duplicate)
    engine = table._opened()
    job = Job(
        id=f"job-{uuid.uuid4().hex}",
        table_path=engine.path,
        table_uuid=engine.state.uuid.hex(),
        schema_version=engine.schema.version,
        operation=operation,
        columns=tuple(columns),
        txn=txn,
        on_duplicate=on_duplicate,
        lock_timeout_s=engine.options.lock_timeout_s if lock_timeout_s is None else lock_timeout_s,
    )
    engine.fs.mkdir(f"{engine.path}/staging", exist_ok=True)
    engine.fs.mkdir(job.directory)
    return job


def commit_job(job: Job, runs: Sequence[StagedRun], table: Table | None = None) -> WriteResult:
    """Commit the runs of the attempts that won, through ``table`` or one that is opened for it.

    Raises
    ------
    Locked
        Another writer kept the table for ``lock_timeout_s``.  The runs are kept: ``resume`` commits
        them later, until they are older than ``staging_grace_s``.
    RowErrors, SchemaMismatch
        Rows were refused; nothing was applied and the runs are gone.
    """
    fs = PosixFileSystem() if table is None else table._engine.fs
    fs.replace_file(f"{job.directory}/{SEALED}", _sealed(job, runs))
    if table is not None:
        return commit_runs(table, job, runs)
    try:
        opened = open_table(job.table_path, "rw", timeout_s=job.lock_timeout_s)
    except Locked as exc:
        exc.add_note(
            f"The staged rows are kept: kudu_core.spark.commit({job.table_path!r}, {job.id!r}) writes them "
            "when the table is free."
        )
        raise
    with opened:
        return commit_runs(opened, job, runs)


def commit_runs(table: Table, job: Job, runs: Sequence[StagedRun]) -> WriteResult:
    """Apply all rows of the runs as one record, or none; then remove the job's staging."""
    engine = table._opened_for_writing()
    fs = engine.fs
    try:
        known = applied(table, job.txn)
        if known is not None:
            engine.wait_visible(known.timestamp)
            return known
        if engine.state.uuid.hex() != job.table_uuid:
            raise InvalidArgument(
                f"the table at {engine.path} is another one than when the job began; run the job again"
            )
        names = _names_of_today(engine, job)
        rows, unique = _batches(fs, job, runs, names), job.on_duplicate == "error"
        if job.operation == APPLY:
            parts = apply_calls(engine.schema, rows, OP_COLUMN, unique=unique)
        else:
            parts = conform_calls(engine.schema, job.operation, rows, unique=unique)
        return write_parts(engine, parts, txn=job.txn)
    finally:
        _remove(fs, job)


def abandon(job: Job) -> None:
    """Remove the staging of a job that will not be committed.

    Does nothing once a commit has begun: that removes the runs itself, or keeps them for ``resume``.
    """
    fs = PosixFileSystem()
    if not fs.exists(f"{job.directory}/{SEALED}"):
        _remove(fs, job)


def resume(path: str, job_id: str, table: Table | None = None) -> WriteResult:
    """Commit a job whose commit found the table locked."""
    fs = PosixFileSystem() if table is None else table._engine.fs
    sealed = f"{path}/staging/{job_id}/{SEALED}"
    if "/" in job_id or not fs.exists(sealed):
        raise InvalidArgument(f"{path} has no job {job_id!r} that waits for its commit")
    stored = json.loads(fs.read_bytes(sealed, _MAX_SEALED_BYTES))
    runs = [StagedRun(*run) for run in stored.pop("runs")]
    stored["columns"] = tuple((name, type_) for name, type_ in stored["columns"])
    stored["txn"] = check_txn(stored["txn"])
    # The directory may have been moved with its table.
    return commit_job(Job(**{**stored, "table_path": path}), runs, table)


def _sealed(job: Job, runs: Sequence[StagedRun]) -> bytes:
    told = [dataclasses.astuple(run) for run in runs]
    return json.dumps({**dataclasses.asdict(job), "runs": told}).encode()


def _names_of_today(engine: Engine, job: Job) -> dict[str, str]:
    """What the columns of the job's runs are called now."""
    names = {OP_COLUMN: OP_COLUMN}
    if job.schema_version == engine.schema.version:
        return names | {name: name for name, _ in job.columns}
    began = next((s for s in engine.state.schemas if s.version == job.schema_version), None)
    if began is None:
        raise SchemaMismatch(f"the schema of {engine.path} changed too often while the job ran; run it again")
    for name, _ in job.columns:
        if name == OP_COLUMN:
            continue
        column = engine.schema.by_id.get(began.column(name).id)
        if column is None:
            raise SchemaMismatch(
                f"column {name!r} of {engine.path} was dropped while the job ran; run it again without it"
            )
        names[name] = column.name
    return names


def _batches(
    fs: FileSystem, job: Job, runs: Sequence[StagedRun], names: dict[str, str]
) -> Iterator[pa.RecordBatch]:
    for run in runs:
        rows = read_run(fs, job.directory, run)
        yield from rows.rename_columns([names.get(name, name) for name in rows.column_names]).to_batches()


def _remove(fs: FileSystem, job: Job) -> None:
    """What cannot be removed now, because a late attempt still writes there, goes after its grace."""
    with suppress(OSError):
        fs.rmtree(job.directory)
