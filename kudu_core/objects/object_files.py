"""The data files of a table as objects: a ``FileSystem`` as far as an object store can be one.

Folders are only names here, so making one, or its names durable, is nothing.  What no store has, and what
nothing on a store may rest on, raises ``InternalError``: renaming, links, appending to what is there, locks.

A file exists when its ``sync`` has returned, whole, and no sooner (protocol B12: its name is used once).  No
descriptor keeps it readable when it is deleted: whoever reads then meets ``FileMissing`` (protocol B14).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from kudu_core.common.run.locks import mutex
from kudu_core.errors import Closed, InternalError, InvalidArgument, NotSupported
from kudu_core.fs.api import FileStat
from kudu_core.fs.base import byte_views
from kudu_core.fs.missing import FileMissing
from kudu_core.fs.posix import PosixFileSystem

if TYPE_CHECKING:
    from kudu_core.fs.api import Data, FileSystem, Identity, Lease, ReaderLock, ReadFile, Sleep, WriteFile
    from kudu_core.objects.api import Entry, ObjectStore

HEAD_BYTES: Final = 64
TAIL_BYTES: Final = 16 << 10
"""Of a file that is opened, what is fetched at its first read, in one wave: more than its header, and its
end, where most of what says how it is laid out lies."""
SMALL_BYTES: Final = 64 << 10
"""A file that is not larger is fetched whole."""
MOST_BYTES: Final = 5 << 30
"""Of a file: what S3 takes in one put."""


class ObjectFiles:
    """See the module.  Paths begin with ``root``, a URL or any other text.  Thread safe."""

    def __init__(self, store: ObjectStore, root: str) -> None:
        self._store = store
        self._root = root
        self._mutex = mutex()
        """Guards ``_sizes``; held for a moment."""
        self._sizes: dict[str, int] = {}
        """Of files that were written or opened, so that none is asked for when it is deleted."""

    def name_of(self, path: str) -> str:
        """The object of a path, "" for the root; ``InvalidArgument`` where it leads elsewhere."""
        if path == self._root:
            return ""
        if not path.startswith(f"{self._root}/"):
            raise InvalidArgument(f"{path!r} is no path in {self._root!r}")
        return path[len(self._root) + 1 :]

    @property
    def local(self) -> FileSystem:
        """The machine's."""
        return PosixFileSystem()

    # ---- reading ----

    def open_read(self, path: str, size: int | None = None) -> ReadFile:
        """Without ``size`` a LIST says it, and ``FileNotFoundError`` where there is none."""
        if size is None:
            size = self._entry(path).size
        with self._mutex:
            self._sizes[path] = size
        return _ReadObject(self._store, path, self.name_of(path), size)

    def read_bytes(self, path: str, limit: int) -> bytes:
        return self._store.read_bytes(self.name_of(path), limit)

    # ---- writing ----

    def create(self, path: str) -> WriteFile:
        """Whether the name is taken is not asked."""
        return _WriteObject(self, path)

    def put(self, path: str, data: Data) -> None:
        self._store.put(self.name_of(path), data)

    def replace_file(self, path: str, data: Data) -> None:
        self.put(path, data)

    def note_size(self, path: str, size: int) -> None:
        with self._mutex:
            self._sizes[path] = size

    def unlink(self, path: str, missing_ok: bool = False) -> None:
        """A store does not say whether it was there, so ``missing_ok`` makes no difference."""
        self._store.delete_many([self.name_of(path)])
        with self._mutex:
            self._sizes.pop(path, None)

    def rmtree(self, path: str) -> None:
        """What a LIST shows.  For names that nobody else uses."""
        self._store.delete_many([entry.name for entry in self._beneath(path)])

    # ---- names ----

    def _beneath(self, path: str) -> list[Entry]:
        return self._store.entries(self.name_of(path))

    def listdir(self, path: str) -> list[str]:
        cut = len(self.name_of(path)) + 1 if path != self._root else 0
        return sorted({entry.name[cut:].partition("/")[0] for entry in self._beneath(path)})

    def is_dir(self, path: str) -> bool:
        return bool(self._beneath(path))

    def exists(self, path: str) -> bool:
        if self.is_dir(path):
            return True
        try:
            self._entry(path)
        except FileNotFoundError:
            return False
        return True

    def stat(self, path: str) -> FileStat:
        """The size that is known, with no time; else what a LIST says."""
        with self._mutex:
            size = self._sizes.get(path)
        if size is not None:
            return FileStat(size, 0, 0.0)
        found = self._entry(path)
        return FileStat(found.size, 0, found.mtime_s)

    def _entry(self, path: str) -> Entry:
        name = self.name_of(path)
        for entry in self._store.entries(name.rpartition("/")[0]):
            if entry.name == name:
                return entry
        raise FileNotFoundError(2, "no such object", path)

    # ---- what is nothing here ----

    def mkdir(self, path: str, exist_ok: bool = False) -> None:
        """Folders are only names."""

    def rmdir(self, path: str) -> None:
        """Folders are only names."""

    def sync_dir(self, path: str) -> None:
        """A put is durable with its name."""

    def rooted(self, path: str) -> FileSystem:
        """There are no links that could lead out of it."""
        return self

    # ---- what no store has ----

    def rename(self, source: str, target: str) -> None:
        self._refuse("rename", source)

    def link(self, source: str, target: str) -> None:
        self._refuse("link", source)

    def open_write(self, path: str) -> WriteFile:
        self._refuse("open_write", path)

    def identity(self, path: str) -> Identity:
        self._refuse("identity", path)

    def lease(self, path: str, *, sleep: Sleep | None = None) -> Lease:
        self._refuse("lease", path)

    def reader_lock(self, path: str) -> ReaderLock:
        self._refuse("reader_lock", path)

    def _refuse(self, call: str, path: str) -> NoReturn:
        raise InternalError(f"{call} of {path}: nothing in an object store rests on that")


class _ReadObject:
    """An object open for reading.  Thread safe."""

    def __init__(self, store: ObjectStore, path: str, name: str, size: int) -> None:
        self._store = store
        self._path = path
        self._name = name
        self._size = size
        self._closed = False
        self._kept: list[tuple[int, bytes]] | None = None
        """(offset, bytes) of the beginning and the end, from the first read on."""

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return self._size

    def pread(self, n: int, offset: int) -> bytes:
        if self._closed:
            raise Closed(f"{self._path} is closed")
        n = max(0, min(n, self._size - offset))
        if not n:
            return b""
        kept = self._kept
        if kept is None and (offset == 0 or offset + n == self._size):
            kept = self._kept = self._ends()
        for begin, data in kept or ():
            if begin <= offset and offset + n <= begin + len(data):
                return data[offset - begin : offset - begin + n]
        return self._fetched([(offset, n)])[0]

    def preadv(self, sizes: Sequence[int], offset: int) -> list[bytes]:
        data = self.pread(sum(sizes), offset)
        pieces, at = [], 0
        for size in sizes:
            pieces.append(data[at : at + size])
            at += size
        return pieces

    def _ends(self) -> list[tuple[int, bytes]]:
        if self._size <= SMALL_BYTES:
            wanted = [(0, self._size)]
        else:
            tail = self._size - TAIL_BYTES
            wanted = [(0, HEAD_BYTES), (tail, TAIL_BYTES)]
        found = self._fetched(wanted)
        return [(offset, data) for (offset, _), data in zip(wanted, found, strict=True)]

    def _fetched(self, ranges: list[tuple[int, int]]) -> list[bytes]:
        try:
            return self._store.read_ranges(self._name, ranges)
        except FileNotFoundError:
            raise FileMissing(self._path) from None

    def close(self) -> None:
        self._closed = True
        self._kept = None


class _WriteObject:
    """An object that is being written: gathered, and put whole by ``sync``."""

    def __init__(self, files: ObjectFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._pieces: list[bytes] = []
        self._size = 0
        self._put_size = -1
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return self._size

    def append(self, data: Data) -> int:
        if self._closed:
            raise Closed(f"{self._path} is closed")
        views = byte_views(data)
        added = sum(view.nbytes for view in views)
        if self._size + added > MOST_BYTES:
            raise NotSupported(
                f"{self._path} would have more than {MOST_BYTES:,} bytes, the most that an object has here"
            )
        offset = self._size
        self._pieces += map(bytes, views)  # the caller may change its buffers
        self._size += added
        return offset

    def pwrite(self, data: Data, offset: int) -> None:
        if offset != self._size:
            raise InternalError(f"{self._path}: an object is written from front to back")
        self.append(data)

    def truncate(self, size: int) -> None:
        whole = b"".join(self._pieces)[:size]
        self._pieces = [whole, bytes(size - len(whole))]
        self._size = size
        self._put_size = -1

    def sync(self, data_only: bool = False) -> None:
        if self._put_size == self._size:
            return
        whole = b"".join(self._pieces)
        self._pieces = [whole]
        self._files.put(self._path, whole)
        self._put_size = self._size
        self._files.note_size(self._path, self._size)

    def close(self) -> None:
        """What was not synced is nothing."""
        self._closed = True
        self._pieces = []


if TYPE_CHECKING:

    def _checked(files: ObjectFiles) -> FileSystem:
        return files


__all__ = ["ObjectFiles"]
