"""A place in an object store where a table is, or is to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from kudu_core.errors import TableExists, TableNotFound
from kudu_core.objects.cache_options import cache_of
from kudu_core.objects.check_store import check_store
from kudu_core.objects.client import open_store
from kudu_core.objects.files.object_files import ObjectFiles
from kudu_core.objects.repeating import RepeatingStore
from kudu_core.objects.request_pool import request_pool
from kudu_core.objects.urls import parse
from kudu_core.options import Options
from kudu_core.table.lifecycle.in_store import create_in_store, open_store_writer
from kudu_core.table.lifecycle.in_store.drop_in_store import drop_in_store
from kudu_core.table.lifecycle.in_store.open_store_reader import StoreReader
from kudu_core.table.lifecycle.in_store.put_ids import put_id_of
from kudu_core.table.lifecycle.in_store.table_object import TableObject, place_of, read_table

if TYPE_CHECKING:
    from kudu_core.common.partition.partitions import PartitionSchema
    from kudu_core.common.run.clock import Clock
    from kudu_core.common.schema.schema import Schema
    from kudu_core.events import EventListener, TableOpened
    from kudu_core.fs.api import FileSystem
    from kudu_core.objects.api import ObjectStore, Requests
    from kudu_core.table.lifecycle.location import Location, Newest
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.stored.table_state import TableState

T = TypeVar("T")

CHECK_S, CHECK_THREADS = 1.0, 8
"""Of the short form of ``check_store`` with which a table begins."""


class StoreLocation:
    """See ``Location``."""

    def __init__(
        self,
        url: str,
        storage_options: Mapping[str, Any] | None,
        clock: Clock,
        requests: Requests | None = None,
    ) -> None:
        """``requests``: in the place of those of the client."""
        self.root = str(parse(url))
        self.storage_options = storage_options
        cache_of(storage_options)  # what is wrong with it is told before anything is asked
        self._clock = clock
        self._checked = requests is not None
        self._pool = request_pool()
        if requests is None:
            self.store: ObjectStore = open_store(url, storage_options, put_id_of=put_id_of, clock=clock)
        else:
            self.store = RepeatingStore(requests, put_id_of, clock)
        self.store.storage_options = storage_options
        self.fs: FileSystem = ObjectFiles(self.store, self.root, self._pool)

    def table_state(self) -> TableState:
        return read_table(self.store, self.root)[0]

    def has_table(self) -> bool:
        try:
            read_table(self.store, self.root)
        except TableNotFound:
            return False
        return True

    def defaults(self) -> Options:
        return Options().overridden(create_in_store.DEFAULTS)

    def create(self, schema: Schema, partitions: PartitionSchema, options: Options) -> None:
        if self.has_table():
            raise create_in_store.table_exists(self.root)
        self._create(schema, partitions, options, "")

    def _create(
        self, schema: Schema, partitions: PartitionSchema, options: Options, restore: str
    ) -> None:
        if not self._checked:
            create_in_store.refuse_unsafe(
                check_store(self.root, self.storage_options, seconds=CHECK_S, threads=CHECK_THREADS)
            )
        create_in_store.create(self.store, self.root, schema, partitions, options, restore)

    def restoring(
        self,
        restore: str,
        schema: Schema,
        partitions: PartitionSchema,
        options: Options,
        handle: Callable[[Engine], T],
    ) -> T:
        """A table that a restore makes, begun or taken up where another one of ``restore`` has stopped, open
        for writing.  Nobody else sees it before ``restored``.

        ``TableExists``: there is a table, or anything else but what such a restore has begun.
        """
        try:
            begun = place_of(read_table(self.store, self.root, restore=None)[0]).restore
        except TableNotFound:
            self._create(schema, partitions, options, restore)
        else:
            if not begun:
                raise create_in_store.table_exists(self.root)
            if begun != restore:
                raise TableExists(
                    f"at {self.root} a restore of {begun} was begun, and not of {restore}: bring that to its "
                    "end, or restore into another folder"
                )
        manual = options.overridden({"maintenance": "manual"})
        return open_store_writer.open_for_writing(
            self.store, self.root, manual, 0.0, self._clock, None, handle, self._pool, restore
        )

    def drop(self) -> tuple[str, ...]:
        """As ``drop_table``."""
        return drop_in_store(self.store, self.root, self._clock, self._pool)

    def open_for_writing(
        self,
        options: Options | None,
        timeout_s: float,
        listener: EventListener | None,
        handle: Callable[[Engine], T],
    ) -> T:
        return open_store_writer.open_for_writing(
            self.store, self.root, options, timeout_s, self._clock, listener, handle, self._pool
        )

    def open_for_reading(
        self, options: Options | None, listener: EventListener | None
    ) -> tuple[Engine, TableOpened, Newest]:
        reader = StoreReader(self.store, self.root, options, self._clock, listener, self._pool)
        return *reader.open(), reader.reopen


def restored(engine: Engine) -> None:
    """From now on the table is there."""
    engine.log.wait_durable(engine.log.cut())
    table = engine.table_file
    assert isinstance(table, TableObject)
    table.put(lambda state: replace(state, place=replace(place_of(state), restore="")))


if TYPE_CHECKING:

    def _checked(location: StoreLocation) -> Location:
        return location


__all__ = ["StoreLocation", "restored"]
