"""Pieces of files that never change, kept on this machine for all its processes.

For each file there is one here, to which pieces are appended as they come, each behind a head:

    CRC-32C of the rest of the head, CRC-32C of the piece, offset, length | piece

Nobody holds a lock: an append is one write at the end, and a reader takes what is whole.  Nothing is synced.
What a crash, a full disk or another program leaves there is found by the checksums; then that file goes and
is begun anew.  When the files come to too much, those that were used longest ago go.

A cache is never the reason of an error: what cannot be read is not there, and what cannot be kept is not.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import struct
from _thread import allocate_lock
from bisect import bisect_right, insort
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from kudu_core._ext.base.crc32c import crc32c

HEAD = struct.Struct("<IIQI")
# CRC of the rest, CRC of the piece, its offset in the file, its length
PIECE_BYTES: Final = 256 << 10
"""A longer one is cut: who wants little of it reads, and checks, no more."""
FILES_KNOWN: Final = 1024
"""Of how many files a process remembers where their pieces lie."""
SWEEP_PARTS: Final = 16
"""Who has added this part of what may be there looks whether it is too much."""
KEPT_PARTS: Final = 0.8
"""Of what may be there, what a sweep leaves."""
USES_UNTOLD: Final = 8
"""So often a file is read before its time says anew that it is in use."""
_AT_ONCE = 512
"""Buffers of a write: the system takes 1,024, and heads belong to their pieces."""
_SUFFIX = ".pieces"
_IS_OURS = re.compile(r"[0-9a-f]{32}\.pieces")

_Piece = tuple[int, int, int, int]
"""Offset and length in the file, where it lies here, its CRC."""


@dataclass(slots=True)
class _PiecesOfFile:
    """What a process knows of the pieces of one file."""

    inode: int
    end: int = 0
    """Up to here its heads were read."""
    pieces: list[_Piece] = field(default_factory=list)
    """By offset."""
    uses: int = 0


class _Damaged(Exception):
    pass


class PieceCache:
    """See the module.  Thread safe."""

    def __init__(self, folder: str, most_bytes: int) -> None:
        """``folder`` is made when something is kept; ``most_bytes``: about what all of it may come to."""
        self.folder = folder
        self.most_bytes = most_bytes
        self._mutex = allocate_lock()
        """Guards what is below; nobody waits for the disk under it."""
        self._known: dict[str, _PiecesOfFile] = {}
        """By path, the last used behind."""
        self._added = most_bytes  # the first who keeps something looks

    def find(self, group: str, name: str, offset: int, length: int) -> bytes | None:
        """A piece of a file, put together of those that are here; None where some of it is not.

        ``group``: of which names are the same; a hexadecimal number of 32 digits.
        """
        path = self._path(group, name)
        try:
            with _opened(path, os.O_RDONLY) as descriptor:
                return self._read(path, descriptor, offset, length)
        except _Damaged:
            self._remove(path)
        except OSError:
            pass
        return None

    def keep(self, group: str, name: str, offset: int, data: bytes, most: int) -> None:
        """Keep a piece of a file, of which here should be no more than ``most`` bytes."""
        path, pieces = self._path(group, name), list(_pieces(offset, memoryview(data)))
        total = sum(map(len, pieces))
        try:
            with _opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as descriptor:
                if os.fstat(descriptor).st_size + total > most:
                    return
                for at in range(0, len(pieces), _AT_ONCE):
                    some = pieces[at : at + _AT_ONCE]
                    if os.writev(descriptor, some) != sum(map(len, some)):
                        self._remove(path)
                        return
        except OSError:
            self._remove(path)  # the disk is full, maybe
            return
        with self._mutex:
            self._added += total
            due = self._added * SWEEP_PARTS >= self.most_bytes
            if due:
                self._added = 0
        if due:
            self.sweep()

    def sweep(self) -> None:
        """Remove what was used longest ago, where there is too much; nothing while another process does."""
        with suppress(OSError), _opened(f"{self.folder}/SWEEP", os.O_RDWR | os.O_CREAT) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            files = sorted(self._files())
            total = sum(size for _, size, _ in files)
            if total <= self.most_bytes:
                return
            for _, size, path in files:
                if total <= self.most_bytes * KEPT_PARTS:
                    return
                self._remove(path)
                total -= size

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """When it was used last, bytes on the disk, and path of each file."""
        for group in os.scandir(self.folder):
            if len(group.name) != 32 or not group.is_dir(follow_symlinks=False):
                continue
            for entry in os.scandir(group.path):
                if _IS_OURS.fullmatch(entry.name):
                    with suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        yield found.st_mtime, found.st_blocks * 512, entry.path

    def _path(self, group: str, name: str) -> str:
        assert len(group) == 32
        return f"{self.folder}/{group}/{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}{_SUFFIX}"

    def _remove(self, path: str) -> None:
        with self._mutex:
            self._known.pop(path, None)
        with suppress(OSError):
            os.unlink(path)

    # ---- reading ----

    def _read(self, path: str, descriptor: int, offset: int, length: int) -> bytes | None:
        told = os.fstat(descriptor)
        with self._mutex:
            known = self._known.pop(path, None)
            if known is None or known.inode != told.st_ino or known.end > told.st_size:
                known = _PiecesOfFile(told.st_ino)
            self._known[path] = known
            if len(self._known) > FILES_KNOWN:
                self._known.pop(next(iter(self._known)))
            is_told, begin = known.uses % USES_UNTOLD == 0, known.end
            known.uses += 1
        if is_told:
            os.utime(descriptor)
        new, end = _heads(descriptor, begin, told.st_size)
        with self._mutex:
            if known.end == begin:  # else another thread has read them
                known.end = end
                for piece in new:
                    insort(known.pieces, piece)
            wanted = _cover(known.pieces, offset, length)
        if wanted is None:
            return None
        parts = [_part(descriptor, piece)[low:high] for piece, low, high in wanted]
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _pieces(offset: int, view: memoryview) -> Iterator[bytes | memoryview]:
    """Heads and pieces, one behind the other."""
    for at in range(0, len(view), PIECE_BYTES):
        piece = view[at : at + PIECE_BYTES]
        rest = HEAD.pack(0, crc32c(piece, 0), offset + at, len(piece))[4:]
        yield crc32c(rest, 0).to_bytes(4, "little") + rest
        yield piece


def _part(descriptor: int, piece: _Piece) -> bytes:
    """A piece, checked each time: another process may have begun the file anew, with the same inode."""
    _, length, at, crc = piece
    data = os.pread(descriptor, length, at)
    if len(data) != length or crc32c(data, 0) != crc:
        raise _Damaged
    return data


def _heads(descriptor: int, begin: int, size: int) -> tuple[list[_Piece], int]:
    """The pieces from a head on that are whole, and where they end."""
    found = []
    while begin + HEAD.size <= size:
        head = os.pread(descriptor, HEAD.size, begin)
        if len(head) != HEAD.size:
            break
        told, crc, offset, length = HEAD.unpack(head)
        if crc32c(head[4:], 0) != told or not 0 < length <= PIECE_BYTES:
            raise _Damaged
        at = begin + HEAD.size
        if at + length > size:
            break  # it is being written, or its writer has died
        found.append((offset, length, at, crc))
        begin = at + length
    return found, begin


def _cover(pieces: list[_Piece], offset: int, length: int) -> list[tuple[_Piece, int, int]] | None:
    """Pieces, with what of each, that come to a range; None where they do not."""
    found, at, end = [], offset, offset + length
    while at < end:
        place = bisect_right(pieces, at, key=lambda piece: piece[0]) - 1
        while place >= 0 and pieces[place][0] > at - PIECE_BYTES:
            begin, size = pieces[place][:2]
            if begin + size > at:
                break
            place -= 1
        else:
            return None
        reached = min(begin + size, end)
        found.append((pieces[place], at - begin, reached - begin))
        at = reached
    return found


@contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
        os.makedirs(path.rsplit("/", 1)[0], 0o700, exist_ok=True)
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


_caches: dict[str, PieceCache] = {}
"""By folder, of this process."""


def piece_cache(folder: str, most_bytes: int) -> PieceCache:
    """The cache in a folder; of one folder there is one in a process, of the size that was asked for last."""
    made = _caches.setdefault(folder, PieceCache(folder, most_bytes))
    made.most_bytes = most_bytes
    return made


__all__ = ["PieceCache", "piece_cache"]
