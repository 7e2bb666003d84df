"""The machine's file system.  Only this module and ``lease`` make system calls on files.

Files are opened with O_CLOEXEC and O_NOFOLLOW and created for the owner only.  Short reads and writes
are continued; Python repeats calls that a signal interrupts (PEP 475).  Nothing is mapped: a damaged
or vanished file raises instead of killing the process.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from kudu_core.errors import Closed
from kudu_core.fs import base
from kudu_core.fs.api import FileStat
from kudu_core.fs.descriptors import Descriptor, opened
from kudu_core.fs.lease import PosixLease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kudu_core.fs.api import Data, FileSystem, Identity, Sleep

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_IOV_MAX = os.sysconf("SC_IOV_MAX")
_COPY_BYTES = 8 << 20

# Below this many bytes on average, pieces are cut from one read: a system call costs more than the copy.
_SMALL_PIECE_BYTES = 8 << 10


class _File:
    """An open file: its path, its descriptor, its size."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, flags: int) -> None:
        self.path = path
        self._descriptor: Descriptor | None = None
        self._descriptor = opened(path, flags | _FLAGS)

    def _open(self) -> Descriptor:
        descriptor = self._descriptor
        if descriptor is None:
            raise Closed(f"{self.path} was closed")
        return descriptor

    def size(self) -> int:
        descriptor = self._open()
        return os.fstat(descriptor.fd).st_size

    def close(self) -> None:
        self._descriptor = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}{' closed' if self._descriptor is None else ''}>"


class PosixReadFile(_File):
    """See ``api.ReadFile``."""

    __slots__ = ()

    def __init__(self, path: str) -> None:
        super().__init__(path, os.O_RDONLY)

    def pread(self, n: int, offset: int) -> bytes:
        descriptor = self._open()
        data = os.pread(descriptor.fd, n, offset)
        if len(data) == n or not data:
            return data
        pieces, have = [data], len(data)
        while have < n:
            data = os.pread(descriptor.fd, n - have, offset + have)
            if not data:
                break
            pieces.append(data)
            have += len(data)
        return b"".join(pieces)

    def preadv(self, sizes: Sequence[int], offset: int) -> list[bytes]:
        pieces = []
        total = sum(sizes)
        if total < _SMALL_PIECE_BYTES * len(sizes):
            data, at = self.pread(total, offset), 0
            for size in sizes:
                pieces.append(data[at : at + size])
                at += size
        else:
            for size in sizes:
                pieces.append(self.pread(size, offset))
                offset += size
        return pieces


class PosixWriteFile(_File):
    """See ``api.WriteFile``."""

    __slots__ = ("_end",)

    def __init__(self, path: str, *, new: bool) -> None:
        super().__init__(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if new else 0))
        self._end = 0 if new else self.size()

    def append(self, data: Data) -> int:
        at = self._end
        self.pwrite(data, at)
        return at

    def pwrite(self, data: Data, offset: int) -> None:
        descriptor = self._open()
        if type(data) is bytes and os.pwrite(descriptor.fd, data, offset) == len(data):
            self._end = max(self._end, offset + len(data))
            return
        views = base.byte_views(data)
        first = 0
        while first < len(views):
            written = os.pwritev(descriptor.fd, views[first : first + _IOV_MAX], offset)
            if written == 0:
                # Never for a regular file; without this a strange file system would loop for ever.
                raise base.os_error(errno.EIO, self.path)
            offset += written
            while first < len(views) and written >= views[first].nbytes:
                written -= views[first].nbytes
                first += 1
            if written:
                views[first] = views[first][written:]
        self._end = max(self._end, offset)

    def sync(self, data_only: bool = False) -> None:
        descriptor = self._open()
        if data_only:
            os.fdatasync(descriptor.fd)
        else:
            os.fsync(descriptor.fd)

    def truncate(self, size: int) -> None:
        descriptor = self._open()
        os.ftruncate(descriptor.fd, size)
        self._end = size


class PosixFileSystem:
    """See ``api.FileSystem``.  Holds no state: any number may be used side by side."""

    def open_read(self, path: str) -> PosixReadFile:
        return PosixReadFile(path)

    def create(self, path: str) -> PosixWriteFile:
        return PosixWriteFile(path, new=True)

    def open_write(self, path: str) -> PosixWriteFile:
        return PosixWriteFile(path, new=False)

    def read_bytes(self, path: str, limit: int) -> bytes:
        return base.read_bytes(self, path, limit)

    def replace_file(self, path: str, data: Data) -> None:
        # Random, because a fenced writer on another host may be replacing the same file.
        base.replace_file(self, path, data, os.urandom(6).hex())

    def mkdir(self, path: str, exist_ok: bool = False) -> None:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not (exist_ok and self.is_dir(path)):
                raise

    def sync_dir(self, path: str) -> None:
        # The path a user gives for a table may be a link to a directory, hence no O_NOFOLLOW.
        descriptor = opened(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.fsync(descriptor.fd)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError as exc:
            if exc.errno not in base.LINKS_UNSUPPORTED:
                raise
            self._copy(source, target)

    def _copy(self, source: str, target: str) -> None:
        reader = self.open_read(source)
        try:
            writer = self.create(target)
            try:
                offset = 0
                while data := reader.pread(_COPY_BYTES, offset):
                    writer.pwrite(data, offset)
                    offset += len(data)
                writer.sync()
            except BaseException:
                with suppress(OSError):
                    os.unlink(target)
                raise
            finally:
                writer.close()
        finally:
            reader.close()

    def unlink(self, path: str, missing_ok: bool = False) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def rmtree(self, path: str) -> None:
        def on_error(_function: object, failed: str, info: tuple[type, BaseException, object]) -> None:
            if not isinstance(info[1], FileNotFoundError) or failed == path:
                raise info[1]

        shutil.rmtree(path, onerror=on_error)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        # Not os.path.exists, which calls a file absent when the disk fails to tell.
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(os.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def stat(self, path: str) -> FileStat:
        found = os.lstat(path)
        return FileStat(found.st_size, found.st_ino, found.st_mtime)

    def identity(self, path: str) -> Identity:
        # Opened, because network file systems look at the server again only then.  The time of the last
        # write is part of it, because a freed inode number is soon given to a new file.
        descriptor = opened(path, os.O_RDONLY | _FLAGS)
        found = os.fstat(descriptor.fd)
        return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def lease(self, path: str, *, sleep: Sleep | None = None) -> PosixLease:
        return PosixLease(path, sleep=sleep)


if TYPE_CHECKING:
    _checked: FileSystem = PosixFileSystem()
