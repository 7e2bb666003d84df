"""Where a table is, or is to be: a folder of the machine, or a place in an object store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from kudu_core.common.partition.partitions import PartitionSchema
    from kudu_core.common.schema.schema import Schema
    from kudu_core.events import EventListener, TableOpened
    from kudu_core.options import Options
    from kudu_core.table.opened.engine import Engine

T = TypeVar("T")
Newest = Callable[[], "tuple[Engine, TableOpened] | None"]

class Location(Protocol):
    """See the module."""

    root: str
    """The path of a folder, or a URL."""

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
