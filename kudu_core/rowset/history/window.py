"""The events of one rowset that fall into a window of time, and which values its stores tell of them.

An event is one change of one row: it was inserted (for the first time or again), updated or
deleted.  Events come from insert times, from the stores of changes in memory and in REDO files,
which say what a row became, and from UNDO files, which say what it had been.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_UPDATE, UNDO_ALIVE, UNDO_DEAD
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.ordering import order_of_pairs
from kudu_core.common.schema.schema import Schema
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.memory.memrowset import MemRowSet

EVENT_INSERTED = 0
EVENT_UPDATED = 1
EVENT_DELETED = 2
"""What an event did to its row."""


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


class WindowChanges(Protocol):
    """The changes of one store that fall into the window."""

    undo: bool

    @property
    def column_ids(self) -> Collection[int]:
        """The columns that some entry of the store sets."""
        ...

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(rows, timestamps, ops of the store's kind)."""
        ...

    def values(
        self, column_id: int, rows: tuple[int, int] | None = None
    ) -> tuple[np.ndarray, ColumnBuffers] | None:
        """(positions in the entries, values) of a column; of these rows at least, half-open, None: all."""
        ...

    def whole(self, column_id: int) -> ColumnBuffers | None:
        """The values of a column that every change in the window sets; None: they do not, or who knows."""
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

    def values(
        self, column_id: int, rows: tuple[int, int] | None = None
    ) -> tuple[np.ndarray, ColumnBuffers] | None:
        if self._lower == self._upper or self._log.column_log(column_id) is None:
            return None
        numbers, rowids, values = self._log.column_changes(column_id, self._lower, self._upper)
        at = numbers.astype(np.int64) - self._lower
        if rows is not None:
            inside = np.flatnonzero((rowids >= rows[0]) & (rowids < rows[1]))
            at, values = at[inside], values.take(inside)
        return at, values

    def whole(self, column_id: int) -> ColumnBuffers | None:
        if self._log.column_log(column_id) is None:
            return None
        numbers, _, values = self._log.column_changes(column_id, self._lower, self._upper)
        return values if len(numbers) == self._upper - self._lower else None


class _MemoryRows(_MemoryChanges):
    """Of some rows alone, (n,) int64 that ascend strictly."""

    def __init__(self, log: ChangeLog, since: int, until: int, rows: np.ndarray) -> None:
        super().__init__(log, since, until)
        self._numbers = log.of_rows(rows, self._lower, self._upper)

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        timestamps, rowids, ops = self._log.changes(0, self._upper)
        return rowids[self._numbers], timestamps[self._numbers], ops[self._numbers]

    def values(
        self, column_id: int, rows: tuple[int, int] | None = None
    ) -> tuple[np.ndarray, ColumnBuffers] | None:
        if not len(self._numbers) or self._log.column_log(column_id) is None:
            return None
        numbers, _, values = self._log.column_changes(column_id, self._lower, self._upper)
        at = np.searchsorted(numbers, self._numbers.astype(numbers.dtype))  # else all of them are converted
        known = at < len(numbers)
        known[known] = numbers[at[known]] == self._numbers[known]
        if rows is not None:
            rowids = self.entries()[0]
            known &= (rowids >= rows[0]) & (rowids < rows[1])
        return np.flatnonzero(known), values.take(at[known])

    def whole(self, column_id: int) -> ColumnBuffers | None:
        found = self.values(column_id)
        return found[1] if found is not None and len(found[0]) == len(self._numbers) else None


class _FileChanges:
    def __init__(
        self, store: DeltaStore, since: int, until: int, rows: np.ndarray | None, *, undo: bool
    ) -> None:
        """``rows``: those of which it tells, (n,) int64 that ascend strictly; None: all."""
        self.undo = undo
        self._store = store
        file = store.open()
        self._picked: np.ndarray | None = None
        if rows is None:
            rowids, timestamps, ops = file.entries()
        else:
            self._picked, rowids, timestamps, ops = file.entries_of(rows)
        if timestamps is None:
            assert store.ref.record_ts is not None
            timestamps = np.full(len(rowids), store.ref.record_ts, np.uint64)
        if store.ref.min_ts <= since or store.ref.max_ts > until:
            inside = np.flatnonzero((timestamps > np.uint64(since)) & (timestamps <= np.uint64(until)))
            rowids, timestamps, ops = rowids[inside], timestamps[inside], ops[inside]
            self._picked = inside if self._picked is None else self._picked[inside]
        self._entries = rowids, timestamps, ops

    @property
    def column_ids(self) -> Collection[int]:
        return self._store.ref.updates.keys()

    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._entries

    def values(
        self, column_id: int, rows: tuple[int, int] | None = None
    ) -> tuple[np.ndarray, ColumnBuffers] | None:
        if column_id not in self._store.ref.updates:
            return None
        file = self._store.open()
        if self._picked is None and rows is None:
            _, _, positions, values = file.updates_with_entries(column_id)
            return positions.astype(np.int64), values
        lower, upper = 0, len(self._entries[0])
        if rows is not None:
            lower, upper = np.searchsorted(self._entries[0], rows).tolist()
        picked = np.arange(lower, upper) if self._picked is None else self._picked[lower:upper]
        which, values = file.updates_of_entries(column_id, picked)
        return lower + which, values

    def whole(self, column_id: int) -> ColumnBuffers | None:
        if self._store.ref.updates.get(column_id) != self._store.ref.entries:
            return None
        if self._picked is None:
            return self._store.open().values(column_id)
        return self._store.open().updates_of_entries(column_id, self._picked)[1]


class _OfSchema:
    """The changes of a store but for updates of nothing that the schema has: of dropped columns."""

    def __init__(self, changes: WindowChanges, schema: Schema) -> None:
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

    def values(
        self, column_id: int, rows: tuple[int, int] | None = None
    ) -> tuple[np.ndarray, ColumnBuffers] | None:
        found = self._changes.values(column_id, rows)
        return None if found is None else (self._place[found[0]], found[1])

    def whole(self, column_id: int) -> ColumnBuffers | None:
        found = self.values(column_id)
        return found[1] if found is not None and len(found[0]) == len(self._entries[0]) else None


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


def changes_in(
    schema: Schema, store: MemRowSet | DiskRowSet, since: int, until: int, rows: np.ndarray | None = None
) -> list[WindowChanges]:
    """The changes of each store of a rowset that fall into ``(since, until]``.

    ``rows``: of these alone, (n,) int64 that ascend strictly; None: of all.
    """

    def logged(log: ChangeLog) -> WindowChanges:
        if rows is None:
            return _MemoryChanges(log, since, until)
        return _MemoryRows(log, since, until, rows)

    found: list[WindowChanges] = []
    if isinstance(store, MemRowSet):
        found += [logged(log) for log in store.logs]
    else:
        for undo in store.undo:
            if _overlaps(undo.ref.min_ts, undo.ref.max_ts, since, until):
                found.append(_FileChanges(undo, since, until, rows, undo=True))
        for part in store.redo:
            if isinstance(part, ChangeLog):
                found.append(logged(part))
            elif _overlaps(part.ref.min_ts, part.ref.max_ts, since, until):
                found.append(_FileChanges(part, since, until, rows, undo=False))
    return [
        part if all(i in schema.by_id for i in part.column_ids) else _OfSchema(part, schema) for part in found
    ]


def events_of(inserted: np.ndarray, times: np.ndarray, changes: Sequence[WindowChanges]) -> Events:
    """All events, by row and time: rows that were inserted, with their insert times, and changes."""
    rows = [inserted]
    timestamps = [times]
    ops = [np.full(len(inserted), EVENT_INSERTED, np.uint8)]
    for part in changes:
        part_rows, part_times, part_ops = part.entries()
        rows.append(part_rows.astype(np.int64))
        timestamps.append(part_times)
        ops.append(meaning(part_ops, undo=part.undo))
    all_rows, all_times = np.concatenate(rows), np.concatenate(timestamps)
    all_ops = np.concatenate(ops)
    if _in_order(all_rows, all_times):
        return Events(all_rows, all_times, all_ops, np.arange(len(all_rows)))
    turned = _turned(all_rows, all_times)
    if turned is not None:
        return Events(all_rows, all_times[turned], all_ops[turned], turned)
    order = order_of_pairs(all_rows, all_times)
    all_rows, all_times, all_ops = all_rows[order], all_times[order], all_ops[order]
    # One change may be told by several files: a compaction folded some of its columns.
    first = np.ones(len(order), bool)
    first[1:] = (all_rows[1:] != all_rows[:-1]) | (all_times[1:] != all_times[:-1])
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(first) - 1
    return Events(all_rows[first], all_times[first], all_ops[first], place)


def meaning(ops: np.ndarray, *, undo: bool) -> np.ndarray:
    """What entries of a store of changes did to their rows."""
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


def _turned(rows: np.ndarray, timestamps: np.ndarray) -> np.ndarray | None:
    """Of rows that ascend, each with its newest change first, as an UNDO file has them: the order in which
    each row's changes are turned round, which is its own inverse.  None for others."""
    later = rows[1:] > rows[:-1]
    if not (later | ((rows[1:] == rows[:-1]) & (timestamps[1:] < timestamps[:-1]))).all():
        return None
    begins = np.flatnonzero(np.append(True, later))
    ends = np.append(begins[1:], len(rows))
    return np.repeat(begins + ends - 1, ends - begins) - np.arange(len(rows))


__all__ = [
    "EVENT_DELETED",
    "EVENT_INSERTED",
    "EVENT_UPDATED",
    "Events",
    "WindowChanges",
    "changes_in",
    "concerned",
    "events_of",
    "meaning",
]
