"""Resolutions of a distributed write, taken in by its commit where nothing that they rest on has changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kudu_core.common.rows.keys import encode_keys
from kudu_core.fs.checked import read_checked
from kudu_core.rowset.rows.meta import FileRef
from kudu_core.table.runs.resolution import MAX_BY_KEY_BYTES, Resolution
from kudu_core.tablet.ingest import part as ingest
from kudu_core.tablet.ingest.recheck import still_holds
from kudu_core.tablet.store import records
from kudu_core.tablet.view.view import KeyBatch

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.runs.staged import StagedRun
    from kudu_core.tablet.store.tablet import Tablet


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the tasks of a job have found of its runs, of some tablets or of all."""

    directory: str
    """The job's folder."""
    runs: Sequence[StagedRun]
    """All that are committed."""
    resolutions: Sequence[Resolution]
    overwriting: bool = False
    """They are of tablets that the commit makes."""

    def parts(self, engine: Engine, tablets: Sequence[Tablet]) -> dict[int, ingest.IngestPart]:
        """Parts, by ordinal, of the tablets whose resolutions still hold.  Under the flush lanes (protocol
        G3)."""
        found = {(resolution.tablet_id, resolution.ordinal): resolution for resolution in self.resolutions}
        names: dict[int, set[str]] = {}
        for run in self.runs:
            names.setdefault(run.ordinal, set()).add(run.file.name)
        parts = {}
        for tablet in tablets:
            ordinal = tablet.partition.ordinal
            resolution = found.get((0 if self.overwriting else tablet.id, ordinal))
            if resolution is None or resolution.schema_version != engine.schema.version:
                continue
            if set(resolution.runs) != names[ordinal]:
                continue
            part = _taken(engine, self.directory, tablet, resolution)
            if part is not None and still_holds(part):
                parts[ordinal] = part
        return parts


def _taken(
    engine: Engine, directory: str, tablet: Tablet, resolution: Resolution
) -> ingest.IngestPart | None:
    part = ingest.IngestPart(tablet, tablet.view, resolution.cut, directory, seen=frozenset(resolution.seen))
    for path, meta in resolution.rowsets:
        name, staged = tablet.taken_in(f"{directory}/{path}", "rows")
        part.staged += [] if staged is None else [staged]
        base = FileRef.of(name, meta.base)
        part.rowsets.append(replace(meta, id=tablet.new_rowset_id(), base=base))
    for rowset_id, path, ref in resolution.deltas:
        name, staged = tablet.taken_in(f"{directory}/{path}", "delta")
        part.staged += [] if staged is None else [staged]
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
    data = read_checked(engine.fs, path, size, crc, MAX_BY_KEY_BYTES)
    payload = records.decode(memoryview(data), path, 0)
    return [
        (section.op, section.block, KeyBatch(encode_keys(engine.schema, section.block)))
        for section in payload.sections
    ]


__all__ = ["Resolved"]
