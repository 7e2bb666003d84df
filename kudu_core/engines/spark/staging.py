"""What a write does in tasks: stage rows, and resolve what was staged; the table is only read.

An attempt writes files under names of its own.  It may be repeated, run twice at once, or go on after its
job has ended: only files that the commit is told of count.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark import TaskContext

from kudu_core.engines.spark.cache import newest_handle
from kudu_core.engines.spark.schema import to_table
from kudu_core.table.jobs import commit
from kudu_core.table.jobs.job import Job
from kudu_core.table.jobs.resolve import resolve
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.staged import StagedRun


def stage(job: Job, batches: Iterable[pa.RecordBatch]) -> list[StagedRun]:
    """Write a partition's rows to runs."""
    stager = commit.stager(job, attempt_name())
    for batch in batches:
        if batch.num_rows:
            stager.append(to_table(batch, job.columns))
    return stager.finish()


def resolved(job: Job, runs: Sequence[StagedRun]) -> list[Resolution]:
    """What the runs of some tablets come to in the table as it is durable now.

    Tasks of one process share an open table: nobody writes to it, as a rule, while they are at work.
    """
    return resolve(newest_handle(job.table_path), job, commit.form_of(job), runs)


def attempt_name() -> str:
    """What the names of an attempt's files begin with, as no other attempt's do."""
    context = TaskContext.get()
    attempt = "" if context is None else f"p{context.partitionId():05d}-a{context.taskAttemptId()}-"
    return f"{attempt}{os.urandom(6).hex()}"
