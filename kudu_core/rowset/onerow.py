"""One row of one rowset at one snapshot, by its key: the row path beside ``RowsAt``.

Where the rowset has no change of the row that the snapshot sees, the row is read from its base
alone, in compiled code.  Where it has, ``RowsAt`` says whether the row lives and what its changed columns
hold.  ``Elsewhere`` and ``PageError`` pass through: the caller then asks ``RowsAt`` for all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kudu_core._ext.rowcodec import RowShape
from kudu_core.common.schema import StoredColumn
from kudu_core.rowset.changelog import ChangeLog
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
    if memory.changes.untouched(ordinal):
        return shape.row(memory.cells_of(ordinal, shape.ids))
    seen = memory.at(snapshot)
    if not _lives(seen, ordinal):
        return None
    return _patched(shape.row(memory.cells_of(ordinal, shape.ids)), seen, ordinal, shape, columns)


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
    if meta.max_insert_ts <= snapshot and not _may_change(rowset, row, snapshot):
        return points.row(row, shape)
    seen = rowset.at(snapshot)
    if seen is None or not _lives(seen, row):
        return None
    return _patched(points.row(row, shape), seen, row, shape, columns)


def _may_change(rowset: DiskRowSet, row: int, snapshot: int) -> bool:
    """Whether some store may hold a change of the row that the snapshot sees, or has to undo."""
    for store in rowset.redo:
        if isinstance(store, ChangeLog):
            if not store.untouched(row):
                return True
        elif store.ref.min_ts <= snapshot:
            return True
    for undo in rowset.undo:
        if undo.ref.max_ts > snapshot:
            return True
    return False


def _lives(seen: RowsAt, row: int) -> bool:
    live = seen.live(row, row + 1)
    return live is None or bool(live[0])


def _patched(
    out: Row, seen: RowsAt, row: int, shape: RowShape, columns: Sequence[StoredColumn]
) -> Row:
    """The row with the columns that changes set read anew."""
    for index, column in enumerate(columns):
        if seen.touches(column.id):
            cell = seen.cells(column, np.array([row], np.int64))
            null = cell.validity is not None and not cell.validity[0] & 1
            out[column.name] = shape.value(index, None if null else cell.cell(0))
    return out
