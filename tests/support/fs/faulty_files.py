"""The open files and the lease of the file system that lets chosen calls fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kudu_core.fs import base

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kudu_core.fs.api import (
        Data,
        Lease,
        LeaseHolder,
        ReadFile,
        WriteFile,
    )
    from tests.support.fs.faulty import FaultyFileSystem


def drop_unsynced(file_system_or_file: Any, *path: str) -> None:
    drop = getattr(file_system_or_file, "drop_unsynced", None)
    if drop is not None:
        drop(*path)


class FaultyReadFile:
    """See ``api.ReadFile``."""

    def __init__(self, fs: FaultyFileSystem, inner: ReadFile) -> None:
        self.path = inner.path
        self._fs = fs
        self._inner = inner

    def size(self) -> int:
        self._fs._call("size", self.path)
        return self._inner.size()

    def pread(self, n: int, offset: int) -> bytes:
        return self._read("pread", lambda: [self._inner.pread(n, offset)])[0]

    def preadv(self, sizes: Sequence[int], offset: int) -> list[bytes]:
        return self._read("preadv", lambda: self._inner.preadv(sizes, offset))

    def _read(self, op: str, read: Callable[[], list[bytes]]) -> list[bytes]:
        fault = self._fs._enter(op, self.path)
        if fault not in (None, "short", "flip"):
            raise self._fs._fail(fault, op, self.path)
        pieces = read()
        total = sum(map(len, pieces))
        if fault == "short":
            return _first_bytes(pieces, self._fs._part(total))
        if fault == "flip" and total:
            return _flip_bit(pieces, self._fs._part(8 * total))
        return pieces

    def close(self) -> None:
        self._inner.close()


def _first_bytes(pieces: list[bytes], count: int) -> list[bytes]:
    kept = []
    for piece in pieces:
        kept.append(piece[:count])
        count -= len(kept[-1])
    return kept


def _flip_bit(pieces: list[bytes], bit: int) -> list[bytes]:
    turned = []
    for piece in pieces:
        if 0 <= bit < 8 * len(piece):
            changed = bytearray(piece)
            changed[bit // 8] ^= 1 << bit % 8
            turned.append(bytes(changed))
        else:
            turned.append(piece)
        bit -= 8 * len(piece)
    return turned


class FaultyWriteFile:
    """See ``api.WriteFile``."""

    def __init__(self, fs: FaultyFileSystem, inner: WriteFile) -> None:
        self.path = inner.path
        self._fs = fs
        self._inner = inner
        # Kept here: what a torn append leaves must not count as the file's end.
        self._end = inner.size()

    def size(self) -> int:
        self._fs._call("size", self.path)
        return self._inner.size()

    def append(self, data: Data) -> int:
        at = self._end
        self._write("append", data, at)
        return at

    def pwrite(self, data: Data, offset: int) -> None:
        self._write("pwrite", data, offset)

    def _write(self, op: str, data: Data, offset: int) -> None:
        views = base.byte_views(data)
        total = sum(view.nbytes for view in views)
        fault = self._fs._enter(op, self.path)
        if fault is not None:
            if fault in ("torn", "torn-error", "short", "short write"):
                self._inner.pwrite(b"".join(views)[: self._fs._part(total)], offset)
            raise self._fs._fail(fault, op, self.path)
        self._inner.pwrite(views, offset)
        if total:
            self._end = max(self._end, offset + total)

    def sync(self, data_only: bool = False) -> None:
        fault = self._fs._enter("sync", self.path)
        if fault is not None:
            if fault != "torn":
                drop_unsynced(self._inner)
            raise self._fs._fail(fault, "sync", self.path)
        self._inner.sync(data_only)

    def truncate(self, size: int) -> None:
        self._fs._call("truncate", self.path)
        self._inner.truncate(size)
        self._end = size

    def close(self) -> None:
        self._inner.close()


class FaultyLease:
    """See ``api.Lease``.  Taking it counts as "lease", asking for the holder as "holder"."""

    def __init__(self, fs: FaultyFileSystem, inner: Lease) -> None:
        self.path = inner.path
        self._fs = fs
        self._inner = inner

    @property
    def held(self) -> bool:
        return self._inner.held

    def try_acquire(self, wait_s: float = 0.0) -> None:
        self._fs._call("lease", self.path)
        self._inner.try_acquire(wait_s)

    def holder(self) -> LeaseHolder | None:
        self._fs._call("holder", self.path)
        return self._inner.holder()

    def has_readers(self) -> bool:
        return self._inner.has_readers()

    def release(self) -> None:
        self._inner.release()

    def abandon(self) -> None:
        self._inner.abandon()
