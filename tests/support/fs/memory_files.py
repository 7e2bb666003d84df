"""The open files of the file system in memory."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from kudu_core.errors import Closed, Locked
from kudu_core.fs import base
from kudu_core.fs.api import LeaseHolder
from kudu_core.fs.lease import acquire_within
from tests.support.fs.powercut import File

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kudu_core.fs.api import Data, Sleep
    from tests.support.fs.memory import MemoryFileSystem


class _Handle:
    """What is open: a file's node stays readable here after its last name is gone."""

    def __init__(self, fs: MemoryFileSystem, path: str, node: File) -> None:
        self.path = path
        self._fs = fs
        self._lock = fs._lock
        self._node: File | None = node
        self._life = fs._life

    def _open(self) -> File:
        node = self._node  # once: another thread may close it at this moment
        if node is None:
            raise Closed(f"{self.path} was closed")
        if self._life != self._fs._life:
            raise base.os_error(errno.EIO, self.path)  # the process that opened it was killed
        return node

    def size(self) -> int:
        with self._lock:
            return len(self._open().data)

    def close(self) -> None:
        self._node = None


class MemoryReadFile(_Handle):
    """See ``api.ReadFile``."""

    def pread(self, n: int, offset: int) -> bytes:
        if n < 0 or offset < 0:
            raise base.os_error(errno.EINVAL, self.path)
        with self._lock:
            return bytes(memoryview(self._open().data)[offset : offset + n])

    def preadv(self, sizes: Sequence[int], offset: int) -> list[bytes]:
        pieces = []
        with self._lock:
            for size in sizes:
                pieces.append(self.pread(size, offset))
                offset += size
        return pieces


class MemoryWriteFile(_Handle):
    """See ``api.WriteFile``."""

    def __init__(self, fs: MemoryFileSystem, path: str, node: File) -> None:
        super().__init__(fs, path, node)
        self._end = len(node.data)

    def append(self, data: Data) -> int:
        with self._lock:
            at = self._end
            self.pwrite(data, at)
            return at

    def pwrite(self, data: Data, offset: int) -> None:
        if offset < 0:
            raise base.os_error(errno.EINVAL, self.path)
        with self._lock:
            node = self._open()
            content = b"".join(base.byte_views(data))
            if content:
                node.change(offset, content)
                node.mtime_s = self._fs._now_s()
                self._end = max(self._end, offset + len(content))

    def sync(self, data_only: bool = False) -> None:
        with self._lock:
            self._open().sync()

    def truncate(self, size: int) -> None:
        if size < 0:
            raise base.os_error(errno.EINVAL, self.path)
        with self._lock:
            node = self._open()
            node.change(size, None)
            node.mtime_s = self._fs._now_s()
            self._end = size

    def drop_unsynced(self) -> None:
        """What a failed fsync does: the changes since the last sync never reach the disk.

        They still read back, as from the page cache, and the next sync succeeds without them.
        """
        with self._lock:
            self._open().pending.clear()


class MemoryLease:
    """See ``api.Lease``: a lock within one ``MemoryFileSystem``."""

    def __init__(self, fs: MemoryFileSystem, path: str, sleep: Sleep | None) -> None:
        self.path = path
        self._fs = fs
        self._sleep = sleep
        self._node: File | None = None

    @property
    def held(self) -> bool:
        with self._fs._lock:
            return self._node is not None and self._node.lock_owner is self

    def try_acquire(self, wait_s: float = 0.0) -> None:
        assert self._node is None, "a lease is taken once"
        if not acquire_within(self._attempt, wait_s, self._sleep):
            pid, host = self.holder() or LeaseHolder(None, None)
            raise Locked(self.path, pid, host)

    def _attempt(self) -> bool:
        with self._fs._lock:
            if not self._fs.exists(self.path):
                self._fs.create(self.path).close()
            node = self._fs._file(self.path)
            if node.lock_owner is not None:
                return False
            node.lock_owner, self._node = self, node
            return True

    def holder(self) -> LeaseHolder | None:
        with self._fs._lock:
            if not self._fs.exists(self.path) or self._fs._file(self.path).lock_owner is None:
                return None
            return LeaseHolder(os.getpid(), "memory")

    def has_readers(self) -> bool:
        with self._fs._lock:
            return self._node is None or bool(self._node.readers)

    def release(self) -> None:
        with self._fs._lock:
            node, self._node = self._node, None
            if node is not None and node.lock_owner is self:
                node.lock_owner = None

    def abandon(self) -> None:
        """A forked child has its own copy of the whole file system, with nobody else in it."""
        self._node = None


class MemoryReaderLock:
    """See ``api.ReaderLock``."""

    def __init__(self, fs: MemoryFileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._node: File | None = None

    def take(self) -> bool:
        with self._fs._lock:
            if not self._fs.exists(self._path):
                return False
            self._node = self._fs._file(self._path)
            self._node.readers.add(self)
            return True

    def release(self) -> None:
        with self._fs._lock:
            node, self._node = self._node, None
            if node is not None:
                node.readers.discard(self)

    def abandon(self) -> None:
        self._node = None
