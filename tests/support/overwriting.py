"""A table overwritten without Spark: staged and committed in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import kudu_core as kc
from kudu_core.table import jobs
from kudu_core.table.job_runs import JobRun
from kudu_core.table.jobs import Job


def staged(table: kc.Table, rows: pa.Table, attempts: int = 1, **options: Any) -> tuple[Job, list[JobRun]]:
    """A job whose attempts have staged every so manieth row each.  ``table`` may be open for reading."""
    engine = table._engine
    types = [(name, str(engine.schema.column(name).type)) for name in rows.schema.names]
    operation = options.pop("operation", "upsert")
    job = jobs.begin(table, operation, types, overwrite=options.pop("overwrite", True), **options)
    runs: list[JobRun] = []
    for number in range(attempts):
        stager = jobs.stager(job, f"{number}", engine.fs)
        mine = rows.take(pa.array(range(number, rows.num_rows, attempts), pa.int64()))
        for batch in mine.combine_chunks().to_batches():
            stager.append(batch)
        runs += stager.finish()
    return job, runs


def overwrite(
    table: kc.Table, rows: pa.Table | Sequence[dict[str, Any]], attempts: int = 1, **options: Any
) -> kc.WriteResult:
    """Put rows in the place of all that a table, open for writing, has."""
    if not isinstance(rows, pa.Table):
        rows = pa.Table.from_pylist(list(rows), schema=table.schema)
    job, runs = staged(table, rows, attempts, **options)
    return jobs.commit_job(job, runs, table)


__all__ = ["overwrite", "staged"]
