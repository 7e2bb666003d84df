"""A DeltaFile of a rowset, opened when its statistics do not already say that it is irrelevant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.changes.replay import Updates
from kudu_core._ext.row.delta_file import ChangeFile
from kudu_core.cfile.files.delta_codes import REDO_DELETE, UNDO_ALIVE, UNDO_DEAD
from kudu_core.cfile.files.delta_file import DeltaFile
from kudu_core.common.format.names import file_path
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.errors import Corruption
from kudu_core.rowset.disk.lazy_file import LazyFile
from kudu_core.rowset.rows.meta import DeltaRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kudu_core.cfile.pages.page_cache import PageCache
    from kudu_core.common.types.types import ColumnType
    from kudu_core.fs.api import FileSystem

_GENERAL = object()


class DeltaStore(LazyFile[DeltaFile]):
    """One REDO or UNDO file.  Immutable; opened on first use, by whoever comes first."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        ref: DeltaRef,
        cache: PageCache | None,
        types: Mapping[int, ColumnType],
    ) -> None:
        """``types``: by id, of columns that may lie in the file as others."""
        super().__init__()
        self._types = types
        self.ref = ref
        self._fs = fs
        self._path = file_path(directory, ref.file.name)
        self._cache = cache

    def _opened(self) -> DeltaFile:
        ref = self.ref
        file = DeltaFile(
            self._fs,
            self._path,
            self._cache,
            size=ref.file.size,
            footer_crc=ref.file.footer_crc,
            tail=ref.file.tail,
            types=self._types,
        )
        liveness = file.delete_count + file.reinsert_count
        if (file.entry_count, liveness, file.updates_per_column) != (
            ref.entries,
            ref.liveness,
            dict(ref.updates),
        ):
            file.close()
            raise Corruption(self._path, 0, "its entries are not those that its manifest counts")
        return file

    def points(self, *, undo: bool) -> ChangeFile:
        """The file for reads of one row; it is opened when one of them needs it."""
        ref = self.ref
        return ChangeFile(
            lambda: self.open().points, undo, ref.min_ts, ref.max_ts, tuple(ref.updates), ref.liveness > 0
        )

    def redo_at(self, snapshot: int) -> FileDeltas | None:
        """The part of a REDO file at or below the snapshot, None when there is none."""
        if self.ref.min_ts > snapshot:
            return None
        return FileDeltas(self, snapshot, undo=False, whole=self.ref.max_ts <= snapshot)

    def at_newest(self) -> FileDeltas:
        """All of a REDO file."""
        return FileDeltas(self, 2**64 - 1, undo=False, whole=True)

    def undo_at(self, snapshot: int) -> FileDeltas | None:
        """The part of an UNDO file above the snapshot, None when there is none."""
        if self.ref.max_ts <= snapshot:
            return None
        return FileDeltas(self, snapshot, undo=True, whole=self.ref.min_ts > snapshot)


class FileDeltas:
    """What one snapshot takes from one DeltaFile, as a ``DeltaView``."""

    def __init__(self, store: DeltaStore, snapshot: int, *, undo: bool, whole: bool) -> None:
        self.store = store
        self._file = store.opened
        """Held from the beginning where a scan has opened it: the table may be closed meanwhile."""
        self._snapshot = np.uint64(snapshot)
        self._undo = undo
        self._whole = whole

    @property
    def name(self) -> tuple[str, int | None]:
        """What it takes, by the file's name: equal for equal changes of one rowset."""
        return self.store.ref.file.name, None if self._whole else int(self._snapshot)

    def _open(self) -> DeltaFile:
        return self.store.open() if self._file is None else self._file

    def touches(self, column_id: int) -> bool:
        return column_id in self.store.ref.updates

    def changes_liveness(self) -> bool:
        return self.store.ref.liveness > 0

    def updates(self, column_id: int, lower: int, upper: int) -> tuple[np.ndarray, ColumnBuffers] | None:
        rowids, timestamps, values = self._open().updates(column_id, lower, upper)
        keep = self._relevant(timestamps)
        if keep is not None:
            picked = np.flatnonzero(keep)
            rowids, values = rowids[picked], values.take(picked)
        return (rowids, values) if len(rowids) else None

    def parts(self, column_id: int, lower: int, upper: int) -> list[Updates] | None:
        file = self._open()
        if not file.spec(column_id).type.width:
            return None
        if self._whole or not file.has_timestamps:
            return file.parts(column_id, lower, upper)
        found = self.updates(column_id, lower, upper)
        if found is None:
            return []
        rowids, new = found
        return [Updates(rowids, new.values, new.width, new.validity, ascending=True)]

    def liveness_parts(self, lower: int, upper: int) -> list[Updates]:
        file = self._open()
        if self._whole or not file.has_timestamps:
            return file.liveness_parts(lower, upper)
        found = self.liveness(lower, upper)
        return [] if found is None else [Updates(found[0], found[1], 1, ascending=True)]

    def liveness(self, lower: int, upper: int) -> tuple[np.ndarray, np.ndarray] | None:
        return self._liveness(*self._open().liveness(lower, upper))

    def _liveness(
        self, rowids: np.ndarray, timestamps: np.ndarray | None, ops: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | None:
        keep = self._relevant(timestamps)
        if keep is not None:
            rowids, ops = rowids[keep], ops[keep]
        if not len(rowids):
            return None
        if self._undo:
            assert np.isin(ops, (UNDO_DEAD, UNDO_ALIVE)).all()
            return rowids, (ops == UNDO_ALIVE).astype(np.uint8)
        return rowids, (ops != REDO_DELETE).astype(np.uint8)

    def updates_of(self, column_id: int, rows: np.ndarray) -> tuple[np.ndarray, ColumnBuffers] | None:
        found = self._newest(column_id, rows)
        if found is _GENERAL:
            return self.updates(column_id, int(rows.min()), int(rows.max()) + 1)
        if found is None or not len(found[0]):
            return None
        which, cells = found
        width = self._open().spec(column_id).type.width
        return rows[which].astype(np.uint32), ColumnBuffers(width, len(which), *cells)

    def liveness_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        found = self._newest(None, rows)
        if found is _GENERAL:
            return self.liveness(int(rows.min()), int(rows.max()) + 1)
        assert found is not None
        which, present = found
        return (rows[which].astype(np.uint32), present) if len(which) else None

    def _newest(self, column_id: int | None, rows: np.ndarray) -> Any:
        """What the file says last of single rows; ``_GENERAL``: it must be asked otherwise."""
        file = self._open()
        snapshot = None if self._whole or not file.has_timestamps else int(self._snapshot)
        try:
            return file.points.newest(column_id, np.ascontiguousarray(rows, np.int64), snapshot, self._undo)
        except (NeedsGeneralPath, PageError):
            return _GENERAL

    def _relevant(self, timestamps: np.ndarray | None) -> np.ndarray | None:
        """Which entries the snapshot takes; None: all of them."""
        if self._whole or timestamps is None:
            return None
        return timestamps > self._snapshot if self._undo else timestamps <= self._snapshot
