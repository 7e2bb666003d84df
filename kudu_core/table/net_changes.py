"""Changes of several stores put together: one net change per key, and the rows of dropped ranges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kudu_core._ext import keys as keys_kernel
from kudu_core.common.keys import EncodedKeys
from kudu_core.common.rowblock import ColumnBuffers
from kudu_core.common.schema import Schema, StoredColumn
from kudu_core.rowset.diskrowset import DiskRowSet
from kudu_core.rowset.history import DELETED, INSERTED, UPDATED, RowSetHistory
from kudu_core.rowset.memrowset import MemRowSet


@dataclass(slots=True)
class Slice:
    """Changes of one store, or of several put together, not yet in order."""

    timestamps: np.ndarray
    ops: np.ndarray
    after: dict[int, ColumnBuffers]
    before: dict[int, ColumnBuffers]
    """Empty where nobody asked."""

    def __len__(self) -> int:
        return len(self.ops)

    def take(self, rows: np.ndarray) -> Slice:
        return Slice(
            self.timestamps[rows],
            self.ops[rows],
            {i: c.take(rows) for i, c in self.after.items()},
            {i: c.take(rows) for i, c in self.before.items()},
        )

    @staticmethod
    def concat(parts: Sequence[Slice]) -> Slice:
        if len(parts) == 1:
            return parts[0]
        return Slice(
            np.concatenate([p.timestamps for p in parts]),
            np.concatenate([p.ops for p in parts]),
            {i: ColumnBuffers.concat([p.after[i] for p in parts]) for i in parts[0].after},
            {i: ColumnBuffers.concat([p.before[i] for p in parts]) for i in parts[0].before},
        )


def dropped_rows(
    store: MemRowSet | DiskRowSet, dropped_ts: int, needed: Sequence[StoredColumn], chunk: int
) -> Iterator[Slice]:
    """A store's rows as deleted by the drop of their range (PROTOCOL A3), so many at a time."""
    source = store.at(dropped_ts - 1)
    if source is None:
        return
    for lower in range(0, source.rows, chunk):
        upper = min(lower + chunk, source.rows)
        live = source.live(lower, upper)
        columns = {c.id: source.column(c, lower, upper) for c in needed}
        if live is not None:
            rows = np.flatnonzero(live)
            columns = {i: c.take(rows) for i, c in columns.items()}
        count = upper - lower if live is None else len(rows)
        ops = np.full(count, DELETED, np.uint8)
        yield Slice(np.full(count, dropped_ts, np.uint64), ops, columns, columns)


@dataclass(slots=True)
class Part:
    """A store of a tablet."""

    store: MemRowSet | DiskRowSet
    dropped_ts: int | None
    """When its range was dropped, if that is in the window."""


@dataclass(slots=True)
class _Rows:
    """Rows of one store whose state may differ between the ends of the window."""

    keys: EncodedKeys
    last: np.ndarray
    """(n,) uint64: the time of the last change."""
    before: np.ndarray
    after: np.ndarray
    """(n,) bool: present at the start and at the end."""
    old: dict[int, ColumnBuffers]
    new: dict[int, ColumnBuffers]
    """Images of those that are present."""


def net_changes(schema: Schema, parts: Sequence[Part], since: int, until: int) -> Slice:
    """One change per key, in order of the keys, over stores that may hold the same keys."""
    found = []
    for part in parts:
        rows = (
            _changed(schema, part.store, since, until)
            if part.dropped_ts is None
            else _gone(schema, part.store, since, part.dropped_ts)
        )
        if rows is not None:
            found.append(rows)
    return _joined(schema, found)


def _changed(schema: Schema, store: MemRowSet | DiskRowSet, since: int, until: int) -> _Rows | None:
    history = RowSetHistory(schema, store, since, until)
    events = history.events()
    if not len(events):
        return None
    ends = np.flatnonzero(np.append(events.rows[1:] != events.rows[:-1], True))
    rows = events.rows[ends]
    before, after = history.states(rows)
    return _Rows(
        history.keys(rows),
        events.timestamps[ends],
        before,
        after,
        {c.id: history.at_start(c, rows[before]) for c in schema.columns},
        {c.id: history.at_end(c, rows[after]) for c in schema.columns},
    )


def _gone(schema: Schema, store: MemRowSet | DiskRowSet, since: int, dropped_ts: int) -> _Rows | None:
    """All rows that a store of a dropped range had at ``since``."""
    source = store.at(since)
    if source is None or not source.rows:
        return None
    live = source.live(0, source.rows)
    rows = np.arange(source.rows) if live is None else np.flatnonzero(live)
    if not len(rows):
        return None
    history = RowSetHistory(schema, store, since, since)
    return _Rows(
        history.keys(rows),
        np.full(len(rows), dropped_ts, np.uint64),
        np.ones(len(rows), bool),
        np.zeros(len(rows), bool),
        {c.id: history.at_start(c, rows) for c in schema.columns},
        {c.id: ColumnBuffers.nulls(c.type, 0) for c in schema.columns},
    )


def _joined(schema: Schema, found: Sequence[_Rows]) -> Slice:
    """Rows of several stores by key: at each end of the window at most one of them is present."""
    columns = schema.columns
    if not found:
        none = {c.id: ColumnBuffers.nulls(c.type, 0) for c in columns}
        return Slice(np.empty(0, np.uint64), np.empty(0, np.uint8), none, dict(none))
    all_keys = EncodedKeys.concat([rows.keys for rows in found])
    order = keys_kernel.sort(all_keys.data, all_keys.offsets)
    ordered = all_keys.take(order)
    gid, first = keys_kernel.group(ordered.data, ordered.offsets, ordered.hashes())
    groups = len(first)
    stamps = np.zeros(groups, np.uint64)
    np.maximum.at(stamps, gid, np.concatenate([rows.last for rows in found])[order])
    old_row = _row_of(gid, order, np.concatenate([rows.before for rows in found]), groups)
    new_row = _row_of(gid, order, np.concatenate([rows.after for rows in found]), groups)
    changed = (old_row >= 0) != (new_row >= 0)
    both = np.flatnonzero((old_row >= 0) & (new_row >= 0))
    old_all = {c.id: ColumnBuffers.concat([rows.old[c.id] for rows in found]) for c in columns}
    new_all = {c.id: ColumnBuffers.concat([rows.new[c.id] for rows in found]) for c in columns}
    differs = np.zeros(len(both), bool)
    for column in columns:
        differs |= ~_same(
            old_all[column.id].take(old_row[both]), new_all[column.id].take(new_row[both]), column
        )
    changed[both] = differs
    kept = np.flatnonzero(changed)
    ops = np.full(len(kept), UPDATED, np.uint8)
    ops[old_row[kept] < 0] = INSERTED
    ops[new_row[kept] < 0] = DELETED
    # Of a deletion the image after has the key, and of an insert the image before means nothing.
    after, before = {}, {}
    for column in columns:
        pool = ColumnBuffers.concat([old_all[column.id], new_all[column.id]])
        shift = old_all[column.id].length
        o, n = old_row[kept], np.where(new_row[kept] >= 0, new_row[kept] + shift, -1)
        after[column.id] = pool.take(np.where(n >= 0, n, o))
        before[column.id] = pool.take(np.where(o >= 0, o, n))
    return Slice(stamps[kept], ops, after, before)


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
    if old.width:
        a = old.values[: old.length * old.width].reshape(old.length, old.width)
        b = new.values[: new.length * new.width].reshape(new.length, new.width)
        equal = (a == b).all(axis=1)
    else:
        import pyarrow.compute as pc

        filled = pc.equal(old.to_arrow(column.type), new.to_arrow(column.type)).fill_null(False)
        equal = filled.to_numpy(zero_copy_only=False)
    same: np.ndarray = (left == right) & (equal | ~left)
    return same


__all__ = ["Part", "Slice", "dropped_rows", "net_changes"]
