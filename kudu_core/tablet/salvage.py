"""What is left of a tablet's manifest: the sound edits, wherever they lie, and whether any is missing."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kudu_core._ext.crc32c import crc32c
from kudu_core.common.stored import parsed
from kudu_core.errors import Corruption, KuduError
from kudu_core.rowset.meta import RowSetMeta
from kudu_core.tablet.manifest import EDIT, HEADER, MAGIC, MAX_EDIT_BYTES, TabletState, applied

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

NAMES = ("MANIFEST",)
MAX_NUMBERS_SKIPPED = 1 << 20


@dataclass(slots=True)
class SalvagedManifest:
    """What the sound edits of a tablet add up to."""

    state: TabletState = field(default_factory=TabletState)
    damage: list[tuple[str, str]] = field(default_factory=list)
    """(path, why): empty where the state is what the tablet was."""
    former: dict[int, RowSetMeta] = field(default_factory=dict)
    """Rowsets that an edit has removed, as they were last."""
    table_uuid: bytes | None = None
    """Of the header."""


@dataclass(frozen=True, slots=True)
class _Edit:
    number: int
    epoch: int
    value: Mapping[str, Any]


def salvage_manifest(
    fs: FileSystem, directory: str, table_uuid: bytes | None, tablet_id: int, known: int, *, closed: bool
) -> SalvagedManifest:
    """Add up what is left of a manifest.

    ``known``: the number of an edit that is known to have been durable.  ``closed``: the table was closed
    cleanly, so that no edit can be half written.
    """
    found = SalvagedManifest()
    edits: dict[int, _Edit] = {}
    for name in NAMES:
        path = f"{directory}/{name}"
        try:
            data = fs.read_bytes(path, MAX_EDIT_BYTES)
        except FileNotFoundError:
            found.damage.append((path, "the manifest is missing"))
            continue
        except (KuduError, OSError) as error:
            found.damage.append((path, str(error)))
            continue
        uuid = _uuid(data, tablet_id)
        if uuid is None:
            found.damage.append((path, "the manifest's header is damaged"))
        elif table_uuid is not None and uuid != table_uuid:
            found.damage.append((path, "the manifest of another table"))
            continue
        found.table_uuid = uuid or found.table_uuid
        uuid = uuid or table_uuid
        if uuid is None:
            continue
        end = HEADER.size
        for at, upto, edit in _sound_edits(data, uuid):
            if at != end:
                found.damage.append((path, f"{at - end} bytes at {end} are no edit"))
            end = upto
            other = edits.get(edit.number)
            if other is None or edit.epoch > other.epoch:
                edits[edit.number] = edit
        if end < len(data) and closed:
            found.damage.append((path, f"{len(data) - end} bytes at {end} are no edit"))
    path = f"{directory}/MANIFEST"
    _add_up(found, path, sorted(edits.values(), key=lambda edit: edit.number))
    if found.state.number < known:
        reason = f"it ends at edit {found.state.number}; edit {known} was durable"
        found.damage.append((path, reason))
    return found


def _uuid(data: bytes, tablet_id: int) -> bytes | None:
    if len(data) < HEADER.size:
        return None
    magic, _, _, stored_id, uuid, crc = HEADER.unpack_from(data)
    sound = magic == MAGIC and stored_id == tablet_id and crc32c(data[: HEADER.size - 4]) == crc
    return uuid if sound else None


def _sound_edits(data: bytes, uuid: bytes) -> Iterator[tuple[int, int, _Edit]]:
    """(where it begins, where it ends, edit) of each frame with a good checksum."""
    view, seed = memoryview(data), crc32c(uuid)
    at, number = HEADER.size, 0
    while at + EDIT.size <= len(data):
        found = _edit_at(view, at, seed)
        if found is None:
            at = _next_edit(view, at + 1, seed, number)
            continue
        number = found.number
        end = at + EDIT.size + EDIT.unpack_from(view, at)[0]
        yield at, end, found
        at = end


def _edit_at(view: memoryview, at: int, seed: int) -> _Edit | None:
    length, stored, number, epoch = EDIT.unpack_from(view, at)
    end = at + EDIT.size + length
    if end > len(view):
        return None
    payload = view[at + EDIT.size : end]
    if crc32c(payload, crc32c(view[at + 8 : at + 24], crc32c(struct.pack("<I", length), seed))) != stored:
        return None
    try:
        return _Edit(number, epoch, parsed(payload))
    except ValueError:
        return None


def _next_edit(view: memoryview, at: int, seed: int, number: int) -> int:
    """Where the next frame begins that could be one and is, else the end of the data."""
    raw = bytes(view)
    while (at := raw.find(b"{", at + EDIT.size)) >= 0:
        at -= EDIT.size
        found = EDIT.unpack_from(view, at)[2]
        if number <= found <= number + MAX_NUMBERS_SKIPPED and _edit_at(view, at, seed) is not None:
            return at
        at += 1
    return len(view)


def _add_up(found: SalvagedManifest, path: str, edits: list[_Edit]) -> None:
    state = TabletState()
    epoch = 0
    for place, edit in enumerate(edits):
        if edit.epoch < epoch:
            continue  # of a writer that another one had replaced
        epoch = edit.epoch
        value = dict(edit.value)
        if value.get("checkpoint"):
            state = TabletState()
            found.damage = [d for d in found.damage if not d[1].startswith("edits ")]
        elif edit.number != state.number + 1 or (place == 0 and edit.number != 1):
            found.damage.append((path, f"edits {state.number + 1} to {edit.number - 1} are missing"))
        removed = [i for i in value.get("remove", ()) if i in state.rowsets]
        found.former.update((i, state.rowsets[i]) for i in removed)
        value["remove"] = removed
        try:
            state = replace(applied(state, value, path, 0), number=edit.number, epoch=edit.epoch)
        except Corruption as error:
            found.damage.append((path, error.reason))
    found.state = state
    for rowset_id in state.rowsets:
        found.former.pop(rowset_id, None)


__all__ = ["SalvagedManifest", "salvage_manifest"]
