"""What a ``MemoryFileSystem`` is made of, and what a power cut leaves of it.

A node is its durable state and the ordered list of changes since it was synced; a cut draws which of
those changes reached the disk.  The rules stand in ``memory``; nothing here knows paths or handles.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Keep: TypeAlias = Literal["random", "none", "all"]

_PAGE_BYTES = 4096


@dataclass(slots=True, eq=False)
class File:
    """``data`` is what reads see, ``durable`` what the disk has.

    A change is (offset, bytes), or (size, None) for a truncation.
    """

    inode: int
    mtime_s: float
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    lock_owner: object | None = None
    readers: set[object] = field(default_factory=set)
    """Who has a reader's lock of it."""

    def change(self, offset: int, data: bytes | None) -> None:
        apply_change(self.data, offset, data)
        self.pending.append((offset, data))

    def sync(self) -> None:
        for offset, data in self.pending:
            apply_change(self.durable, offset, data)
        self.pending.clear()


@dataclass(slots=True, eq=False)
class Change:
    """What one call did to names: each gets a node, or none.  ``group`` ties the halves of a rename."""

    names: dict[str, Node | None]
    group: int


@dataclass(slots=True, eq=False)
class Directory:
    inode: int
    mtime_s: float
    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    def change(self, names: dict[str, Node | None], group: int) -> None:
        set_names(self.entries, names)
        self.pending.append(Change(names, group))

    def sync(self) -> None:
        for change in self.pending:
            set_names(self.durable, change.names)
        self.pending.clear()


@dataclass(slots=True, eq=False)
class Link:
    """A symbolic link.  Durable with its name."""

    inode: int
    mtime_s: float
    target: str
    pending: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        """There is nothing that a cut may take."""


Node: TypeAlias = File | Directory | Link


def apply_change(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        if offset < len(content):
            del content[offset:]
        else:
            content.extend(bytes(offset - len(content)))
        return
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def set_names(entries: dict[str, Node], names: dict[str, Node | None]) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def walk(node: Node, found: dict[int, Node]) -> dict[int, Node]:
    """Every node that a name leads to, by inode number."""
    if node.inode not in found:
        found[node.inode] = node
        if isinstance(node, Directory):
            for child in node.entries.values():
                walk(child, found)
    return found


def names_of(root: Node, wanted: File) -> int:
    """How many names lead to a file."""
    return sum(
        child is wanted
        for node in walk(root, {}).values()
        if isinstance(node, Directory)
        for child in node.entries.values()
    )


def holds(node: Directory, wanted: Directory) -> bool:
    return wanted.inode in walk(node, {})


class Cut:
    """One power cut: draws what survives, and copies it."""

    def __init__(self, rng: random.Random, keep: Keep) -> None:
        self._rng = rng
        self._keep = keep
        self._groups: dict[int, bool] = {}
        self._copies: dict[int, Node] = {}
        # One temperament for the whole cut: sometimes the disk had written nearly all, sometimes little.
        self._odds = rng.choice((0.0, 0.1, 0.5, 0.5, 0.9, 1.0))

    def fill(self, target: Directory, source: Directory) -> None:
        target.inode, target.mtime_s = source.inode, source.mtime_s
        entries = dict(source.durable)
        for change in source.pending:
            if self._survives(change.group):
                set_names(entries, change.names)
        for name, node in entries.items():
            target.entries[name] = target.durable[name] = self._copy(node)

    def _survives(self, group: int) -> bool:
        if self._keep != "random":
            return self._keep == "all"
        if group not in self._groups:
            self._groups[group] = self._rng.random() < self._odds
        return self._groups[group]

    def _copy(self, node: Node) -> Node:
        known = self._copies.get(node.inode)
        if known is not None:
            return known  # a hard link
        copy: Node
        if isinstance(node, Directory):
            copy = self._copies[node.inode] = Directory(node.inode, node.mtime_s)
            self.fill(copy, node)
        elif isinstance(node, Link):
            copy = self._copies[node.inode] = Link(node.inode, node.mtime_s, node.target)
        else:
            content = bytearray(node.durable)
            for offset, data in self._surviving(node):
                apply_change(content, offset, data)
            copy = File(node.inode, node.mtime_s, content, bytearray(content))
            self._copies[node.inode] = copy
        return copy

    def _surviving(self, node: File) -> list[tuple[int, bytes | None]]:
        """The changes of a file that reached the disk, in order."""
        pending, rng = node.pending, self._rng
        if self._keep == "none" or not pending:
            return []
        if self._keep == "all":
            return pending
        shape = rng.random()
        if shape < 0.4:  # the disk wrote in order
            chosen = pending[: rng.randint(0, len(pending))]
        elif shape < 0.7:  # in any order
            chosen = [change for change in pending if rng.random() < self._odds]
        else:  # page by page, in any order
            chosen = [piece for change in pending for piece in _pages(change) if rng.random() < self._odds]
        if chosen and rng.random() < 0.5:
            offset, data = chosen[-1]
            if data is not None:
                chosen[-1] = (offset, data[: rng.randint(0, len(data))])
        if rng.random() < 0.25:
            # The new length was written, the data were not: zeros.
            length = _length(len(node.durable), pending)
            if length > (now := _length(len(node.durable), chosen)):
                chosen.append((rng.randint(now, length), None))
        return chosen


def _pages(change: tuple[int, bytes | None]) -> list[tuple[int, bytes | None]]:
    """A write cut at the borders of the page cache's pages."""
    offset, data = change
    if data is None:
        return [change]
    pieces: list[tuple[int, bytes | None]] = []
    at = 0
    while at < len(data):
        end = min(len(data), at + _PAGE_BYTES - (offset + at) % _PAGE_BYTES)
        pieces.append((offset + at, data[at:end]))
        at = end
    return pieces


def _length(size: int, changes: list[tuple[int, bytes | None]]) -> int:
    for offset, data in changes:
        size = offset if data is None else max(size, offset + len(data))
    return size
