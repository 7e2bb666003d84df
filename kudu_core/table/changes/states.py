"""Rows of a state as changes: those of a first state as inserted, those of a dropped range as deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kudu_core.common.rows.rowblock import ColumnBuffers, in_pieces
from kudu_core.common.schema.schema import StoredColumn
from kudu_core.rowset.history.image import cells_of
from kudu_core.rowset.history.window import EVENT_DELETED, EVENT_INSERTED
from kudu_core.rowset.scan.filescan import MOST_BYTES
from kudu_core.table.changes.change_blocks import ChangeBlock, WindowStore


def dropped_rows(
    part: WindowStore, dropped_ts: int, needed: Sequence[StoredColumn], chunk: int
) -> Iterator[ChangeBlock]:
    """A store's rows as deleted by the drop of their range (protocol A3), so many at a time."""
    yield from state_rows(part, dropped_ts - 1, dropped_ts, EVENT_DELETED, needed, chunk)


def first_rows(
    part: WindowStore, since: int, needed: Sequence[StoredColumn], chunk: int
) -> Iterator[ChangeBlock]:
    """A store's rows at ``since`` as inserts of that time, so many at a time."""
    yield from state_rows(part, since, since, EVENT_INSERTED, needed, chunk)


def state_rows(
    part: WindowStore,
    at: int,
    told: int,
    op: int,
    needed: Sequence[StoredColumn],
    chunk: int,
    without: np.ndarray | None = None,
) -> Iterator[ChangeBlock]:
    """The rows that live at a time, as one change each of time ``told``; not those marked in ``without``."""
    source = part.store.at(at)
    if source is None:
        return
    some = part.rows
    row_bytes = source.default_bytes(needed)
    chunk = chunk if not row_bytes else max(1, min(chunk, MOST_BYTES // row_bytes))

    def some_of(lower: int, upper: int) -> ChangeBlock | None:
        assert some is not None
        rows = some[lower:upper]
        rows = rows[rows < source.rows]
        if without is not None:
            rows = rows[~without[rows]]
        rows = rows[source.live_cells(rows)]
        return told_of(cells_of(source, needed, rows), len(rows)) if len(rows) else None

    def rows_of(lower: int, upper: int) -> ChangeBlock | None:
        kept = np.ones(upper - lower, bool) if without is None else ~without[lower:upper]
        live = source.live(lower, upper)
        if live is not None:
            kept &= live.astype(bool)
        rows = np.flatnonzero(kept)
        if not len(rows):
            return None
        columns = {c.id: source.column(c, lower, upper) for c in needed}
        if len(rows) < upper - lower:
            columns = {i: c.take(rows) for i, c in columns.items()}
        return told_of(columns, len(rows))

    def told_of(columns: dict[int, ColumnBuffers], rows: int) -> ChangeBlock:
        return ChangeBlock(np.full(rows, told, np.uint64), np.full(rows, op, np.uint8), columns, columns)

    count, piece_of = (source.rows, rows_of) if some is None else (len(some), some_of)
    for first in range(0, count, chunk):
        for _, _, found in in_pieces(first, min(first + chunk, count), piece_of):
            if found is not None:
                yield found


__all__ = ["dropped_rows", "first_rows", "state_rows"]
