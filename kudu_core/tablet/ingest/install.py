"""An ingest put into a tablet: its files get their names, its record says them, the view has them (protocol
G3 to G5).

``link`` gives the files their names in the tablet, and ``install`` puts them into the view once the log
record is durable; replay installs from the record alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core.common.format.members import BROKEN, key
from kudu_core.errors import Corruption, NotSupported
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.rows.meta import DeltaRef, FileRef, RowSetMeta
from kudu_core.tablet.flush.deltas import freeze_and_write
from kudu_core.tablet.store.edit_records import OWN_TS, edit_member
from kudu_core.tablet.store.edits import Edit
from kudu_core.tablet.store.manifest_format import MAX_LINE_BYTES
from kudu_core.tablet.store.tablet import Tablet

if TYPE_CHECKING:
    from kudu_core.tablet.ingest.part import IngestPart


def check_entries(part: IngestPart) -> None:
    """Under the mutex, before the record: the manifest will take what the part puts into it.

    ``NotSupported``: a rowset would have more delta files than an entry can name; nothing has changed.
    """
    columns = len(part.tablet.context.schema().columns)
    for rowset_id, delta in part.deltas.items():
        rowset = part.tablet.view.rowset(rowset_id)
        if rowset is None:
            continue  # the recheck has its word on that
        # The file of the ingest, and that of what memory holds of the rowset.
        meta = replace(rowset.meta, redo=(*rowset.meta.redo, delta.ref))
        if meta.most_bytes + 1000 + 40 * columns >= MAX_LINE_BYTES:
            raise NotSupported(
                f"tablet {part.tablet.id}, rowset {rowset_id}: {len(meta.redo) + len(meta.undo)} files of "
                "changes are more than a manifest takes; nothing was written: compact the table first"
            )


def link(part: IngestPart) -> None:
    """Give the staged files their names in the tablet, durably."""
    fs = part.tablet.context.fs
    for staged, name in part.staged if part.tablet.context.placed is None else ():
        fs.link(staged, f"{part.tablet.directory}/{name}")
    part.tablet.sync_directory()


def flush_changed(part_deltas: Mapping[int, Any], tablet: Tablet, written: list[str]) -> dict[int, list[Any]]:
    """Under the mutex: close and write the DeltaMemStores of rowsets that get a delta file (protocol G3)."""
    flushed: dict[int, list[Any]] = {}
    for rowset_id in part_deltas:
        rowset = tablet.view.rowset(rowset_id)
        assert rowset is not None
        flushed[rowset_id] = freeze_and_write(tablet, rowset, written)
    if written:
        tablet.sync_directory()
    return flushed


def install(
    tablet: Tablet,
    ts: int,
    rowsets: list[RowSetMeta],
    deltas: Mapping[int, DeltaRef],
    flushed: Mapping[int, list[tuple[ChangeLog, DeltaRef | None]]],
    deleted: Mapping[int, np.ndarray | None] | None = None,
) -> None:
    """Under the mutex, the record durable: rowsets and delta files into the view, one edit (protocol G5)."""
    view = tablet.view
    for meta in rowsets:
        tablet.claim_rowset_id(meta.id)
    changed: list[DiskRowSet] = []
    for rowset, ref in _changed(tablet, ts, deltas, flushed):
        if ref.liveness:
            _note_deleted(rowset, ref, None if deleted is None else deleted.get(rowset.id))
        changed.append(rowset.with_ingested(ref, ts))
    edit = _edit(ts, rowsets, changed)
    new = [tablet.rowset(meta) for meta in edit.add[: len(rowsets)]]
    view = view.with_changed(changed) if changed else view
    view = view.with_rowsets((*view.rowsets, *new)) if new else view
    tablet.install(view, edit, ts)


def recorded_edit(
    part: IngestPart, flushed: Mapping[int, list[tuple[ChangeLog, DeltaRef | None]]]
) -> list[Any] | None:
    """Under the mutex: the edit by which ``install`` will install a part, for its INGEST record; None where
    the manifest has edits of its own (protocol B7)."""
    tablet = part.tablet
    assert tablet.manifest is not None
    if not tablet.manifest.in_log:
        return None
    deltas = {i: delta.ref for i, delta in part.deltas.items()}
    changed = [
        rowset.with_ingested(ref, OWN_TS) for rowset, ref in _changed(tablet, OWN_TS, deltas, flushed)
    ]
    edit = tablet.numbered(_edit(OWN_TS, part.rowsets, changed))
    return edit_member(tablet.manifest.state.number + 1, edit)


def _changed(
    tablet: Tablet,
    ts: int,
    deltas: Mapping[int, DeltaRef],
    flushed: Mapping[int, list[tuple[ChangeLog, DeltaRef | None]]],
) -> Iterator[tuple[DiskRowSet, DeltaRef]]:
    """The rowsets that get a delta file, with what memory held of them in files; and that file."""
    for rowset_id, ref in deltas.items():
        rowset = tablet.view.rowset(rowset_id)
        if rowset is None:
            raise Corruption(tablet.directory, 0, f"an ingest changes rowset {rowset_id}, which is not there")
        for log, written in flushed[rowset_id]:
            rowset = rowset.with_flushed(log, written, log.frozen_at or 0)
        yield rowset, replace(ref, min_ts=ts, max_ts=ts, record_ts=ts)


def _edit(ts: int, rowsets: Iterable[RowSetMeta], changed: Iterable[DiskRowSet]) -> Edit:
    """The edit of an ingest at ``ts``: first the new rowsets, which get their time."""
    new = [replace(meta, insert_ts=ts, max_insert_ts=ts, durable=ts) for meta in rowsets]
    return Edit(add=(*new, *(rowset.meta for rowset in changed)), ingests_durable=ts)


def _note_deleted(rowset: DiskRowSet, ref: DeltaRef, deleted: np.ndarray | None) -> None:
    """The rows that the file deletes are dead in the newest state from now on."""
    if deleted is None:  # replay: the file itself says which
        with_file = rowset.with_ingested(ref, rowset.meta.durable)
        view = with_file.redo[-1].at_newest()  # type: ignore[union-attr]
        changed = view.liveness(0, rowset.meta.rows)
        deleted = np.empty(0, np.uint32) if changed is None else changed[0][changed[1] == 0]
    rowset.note_ingested(deleted)


def parse_part(value: Any, path: str, offset: int) -> tuple[list[RowSetMeta], dict[int, DeltaRef]]:
    """A part as an INGEST record tells it."""
    try:
        rowsets = [RowSetMeta.from_json(r) for r in value["rowsets"]]
        deltas = {key(i): DeltaRef.from_json(d) for i, d in value["deltas"].items()}
    except BROKEN as exc:
        raise Corruption(path, offset, f"ingest record: {exc!r:.200}") from exc
    return rowsets, deltas


def part_of(
    extra: Mapping[str, Any], tablet: Tablet, ts: int, where: str
) -> tuple[list[RowSetMeta], dict[int, DeltaRef]]:
    """A tablet's part of the INGEST record of ``ts``; ``extra``: what that says beside its rows."""
    try:
        value = {"rowsets": [], "deltas": {}, **extra.get("parts", {}).get(str(tablet.id), {})}
    except BROKEN as exc:
        raise Corruption(where, 0, f"ingest record: {exc!r:.200}") from exc
    rowsets, deltas = parse_part(value, where, 0)
    for rowset_id in deltas:
        if tablet.view.rowset(rowset_id) is None and ts > tablet.state.ingests_durable:
            raise Corruption(where, 0, f"an ingest changes rowset {rowset_id}, which is not there")
    return rowsets, deltas


def named_files(value: Any) -> set[str]:
    """Names of the files of a part, for the sweep of orphans (protocol O7)."""
    names: set[str] = set()
    for rowset in value.get("rowsets", ()):
        names.add(FileRef.from_json(rowset["base"]).name)
    for ref in value.get("deltas", {}).values():
        names.add(FileRef.from_json(ref["file"]).name)
    return names


__all__ = [
    "check_entries",
    "flush_changed",
    "install",
    "link",
    "named_files",
    "parse_part",
    "part_of",
    "recorded_edit",
]
