"""What the begin of a distributed write must know of its table: of one that is open, or by TABLE alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.clock import Clock
from kudu_core.table.lifecycle.locations import location_of

if TYPE_CHECKING:
    from kudu_core.common.partition.partitions import PartitionSchema
    from kudu_core.common.schema.schema import Schema
    from kudu_core.fs.api import FileSystem
    from kudu_core.options import Options
    from kudu_core.table.opened.engine import Engine


@dataclass(frozen=True, slots=True)
class JobTable:
    """A table as a job sees it when it begins."""

    fs: FileSystem
    path: str
    uuid: bytes
    schema: Schema
    partitions: PartitionSchema
    options: Options
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    @staticmethod
    def of(engine: Engine) -> JobTable:
        return JobTable(
            engine.fs, engine.path, engine.uuid, engine.schema, engine.partitions, engine.asked_options,
            engine.table_file.storage_options,
        )  # fmt: skip

    @staticmethod
    def at(path: str, storage_options: Mapping[str, Any] | None = None) -> JobTable:
        """What TABLE says, without a look at manifests and the log: for writes of which an open would be the
        most expensive part.

        An ALTER is in TABLE before anybody is told of it.  One that its process did not live to write there
        is found by the commit, which opens the table, and fits the rows to it.
        """
        place = location_of(path, storage_options=storage_options, clock=Clock())
        state = place.table_state()
        return JobTable(
            place.fs, place.root, state.uuid, state.schema, state.partitions, state.options,
            place.storage_options,
        )  # fmt: skip


__all__ = ["JobTable"]
