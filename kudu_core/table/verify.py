"""Reading everything that a table has stored, past the caches, to see that it is sound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kudu_core.rowset.deltastore import DeltaStore
from kudu_core.wal import open_log

if TYPE_CHECKING:
    from kudu_core.table.engine import Engine


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
        At the first damage, with file and offset.
    """
    files = size = 0
    for tablet in engine.tablets:
        for rowset in tablet.view.rowsets:
            rowset.base.open().verify()
            for store in (*rowset.redo, *rowset.undo):
                if isinstance(store, DeltaStore):
                    store.open().verify()
            files += len(rowset.meta.files)
            size += rowset.meta.size_bytes
    records = 0
    tail = open_log(engine.fs, f"{engine.path}/wal", engine.state.uuid, writer_alive=engine.writer)
    try:
        records = sum(1 for _ in tail.records())
    finally:
        tail.close()
    return Verified(files, size, records)


__all__ = ["Verified", "verify"]
