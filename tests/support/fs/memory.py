"""A file system in memory that is strict about what a power cut may take; for tests.

Each file is its durable bytes and the ordered list of changes since the last sync; each directory is
its durable names and the ordered list of changes since its last sync.  ``crash_clone`` makes an
independent file system of what may be left after a power cut (the form is Pebble's crash clone):

* of a file's un-synced writes and truncations any subset may survive, in order; a long write may
  survive in pieces, the last one torn at any byte; holes are zeros, and zeros may follow;
* of a directory's un-synced changes any subset may survive, in order.  A rename within a directory is
  one change; between directories it is one change until one of the two is synced;
* what was synced is never lost.  A synced file whose name was not is.

Inode numbers are never used twice.  One lock guards everything, so calls of all threads are in one order.
"""

from __future__ import annotations

import errno
import itertools
import posixpath
import random
import threading
from typing import TYPE_CHECKING

from kudu_core.errors import InvalidArgument
from kudu_core.fs import base
from kudu_core.fs.api import FileStat
from tests.support.fs.powercut import Cut, Directory, File, Link, holds, names_of, walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from kudu_core.fs.api import Data, FileSystem, Identity, Lease, Sleep
    from tests.support.fs.powercut import Keep, Node
from tests.support.fs.memory_files import MemoryLease, MemoryReaderLock, MemoryReadFile, MemoryWriteFile

_DEVICE = 1
_MAX_LINKS = 40
# Without a clock every file looks as if it had just been written: nothing is stale.
_ALWAYS_FRESH_S = float(1 << 40)


class MemoryFileSystem:
    """See the module and ``api.FileSystem``.  Relative paths start at the root.

    ``now_s`` gives the modification times, seconds since 1970.
    """

    def __init__(self, now_s: Callable[[], float] | None = None) -> None:
        self._lock = threading.RLock()
        self._now_s = now_s if now_s is not None else lambda: _ALWAYS_FRESH_S
        self._numbers = itertools.count(1)
        self._life = 0
        self._root = Directory(next(self._numbers), self._now_s())

    def rooted(self, path: str) -> MemoryFileSystem:
        return _Rooted(self, path)

    @property
    def whole(self) -> MemoryFileSystem:
        return self

    def _number(self) -> int:
        return next(self._numbers)

    # Names -------------------------------------------------------------------------------------

    def _lookup(self, path: str, follow: bool = False) -> Node:
        """What has this name.  Links on the way are followed; ``follow``: one in the last place too."""
        return self._found(path, follow, 0)

    def _found(self, path: str, follow: bool, links: int) -> Node:
        if not path:
            raise base.os_error(errno.ENOENT, path)
        node: Node = self._root
        names = [name for name in posixpath.normpath(path).split("/") if name not in ("", ".")]
        for place, name in enumerate(names):
            child = self._child(node, name, path)
            if isinstance(child, Link) and (follow or place + 1 < len(names)):
                if links == _MAX_LINKS:
                    raise base.os_error(errno.ELOOP, path)
                here = "/" + "/".join(names[:place])
                child = self._found(posixpath.join(here, child.target), True, links + 1)
            node = child
        return node

    def _child(self, node: Node, name: str, path: str) -> Node:
        if not isinstance(node, Directory):
            raise base.os_error(errno.ENOTDIR, path)
        child = node.entries.get(name)
        if child is None:
            raise base.os_error(errno.ENOENT, path)
        return child

    def _directory(self, path: str) -> Directory:
        node = self._lookup(path, follow=True)
        if not isinstance(node, Directory):
            raise base.os_error(errno.ENOTDIR, path)
        return node

    def _file(self, path: str) -> File:
        node = self._lookup(path)
        if isinstance(node, Link):
            raise base.refused_link(path)
        if not isinstance(node, File):
            raise base.no_file(path)
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        """The directory that has, or would have, this name."""
        parent, name = posixpath.split(posixpath.normpath(path))
        if not name or name in (".", ".."):
            raise base.os_error(errno.EINVAL, path)
        return self._directory(parent or "/"), name

    def symlink(self, target: str, path: str) -> None:
        """For tests: the engine makes no links of this kind."""
        with self._lock:
            directory, name = self._place(path)
            if name in directory.entries:
                raise base.os_error(errno.EEXIST, path)
            self._set(directory, {name: Link(self._number(), self._now_s(), target)})

    def _set(self, directory: Directory, names: dict[str, Node | None], group: int | None = None) -> None:
        directory.change(names, self._number() if group is None else group)
        directory.mtime_s = self._now_s()

    # Files -------------------------------------------------------------------------------------

    @property
    def local(self) -> MemoryFileSystem:
        return self

    @property
    def remote(self) -> bool:
        return False

    def open_read(self, path: str, size: int | None = None) -> MemoryReadFile:
        with self._lock:
            return MemoryReadFile(self, path, self._file(path))

    def will_open(self, path: str, size: int, tail: int = 0) -> None:
        """It is near."""

    def create(self, path: str) -> MemoryWriteFile:
        with self._lock:
            directory, name = self._place(path)
            if name in directory.entries:
                raise base.os_error(errno.EEXIST, path)
            node = File(self._number(), self._now_s())
            self._set(directory, {name: node})
            return MemoryWriteFile(self, path, node)

    def open_write(self, path: str) -> MemoryWriteFile:
        with self._lock:
            if names_of(self._root, self._file(path)) > 1:
                base.detach(self, path, str(self._number()))
            return MemoryWriteFile(self, path, self._file(path))

    def read_bytes(self, path: str, limit: int) -> bytes:
        return base.read_bytes(self, path, limit)

    def replace_file(self, path: str, data: Data) -> None:
        base.replace_file(self, path, data, str(self._number()))

    def link(self, source: str, target: str) -> None:
        with self._lock:
            node = self._file(source)
            directory, name = self._place(target)
            if name in directory.entries:
                raise base.os_error(errno.EEXIST, target)
            self._set(directory, {name: node})

    def unlink(self, path: str, missing_ok: bool = False) -> None:
        with self._lock:
            try:
                if isinstance(self._lookup(path), Directory):
                    raise base.os_error(errno.EISDIR, path)
            except FileNotFoundError:
                if missing_ok:
                    return
                raise
            directory, name = self._place(path)
            self._set(directory, {name: None})

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            node = self._lookup(source)
            old_directory, old_name = self._place(source)
            new_directory, new_name = self._place(target)
            replaced = new_directory.entries.get(new_name)
            if replaced is node:
                return  # two names of one file: POSIX does nothing
            if isinstance(replaced, Directory):
                if not isinstance(node, Directory):
                    raise base.os_error(errno.EISDIR, target)
                if replaced.entries:
                    raise base.os_error(errno.ENOTEMPTY, target)
            elif replaced is not None and isinstance(node, Directory):
                raise base.os_error(errno.ENOTDIR, target)
            if isinstance(node, Directory) and holds(node, new_directory):
                raise base.os_error(errno.EINVAL, target)  # a directory into itself
            if old_directory is new_directory:
                self._set(old_directory, {old_name: None, new_name: node})
            else:
                group = self._number()
                self._set(old_directory, {old_name: None}, group)
                self._set(new_directory, {new_name: node}, group)

    # Directories -------------------------------------------------------------------------------

    def mkdir(self, path: str, exist_ok: bool = False) -> None:
        with self._lock:
            if exist_ok and self.is_dir(path):
                return
            directory, name = self._place(path)
            if name in directory.entries:
                raise base.os_error(errno.EEXIST, path)
            self._set(directory, {name: Directory(self._number(), self._now_s())})

    def sync_dir(self, path: str) -> None:
        with self._lock:
            self._directory(path).sync()

    def rmdir(self, path: str) -> None:
        with self._lock:
            node = self._lookup(path)
            if not isinstance(node, Directory):
                raise base.os_error(errno.ENOTDIR, path)
            if node.entries:
                raise base.os_error(errno.ENOTEMPTY, path)
            directory, name = self._place(path)
            self._set(directory, {name: None})

    def rmtree(self, path: str) -> None:
        with self._lock:
            base.rmtree(self.rooted(base.parent(path)), path)

    def listdir(self, path: str) -> list[str]:
        with self._lock:
            return sorted(self._directory(path).entries)

    # Looking -----------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        with self._lock:
            try:
                self._lookup(path)
            except (FileNotFoundError, NotADirectoryError, base.NoFolder):
                return False
            return True

    def is_dir(self, path: str) -> bool:
        with self._lock:
            try:
                return isinstance(self._lookup(path, follow=True), Directory)
            except (FileNotFoundError, NotADirectoryError, base.NoFolder):
                return False

    def stat(self, path: str) -> FileStat:
        with self._lock:
            node = self._lookup(path)
            return FileStat(len(node.data) if isinstance(node, File) else 0, node.inode, node.mtime_s)

    def identity(self, path: str) -> Identity:
        with self._lock:
            return (_DEVICE, self._file(path).inode)

    def lease(self, path: str, *, sleep: Sleep | None = None) -> MemoryLease:
        return MemoryLease(self, path, sleep)

    def reader_lock(self, path: str) -> MemoryReaderLock:
        return MemoryReaderLock(self, path)

    # Accidents ---------------------------------------------------------------------------------

    def sync_all(self) -> None:
        """Make everything durable: where a crash test begins."""
        with self._lock:
            for node in walk(self._root, {}).values():
                node.sync()

    def drop_unsynced(self, path: str) -> None:
        """What a failed sync of this file or directory does (see ``MemoryWriteFile.drop_unsynced``)."""
        with self._lock:
            self._lookup(path).pending.clear()

    def kill(self) -> None:
        """What ``kill -9`` of the process does: leases are free, its open files are dead, data stays.

        Calls by path still work, for the next process; so nothing of the old one may be running.
        """
        with self._lock:
            self._life += 1
            for node in walk(self._root, {}).values():
                if isinstance(node, File):
                    node.lock_owner = None
                    node.readers.clear()

    def crash_clone(self, rng: random.Random | int | None = None, keep: Keep = "random") -> MemoryFileSystem:
        """What a power cut at this moment may leave, as a file system of its own without leases.

        ``keep``: "none" leaves only what was synced, "all" everything that was not dropped by a failed
        sync, "random" some legal state between, drawn from ``rng`` (a ``Random`` or a seed).
        """
        generator = rng if isinstance(rng, random.Random) else random.Random(rng)
        clone = MemoryFileSystem(self._now_s)
        with self._lock:
            # Never an inode number twice, so that an identity taken before the cut stays unequal.
            first_free = next(self._numbers)
            clone._numbers = itertools.count(first_free)
            self._numbers = itertools.count(first_free)
            Cut(generator, keep).fill(clone._root, self._root)
        return clone


class _Rooted(MemoryFileSystem):
    """See ``api.FileSystem.rooted``.  Has no state of its own but the path."""

    def __init__(self, fs: MemoryFileSystem, root: str) -> None:
        self._whole = fs
        self._lock, self._now_s, self._root = fs._lock, fs._now_s, fs._root
        self._path = root

    @property
    def _life(self) -> int:  # type: ignore[override]
        return self._whole._life

    def rooted(self, path: str) -> MemoryFileSystem:
        return self._whole.rooted(path)

    @property
    def whole(self) -> MemoryFileSystem:
        return self._whole

    def _number(self) -> int:
        return self._whole._number()

    def _lookup(self, path: str, follow: bool = False) -> Node:
        names = base.names_beneath(self._path, path)
        if not names:
            return self._whole._lookup(path, follow)
        node, at = self._whole._lookup(self._path, follow=True), self._path
        for place, name in enumerate(names):
            if not isinstance(node, Directory) and at != self._path:
                raise base.NoFolder(at)
            node, at = self._child(node, name, path), posixpath.join(at, name)
            if isinstance(node, Link) and place + 1 < len(names):
                raise base.refused_link(at)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._lookup(path, follow=True)
        if isinstance(node, Link):
            raise base.refused_link(path)
        if not isinstance(node, Directory):
            raise base.os_error(errno.ENOTDIR, path) if path == self._path else base.NoFolder(path)
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        if not base.names_beneath(self._path, path):
            return self._whole._place(path)
        parent, name = posixpath.split(path)
        return self._directory(parent), name

    def rmtree(self, path: str) -> None:
        with self._lock:
            base.rmtree(self, path)

    def lease(self, path: str, *, sleep: Sleep | None = None) -> MemoryLease:
        if len(base.names_beneath(self._path, path)) != 1:
            raise InvalidArgument(f"{path} is no lease of {self._path}: that lies directly in it")
        return super().lease(path, sleep=sleep)


if TYPE_CHECKING:
    _checked: FileSystem = MemoryFileSystem()
    _lease: Lease = _checked.lease("")
