"""The location that a path or a URL names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kudu_core.errors import InvalidArgument
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.objects.urls import is_url
from kudu_core.options import Options
from kudu_core.table.lifecycle.checks import table_state
from kudu_core.table.lifecycle.create import create
from kudu_core.table.lifecycle.open_reader import open_for_reading
from kudu_core.table.lifecycle.open_writer import open_for_writing

if TYPE_CHECKING:
    from kudu_core.common.partition.partitions import PartitionSchema
    from kudu_core.common.run.clock import Clock
    from kudu_core.common.schema.schema import Schema
    from kudu_core.events import EventListener, TableOpened
    from kudu_core.fs.api import FileSystem
    from kudu_core.objects.api import Requests
    from kudu_core.table.lifecycle.location import Location, Newest
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.stored.table_state import TableState

T = TypeVar("T")


class FolderLocation:
    """See ``Location``."""

    def __init__(self, root: str, fs: FileSystem, clock: Clock) -> None:
        self.root = root
        self.fs = fs.rooted(root)
        self.storage_options = None
        self._clock = clock

    def table_state(self) -> TableState:
        return table_state(self.fs, self.root)

    def has_table(self) -> bool:
        return self.fs.exists(f"{self.root}/TABLE")

    def defaults(self) -> Options:
        return Options()

    def create(self, schema: Schema, partitions: PartitionSchema, options: Options) -> None:
        create(self.fs, self.root, schema, partitions, options, self._clock)

    def open_for_writing(
        self,
        options: Options | None,
        timeout_s: float,
        listener: EventListener | None,
        handle: Callable[[Engine], T],
    ) -> T:
        return open_for_writing(self.fs, self.root, options, timeout_s, self._clock, listener, handle)

    def open_for_reading(
        self, options: Options | None, listener: EventListener | None
    ) -> tuple[Engine, TableOpened, Newest]:
        def newest() -> tuple[Engine, TableOpened]:
            return open_for_reading(self.fs, self.root, options, self._clock, listener)

        return *newest(), newest


def location_of(
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem | None = None,
    clock: Clock,
    requests: Requests | None = None,
) -> Location:
    """The place that a path or a URL names; ``InvalidArgument`` where it names none."""
    text = os.fspath(path)
    if is_in_store(path):
        # What few tables need is not loaded with the others.
        from kudu_core.table.lifecycle.in_store.store_location import StoreLocation

        return StoreLocation(text, storage_options, clock, requests)
    if storage_options is not None:
        raise InvalidArgument(
            f"storage_options are of an object store, such as s3://bucket/folder; {text!r} is a folder"
        )
    return FolderLocation(absolute(text), fs or PosixFileSystem(), clock)


def is_in_store(path: str | os.PathLike[str]) -> bool:
    """Whether ``location_of`` takes it for a URL."""
    text = os.fspath(path)
    return isinstance(text, str) and is_url(text)


def absolute(text: Any) -> str:
    """An absolute path; ``InvalidArgument`` for what is no path."""
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgument(f"{text!r} is no path of a table")
    return str(Path(text).absolute())


__all__ = ["FolderLocation", "absolute", "is_in_store", "location_of"]
