"""What the begin of a distributed write must know of its table: of one that is open, or by TABLE alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.lifecycle.checks import table_state
from kudu_core.table.lifecycle.handles import folder_path

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

    @staticmethod
    def of(engine: Engine) -> JobTable:
        return JobTable(
            engine.fs, engine.path, engine.uuid, engine.schema, engine.partitions, engine.asked_options
        )

    @staticmethod
    def at(path: str) -> JobTable:
        """What TABLE says, without a look at manifests and the log: for writes of which an open would be the
        most expensive part.

        An ALTER is in TABLE before anybody is told of it.  One that its process did not live to write there
        is found by the commit, which opens the table, and fits the rows to it.
        """
        root = folder_path(path)
        fs = PosixFileSystem().rooted(root)
        state = table_state(fs, root)
        return JobTable(fs, root, state.uuid, state.schema, state.partitions, state.options)


__all__ = ["JobTable"]
