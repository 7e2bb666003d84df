"""``kudu_core.repair``: what can be read of a damaged table, as a new one beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from kudu_core.common.partition.declared import HashPartition, RangePartition
from kudu_core.common.run.clock import Clock
from kudu_core.common.run.measure.work import LongWork
from kudu_core.common.schema.declare import Column
from kudu_core.errors import InvalidArgument
from kudu_core.events import tell
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.lifecycle.handles import folder_path
from kudu_core.table.repair.report import RepairReport

if TYPE_CHECKING:
    from kudu_core.events import EventListener
    from kudu_core.fs.api import FileSystem
    from kudu_core.table.calls.arguments import ProgressLike


def repair(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    dry_run: bool = True,
    schema: pa.Schema | Sequence[Column | pa.Field] | None = None,
    primary_key: str | Sequence[str] | None = None,
    partition_by: HashPartition | RangePartition | Sequence[HashPartition | RangePartition] | None = None,
    listener: EventListener | None = None,
    progress: ProgressLike = None,
    _fs: FileSystem | None = None,
    _clock: Clock | None = None,
) -> RepairReport:
    """Read what can be read of a damaged table and, unless ``dry_run``, make a new table of it.

    The damaged table is never changed.  The new one has a row of each key of which a whole row can be read:
    the newest, or, where the newest cannot be read, one that it had before.  It has the rows' newest state
    only, all with the time of the repair.  In its folder `repair/` are the report and Arrow files of what is
    not in it or in doubt.

    >>> stock.close()
    >>> kc.repair(stock.path).is_sound
    True

    Parameters
    ----------
    target
        Where the new table is to be; None: beside the damaged one, with `.repaired` after its name.
    dry_run
        Read and report only.
    schema, primary_key, partition_by
        As for ``create_table``, of a table whose TABLE and TABLE.copy cannot be read: columns in the order
        in which they were made.
    listener, progress
        Told how far it is: as of ``open_table``, and as of ``Table.backup``.

    Raises
    ------
    Locked
        Somebody has the table open for writing, or has opened it while it was read.
    TableExists
        There is something at ``target``; nothing was changed.
    TableNotFound
        There is nothing of a table at ``path``.
    InvalidArgument
        What was given does not fit the table, or is needed; ``target`` lies in the table's folder.
    """
    fs, root = _fs or PosixFileSystem(), folder_path(path)
    place = f"{root}.repaired" if target is None else folder_path(target)
    if f"{place}/".startswith(f"{root}/"):
        raise InvalidArgument(f"{place} lies in the damaged table's own folder; it belongs elsewhere")
    # Here: few repair a table, and with what it needs it is an eighth of the cost of importing the package.
    from kudu_core.table.repair import walk
    from kudu_core.table.repair.guessing import Given

    given = Given(schema, primary_key, partition_by)
    told = None if listener is None else partial(tell, listener)
    with LongWork("repair", told, progress=progress):
        return walk.repair(fs, root, place, given, dry_run=dry_run, clock=_clock or Clock())


__all__ = ["repair"]
