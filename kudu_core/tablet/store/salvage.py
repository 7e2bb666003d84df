"""What is left of a tablet's manifest: the sound edits, of the file and of its copy, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kudu_core.common.format.members import BROKEN
from kudu_core.errors import Corruption, KuduError
from kudu_core.fs.copies import copy_of
from kudu_core.rowset.rows.meta import RowSetMeta
from kudu_core.tablet.store import manifest_format as form
from kudu_core.tablet.store.edits import TabletState, taken_apart, with_edit

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

MAX_BYTES = 1 << 30
"""Of a manifest that is read whole."""


@dataclass(slots=True)
class SalvagedManifest:
    """What the sound edits of a tablet add up to."""

    state: TabletState = field(default_factory=TabletState)
    damage: list[tuple[str, str]] = field(default_factory=list)
    """(path, why): something of the manifest is damaged."""
    missing: bool = False
    """Whether an edit may be missing in what there is: else the state is what the tablet was."""
    former: dict[int, RowSetMeta] = field(default_factory=dict)
    """Rowsets that an edit has removed, as they were last."""
    table_uuid: bytes | None = None
    """Of the header."""


@dataclass(slots=True)
class _ManifestFile:
    """One of the two files."""

    path: str
    edits: list[form.StoredEdit] = field(default_factory=list)
    reason: str | None = None
    """Why it is not as it was written."""
    size: int = 0
    ends: bool = False
    """Whether its end is sound: what follows its last edit is nothing, or what a power cut leaves."""


def salvage_manifest(
    fs: FileSystem,
    directory: str,
    table_uuid: bytes | None,
    tablet_id: int,
    known: int,
    *,
    closed: bool = False,
) -> SalvagedManifest:
    """Add up what is left of a manifest.

    ``known``: the number of an edit that is known to have been durable.  ``closed``: none came after it.
    """
    found = SalvagedManifest()
    path = f"{directory}/MANIFEST"
    files = [_read(fs, name, table_uuid, tablet_id, found) for name in (path, copy_of(path))]
    if files[0].reason is not None:
        found.damage.append((path, files[0].reason))
    edits: dict[int, form.StoredEdit] = {}
    for file in files:
        for edit in file.edits:
            other = edits.get(edit.number)
            if other is None or (edit.epoch, _is_checkpoint(edit)) > (other.epoch, _is_checkpoint(other)):
                edits[edit.number] = edit
    _add_up(found, path, [edits[number] for number in sorted(edits)])
    newest = max(files, key=lambda file: (_last(file), file.ends))
    seen = [file.size <= newest.size or 0 < _epoch(file) < _epoch(newest) for file in files]
    if not (newest.ends and all(seen)) and not (closed and found.state.number == known):
        found.missing = True  # nobody knows where the edits ended
    if found.state.number < known:
        found.missing = True
        found.damage.append((path, f"it ends at edit {found.state.number}; edit {known} was durable"))
    return found


def _read(
    fs: FileSystem, path: str, table_uuid: bytes | None, tablet_id: int, found: SalvagedManifest
) -> _ManifestFile:
    try:
        data = fs.read_bytes(path, MAX_BYTES)
    except FileNotFoundError:
        return _ManifestFile(path, reason="the file is missing")
    except (KuduError, OSError) as error:
        return _ManifestFile(path, reason=str(error)[:300])
    header = None if table_uuid is None else form.Header(table_uuid, tablet_id)
    reason = None
    try:
        own = form.read_header(data[: form.HEADER.size], path)
        if own.tablet_id != tablet_id or (header is not None and own != header):
            return _ManifestFile(path, reason="the manifest of another table or tablet")
        found.table_uuid = own.table_uuid
        header = own
    except KuduError as error:
        reason = str(error)
    if header is None:
        return _ManifestFile(path, reason=reason)
    edits, bad = form.scan_edits(data, header)
    at = edits[-1].end if edits else form.HEADER.size
    inside = [begin for begin, _ in bad if form.HEADER.size <= begin < at]
    if reason is None and inside:
        reason = f"the bytes from {inside[0]} on are no edit"
    number, epoch = (edits[-1].number, edits[-1].epoch) if edits else (0, 0)
    ends = bool(edits)
    try:
        form.check_tail(form.Window(form.BytesSource(data)), header, path, at, number + 1, epoch)
    except Corruption as error:
        reason, ends = reason or error.reason, False
    if reason is None and not edits:
        reason = "there is no edit in it"
    size = len(data.rstrip(b"\0"))
    return _ManifestFile(path, edits, reason, size, ends)


def _last(file: _ManifestFile) -> int:
    return max((edit.number for edit in file.edits), default=0)


def _epoch(file: _ManifestFile) -> int:
    return max((edit.epoch for edit in file.edits), default=0)


def _is_checkpoint(edit: form.StoredEdit) -> bool:
    return bool(edit.lines) and edit.lines[0].get("checkpoint") is True


def _add_up(found: SalvagedManifest, path: str, edits: Sequence[form.StoredEdit]) -> None:
    """The state after the edits, in order of their numbers."""
    state, epoch = TabletState(), 0
    for edit in edits:
        if edit.epoch < epoch:
            continue  # of a writer that another one had replaced
        epoch = edit.epoch
        try:
            checkpoint, change, retired = taken_apart(_known(edit.lines, state), path, edit.offset)
        except (*BROKEN, Corruption) as error:
            found.damage.append((path, f"edit {edit.number}: {error!s:.200}"))
            found.missing = True
            continue
        if checkpoint:
            state = TabletState()
            found.missing = False
        elif edit.number != state.number + 1:
            found.missing = True
            reason = f"edits {state.number + 1} to {edit.number - 1} are missing"
            found.damage.append((path, reason))
        found.former.update((i, state.rowsets[i]) for i in change.remove)
        state = with_edit(state, change)
        names = state.retired.union(retired)
        state = replace(state, retired=names, number=edit.number, epoch=edit.epoch)
    if not edits:
        found.missing = True
    found.state = state
    for rowset_id in state.rowsets:
        found.former.pop(rowset_id, None)


def _known(lines: Sequence[Mapping[str, Any]], state: TabletState) -> Sequence[Mapping[str, Any]]:
    """The lines without rowsets that the edit removes and nobody knows: what added them is missing."""
    return [
        {"remove": [i for i in line["remove"] if i in state.rowsets]} if "remove" in line else line
        for line in lines
    ]


__all__ = ["SalvagedManifest", "salvage_manifest"]
