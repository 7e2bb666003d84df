"""What an open finds of a table in an object store: snapshots, and what the log adds (protocol B4, B9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.errors import Corruption
from kudu_core.objects.cache_options import cache_of
from kudu_core.objects.files.file_ends import Reads
from kudu_core.objects.files.kept_pieces import KeptPieces
from kudu_core.objects.files.object_files import ObjectFiles
from kudu_core.table.lifecycle.checks import is_alteration
from kudu_core.table.lifecycle.in_store.table_object import place_of
from kudu_core.table.stored.store_place import MAX_SNAPSHOT_BYTES
from kudu_core.table.stored.table_state import tablet_directory
from kudu_core.tablet.store.edit_records import LoggedEdits
from kudu_core.tablet.store.edits import TabletState
from kudu_core.tablet.store.manifest import parse_snapshot
from kudu_core.wal.objects.log_object import LogEnd, LogPlace
from kudu_core.wal.objects.object_tail import ObjectTail

if TYPE_CHECKING:
    from kudu_core.common.run.pool import Pool
    from kudu_core.objects.api import ObjectStore
    from kudu_core.table.stored.store_place import SnapshotRef
    from kudu_core.table.stored.table_state import TableState


MOST_LOG_BYTES: Final = 64 << 20
"""Of the log that a reader keeps for its next look: about what a checkpoint leaves behind."""


class SnapshotMissing(Exception):
    """A snapshot that TABLE names is not there: a later TABLE names another, or it is lost."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(slots=True)
class Known:
    """What a reader has read of a table, and need not read again: objects whose names are used once."""

    uuid: bytes = b""
    """Of the table."""
    snapshots: dict[int, tuple[SnapshotRef, TabletState]] = field(default_factory=dict)
    """By tablet, the last one."""
    log: dict[int, bytes] = field(default_factory=dict)
    """Objects of the log by number, as far as they were read and were history then (protocol B9)."""
    pieces: KeptPieces = field(default_factory=KeptPieces)
    """Of files."""

    def keep(self, state: TableState, snapshots: Mapping[int, TabletState], log: Mapping[int, bytes]) -> None:
        """After a picture was made of these."""
        named = place_of(state).snapshots
        self.uuid = state.uuid
        self.snapshots = {tablet: (named[tablet], content) for tablet, content in snapshots.items()}
        self.log = dict(log) if sum(map(len, log.values())) <= MOST_LOG_BYTES else {}


def files_of(
    store: ObjectStore, root: str, uuid: bytes, pool: Pool, known: Known | None = None
) -> ObjectFiles:
    """The data files of a table."""
    kept = None if known is None else known.pieces
    return ObjectFiles(store, root, pool, Reads(store, cache_of(store.storage_options), uuid.hex(), kept))


def tail_of(
    store: ObjectStore, root: str, state: TableState, pool: Pool, known: Known | None = None
) -> ObjectTail:
    """The log behind TABLE, of which nothing was read yet but what is known."""
    place = place_of(state)
    log = LogPlace(place.log_first, LogEnd(*place.log_prev), place.through)
    told = known.log if known is not None and known.uuid == state.uuid else None
    return ObjectTail(store, state.uuid, log, root=root, alters=is_alteration, pool=pool, known=told)


def snapshots_of(
    store: ObjectStore, root: str, state: TableState, pool: Pool, known: Known | None = None
) -> dict[int, TabletState]:
    """By tablet, what its snapshot says; ``SnapshotMissing``, ``Corruption``."""
    names = place_of(state).snapshots
    told = known.snapshots if known is not None and known.uuid == state.uuid else {}
    found = {
        tablet: told[tablet][1] for tablet in names if tablet in told and told[tablet][0] == names[tablet]
    }

    def read(tablet_id: int) -> TabletState:
        return _snapshot(store, root, state.uuid, tablet_id, names[tablet_id])

    lacking = [tablet for tablet in names if tablet not in found]
    return found | dict(zip(lacking, pool.map(read, lacking), strict=True))


def _snapshot(store: ObjectStore, root: str, uuid: bytes, tablet_id: int, ref: SnapshotRef) -> TabletState:
    path = f"{tablet_directory(root, tablet_id)}/{ref.name}"
    try:
        data = store.read_bytes(path[len(root) + 1 :], MAX_SNAPSHOT_BYTES)
    except FileNotFoundError:
        raise SnapshotMissing(path) from None
    if len(data) != ref.size or crc32c(data) != ref.crc:
        raise Corruption(path, 0, "not the snapshot that TABLE names")
    state = parse_snapshot(data, path, uuid, tablet_id)
    if state.number != ref.number:
        raise Corruption(path, 0, f"it ends at edit {state.number}, TABLE says {ref.number}")
    return state


def with_edits(
    state: TableState, snapshots: Mapping[int, TabletState], tail: ObjectTail, epoch: int
) -> dict[int, TabletState]:
    """By tablet of ``state``, what its snapshot and the edits of the log add up to (protocol B7)."""
    edits = LoggedEdits(snapshots, {entry.id for entry in state.tablets})
    for record in tail.edit_records:
        edits.add(record)
    tail.edit_records.clear()
    return {entry.id: edits.state_of(entry.id, epoch) for entry in state.tablets}


__all__ = ["Known", "SnapshotMissing", "files_of", "snapshots_of", "tail_of", "with_edits"]
