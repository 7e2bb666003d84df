"""Reading ``.delta`` files: changes of rows of one DiskRowSet, by rowid and time.

    header | rowid, timestamp, op columns | per changed column: entry, value columns | footer | trailer

An *entry* is one change of one row.  REDO entries lead forward in time and are sorted by (rowid,
timestamp ascending); UNDO entries lead backward, by (rowid, timestamp descending).  An entry names
new (REDO) or old (UNDO) values of any subset of columns: each changed column stores the ordinals of
its entries and the values.  Page indexes of the rowid and entry columns lead from rows to pages, so
a few rows cost a few pages.
Layout: docs/format.md, "Delta files".
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Self

import numpy as np
import numpy.typing as npt

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.changes.replay import Updates
from kudu_core.cfile.columns.column_list import column_list
from kudu_core.cfile.columns.column_readers import ColumnReaders
from kudu_core.cfile.columns.pages import need
from kudu_core.cfile.columns.reader import ColumnReader, uncached
from kudu_core.cfile.columns.specs import MAX_ROWS, ColumnSpec
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.files.ascending import limits, some, span
from kudu_core.cfile.files.delta_codes import REDO_DELETE, REDO_UPDATE, UNDO_ALIVE
from kudu_core.cfile.files.delta_format import OP_ID, REDO, ROWID_ID, TIMESTAMP_ID, UNDO, DeltaMeta, in_order
from kudu_core.cfile.files.delta_pieces import DeltaPieces
from kudu_core.cfile.files.open_file import OpenFile
from kudu_core.cfile.pages.container import CONTAINER_DELTA, Extent
from kudu_core.cfile.readers.point_reader import open_delta_points
from kudu_core.common.rows.rowblock import ColumnBuffers

if TYPE_CHECKING:
    from kudu_core._ext.row.delta_file import DeltaPoints

    I64 = npt.NDArray[np.int64]
    U8 = npt.NDArray[np.uint8]
    U32 = npt.NDArray[np.uint32]
    U64 = npt.NDArray[np.uint64]


_DENSE_FACTOR = 8
"""Where one value in so many is wanted, or more, those between are read too."""
_FEW_BITS = 4
"""But not from pages of so few rows: their cells are large."""
KEPT_PAGES = 16
"""Of so many pages at most rowids are decoded as a whole to look for a row."""
_OWN_WIDTHS = {ROWID_ID: 4, OP_ID: 1, TIMESTAMP_ID: 8}


def _refuse(column: ColumnReader, why: str) -> NoReturn:
    column.file.damaged(column.file.footer_extent.offset, f"footer: column {column.spec.id} {why}")


def _check_own(entries: int, column: ColumnReader) -> None:
    width = column.spec.type.width
    if width != _OWN_WIDTHS.get(column.spec.id, width) or column.rows != entries:
        _refuse(column, f"is not one of {entries} entries")


def _check_values(column: ColumnReader) -> None:
    if not column.rows:
        _refuse(column, "has no values")


def _check_positions(values: ColumnReaders, column: ColumnReader) -> None:
    if column.width != 4 or column.rows != values[column.spec.id].rows:
        _refuse(column, "has other entries than values")


def _of_places(values: ColumnReader, places: I64) -> ColumnBuffers:
    """Values by their places, which ascend strictly."""
    if not len(places):
        return values.read(0, 0)
    lower, upper = int(places[0]), int(places[-1]) + 1
    if len(places) == upper - lower:
        return values.read(lower, upper)
    if len(places) * _DENSE_FACTOR < upper - lower or (not values.width and values.page_bits < _FEW_BITS):
        return values.cells(places)
    return values.read(lower, upper).take(places - lower)


class DeltaFile(OpenFile):
    """An open ``.delta`` file.  Thread safe; works on after the file is unlinked, until ``close``.

    All ranges are of rowids, half-open.  Raises ``NotSupported`` or ``Corruption`` at open or later,
    where the bytes are first read.
    """

    KIND = CONTAINER_DELTA

    def _open(self) -> None:
        file, footer = self.file, self.file.footer
        at = file.footer_extent.offset
        self.kind: str = footer.get("kind", "")
        if self.kind not in (REDO, UNDO):
            file.damaged(at, f"footer: a delta file of kind {self.kind!r}")
        self.entry_count = need(file, footer.get("entries"), "entries", 1, MAX_ROWS)
        self.delete_count = need(file, footer.get("delete_count"), "deletes", 0, self.entry_count)
        self.reinsert_count = need(file, footer.get("reinsert_count"), "reinserts", 0, self.entry_count)
        own = self._open_columns(at)
        self._rowids, self._ops, self._ts = own[ROWID_ID], own[OP_ID], own.get(TIMESTAMP_ID)
        self._points: DeltaPoints | None = None
        self._ordinals = {id_: number for number, id_ in enumerate(self._positions)}
        self._pieces = DeltaPieces(file, self._rowids, self._ops)
        self.min_rowid, self.max_rowid = limits(self._rowids)
        self.min_ts = self.max_ts = None
        if self._ts is not None:
            self.min_ts, self.max_ts = limits(self._ts)

    def _open_columns(self, at: int) -> dict[int, ColumnReader]:
        """Those of the file itself; the changed ones are made when they are asked for."""
        file, columns = self.file, column_list(self.file)
        numbers: tuple[dict[int, int], ...] = {}, {}, {}
        own, positions, values = numbers
        for number, (id_, counts) in enumerate(zip(columns.ids, columns.counts_entries, strict=True)):
            (own if id_ < 0 else positions if counts else values)[id_] = number
        if sum(map(len, numbers)) != len(columns):
            file.damaged(at, "footer: a column is double")
        if positions.keys() != values.keys():
            file.damaged(at, "footer: updates without entries, or entries without updates")
        rows = columns.rows
        self._updates = {id_: rows[number] for id_, number in values.items()}
        readers = ColumnReaders.of_list(file, columns, own, partial(_check_own, self.entry_count))
        for id_ in (ROWID_ID, OP_ID):
            if id_ not in own:
                file.damaged(at, f"footer: column {id_} is missing")
        self._values = ColumnReaders.of_list(file, columns, values, _check_values, self._types)
        self._positions = ColumnReaders.of_list(
            file, columns, positions, partial(_check_positions, self._values)
        )
        return {id_: readers[id_] for id_ in own}

    @property
    def meta(self) -> DeltaMeta:
        """What ``write_delta_file`` returned."""
        return DeltaMeta(
            self.kind,
            self.entry_count,
            self.file.size,
            self.file.footer_crc,
            self.file.tail,
            self.min_ts,
            self.max_ts,
            self.min_rowid,
            self.max_rowid,
            self.delete_count,
            self.reinsert_count,
            self.updates_per_column,
            {
                id_: {"bytes": column.stored_bytes, **column.zone.to_json()}
                for id_, column in self._values.items()
            },
        )

    @property
    def has_timestamps(self) -> bool:
        """False: every entry has the timestamp of the record that names the file."""
        return self._ts is not None

    @property
    def column_ids(self) -> tuple[int, ...]:
        """The changed columns."""
        return tuple(self._values)

    @property
    def updates_per_column(self) -> dict[int, int]:
        return dict(self._updates)

    def spec(self, column_id: int) -> ColumnSpec:
        return self._values[column_id].spec

    def zone(self, column_id: int) -> Zone:
        """Bounds of all values that the file gives a column."""
        return self._values[column_id].zone

    def uncached(self) -> Self:
        """The same entries, read past the page cache; open as long as this one.  Not for ``points``."""
        other = copy.copy(self)
        other.file = uncached(self.file)
        other._rowids, other._ops = self._rowids.uncached(), self._ops.uncached()
        other._pieces = DeltaPieces(other.file, other._rowids, other._ops)
        other._ts = None if self._ts is None else self._ts.uncached()
        other._positions, other._values = self._positions.uncached(), self._values.uncached()
        return other

    @property
    def points(self) -> DeltaPoints:
        """The same for reads of one row; where it raises ``NeedsGeneralPath``, the methods here answer."""
        points = self._points
        if points is None:
            points = self._points = open_delta_points(
                self.file,
                self._rowids,
                self._ops,
                self._ts,
                {id_: (entries, self._values[id_]) for id_, entries in self._positions.items()},
            )
        return points

    def let_go(self) -> None:
        """See ``FileReader.let_go``.  Reads of single rows go the general way from now on."""
        self.file.let_go()
        if self._points is not None:
            self._points.close()

    def close(self) -> None:
        """Idempotent; reads after it raise ``Closed``."""
        self.file.close()
        if self._points is not None:
            self._points.close()

    # ------------------------------------------------------------------ reading

    def span(self, row_lower: int, row_upper: int) -> tuple[int, int, U32]:
        """Entries [lower, upper) of the rows, and their rowids."""
        if row_lower > self.max_rowid or row_upper <= self.min_rowid or row_lower >= row_upper:
            return 0, 0, np.empty(0, np.uint32)
        return span(self._rowids, row_lower, row_upper)

    def entries(self, row_lower: int = 0, row_upper: int = 1 << 32) -> tuple[U32, U64 | None, U8]:
        """``(rowids, timestamps or None, ops)`` of the rows' entries, in file order."""
        lower, upper, rowids = self.span(row_lower, row_upper)
        ts = None if self._ts is None else self._ts.read(lower, upper).values.view("<u8")
        return rowids, ts, self._ops.read(lower, upper).values

    def entries_of(self, rows: I64) -> tuple[I64, U32, U64 | None, U8]:
        """``(ordinals, rowids, timestamps or None, ops)`` of the entries of single rows, which ascend
        strictly, in file order."""
        ordinals, rowids = some(self._rowids, rows)
        ts = None if self._ts is None else _of_places(self._ts, ordinals).values.view("<u8")
        return ordinals, rowids, ts, _of_places(self._ops, ordinals).values

    def touches(self, rows: I64) -> bool:
        """Whether it has an entry of one of some rows, which ascend strictly.

        Rowids of a small file are decoded as a whole, and kept, as for reads of one row; of a large one, or
        one in a store, the pages that may have these rows are read.
        """
        if not len(rows) or rows[-1] < self.min_rowid or rows[0] > self.max_rowid:
            return False
        if self._rowids.page_count <= KEPT_PAGES and self.file.ask is None:
            with suppress(NeedsGeneralPath, PageError):
                return bool(self.points.touched(rows).any())
        return bool(len(some(self._rowids, rows)[0]))

    def updates(
        self, column_id: int, row_lower: int = 0, row_upper: int = 1 << 32
    ) -> tuple[U32, U64 | None, ColumnBuffers]:
        """``(rowids, timestamps or None, values)`` of a column's changes, in file order.

        Nothing for a column that the file does not change is an error of the caller (KeyError).
        """
        rowids, ts, _, values = self.updates_with_entries(column_id, row_lower, row_upper)
        return rowids, ts, values

    def updates_with_entries(
        self, column_id: int, row_lower: int = 0, row_upper: int = 1 << 32
    ) -> tuple[U32, U64 | None, U32, ColumnBuffers]:
        """Like ``updates``, with the ordinal of each change's entry in the file before the values."""
        positions, values = self._positions[column_id], self._values[column_id]
        lower, upper, rowids = self.span(row_lower, row_upper)
        if lower == upper:
            none = np.empty(0, np.uint32)
            return none, None if self._ts is None else np.empty(0, np.uint64), none, values.read(0, 0)
        first, last, found = span(positions, lower, upper)
        picked = found - np.uint32(lower)
        ts = None
        if self._ts is not None:
            ts = self._ts.read(lower, upper).values.view("<u8")[picked]
        return rowids[picked], ts, found, values.read(first, last)

    def values(self, column_id: int) -> ColumnBuffers:
        """All values that the file gives a column, in the order of its entries.

        KeyError for a column that the file does not change.
        """
        values = self._values[column_id]
        return values.read(0, values.rows)

    def updates_of_entries(self, column_id: int, entries: I64) -> tuple[I64, ColumnBuffers]:
        """Which of some entries, ordinals that ascend strictly, have a value in a column, and the values.

        KeyError for a column that the file does not change.
        """
        column = self._positions[column_id]
        lower = upper = 0
        found = np.empty(0, np.uint32)
        if len(entries) < column.page_count:
            places, found = some(column, entries)
            return np.searchsorted(entries, found), _of_places(self._values[column_id], places)
        if len(entries):
            lower, upper, found = span(column, int(entries[0]), int(entries[-1]) + 1)
        at = np.searchsorted(found, entries)
        known = at < upper - lower
        known[known] = found[at[known]] == entries[known]
        return np.flatnonzero(known), _of_places(self._values[column_id], lower + at[known])

    def changes(
        self, row_lower: int = 0, row_upper: int = 1 << 32, wanted: Collection[int] | None = None
    ) -> tuple[U32, U64 | None, U8, dict[int, tuple[U32, ColumnBuffers]]]:
        """The rows' entries, and by column (of ``wanted``, None: all) which of them have a value, and it."""
        lower, upper, rowids = self.span(row_lower, row_upper)
        ts = None if self._ts is None else self._ts.read(lower, upper).values.view("<u8")
        columns: dict[int, tuple[U32, ColumnBuffers]] = {}
        for id_, positions in self._positions.items():
            if lower < upper and (wanted is None or id_ in wanted):
                first, last, found = span(positions, lower, upper)
                if first < last:
                    columns[id_] = (found - np.uint32(lower), self._values[id_].read(first, last))
        return rowids, ts, self._ops.read(lower, upper).values, columns

    # ------------------------------------------------------------------ what scans lay over

    def parts(self, column_id: int, row_lower: int, row_upper: int) -> list[Updates]:
        """The changes of a column of fixed width, as pieces of a page each, those that rows
        [row_lower, row_upper) may be in.  Decoded once and kept in the page cache.
        """
        positions, values = self._positions[column_id], self._values[column_id]
        return self._pieces.updates(self._ordinals[column_id], positions, values, row_lower, row_upper)

    def liveness_parts(self, row_lower: int, row_upper: int) -> list[Updates]:
        """The same of the entries that are no updates: a byte each, 1 for rows that are present."""
        if not self.delete_count and not self.reinsert_count:
            return []
        return self._pieces.liveness(row_lower, row_upper)

    def liveness(self, row_lower: int = 0, row_upper: int = 1 << 32) -> tuple[U32, U64 | None, U8]:
        """The entries that are no updates: ``(rowids, timestamps or None, ops)``."""
        if not self.delete_count and not self.reinsert_count:
            empty = np.empty(0, np.uint32)
            return empty, None if self._ts is None else np.empty(0, np.uint64), np.empty(0, np.uint8)
        rowids, ts, ops = self.entries(row_lower, row_upper)
        keep = ops != REDO_UPDATE
        return rowids[keep], None if ts is None else ts[keep], ops[keep]

    # ------------------------------------------------------------------ verification

    def verify(self) -> None:
        """Read and check every byte, past the cache; raises ``Corruption`` at the first damage."""
        file = self.file
        columns = [self._rowids, self._ops, *self._positions.values(), *self._values.values()]
        if self._ts is not None:
            columns.append(self._ts)
        extents: list[Extent] = []
        for column in columns:
            extents += column.extents()
            column.verify()
        file.verify_layout(extents)
        rowids, ts, ops = self.entries()
        at = self._rowids.extent.offset
        if len(rowids) != self.entry_count or not in_order(self.kind, rowids, ts):
            file.damaged(at, "entries are not sorted by rowid and time")
        counts = np.bincount(ops, minlength=4)
        wanted = self.delete_count, self.reinsert_count
        if (int(counts[REDO_DELETE]), int(counts[UNDO_ALIVE])) != wanted or counts[0] or len(counts) > 4:
            file.damaged(self._ops.extent.offset, "other operations than the footer counts")
        for column in self._positions.values():
            positions = column.read(0, column.rows).values.view("<u4")
            if positions[-1] >= self.entry_count or bool((positions[1:] <= positions[:-1]).any()):
                file.damaged(column.extent.offset, "the entries of a column do not ascend")
