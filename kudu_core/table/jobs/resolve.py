"""What the runs of a distributed write come to in each tablet, found before the commit (protocol G2).

``resolve`` runs anywhere, on a table that is open for reading: its cut P is what that reader sees.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.errors import InvalidArgument
from kudu_core.fs.checked import write_checked
from kudu_core.table.ingest.build import SortedRows, build_parts
from kudu_core.table.ingest.decide_range import may_hold
from kudu_core.table.lifecycle.alter import new_tablet
from kudu_core.table.runs.resolution import MAX_BY_KEY_BYTES, Resolution
from kudu_core.table.runs.spilled import OpenRuns
from kudu_core.table.runs.staged import StagedRows, StagedRun
from kudu_core.tablet.ingest import part as ingest
from kudu_core.tablet.store import records

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.jobs.job import Job
    from kudu_core.table.jobs.stager import Form
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle

ERRORS_KEPT = 1000
"""Refused rows of a job whose keys are told; of the others only the number is."""


def sorted_rows(job: Job, form: Form, runs: Sequence[StagedRun], files: OpenRuns) -> SortedRows:
    """The rows of staged runs, as one call."""
    unique = job.on_duplicate != "any"
    first = 0
    staged = []
    for run in runs:
        staged.append(StagedRows(form.schema, run, job.directory, files, first, unique))
        first += run.rows
    starts = np.zeros(1, np.int64)
    return SortedRows(form.schema, form.partitions, staged, starts, form.rules, errors_kept=ERRORS_KEPT)


def resolve(handle: Handle, job: Job, form: Form, runs: Sequence[StagedRun]) -> list[Resolution]:
    """Resolve the runs of some tablets, each with all runs that it has.

    Nothing comes of a tablet whose rows cannot be decided here: of one that the table of today does not
    have so, of rows that are refused, of no tablet.  The commit decides those.
    """
    engine = handle.opened()
    if engine.uuid.hex() != job.table_uuid:
        raise InvalidArgument(
            f"the table at {engine.path} is another one than when the job began; run the job again"
        )
    if engine.schema.version != form.schema.version or engine.partitions != form.partitions:
        return []
    name = f"resolved-{uuid.uuid4().hex[:12]}"
    directory = f"{job.directory}/{name}"
    engine.fs.mkdir(directory)
    found = []
    with closing(OpenRuns(engine.fs)) as files:
        for ordinal in sorted({run.ordinal for run in runs if run.ordinal >= 0}):
            mine = [run for run in runs if run.ordinal == ordinal]
            part = _part(engine, job, form, ordinal, mine, files, directory)
            resolution = None if part is None else _resolution(engine.fs, job, form, part, mine, name)
            if resolution is not None:
                found.append(resolution)
    engine.fs.sync_dir(directory)
    return found


def contested(handle: Handle, form: Form, runs: Sequence[StagedRun], *, overwrite: bool) -> list[StagedRun]:
    """The runs whose rows must be compared with others: not those that can become rowsets as they are, of
    keys that lie neither between those of another run nor of anything that the tablet holds."""
    engine = handle.opened()
    if engine.partitions != form.partitions:
        return list(runs)
    by_ordinal: dict[int, list[StagedRun]] = {}
    for run in runs:
        by_ordinal.setdefault(run.ordinal, []).append(run)
    found: list[StagedRun] = []
    for ordinal, of in by_ordinal.items():
        there = ordinal < 0 or (not overwrite and _holds_keys(engine, ordinal, of))
        found += of if there or _overlap(of) else [run for run in of if run.rowset is None]
    return found


def _holds_keys(engine: Engine, ordinal: int, runs: Sequence[StagedRun]) -> bool:
    view = engine.tablets.of_ordinal(ordinal).view
    return any(may_hold(view, None, run) for run in runs)


def _overlap(runs: Sequence[StagedRun]) -> bool:
    ordered = sorted(runs, key=lambda run: run.min_key)
    return any(after.min_key <= before.max_key for before, after in pairwise(ordered))


def _part(
    engine: Engine,
    job: Job,
    form: Form,
    ordinal: int,
    runs: Sequence[StagedRun],
    files: OpenRuns,
    directory: str,
) -> ingest.IngestPart | None:
    """One tablet's, None where rows are refused."""
    # A new one has its number, by which its files in the folder are named, from the commit.
    tablet = (
        new_tablet(engine, engine.partitions, ordinal, ordinal)
        if job.overwrite
        else engine.tablets.of_ordinal(ordinal)
    )
    part = ingest.IngestPart(tablet, tablet.view, engine.visible_ts, directory)
    rows = sorted_rows(job, form, runs, files)
    errors = build_parts(engine, rows, [part], directory, raising=True)
    return None if errors.counts else part


def _resolution(
    fs: FileSystem, job: Job, form: Form, part: ingest.IngestPart, runs: Sequence[StagedRun], folder: str
) -> Resolution | None:
    """None where it would be more than a commit reads: it decides these rows itself."""
    paths = {name: path.removeprefix(f"{job.directory}/") for path, name in part.staged}
    by_key = None
    if part.by_key:
        by_key = _write_by_key(fs, part, f"{folder}/{part.tablet.id}-by-key", job.directory)
        if by_key is None:
            return None
    inserted, updated, deleted, ignored = part.counts.tolist()
    return Resolution(
        tablet_id=0 if job.overwrite else part.tablet.id,
        ordinal=part.tablet.partition.ordinal,
        schema_version=form.schema.version,
        cut=part.cut,
        seen=tuple(rowset.id for rowset in part.view.rowsets),
        runs=tuple(run.file.name for run in runs),
        rowsets=tuple((paths[meta.base.name], meta) for meta in part.rowsets),
        deltas=tuple((i, paths[delta.ref.file.name], delta.ref) for i, delta in part.deltas.items()),
        by_key=by_key,
        counts=(inserted, updated, deleted, ignored),
        undecided=part.undecided,
    )


def _write_by_key(
    fs: FileSystem, part: ingest.IngestPart, path: str, directory: str
) -> tuple[str, int, int] | None:
    sections = [records.Section(op, block, np.zeros(block.rows, np.int32)) for op, block, _ in part.by_key]
    pieces = records.encode(records.Payload((part.tablet.id,), sections, {}))
    views = [memoryview(piece).cast("B") for piece in pieces]
    if sum(view.nbytes for view in views) > MAX_BY_KEY_BYTES:
        return None
    return path, *write_checked(fs, f"{directory}/{path}", views)


__all__ = ["ERRORS_KEPT", "contested", "resolve", "sorted_rows"]
