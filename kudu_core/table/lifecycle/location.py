"""Where a table is, or is to be: a folder of the machine, or a place in an object store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from kudu_core.common.partition.partitions import PartitionSchema
    from kudu_core.common.schema.schema import Schema
    from kudu_core.events import EventListener, TableOpened
    from kudu_core.fs.api import FileSystem
    from kudu_core.options import Options
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.stored.table_state import TableState

T = TypeVar("T")
Newest = Callable[[], "tuple[Engine, TableOpened] | None"]

class Location(Protocol):
    """See the module."""

    root: str
    """The path of a folder, or a URL."""

    @property
    def fs(self) -> FileSystem:
        """The files of the table, by paths that begin with ``root``."""

    @property
    def storage_options(self) -> Mapping[str, Any] | None:
        """Of a place in a store, as they were given."""

    def table_state(self) -> TableState:
        """What TABLE says; ``TableNotFound``."""

    def has_table(self) -> bool: ...

    def defaults(self) -> Options:
        """Those of a table that is made there."""

    def create(self, schema: Schema, partitions: PartitionSchema, options: Options) -> None:
        """Make a table; ``TableExists``."""

    def open_for_writing(
        self,
        options: Options | None,
        timeout_s: float,
        listener: EventListener | None,
        handle: Callable[[Engine], T],
    ) -> T: ...

    def open_for_reading(
        self, options: Options | None, listener: EventListener | None
    ) -> tuple[Engine, TableOpened, Newest]:
        """A picture of now, what listeners are told of it, and what opens a newer one."""


__all__ = ["Location", "Newest"]
