"""What happened to the rows of one rowset in a window of time, and what they looked like then.

``window`` has the events, ``image`` which values they show; this file has the rowset's states at the ends of
the window, from which comes whatever no change tells.

Source: Kudu's diff scan (tablet/delta_applier, delta_iterator_merger), per event here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.disk.diskrowset import DiskRowsAt, DiskRowSet
from kudu_core.rowset.history.image import cells_of, distinct, image_of
from kudu_core.rowset.history.straight import StraightHistory, straight_order
from kudu_core.rowset.history.window import Events, changes_in, events_of
from kudu_core.rowset.memory.memrowset import MemRowsAt, MemRowSet
from kudu_core.rowset.rows.delta_view import DeltaView
from kudu_core.rowset.rows.rows_at import RowsAt, encoded_keys_of


class RowSetHistory:
    """The events of one rowset in ``(since, until]``, and its rows' images around them.

    Both states, at ``since`` and at ``until``, must be readable (protocol H2).
    """

    def __init__(
        self,
        schema: Schema,
        store: MemRowSet | DiskRowSet,
        since: int,
        until: int,
        rows: np.ndarray | None = None,
    ) -> None:
        """``rows``: those of which it tells, (n,) int64 that ascend strictly; None: all."""
        self._schema = schema
        self._since = since
        self._until = until
        self._end: RowsAt
        self._start: RowsAt | None
        """None: the rowset has no row yet at ``since``."""
        self._forward: RowsAt
        """Base values with the changes up to ``since``, and without those after ``until`` that a compaction
        has folded into them: a row before the first change of the window that says what it became."""
        if isinstance(store, MemRowSet):
            self._end = store.at(until)
            self._start = store.at(since)
            self._forward = MemRowsAt(store, self._end.rows, store.changes_at(since))
        else:
            end = store.at(until)
            assert end is not None, "the caller asks ``concerned`` first"
            self._end = end
            self._start = store.at(since)
            views: list[DeltaView | None] = [undo.undo_at(until) for undo in store.undo]
            views += [r.redo_at(since) if isinstance(r, DeltaStore) else r.at(since) for r in store.redo]
            self._forward = DiskRowsAt(store, since, tuple(view for view in views if view is not None))
        self._store = store
        self._rows = rows
        self._changes = changes_in(schema, store, since, until, rows)

    # ---- events ----

    def timestamps(self) -> Iterator[tuple[np.ndarray, int]]:
        """The times of all events, in any order: (distinct or not, how many events each stands for)."""
        store = self._store
        whole = self._rows is None
        if whole and isinstance(store, DiskRowSet) and store.meta.insert_ts is not None:
            if self._since < store.meta.insert_ts <= self._until:
                yield np.array([store.meta.insert_ts], np.uint64), store.meta.rows
        else:
            yield self._inserts()[1], 1
        for part in self._changes:
            yield part.entries()[1], 1

    def _inserts(self) -> tuple[np.ndarray, np.ndarray]:
        """(rows, insert times) of the rows inserted in the window."""
        if self._rows is not None:
            return self._some_inserts(self._rows)
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

    def _some_inserts(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        store = self._store
        if isinstance(store, MemRowSet):
            rows = rows[rows < self._end.rows]
            times = store.inserted(0, self._end.rows)[rows]
        elif store.meta.insert_ts is not None:
            times = np.full(len(rows), store.meta.insert_ts, np.uint64)
        elif store.meta.max_insert_ts > self._since and len(rows):
            stored = store.base.open().insert_times_of(rows)
            assert stored is not None
            times = stored
        else:
            return np.empty(0, np.int64), np.empty(0, np.uint64)
        inside = (times > np.uint64(self._since)) & (times <= np.uint64(self._until))
        return rows[inside], times[inside]

    def events(self) -> Events:
        """All events of the window, by row and time."""
        return events_of(*self._inserts(), self._changes)

    def straight(self) -> list[StraightHistory] | None:
        """The same changes as their stores have them, one window after the other; None where it takes all of
        them together."""
        order = straight_order(self._changes)
        if isinstance(order, int):
            earlier = self._between(self._since, order).straight()
            later = self._between(order, self._until).straight()
            return None if earlier is None or later is None else [*earlier, *later]
        if order is None:
            return None
        changes, undo = order
        return [StraightHistory(*self._inserts(), changes, self._forward, self._end, undo=undo)]

    def _between(self, since: int, until: int) -> RowSetHistory:
        return RowSetHistory(self._schema, self._store, since, until, self._rows)

    # ---- images ----

    def after(
        self, events: Events, columns: Sequence[StoredColumn], order: np.ndarray | None = None
    ) -> dict[int, ColumnBuffers]:
        """The columns' values after each event, by id; of a deletion, anything.

        ``order``: the events, numbered, in the order in which they come out; None: as they are.
        """
        return self._images(events, columns, order, before=False)

    def before(
        self, events: Events, columns: Sequence[StoredColumn], order: np.ndarray | None = None
    ) -> dict[int, ColumnBuffers]:
        """The columns' values before each event; of an insert, anything."""
        return self._images(events, columns, order, before=True)

    @property
    def touched(self) -> frozenset[int]:
        """The columns that some change of the window may have set."""
        return frozenset(column_id for part in self._changes for column_id in part.column_ids)

    def keys(self, rows: np.ndarray) -> EncodedKeys:
        """Encoded keys of rows, (n,) int64."""
        store = self._store
        if isinstance(store, MemRowSet):
            return store.keys(self._end.rows).take(rows)
        columns = cells_of(self._end, self._schema.key_columns, rows)
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

    def at_start(self, columns: Sequence[StoredColumn], rows: np.ndarray) -> dict[int, ColumnBuffers]:
        """Values at ``since`` of rows, ascending strictly, that are present then, by column."""
        assert self._start is not None or not len(rows)
        return cells_of(self._start or self._end, columns, rows)

    def at_end(self, columns: Sequence[StoredColumn], rows: np.ndarray) -> dict[int, ColumnBuffers]:
        """Values at ``until`` of rows, ascending strictly, by column."""
        return cells_of(self._end, columns, rows)

    def _images(
        self, events: Events, columns: Sequence[StoredColumn], order: np.ndarray | None, *, before: bool
    ) -> dict[int, ColumnBuffers]:
        """Columns that the window leaves alone are read together, each row once; the others one by one."""
        touched = self.touched
        rows, place = distinct(events.rows)
        if order is not None:
            place = order if place is None else place[order]
        found = cells_of(self._end, [c for c in columns if c.id not in touched], rows, place)
        for column in columns:
            if column.id in touched:
                image = image_of(column, events, self._changes, self._forward, self._end, before=before)
                found[column.id] = image if order is None else image.take(order)
        return found


__all__ = ["RowSetHistory"]
