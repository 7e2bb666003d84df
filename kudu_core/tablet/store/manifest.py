"""The list of edits that says what a tablet is made of.

The edit is the commit point of every flush, ingest and compaction.  The first edit of an epoch
rewrites ``MANIFEST`` as one checkpoint edit under a new inode.  The bytes are ``manifest_format``'s; what
they add up to is in ``edits``; here are the reader and the writer of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kudu_core.common.format.members import BROKEN, integer, parsed
from kudu_core.common.run.locks import mutex
from kudu_core.errors import Corruption
from kudu_core.fs.copies import extend_copy, keep_copy
from kudu_core.tablet.store import manifest_format as form
from kudu_core.tablet.store.edits import Edit, EditSum, TabletState, taken_apart, with_edit

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, WriteFile

REWRITE_BYTES = 4 << 20
"""A manifest longer than this, and than twice its last checkpoint, is rewritten."""


def read_manifest(fs: FileSystem, path: str, table_uuid: bytes, tablet_id: int) -> tuple[TabletState, int]:
    """Add up a manifest's edits; return the state and where the good edits end.

    The file may end in an append that a power cut tore (``manifest_format``); that the edit was
    not known to be durable is whoever opens the table to say, who has TABLE and the log.

    Raises
    ------
    Corruption
        Anything that no power cut leaves.
    """
    with closing(fs.open_read(path)) as file:
        return _added_up(form.Window(file), path, table_uuid, tablet_id)


def parse_snapshot(data: bytes, path: str, table_uuid: bytes, tablet_id: int) -> TabletState:
    """The state that a snapshot of an object store holds, whose bytes are those of a manifest with one edit;
    ``Corruption``."""
    state, end = _added_up(form.Window(form.BytesSource(data)), path, table_uuid, tablet_id)
    if end != len(data):
        raise Corruption(path, end, "something follows the edit of a snapshot")
    return state


def snapshot_bytes(state: TabletState, table_uuid: bytes, tablet_id: int) -> bytes:
    """What ``parse_snapshot`` reads."""
    return b"".join(_checkpoint(form.Header(table_uuid, tablet_id), state))


def _checkpoint(header: form.Header, state: TabletState) -> list[bytes]:
    """A manifest with one edit."""
    head, lines = header.pack(), form.lines_of(state.lines())
    return [head, *form.frames(header, len(head), state.number, state.epoch, state.number, lines)]


def _added_up(window: form.Window, path: str, table_uuid: bytes, tablet_id: int) -> tuple[TabletState, int]:
    """As ``read_manifest``."""
    header = form.read_header(window.read(0, form.HEADER.size), path)
    if header != form.Header(table_uuid, tablet_id):
        raise Corruption(path, 0, "the manifest of another table or tablet")
    sum_, at, number, epoch = EditSum(TabletState()), form.HEADER.size, 0, 0
    while (found := form.edit_at(window, header, at)) is not None:
        frame, lines, end = found
        if frame.epoch >= epoch:
            try:
                integer(frame.number, 1), integer(frame.epoch)
                checkpoint, edit, retired = taken_apart(map(parsed, lines), path, at)
                if checkpoint:
                    sum_ = EditSum(TabletState())
                elif frame.number != number + 1:
                    raise ValueError(f"edit {frame.number} after edit {number}")
                sum_.add(edit, retired)
            except BROKEN as exc:
                raise Corruption(path, at, f"manifest edit: {exc!r:.200}") from exc
            number, epoch = frame.number, frame.epoch
        at = end
    form.check_tail(window, header, path, at, number + 1, epoch)
    if not number:
        raise Corruption(path, at, "there is no edit; the first is on disk before the file has its name")
    return sum_.state(number, epoch), at


class OpenManifest(Protocol):
    """The edits of a tablet that is open for writing: in a file of its own, or in the log."""

    state: TabletState
    """What all of them add up to."""
    durable_number: int
    """Of the last edit that is durable."""
    in_log: bool
    """Edits are records of the log, and an INGEST record says those of its own (protocol B7)."""

    def append(self, edit: Edit) -> None:
        """Write one edit.  Durable after the next ``sync``."""

    def take(self, edit: Edit, ts: int) -> None:
        """As ``append``, of the edit by which the INGEST record of ``ts`` is installed."""

    def sync(self) -> None:
        """Make every edit so far durable."""

    @property
    def proven_number(self) -> int:
        """The last edit that is durable for certain."""

    def forget(self, names: Iterable[str]) -> None:
        """These retired files are gone: the next checkpoint need not name them."""

    def close(self) -> None: ...

    def abandon(self) -> None:
        """In the child of a fork: as ``close``, without a lock that a thread of the parent may hold."""


class Manifest:
    """The manifest of one tablet, open for writing.

    ``append`` is called under the tablet's mutex, in the order of installs; ``sync`` may follow
    outside of it (protocol E3).  ``fence`` is asked before every edit; ``poison``, which is compiled
    (protocol W8), is told when a write or an fsync failed, after which no edit is taken and nothing synced.
    """

    in_log = False

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
        self._header = form.Header(table_uuid, tablet_id)
        self._epoch = epoch
        self._fence = fence
        self._poison = poison
        self._check_poisoned = check_poisoned
        self._file: WriteFile | None = None
        self._replacing = mutex()
        """Held over an fsync and while the file is exchanged or closed: what is being synced stays open."""
        self._size = 0
        self._checkpoint_size = 0

    def append(self, edit: Edit) -> None:
        """Write one edit.  Durable after the next ``sync``.

        ``NotSupported``: an entry is larger than a reader takes; nothing has changed.
        """
        self._check_poisoned()
        self._fence()
        number = self.state.number + 1
        after = replace(with_edit(self.state, edit), number=number, epoch=self._epoch)
        file = None if self._size > max(REWRITE_BYTES, 2 * self._checkpoint_size) else self._file
        # Whatever cannot be written is refused here, where nothing has happened.
        frames = _checkpoint(self._header, after) if file is None else self._frames(number, edit)
        try:
            if file is None:
                self._replace(after, frames)
            else:
                at = self._size
                file.append(frames)
                self._size += sum(map(len, frames))
                extend_copy(self._fs, self._path, frames, at)
        except BaseException as exc:
            self._poison(exc)
            raise
        self.state = after

    def take(self, edit: Edit, ts: int) -> None:
        """The record only names files; the edit is the manifest's."""
        self.append(edit)

    def sync(self) -> None:
        """Make every edit so far durable."""
        with self._replacing:
            self._check_poisoned()  # here, since the fsync of another thread may have failed meanwhile
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
        # A tablet that only the log knows has no edit yet: this is its first.
        state = replace(self.state, epoch=self._epoch, number=max(1, self.state.number))
        frames = _checkpoint(self._header, state)
        try:
            self._replace(state, frames)
        except BaseException as exc:
            self._poison(exc)
            raise
        self.state = state

    @property
    def proven_number(self) -> int:
        """The last edit that is on disk for certain."""
        # Without a file there was no edit in this life, and those of before are on disk: else ``renew``.
        return self.durable_number if self._file is not None else self.state.number

    def _frames(self, number: int, edit: Edit) -> list[bytes]:
        lines = form.lines_of(edit.lines())
        return form.frames(self._header, self._size, number, self._epoch, self.durable_number, lines)

    def _replace(self, state: TabletState, frames: list[bytes]) -> None:
        self._fs.replace_file(self._path, frames)
        new = self._fs.open_write(self._path)
        with self._replacing:
            old, self._file = self._file, new
            if old is not None:
                old.close()
            self._size = self._checkpoint_size = sum(map(len, frames))
            self.durable_number = state.number
        keep_copy(self._fs, self._path, frames)

    def forget(self, names: Iterable[str]) -> None:
        """These retired files are gone: the next checkpoint need not name them."""
        self.state = replace(self.state, retired=self.state.retired.difference(names))

    def create(self) -> None:
        """Write the first manifest of a new tablet."""
        self.state = replace(self.state, number=1, epoch=self._epoch)
        self._replace(self.state, _checkpoint(self._header, self.state))

    def close(self) -> None:
        with self._replacing:
            if self._file is not None:
                self._file.close()
                self._file = None

    def abandon(self) -> None:
        """In the child of a fork: as ``close``, without the mutex, which a thread of the parent may hold."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


__all__ = ["Manifest", "OpenManifest", "parse_snapshot", "read_manifest", "snapshot_bytes"]
