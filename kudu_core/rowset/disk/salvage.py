"""One rowset on disk as far as it can be read: page by page, and what is unreadable is told, not raised.

A cell is *known* where its newest value in these files is: the page that holds it is sound, or a later
update that is readable set it, and no update that is not readable may have come after.  Knows nothing of
other rowsets or of the log.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_UPDATE
from kudu_core.cfile.files.delta_file import DeltaFile
from kudu_core.cfile.files.rows_file import RowsFile
from kudu_core.cfile.pages.page import BLOCK_ROWS, PAGE_ROWS
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.values import raw_bytes
from kudu_core.common.types.widening import same_cells
from kudu_core.rowset.disk.damaged_files import UNREADABLE, Damage, DamagedFiles, Places, reason_of
from kudu_core.rowset.rows.delta_view import patch
from kudu_core.rowset.rows.meta import DeltaRef, RowSetMeta

if TYPE_CHECKING:
    from kudu_core.fs.api import FileSystem

DEFAULT_BYTES = 4 << 20
"""What defaults of rows that are older than their columns may come to, of rows that are read together."""
_LEAST_ROWS = 16


def rows_at_once(schema: Schema, present: Collection[int], most: int) -> int:
    """How many rows are looked at together, at most ``most``, a power of two: fewer where each of them takes
    long defaults, as its source has no more columns than those ``present``."""
    row_bytes = sum(
        len(raw_bytes(column.type, column.read_default))
        for column in schema.value_columns
        if not column.type.width and column.read_default is not None and column.id not in present
    )
    while most > _LEAST_ROWS and most * row_bytes > DEFAULT_BYTES:
        most //= 2
    return most


@dataclass(slots=True, eq=False)
class RowImages:
    """Rows in key order, as one store knows them at one time."""

    keys: EncodedKeys
    columns: dict[int, ColumnBuffers]
    """Of every value column."""
    known: dict[int, np.ndarray]
    """(n,) bool by column; a column that is not here is known in every row."""
    died: np.ndarray
    """(n,) uint64: when the row was deleted; 0: it lives."""
    doubtful: np.ndarray
    """(n,) bool: a deletion, or a change that nobody can read, may have come after."""

    def __len__(self) -> int:
        return len(self.died)

    @property
    def whole(self) -> np.ndarray:
        """(n,) bool: every cell is known, or the row is dead."""
        whole: np.ndarray = ~self.doubtful
        for mask in self.known.values():
            whole = whole & mask
        return whole | (self.died > 0)

    def take(self, rows: np.ndarray) -> RowImages:
        return RowImages(
            self.keys.take(rows),
            {i: column.take(rows) for i, column in self.columns.items()},
            {i: mask[rows] for i, mask in self.known.items()},
            self.died[rows],
            self.doubtful[rows],
        )


@dataclass(slots=True, eq=False)
class RowChanges:
    """Changes of some rows of a piece, all of one time."""

    op: int
    keys: EncodedKeys
    columns: dict[int, tuple[np.ndarray, ColumnBuffers]]
    """By id: which of the changes set the column (positions, ascending), and the values."""


@dataclass(slots=True, eq=False)
class PieceFacts:
    """What the files say of the rows of one piece."""

    newest: RowImages
    before: RowImages | None
    """Of rows that are not whole: as they were before the first change that cannot be read."""
    before_ts: int
    """When that was."""
    later: list[tuple[int, RowChanges]]
    """Of ingests that are not installed yet: (timestamp, changes)."""


@dataclass(slots=True, eq=False)
class SalvagedRowSet:
    """A rowset with those of its files that open.  ``close`` it."""

    meta: RowSetMeta
    schema: Schema
    base: RowsFile | None
    lost_columns: frozenset[int]
    """Columns that cannot be read in the file where their newest values are."""
    redo: list[tuple[DeltaRef, DeltaFile | None]]
    """Oldest first; None: the file does not open."""
    pending: list[tuple[DeltaRef, DeltaFile | None]]
    """Of ingests that are not installed yet, oldest first."""
    damage: list[Damage] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    """Paths of the files that are read."""
    piece_rows: int = PAGE_ROWS
    """A *piece* is what is read together: a page of keys, less where defaults would take too much room."""
    _told: set[tuple[str, int]] = field(default_factory=set)

    @staticmethod
    def open(
        fs: FileSystem,
        schema: Schema,
        meta: RowSetMeta,
        places: Places,
        pending: tuple[DeltaRef, ...] = (),
    ) -> SalvagedRowSet:
        """Open what opens.  UNDO files are left alone: they hold the past only."""
        files = DamagedFiles(fs, schema, meta, places)
        base = files.base()
        redo: list[tuple[DeltaRef, DeltaFile | None]] = []
        pend: list[tuple[DeltaRef, DeltaFile | None]] = []
        if base is not None:
            redo = [(ref, files.changes(ref)) for ref in meta.redo]
            pend = [(ref, files.changes(ref)) for ref in pending]
        lost = frozenset(files.lost)
        present = lost if base is None else lost.union(base.column_ids)
        piece_rows = rows_at_once(schema, present, PAGE_ROWS if base is None else base.key_page_rows)
        return SalvagedRowSet(meta, schema, base, lost, redo, pend, files.damage, files.used, piece_rows)

    def close(self) -> None:
        if self.base is not None:
            self.base.close()
        for _, file in (*self.redo, *self.pending):
            if file is not None:
                file.close()

    @property
    def pieces(self) -> int:
        return -(-self.meta.rows // self.piece_rows) if self.base is not None else 0

    def first_keys(self) -> list[bytes | None]:
        """The first key of each piece; None where it cannot be read."""
        if self.base is None:
            return []
        step = self.piece_rows // BLOCK_ROWS
        try:
            if step:
                keys = EncodedKeys(*self.base.key_index())
                return [keys[piece * step] for piece in range(self.pieces)]
        except UNREADABLE as error:
            self._tell(self.base.path, -1, error)
        found: list[bytes | None] = []
        for piece in range(self.pieces):
            keys_of = self._keys(piece)
            found.append(None if keys_of is None else keys_of[0])
        return found

    def facts(self, piece: int) -> PieceFacts | None:
        """What is known of the rows of a piece; None: nothing, as their keys are gone."""
        keys = self._keys(piece)
        if keys is None:
            return None
        lower = piece * self.piece_rows
        rows = len(keys)
        newest = RowImages(keys, {}, {}, np.zeros(rows, np.uint64), np.zeros(rows, bool))
        for column in self.schema.value_columns:
            values, found = self._values(column, lower, lower + rows)
            if not found.all():
                newest.known[column.id] = found
            newest.columns[column.id] = values
        before: RowImages | None = None
        before_ts = 0
        for ref, file in self.redo:
            read = None if file is None else self._entries(ref, file, lower, lower + rows)
            if before is None and (read is None or not read.complete):
                columns, known = dict(newest.columns), dict(newest.known)
                before = RowImages(keys, columns, known, newest.died.copy(), newest.doubtful.copy())
                before_ts = max(ref.min_ts - 1, 0)
            if read is None:
                self._forget(newest, ref)
            else:
                self._lay(newest, read)
        later: list[tuple[int, RowChanges]] = []
        for ref, file in self.pending:
            read = None if file is None else self._entries(ref, file, lower, lower + rows)
            if read is None:
                newest.doubtful[:] = True
            elif not read.complete:
                newest.doubtful[read.rows] = True
            else:
                later += _changes_of(ref, read, keys)
        if before is not None:
            # Columns written anew hold changes that came after those which are lost.
            part = np.flatnonzero(~newest.whole)
            before = before.take(part) if len(part) and not self.meta.replaced else None
        return PieceFacts(newest, before, before_ts, later)

    # ---- reading, one piece after the other ----

    def _tell(self, path: str, place: int, error: BaseException, rows: int = 0, changes: int = 0) -> None:
        """Damage is told once, however often it is met."""
        if (path, place) not in self._told:
            self._told.add((path, place))
            self.damage.append(Damage(path, reason_of(error), rows, changes))

    def _keys(self, piece: int) -> EncodedKeys | None:
        assert self.base is not None
        lower = piece * self.piece_rows
        upper = min(lower + self.piece_rows, self.meta.rows)
        try:
            keys = EncodedKeys(*self.base.keys(lower, upper))
        except UNREADABLE as error:
            self._tell(self.base.path, piece, error, rows=upper - lower)
            return None
        return keys

    def _values(self, column: StoredColumn, lower: int, upper: int) -> tuple[ColumnBuffers, np.ndarray]:
        """The cells of a column, and which of them could be read."""
        base = self.base
        assert base is not None
        rows = upper - lower
        known = np.ones(rows, bool)
        if not base.has(column.id) and column.id not in self.lost_columns:
            return ColumnBuffers.constant(column.type, column.read_default, rows), known
        stored = None if column.id in self.lost_columns else base.columns[column.id]
        if stored is None or not same_cells(stored.spec.type, column.type.stored):
            return ColumnBuffers.nulls(column.type, rows), ~known
        try:
            return stored.read(lower, upper), known
        except UNREADABLE:
            pass  # some page of it: which, and why, is found page by page
        parts = []
        for first, end in stored.by_page(lower, upper):
            try:
                parts.append(stored.read(first, end))
            except UNREADABLE as error:
                self._tell(stored.file.path, (column.id + 1) << 32 | first, error)
                parts.append(ColumnBuffers.nulls(column.type, end - first))
                known[first - lower : end - lower] = False
        return ColumnBuffers.concat(parts), known

    def _entries(self, ref: DeltaRef, file: DeltaFile, lower: int, upper: int) -> _Entries | None:
        """The entries of rows ``[lower, upper)``; None: which there are cannot be read."""
        try:
            rowids, timestamps, ops = file.entries(lower, upper)
        except UNREADABLE as error:
            self._tell(file.path, lower, error, changes=ref.entries)
            return None
        if timestamps is None:
            timestamps = np.full(len(rowids), ref.record_ts or ref.max_ts, np.uint64)
        found = _Entries(rowids.astype(np.int64) - lower, timestamps, ops, {})
        for column_id in file.column_ids:
            column = self.schema.by_id.get(column_id)
            if column is None or not same_cells(file.spec(column_id).type, column.type.stored):
                continue
            try:
                at, _, values = file.updates(column_id, lower, upper)
                found.columns[column_id] = (at.astype(np.int64) - lower, values)
            except UNREADABLE as error:
                self._tell(file.path, (column_id + 1) << 32 | lower, error, changes=len(rowids))
                found.columns[column_id] = None
        return found

    def _forget(self, images: RowImages, ref: DeltaRef) -> None:
        """Changes of which nobody knows what they did may have touched any row."""
        for column_id in ref.updates:
            if column_id in images.columns:
                images.known[column_id] = np.zeros(len(images), bool)
        if ref.liveness:
            images.doubtful[:] = True

    def _lay(self, images: RowImages, entries: _Entries) -> None:
        """Lay readable changes over the images."""
        rows, ops = entries.rows, entries.ops
        images.doubtful[rows[ops == REDO_UPDATE]] = False  # what is updated lives
        dead = ops == REDO_DELETE
        images.died[rows[dead]] = entries.timestamps[dead]
        images.doubtful[rows[dead]] = False
        for column_id, found in entries.columns.items():
            known = images.known.get(column_id)
            if found is None:
                known = np.ones(len(images), bool) if known is None else known.copy()
                known[rows] = False
                images.known[column_id] = known
                continue
            at, values = found
            if not len(at):
                continue
            if known is not None:
                known = known.copy()
                known[at] = True
                images.known[column_id] = known
            images.columns[column_id] = patch(
                images.columns[column_id], 0, at.astype(np.uint32), values, owned=False
            )


@dataclass(slots=True, eq=False)
class _Entries:
    rows: np.ndarray
    """(n,) int64, from the first row of the page."""
    timestamps: np.ndarray
    ops: np.ndarray
    columns: dict[int, tuple[np.ndarray, ColumnBuffers] | None]
    """By id: the rows and their values; None: the column cannot be read."""

    @property
    def complete(self) -> bool:
        return None not in self.columns.values()


def _changes_of(ref: DeltaRef, entries: _Entries, keys: EncodedKeys) -> list[tuple[int, RowChanges]]:
    """The changes of an ingest, all of one time, each row once."""
    out = []
    for op in (REDO_UPDATE, REDO_DELETE):
        mine = np.flatnonzero(entries.ops == op)
        if not len(mine):
            continue
        place = np.full(len(keys), -1, np.int64)
        place[entries.rows[mine]] = np.arange(len(mine))
        columns = {}
        for column_id, part in entries.columns.items():
            assert part is not None
            if op == REDO_UPDATE and len(part[0]):
                columns[column_id] = (place[part[0]], part[1])
        out.append((ref.record_ts or ref.max_ts, RowChanges(op, keys.take(entries.rows[mine]), columns)))
    return out


__all__ = [
    "UNREADABLE",
    "Damage",
    "PieceFacts",
    "Places",
    "RowChanges",
    "RowImages",
    "SalvagedRowSet",
    "rows_at_once",
]
