"""What happened to the rows of one rowset in a window of time, and what they looked like then.

An event is one change of one row: it was inserted (for the first time or again), updated or
deleted.  Events come from insert times, from the stores of changes in memory and in REDO files,
which say what a row became, and from UNDO files, which say what it had been.  The image of a row
after or before an event is put together column by column from those values and from the
rowset's states at the ends of the window; nothing is read that no event needs.

Source: Kudu's diff scan (tablet/delta_applier, delta_iterator_merger), per event here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_UPDATE, UNDO_ALIVE, UNDO_DEAD
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.ordering import order_of_pairs
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.disk.diskrowset import DiskRowsAt, DiskRowSet
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.memory.memrowset import MemRowsAt, MemRowSet
from kudu_core.rowset.rows.rows_at import RowsAt, encoded_keys_of

EVENT_INSERTED = 0
EVENT_UPDATED = 1
EVENT_DELETED = 2
"""What an event did to its row."""


_DENSE_FACTOR = 8
"""Whole ranges of rows are read instead of single cells when at least one row in so many is wanted."""


@dataclass(slots=True)
class Events:
    """Events of one rowset, by row and then by time."""

    rows: np.ndarray
    """(n,) int64: rowids, or ordinals of a MemRowSet."""
    timestamps: np.ndarray
    """(n,) uint64."""
    ops: np.ndarray
    """(n,) uint8: ``EVENT_INSERTED``, ``EVENT_UPDATED`` or ``EVENT_DELETED``."""
    place: np.ndarray
    """(m,) int64: where each gathered change went; for ``RowSetHistory`` only."""
    partial: bool = False
    """Some of the changes went nowhere (-1)."""

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, lower: int, upper: int) -> Events:
        """The events numbered ``[lower, upper)``, which must begin and end with a row's."""
        place = np.where((self.place >= lower) & (self.place < upper), self.place - lower, -1)
        rows, timestamps = self.rows[lower:upper], self.timestamps[lower:upper]
        return Events(rows, timestamps, self.ops[lower:upper], place, partial=True)

    def cuts(self, target: int) -> Iterator[tuple[int, int]]:
        """Ranges of about ``target`` events that no row's events straddle."""
        lower = 0
        while lower < len(self.rows):
            upper = min(lower + target, len(self.rows))
            if upper < len(self.rows):
                upper = int(np.searchsorted(self.rows, self.rows[upper - 1], side="right"))
            yield lower, upper
            lower = upper


class _Changes(Protocol):
    """The changes of one store that fall into the window."""

    undo: bool

    @property
    def column_ids(self) -> Collection[int]:
        """The columns that some entry of the store sets."""
        ...

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(rows, timestamps, ops of the store's kind)."""
        ...

    def values(self, column_id: int) -> tuple[np.ndarray, ColumnBuffers] | None:
        """(positions in the entries, values) of a column."""
        ...


class _MemoryChanges:
    undo = False

    def __init__(self, log: ChangeLog, since: int, until: int) -> None:
        self._log = log
        self._lower, self._upper = log.limit(since), log.limit(until)

    @property
    def column_ids(self) -> Collection[int]:
        return self._log.column_ids

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        timestamps, rowids, ops = self._log.changes(self._lower, self._upper)
        return rowids, timestamps, ops

    def values(self, column_id: int) -> tuple[np.ndarray, ColumnBuffers] | None:
        if self._lower == self._upper or column_id not in self._log.column_ids:
            return None
        numbers, _, values = self._log.column_changes(column_id, self._lower, self._upper)
        return numbers.astype(np.int64) - self._lower, values


class _FileChanges:
    def __init__(self, store: DeltaStore, since: int, until: int, *, undo: bool) -> None:
        self.undo = undo
        self._store = store
        file = store.open()
        rowids, timestamps, ops = file.entries()
        if timestamps is None:
            assert store.ref.record_ts is not None
            timestamps = np.full(len(rowids), store.ref.record_ts, np.uint64)
        self._picked: np.ndarray | None = None
        if store.ref.min_ts <= since or store.ref.max_ts > until:
            self._picked = np.flatnonzero((timestamps > np.uint64(since)) & (timestamps <= np.uint64(until)))
            rowids, timestamps, ops = rowids[self._picked], timestamps[self._picked], ops[self._picked]
        self._entries = rowids, timestamps, ops

    @property
    def column_ids(self) -> Collection[int]:
        return self._store.ref.updates.keys()

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._entries

    def values(self, column_id: int) -> tuple[np.ndarray, ColumnBuffers] | None:
        if column_id not in self._store.ref.updates:
            return None
        _, _, positions, values = self._store.open().updates_with_entries(column_id)
        at = positions.astype(np.int64)
        if self._picked is not None:
            place = np.searchsorted(self._picked, at)
            place[place == len(self._picked)] = 0
            known = np.flatnonzero(self._picked[place] == at) if len(self._picked) else place[:0]
            at, values = place[known], values.take(known)
        return at, values


class _OfSchema:
    """The changes of a store but for updates of nothing that the schema has: of dropped columns."""

    def __init__(self, changes: _Changes, schema: Schema) -> None:
        self.undo = changes.undo
        self._changes = changes
        self.column_ids = [i for i in changes.column_ids if i in schema.by_id]
        rowids, timestamps, ops = changes.entries()
        kept = ops != REDO_UPDATE
        for column_id in self.column_ids:
            found = changes.values(column_id)
            if found is not None:
                kept[found[0]] = True
        self._entries = rowids[kept], timestamps[kept], ops[kept]
        self._place = np.cumsum(kept) - 1

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._entries

    def values(self, column_id: int) -> tuple[np.ndarray, ColumnBuffers] | None:
        found = self._changes.values(column_id)
        return None if found is None else (self._place[found[0]], found[1])


def concerned(store: MemRowSet | DiskRowSet, since: int, until: int) -> bool:
    """False only if no event of the store falls into ``(since, until]``; opens nothing."""
    if isinstance(store, MemRowSet):
        return store.rows_at(until) > store.rows_at(since) or store.count_changes(since, until) > 0
    meta = store.meta
    if meta.insert_ts is None:
        if meta.max_insert_ts > since:
            return True
    elif since < meta.insert_ts <= until:
        return True
    if any(_overlaps(undo.ref.min_ts, undo.ref.max_ts, since, until) for undo in store.undo):
        return True
    return any(
        redo.limit(until) > redo.limit(since)
        if isinstance(redo, ChangeLog)
        else _overlaps(redo.ref.min_ts, redo.ref.max_ts, since, until)
        for redo in store.redo
    )


def _overlaps(first: int, last: int, since: int, until: int) -> bool:
    return first <= until and last > since


class RowSetHistory:
    """The events of one rowset in ``(since, until]``, and its rows' images around them.

    Both states, at ``since`` and at ``until``, must be readable (protocol H2).
    """

    def __init__(self, schema: Schema, store: MemRowSet | DiskRowSet, since: int, until: int) -> None:
        self._schema = schema
        self._changes: list[_Changes] = []
        self._since = since
        self._until = until
        self._end: RowsAt
        self._start: RowsAt | None
        """None: the rowset has no row yet at ``since``."""
        self._forward: RowsAt
        """Base values with the changes up to ``since``: a row before the first change of the window
        that says what it became."""
        if isinstance(store, MemRowSet):
            self._end = store.at(until)
            self._start = store.at(since)
            self._forward = MemRowsAt(store, self._end.rows, store.changes_at(since))
            self._changes += [_MemoryChanges(log, since, until) for log in store.logs]
        else:
            end = store.at(until)
            assert end is not None, "the caller asks ``concerned`` first"
            self._end = end
            self._start = store.at(since)
            redo = [r.redo_at(since) if isinstance(r, DeltaStore) else r.at(since) for r in store.redo]
            self._forward = DiskRowsAt(store, since, tuple(view for view in redo if view is not None))
            for undo in store.undo:
                if _overlaps(undo.ref.min_ts, undo.ref.max_ts, since, until):
                    self._changes.append(_FileChanges(undo, since, until, undo=True))
            for part in store.redo:
                if isinstance(part, ChangeLog):
                    self._changes.append(_MemoryChanges(part, since, until))
                elif _overlaps(part.ref.min_ts, part.ref.max_ts, since, until):
                    self._changes.append(_FileChanges(part, since, until, undo=False))
        self._store = store
        self._changes = [
            part if all(i in schema.by_id for i in part.column_ids) else _OfSchema(part, schema)
            for part in self._changes
        ]

    # ---- events ----

    def timestamps(self) -> Iterator[tuple[np.ndarray, int]]:
        """The times of all events, in any order: (distinct or not, how many events each stands for)."""
        store = self._store
        if isinstance(store, DiskRowSet) and store.meta.insert_ts is not None:
            if self._since < store.meta.insert_ts <= self._until:
                yield np.array([store.meta.insert_ts], np.uint64), store.meta.rows
        else:
            yield self._inserts()[1], 1
        for part in self._changes:
            yield part.entries()[1], 1

    def _inserts(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows, insert times) of the rows inserted in the window."""
        store = self._store
        if isinstance(store, MemRowSet):
            first, last = store.rows_at(self._since), self._end.rows
            return np.arange(first, max(first, last), dtype=np.int64), store.inserted(first, max(first, last))
        meta = store.meta
        if meta.insert_ts is not None:
            if self._since < meta.insert_ts <= self._until:
                return np.arange(meta.rows, dtype=np.int64), np.full(meta.rows, meta.insert_ts, np.uint64)
        elif meta.max_insert_ts > self._since:
            times = store.base.open().insert_times(0, meta.rows)
            assert times is not None
            rows = np.flatnonzero((times > np.uint64(self._since)) & (times <= np.uint64(self._until)))
            return rows, times[rows]
        return np.empty(0, np.int64), np.empty(0, np.uint64)

    def events(self) -> Events:
        """All events of the window, by row and time."""
        inserted, times = self._inserts()
        rows = [inserted]
        timestamps = [times]
        ops = [np.full(len(inserted), EVENT_INSERTED, np.uint8)]
        for part in self._changes:
            part_rows, part_times, part_ops = part.entries()
            rows.append(part_rows.astype(np.int64))
            timestamps.append(part_times)
            ops.append(_meaning(part_ops, undo=part.undo))
        all_rows, all_times = np.concatenate(rows), np.concatenate(timestamps)
        all_ops = np.concatenate(ops)
        if _in_order(all_rows, all_times):
            return Events(all_rows, all_times, all_ops, np.arange(len(all_rows)))
        order = order_of_pairs(all_rows, all_times)
        all_rows, all_times, all_ops = all_rows[order], all_times[order], all_ops[order]
        # One change may be told by several files: a compaction folded some of its columns.
        first = np.ones(len(order), bool)
        first[1:] = (all_rows[1:] != all_rows[:-1]) | (all_times[1:] != all_times[:-1])
        place = np.empty(len(order), np.int64)
        place[order] = np.cumsum(first) - 1
        return Events(all_rows[first], all_times[first], all_ops[first], place)

    # ---- images ----

    def after(self, events: Events, column: StoredColumn) -> ColumnBuffers:
        """The column's value after each event; of a deletion, anything."""
        return self._image(events, column, before=False)

    def before(self, events: Events, column: StoredColumn) -> ColumnBuffers:
        """The column's value before each event; of an insert, anything."""
        return self._image(events, column, before=True)

    def keys(self, rows: np.ndarray) -> EncodedKeys:
        """Encoded keys of rows, (n,) int64."""
        store = self._store
        if isinstance(store, MemRowSet):
            return store.keys(self._end.rows).take(rows)
        columns = {c.id: self._cells(self._end, c, rows) for c in self._schema.key_columns}
        return encoded_keys_of(self._schema, columns, len(rows))

    def states(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whether rows, (n,) int64 ascending strictly, are present at ``since`` and at ``until``, bool."""
        start = self._start
        if start is None:
            before = np.zeros(len(rows), bool)
        elif isinstance(start, MemRowsAt):
            before = np.zeros(len(rows), bool)
            known = int(np.searchsorted(rows, start.rows))
            before[:known] = start.live_cells(rows[:known])
        else:
            before = start.live_cells(rows)
        return before, self._end.live_cells(rows)

    def at_start(self, column: StoredColumn, rows: np.ndarray) -> ColumnBuffers:
        """Values at ``since`` of rows, ascending strictly, that are present then."""
        assert self._start is not None or not len(rows)
        return self._cells(self._start or self._end, column, rows)

    def at_end(self, column: StoredColumn, rows: np.ndarray) -> ColumnBuffers:
        """Values at ``until`` of rows, ascending strictly."""
        return self._cells(self._end, column, rows)

    def _image(self, events: Events, column: StoredColumn, *, before: bool) -> ColumnBuffers:
        count = len(events)
        pool: list[ColumnBuffers] = []
        known = np.full(count, -1, np.int64)  # pool position of the value an event gives
        became = np.zeros(count, bool)  # whether it is what the row became, else what it had been
        offset = len(events.place) - sum(len(part.entries()[0]) for part in self._changes)
        pooled = 0
        for part in self._changes:
            found = part.values(column.id)
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
        if not pool:
            return self._spread(self._end, column, events.rows)
        if bool((events.rows[1:] > events.rows[:-1]).all()):
            source = _choose_one(known, became, before=before)
        else:
            source = _choose(events.rows, known, became, before=before)
        wanted = source == _END
        if wanted.any():
            values = self._spread(self._end, column, events.rows[wanted])
            source[wanted] = pooled + np.arange(values.length)
            pooled += values.length
            pool.append(values)
        wanted = source == _START
        if wanted.any():
            values = self._spread(self._forward, column, events.rows[wanted])
            source[wanted] = pooled + np.arange(values.length)
            pool.append(values)
        return ColumnBuffers.concat(pool).take(source)

    def _spread(self, state: RowsAt, column: StoredColumn, rows: np.ndarray) -> ColumnBuffers:
        """Values of rows that ascend and may repeat."""
        first = np.ones(len(rows), bool)
        first[1:] = rows[1:] != rows[:-1]
        if first.all():
            return self._cells(state, column, rows)
        return self._cells(state, column, rows[first]).take(np.cumsum(first) - 1)

    @staticmethod
    def _cells(state: RowsAt, column: StoredColumn, rows: np.ndarray) -> ColumnBuffers:
        """Values of rows that ascend strictly."""
        if not len(rows):
            return state.column(column, 0, 0)
        lower, upper = int(rows[0]), int(rows[-1]) + 1
        if len(rows) == upper - lower:
            return state.column(column, lower, upper)
        if len(rows) * _DENSE_FACTOR >= upper - lower:
            return state.column(column, lower, upper).take(rows - lower)
        return state.cells(column, rows)


_END = -1
_START = -2


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


def _meaning(ops: np.ndarray, *, undo: bool) -> np.ndarray:
    out = np.full(len(ops), EVENT_UPDATED, np.uint8)
    if undo:
        out[ops == UNDO_DEAD] = EVENT_INSERTED
        out[ops == UNDO_ALIVE] = EVENT_DELETED
    else:
        out[ops == REDO_DELETE] = EVENT_DELETED
        out[ops > REDO_DELETE] = EVENT_INSERTED
    return out


def _in_order(rows: np.ndarray, timestamps: np.ndarray) -> bool:
    if len(rows) < 2:
        return True
    later = rows[1:] > rows[:-1]
    return bool((later | ((rows[1:] == rows[:-1]) & (timestamps[1:] > timestamps[:-1]))).all())


__all__ = ["EVENT_DELETED", "EVENT_INSERTED", "EVENT_UPDATED", "Events", "RowSetHistory", "concerned"]
