"""What an open finds of a table before it shows or writes anything: TABLE, the manifests, and what the log
adds to them, read and checked against each other (protocol O2)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from kudu_core.errors import Corruption, TableNotFound
from kudu_core.table.stored.alteration import alters, followed
from kudu_core.table.stored.table_state import TableState, read_state, tablet_directory
from kudu_core.tablet.replay.replay_log import Unreplayed
from kudu_core.tablet.store.edits import TabletState
from kudu_core.tablet.store.manifest import read_manifest

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem
    from kudu_core.wal import LogTail, Record


class AlteredLog(Protocol):
    """A log that was read: what of it says what the table is."""

    @property
    def alterations(self) -> list[Record]: ...

    @property
    def committed_ts(self) -> int: ...

    def place_of(self, lsn: int) -> tuple[str, int]: ...


def table_state(fs: FileSystem, path: str) -> TableState:
    if fs.exists(path) and not fs.is_dir(path):
        raise TableNotFound(f"{path} is a file, not a table's directory")
    try:
        return read_state(fs, f"{path}/TABLE")
    except FileNotFoundError:
        raise TableNotFound(f"there is no table at {path}; make one with create_table") from None


def tablet_states(
    fs: FileSystem, path: str, state: TableState, known: Collection[int] = ()
) -> dict[int, TabletState]:
    """The state of every tablet that is not ``known``; one without a MANIFEST is empty (protocol A1)."""
    states = {}
    for entry in state.tablets:
        if entry.id in known:
            continue
        manifest = f"{tablet_directory(path, entry.id)}/MANIFEST"
        try:
            states[entry.id] = read_manifest(fs, manifest, state.uuid, entry.id)[0]
        except FileNotFoundError:
            states[entry.id] = TabletState()
    return states


def is_alteration(record: Record) -> bool:
    """``alters``; a broken record is met again, and named, when it is replayed."""
    try:
        return alters(record)
    except Corruption:
        return False


def followed_by(state: TableState, tail: AlteredLog) -> tuple[TableState, Unreplayed | None]:
    """A table as its log alters it, up to a record that says what no table can be."""
    for record in tail.alterations:
        if record.ts <= tail.committed_ts:
            try:
                state = followed(state, [record])
            except Corruption as error:
                return state, Unreplayed.of(tail.place_of(record.lsn), record, error)
    return state, None


def check_numbers(path: str, table: TableState, states: dict[int, TabletState], tail: LogTail) -> None:
    """A MANIFEST that ends below the number that TABLE or the last CHECKPOINT knows has lost edits (protocol
    O2); so has one that does not hold what the log was dropped for."""
    checkpoint = tail.checkpoint
    for tablet_id, state in states.items():
        manifest = f"{tablet_directory(path, tablet_id)}/MANIFEST"
        for who, number in (
            ("TABLE", table.edits.get(tablet_id, 0)),
            ("the log's last CHECKPOINT", checkpoint.edits.get(tablet_id, 0)),
        ):
            if state.number < number:
                reason = f"it ends at edit {state.number}; {who} has seen edit {number}"
                raise Corruption(manifest, 0, reason)
        if state.mark < (mark := checkpoint.marks.get(tablet_id, 0)):
            reason = f"it holds records up to {state.mark}; the log's last CHECKPOINT has seen {mark}"
            raise Corruption(manifest, 0, reason)
    for entry in table.tablets:
        if entry.created_ts <= checkpoint.through and checkpoint.through and entry.id not in checkpoint.edits:
            raise Corruption(
                f"{path}/wal",
                0,
                f"the log was dropped up to {checkpoint.through} without a word of tablet {entry.id}, "
                f"which is there since {entry.created_ts}",
            )


def check_age(path: str, state: TableState, states: dict[int, TabletState], tail: LogTail) -> None:
    """TABLE must not be an older copy of itself: every epoch is in it before it is anywhere else, and
    what a CHECKPOINT lets go, tokens too, is in it before."""
    newest = max((tail.epoch, *(s.epoch for s in states.values())))
    if state.epoch < newest:
        raise Corruption(
            f"{path}/TABLE", 0, f"an older copy: it is of epoch {state.epoch}, other files are of {newest}"
        )
    if state.applied_ts < tail.through:
        raise Corruption(
            f"{path}/TABLE",
            0,
            f"an older copy: it ends at {state.applied_ts}, the log was dropped up to {tail.through}",
        )


__all__ = ["check_age", "check_numbers", "followed_by", "is_alteration", "table_state", "tablet_states"]
