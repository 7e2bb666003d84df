"""What the runs of a distributed write come to in each tablet, found before the commit (protocol G2).

``resolve`` runs anywhere, on a table that is open for reading: its cut P is what that reader sees.  The
holder of the lease takes a ``Resolution`` in with ``accept`` when nothing that it rests on has changed
since, and builds that tablet anew when something has.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.common.format.members import BROKEN, flag, integer
from kudu_core.common.format.names import staged_file, staged_path
from kudu_core.common.rows.keys import encode_keys
from kudu_core.errors import Corruption, InvalidArgument
from kudu_core.rowset.rows.meta import DeltaRef, FileRef, RowSetMeta
from kudu_core.table.ingest.build import SortedRows, build_parts
from kudu_core.table.lifecycle.alter import new_tablet
from kudu_core.table.runs.spilled import OpenRuns
from kudu_core.table.runs.staged import StagedRows, StagedRun
from kudu_core.table.table import Table
from kudu_core.tablet.ingest import part as ingest
from kudu_core.tablet.ingest.recheck import still_holds
from kudu_core.tablet.store import records
from kudu_core.tablet.view.view import KeyBatch

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.jobs.job import Job
    from kudu_core.table.jobs.stager import Form
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.store.tablet import Tablet

MAX_BY_KEY_BYTES = 4 << 30
"""Of what one tablet's resolution leaves as a list of changes by key."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the runs of one tablet come to, in files of the job's folder.  Picklable."""

    tablet_id: int
    """0: of one that the commit will make (protocol G7)."""
    ordinal: int
    """Of the tablet's partition."""
    schema_version: int
    cut: int
    """P: the state that it rests on."""
    seen: tuple[int, ...]
    """Ids of the rowsets of that state."""
    runs: tuple[str, ...]
    """Names of the runs that are in it, which must be all that the tablet has."""
    rowsets: tuple[tuple[str, RowSetMeta], ...]
    """(file, entry): names and ids are given when it is taken in."""
    deltas: tuple[tuple[int, str, DeltaRef], ...]
    """(rowset, file, entry)."""
    by_key: tuple[str, int, int] | None
    """Changes of rows that only memory held: (file, bytes, CRC-32C)."""
    counts: tuple[int, int, int, int]
    undecided: bool
    """Some row came to nothing because of what was there."""

    @property
    def files(self) -> tuple[FileRef, ...]:
        """Container files that it names, by their places in the job's folder."""
        files = [(path, meta.base) for path, meta in self.rowsets]
        files += [(path, ref.file) for _, path, ref in self.deltas]
        return tuple(FileRef(path, file.size, file.footer_crc) for path, file in files)

    def to_bytes(self) -> bytes:
        return json.dumps(
            {
                "tablet": self.tablet_id,
                "ordinal": self.ordinal,
                "schema_version": self.schema_version,
                "cut": self.cut,
                "seen": list(self.seen),
                "runs": list(self.runs),
                "rowsets": [[path, meta.to_json()] for path, meta in self.rowsets],
                "deltas": [[i, path, ref.to_json()] for i, path, ref in self.deltas],
                "by_key": self.by_key,
                "counts": list(self.counts),
                "undecided": self.undecided,
            },
            separators=(",", ":"),
        ).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Resolution:
        try:
            value = json.loads(data)
            inserted, updated, deleted, ignored = map(integer, value["counts"])
            by_key = value["by_key"]
            return Resolution(
                tablet_id=integer(value["tablet"]),
                ordinal=integer(value["ordinal"]),
                schema_version=integer(value["schema_version"]),
                cut=integer(value["cut"]),
                seen=tuple(map(integer, value["seen"])),
                runs=tuple(map(staged_file, value["runs"])),
                rowsets=tuple((staged_path(p), RowSetMeta.from_json(meta)) for p, meta in value["rowsets"]),
                deltas=tuple(
                    (integer(i), staged_path(p), DeltaRef.from_json(ref)) for i, p, ref in value["deltas"]
                ),
                by_key=None if by_key is None else _by_key(*by_key),
                counts=(inserted, updated, deleted, ignored),
                undecided=flag(value["undecided"]),
            )
        except BROKEN as exc:
            raise Corruption("a task's answer", 0, f"{exc!r:.200}") from exc


def _by_key(path: Any, size: Any, crc: Any) -> tuple[str, int, int]:
    return staged_path(path), integer(size), integer(crc, 0, 1 << 32)


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


ERRORS_KEPT = 1000
"""Refused rows of a job whose keys are told; of the others only the number is."""


def resolve(table: Table, job: Job, form: Form, runs: Sequence[StagedRun]) -> list[Resolution]:
    """Resolve the runs of some tablets, each with all runs that it has.

    Nothing comes of a tablet whose rows cannot be decided here: of one that the table of today does not
    have so, of rows that are refused, of no tablet.  The commit decides those.
    """
    engine = table._opened()
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
    size = crc = 0
    file = fs.create(f"{directory}/{path}")
    try:
        for view in views:
            file.append(view)
            size, crc = size + view.nbytes, crc32c(view, crc)
        file.sync()
    finally:
        file.close()
    return path, size, crc


# ---- taking in ----


def accept(
    engine: Engine,
    directory: str,
    runs: Sequence[StagedRun],
    tablets: Sequence[Tablet],
    resolutions: Sequence[Resolution],
    *,
    new: bool = False,
) -> dict[int, ingest.IngestPart]:
    """Parts, by ordinal, of the tablets whose resolutions still hold.  Under the flush lanes (protocol G3).

    ``new``: the tablets are those of an overwrite.
    """
    found = {(resolution.tablet_id, resolution.ordinal): resolution for resolution in resolutions}
    names: dict[int, set[str]] = {}
    for run in runs:
        names.setdefault(run.ordinal, set()).add(run.file.name)
    parts = {}
    for tablet in tablets:
        ordinal = tablet.partition.ordinal
        resolution = found.get((0 if new else tablet.id, ordinal))
        if resolution is None or resolution.schema_version != engine.schema.version:
            continue
        if set(resolution.runs) != names[ordinal]:
            continue
        part = _taken(engine, directory, tablet, resolution)
        if part is not None and still_holds(part):
            parts[ordinal] = part
    return parts


def _taken(
    engine: Engine, directory: str, tablet: Tablet, resolution: Resolution
) -> ingest.IngestPart | None:
    part = ingest.IngestPart(tablet, tablet.view, resolution.cut, directory, seen=frozenset(resolution.seen))
    for path, meta in resolution.rowsets:
        name = tablet.new_file("rows")
        part.staged.append((f"{directory}/{path}", name))
        base = FileRef(name, meta.base.size, meta.base.footer_crc)
        part.rowsets.append(replace(meta, id=tablet.new_rowset_id(), base=base))
    for rowset_id, path, ref in resolution.deltas:
        name = tablet.new_file("delta")
        part.staged.append((f"{directory}/{path}", name))
        renamed = replace(ref, file=replace(ref.file, name=name))
        part.deltas[rowset_id] = ingest.StagedDelta(renamed, f"{directory}/{path}")
    if resolution.by_key is not None:
        part.by_key = _read_by_key(engine, directory, resolution.by_key)
    part.counts += resolution.counts
    part.undecided = resolution.undecided
    return part


def _read_by_key(engine: Engine, directory: str, file: tuple[str, int, int]) -> list[Any]:
    name, size, crc = file
    path = f"{directory}/{name}"
    try:
        data = engine.fs.read_bytes(path, MAX_BY_KEY_BYTES)
    except FileNotFoundError:
        raise Corruption(path, 0, "the staged file is missing") from None
    if len(data) != size or crc32c(data) != crc:
        raise Corruption(path, 0, "the staged file is not the one that its writer told of")
    payload = records.decode(memoryview(data), path, 0)
    return [
        (section.op, section.block, KeyBatch(encode_keys(engine.schema, section.block)))
        for section in payload.sections
    ]


__all__ = ["ERRORS_KEPT", "Resolution", "accept", "resolve", "sorted_rows"]
