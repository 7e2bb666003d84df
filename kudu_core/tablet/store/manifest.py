"""The list of edits that says what a tablet is made of.

The edit is the commit point of every flush, ingest and compaction.  The first edit of an epoch
rewrites ``MANIFEST`` as one checkpoint edit under a new inode.  The bytes are ``manifest_format``'s; here
is what they add up to, and the writer.  Knows nothing of rowsets in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kudu_core.common.format.members import BROKEN, integer, parsed
from kudu_core.common.format.names import data_file
from kudu_core.common.run.locks import mutex
from kudu_core.errors import Corruption
from kudu_core.fs.copies import extend_copy, keep_copy
from kudu_core.rowset.rows.meta import FileRef, RowSetMeta, parse
from kudu_core.tablet.store import manifest_format as form

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem, WriteFile

REWRITE_BYTES = 4 << 20
"""A manifest longer than this, and than twice its last checkpoint, is rewritten."""
_LISTED = 10_000
"""Names or ids on one line of an edit."""
_NUMBERS = ("I", "G", "H", "mark", "next_file", "next_rowset")


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
    retired: frozenset[str] = frozenset()
    """Files that an edit has dropped and that may not be deleted yet.  What is neither here nor in a rowset
    was never the tablet's, or an edit that told of it is lost."""

    def lines(self) -> Iterator[dict[str, Any]]:
        numbers = _numbers(self)
        yield {"checkpoint": True, **dict(zip(_NUMBERS, numbers, strict=True))}
        for names in _pieces(sorted(self.retired)):
            yield {"retired": names}
        for meta in self.rowsets.values():
            yield meta.to_json()

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

    def lines(self) -> Iterator[dict[str, Any]]:
        yield {name: number for name, number in zip(_NUMBERS, _numbers(self), strict=True) if number}
        for ids in _pieces(self.remove):
            yield {"remove": ids}
        for meta in self.add:
            yield meta.to_json()

    @property
    def newest_ts(self) -> int:
        """The largest timestamp that the edit names: the log must be durable through it (protocol E1)."""
        return max(
            self.inserts_durable,
            self.ingests_durable,
            self.mark,
            *(r.durable for r in self.add),
            0,
        )


def _numbers(of: TabletState | Edit) -> tuple[int, ...]:
    return (of.inserts_durable, of.ingests_durable, of.horizon, of.mark, of.next_file, of.next_rowset)


def _pieces(values: Iterable[Any]) -> Iterator[list[Any]]:
    values = list(values)
    return (values[i : i + _LISTED] for i in range(0, len(values), _LISTED))


def with_edit(state: TabletState, edit: Edit) -> TabletState:
    """The state after one edit; ``KeyError`` if it removes a rowset that is not there."""
    sum_ = _Sum(state)
    sum_.add(edit)
    return sum_.state(state.number, state.epoch)


class _Sum:
    """What edits add up to, while they are added: each costs what it changes."""

    def __init__(self, state: TabletState) -> None:
        self._rowsets = dict(state.rowsets)
        self._retired = set(state.retired)
        self._numbers = list(_numbers(state))

    def add(self, edit: Edit, retired: Iterable[str] = ()) -> None:
        for removed in edit.remove:
            self._retired.update(file.name for file in self._rowsets.pop(removed).files)
        for meta in edit.add:
            before = self._rowsets.get(meta.id)
            if before is not None:
                self._retired.update(file.name for file in before.files)
            self._rowsets[meta.id] = meta
        for meta in edit.add:
            self._retired.difference_update(file.name for file in meta.files)
        self._retired.update(retired)
        numbers = [max(pair) for pair in zip(self._numbers, _numbers(edit), strict=True)]
        numbers[_MARK] = max(*numbers[: _MARK - 1], numbers[_MARK], *(meta.durable for meta in edit.add))
        self._numbers = numbers

    def state(self, number: int, epoch: int) -> TabletState:
        i, g, h, mark, next_file, next_rowset = self._numbers
        retired = frozenset(self._retired)
        return TabletState(self._rowsets, i, g, h, mark, next_file, next_rowset, epoch, number, retired)


_MARK = _NUMBERS.index("mark")


def taken_apart(values: Iterable[Mapping[str, Any]], path: str, offset: int) -> tuple[bool, Edit, list[str]]:
    """(is a checkpoint, the edit, files retired before it) of the lines of one."""
    numbers: Mapping[str, Any] = {}
    remove: list[int] = []
    add: list[RowSetMeta] = []
    retired: list[str] = []
    for place, value in enumerate(values):
        if not place:
            numbers = value
        elif "remove" in value:
            remove += map(integer, value["remove"])
        elif "retired" in value:
            retired += (data_file(name) for name in value["retired"])
        else:
            add.append(parse(path, offset, value))
    edit = Edit(tuple(remove), tuple(add), *(integer(numbers.get(name, 0)) for name in _NUMBERS))
    return numbers.get("checkpoint") is True, edit, retired


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
        window = form.Window(file)
        header = form.read_header(window.read(0, form.HEADER.size), path)
        if header != form.Header(table_uuid, tablet_id):
            raise Corruption(path, 0, "the manifest of another table or tablet")
        sum_, at, number, epoch = _Sum(TabletState()), form.HEADER.size, 0, 0
        while (found := form.edit_at(window, header, at)) is not None:
            frame, lines, end = found
            if frame.epoch >= epoch:
                try:
                    integer(frame.number, 1), integer(frame.epoch)
                    checkpoint, edit, retired = taken_apart(map(parsed, lines), path, at)
                    if checkpoint:
                        sum_ = _Sum(TabletState())
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


class Manifest:
    """The manifest of one tablet, open for writing.

    ``append`` is called under the tablet's mutex, in the order of installs; ``sync`` may follow
    outside of it (protocol E3).  ``fence`` is asked before every edit; ``poison``, which is compiled
    (protocol W8), is told when a write or an fsync failed, after which no edit is taken and nothing synced.
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
        frames = self._checkpoint(after) if file is None else self._frames(number, edit)
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
        frames = self._checkpoint(state)
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

    def _checkpoint(self, state: TabletState) -> list[bytes]:
        head, lines = self._header.pack(), form.lines_of(state.lines())
        number = state.number
        return [head, *form.frames(self._header, len(head), number, self._epoch, number, lines)]

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
        self._replace(self.state, self._checkpoint(self.state))

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


def file_name(epoch: int, number: int, kind: str) -> str:
    """``<epoch>-<n>.rows`` or ``.delta``; a name is never used twice."""
    return f"{epoch:06d}-{number:08d}.{kind}"


__all__ = [
    "Edit",
    "FileRef",
    "Manifest",
    "TabletState",
    "file_name",
    "read_manifest",
    "taken_apart",
]
