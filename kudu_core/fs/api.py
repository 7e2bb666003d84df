"""What the engine may do with files, whoever stores them.

``PosixFileSystem`` is the machine's.  Tests have two more: one in memory, strict about what a power cut
may take, and one that lets calls fail.  Every file of a table is reached through one of them.  Nothing
here knows what the bytes mean.

Paths are ``str`` and use ``/``.  Errors are the operating system's ``OSError``; the exceptions are
``Closed`` (a file used after ``close``), ``Locked`` and ``Corruption``: for ``read_bytes`` of a file that is
far too long, for what is opened as a file and is a link, a folder or a pipe, and for what ``rooted`` says.

Durability is POSIX's at its strictest: ``WriteFile.sync`` saves a file's bytes and length but not its
name; ``sync_dir`` saves the names in one directory; a rename is atomic but may be lost until then.  A
failed ``sync`` or ``sync_dir`` is final: what it should have saved may be gone although it still reads
back, and a later sync that succeeds proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy.typing as npt

Buffer: TypeAlias = "bytes | bytearray | memoryview | npt.NDArray[Any]"
"""One contiguous buffer; its bytes are taken as they lie in memory."""

Data: TypeAlias = "Buffer | Sequence[Buffer]"
"""A buffer, or a list or tuple of buffers that are written one after another."""

Identity: TypeAlias = tuple[int, ...]
"""Equal for two looks at one file, different when another file took its name.  Opaque."""

Sleep: TypeAlias = Callable[[float], object]
"""Waits for a number of seconds."""


class FileStat(NamedTuple):
    """``size`` in bytes, ``inode``, ``mtime_s`` in seconds since 1970."""

    size: int
    inode: int
    mtime_s: float


class LeaseHolder(NamedTuple):
    """Who holds a lease, as far as its file says: a hint, None where it says nothing."""

    pid: int | None
    host: str | None


class ReadFile(Protocol):
    """A file open for reading.  Any thread may read; it stays readable after unlink and rename."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def pread(self, n: int, offset: int) -> bytes:
        """``n`` bytes from ``offset``; fewer only where the file ends."""

    def preadv(self, sizes: Sequence[int], offset: int) -> list[bytes]:
        """Adjacent pieces from ``offset`` on; short or empty ones only where the file ends."""

    def close(self) -> None:
        """Idempotent.  A read that another thread has begun still ends well."""


class WriteFile(Protocol):
    """A file open for writing.

    ``sync`` may run beside writes of another thread; the writes themselves need one thread at a time.
    """

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def append(self, data: Data) -> int:
        """Write at the end and return the offset where the data begins.

        The end is the size at opening, moved by successful writes and by ``truncate``.  After an error
        bytes may lie beyond it; the next append overwrites them, ``truncate`` removes them.
        """

    def pwrite(self, data: Data, offset: int) -> None:
        """Write at ``offset``; a gap before it reads as zeros.  After an error a part may be written."""

    def sync(self, data_only: bool = False) -> None:
        """Make bytes and length durable; ``data_only`` leaves out the times (fdatasync)."""

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros."""

    def close(self) -> None:
        """Let go of the file; never syncs.  Idempotent."""


class Lease(Protocol):
    """A lock on a file that dies with its owner.  See ``kudu_core.fs.lease``."""

    @property
    def path(self) -> str: ...

    @property
    def held(self) -> bool: ...

    def try_acquire(self, wait_s: float = 0.0) -> None:
        """Take the lease, trying for ``wait_s`` seconds; 0 tries once.

        Raises ``Locked`` with what the holder wrote into the file; nothing has changed then.
        """

    def holder(self) -> LeaseHolder | None:
        """Who holds the lease now, this process included; None when nobody does.  Changes nothing."""

    def has_readers(self) -> bool:
        """Whether somebody has a ``ReaderLock`` of this file, in this process or another; True where nobody
        can say.  Asked while the lease is held."""

    def release(self) -> None:
        """Give the lease back.  Idempotent; in the child of a fork the same as ``abandon``."""

    def abandon(self) -> None:
        """In the child of a fork: close the inherited descriptor; the parent keeps the lease."""


class ReaderLock(Protocol):
    """A lock of the file of a lease that many may have: they read.  It dies with its owner."""

    def take(self) -> bool:
        """False where that is impossible; nothing is created or waited for."""

    def release(self) -> None:
        """Idempotent; in the child of a fork the same as ``abandon``."""

    def abandon(self) -> None:
        """In the child of a fork: close the inherited descriptor; the parent keeps the lock."""


class FileSystem(Protocol):
    """Everything the engine does with files and directories."""

    @property
    def local(self) -> FileSystem:
        """Where folders of this machine are: itself, but of an object store."""

    @property
    def whole(self) -> FileSystem:
        """The same files and all others, as before ``rooted``.  For what is in two folders at once: a link
        or a rename between them."""

    @property
    def remote(self) -> bool:
        """Whether each read waits for a store."""

    def open_read(self, path: str, size: int | None = None) -> ReadFile:
        """``size``: what a manifest says of it.  A store, which would have to ask, believes it; then a file
        that is not there may be found out when it is read (``FileMissing``)."""

    def will_open(self, path: str, size: int, tail: int = 0) -> None:
        """``open_read`` will be called: a store begins to fetch what is read first.  Never an error.

        ``tail``: how much of the end that is; 0: whatever is usual."""

    def create(self, path: str) -> WriteFile:
        """A new empty file, with the rights that the umask leaves; ``FileExistsError``: the name is taken."""

    def open_write(self, path: str) -> WriteFile:
        """An existing file, as it is; ``FileNotFoundError`` when there is none.

        One that has other names (hard links) is not written to: a copy is put in its place first.
        """

    def read_bytes(self, path: str, limit: int) -> bytes:
        """A whole file; ``Corruption`` when it is longer than ``limit`` bytes."""

    def replace_file(self, path: str, data: Data) -> None:
        """Put a new file at ``path``: temporary name, sync, rename, sync of the directory.

        After a crash the path holds the old file or the new one, whole.  After an error too, and the
        temporary file is gone unless that failed as well (``is_temporary`` knows its name).
        """

    def mkdir(self, path: str, exist_ok: bool = False) -> None:
        """A directory, with the rights that the umask leaves.  Its parent must exist."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable: new ones, renamed ones, missing ones."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file at ``target``."""

    def link(self, source: str, target: str) -> None:
        """A second name for a file, or a synced copy where links are impossible.

        ``FileExistsError`` when the target exists.  The name is not durable before ``sync_dir``.
        """

    def unlink(self, path: str, missing_ok: bool = False) -> None: ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""

    def rmtree(self, path: str) -> None:
        """Remove a directory and all in it; names that vanish meanwhile are no error."""

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def stat(self, path: str) -> FileStat: ...

    def identity(self, path: str) -> Identity:
        """Which file has this name now; compare with ``==`` (``FileNotFoundError``: none)."""

    def lease(self, path: str, *, sleep: Sleep | None = None) -> Lease:
        """The lease of the file at ``path``, not yet taken."""

    def reader_lock(self, path: str) -> ReaderLock:
        """A reader's lock of the file of a lease, not yet taken."""

    def rooted(self, path: str) -> FileSystem:
        """The same files, and of them only those in the folder ``path``, at any depth, and itself.

        Where a folder beneath it is expected and something else stands there, ``Corruption`` names that.

        The path of that folder is a user's, so it may be or contain links.  Beneath it none is followed,
        whatever the call and wherever in the path it stands, also when a folder is exchanged for a link
        while a call is under way: ``Corruption`` names it.  A path that leads out of the folder is
        ``InvalidArgument``.

        ``rooted`` of the answer is of the whole file system again.
        """
