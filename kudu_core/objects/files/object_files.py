"""The data files of a table as objects: a ``FileSystem`` as far as an object store can be one.

Folders are only names here, so making one, or its names durable, is nothing.  What no store has, and what
nothing on a store may rest on, raises ``InternalError``: renaming, links, appending to what is there, locks.

A file exists when its ``sync`` has returned, whole, and no sooner (protocol B12: its name is used once).  No
descriptor keeps it readable when it is deleted: whoever reads then meets ``FileMissing`` (protocol B14).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from kudu_core.common.run.locks import mutex
from kudu_core.errors import Closed, InternalError, InvalidArgument, NotSupported, StoreError
from kudu_core.fs.api import FileStat
from kudu_core.fs.base import byte_views
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.objects.files.asked_pieces import AskedPieces
from kudu_core.objects.files.file_ends import Reads

if TYPE_CHECKING:
    from kudu_core.common.run.pool import Pool, Task
    from kudu_core.fs.api import Data, FileSystem, Identity, Lease, ReaderLock, ReadFile, Sleep, WriteFile
    from kudu_core.objects.api import Entry, ObjectStore
    from kudu_core.objects.files.asked_pieces import Pieces
    from kudu_core.objects.files.file_ends import Ends

MOST_COMING: Final = 4096
"""Files that will be opened."""
MOST_BYTES: Final = 5 << 30
"""Of a file: what S3 takes in one put."""


class ObjectFiles:
    """See the module.  Paths begin with ``root``, a URL or any other text.  Thread safe."""

    def __init__(
        self, store: ObjectStore, root: str, pool: Pool | None = None, reads: Reads | None = None
    ) -> None:
        """``pool``: for what is asked for before it is read; None: nothing is.  ``reads``: None: of the
        store alone."""
        self._store = store
        self._reads = reads or Reads(store)
        self._root = root
        self._pool = pool
        self._mutex = mutex()
        """Guards ``_sizes`` and ``_coming``; held for a moment."""
        self._sizes: dict[str, int] = {}
        """Of files that were written, listed or opened, so that none is asked for when it is deleted."""
        self._coming: dict[tuple[str, int], Task[Ends]] = {}
        """By path and size: the ends of files that will be opened."""
        self.asked = AskedPieces()

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

    @property
    def whole(self) -> FileSystem:
        return self

    @property
    def remote(self) -> bool:
        return True

    # ---- reading ----

    def open_read(self, path: str, size: int | None = None) -> ReadFile:
        """Without ``size`` a LIST says it, and ``FileNotFoundError`` where there is none."""
        if size is None:
            size = self._entry(path).size
        with self._mutex:
            self._sizes[path] = size
            ends = self._coming.pop((path, size), None)
        return _ReadObject(self._reads, path, self.name_of(path), size, self._pool, ends, self.asked)

    def will_open(self, path: str, size: int, tail: int = 0) -> None:
        if self._pool is None:
            return
        name = self.name_of(path)
        with self._mutex:
            if (path, size) in self._coming or len(self._coming) >= MOST_COMING:
                return
            opening = self._reads.opening  # now, and not when its turn comes
            self._coming[path, size] = self._pool.submit(
                lambda: self._reads.ends(path, name, size, tail, opening=opening)
            )

    def end_opening(self) -> None:
        """The table is open: nothing more is kept of what is read."""
        self._reads.opening = False

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
        """The sizes of all that lies there are known afterwards."""
        cut = len(self.name_of(path)) + 1 if path != self._root else 0
        found = self._beneath(path)
        with self._mutex:
            self._sizes |= {f"{self._root}/{entry.name}": entry.size for entry in found}
        return sorted({entry.name[cut:].partition("/")[0] for entry in found})

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

    def __init__(
        self,
        reads: Reads,
        path: str,
        name: str,
        size: int,
        pool: Pool | None,
        ends: Task[Ends] | None,
        pieces: AskedPieces,
    ) -> None:
        """``ends``: they are on their way."""
        self._coming = ends
        self._pieces = pieces
        self._reads = reads
        self._pool = pool
        self._path = path
        self._name = name
        self._size = size
        self._closed = False
        self._kept: Ends | None = None
        """(offset, bytes) of the beginning and the end, from the first read on."""
        self._asked: Pieces = {}

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
            kept = self._ends(n if offset else 0)
            if offset == 0:  # else it is read once, by who then has what it says
                self._kept = kept
        for begin, data in kept or ():
            if begin <= offset and offset + n <= begin + len(data):
                return data[offset - begin : offset - begin + n]
        for begin, length in list(self._asked):
            if begin <= offset and offset + n <= begin + length:
                found = self._arrived((begin, length), keep=(begin, length) != (offset, n))
                if found is not None:
                    return found[offset - begin : offset - begin + n]
        return self._fetched([(offset, n)], self._reads.opening)[0]

    def _arrived(self, piece: tuple[int, int], *, keep: bool) -> bytes | None:
        """What was asked for, once it is there; None where it has to be asked for anew."""
        task = self._asked.get(piece)
        if task is None:
            return None
        data: bytes | None = None
        with suppress(StoreError):  # of then: who reads now is told what the store says now
            data = task.result()
        if data is None or not keep:
            self._asked.pop(piece, None)
            self._pieces.forget(self._asked, [piece])
        return data

    def ask(self, n: int, offset: int) -> bool:
        """Begin to fetch what will be read; whether that was begun.  It is kept until it is read, or until
        more is asked for than there is place."""
        if self._pool is None or self._closed or n <= 0 or offset < 0 or offset + n > self._size:
            return False
        if not self._pieces.takes(n):
            return False
        for begin, data in self._kept or ():
            if begin <= offset and offset + n <= begin + len(data):
                return False
        if any(begin <= offset and offset + n <= begin + length for begin, length in list(self._asked)):
            return False
        opening = self._reads.opening
        self._asked[offset, n] = self._pool.submit(lambda: self._fetched([(offset, n)], opening)[0])
        self._pieces.note(self._asked, (offset, n))
        return True

    def is_near(self, n: int, offset: int) -> bool:
        """Whether what is read there waits for nobody."""
        if any(begin <= offset and offset + n <= begin + len(data) for begin, data in self._kept or ()):
            return True
        task = self._asked.get((offset, n))
        return task is not None and task.done

    def preadv(self, sizes: Sequence[int], offset: int) -> list[bytes]:
        data = self.pread(sum(sizes), offset)
        pieces, at = [], 0
        for size in sizes:
            pieces.append(data[at : at + size])
            at += size
        return pieces

    def _ends(self, tail: int) -> Ends:
        """``tail``: bytes of the end that are read before anything else; 0: the header is."""
        coming, self._coming = self._coming, None
        if coming is not None:
            with suppress(StoreError):  # as in _arrived
                return coming.result()
        opening = self._reads.opening
        return self._reads.ends(self._path, self._name, self._size, tail, opening=opening)

    def _fetched(self, ranges: list[tuple[int, int]], opening: bool) -> list[bytes]:
        return self._reads.ranges(self._path, self._name, self._size, ranges, opening=opening)

    def close(self) -> None:
        self._closed = True
        self._kept = None
        pieces = list(self._asked)
        self._asked.clear()
        self._pieces.forget(self._asked, pieces)


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
