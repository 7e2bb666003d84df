"""Tables by their paths: made, or opened, with what is not given put in its place; the answer is a handle."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kudu_core.common.partition.declared import HashPartition, RangePartition, declared_dimensions
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.run.clock import Clock
from kudu_core.common.schema.declare import declare
from kudu_core.errors import InvalidArgument, TableExists
from kudu_core.objects.urls import is_url, parse, refuse_url
from kudu_core.options import Options
from kudu_core.table.lifecycle.locations import absolute, location_of
from kudu_core.table.opened.handle import Handle, warn_of_unreplayed

if TYPE_CHECKING:
    from kudu_core.events import EventListener
    from kudu_core.fs.api import FileSystem
    from kudu_core.objects.api import Requests


def open_handle(
    path: str | os.PathLike[str],
    mode: str = "r",
    *,
    options: Options | Mapping[str, Any] | None = None,
    timeout_s: float = 0.0,
    listener: EventListener | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    requests: Requests | None = None,
) -> Handle:
    """The walk behind ``kudu_core.open_table``, which has the arguments and the errors."""
    place = location_of(
        path, storage_options=storage_options, fs=fs, clock=clock or Clock(), requests=requests
    )
    if mode not in ("r", "rw"):
        raise InvalidArgument(f'mode is "r" or "rw", not {mode!r}')
    settings = None if options is None else Options().overridden(options)
    if mode == "rw":
        return place.open_for_writing(settings, timeout_s, listener, Handle)
    engine, event, newest = place.open_for_reading(settings, listener)
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
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    requests: Requests | None = None,
) -> Handle:
    """The walk behind ``kudu_core.create_table``, which has the arguments and the errors."""
    place = location_of(
        path, storage_options=storage_options, fs=fs, clock=clock or Clock(), requests=requests
    )
    wanted = declare(schema, primary_key)
    partitions = declared_dimensions(partition_by)
    settings = place.defaults().overridden(options)
    if not exist_ok or not place.has_table():
        made = PartitionSchema.make(wanted, partitions)
        try:
            place.create(wanted, made, settings)
        except TableExists:
            if not exist_ok or not place.has_table():
                raise
            # Another process has made it since the look.
        else:
            return place.open_for_writing(None, 0.0, None, Handle)
    given = None if options is None else Options().overridden(options)
    handle = place.open_for_writing(given, 0.0, None, Handle)
    have = handle.engine
    same = have.schema.arrow == wanted.arrow and have.schema.key_names == wanted.key_names
    if not same or not have.partitions.is_cut_as(PartitionSchema.make(have.schema, partitions)):
        handle.close()
        raise TableExists(f"the table at {place.root} has another schema, key or partitions")
    return handle


def folder_path(path: str | os.PathLike[str]) -> str:
    """An absolute path; ``InvalidArgument`` for what is none, ``NotSupported`` for a place in a store."""
    text = os.fspath(path)
    if isinstance(text, str):
        refuse_url(text)
    return absolute(text)


def table_path(path: str | os.PathLike[str]) -> str:
    """An absolute path, or the URL of a place in a store, as ``Table.path`` has it; ``InvalidArgument`` for
    what is neither."""
    text = os.fspath(path)
    return str(parse(text)) if isinstance(text, str) and is_url(text) else absolute(text)


__all__ = ["create_handle", "folder_path", "open_handle", "table_path"]
