"""About how many bytes the images of changes take: no more are made at a time than memory has room for."""

from __future__ import annotations

from collections.abc import Sequence

from kudu_core.common.schema.schema import StoredColumn
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.memory.memrowset import MemRowSet

_COMPRESSION = 2
"""Text in files is taken to be so many times as long as it is stored."""


def row_bytes(store: MemRowSet | DiskRowSet) -> float:
    """Of a row with all columns.  Opens nothing; cells of a fixed width may be packed to less."""
    if isinstance(store, MemRowSet):
        return store.nbytes / max(1, len(store)) + max((_of_log(log) for log in store.logs), default=0.0)
    changes = [
        _of_log(part)
        if isinstance(part, ChangeLog)
        else _COMPRESSION * part.ref.file.size / max(1, part.ref.entries)
        for part in (*store.undo, *store.redo)
    ]
    return _COMPRESSION * store.meta.base.size / max(1, store.meta.rows) + max(changes, default=0.0)


def image_bytes(store: MemRowSet | DiskRowSet, columns: Sequence[StoredColumn]) -> float:
    """Of a row with these columns; the store's file is open."""
    strings = [column for column in columns if not column.type.width]
    total = float(sum(column.type.width for column in columns))
    if isinstance(store, MemRowSet):
        known = [c.id for c in strings if c.id in store.schema.by_id]
        total += sum(map(store.column_bytes, known)) / max(1, len(store))
        return total + max((_of_log(log, strings) for log in store.logs), default=0.0)
    file = store.base.open()
    for column in strings:
        if file.has(column.id):
            total += _COMPRESSION * file.columns[column.id].stored_bytes / max(1, file.rows)
    changes = [0.0]
    for part in (*store.undo, *store.redo):
        if isinstance(part, ChangeLog):
            changes.append(_of_log(part, strings))
        elif any(column.id in part.ref.updates for column in strings):
            changes.append(_COMPRESSION * part.ref.file.size / max(1, part.ref.entries))
    return total + max(changes)


def _of_log(log: ChangeLog, columns: Sequence[StoredColumn] | None = None) -> float:
    held = log.nbytes if columns is None else sum(log.data_bytes(column.id) for column in columns)
    return held / max(1, len(log))


__all__ = ["image_bytes", "row_bytes"]
