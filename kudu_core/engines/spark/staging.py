"""What a write does in a task: stage its rows, touch nothing else.

An attempt writes one file under a name of its own.  It may be repeated, run twice at once, or go on
after its job has ended: only files that the commit is told of count.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pyarrow as pa
from pyspark import TaskContext

from kudu_core.engines.spark.schema import staged_schema, to_table
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.jobs import Job
from kudu_core.table.runs import RunWriter, StagedRun


def stage(job: Job, batches: Iterable[pa.RecordBatch]) -> StagedRun | None:
    """Write a partition's rows to a run; None when it has none."""
    writer: RunWriter | None = None
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            if writer is None:
                writer = RunWriter(PosixFileSystem(), job.directory, _name(), staged_schema(job.columns))
            writer.append(to_table(batch, job.columns))
        return None if writer is None else writer.finish()
    except BaseException:
        if writer is not None:
            writer.discard()
        raise


def _name() -> str:
    context = TaskContext.get()
    attempt = "" if context is None else f"p{context.partitionId():05d}-a{context.taskAttemptId()}-"
    return f"{attempt}{os.urandom(6).hex()}.arrow"
