"""What is used of hdfs-native's ``Client``, so that tests can put another in its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class HdfsStatus(Protocol):
    """A file, or a folder: its whole path, and its time in milliseconds since 1970."""

    @property
    def path(self) -> str: ...
    @property
    def length(self) -> int: ...
    @property
    def isdir(self) -> bool: ...
    @property
    def modification_time(self) -> int: ...


class HdfsReader(Protocol):
    """A file that is open for reading; its length is what it was when it was opened."""

    def __len__(self) -> int: ...
    def read(self) -> bytes: ...
    def read_range(self, offset: int, length: int, /) -> bytes:
        """A range beyond the end is a panic, and no exception."""


class HdfsWriter(Protocol):
    """A new file."""

    def write(self, data: bytes, /) -> int: ...
    def hsync(self) -> None: ...
    def close(self) -> None: ...


class HdfsClient(Protocol):
    """Paths are absolute; folders of a listing are not entered."""

    def get_file_info(self, path: str) -> HdfsStatus: ...
    def list_status(self, path: str) -> Iterator[HdfsStatus]: ...
    def read(self, path: str) -> HdfsReader: ...
    def create(self, path: str) -> HdfsWriter:
        """Folders above it are made; a file that is there is ``FileExistsError``."""

    def mkdirs(self, path: str, *, create_parent: bool) -> None: ...
    def rename(self, src: str, dst: str, overwrite: bool) -> None: ...
    def delete(self, path: str) -> bool:
        """A file, or an empty folder: whether it was there."""


__all__ = ["HdfsClient", "HdfsReader", "HdfsStatus", "HdfsWriter"]
