"""Of which value an event's image is made: what changes tell, or the rowset's states around the window.

The image of a row after or before an event is put together column by column; nothing is read that no event
needs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.schema import StoredColumn
from kudu_core.rowset.history.window import Events, WindowChanges
from kudu_core.rowset.rows.rows_at import RowsAt

_DENSE_FACTOR = 8
"""Whole ranges of rows are read instead of single cells when at least one row in so many is wanted."""
_LARGE_BYTES = 4096
"""But for cells that are larger: what is not wanted of them is not read."""

_END = -1
_START = -2


def image_of(
    column: StoredColumn,
    events: Events,
    changes: Sequence[WindowChanges],
    forward: RowsAt,
    end: RowsAt,
    *,
    before: bool,
) -> ColumnBuffers:
    """The column's value before or after each event, made of what the changes of the window tell.

    ``forward``: base values with the changes up to the window's start.  ``end``: the state at its end.
    """
    count = len(events)
    pool: list[ColumnBuffers] = []
    known = np.full(count, -1, np.int64)  # pool position of the value an event gives
    became = np.zeros(count, bool)  # whether it is what the row became, else what it had been
    offset = len(events.place) - sum(len(part.entries()[0]) for part in changes)
    pooled = 0
    rows = (int(events.rows[0]), int(events.rows[-1]) + 1) if events.partial and count else None
    for part in changes:
        found = part.values(column.id, rows)
        if found is not None and len(found[0]):
            at = events.place[offset + found[0]]
            numbers = pooled + np.arange(len(at))
            if events.partial:
                inside = at >= 0
                at, numbers = at[inside], numbers[inside]
            known[at] = numbers
            became[at] = not part.undo
            pool.append(found[1])
            pooled += found[1].length
        offset += len(part.entries()[0])
    if not pool:  # no change of the window says it
        return _spread(end, column, events.rows)
    if bool((events.rows[1:] > events.rows[:-1]).all()):
        source = _choose_one(known, became, before=before)
    else:
        source = _choose(events.rows, known, became, before=before)
    wanted = source == _END
    if wanted.any():
        values = _spread(end, column, events.rows[wanted])
        source[wanted] = pooled + np.arange(values.length)
        pooled += values.length
        pool.append(values)
    wanted = source == _START
    if wanted.any():
        values = _spread(forward, column, events.rows[wanted])
        source[wanted] = pooled + np.arange(values.length)
        pool.append(values)
    return ColumnBuffers.concat(pool).take(source)


def _choose(rows: np.ndarray, known: np.ndarray, became: np.ndarray, *, before: bool) -> np.ndarray:
    """Where each event's image comes from: a pool position, ``_END`` or ``_START``, (n,) int64.

    What a row had been before a later event stands for all the time since the event before it; else
    the last event that says what it became counts.  For one row and column all events of the
    first kind come before those of the second (protocol M2), so with neither at hand the value
    is that of the window's end, or of its start when the row is yet to become something else.
    """
    count = len(rows)
    numbers = np.arange(count)
    later_old = _next(np.where((known >= 0) & ~became, numbers, count), rows, strictly=not before)
    later_new = _next(np.where((known >= 0) & became, numbers, count), rows, strictly=not before)
    last = np.maximum.accumulate(np.where((known >= 0) & became, numbers, -1))
    if before:
        last = np.concatenate((np.array([-1]), last[:-1]))
    last[(last >= 0) & (rows[last] != rows)] = -1
    source = np.where(later_new < count, _START, _END)
    source = np.where(last >= 0, known[last], source)
    return np.where(later_old < count, known[np.minimum(later_old, count - 1)], source)


def _choose_one(known: np.ndarray, became: np.ndarray, *, before: bool) -> np.ndarray:
    """``_choose`` where every row has one event."""
    if before:
        return np.where(known < 0, _END, np.where(became, _START, known))
    return np.where(became, known, _END)


def _next(numbers: np.ndarray, rows: np.ndarray, *, strictly: bool) -> np.ndarray:
    """The first marked event of the same row from each event on (or after it), n where there is none."""
    count = len(numbers)
    following = np.minimum.accumulate(numbers[::-1])[::-1]
    if strictly:
        following = np.concatenate((following[1:], np.array([count])))
    other = rows[np.minimum(following, count - 1)] != rows
    following = following.copy()
    following[other] = count
    return following


def distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows that ascend and may repeat: each once, and where each of them is among these (None: as it was)."""
    first = np.ones(len(rows), bool)
    first[1:] = rows[1:] != rows[:-1]
    return (rows, None) if first.all() else (rows[first], np.cumsum(first) - 1)


def _spread(state: RowsAt, column: StoredColumn, rows: np.ndarray) -> ColumnBuffers:
    """Values of rows that ascend and may repeat."""
    rows, place = distinct(rows)
    return cells_of(state, [column], rows, place)[column.id]


def cells_of(
    state: RowsAt, columns: Sequence[StoredColumn], rows: np.ndarray, place: np.ndarray | None = None
) -> dict[int, ColumnBuffers]:
    """Values of rows that ascend strictly, by column.

    ``place``: which of them to give, in any order and number; None: each once.  A cell is then copied once.
    """
    if not len(rows):
        return {column.id: state.column(column, 0, 0) for column in columns}
    lower, upper = int(rows[0]), int(rows[-1]) + 1
    if len(rows) == upper - lower:
        return _taken(state.columns(columns, lower, upper), place)
    single, ranges = apart(state, columns, len(rows), upper - lower)
    found = _taken(state.cells_of(single, rows), place) if single else {}
    if ranges:
        if place is None:
            return found | state.columns_of(ranges, rows)
        found |= _taken(state.columns(ranges, lower, upper), (rows - lower)[place])
    return found


def apart(
    state: RowsAt, columns: Sequence[StoredColumn], wanted: int, span: int
) -> tuple[Sequence[StoredColumn], Sequence[StoredColumn]]:
    """Of which columns single cells are to be read, and of which the whole range of ``span`` rows, where
    ``wanted`` of them are."""
    if wanted * _DENSE_FACTOR < span:
        return columns, ()
    single = [c for c in columns if not c.type.width and state.stored_bytes(c.id) > _LARGE_BYTES]
    return single, [c for c in columns if c not in single] if single else columns


def _taken(cells: dict[int, ColumnBuffers], place: np.ndarray | None) -> dict[int, ColumnBuffers]:
    return cells if place is None else {i: values.take(place) for i, values in cells.items()}


__all__ = ["apart", "cells_of", "distinct", "image_of"]
