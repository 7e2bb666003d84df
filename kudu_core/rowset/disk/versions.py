"""The stores of a DiskRowSet, and the versions of it that flushes, ingests and compactions make.

What the stores say of rows, now or at a snapshot, is ``diskrowset``'s.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from kudu_core._ext.row.view import RowsetPoints
from kudu_core.errors import InternalError
from kudu_core.rowset.disk.base_file import Base
from kudu_core.rowset.disk.deltastore import DeltaStore
from kudu_core.rowset.disk.heat import Heat
from kudu_core.rowset.disk.newest import Newest
from kudu_core.rowset.memory.changelog import ChangeLog
from kudu_core.rowset.rows.meta import ColumnsRef, DeltaRef, RowSetMeta

if TYPE_CHECKING:
    import numpy as np

    from kudu_core.cfile.pages.page_cache import PageCache
    from kudu_core.common.types.types import ColumnType
    from kudu_core.fs.api import FileSystem


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class RowSetStores:
    """One version of a rowset on disk: a value, of which every change makes another one."""

    meta: RowSetMeta
    base: Base
    redo: tuple[DeltaStore | ChangeLog, ...]
    """Oldest first; at most the last one is an active DeltaMemStore."""
    undo: tuple[DeltaStore, ...]
    """Newest first."""
    newest: Newest
    heat: Heat
    """Shared by all versions."""
    _points: list[RowsetPoints] = dataclasses.field(init=False, default_factory=list, repr=False)
    """What ``points`` has made; never that of another version."""

    @classmethod
    def make(
        cls,
        fs: FileSystem,
        directory: str,
        meta: RowSetMeta,
        cache: PageCache | None,
        types: Mapping[int, ColumnType],
    ) -> Self:
        """``types``: by id, of columns that may lie in its files as others."""
        return cls(
            meta,
            Base(fs, directory, meta, cache, types),
            tuple(DeltaStore(fs, directory, ref, cache, types) for ref in meta.redo),
            tuple(DeltaStore(fs, directory, ref, cache, types) for ref in meta.undo),
            Newest(),
            Heat(),
        )

    def typed(self, types: Mapping[int, ColumnType]) -> Self:
        """The same files, opened anew and read as these types, without what memory holds of changes."""
        base = self.base
        made = type(self).make(base.fs, base.directory, self.meta, base.cache, types)
        return dataclasses.replace(made, newest=self.newest, heat=self.heat)

    def outlive(self, other: Self) -> None:
        """``other``, which has the same files, lives as long as this one, as far as its files go."""
        self.base.outlive(other.base)
        files = {store.ref.file.name: store for store in other.files_of_changes}
        for store in self.files_of_changes:
            store.outlive(files[store.ref.file.name])

    @property
    def id(self) -> int:
        return self.meta.id

    @property
    def memory_stores(self) -> tuple[ChangeLog, ...]:
        return tuple(store for store in self.redo if isinstance(store, ChangeLog))

    @property
    def files_of_changes(self) -> tuple[DeltaStore, ...]:
        return tuple(store for store in (*self.redo, *self.undo) if isinstance(store, DeltaStore))

    @property
    def active(self) -> ChangeLog | None:
        """The DeltaMemStore that takes changes, if there is one."""
        last = self.redo[-1] if self.redo else None
        return last if isinstance(last, ChangeLog) and last.frozen_at is None else None

    def held(self) -> Self:
        """The same, with files of its own hold: who has opened them reads on when the table is closed."""
        return dataclasses.replace(
            self,
            base=self.base.held(),
            redo=tuple(s.held() if isinstance(s, DeltaStore) else s for s in self.redo),
            undo=tuple(s.held() for s in self.undo),
        )

    def uncached(self, horizon: int) -> Self:
        """The same for a compaction, read past the page cache: without UNDO files at or below ``horizon``.

        Opens all its files.  Not for point reads.
        """
        return dataclasses.replace(
            self,
            base=self.base.uncached(),
            redo=tuple(s.uncached() if isinstance(s, DeltaStore) else s for s in self.redo),
            undo=tuple(s.uncached() for s in self.undo if s.ref.max_ts > horizon),
        )

    def of_rows(self, rows: np.ndarray, since: int, until: int, column_ids: Collection[int]) -> Self:
        """The same for reads of a few rows, (n,) int64 that ascend strictly, at times from ``since`` to
        ``until``: without files of changes that have nothing of them, or only columns and times of which
        nobody asks.

        Opens those that it keeps, and those in which it finds none of the rows.
        """

        def tells(store: DeltaStore, *, undo: bool) -> bool:
            ref = store.ref
            if (ref.max_ts <= since) if undo else (ref.min_ts > until):
                return False
            inside = ref.min_ts <= until and ref.max_ts > since
            if not inside and not ref.liveness and not any(i in ref.updates for i in column_ids):
                return False
            return store.open().touches(rows)

        return dataclasses.replace(
            self,
            redo=tuple(s for s in self.redo if not isinstance(s, DeltaStore) or tells(s, undo=False)),
            undo=tuple(s for s in self.undo if tells(s, undo=True)),
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

    def with_active(self) -> Self:
        """This rowset with a fresh DeltaMemStore at the end of its stores."""
        assert self.active is None
        return dataclasses.replace(self, redo=(*self.redo, ChangeLog()))

    def with_flushed(self, log: ChangeLog, ref: DeltaRef | None, durable: int) -> Self:
        """A frozen DeltaMemStore replaced by its file (or by nothing when it was empty)."""
        at = next(i for i, store in enumerate(self.redo) if store is log)
        if any(isinstance(store, ChangeLog) for store in self.redo[:at]):
            raise InternalError("a store of changes was flushed before an older one")
        files: tuple[DeltaStore, ...] = ()
        if ref is not None:
            files = (self._store(ref),)
        return dataclasses.replace(
            self,
            meta=self._meta_with(files, durable),
            redo=(*self.redo[:at], *files, *self.redo[at + 1 :]),
        )

    def with_ingested(self, ref: DeltaRef, durable: int) -> Self:
        """An ingest's delta file at the end; no change in memory may be older (protocol G3)."""
        assert not self.memory_stores
        file = self._store(ref)
        return dataclasses.replace(self, meta=self._meta_with((file,), durable), redo=(*self.redo, file))

    def with_compacted(
        self,
        inputs: Sequence[DeltaStore],
        redo: DeltaRef | None,
        undo: DeltaRef | None = None,
        columns: ColumnsRef | None = None,
    ) -> Self:
        """The first REDO files replaced by what a compaction made of them (protocol M1).

        ``columns``: those it has written anew; they supersede older ones.
        """
        count = len(inputs)
        if not all(map(_is_same_file, self.redo, inputs)):
            raise InternalError("a compaction of deltas that are not the first of their rowset")
        base, meta = self.base, self.meta
        if columns is not None:
            rewritten = set(columns.column_ids)
            self.heat.forget(rewritten)
            kept = [
                dataclasses.replace(old, column_ids=left)
                for old in meta.replaced
                if (left := tuple(i for i in old.column_ids if i not in rewritten))
            ]
            meta = dataclasses.replace(meta, replaced=(*kept, columns))
            base = Base(base.fs, base.directory, meta, base.cache, base.types)
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

    def without_undo(self, horizon: int) -> Self | None:
        """This rowset without the UNDO files whose records all lie at or below ``horizon``; None: it has
        none of them."""
        kept = tuple(store for store in self.undo if store.ref.max_ts > horizon)
        if len(kept) == len(self.undo):
            return None
        meta = dataclasses.replace(self.meta, undo=tuple(store.ref for store in kept))
        return dataclasses.replace(self, meta=meta, undo=kept)

    def _store(self, ref: DeltaRef) -> DeltaStore:
        return DeltaStore(self.base.fs, self.base.directory, ref, self.base.cache, self.base.types)

    def _meta_with(self, files: tuple[DeltaStore, ...], durable: int) -> RowSetMeta:
        refs = (*self.meta.redo, *(file.ref for file in files))
        return dataclasses.replace(self.meta, redo=refs, durable=max(durable, self.meta.durable))


def _is_same_file(mine: DeltaStore | ChangeLog, given: DeltaStore) -> bool:
    """Whether it is that store, or the same file, which is read as other types since."""
    if mine is given or not (isinstance(mine, DeltaStore) and isinstance(given, DeltaStore)):
        return mine is given
    return mine.ref.file.name == given.ref.file.name
