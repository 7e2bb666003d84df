"""What a tablet is made of at one moment, and where keys live in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any

import numpy as np

from kudu_core._ext.keys import keys as keys_kernel
from kudu_core._ext.row.view import PointView
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.run.cached import cached_property
from kudu_core.common.schema.schema import Schema
from kudu_core.errors import Corruption
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.rowset.rows.rows_at import RowsAt
from kudu_core.tablet.view.rowset_tree import EMPTY, RowSetTree

ABSENT = -1
_ALL_ROWS = 1 << 62

BEGIN_NS, ORDERED_ROW_NS = 2000, 60
"""What a scan in the order of keys takes for each rowset more, and for each row that it puts in order."""


@dataclass(frozen=True, eq=False)
class View:
    """The rowsets of a tablet.  Replaced, never changed: who has one may use it for as long as
    they like."""

    active: MemRowSet
    frozen: tuple[MemRowSet, ...] = ()
    """Oldest first."""
    rowsets: tuple[DiskRowSet, ...] = ()
    """By first key, as ``tree`` numbers them."""
    tree: RowSetTree = EMPTY
    types_version: int = 0
    """Of the types that the stores give of their columns: ``Schema.cells``."""

    @cached_property
    def stores(self) -> tuple[MemRowSet | DiskRowSet, ...]:
        """Everything that can hold a key; ``Homes.store`` counts in this order."""
        return (self.active, *self.frozen, *self.rowsets)

    @cached_property
    def points(self) -> PointView:
        """The same stores, for reads of one key."""
        memories = [m.points for m in (self.active, *self.frozen)]
        return PointView(memories, [r.points for r in self.rowsets], self.tree.bounds)

    @cached_property
    def changed(self) -> tuple[DiskRowSet, ...]:
        """Rowsets on disk of which memory holds changes."""
        return tuple(r for r in self.rowsets if r.memory_stores)

    def with_rowsets(self, rowsets: Iterable[DiskRowSet]) -> View:
        """A view of other rowsets on disk."""
        tree, ordered = RowSetTree.of(rowsets)
        tree.bounds.overlap_ns = self.tree.bounds.overlap_ns
        return replace(self, rowsets=ordered, tree=tree)

    def with_changed(self, new: Sequence[DiskRowSet]) -> View:
        """New versions of rowsets in their places.  What is known of the others stays known."""
        at = {self.tree.places[r.id]: r for r in new}
        rowsets = list(self.rowsets)
        for place, rowset in at.items():
            rowsets[place] = rowset
        view = replace(self, rowsets=tuple(rowsets))
        points = self.__dict__.get("points")
        if points is not None:
            view.__dict__["points"] = points.replaced({place: r.points for place, r in at.items()})
        return view

    def with_rowset(self, new: DiskRowSet) -> View:
        """``with_changed`` of one."""
        return self.with_changed((new,))

    def rowset(self, rowset_id: int) -> DiskRowSet | None:
        place = self.tree.places.get(rowset_id)
        return None if place is None else self.rowsets[place]

    def note_ordered(self, places: Sequence[int], limit: int | None) -> None:
        """Rows of the rowsets at these places will be put in the order of keys: for whoever weighs merges."""
        rows, most = 0, _ALL_ROWS if limit is None else limit
        if len(places) >= most:  # each has a row: two hundred are not asked for the sake of ten rows
            rows = most
        for place in places:
            if rows >= most:
                break
            rows = min(most, rows + self.rowsets[place].meta.rows)
        self.tree.bounds.overlap_ns += BEGIN_NS * (len(places) - 1) + ORDERED_ROW_NS * rows

    def at(self, snapshot: int) -> Iterator[RowsAt]:
        """The rowsets that a snapshot sees anything of."""
        for _, seen in self.places_at(snapshot):
            yield seen

    def places_at(self, snapshot: int) -> Iterator[tuple[int, RowsAt]]:
        """The same, each with its place in ``stores``."""
        for place, store in enumerate(self.stores):
            if isinstance(store, DiskRowSet):
                seen = store.at(snapshot)
                if seen is not None:
                    yield place, seen
            elif len(store):
                yield place, store.at(snapshot)

    def typed(self, schema: Schema, newer: Schema) -> View:
        """The files of this view, which has the types of the schema ``newer``, read as those of an older one.
        Nothing that is in memory lies at a time of that."""
        changed = newer.cell_types
        types = {
            column.id: column.type.value
            for column in schema.columns
            if column.id in changed or column.id not in newer.by_id
        }
        made: dict[Any, View] = self.__dict__.setdefault("_typed", {})
        key = schema.cells, tuple(sorted((i, type_.name) for i, type_ in types.items()))
        found = made.get(key)
        if found is None:
            rowsets = []
            for rowset in self.rowsets:
                rowsets.append(rowset.typed(types))
                rowsets[-1].outlive(rowset)  # its files stay as long as somebody reads them so
            view = View(MemRowSet(schema), types_version=schema.cells).with_rowsets(rowsets)
            found = made.setdefault(key, view)
        return found

    @property
    def memory_bytes(self) -> int:
        return sum(m.nbytes for m in (self.active, *self.frozen)) + sum(
            log.nbytes for r in self.changed for log in r.memory_stores
        )


class KeyBatch:
    """Keys of one write or look-up, with their hashes and, when needed, their order."""

    def __init__(
        self,
        keys: EncodedKeys,
        hashes: np.ndarray | None = None,
        order: np.ndarray | EllipsisType | None = ...,
    ) -> None:
        """``order``: that member, where the caller knows it."""
        self.keys = keys
        self.hashes = keys.hashes() if hashes is None else hashes
        if order is not ...:
            self.order = order

    def __len__(self) -> int:
        return len(self.hashes)

    @cached_property
    def order(self) -> np.ndarray | None:
        """Permutation into key order, (n,) int64; None when the keys come in order."""
        if keys_kernel.order(self.keys.data, self.keys.offsets) >= 1:
            return None
        order: np.ndarray = keys_kernel.sort(self.keys.data, self.keys.offsets)
        return order

    @cached_property
    def in_order(self) -> tuple[EncodedKeys, np.ndarray]:
        """(keys, hashes) in key order."""
        if self.order is None:
            return self.keys, self.hashes
        return self.keys.take(self.order), self.hashes[self.order]

    def take(self, rows: np.ndarray) -> KeyBatch:
        return KeyBatch(self.keys.take(rows), self.hashes[rows])


@dataclass(slots=True)
class Homes:
    """Where each key of a batch lives."""

    store: np.ndarray
    """(n,) int32: index into ``view.stores``, ``ABSENT`` where no store holds the key live."""
    row: np.ndarray
    """(n,) int64: ordinal or rowid in that store."""
    ghost: np.ndarray
    """(n,) int64: ordinal of a dead entry in the active MemRowSet, -1 where there is none."""

    @property
    def live(self) -> np.ndarray:
        return self.store >= 0


def locate_newest(view: View, batch: KeyBatch, *, durable_below: int | None = None) -> Homes:
    """Find the one store in which each key is live in its newest applied state.

    Called under the tablet's mutex.  ``durable_below`` is the rule of replay (protocol O5): only
    rowsets whose D lies below it are asked.
    """
    homes = Homes(
        np.full(len(batch), ABSENT, np.int32),
        np.full(len(batch), -1, np.int64),
        np.full(len(batch), -1, np.int64),
    )
    for index, memory in enumerate((view.active, *view.frozen)):
        if len(memory):
            ordinals = memory.locate(batch.keys, batch.hashes)
            found = np.flatnonzero(ordinals >= 0)
            if len(found):
                live = memory.is_live(ordinals[found])
                at = found[live]
                homes.store[at], homes.row[at] = index, ordinals[at]
                if memory is view.active:
                    dead = found[~live]
                    homes.ghost[dead] = ordinals[dead]
    if not view.rowsets:
        return homes
    first_rowset = 1 + len(view.frozen)
    keys, hashes = batch.in_order
    order = batch.order
    for index, lower, upper in view.tree.batch(keys):
        rowset = view.rowsets[index]
        if durable_below is not None and rowset.meta.durable >= durable_below:
            continue
        rows = rowset.locate(keys.slice(lower, upper), hashes[lower:upper])
        found = np.flatnonzero(rows >= 0)
        if len(found):
            found = found[rowset.is_live(rows[found])]
            at = found + lower if order is None else order[found + lower]
            if (homes.store[at] >= 0).any():  # protocol N3
                raise Corruption(rowset.base.path, 0, "a key of this rowset lives in another store too")
            homes.store[at], homes.row[at] = first_rowset + index, rows[found]
    return homes


@dataclass(slots=True)
class Look:
    """Keys to be looked for in one store as a snapshot sees it."""

    store: int
    """Index into ``view.stores``."""
    source: RowsAt
    keys: EncodedKeys
    hashes: np.ndarray
    places: np.ndarray | None
    """Which keys of the batch they are; None: all, as they come."""

    def live(self) -> tuple[np.ndarray, np.ndarray]:
        """(keys of the batch that are live here, their rows in the store)."""
        rows = self.source.find(self.keys, self.hashes)
        found = np.flatnonzero(rows >= 0)
        if len(found):
            found = found[self.source.live_cells(rows[found])]
        return found if self.places is None else self.places[found], rows[found]


def looks_at(view: View, batch: KeyBatch, snapshot: int) -> list[Look]:
    """The stores that may hold keys of a batch at a snapshot; a key is live in at most one (protocol N3)."""
    looks = [
        Look(index, memory.at(snapshot), batch.keys, batch.hashes, None)
        for index, memory in enumerate((view.active, *view.frozen))
        if len(memory)
    ]
    if not view.rowsets:
        return looks
    first_rowset = 1 + len(view.frozen)
    keys, hashes = batch.in_order
    order = batch.order
    for index, lower, upper in view.tree.batch(keys):
        source = view.rowsets[index].at(snapshot)
        if source is not None:
            places = np.arange(lower, upper) if order is None else order[lower:upper]
            cut = keys.slice(lower, upper)
            looks.append(Look(first_rowset + index, source, cut, hashes[lower:upper], places))
    return looks


def locate_at(view: View, batch: KeyBatch, snapshot: int) -> tuple[Homes, dict[int, RowsAt]]:
    """Find the store in which each key is live at a snapshot; also the stores as it sees them."""
    homes = Homes(
        np.full(len(batch), ABSENT, np.int32),
        np.full(len(batch), -1, np.int64),
        np.full(len(batch), -1, np.int64),
    )
    seen: dict[int, RowsAt] = {}
    for look in looks_at(view, batch, snapshot):
        at, rows = look.live()
        if len(at):
            seen[look.store] = look.source
            homes.store[at], homes.row[at] = look.store, rows
    return homes, seen
