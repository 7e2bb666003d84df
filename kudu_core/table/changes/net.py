"""One change per key between two times (Kudu's diff scan).

stores -> events -> rows that have one -> their states at both ends -> joined by key over the stores.
Where there are many changes they are gone through in ranges of keys, so that memory holds one range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from kudu_core._ext.keys import keys as keys_kernel
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.errors import ColumnTooLarge
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.history.history import RowSetHistory
from kudu_core.rowset.history.window import EVENT_DELETED, EVENT_INSERTED, EVENT_UPDATED, Events
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.table.changes.bounded import most_images
from kudu_core.table.changes.change_blocks import ChangeBlock, Store, TakenRows, WindowStore, same_cells
from kudu_core.table.changes.keyed import rows_in
from kudu_core.table.changes.states import state_rows
from kudu_core.tablet.view.view import KeyBatch

Bounds = tuple[bytes | None, bytes | None]
"""A range of encoded keys, half-open; None: open."""

_OfStore = tuple[RowSetHistory, Events, np.ndarray]
"""What one store tells: (history, its events, which of them is the last of its row)."""

RANGE_EVENTS = 1 << 20
"""Changes of a range of keys, about."""
_SAMPLES = 8
"""Of one range, where the keys are looked up that may begin another."""
_ROWS = 1 << 18


def net_changes(
    schema: Schema,
    parts: Sequence[WindowStore],
    since: int,
    until: int,
    budget: int,
    *,
    present: bool = False,
    unchanged: bool = False,
) -> Iterator[ChangeBlock]:
    """One change per key, in order of the keys, over stores that may hold the same keys.

    ``budget``: bytes of images that are put together at a time, about.
    ``present``: instead, the rows that are there at ``until`` and of which something is told.
    ``unchanged``: also rows that something is told of and that are what they were, as updated.
    """
    parts = [p for p in parts if p.dropped_ts is not None or p.concerns(since, until)]
    told = _Told(schema, parts, since, until)
    for whole in _ranges(told, budget):
        waiting = [whole]
        while waiting:
            bounds = waiting.pop()
            try:
                found = _rows_of_range(told, bounds, schema.columns, every=present or unchanged)
                piece = _joined(schema, found, present=present, unchanged=unchanged) if found else None
            except ColumnTooLarge:
                keys = _changed_keys(told, bounds)
                if not len(keys):
                    raise
                middle = keys[len(keys) // 2]
                waiting += [(middle, bounds[1]), (bounds[0], middle)]
                continue
            if piece is not None and len(piece):
                yield piece


def from_nothing(
    schema: Schema, parts: Sequence[WindowStore], since: int, until: int, budget: int
) -> Iterator[ChangeBlock]:
    """All rows at ``until`` as inserts; what changed after ``since`` at the time of its last change, the
    others at ``since``."""
    parts = [part for part in parts if part.dropped_ts is None]
    earlier = [part for part in parts if part.until < until]
    keys = _keys_of(_Told(schema, earlier, since, until), (None, None))
    for part in parts:
        if part.until >= until:
            yield from _unchanged(schema, part, since, until, budget, keys)
    for piece in net_changes(schema, parts, since, until, budget, present=True):
        piece.ops = np.full(len(piece), EVENT_INSERTED, np.uint8)
        yield piece


def _unchanged(
    schema: Schema, part: WindowStore, since: int, until: int, budget: int, others: EncodedKeys
) -> Iterator[ChangeBlock]:
    """Rows that live at ``since`` and of which nothing is told after it, nor of their keys in ``others``."""
    changed: np.ndarray | None = None
    if len(others) or part.concerns(since, until):
        changed = np.zeros(part.every, bool)
        changed[rows_in(part.store, KeyBatch(others), until)] = True
    if changed is not None and part.concerns(since, until):
        changed[part.history(schema, since, until).events().rows] = True
    most = most_images([(part.store, _ROWS)], schema.columns, budget, _ROWS)
    at = part.within(since, until)[0]
    yield from state_rows(part, at, since, EVENT_INSERTED, schema.columns, most, changed)


# ---- ranges of keys ----


def _weight(part: WindowStore, since: int, until: int) -> int:
    """At least the number of rows of a store that something is told of; opens nothing."""
    store = part.store
    if part.dropped_ts is not None or part.rows is not None:
        return part.length
    since, until = part.within(since, until)
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


def _ranges(told: _Told, budget: int) -> Iterator[Bounds]:
    """Ranges of keys whose rows come to about ``RANGE_EVENTS`` events, and their images to the budget."""
    parts, since, until = told.parts, told.since, told.until
    weights = [_weight(part, since, until) for part in parts]
    stores = zip((part.store for part in parts), weights, strict=True)
    most = most_images(stores, told.schema.columns * 2, budget, RANGE_EVENTS)
    for bounds in pairwise((None, *_cuts(parts, weights, until), None)):
        if most == RANGE_EVENTS:
            yield bounds
        else:
            keys = _changed_keys(told, bounds)
            cuts = [keys[i] for i in range(most - 1, len(keys), most)]
            yield from pairwise((bounds[0], *cuts, bounds[1]))


def _cuts(parts: Sequence[WindowStore], weights: Sequence[int], until: int) -> list[bytes]:
    """Keys between which there are about ``RANGE_EVENTS`` events."""
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


def _changed_keys(told: _Told, bounds: Bounds) -> EncodedKeys:
    """The keys in a range of which something is told, but for the least: each begins a part of the range."""
    keys = _keys_of(told, bounds)
    return keys.take(np.arange(1, len(keys))) if len(keys) else keys


def _keys_of(told: _Told, bounds: Bounds) -> EncodedKeys:
    """The keys in a range of which something is told, ascending."""
    found = _rows_of_range(told, bounds, (), every=True)
    if not found:
        return EncodedKeys.from_list([])
    keys = EncodedKeys.concat([rows.keys for rows in found])
    ordered = keys.take(keys.sort())
    _, first = keys_kernel.group(ordered.data, ordered.offsets, ordered.hashes())
    return ordered.take(first)


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
class _Told:
    """What stores tell of a window.  The events of those that were asked last are kept: many ranges of keys
    may lie in one."""

    schema: Schema
    parts: Sequence[WindowStore]
    since: int
    until: int
    _kept: dict[int, _OfStore] = field(default_factory=dict)

    def of(self, part: WindowStore) -> _OfStore:
        known = self._kept.pop(id(part), None)
        if known is None:
            history = part.history(self.schema, self.since, self.until)
            events = history.events()
            known = history, events, _last_of_rows(events)
        while self._kept and sum(len(e) for _, e, _ in (known, *self._kept.values())) > RANGE_EVENTS:
            del self._kept[next(iter(self._kept))]
        self._kept[id(part)] = known
        return known


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
    era: int = 0
    """That of the store."""


def _rows_of_range(
    told: _Told, bounds: Bounds, columns: Sequence[StoredColumn], *, every: bool
) -> list[_WindowRows]:
    """``every``: also rows that are what they were."""
    lower, upper = bounds
    found: list[_WindowRows] = []
    for part in told.parts:
        store = part.store
        if isinstance(store, DiskRowSet):
            below = upper is not None and store.meta.min_key >= upper
            if below or (lower is not None and store.meta.max_key < lower):
                continue
        if part.dropped_ts is None:
            rows = _changed(told, part, bounds, columns, every=every)
        else:
            rows = _gone(told, part, bounds, columns)
        if rows is not None:
            rows.era = part.era
            found.append(rows)
    return found


def _changed(
    told: _Told, part: WindowStore, bounds: Bounds, columns: Sequence[StoredColumn], *, every: bool
) -> _WindowRows | None:
    history, events, ends = told.of(part)
    ends = ends[_within(history, part.store, events.rows[ends], bounds)]
    if not len(ends):
        return None
    rows = events.rows[ends]
    was, is_ = history.states(rows)
    if not bool((events.ops == EVENT_UPDATED).all() and was.all() and is_.all()):
        new = history.at_end(columns, rows[is_])
        old = history.at_start(columns, rows[was])
        return _WindowRows(history.keys(rows), events.timestamps[ends], was, is_, old, new)
    # Updates alone: what none of them sets is at both ends the same, and read once, of rows that differ.
    touched = [column for column in columns if column.id in history.touched]
    old, new = history.at_start(touched, rows), history.at_end(touched, rows)
    if not every:
        differs = np.zeros(len(rows), bool)
        for column in touched:
            differs |= ~same_cells(old[column.id], new[column.id], column)
        if not differs.all():
            at = np.flatnonzero(differs)
            rows, ends, was, is_ = rows[at], ends[at], was[at], is_[at]
            old, new = ({i: values.take(at) for i, values in image.items()} for image in (old, new))
        if not len(rows):
            return None
    rest = history.at_end([column for column in columns if column.id not in new], rows)
    return _WindowRows(history.keys(rows), events.timestamps[ends], was, is_, old | rest, new | rest)


def _gone(
    told: _Told, part: WindowStore, bounds: Bounds, columns: Sequence[StoredColumn]
) -> _WindowRows | None:
    """All rows that a store of a dropped range had at ``since``."""
    since = part.within(told.since, told.until)[0]
    source = part.store.at(since)
    if source is None or not source.rows:
        return None
    if part.rows is None:
        live = source.live(0, source.rows)
        rows = np.arange(source.rows) if live is None else np.flatnonzero(live)
    else:
        rows = part.rows[part.rows < source.rows]
        rows = rows[source.live_cells(rows)]
    history = part.history(told.schema, since, since)
    rows = rows[_within(history, part.store, rows, bounds)]
    if not len(rows):
        return None
    assert part.dropped_ts is not None
    return _WindowRows(
        history.keys(rows),
        np.full(len(rows), part.dropped_ts, np.uint64),
        np.ones(len(rows), bool),
        np.zeros(len(rows), bool),
        history.at_start(columns, rows),
        {c.id: ColumnBuffers.nulls(c.type, 0) for c in columns},
    )


def _last_of_rows(events: Events) -> np.ndarray:
    """The last event of each row."""
    return np.flatnonzero(np.append(events.rows[1:] != events.rows[:-1], True)[: len(events)])


def _joined(schema: Schema, parts: list[_WindowRows], *, present: bool, unchanged: bool) -> ChangeBlock:
    """Rows of several stores by key: at each end of the window at most one of them is present.

    Where the table got other partitions, each end of the window is told by the stores of one time: those
    before by the first that tell of a key, those after by the last.
    """
    columns = schema.columns
    keys = EncodedKeys.concat([part.keys for part in parts])
    times = np.concatenate([part.last for part in parts])
    was, is_ = (np.concatenate([getattr(part, name) for part in parts]) for name in ("was", "is_"))
    if keys.order() == 2:  # of one store, as a rule
        old_row, new_row = (
            np.arange(len(here)) if here.all() else np.where(here, np.cumsum(here) - 1, -1)
            for here in (was, is_)
        )
    else:
        order = keys.sort()
        ordered = keys.take(order)
        gid, first = keys_kernel.group(ordered.data, ordered.offsets, ordered.hashes())
        times = np.maximum.reduceat(times[order], first)
        at_start = at_end = order
        eras = np.repeat([part.era for part in parts], [len(part.last) for part in parts])[order]
        if eras.min() < eras.max():
            at_start = order[eras == np.minimum.reduceat(eras, first)[gid]]
            at_end = order[eras == np.maximum.reduceat(eras, first)[gid]]
        group = np.empty(len(order), np.int64)
        group[order] = gid
        old_row = _row_of(group, at_start, was, len(first))
        new_row = _row_of(group, at_end, is_, len(first))
    changed = new_row >= 0 if present else (old_row >= 0) != (new_row >= 0)
    both = np.flatnonzero((old_row >= 0) & (new_row >= 0))
    old = {c.id: ColumnBuffers.concat([part.old[c.id] for part in parts]) for c in columns}
    new = {c.id: ColumnBuffers.concat([part.new[c.id] for part in parts]) for c in columns}
    differs = np.full(len(both), unchanged)
    if not present:
        old_both, new_both = TakenRows(old_row[both]), TakenRows(new_row[both])
        for column in columns:
            left, right = old[column.id], new[column.id]
            if left is right or column.id in schema.key_ids or differs.all():
                continue
            differs |= ~same_cells(old_both.of(left), new_both.of(right), column)
    changed[both] |= differs
    kept = np.flatnonzero(changed)
    was_there, is_there = old_row[kept] >= 0, new_row[kept] >= 0
    ops = np.full(len(kept), EVENT_UPDATED, np.uint8)
    ops[~was_there] = EVENT_INSERTED
    ops[~is_there] = EVENT_DELETED
    # Of a deletion the image after has the key, and of an insert the image before means nothing.
    after, before = {}, {}
    if was_there.all() and is_there.all():
        old_kept, new_kept = TakenRows(old_row[kept]), TakenRows(new_row[kept])
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


def _row_of(group: np.ndarray, asked: np.ndarray, present: np.ndarray, groups: int) -> np.ndarray:
    """By group: which of the present rows is, of those asked, the one that is present; -1: none."""
    position = np.cumsum(present) - 1
    out = np.full(groups, -1, np.int64)
    mine = asked[present[asked]]
    out[group[mine]] = position[mine]
    return out


__all__ = ["from_nothing", "net_changes"]
