"""One change per key between two times (Kudu's diff scan), and rows of dropped ranges.

stores -> events -> rows that have one -> their states at both ends -> joined by key over the stores.
Where there are many changes they are gone through in ranges of keys, so that memory holds one range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow.compute as pc

from kudu_core._ext.keys import keys as keys_kernel
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers, in_pieces
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.errors import ColumnTooLarge
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.history.history import RowSetHistory
from kudu_core.rowset.history.window import EVENT_DELETED, EVENT_INSERTED, EVENT_UPDATED, Events, concerned
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.rowset.scan.filescan import MOST_BYTES
from kudu_core.table.changes.change_blocks import ChangeBlock, Store, WindowStore

Bounds = tuple[bytes | None, bytes | None]
"""A range of encoded keys, half-open; None: open."""

RANGE_EVENTS = 1 << 20
"""Changes of a range of keys, about."""
_SAMPLES = 8
"""Of one range, where the keys are looked up that may begin another."""
_ROWS = 1 << 18


def dropped_rows(
    store: Store, dropped_ts: int, needed: Sequence[StoredColumn], chunk: int
) -> Iterator[ChangeBlock]:
    """A store's rows as deleted by the drop of their range (protocol A3), so many at a time."""
    yield from _state(store, dropped_ts - 1, dropped_ts, EVENT_DELETED, needed, chunk)


def first_rows(store: Store, since: int, needed: Sequence[StoredColumn], chunk: int) -> Iterator[ChangeBlock]:
    """A store's rows at ``since`` as inserts of that time, so many at a time."""
    yield from _state(store, since, since, EVENT_INSERTED, needed, chunk)


def _state(
    store: Store,
    at: int,
    told: int,
    op: int,
    needed: Sequence[StoredColumn],
    chunk: int,
    without: np.ndarray | None = None,
) -> Iterator[ChangeBlock]:
    """The rows that live at a time, but for those marked in ``without``, as one change each."""
    source = store.at(at)
    if source is None:
        return
    row_bytes = source.default_bytes(needed)
    chunk = chunk if not row_bytes else max(1, min(chunk, MOST_BYTES // row_bytes))

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
        ops = np.full(len(rows), op, np.uint8)
        return ChangeBlock(np.full(len(rows), told, np.uint64), ops, columns, columns)

    for first in range(0, source.rows, chunk):
        for _, _, found in in_pieces(first, min(first + chunk, source.rows), rows_of):
            if found is not None:
                yield found


def net_changes(
    schema: Schema,
    parts: Sequence[WindowStore],
    since: int,
    until: int,
    *,
    present: bool = False,
    unchanged: bool = False,
) -> Iterator[ChangeBlock]:
    """One change per key, in order of the keys, over stores that may hold the same keys.

    ``present``: instead, the rows that are there at ``until`` and of which something is told.
    ``unchanged``: also rows that something is told of and that are what they were, as updated.
    """
    parts = [p for p in parts if p.dropped_ts is not None or concerned(p.store, since, until)]
    waiting = list(pairwise((None, *_cuts(schema, parts, since, until), None)))[::-1]
    while waiting:
        bounds = waiting.pop()
        try:
            found = _rows_of_range(schema, parts, since, until, bounds, every=present or unchanged)
            piece = _joined(schema, found, present=present, unchanged=unchanged) if found else None
        except ColumnTooLarge:
            middle = _middle(schema, parts, since, until, bounds)
            if middle is None:
                raise
            waiting += [(middle, bounds[1]), (bounds[0], middle)]
            continue
        if piece is not None and len(piece):
            yield piece


def _middle(
    schema: Schema, parts: Sequence[WindowStore], since: int, until: int, bounds: Bounds
) -> bytes | None:
    """A key that cuts the rows of a range of keys; None where they all have one key."""
    keys_alone = replace(schema, columns=schema.key_columns)
    found = _rows_of_range(keys_alone, parts, since, until, bounds, every=True)
    keys = EncodedKeys.concat([rows.keys for rows in found])
    ordered = keys.take(keys.sort())
    at = len(ordered) // 2
    return next((ordered[i] for i in range(at, len(ordered)) if ordered[i] != ordered[0]), None)


def from_nothing(
    schema: Schema, parts: Sequence[WindowStore], since: int, until: int
) -> Iterator[ChangeBlock]:
    """All rows at ``until`` as inserts; what changed after ``since`` at the time of its last change, the
    others at ``since``."""
    parts = [part for part in parts if part.dropped_ts is None]
    for part in parts:
        yield from _unchanged(schema, part.store, since, until)
    for piece in net_changes(schema, parts, since, until, present=True):
        piece.ops = np.full(len(piece), EVENT_INSERTED, np.uint8)
        yield piece


def _unchanged(schema: Schema, store: Store, since: int, until: int) -> Iterator[ChangeBlock]:
    """Rows that live at ``since`` and of which nothing is told after it."""
    changed: np.ndarray | None = None
    if concerned(store, since, until):
        rows = RowSetHistory(schema, store, since, until).events().rows
        changed = np.zeros(_length(store), bool)
        changed[rows] = True
    yield from _state(store, since, since, EVENT_INSERTED, schema.columns, _ROWS, changed)


def _length(store: Store) -> int:
    return len(store) if isinstance(store, MemRowSet) else store.meta.rows


# ---- ranges of keys ----


def _weight(part: WindowStore, since: int, until: int) -> int:
    """At least the number of rows of a store that something is told of; opens nothing."""
    store = part.store
    if part.dropped_ts is not None:
        return _length(store)
    if isinstance(store, MemRowSet):
        events = store.rows_at(until) - store.rows_at(since)
        return events + store.count_changes(since, until)
    meta = store.meta
    inserted = meta.max_insert_ts > since if meta.insert_ts is None else since < meta.insert_ts <= until
    events = meta.rows if inserted else 0
    for deltas in (*store.undo, *store.redo):
        if isinstance(deltas, ChangeLog):
            events += deltas.limit(until) - deltas.limit(since)
        elif deltas.ref.min_ts <= until and deltas.ref.max_ts > since:
            events += deltas.ref.entries
    return events


def _cuts(schema: Schema, parts: Sequence[WindowStore], since: int, until: int) -> list[bytes]:
    """Keys between which there are about ``RANGE_EVENTS`` events."""
    weights = [_weight(part, since, until) for part in parts]
    if sum(weights) <= 2 * RANGE_EVENTS:
        return []
    step = max(1, RANGE_EVENTS // _SAMPLES)
    samples: set[bytes] = set()
    for part, weight in zip(parts, weights, strict=True):
        store = part.store
        if isinstance(store, DiskRowSet):
            samples.add(store.meta.min_key)
            if weight > step:
                samples.update(store.base.open().split_keys(max(1, store.meta.rows * step // weight)))
        elif weight > step:
            keys = store.keys(store.rows_at(until))
            samples.update(keys.take(keys.sort()[:: max(1, len(keys) * step // weight)]))
    return sorted(samples)[_SAMPLES::_SAMPLES]


def _within(history: RowSetHistory, store: Store, rows: np.ndarray, bounds: Bounds) -> np.ndarray:
    """Which of the rows, ascending, have keys in a range: their places."""
    lower, upper = bounds
    if lower is None and upper is None:
        return np.arange(len(rows))
    if isinstance(store, DiskRowSet):
        file = store.base.open()
        first = 0 if lower is None else file.lower_bound(lower)
        last = store.meta.rows if upper is None else file.lower_bound(upper)
        return np.arange(*np.searchsorted(rows, (first, last)))
    cuts = EncodedKeys.from_list([key for key in bounds if key is not None])
    place = cuts.lower_bound(history.keys(rows), upper=True)
    return np.flatnonzero(place == (0 if lower is None else 1))


# ---- one range ----


@dataclass(slots=True)
class _WindowRows:
    """Rows of one store that have events in the window."""

    keys: EncodedKeys
    last: np.ndarray
    """When they changed last."""
    was: np.ndarray
    is_: np.ndarray
    """Whether they are present at both ends."""
    old: dict[int, ColumnBuffers]
    new: dict[int, ColumnBuffers]
    """Values of those that are."""


def _rows_of_range(
    schema: Schema, parts: Sequence[WindowStore], since: int, until: int, bounds: Bounds, *, every: bool
) -> list[_WindowRows]:
    lower, upper = bounds
    found: list[_WindowRows] = []
    for part in parts:
        store = part.store
        if isinstance(store, DiskRowSet):
            below = upper is not None and store.meta.min_key >= upper
            if below or (lower is not None and store.meta.max_key < lower):
                continue
        if part.dropped_ts is None:
            rows = _changed(schema, part, since, until, bounds, every=every)
        else:
            rows = _gone(schema, part, since, until, bounds)
        if rows is not None:
            found.append(rows)
    return found


def _changed(
    schema: Schema, part: WindowStore, since: int, until: int, bounds: Bounds, *, every: bool
) -> _WindowRows | None:
    """``every``: also rows that are what they were."""
    history = RowSetHistory(schema, part.store, since, until)
    events = history.events()
    ends = _last_of_rows(events)
    ends = ends[_within(history, part.store, events.rows[ends], bounds)]
    if not len(ends):
        return None
    rows = events.rows[ends]
    was, is_ = history.states(rows)
    if not bool((events.ops == EVENT_UPDATED).all() and was.all() and is_.all()):
        new = history.at_end(schema.columns, rows[is_])
        old = history.at_start(schema.columns, rows[was])
        return _WindowRows(history.keys(rows), events.timestamps[ends], was, is_, old, new)
    # Updates alone: what none of them sets is at both ends the same, and read once, of rows that differ.
    touched = [column for column in schema.columns if column.id in history.touched]
    old, new = history.at_start(touched, rows), history.at_end(touched, rows)
    if not every:
        differs = np.zeros(len(rows), bool)
        for column in touched:
            differs |= ~_same(old[column.id], new[column.id], column)
        if not differs.all():
            at = np.flatnonzero(differs)
            rows, ends, was, is_ = rows[at], ends[at], was[at], is_[at]
            old, new = ({i: values.take(at) for i, values in image.items()} for image in (old, new))
        if not len(rows):
            return None
    rest = history.at_end([column for column in schema.columns if column.id not in new], rows)
    return _WindowRows(history.keys(rows), events.timestamps[ends], was, is_, old | rest, new | rest)


def _gone(schema: Schema, part: WindowStore, since: int, until: int, bounds: Bounds) -> _WindowRows | None:
    """All rows that a store of a dropped range had at ``since``."""
    source = part.store.at(since)
    if source is None or not source.rows:
        return None
    live = source.live(0, source.rows)
    rows = np.arange(source.rows) if live is None else np.flatnonzero(live)
    history = RowSetHistory(schema, part.store, since, since)
    rows = rows[_within(history, part.store, rows, bounds)]
    if not len(rows):
        return None
    assert part.dropped_ts is not None
    return _WindowRows(
        history.keys(rows),
        np.full(len(rows), part.dropped_ts, np.uint64),
        np.ones(len(rows), bool),
        np.zeros(len(rows), bool),
        history.at_start(schema.columns, rows),
        {c.id: ColumnBuffers.nulls(c.type, 0) for c in schema.columns},
    )


def _last_of_rows(events: Events) -> np.ndarray:
    """The last event of each row."""
    if not len(events):
        return np.empty(0, np.int64)
    return np.flatnonzero(np.append(events.rows[1:] != events.rows[:-1], True))


def _joined(schema: Schema, parts: list[_WindowRows], *, present: bool, unchanged: bool) -> ChangeBlock:
    """Rows of several stores by key: at each end of the window at most one of them is present."""
    columns = schema.columns
    keys = EncodedKeys.concat([part.keys for part in parts])
    times = np.concatenate([part.last for part in parts])
    was, is_ = (np.concatenate([getattr(part, name) for part in parts]) for name in ("was", "is_"))
    if keys.order() == 2:  # of one store, as a rule
        old_row, new_row = (np.where(here, np.cumsum(here) - 1, -1) for here in (was, is_))
    else:
        order = keys.sort()
        ordered = keys.take(order)
        gid, first = keys_kernel.group(ordered.data, ordered.offsets, ordered.hashes())
        times = np.maximum.reduceat(times[order], first)
        old_row, new_row = (_row_of(gid, order, here, len(first)) for here in (was, is_))
    changed = new_row >= 0 if present else (old_row >= 0) != (new_row >= 0)
    both = np.flatnonzero((old_row >= 0) & (new_row >= 0))
    old = {c.id: ColumnBuffers.concat([part.old[c.id] for part in parts]) for c in columns}
    new = {c.id: ColumnBuffers.concat([part.new[c.id] for part in parts]) for c in columns}
    differs = np.full(len(both), unchanged)
    if not present:
        old_both, new_both = _TakenRows(old_row[both]), _TakenRows(new_row[both])
        for column in columns:
            left, right = old[column.id], new[column.id]
            if left is right or column.id in schema.key_ids or differs.all():
                continue
            differs |= ~_same(old_both.of(left), new_both.of(right), column)
    changed[both] |= differs
    kept = np.flatnonzero(changed)
    was_there, is_there = old_row[kept] >= 0, new_row[kept] >= 0
    ops = np.full(len(kept), EVENT_UPDATED, np.uint8)
    ops[~was_there] = EVENT_INSERTED
    ops[~is_there] = EVENT_DELETED
    # Of a deletion the image after has the key, and of an insert the image before means nothing.
    after, before = {}, {}
    if was_there.all() and is_there.all():
        old_kept, new_kept = _TakenRows(old_row[kept]), _TakenRows(new_row[kept])
        for column_id, values in old.items():
            after[column_id] = new_kept.of(new[column_id])
            before[column_id] = after[column_id] if values is new[column_id] else old_kept.of(values)
        return ChangeBlock(times[kept], ops, after, before)
    for column_id, values in old.items():
        pool = ColumnBuffers.concat([values, new[column_id]])
        shift = values.length
        after[column_id] = pool.take(np.where(is_there, new_row[kept] + shift, old_row[kept]))
        before[column_id] = pool.take(np.where(was_there, old_row[kept], new_row[kept] + shift))
    return ChangeBlock(times[kept], ops, after, before)


class _TakenRows:
    """Which rows are taken of each of some columns."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows
        self._in_order = bool((rows == np.arange(len(rows))).all())

    def of(self, column: ColumnBuffers) -> ColumnBuffers:
        return column if self._in_order and column.length == len(self._rows) else column.take(self._rows)


def _row_of(gid: np.ndarray, order: np.ndarray, present: np.ndarray, groups: int) -> np.ndarray:
    """By group: the position among the present rows of the one that is present, -1 where none is."""
    position = np.cumsum(present) - 1
    out = np.full(groups, -1, np.int64)
    mine = present[order]
    out[gid[mine]] = position[order[mine]]
    return out


def _same(old: ColumnBuffers, new: ColumnBuffers, column: StoredColumn) -> np.ndarray:
    """Whether cells are equal, NULL to NULL and bit by bit, (n,) bool."""
    left, right = old.valid_mask(), new.valid_mask()
    if old.width in (1, 2, 4, 8):
        a, b = (c.values[: c.length * c.width].view(f"<u{c.width}") for c in (old, new))
        equal = a == b
    elif old.width:
        a, b = (c.values[: c.length * c.width].reshape(c.length, c.width) for c in (old, new))
        equal = (a == b).all(axis=1)
    else:
        filled = pc.equal(old.to_arrow(column.type), new.to_arrow(column.type)).fill_null(False)
        equal = filled.to_numpy(zero_copy_only=False)
    same: np.ndarray = (left == right) & (equal | ~left)
    return same


__all__ = ["dropped_rows", "first_rows", "from_nothing", "net_changes"]
