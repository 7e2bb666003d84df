"""Tables by their paths: made, or opened, with what is not given put in its place; the answer is a handle."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kudu_core.common.partition.declared import HashPartition, RangePartition, declared_dimensions
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.run.clock import Clock
from kudu_core.common.schema.declare import declare
from kudu_core.errors import InvalidArgument, TableExists
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.objects.urls import refuse_url
from kudu_core.options import Options
from kudu_core.table.lifecycle.create import create
from kudu_core.table.lifecycle.open_reader import open_for_reading
from kudu_core.table.lifecycle.open_writer import open_for_writing
from kudu_core.table.opened.handle import Handle, warn_of_unreplayed

if TYPE_CHECKING:
    from kudu_core.events import EventListener, TableOpened
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.opened.engine import Engine


def open_handle(
    path: str | os.PathLike[str],
    mode: str = "r",
    *,
    options: Options | Mapping[str, Any] | None = None,
    timeout_s: float = 0.0,
    listener: EventListener | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> Handle:
    """The walk behind ``kudu_core.open_table``, which has the arguments and the errors."""
    root, clock = folder_path(path), clock or Clock()
    files = (fs or PosixFileSystem()).rooted(root)
    if mode not in ("r", "rw"):
        raise InvalidArgument(f'mode is "r" or "rw", not {mode!r}')
    settings = None if options is None else Options().overridden(options)
    if mode == "rw":
        return open_for_writing(files, root, settings, timeout_s, clock, listener, Handle)

    def newest() -> tuple[Engine, TableOpened]:
        return open_for_reading(files, root, settings, clock, listener)

    engine, event = newest()
    handle = Handle(engine, newest)
    engine.tell(event)
    warn_of_unreplayed(handle.engine.unreplayed)
    return handle


def create_handle(
    path: str | os.PathLike[str],
    schema: Any,
    primary_key: str | Sequence[str],
    *,
    partition_by: HashPartition | RangePartition | Sequence[HashPartition | RangePartition] = (),
    options: Options | Mapping[str, Any] | None = None,
    exist_ok: bool = False,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> Handle:
    """The walk behind ``kudu_core.create_table``, which has the arguments and the errors."""
    root = folder_path(path)
    files = (fs or PosixFileSystem()).rooted(root)
    wanted = declare(schema, primary_key)
    partitions = declared_dimensions(partition_by)
    settings = Options().overridden(options)
    if not exist_ok or not files.exists(f"{root}/TABLE"):
        made = PartitionSchema.make(wanted, partitions)
        try:
            create(files, root, wanted, made, settings, clock or Clock())
        except TableExists:
            if not exist_ok or not files.exists(f"{root}/TABLE"):
                raise
            # Another process has made it since the look.
        else:
            return open_handle(root, "rw", fs=files, clock=clock)
    handle = open_handle(root, "rw", options=options, fs=files, clock=clock)
    have = handle.engine
    same = have.schema.arrow == wanted.arrow and have.schema.key_names == wanted.key_names
    if not same or not have.partitions.is_cut_as(PartitionSchema.make(have.schema, partitions)):
        handle.close()
        raise TableExists(f"the table at {root} has another schema, key or partitions")
    return handle


def folder_path(path: str | os.PathLike[str]) -> str:
    """An absolute path; ``InvalidArgument`` for what is none, ``NotSupported`` for a place in a store."""
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgument(f"{path!r} is no path of a table")
    refuse_url(text)
    return str(Path(text).absolute())


__all__ = ["create_handle", "folder_path", "open_handle"]
