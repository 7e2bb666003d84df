"""What a commit asks of staged runs before it takes them in: their columns, their files, their token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from kudu_core.common.idempotence.fingerprint import NO_ROWS
from kudu_core.errors import Corruption, SchemaMismatch
from kudu_core.table.lifecycle.in_store.table_object import TableObject
from kudu_core.table.runs.staged import StagedRun, check_run

if TYPE_CHECKING:
    from kudu_core.common.idempotence.writers import Txn
    from kudu_core.rowset.rows.meta import FileRef
    from kudu_core.table.jobs.job import Job
    from kudu_core.table.jobs.stager import Form
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.runs.resolution import Resolution

CHECKED_AT_ONCE = 64
"""Staged files that one call of a worker looks at: handing over each for itself costs more than the look."""


def named(job: Job, runs: Sequence[StagedRun]) -> Txn | None:
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


def check_columns(engine: Engine, form: Form, runs: Sequence[StagedRun]) -> None:
    """What the job's rows say must have a place in the table of today."""
    for column_id in sorted({column_id for run in runs for column_id in run.column_ids}):
        if column_id not in engine.schema.by_id:
            name = form.schema.by_id[column_id].name
            raise SchemaMismatch(
                f"column {name!r} of {engine.path} was dropped while the job ran; run it again without it"
            )


def check_files(engine: Engine, job: Job, runs: Sequence[StagedRun], found: Sequence[Resolution]) -> None:
    """Staged files must be those that their writers told of (protocol G3)."""
    told = chain((run.files for run in runs), (resolution.files for resolution in found))
    wanted = list(dict.fromkeys(chain.from_iterable(told)))  # what is adopted is told of twice
    if engine.in_store:
        _check_objects(engine, job, wanted)
        return

    def check(first: int) -> None:
        for file in wanted[first : first + CHECKED_AT_ONCE]:
            check_run(engine.fs, job.directory, file)

    for _ in engine.pool.map(check, range(0, len(wanted), CHECKED_AT_ONCE)):
        pass


def _check_objects(engine: Engine, job: Job, wanted: Sequence[FileRef]) -> None:
    """An object is put whole, so its size tells.  One LIST shows them, and is not believed in what it lacks
    (protocol B13)."""
    table = engine.table_file
    assert isinstance(table, TableObject)
    folder = job.directory[len(engine.path) + 1 :]
    listed = {entry.name[len(folder) + 1 :]: entry.size for entry in table.store.entries(folder)}
    unlisted = [file for file in wanted if listed.get(file.name) != file.size]
    engine.pool.each(lambda file: check_run(engine.fs, job.directory, file), unlisted)


__all__ = ["check_columns", "check_files", "named"]
