"""Rows in key order in a file, with their changes in files and in memory.

A ``DiskRowSet`` is a value: its base, the ordered list of its stores of changes and its manifest
entry.  Whatever changes that list makes a new one; who holds the old one reads on.  Only
``newest`` is shared by all of them and changes in place, under the tablet's mutex: which rows are
dead in the newest applied state, which writers ask and readers never do.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core._ext.row.changes import Store
from kudu_core._ext.row.view import RowsetPoints
from kudu_core.cfile.columns.statistics import FileStatistics, StatisticsRef, read_statistics
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.files.rows_file import RowsFile
from kudu_core.cfile.files.rows_format import INSERT_TIME_ID
from kudu_core.cfile.pages.container import FileMissing
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.locks import mutex
from kudu_core.common.schema.schema import StoredColumn
from kudu_core.common.types import values
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where.intervals import order_number
from kudu_core.errors import Corruption, InternalError
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.memory.changelog import Change, ChangeLog
from kudu_core.rowset.rows.delta_view import DELETE, DeltaView
from kudu_core.rowset.rows.meta import ColumnsRef, DeltaRef, FileRef, RowSetMeta
from kudu_core.rowset.rows.rows_at import RowsAt

if TYPE_CHECKING:
    from kudu_core._ext.row.codec import Cell
    from kudu_core._ext.row.file import PointFile
    from kudu_core.cfile.pages.page_cache import PageCache
    from kudu_core.fs.api import FileSystem


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Bounds of the base values of a column: order numbers (``common.where.intervals``) or bytes."""

    some: bool
    """Whether any cell is neither null nor NaN."""
    low: Any
    high: Any
    """None where nothing is known."""

    @staticmethod
    def of(type_: ColumnType, zone: Zone) -> ColumnBounds | None:
        bounds = zone.minimum, zone.maximum
        if type_.width and any(raw is not None and len(raw) != type_.width for raw in bounds):
            return None  # statistics that say nothing rule nothing out
        low, high = (
            raw if raw is None or not type_.width else order_number(type_, values.unpack(type_, raw))
            for raw in bounds
        )
        return ColumnBounds(not zone.empty, low, high)


class _Base:
    """The ``.rows`` file, and those of rewritten columns, opened on first use and shared by all versions
    of the rowset until a compaction rewrites columns."""

    def __init__(self, fs: FileSystem, directory: str, meta: RowSetMeta, cache: PageCache | None) -> None:
        self.fs = fs
        self.directory = directory
        self.cache = cache
        self._ref = meta.base
        self._rows = meta.rows
        self._replaced = meta.replaced
        self._file: RowsFile | None = None
        self._opening = mutex()
        self.borrowed = False
        """Whether the file is another's, which lets it go."""

        self._statistics = meta.statistics
        self._bounds: dict[int, ColumnBounds | None] = {}

    def bounds(self, column_id: int, type_: ColumnType) -> ColumnBounds | None:
        """What statistics say of a column, None where they say nothing.  Those that are not in the manifest
        are read when they are first asked for; of the file that may need, but never its footer."""
        if column_id not in self._bounds:
            try:
                zone = self.zone(column_id)
            except FileMissing:
                return None  # who opens the file for its rows meets that
            self._bounds[column_id] = None if zone is None else ColumnBounds.of(type_, zone)
        return self._bounds[column_id]

    def zone(self, column_id: int) -> Zone | None:
        """What statistics say of a column; see ``bounds``.  ``FileMissing`` where they are in no file."""
        ref, statistics = self._ref, self._statistics
        for columns in self._replaced:
            if column_id in columns.column_ids:
                ref, statistics = columns.file, columns.statistics
        if isinstance(statistics, StatisticsRef):
            file = self._file
            if file is not None and column_id in file.columns:
                return file.zone(column_id)
            if column_id not in statistics.column_ids:
                return None
            statistics = read_statistics(self.fs, f"{self.directory}/{ref.name}", statistics)
        return None if statistics is None else statistics.zone(column_id)

    def column_sizes(self) -> dict[int, tuple[int, int]]:
        """Stored bytes and nulls by column id, as statistics have them; those in files are read anew."""
        found: dict[int, tuple[int, int]] = {}
        sources: list[tuple[FileRef, FileStatistics | None, tuple[int, ...] | None]]
        sources = [(self._ref, self._statistics, None)]
        sources += [(columns.file, columns.statistics, columns.column_ids) for columns in self._replaced]
        for ref, statistics, column_ids in sources:
            if isinstance(statistics, StatisticsRef):
                statistics = read_statistics(self.fs, f"{self.directory}/{ref.name}", statistics)
            if statistics is None:
                continue
            for column_id in statistics.column_ids if column_ids is None else column_ids:
                zone = statistics.zone(column_id)
                if zone is not None:
                    found[column_id] = statistics.stored_bytes(column_id), zone.null_count
        return found

    @property
    def path(self) -> str:
        return f"{self.directory}/{self._ref.name}"

    def open(self) -> RowsFile:
        file = self._file
        if file is None:
            with self._opening:
                file = self._file
                if file is None:
                    file = self._open(self._ref)
                    try:
                        for columns in self._replaced:
                            file.replace_columns(self._open(columns.file), columns.column_ids)
                    except BaseException:
                        file.close()
                        raise
                    self._file = file
        return file

    def _open(self, ref: FileRef) -> RowsFile:
        path = f"{self.directory}/{ref.name}"
        file = RowsFile(self.fs, path, self.cache, size=ref.size, footer_crc=ref.footer_crc)
        if file.rows != self._rows:
            file.close()
            raise Corruption(path, 0, f"{file.rows} rows, its manifest says {self._rows}")
        return file

    def points(self) -> PointFile:
        return self.open().points

    def held(self) -> _Base:
        """The same, with a hold of its own on the file."""
        other = copy.copy(self)
        other._opening = mutex()
        other.borrowed = other._file is not None
        return other

    def uncached(self) -> _Base:
        """The same, read past the page cache; opened here, and open as long as this one."""
        other = self.held()
        other._file = self.open().uncached()
        other.borrowed = True
        return other

    def let_go(self, *, close: bool = False) -> None:
        """Hold the file no longer; it is closed when the last scan that reads it ends, or at once."""
        with self._opening:
            file, self._file = self._file, None
        if file is not None and not self.borrowed:
            file.let_go()
            if close:
                file.close()

    def __del__(self) -> None:
        # Of a rowset that a compaction replaced: else the cache would keep its file open.
        self.let_go()


class _Newest:
    """Which rows are dead in the newest applied state.  Guarded by the tablet's mutex."""

    __slots__ = ("dead", "loaded")

    def __init__(self) -> None:
        self.loaded = False
        self.dead: np.ndarray | None = None  # (rows,) bool; None while no row is dead

    def reserve(self, rows: int) -> None:
        """Make room, so that ``set`` allocates nothing."""
        if self.dead is None:
            self.dead = np.zeros(rows, bool)

    def set(self, rows: int, rowids: np.ndarray, dead: bool) -> None:
        if self.dead is None:
            if not dead:
                return
            self.reserve(rows)
        assert self.dead is not None
        self.dead[rowids] = dead


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class DiskRowSet:
    """One rowset on disk as its tablet's view holds it."""

    meta: RowSetMeta
    base: _Base
    redo: tuple[DeltaStore | ChangeLog, ...]
    """Oldest first; at most the last one is an active DeltaMemStore."""
    undo: tuple[DeltaStore, ...]
    """Newest first."""
    newest: _Newest
    _points: list[RowsetPoints] = dataclasses.field(init=False, default_factory=list, repr=False)
    """What ``points`` has made; never that of another version."""

    @staticmethod
    def make(fs: FileSystem, directory: str, meta: RowSetMeta, cache: PageCache | None) -> DiskRowSet:
        return DiskRowSet(
            meta,
            _Base(fs, directory, meta, cache),
            tuple(DeltaStore(fs, directory, ref, cache) for ref in meta.redo),
            tuple(DeltaStore(fs, directory, ref, cache) for ref in meta.undo),
            _Newest(),
        )

    @property
    def id(self) -> int:
        return self.meta.id

    @property
    def memory_stores(self) -> tuple[ChangeLog, ...]:
        return tuple(store for store in self.redo if isinstance(store, ChangeLog))

    @property
    def active(self) -> ChangeLog | None:
        """The DeltaMemStore that takes changes, if there is one."""
        last = self.redo[-1] if self.redo else None
        return last if isinstance(last, ChangeLog) and last.frozen_at is None else None

    def held(self) -> DiskRowSet:
        """The same, with files of its own hold: who has opened them reads on when the table is closed."""
        return dataclasses.replace(
            self,
            base=self.base.held(),
            redo=tuple(s.held() if isinstance(s, DeltaStore) else s for s in self.redo),
            undo=tuple(s.held() for s in self.undo),
        )

    def uncached(self, horizon: int) -> DiskRowSet:
        """The same for a compaction, read past the page cache: without UNDO files at or below ``horizon``.

        Opens all its files.  Not for point reads.
        """
        return dataclasses.replace(
            self,
            base=self.base.uncached(),
            redo=tuple(s.uncached() if isinstance(s, DeltaStore) else s for s in self.redo),
            undo=tuple(s.uncached() for s in self.undo if s.ref.max_ts > horizon),
        )

    def let_go(self, *, close: bool = False) -> None:
        """Hold no file any longer.  Scans that have begun read on, and close them by their end, unless
        ``close``: nobody can have begun one."""
        for points in self._points:
            points.let_go()
        self.base.let_go(close=close)
        for store in (*self.redo, *self.undo):
            if isinstance(store, DeltaStore):
                store.let_go(close=close)

    # ---- versions ----

    def with_active(self) -> DiskRowSet:
        """This rowset with a fresh DeltaMemStore at the end of its stores."""
        assert self.active is None
        return dataclasses.replace(self, redo=(*self.redo, ChangeLog()))

    def with_changes(self, log: ChangeLog) -> DiskRowSet:
        """This rowset, which has no store in memory and is in no view yet, with one that has changes."""
        assert not self.memory_stores
        self.load_newest()
        _, rowids, ops = log.changes(0, len(log))
        self.newest.set(self.meta.rows, rowids[ops == DELETE], True)
        return dataclasses.replace(self, redo=(*self.redo, log))

    def with_flushed(self, log: ChangeLog, ref: DeltaRef | None, durable: int) -> DiskRowSet:
        """A frozen DeltaMemStore replaced by its file (or by nothing when it was empty)."""
        at = next(i for i, store in enumerate(self.redo) if store is log)
        if any(isinstance(store, ChangeLog) for store in self.redo[:at]):
            raise InternalError("a store of changes was flushed before an older one")
        files: tuple[DeltaStore, ...] = ()
        if ref is not None:
            files = (DeltaStore(self.base.fs, self.base.directory, ref, self.base.cache),)
        return dataclasses.replace(
            self,
            meta=self._meta_with(files, durable),
            redo=(*self.redo[:at], *files, *self.redo[at + 1 :]),
        )

    def with_ingested(self, ref: DeltaRef, durable: int) -> DiskRowSet:
        """An ingest's delta file at the end; no change in memory may be older (protocol G3)."""
        assert not self.memory_stores
        file = DeltaStore(self.base.fs, self.base.directory, ref, self.base.cache)
        return dataclasses.replace(self, meta=self._meta_with((file,), durable), redo=(*self.redo, file))

    def with_compacted(
        self,
        inputs: Sequence[DeltaStore],
        redo: DeltaRef | None,
        undo: DeltaRef | None = None,
        columns: ColumnsRef | None = None,
    ) -> DiskRowSet:
        """The first REDO files replaced by what a compaction made of them (protocol M1).

        ``columns``: those it has written anew; they supersede older ones.
        """
        count = len(inputs)
        if any(mine is not given for mine, given in zip(self.redo, inputs, strict=False)):
            raise InternalError("a compaction of deltas that are not the first of their rowset")
        base, meta = self.base, self.meta
        if columns is not None:
            rewritten = set(columns.column_ids)
            kept = [
                dataclasses.replace(old, column_ids=left)
                for old in meta.replaced
                if (left := tuple(i for i in old.column_ids if i not in rewritten))
            ]
            meta = dataclasses.replace(meta, replaced=(*kept, columns))
            base = _Base(base.fs, base.directory, meta, base.cache)
        meta = dataclasses.replace(
            meta,
            redo=(*(() if redo is None else (redo,)), *meta.redo[count:]),
            undo=(*(() if undo is None else (undo,)), *meta.undo),
        )
        stores = [None if ref is None else self._store(ref) for ref in (redo, undo)]
        return dataclasses.replace(
            self,
            meta=meta,
            base=base,
            redo=(*(() if stores[0] is None else (stores[0],)), *self.redo[count:]),
            undo=(*(() if stores[1] is None else (stores[1],)), *self.undo),
        )

    def without_undo(self, horizon: int) -> DiskRowSet | None:
        """This rowset without the UNDO files whose records all lie at or below ``horizon``; None: it has
        none of them."""
        kept = tuple(store for store in self.undo if store.ref.max_ts > horizon)
        if len(kept) == len(self.undo):
            return None
        meta = dataclasses.replace(self.meta, undo=tuple(store.ref for store in kept))
        return dataclasses.replace(self, meta=meta, undo=kept)

    def _store(self, ref: DeltaRef) -> DeltaStore:
        return DeltaStore(self.base.fs, self.base.directory, ref, self.base.cache)

    def _meta_with(self, files: tuple[DeltaStore, ...], durable: int) -> RowSetMeta:
        refs = (*self.meta.redo, *(file.ref for file in files))
        return dataclasses.replace(self.meta, redo=refs, durable=max(durable, self.meta.durable))

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

    @property
    def dead_rows(self) -> int:
        self.load_newest()
        return 0 if self.newest.dead is None else int(self.newest.dead.sum())

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
        if any(change.op == DELETE for change in changes):
            self._reserve_deletion()

    def _reserve_deletion(self) -> None:
        self.load_newest()
        self.newest.reserve(self.meta.rows)

    def change(self, ts: int, change: Change) -> None:
        """Add changes to the active DeltaMemStore."""
        active = self._taking(ts)
        if change.op == DELETE:
            self.load_newest()
        active.append(ts, change)
        if change.op == DELETE:
            self.newest.set(self.meta.rows, change.rowids, True)

    def reserve_change_one(
        self, op: int, ids: tuple[int | None, ...], widths: Sequence[int], cells: list[Cell]
    ) -> None:
        """``reserve`` for ``change_one``; see ``ChangeLog.reserve_one``."""
        active = self.active
        assert active is not None
        active.reserve_one(ids, widths, cells)
        if op == DELETE:
            self._reserve_deletion()

    def change_one(
        self, ts: int, op: int, rowid: int, ids: tuple[int | None, ...], cells: list[Cell]
    ) -> None:
        """``change`` of one row; see ``ChangeLog.append_one``."""
        active = self._taking(ts)
        if op == DELETE:
            self.load_newest()
        active.append_one(ts, op, rowid, ids, cells)
        if op == DELETE:
            self.newest.set(self.meta.rows, np.array([rowid], np.int64), True)

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

    def open_for(self, snapshot: int, column_ids: Collection[int]) -> None:
        """Open every file that a scan of these columns at the snapshot may need (protocol R4); no other."""
        self.base.open()
        views = [(undo, undo.undo_at(snapshot)) for undo in self.undo]
        views += [(s, s.redo_at(snapshot)) for s in self.redo if isinstance(s, DeltaStore)]
        for store, view in views:
            if view is not None and (view.changes_liveness() or any(map(view.touches, column_ids))):
                store.open()

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
        self._snapshot = np.uint64(snapshot)

    @property
    def all_live(self) -> bool:
        """True only if every row is present at the snapshot."""
        return self._all_inserted and not any(view.changes_liveness() for view in self.views)

    def base(self, column_id: int, lower: int, upper: int) -> tuple[ColumnBuffers | None, bool]:
        if column_id not in self.file.column_ids:
            return None, True
        return self.file.read(column_id, lower, upper), True

    def has(self, column_id: int) -> bool:
        return column_id in self.file.column_ids

    def base_ranges(self, column_id: int, ranges: np.ndarray) -> ColumnBuffers | None:
        """Values before changes of several ranges of rows, (m, 2), one after the other."""
        if column_id not in self.file.column_ids:
            return None
        return self.file.read_ranges(column_id, ranges)

    def base_cells(self, column_id: int, rows: np.ndarray) -> ColumnBuffers | None:
        if column_id not in self.file.column_ids:
            return None
        return self.file.cells((column_id,), rows)[0]

    def cells_of(self, columns: Sequence[StoredColumn], rows: np.ndarray) -> dict[int, ColumnBuffers]:
        stored = [
            column.id
            for column in columns
            if column.id in self.file.column_ids and not self.touches(column.id)
        ]
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
        later = times > self._snapshot
        return later if later.any() else None

    def inserted_later_cells(self, rows: np.ndarray) -> np.ndarray | None:
        if self._all_inserted:
            return None
        times = self.file.insert_times_of(rows)
        return None if times is None else times > self._snapshot

    def find(self, keys: EncodedKeys, hashes: np.ndarray) -> np.ndarray:
        return self.rowset.locate(keys, hashes)
