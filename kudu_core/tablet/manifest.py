"""The list of edits that says what a tablet is made of.

``MANIFEST`` is a header and edits, each with a number and a CRC; docs/format.md has the bytes.
The edit is the commit point of every flush, ingest and compaction.  The first edit of an epoch
rewrites the file as one checkpoint edit under a new inode (PROTOCOL, "State on disk").

Knows nothing of rowsets in memory.  Values inside an edit are JSON.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kudu_core._ext.crc32c import crc32c
from kudu_core.common.stored import BROKEN, integer, parsed
from kudu_core.errors import Corruption, NotSupported
from kudu_core.rowset.meta import FileRef, RowSetMeta, parse

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, WriteFile

MAGIC = b"KUDUMAN\x01"
VERSION = 1
HEADER = struct.Struct("<8sHHI16sI")
assert HEADER.size == 36
EDIT = struct.Struct("<IIQQ")
assert EDIT.size == 24
MAX_EDIT_BYTES = 256 << 20
REWRITE_BYTES = 4 << 20
"""A manifest longer than this, and than twice its last checkpoint, is rewritten."""


@dataclass(frozen=True, slots=True)
class TabletState:
    """What the edits up to now add up to.  Replaced, never changed."""

    rowsets: Mapping[int, RowSetMeta] = field(default_factory=dict)
    inserts_durable: int = 0
    """I: every WRITE insert at or below it is in a rowset, none above."""
    ingests_durable: int = 0
    """G: the same for INGEST records."""
    horizon: int = 0
    """H: history at or below it may be gone."""
    mark: int = 0
    """The largest I, G or D that was ever recorded here."""
    next_file: int = 1
    next_rowset: int = 1
    epoch: int = 0
    number: int = 0
    """Number of the last edit."""

    def to_json(self) -> dict[str, Any]:
        return {
            "add": [r.to_json() for r in self.rowsets.values()],
            "I": self.inserts_durable,
            "G": self.ingests_durable,
            "H": self.horizon,
            "mark": self.mark,
            "next_file": self.next_file,
            "next_rowset": self.next_rowset,
        }

    @property
    def files(self) -> frozenset[str]:
        return frozenset(file.name for r in self.rowsets.values() for file in r.files)


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a tablet: rowsets removed, added or replaced by a new version of themselves."""

    remove: tuple[int, ...] = ()
    add: tuple[RowSetMeta, ...] = ()
    """New rowsets, and new versions of known ones (same id)."""
    inserts_durable: int = 0
    ingests_durable: int = 0
    horizon: int = 0
    mark: int = 0
    next_file: int = 0
    next_rowset: int = 0

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {}
        if self.remove:
            value["remove"] = list(self.remove)
        if self.add:
            value["add"] = [r.to_json() for r in self.add]
        for name, number in (
            ("I", self.inserts_durable),
            ("G", self.ingests_durable),
            ("H", self.horizon),
            ("mark", self.mark),
            ("next_file", self.next_file),
            ("next_rowset", self.next_rowset),
        ):
            if number:
                value[name] = number
        return value

    @property
    def newest_ts(self) -> int:
        """The largest timestamp that the edit names: the log must be durable through it (E1)."""
        return max(
            self.inserts_durable,
            self.ingests_durable,
            self.mark,
            *(r.durable for r in self.add),
            0,
        )


def applied(state: TabletState, value: Mapping[str, Any], path: str, offset: int) -> TabletState:
    """The state after one edit's JSON."""
    try:
        edit = Edit(
            tuple(map(integer, value.get("remove", ()))),
            tuple(parse(path, offset, entry) for entry in value.get("add", ())),
            *(integer(value.get(k, 0)) for k in ("I", "G", "H", "mark", "next_file", "next_rowset")),
        )
        return with_edit(state, edit)
    except BROKEN as exc:
        raise Corruption(path, offset, f"manifest edit: {exc!r:.200}") from exc


def with_edit(state: TabletState, edit: Edit) -> TabletState:
    """The state after one edit; ``KeyError`` if it removes a rowset that is not there."""
    rowsets = dict(state.rowsets)
    for removed in edit.remove:
        del rowsets[removed]
    rowsets.update((meta.id, meta) for meta in edit.add)
    durable = max((r.durable for r in rowsets.values()), default=0)
    return replace(
        state,
        rowsets=rowsets,
        inserts_durable=max(state.inserts_durable, edit.inserts_durable),
        ingests_durable=max(state.ingests_durable, edit.ingests_durable),
        horizon=max(state.horizon, edit.horizon),
        mark=max(state.mark, edit.mark, edit.inserts_durable, edit.ingests_durable, durable),
        next_file=max(state.next_file, edit.next_file),
        next_rowset=max(state.next_rowset, edit.next_rowset),
    )


def _header(table_uuid: bytes, tablet_id: int) -> bytes:
    head = HEADER.pack(MAGIC, VERSION, 0, tablet_id, table_uuid, 0)[:-4]
    return head + struct.pack("<I", crc32c(head))


def _frame(number: int, epoch: int, value: Mapping[str, Any], seed: int) -> bytes:
    payload = json.dumps(value, separators=(",", ":")).encode()
    rest = struct.pack("<QQ", number, epoch)
    crc = crc32c(payload, crc32c(rest, crc32c(struct.pack("<I", len(payload)), seed)))
    return EDIT.pack(len(payload), crc, number, epoch) + payload


def read_manifest(fs: FileSystem, path: str, table_uuid: bytes, tablet_id: int) -> tuple[TabletState, int]:
    """Add up a manifest's edits; return the state and where the good edits end.

    A bad last edit ends the list; whoever opens for writing compares the last number with the
    log's CHECKPOINT (PROTOCOL O2).
    """
    data = fs.read_bytes(path, MAX_EDIT_BYTES)
    if len(data) < HEADER.size:
        raise Corruption(path, 0, f"{len(data)} bytes are too few for a manifest")
    magic, version, flags, stored_id, uuid, crc = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Corruption(path, 0, "not a manifest")
    # The header is the same in every version, so a damaged version is damage, not a file from the future.
    if crc32c(data[: HEADER.size - 4]) != crc:
        raise Corruption(path, 0, "the manifest header does not match its CRC")
    if version > VERSION or flags:
        raise NotSupported(
            f"{path} has format version {version} (flags {flags}); this library reads up to {VERSION}"
        )
    if uuid != table_uuid or stored_id != tablet_id:
        raise Corruption(path, 0, "the manifest of another table or tablet")
    state, at = TabletState(), HEADER.size
    while at + EDIT.size <= len(data):
        length, stored, number, epoch = EDIT.unpack_from(data, at)
        end = at + EDIT.size + length
        if end > len(data):
            break
        payload = memoryview(data)[at + EDIT.size : end]
        computed = crc32c(
            payload, crc32c(data[at + 8 : at + 24], crc32c(struct.pack("<I", length), _seed(table_uuid)))
        )
        if computed != stored:
            break
        if epoch >= state.epoch:
            try:
                value = parsed(payload)
                integer(number), integer(epoch)
            except ValueError as exc:
                raise Corruption(path, at, f"manifest edit: {exc}") from exc
            if value.get("checkpoint"):
                state = TabletState()
            state = replace(applied(state, value, path, at), epoch=epoch, number=number)
        at = end
    return state, at


def _seed(table_uuid: bytes) -> int:
    return crc32c(table_uuid)


class Manifest:
    """The manifest of one tablet, open for writing.

    ``append`` is called under the tablet's mutex, in the order of installs; ``sync`` may follow
    outside of it (PROTOCOL E3).  ``fence`` is asked before every edit; ``poison`` is told when a
    write or an fsync failed, after which no edit is taken.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        table_uuid: bytes,
        tablet_id: int,
        epoch: int,
        state: TabletState,
        *,
        fence: Callable[[], None],
        poison: Callable[[BaseException], None],
        check_poisoned: Callable[[], None],
    ) -> None:
        self.state = state
        self.durable_number = 0
        self._fs = fs
        self._directory = directory
        self._path = f"{directory}/MANIFEST"
        self._uuid = table_uuid
        self._tablet_id = tablet_id
        self._epoch = epoch
        self._fence = fence
        self._poison = poison
        self._check_poisoned = check_poisoned
        self._file: WriteFile | None = None
        self._replacing = threading.Lock()
        """Held over an fsync and while the file is exchanged: what is being synced stays open."""
        self._size = 0
        self._checkpoint_size = 0

    def append(self, edit: Edit) -> None:
        """Write one edit.  Durable after the next ``sync``."""
        self._check_poisoned()
        self._fence()
        number = self.state.number + 1
        after = replace(with_edit(self.state, edit), number=number, epoch=self._epoch)
        try:
            if self._file is None or self._size > max(REWRITE_BYTES, 2 * self._checkpoint_size):
                self._rewrite(after)
            else:
                frame = _frame(number, self._epoch, edit.to_json(), _seed(self._uuid))
                self._file.append(frame)
                self._size += len(frame)
        except BaseException as exc:
            self._poison(exc)
            raise
        self.state = after

    def sync(self) -> None:
        """Make every edit so far durable."""
        self._check_poisoned()
        with self._replacing:
            number, file = self.state.number, self._file
            if number <= self.durable_number or file is None:
                return
            try:
                file.sync()
            except BaseException as exc:
                self._poison(exc)
                raise
            self.durable_number = max(number, self.durable_number)

    def renew(self) -> None:
        """Write what the edits add up to as one, under a new inode, durably.

        For an open after a crash: what was read of the old file may be in the page cache alone, and
        after a failed fsync another one would not change that.
        """
        self._check_poisoned()
        self._fence()
        state = replace(self.state, epoch=self._epoch)
        try:
            self._rewrite(state)
        except BaseException as exc:
            self._poison(exc)
            raise
        self.state = state

    @property
    def is_durable(self) -> bool:
        return self._file is None or self.durable_number >= self.state.number

    def _rewrite(self, state: TabletState) -> None:
        value = {"checkpoint": True, **state.to_json()}
        data = _header(self._uuid, self._tablet_id) + _frame(
            state.number, self._epoch, value, _seed(self._uuid)
        )
        self._fs.replace_file(self._path, data)
        new = self._fs.open_write(self._path)
        with self._replacing:
            old, self._file = self._file, new
            if old is not None:
                old.close()
            self._size = self._checkpoint_size = len(data)
            self.durable_number = state.number

    def create(self) -> None:
        """Write the first manifest of a new tablet."""
        self.state = replace(self.state, number=1, epoch=self._epoch)
        self._rewrite(self.state)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def file_names(metas: Iterable[RowSetMeta]) -> set[str]:
    return {file.name for meta in metas for file in meta.files}


def file_name(epoch: int, number: int, kind: str) -> str:
    """``<epoch>-<n>.rows`` or ``.delta``; a name is never used twice."""
    return f"{epoch:06d}-{number:08d}.{kind}"


__all__ = ["Edit", "FileRef", "Manifest", "TabletState", "file_name", "file_names", "read_manifest"]
