"""What a write does in tasks: stage rows, and resolve what was staged; the table is only read.

An attempt writes files under names of its own, or hands back its rows where they are few.  It may be
repeated, run twice at once, or go on after its job has ended: only what the commit is told of counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from kudu_core.engines.spark.cache import newest_handle
from kudu_core.engines.spark.schema import check_rows, to_table
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.jobs import commit
from kudu_core.table.jobs.held import commit_held
from kudu_core.table.jobs.job import Job
from kudu_core.table.jobs.resolve import resolve
from kudu_core.table.jobs.stager import JobStager
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.staged import StagedRun

HELD_BYTES = 512 << 10
"""Of rows that a task hands back: less than what a file with its fsync is worth."""
TASKS_HELD = 8


@dataclass(frozen=True, slots=True)
class Attempted:
    """What an attempt tells of the rows that it was given: either of both, or nothing of none."""

    runs: list[StagedRun]
    held: bytes | None = None
    """Rows that are so few that no file was made of them, as a stream of Arrow."""


def stage(job: Job, batches: Iterable[pa.RecordBatch]) -> Attempted:
    """Write a partition's rows to runs, or hand them back where they are few."""
    stager: JobStager | None = None
    waiting: list[pa.RecordBatch] = []
    rows = nbytes = 0
    most_rows, most_bytes = _held_at_most(job)
    for batch in batches:
        if not batch.num_rows:
            continue
        batch = to_table(batch, job.columns)
        if stager is None:
            check_rows(batch)  # they are handed back as they are
            waiting.append(batch)
            rows += batch.num_rows
            nbytes += batch.nbytes
            if rows < most_rows and nbytes < most_bytes:
                continue
            stager = commit.stager(job, attempt_name())
            for before in waiting[:-1]:
                stager.append(before)
            waiting = []
        stager.append(batch)
    if stager is not None:
        return Attempted(stager.finish())
    return Attempted([], packed(waiting) if waiting else None)


def _held_at_most(job: Job) -> tuple[int, int]:
    """Rows and bytes below which a task hands its rows back.  Later tasks hold less, so that what comes to
    the driver from thousands of them is not much more than from eight."""
    if job.overwrite:
        return 0, 0
    context = TaskContext.get()
    number = 0 if context is None else context.partitionId()
    return commit.form_of(job).options.ingest_threshold_rows, HELD_BYTES // (1 + number // TASKS_HELD)


def packed(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Batches as a stream of Arrow."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def unpacked(held: Iterable[bytes | None]) -> Iterator[pa.RecordBatch]:
    """The rows that attempts have handed back."""
    for stream in held:
        if stream is not None:
            with pa.ipc.open_stream(stream) as reader:
                yield from reader


def commit_attempts(job: Job, told: Sequence[Attempted]) -> WriteResult:
    """Commit what the attempts that won have told, in a process that has no session of Spark's."""
    runs, held = [run for part in told for run in part.runs], [part.held for part in told]
    return commit_held(job, unpacked(held), runs)


def resolved(job: Job, runs: Sequence[StagedRun]) -> list[Resolution]:
    """What the runs of some tablets come to in the table as it is durable now.

    Tasks of one process share an open table: nobody writes to it, as a rule, while they are at work.
    """
    return resolve(newest_handle(job.table_path, job.storage_options), job, commit.form_of(job), runs)


def attempt_name() -> str:
    """What the names of an attempt's files begin with, as no other attempt's do."""
    context = TaskContext.get()
    attempt = "" if context is None else f"p{context.partitionId():05d}-a{context.taskAttemptId()}-"
    return f"{attempt}{os.urandom(6).hex()}"
