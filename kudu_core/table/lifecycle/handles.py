"""Tables by their paths: made, or opened, with what is not given put in its place; the answer is a handle."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kudu_core.common.partition.declared import HashPartition, RangePartition, declared_dimensions
from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.run.clock import Clock
from kudu_core.common.schema.declare import declare
from kudu_core.common.schema.ttl import told_ttl
from kudu_core.errors import InvalidArgument, Locked, TableExists
from kudu_core.objects.urls import is_url, parse, refuse_url
from kudu_core.options import Options
from kudu_core.table.lifecycle.locations import absolute, location_of
from kudu_core.table.opened.handle import Handle
from kudu_core.table.opened.read_end import warn_of_unreplayed
from kudu_core.table.opened.travel.origin import replaced

if TYPE_CHECKING:
    from kudu_core.events import EventListener, TableOpened
    from kudu_core.fs.api import FileSystem
    from kudu_core.objects.api import Requests
    from kudu_core.table.lifecycle.location import Newest
    from kudu_core.table.opened.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFrom:
    """See ``Origin``.  What it says of an object store travels with it, as with a scan token."""

    path: str
    options: Options | None = None
    """Of the handle."""
    refresh_s: float | None = None
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    uuid: bytes | None = None
    """Of the table that the handle was of; None: of whichever there is."""
    listener: EventListener | None = None
    """Of this process: it goes into the child of a fork, and no further."""
    fs: FileSystem | None = None
    clock: Clock | None = None
    requests: Requests | None = None

    def open(self) -> tuple[Engine, TableOpened, Newest]:
        place = location_of(
            self.path,
            storage_options=self.storage_options,
            fs=self.fs,
            clock=self.clock or Clock(),
            requests=self.requests,
        )
        engine, event, newest = place.open_for_reading(self.options, self.listener)
        if self.uuid not in (None, engine.uuid):
            engine.discard()
            raise replaced(self.path)
        return engine, event, newest

    def of(self, uuid: bytes) -> OpenedFrom:
        return replace(self, uuid=uuid)

    def sent(self) -> OpenedFrom:
        return replace(self, listener=None)


def open_handle(
    path: str | os.PathLike[str],
    mode: str = "r",
    *,
    options: Options | Mapping[str, Any] | None = None,
    timeout_s: float = 0.0,
    listener: EventListener | None = None,
    storage_options: Mapping[str, Any] | None = None,
    refresh_s: float | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    requests: Requests | None = None,
) -> Handle:
    """The walk behind ``kudu_core.open_table``, which has the arguments and the errors."""
    place = location_of(
        path, storage_options=storage_options, fs=fs, clock=clock or Clock(), requests=requests
    )
    if mode not in ("r", "rw", "auto"):
        raise InvalidArgument(f'mode is "r", "rw" or "auto", not {mode!r}')
    _check_refresh(refresh_s)
    settings = None if options is None else Options().overridden(options)
    origin = OpenedFrom(
        path=place.root, options=settings, refresh_s=refresh_s, storage_options=place.storage_options,
        listener=listener, fs=fs, clock=clock, requests=requests,
    )  # fmt: skip
    if mode != "r":
        try:
            return place.open_for_writing(settings, timeout_s, listener, partial(Handle, origin=origin))
        except Locked:
            if mode == "rw":
                raise
    began_s = (clock or Clock()).monotonic_s()
    engine, event, newest = place.open_for_reading(settings, listener)
    handle = Handle(engine, newest, origin, began_s)
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
    listener: EventListener | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
    requests: Requests | None = None,
    ttl: Any = None,
) -> Handle:
    """The walk behind ``kudu_core.create_table``, which has the arguments and the errors."""
    place = location_of(
        path, storage_options=storage_options, fs=fs, clock=clock or Clock(), requests=requests
    )
    wanted = declare(schema, primary_key, ttl)
    partitions = declared_dimensions(partition_by)
    settings = place.defaults().overridden(options)
    origin = OpenedFrom(
        path=place.root, storage_options=place.storage_options, listener=listener, fs=fs, clock=clock,
        requests=requests,
    )  # fmt: skip
    if not exist_ok or not place.has_table():
        made = PartitionSchema.make(wanted, partitions)
        try:
            place.create(wanted, made, settings)
        except TableExists:
            if not exist_ok or not place.has_table():
                raise
            # Another process has made it since the look.
        else:
            return place.open_for_writing(None, 0.0, listener, partial(Handle, origin=origin))
    given = None if options is None else Options().overridden(options)
    origin = replace(origin, options=given)
    handle = place.open_for_writing(given, 0.0, listener, partial(Handle, origin=origin))
    have = handle.engine
    same = have.schema.arrow == wanted.arrow and have.schema.key_names == wanted.key_names
    lives = told_ttl(have.schema.ttl, have.schema.by_id)
    same = same and lives == told_ttl(wanted.ttl, wanted.by_id)
    if not same or not have.partitions.is_cut_as(PartitionSchema.make(have.schema, partitions)):
        handle.close()
        raise TableExists(f"the table at {place.root} has another schema, key, ttl or partitions")
    return handle


def _check_refresh(refresh_s: object) -> None:
    """``InvalidArgument`` unless it is a number of seconds from 0, or None."""
    number = isinstance(refresh_s, int | float) and not isinstance(refresh_s, bool)
    if refresh_s is not None and not (number and refresh_s >= 0):  # type: ignore[operator]
        raise InvalidArgument(f"refresh_s is a number of seconds from 0, or None, not {refresh_s!r}")


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
