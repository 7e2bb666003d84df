"""Reading everything that a table has stored, past the caches, to see that it is sound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kudu_core.rowset.deltastore import DeltaStore
from kudu_core.wal import open_log

if TYPE_CHECKING:
    from kudu_core.table.engine import Engine
    from kudu_core.tablet.tablet import Tablet


@dataclass(frozen=True, slots=True)
class Verified:
    """What ``Table.verify`` has read and found sound."""

    files: int
    bytes: int
    records: int
    """Of the log, as far as it is durable and still needed."""


def verify(engine: Engine) -> Verified:
    """Read every data file of the newest state, and the log.

    Raises
    ------
    Corruption
        At the first damage, with file and offset.  Of a record of the log that cannot be replayed, too.
    """
    check_replayed(engine)
    found = [verify_tablet(tablet) for tablet in engine.tablets]
    return Verified(sum(files for files, _ in found), sum(size for _, size in found), verify_log(engine))


def verify_tablet(tablet: Tablet) -> tuple[int, int]:
    """Read every data file of a tablet's newest state; how many there are, and their bytes."""
    files = size = 0
    for rowset in tablet.view.rowsets:
        rowset.base.open().verify()
        for store in (*rowset.redo, *rowset.undo):
            if isinstance(store, DeltaStore):
                store.open().verify()
        files += len(rowset.meta.files)
        size += rowset.meta.size_bytes
    return files, size


def check_replayed(engine: Engine) -> None:
    """``Corruption`` if the handle ends before a record of the log that cannot be replayed."""
    if engine.unreplayed is not None:
        raise engine.unreplayed.as_corruption()


def verify_log(engine: Engine) -> int:
    """Read the log as far as it is durable and still needed; how many records that are."""
    tail = open_log(engine.fs, f"{engine.path}/wal", engine.state.uuid, writer_alive=engine.writer)
    try:
        return sum(1 for _ in tail.records())
    finally:
        tail.close()


__all__ = ["Verified", "check_replayed", "verify", "verify_log", "verify_tablet"]
