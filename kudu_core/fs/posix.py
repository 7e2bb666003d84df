"""The machine's file system.  Only this room makes system calls on files.

Files are opened with O_CLOEXEC and O_NOFOLLOW; what is made has the rights that the umask leaves.  Short
reads and writes are continued; Python repeats calls that a signal interrupts (PEP 475).  Nothing is mapped:
a damaged or vanished file raises instead of killing the process.

What is deeper than directly in the folder of a rooted file system is reached folder by folder, each opened
in the one before it and without following links (``places``): a look at the path first would leave a moment
for an exchange.  That costs two system calls for each folder on the way, of which there are at most three,
in calls that name a path (compiled: ``_ext/files/descriptors.pyx``); reads and writes of open files cost
nothing.  A file that has other names too is copied before it is written to.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from kudu_core._ext.files.descriptors import PlainFile
from kudu_core.errors import Closed, InvalidArgument
from kudu_core.fs import base
from kudu_core.fs.api import FileStat
from kudu_core.fs.descriptors import FOLDER_MODE, Descriptor, opened
from kudu_core.fs.lease import PosixLease, PosixReaderLock
from kudu_core.fs.places import Place, clear, place_beneath

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kudu_core.fs.api import Data, FileSystem, Identity, Sleep

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_FULL_SYNC = getattr(fcntl, "F_FULLFSYNC", None)
"""Of macOS, where ``fsync`` leaves bytes in the disk's own cache, and there is no ``fdatasync``."""
_IOV_MAX = os.sysconf("SC_IOV_MAX")

# Below this many bytes on average, pieces are cut from one read: a system call costs more than the copy.
_SMALL_PIECE_BYTES = 8 << 10


class _OpenFile(PlainFile):
    """An open file: its path, its descriptor, its size.

    Compiled code reads with the descriptor (``_ext/files/page_fetcher.pyx``), and writes records with it
    where the file's bytes have been written before (``_ext/few/log_state.pyx``).
    """

    __slots__ = ("path",)

    def __init__(self, path: str, descriptor: Descriptor) -> None:
        self.path = path
        self.descriptor = descriptor

    def _open(self) -> Descriptor:
        descriptor = self.descriptor
        if descriptor is None:
            raise Closed(f"{self.path} was closed")
        return descriptor

    def size(self) -> int:
        descriptor = self._open()
        return os.fstat(descriptor.fd).st_size

    def close(self) -> None:
        self.descriptor = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}{' closed' if self.descriptor is None else ''}>"


class PosixReadFile(_OpenFile):
    """See ``api.ReadFile``."""

    __slots__ = ()

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


class PosixWriteFile(_OpenFile):
    """See ``api.WriteFile``."""

    __slots__ = ("_end",)

    def __init__(self, path: str, descriptor: Descriptor, end: int) -> None:
        super().__init__(path, descriptor)
        self._end = end

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
        if _FULL_SYNC is not None:
            fcntl.fcntl(descriptor.fd, _FULL_SYNC)
        elif data_only:
            os.fdatasync(descriptor.fd)
        else:
            os.fsync(descriptor.fd)

    def truncate(self, size: int) -> None:
        descriptor = self._open()
        os.ftruncate(descriptor.fd, size)
        self._end = size


class PosixFileSystem:
    """See ``api.FileSystem``.  Holds no state: any number may be used side by side."""

    def __init__(self, root: str | None = None) -> None:
        self._root = root

    def rooted(self, path: str) -> PosixFileSystem:
        return PosixFileSystem(path)

    def _place(self, path: str) -> Place:
        return Place(path, path) if self._root is None else place_beneath(self._root, path)

    def _opened(self, path: str, flags: int) -> tuple[Descriptor, os.stat_result]:
        """A regular file, open.  Not waiting for the other end of a pipe, if it is one."""
        place = self._place(path)
        try:
            descriptor = place.opened(flags | _FLAGS | os.O_NONBLOCK)
        except OSError as exc:
            raise base.of_opening(exc, path) from None
        found = os.fstat(descriptor.fd)
        if not stat.S_ISREG(found.st_mode):
            raise base.no_file(path)
        return descriptor, found

    @property
    def local(self) -> PosixFileSystem:
        return self

    @property
    def whole(self) -> PosixFileSystem:
        return PosixFileSystem()

    @property
    def remote(self) -> bool:
        return False

    def open_read(self, path: str, size: int | None = None) -> PosixReadFile:
        return PosixReadFile(path, self._opened(path, os.O_RDONLY)[0])

    def will_open(self, path: str, size: int, tail: int = 0) -> None:
        """It is near."""

    def create(self, path: str) -> PosixWriteFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS
        return PosixWriteFile(path, self._place(path).opened(flags), 0)

    def open_write(self, path: str) -> PosixWriteFile:
        descriptor, found = self._opened(path, os.O_RDWR)
        if found.st_nlink > 1:
            base.detach(self, path, os.urandom(6).hex())
            descriptor, found = self._opened(path, os.O_RDWR)
        return PosixWriteFile(path, descriptor, found.st_size)

    def read_bytes(self, path: str, limit: int) -> bytes:
        return base.read_bytes(self, path, limit)

    def replace_file(self, path: str, data: Data) -> None:
        # Random, because a fenced writer on another host may be replacing the same file.
        base.replace_file(self, path, data, os.urandom(6).hex())

    def mkdir(self, path: str, exist_ok: bool = False) -> None:
        try:
            with self._place(path) as place:
                os.mkdir(place.name, FOLDER_MODE, dir_fd=place.dir_fd)
        except FileExistsError:
            if not (exist_ok and self.is_dir(path)):
                raise

    def _folder(self, path: str) -> Descriptor:
        """A folder, open."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        if self._root is None or path == self._root:
            # The path that a user gives may be a link to a folder.
            return opened(path, flags)
        return self._place(path).folder(flags)

    def sync_dir(self, path: str) -> None:
        folder = self._folder(path)
        os.fsync(folder.fd)

    def rename(self, source: str, target: str) -> None:
        new = self._place(target)
        with self._place(source) as old:
            os.rename(old.name, new.name, src_dir_fd=old.dir_fd, dst_dir_fd=new.dir_fd)

    def link(self, source: str, target: str) -> None:
        new = self._place(target)
        try:
            with self._place(source) as old:
                names = {"src_dir_fd": old.dir_fd, "dst_dir_fd": new.dir_fd}
                os.link(old.name, new.name, follow_symlinks=False, **names)
        except OSError as exc:
            if exc.errno not in base.LINKS_UNSUPPORTED:
                raise
            self._copy(source, target)
        if self._root is not None and stat.S_ISLNK(new.lstat().st_mode):
            new.unlink()
            raise base.refused_link(source)

    def _copy(self, source: str, target: str) -> None:
        reader = self.open_read(source)
        try:
            writer = self.create(target)
            try:
                offset = 0
                while data := reader.pread(base.COPY_BYTES, offset):
                    writer.pwrite(data, offset)
                    offset += len(data)
                writer.sync()
            except BaseException:
                with suppress(OSError):
                    self.unlink(target)
                raise
            finally:
                writer.close()
        finally:
            reader.close()

    def unlink(self, path: str, missing_ok: bool = False) -> None:
        try:
            self._place(path).unlink()
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self, path: str) -> None:
        self._place(path).rmdir()

    def rmtree(self, path: str) -> None:
        place = self._place(path)
        clear(place.folder(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), path)
        with suppress(FileNotFoundError):
            place.rmdir()

    def listdir(self, path: str) -> list[str]:
        folder = self._folder(path)
        return sorted(os.listdir(folder.fd))

    def exists(self, path: str) -> bool:
        # Not os.path.exists, which calls a file absent when the disk fails to tell.
        try:
            self._place(path).lstat()
        except (FileNotFoundError, NotADirectoryError, base.NoFolder):
            return False
        return True

    def is_dir(self, path: str) -> bool:
        given = self._root is None or path == self._root
        try:
            found = os.stat(path) if given else self._place(path).lstat()
        except (FileNotFoundError, NotADirectoryError, base.NoFolder):
            return False
        return stat.S_ISDIR(found.st_mode)

    def stat(self, path: str) -> FileStat:
        found = self._place(path).lstat()
        return FileStat(found.st_size, found.st_ino, found.st_mtime)

    def identity(self, path: str) -> Identity:
        # Opened, because network file systems look at the server again only then.  The time of the last
        # write is part of it, because a freed inode number is soon given to a new file.
        _, found = self._opened(path, os.O_RDONLY)
        return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)

    def lease(self, path: str, *, sleep: Sleep | None = None) -> PosixLease:
        if self._root is not None and len(base.names_beneath(self._root, path)) != 1:
            raise InvalidArgument(f"{path} is no lease of {self._root}: that lies directly in it")
        return PosixLease(path, sleep=sleep)

    def reader_lock(self, path: str) -> PosixReaderLock:
        return PosixReaderLock(path)


if TYPE_CHECKING:
    _checked: FileSystem = PosixFileSystem()
