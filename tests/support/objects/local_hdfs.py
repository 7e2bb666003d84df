"""A client of HDFS over a folder of this machine, which answers as hdfs-native has answered here; for tests.

Renames, and all else, are atomic as they are at a name node.  Its clock is ``ahead_s`` before this machine's.
``before`` and ``after`` are called around each request with its name and its paths: what they raise is its
answer, so ``before`` refuses it and ``after`` loses the answer to one that was applied.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kudu_core.objects.clients.hdfs_api import HdfsClient

STACK = "\\n\\tat org.apache.hadoop.hdfs.server.namenode.FSNamesystem.any(FSNamesystem.java:1)\\n\\tat ..."

DENIED = "org.apache.hadoop.security.AccessControlException"


def java(name: str, message: str) -> RuntimeError:
    """An exception of the name node that is none of Python's."""
    return RuntimeError(f'RPCError("{name}", "{message}{STACK}")')


class LocalStatus(NamedTuple):
    path: str
    length: int
    isdir: bool
    modification_time: int


class LocalReader:
    """The bytes as they were when the file was opened."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read(self) -> bytes:
        return self._data

    def read_range(self, offset: int, length: int, /) -> bytes:
        assert offset + length <= len(self._data), "hdfs-native panics: Cannot read past end of the file"
        return self._data[offset : offset + length]


class LocalWriter:
    def __init__(self, hdfs: LocalHdfs, path: str) -> None:
        self._hdfs, self._path = hdfs, path

    def write(self, data: bytes, /) -> int:
        with self._hdfs.request("write", self._path), self._hdfs.place_of(self._path).open("ab") as file:
            return file.write(data)

    def hsync(self) -> None:
        with self._hdfs.request("hsync", self._path):
            self._hdfs.synced.add(self._path)

    def close(self) -> None:
        with self._hdfs.request("close", self._path):
            self._hdfs.closed.add(self._path)


class _Request:
    def __init__(self, hdfs: LocalHdfs, name: str, paths: tuple[str, ...]) -> None:
        self._hdfs, self._name, self._paths = hdfs, name, paths

    def __enter__(self) -> None:
        self._hdfs.before(self._name, *self._paths)
        self._hdfs.mutex.acquire()
        self._hdfs.asked.append((self._name, *self._paths))

    def __exit__(self, kind: object, *_: object) -> None:
        self._hdfs.mutex.release()
        if kind is None:
            self._hdfs.after(self._name, *self._paths)


def nothing(name: str, *paths: str) -> None:
    """A request that is left alone."""


class LocalHdfs:
    """See the module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ahead_s = 0.0
        self.at_s: float | None = None
        """When all was written, in the place of its time."""
        self.before: Callable[..., None] = nothing
        self.after: Callable[..., None] = nothing
        self.mutex = threading.RLock()
        self.asked: list[tuple[str, ...]] = []
        """(name, paths) of each request that came so far."""
        self.synced: set[str] = set()
        self.closed: set[str] = set()

    def request(self, name: str, *paths: str) -> _Request:
        return _Request(self, name, paths)

    def place_of(self, path: str) -> Path:
        assert path.startswith("/") and "//" not in path, path
        return self.folder / path[1:]

    def age(self, path: str, seconds: float) -> None:
        """Make a file older."""
        place = self.place_of(path)
        old = place.stat().st_mtime - seconds
        os.utime(place, (old, old))

    def files(self) -> list[str]:
        """All that there are, and empty folders."""
        found = [each for each in self.folder.rglob("*") if each.is_file() or not any(each.iterdir())]
        return sorted(f"/{each.relative_to(self.folder)}" for each in found)

    # -- what hdfs-native has ------------------------------------------------------------------------------

    def get_file_info(self, path: str) -> LocalStatus:
        with self.request("get_file_info", path):
            if not self.place_of(path).exists():
                raise FileNotFoundError(path)
            return self._status(path)

    def list_status(self, path: str) -> Iterator[LocalStatus]:
        with self.request("list_status", path):
            self._check_above(path)
            place = self.place_of(path)
            if not place.exists():
                raise FileNotFoundError(path)
            if place.is_file():
                return iter([self._status(path)])
            return iter(self._status(f"{path.rstrip('/')}/{name}") for name in sorted(os.listdir(place)))

    def read(self, path: str) -> LocalReader:
        with self.request("read", path):
            self._check_above(path)
            place = self.place_of(path)
            if not place.exists():
                raise FileNotFoundError(f"File does not exist: {path}\n\tat org.apache")
            if place.is_dir():
                raise FileNotFoundError(f"Path is not a file: {path}\n\tat org.apache")
            return LocalReader(place.read_bytes())

    def create(self, path: str) -> LocalWriter:
        with self.request("create", path):
            place = self.place_of(path)
            if place.exists():
                raise FileExistsError(f"{path} for client 127.0.0.1 already exists\n\tat org.apache")
            self._make(place.parent)
            place.write_bytes(b"")
            return LocalWriter(self, path)

    def mkdirs(self, path: str, *, create_parent: bool) -> None:
        with self.request("mkdirs", path):
            self._check_above(path, "org.apache.hadoop.fs.ParentNotDirectoryException")
            if self.place_of(path).is_file():
                raise FileExistsError(f"Path is not a directory: {path}\n\tat org.apache")
            assert create_parent
            self._make(self.place_of(path))

    def rename(self, src: str, dst: str, overwrite: bool) -> None:
        with self.request("rename", src, dst):
            old, new = self.place_of(src), self.place_of(dst)
            self._check_above(dst, "org.apache.hadoop.fs.ParentNotDirectoryException")
            if not old.exists():
                raise FileNotFoundError(f"rename source {src} is not found.\n\tat org.apache")
            if new.is_dir():
                message = f"Source {src} and destination {dst} must both be directories"
                raise java("java.io.IOException", message)
            if new.exists() and not overwrite:
                raise FileExistsError(f"rename destination {dst} already exists\n\tat org.apache")
            if not new.parent.is_dir():
                raise FileNotFoundError(f"rename destination parent {dst} not found.\n\tat org.apache")
            assert src in self.closed, "the file is not whole"
            os.replace(old, new)

    def delete(self, path: str) -> bool:
        with self.request("delete", path):
            self._check_above(path)
            place = self.place_of(path)
            if not place.exists():
                return False
            if place.is_dir() and any(place.iterdir()):
                name = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"
                raise java(name, f"`{path} is non empty': Directory is not empty")
            if place.is_dir():
                place.rmdir()
            else:
                place.unlink()
            return True

    def _check_above(self, path: str, name: str = DENIED) -> None:
        for above in self.place_of(path).parents:
            if above.is_file():
                raise java(name, f"/{above.relative_to(self.folder)} (is not a directory)")

    def _make(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def _status(self, path: str) -> LocalStatus:
        place = self.place_of(path)
        found = place.stat()
        size = 0 if place.is_dir() else found.st_size
        time_s = found.st_mtime + self.ahead_s if self.at_s is None else self.at_s
        return LocalStatus(path, size, place.is_dir(), int(time_s * 1000))

    def remove(self) -> None:
        """All of it."""
        shutil.rmtree(self.folder, ignore_errors=True)


if TYPE_CHECKING:

    def _checked(client: LocalHdfs) -> HdfsClient:
        return client
