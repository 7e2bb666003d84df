"""Changes of one rowset as its stores have them, where REDO alone tells of a window, or UNDO alone.

Of a column that every change of a REDO store sets, what the store has is the image after each of them; of
UNDO it is the image before.  Nothing is sorted, joined or looked up.  Every other image is that of another
change of the row, to which chains lead (``_ext.changes.chains``): REDO forward in time, from the state at the
window's start, UNDO backward from that at its end.  Columns that no change of the window sets are read once,
at its end.

``history.events`` is the general way, for windows of which both tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kudu_core._ext.changes.chains import chain, settled
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.ordering import distinct
from kudu_core.common.schema.schema import StoredColumn
from kudu_core.rowset.history.image import apart, cells_of
from kudu_core.rowset.history.window import EVENT_DELETED, EVENT_INSERTED, WindowChanges, meaning
from kudu_core.rowset.rows.rows_at import RowsAt

_SPARSE_FACTOR = 16
"""Rows are numbered anew, by a sort, where fewer than one row in so many has a change."""


@dataclass(slots=True)
class StoreChanges:
    """Changes of one store in the window; those of a row follow one another, over all stores of the rowset:
    in the order of their times, in UNDO against it."""

    rows: np.ndarray
    """(n,) int64: rowids, or ordinals of a MemRowSet; a row may be there more than once."""
    timestamps: np.ndarray
    ops: np.ndarray
    """(n,) uint8: ``EVENT_INSERTED``, ``EVENT_UPDATED`` or ``EVENT_DELETED``."""
    first: int
    """How many changes the stores before have."""
    changes: WindowChanges | None
    """None: rows inserted for the first time."""

    def __len__(self) -> int:
        return len(self.rows)


class StraightHistory:
    """What the stores of one rowset tell."""

    def __init__(
        self,
        inserted: np.ndarray,
        times: np.ndarray,
        changes: Sequence[WindowChanges],
        forward: RowsAt,
        end: RowsAt,
        *,
        undo: bool,
    ) -> None:
        """``changes``: as ``straight_order`` has them.  ``forward``: base values with the changes up to the
        window's start.  ``end``: the state at its end."""
        self.undo = undo
        """Whether UNDO tells, against time."""
        self._state = end if undo else forward
        """What a row is before its first change in the order of the stores."""
        self._end = end
        self.stores: list[StoreChanges] = []
        self._count = 0
        self._touched: set[int] = set()
        if not undo:
            self._add_inserted(inserted, times)
        for part in changes:
            rows, timestamps, ops = part.entries()
            if len(rows):
                self._add(rows.astype(np.int64), timestamps, meaning(ops, undo=part.undo), part)
                self._touched.update(part.column_ids)
        if undo:
            self._add_inserted(inserted, times)
        self._before: np.ndarray | None = None

    def __len__(self) -> int:
        return self._count

    def _add_inserted(self, rows: np.ndarray, times: np.ndarray) -> None:
        if len(rows):
            self._add(rows, times, np.full(len(rows), EVENT_INSERTED, np.uint8), None)

    def _add(self, rows: np.ndarray, times: np.ndarray, ops: np.ndarray, part: WindowChanges | None) -> None:
        self.stores.append(StoreChanges(rows, times, ops, self._count, part))
        self._count += len(rows)

    def images(
        self, columns: Sequence[StoredColumn], orders: Sequence[np.ndarray | None], *, before: bool
    ) -> list[dict[int, ColumnBuffers]]:
        """By store, and by column id, the values after (or before) its changes; of a deletion, or before an
        insert, anything.

        ``orders``: of each store the order in which they come out; None: as they are.
        """
        found: list[dict[int, ColumnBuffers]] = [{} for _ in self.stores]
        alone = [column for column in columns if column.id not in self._touched]
        if alone and self.stores:
            state = _LookedUp(self._end, alone, [store.rows for store in self.stores])
            for images, store, order in zip(found, self.stores, orders, strict=True):
                images |= state.of(_ordered(store.rows, order))
        shifted = before != self.undo  # not what stores have, but what the row's change before left
        every: _Sources | None = None
        for column in columns:
            if column.id in self._touched:
                known = [None if shifted else self._straight(column, store) for store in self.stores]
                missing = [number for number, values in enumerate(known) if values is None]
                for images, values, order in zip(found, known, orders, strict=True):
                    if values is not None:
                        images[column.id] = values if order is None else values.take(order)
                if missing:
                    pool = self._all_whole(column)
                    if pool is None:
                        sources, pool = self._partial(column, orders, missing, shifted=shifted)
                    else:
                        if every is None:
                            every = self._sources(self._numbers(), pool, orders, missing, shifted=shifted)
                        sources = every
                    for number, values in zip(
                        missing, sources.values(column, self._state, pool), strict=True
                    ):
                        found[number][column.id] = values
        return found

    def _straight(self, column: StoredColumn, store: StoreChanges) -> ColumnBuffers | None:
        """What a store has of a column, if it has a value for every change that means one."""
        if store.changes is None:
            if self.undo:
                return ColumnBuffers.nulls(column.type, len(store))
            return cells_of(self._state, [column], store.rows)[column.id]
        values = store.changes.whole(column.id)
        if values is not None:
            return values
        absent = int((store.ops == (EVENT_INSERTED if self.undo else EVENT_DELETED)).sum())
        found = store.changes.values(column.id) if absent else None
        if found is None or not len(found[0]) or len(found[0]) + absent < len(store):
            return None
        at = np.zeros(len(store), np.int64)  # where the row is absent any value will do
        at[found[0]] = np.arange(len(found[0]))
        return found[1].take(at)

    # ---- what other changes of the rows tell ----

    def _all_whole(self, column: StoredColumn) -> list[ColumnBuffers] | None:
        """The values that the stores have of a column, if each has them for all its changes."""
        found = []
        for store in self.stores:
            if store.changes is not None:
                values = store.changes.whole(column.id)
                if values is None:
                    return None
                found.append(values)
        return found

    def _numbers(self) -> np.ndarray | None:
        """Where the value of each change lies among those of all, of columns that each of them sets; None:
        each at its own number."""
        inserted = sum(len(store) for store in self.stores if store.changes is None)
        if self.undo or not inserted:
            return None  # nothing follows the inserts
        numbers = np.arange(-inserted, self._count - inserted)
        numbers[:inserted] = -1
        return numbers

    def _partial(
        self,
        column: StoredColumn,
        orders: Sequence[np.ndarray | None],
        missing: Sequence[int],
        *,
        shifted: bool,
    ) -> tuple[_Sources, list[ColumnBuffers]]:
        """The same of a column that some changes leave alone."""
        known = np.full(self._count, -1, np.int64)
        pool: list[ColumnBuffers] = []
        pooled = 0
        for store in self.stores:
            found = None if store.changes is None else store.changes.values(column.id)
            if found is not None:
                known[store.first + found[0]] = pooled + np.arange(len(found[0]))
                pool.append(found[1])
                pooled += found[1].length
        numbers = settled(self._chained(), known)
        return self._sources(numbers, pool, orders, missing, shifted=shifted), pool

    def _sources(
        self,
        numbers: np.ndarray | None,
        pool: Sequence[ColumnBuffers],
        orders: Sequence[np.ndarray | None],
        missing: Sequence[int],
        *,
        shifted: bool,
    ) -> _Sources:
        if shifted:
            before = self._chained()
            numbers = before if numbers is None else np.where(before >= 0, numbers[before], -1)
        elif numbers is None:
            numbers = np.arange(self._count)
        firsts = np.cumsum([0, *(values.length for values in pool)])
        found = _Sources([], [], [], [orders[number] for number in missing])
        for number in missing:
            store = self.stores[number]
            at = numbers[store.first : store.first + len(store)].astype(np.int64)  # a copy
            if len(pool) == 1:
                part, place = (at < 0).astype(np.int32), at
            else:
                part = (np.searchsorted(firsts, at, side="right") - 1).astype(np.int32)
                place = at - firsts[part]
                part[at < 0] = len(pool)
            found.parts.append(part)
            found.places.append(place)
            found.first_rows.append(store.rows[part == len(pool)])
        return found

    def _chained(self) -> np.ndarray:
        """(n,) int32: of each change the number of the row's change before it, -1 for its first."""
        if self._before is None:
            rows = np.concatenate([store.rows for store in self.stores])
            lower, upper = int(rows.min()), int(rows.max()) + 1
            if len(rows) * _SPARSE_FACTOR < upper - lower:
                known, rows = np.unique(rows, return_inverse=True)
                lower, upper = 0, len(known)
            self._before, _ = chain(rows.reshape(-1), lower, upper - lower)
        return self._before


@dataclass(slots=True)
class _Sources:
    """Of some stores, where the image after (or before) each change lies: in which part of a pool of values,
    and at which place; the last part is the state before the first changes."""

    parts: list[np.ndarray]
    places: list[np.ndarray]
    first_rows: list[np.ndarray]
    """Of which rows cells of the state are needed."""
    orders: list[np.ndarray | None]
    """In which the images come out; None: as they are."""
    _lacking: list[np.ndarray] | None = None
    """Which of the images ``first_rows`` are."""
    _placed: tuple[bool, int] | None = None
    """As which column's cells of the state they have places: most columns' lie alike."""
    _targets: list[np.ndarray | None] | None = None
    """Where each image comes out."""
    _sorted: list[tuple[np.ndarray, np.ndarray]] | None = None
    """Parts and places as the images come out."""

    def values(self, column: StoredColumn, state: RowsAt, pool: list[ColumnBuffers]) -> list[ColumnBuffers]:
        """Those of a column, store by store.

        A store's changes ascend by row, so its images lie one behind the other.  Where they come out by time
        they are written to their places; to be read from theirs they would be gone through for each time.
        """
        if any(len(rows) for rows in self.first_rows):
            start = _LookedUp(state, [column], self.first_rows)
            if self._lacking is None:
                self._lacking = [np.flatnonzero(part == len(pool)) for part in self.parts]
            layout = start.layout(column.id)
            if layout != self._placed:
                for lacking, place, rows in zip(self._lacking, self.places, self.first_rows, strict=True):
                    place[lacking] = start.place(column.id, rows)
                self._placed, self._sorted = layout, None
            pool = [*pool, start.values[column.id]]
        if column.type.width and all(values.validity is None for values in pool):
            if self._targets is None:
                self._targets = [_inverse(order) for order in self.orders]
            return [
                ColumnBuffers.interleave(pool, part, place, target)
                for part, place, target in zip(self.parts, self.places, self._targets, strict=True)
            ]
        if self._sorted is None:
            every = zip(self.parts, self.places, self.orders, strict=True)
            self._sorted = [(_ordered(part, order), _ordered(place, order)) for part, place, order in every]
        return [ColumnBuffers.interleave(pool, part, place) for part, place in self._sorted]


def _inverse(order: np.ndarray | None) -> np.ndarray | None:
    if order is None:
        return None
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order))
    return found


def straight_order(changes: Sequence[WindowChanges]) -> tuple[list[WindowChanges], bool] | int | None:
    """In which order changes of stores are told straight, and whether against time; or a time before which
    and after which they are; or None.

    A change of which two UNDO files tell is none of these (a compaction folded some of its columns), nor are
    REDO files which are not all later.  Deletions that stay in REDO (protocol M2) are the last of their rows.
    """
    some = [part for part in changes if len(part.entries()[0])]
    undo = [part for part in some if part.undo]
    redo = [part for part in some if not part.undo]
    if not undo:
        return redo, False
    spans = [(int(times.min()), int(times.max())) for times in (part.entries()[1] for part in undo)]
    if any(newer[0] <= older[1] for newer, older in pairwise(spans)):
        return None
    updates = [part for part in redo if len(part.column_ids)]
    if not updates:
        return [*redo, *undo], True
    first = min(int(part.entries()[1].min()) for part in updates)
    return spans[0][1] if spans[0][1] < first else None


class _LookedUp:
    """Cells of a state, each column read once for all rows that are asked for."""

    def __init__(self, state: RowsAt, columns: Sequence[StoredColumn], rows: Sequence[np.ndarray]) -> None:
        some = [part for part in rows if len(part)]
        self._lower = min((int(part.min()) for part in some), default=0)
        upper = max((int(part.max()) + 1 for part in some), default=0)
        self._wide = upper - self._lower
        single, ranges = apart(state, columns, sum(map(len, some)), self._wide)
        self.values = state.columns(ranges, self._lower, upper) if ranges else {}
        self._single: np.ndarray | None = None
        if single:
            self._single = distinct(np.concatenate(some)) if some else np.empty(0, np.int64)
            self.values |= cells_of(state, single, self._single)
        self._alone = {column.id for column in single}

    def layout(self, column_id: int) -> tuple[bool, int]:
        """Equal where the cells of the same rows lie at the same places."""
        return column_id in self._alone, self._lower

    def place(self, column_id: int, rows: np.ndarray) -> np.ndarray:
        """Where the cells of some of the rows lie in a column's values."""
        if column_id not in self._alone:
            return rows - self._lower
        assert self._single is not None
        return np.searchsorted(self._single, rows)

    def of(self, rows: np.ndarray) -> dict[int, ColumnBuffers]:
        """All columns of some of the rows."""
        if len(rows) == self._wide and not self._alone and bool((rows[1:] > rows[:-1]).all()):
            return dict(self.values)
        places: dict[bool, np.ndarray] = {}
        found = {}
        for column_id, values in self.values.items():
            alone = column_id in self._alone
            if alone not in places:
                places[alone] = self.place(column_id, rows)
            found[column_id] = values.take(places[alone])
        return found


def _ordered(values: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    return values if order is None else values[order]


__all__ = ["StoreChanges", "StraightHistory", "straight_order"]
