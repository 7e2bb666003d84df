"""Rows in key order in a file, with their changes in files and in memory.

A ``DiskRowSet`` is a value: its base, the ordered list of its stores of changes and its manifest
entry.  Whatever changes that list makes a new one (``versions``); who holds the old one reads on.  Only
``newest`` is shared by all of them and changes in place, under the tablet's mutex: which rows are
dead in the newest applied state, which writers ask and readers never do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kudu_core._ext.row.overlay import Store
from kudu_core._ext.row.view import RowsetPoints
from kudu_core.cfile.files.delta_codes import REDO_DELETE
from kudu_core.cfile.files.rows_format import INSERT_TIME_ID
from kudu_core.common.format.names import file_path
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.schema import StoredColumn
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InternalError
from kudu_core.rowset.disk.base_file import ColumnBounds
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.disk.patches import GOOD_PART, Patches
from kudu_core.rowset.disk.versions import RowSetStores
from kudu_core.rowset.memory.changelog import Change, ChangeLog
from kudu_core.rowset.rows.delta_view import DeltaView
from kudu_core.rowset.rows.rows_at import RowsAt

if TYPE_CHECKING:
    from kudu_core._ext.batch.given_batch import GivenBatch
    from kudu_core._ext.row.shape import Cell


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class DiskRowSet(RowSetStores):
    """One rowset on disk as its tablet's view holds it."""

    def with_changes(self, log: ChangeLog) -> DiskRowSet:
        """This rowset, which has no store in memory and is in no view yet, with one that has changes."""
        assert not self.memory_stores
        self.load_newest()
        _, rowids, ops = log.changes(0, len(log))
        self.newest.set(self.meta.rows, rowids[ops == REDO_DELETE], True)
        return dataclasses.replace(self, redo=(*self.redo, log))

    # ---- the newest state, under the tablet's mutex ----

    def locate(self, keys: EncodedKeys, hashes: np.ndarray) -> np.ndarray:
        """Row of each key, live or dead, (n,) int64, -1 where there is none."""
        return self.base.open().locate(keys.data, keys.offsets, hashes)

    def is_live(self, rowids: np.ndarray) -> np.ndarray:
        """Whether the newest state of these rows is present, (n,) bool."""
        self.load_newest()
        if self.newest.dead is None:
            return np.ones(len(rowids), bool)
        live: np.ndarray = ~self.newest.dead[rowids]
        return live

    def lives(self, row: int) -> bool:
        """``is_live`` of one row."""
        self.load_newest()
        return self.newest.dead is None or not self.newest.dead[row]

    def load_newest(self) -> None:
        """Read which rows are dead, unless that is known."""
        if self.newest.loaded:
            return
        for store in self.redo:
            view: DeltaView | None
            view = store.redo_at(2**64 - 1) if isinstance(store, DeltaStore) else store.at(2**64 - 1)
            if view is not None and view.changes_liveness():
                changed = view.liveness(0, self.meta.rows)
                if changed is not None:
                    rowids, live = changed
                    self.newest.set(self.meta.rows, rowids[live == 0], True)
        self.newest.loaded = True

    def note_ingested(self, deleted: np.ndarray) -> None:
        """Rows that an ingested delta file deletes are dead from now on."""
        self.load_newest()
        self.newest.set(self.meta.rows, deleted, True)

    @property
    def allocated(self) -> int:
        """Bytes that the active DeltaMemStore, and which rows are dead, take with the room in them."""
        dead = 0 if self.newest.dead is None else self.newest.dead.nbytes
        return dead + (0 if self.active is None else self.active.allocated)

    def reserve(self, changes: Sequence[Change]) -> None:
        """Make room for changes in the active DeltaMemStore, so that adding them reads and allocates nothing
        and is not refused.  ``StoreFull``: it cannot take them."""
        active = self.active
        assert active is not None
        active.reserve(changes)
        if any(change.op == REDO_DELETE for change in changes):
            self._reserve_deletion()

    def _reserve_deletion(self) -> None:
        self.load_newest()
        self.newest.reserve(self.meta.rows)

    def change(self, ts: int, change: Change) -> None:
        """Add changes to the active DeltaMemStore."""
        active = self._taking(ts)
        if change.op == REDO_DELETE:
            self.load_newest()
        active.append(ts, change)
        if change.op == REDO_DELETE:
            self.newest.set(self.meta.rows, change.rowids, True)

    def reserve_change_one(
        self, op: int, ids: tuple[int | None, ...], widths: Sequence[int], cells: list[Cell]
    ) -> None:
        """``reserve`` for ``change_one``; see ``ChangeLog.reserve_one``."""
        active = self.active
        assert active is not None
        active.reserve_one(ids, widths, cells)
        if op == REDO_DELETE:
            self._reserve_deletion()

    def change_one(
        self, ts: int, op: int, rowid: int, ids: tuple[int | None, ...], cells: list[Cell]
    ) -> None:
        """``change`` of one row; see ``ChangeLog.append_one``."""
        active = self._taking(ts)
        if op == REDO_DELETE:
            self.load_newest()
        active.append_one(ts, op, rowid, ids, cells)
        if op == REDO_DELETE:
            self.newest.set(self.meta.rows, np.array([rowid], np.int64), True)

    def reserve_change_few(
        self, op: int, ids: tuple[int | None, ...], widths: Sequence[int], rows: list[list[Cell]]
    ) -> None:
        """``reserve`` for ``change_few``; see ``ChangeLog.reserve_few``."""
        active = self.active
        assert active is not None
        active.reserve_few(ids, widths, rows)
        if op == REDO_DELETE:
            self._reserve_deletion()

    def change_few(
        self, ts: int, op: int, rowids: list[int], ids: tuple[int | None, ...], rows: list[list[Cell]]
    ) -> None:
        """``change`` of a few rows; see ``ChangeLog.append_few``."""
        active = self._taking(ts)
        if op == REDO_DELETE:
            self.load_newest()
        active.append_few(ts, op, rowids, ids, rows)
        if op == REDO_DELETE:
            self.newest.set(self.meta.rows, np.array(rowids, np.int64), True)

    def reserve_change_batch(
        self,
        op: int,
        ids: tuple[int | None, ...],
        widths: Sequence[int],
        batch: GivenBatch,
        rows: np.ndarray | None,
    ) -> None:
        """``reserve`` for ``change_batch``; see ``ChangeLog.reserve_batch``."""
        active = self.active
        assert active is not None
        active.reserve_batch(ids, widths, batch, rows)
        if op == REDO_DELETE:
            self._reserve_deletion()

    def change_batch(
        self,
        ts: int,
        op: int,
        rowids: np.ndarray,
        ids: tuple[int | None, ...],
        batch: GivenBatch,
        rows: np.ndarray | None,
    ) -> None:
        """``change`` by rows of a batch; see ``ChangeLog.append_batch``."""
        active = self._taking(ts)
        if op == REDO_DELETE:
            self.load_newest()
        active.append_batch(ts, op, rowids, ids, batch, rows)
        if op == REDO_DELETE:
            self.newest.set(self.meta.rows, rowids, True)

    def _taking(self, ts: int) -> ChangeLog:
        """The active DeltaMemStore, which is there and may take changes at ``ts``."""
        if ts <= self.meta.durable:
            raise InternalError(
                f"a change of {ts}, and files hold all up to {self.meta.durable}: it would be stored twice"
            )
        active = self.active
        assert active is not None
        return active

    # ---- reading at a snapshot ----

    @property
    def points(self) -> RowsetPoints:
        """The rowset for reads of one key."""
        if not self._points:
            # Newest first: UNDO is applied first and newest first, REDO after it and oldest first.
            stores: list[Store] = [
                store.points(undo=False) if isinstance(store, DeltaStore) else store.points
                for store in reversed(self.redo)
            ]
            stores += [store.points(undo=True) for store in reversed(self.undo)]
            times = self.meta.insert_ts, self.meta.max_insert_ts
            self._points.append(RowsetPoints(self.base.points, stores, *times, INSERT_TIME_ID))
        return self._points[0]

    def at(self, snapshot: int) -> DiskRowsAt | None:
        """The rowset as a snapshot sees it; None when no row of it was inserted by then."""
        if self.meta.insert_ts is not None and self.meta.insert_ts > snapshot:
            return None
        return DiskRowsAt(self, snapshot, self._views(snapshot))

    def bounds(self, column_id: int, type_: ColumnType) -> ColumnBounds | None:
        """Bounds of a column before any change, by the manifest; None where it has none."""
        return self.base.bounds(column_id, type_)

    def may_touch(self, column_id: int, snapshot: int) -> bool:
        """False only if no change that the snapshot sees sets the column.  Opens nothing."""
        return any(view.touches(column_id) for view in self._views(snapshot))

    def may_change_liveness(self, snapshot: int) -> bool:
        """False only if no change that the snapshot sees removes or revives a row.  Opens nothing."""
        return any(view.changes_liveness() for view in self._views(snapshot))

    def _views(self, snapshot: int) -> tuple[DeltaView, ...]:
        views: list[DeltaView] = []
        for undo in self.undo:
            past = undo.undo_at(snapshot)
            if past is not None:
                views.append(past)
        for store in self.redo:
            later = store.redo_at(snapshot) if isinstance(store, DeltaStore) else store.at(snapshot)
            if later is not None:
                views.append(later)
        return tuple(views)

    def opened_at(self, snapshot: int, column_ids: Collection[int]) -> DiskRowsAt | None:
        """``at``, once every file is open that a scan of these columns may need."""
        if self.undo or self.redo:
            self.open_for(snapshot, column_ids)
            return self.at(snapshot)
        if self.meta.insert_ts is not None and self.meta.insert_ts > snapshot:
            return None
        return DiskRowsAt(self, snapshot, ())

    def open_for(self, snapshot: int, column_ids: Collection[int]) -> None:
        """Open every file that a scan of these columns at the snapshot may need (protocol R4); no other."""
        self.base.open()
        views = [(undo, undo.undo_at(snapshot)) for undo in self.undo]
        views += [(s, s.redo_at(snapshot)) for s in self.redo if isinstance(s, DeltaStore)]
        for store, view in views:
            if view is not None and (view.changes_liveness() or any(map(view.touches, column_ids))):
                store.open()

    def will_open(self, snapshot: int) -> None:
        """Files that a read at the snapshot may open are near when that comes, also those in a store."""
        fs, directory = self.base.fs, self.base.directory
        if self.base.opened is None:
            fs.will_open(self.base.path, self.meta.base.size, self.meta.base.tail)
        for store in (*self.undo, *self.redo):
            if isinstance(store, DeltaStore) and store.opened is None:
                ref = store.ref
                if (ref.max_ts > snapshot) if store in self.undo else (ref.min_ts <= snapshot):
                    fs.will_open(file_path(directory, ref.file.name), ref.file.size, ref.file.tail)

    def open_window(self, since: int, until: int) -> None:
        """Open every file that tells of a change in ``(since, until]``."""
        for store in (*self.undo, *self.redo):
            if isinstance(store, DeltaStore) and store.ref.min_ts <= until and store.ref.max_ts > since:
                store.open()


class DiskRowsAt(RowsAt):
    """A DiskRowSet at one snapshot."""

    in_key_order = True

    def __init__(self, rowset: DiskRowSet, snapshot: int, views: tuple[DeltaView, ...]) -> None:
        super().__init__(rowset.meta.rows, views)
        self.rowset = rowset
        self.file = rowset.base.open()
        self._all_inserted = rowset.meta.max_insert_ts <= snapshot
        self._snapshot = snapshot
        redo = tuple(store for store in rowset.redo if isinstance(store, DeltaStore))
        self.patches = Patches(self.file, self.rows, views, redo)

    def is_good_part(self, rows: int) -> bool:
        """Whether so many rows are enough to make something of all changes of the rowset."""
        return rows * GOOD_PART >= self.rows

    @property
    def all_live(self) -> bool:
        return self._all_inserted and (not self.views or super().all_live)

    def base(self, column_id: int, lower: int, upper: int) -> tuple[ColumnBuffers | None, bool]:
        if not self.file.has(column_id):
            return None, True
        return self.file.read(column_id, lower, upper), True

    def has(self, column_id: int) -> bool:
        return self.file.has(column_id)

    def stored_bytes(self, column_id: int) -> float:
        if not self.file.has(column_id):
            return 0.0
        return self.file.columns[column_id].stored_bytes / max(1, self.rows)

    def base_cells(self, column_id: int, rows: np.ndarray) -> ColumnBuffers | None:
        if not self.file.has(column_id):
            return None
        return self.file.cells((column_id,), rows)[0]

    def columns(self, columns: Sequence[StoredColumn], lower: int, upper: int) -> dict[int, ColumnBuffers]:
        stored = self._unchanged(columns) if upper > lower else []
        found = dict(zip(stored, self.file.read_columns(stored, lower, upper), strict=True)) if stored else {}
        for column in columns:
            if column.id not in found:
                found[column.id] = self.column(column, lower, upper)
        return found

    def columns_of(self, columns: Sequence[StoredColumn], rows: np.ndarray) -> dict[int, ColumnBuffers]:
        lower, upper = int(rows[0]), int(rows[-1]) + 1
        wanted = np.zeros(upper - lower, np.uint8)
        wanted[rows - lower] = 1
        stored = self._unchanged(columns)
        read = self.file.read_columns(stored, lower, upper, wanted) if stored else []
        found = dict(zip(stored, read, strict=True))
        others = [column for column in columns if column.id not in found]
        return found | (super().columns_of(others, rows) if others else {})

    def _unchanged(self, columns: Sequence[StoredColumn]) -> list[int]:
        """Ids of those that the file has, and no visible change touches."""
        return [column.id for column in columns if self.file.has(column.id) and not self.touches(column.id)]

    def cells_of(self, columns: Sequence[StoredColumn], rows: np.ndarray) -> dict[int, ColumnBuffers]:
        stored = self._unchanged(columns)
        found = dict(zip(stored, self.file.cells(stored, rows), strict=True)) if stored else {}
        for column in columns:
            if column.id not in found:
                found[column.id] = self.cells(column, rows)
        return found

    def inserted_later(self, lower: int, upper: int) -> np.ndarray | None:
        if self._all_inserted:
            return None
        times = self.file.insert_times(lower, upper)
        if times is None:
            return None
        later = times > np.uint64(self._snapshot)
        return later if later.any() else None

    def inserted_later_cells(self, rows: np.ndarray) -> np.ndarray | None:
        if self._all_inserted:
            return None
        times = self.file.insert_times_of(rows)
        return None if times is None else times > np.uint64(self._snapshot)

    def find(self, keys: EncodedKeys, hashes: np.ndarray) -> np.ndarray:
        return self.rowset.locate(keys, hashes)
