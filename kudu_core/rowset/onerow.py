"""One row of one rowset at one snapshot, by its key: the row path beside ``RowsAt``.

The row is read from the base in compiled code, and what memory holds of its changes is laid over it.
Where files have changes that the snapshot may see, ``RowsAt`` says whether the row lives and what its
changed columns hold.  ``Elsewhere`` and ``PageError`` pass through: the caller then asks ``RowsAt`` for
all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kudu_core._ext.rowcodec import RowShape
from kudu_core.common.schema import StoredColumn
from kudu_core.rowset.changelog import ChangeLog
from kudu_core.rowset.deltastore import DeltaStore
from kudu_core.rowset.diskrowset import DiskRowSet
from kudu_core.rowset.memrowset import MemRowSet
from kudu_core.rowset.reading import RowsAt

Row = dict[str, Any]


def memory_row(
    memory: MemRowSet,
    key: bytes,
    key_hash: int,
    snapshot: int,
    shape: RowShape,
    columns: Sequence[StoredColumn],
) -> Row | None:
    """The row of a key if it is present at the snapshot; None says: not in this rowset."""
    ordinal = memory.find_one(key, key_hash, snapshot)
    if ordinal < 0:
        return None
    out = shape.row(memory.cells_of(ordinal, shape.ids))
    return _changed(out, (memory.changes,), ordinal, snapshot, shape)


def disk_row(
    rowset: DiskRowSet,
    key: bytes,
    key_hash: int,
    snapshot: int,
    shape: RowShape,
    columns: Sequence[StoredColumn],
) -> Row | None:
    """The same for a rowset on disk."""
    meta = rowset.meta
    if meta.insert_ts is not None and meta.insert_ts > snapshot:
        return None
    points = rowset.base.open().points
    row = points.find(key, key_hash)
    if row < 0:
        return None
    if meta.max_insert_ts <= snapshot and not _may_change_on_disk(rowset, snapshot):
        return _changed(points.row(row, shape), rowset.memory_stores, row, snapshot, shape)
    seen = rowset.at(snapshot)
    if seen is None or not _lives(seen, row):
        return None
    return _patched(points.row(row, shape), seen, row, shape, columns)


def _may_change_on_disk(rowset: DiskRowSet, snapshot: int) -> bool:
    """Whether some file holds changes that the snapshot sees, or has to undo."""
    for redo in rowset.redo:
        if isinstance(redo, DeltaStore) and redo.ref.min_ts <= snapshot:
            return True
    return bool(rowset.undo) and any(undo.ref.max_ts > snapshot for undo in rowset.undo)


def _changed(out: Row, logs: Sequence[ChangeLog], row: int, snapshot: int, shape: RowShape) -> Row | None:
    """The row with what changes in memory, oldest store first, make of it; None where it is dead."""
    present: bool | None = None
    for log in logs:
        if log.untouched(row):
            continue
        lives, cells = log.row(row, log.limit(snapshot))
        if lives is not None:
            present = lives
        if cells:
            for index, column_id in enumerate(shape.ids):
                if column_id in cells:
                    out[shape.names[index]] = shape.value(index, cells[column_id])
    return out if present is not False else None


def _lives(seen: RowsAt, row: int) -> bool:
    live = seen.live(row, row + 1)
    return live is None or bool(live[0])


def _patched(out: Row, seen: RowsAt, row: int, shape: RowShape, columns: Sequence[StoredColumn]) -> Row:
    """The row with the columns that changes set read anew."""
    for index, column in enumerate(columns):
        if seen.touches(column.id):
            cell = seen.cells(column, np.array([row], np.int64))
            null = cell.validity is not None and not cell.validity[0] & 1
            out[column.name] = shape.value(index, None if null else cell.cell(0))
    return out
