"""What a scan reads of one rowset on disk.

The conditions of the predicate are tested on stored values, page by page and mini-block by mini-block;
what they leave decides what is read of the other columns.  Columns that a visible change touches take
the general way: their values are patched first (protocol N15), whole or cell by cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.scan.read import TooLarge, read
from kudu_core._ext.scan.selection import Selection
from kudu_core.cfile.columns.zone_table import SOME_ROWS
from kudu_core.cfile.pages.page import PAGE_BITS
from kudu_core.cfile.readers.scan_reader import as_column
from kudu_core.common.rows.allocation import allocate
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.types import TYPE_BOOL
from kudu_core.common.where.predicates import Filter
from kudu_core.errors import ColumnTooLarge
from kudu_core.rowset.rows.delta_view import lay_over

if TYPE_CHECKING:
    from kudu_core._ext.changes.patch import Patch
    from kudu_core._ext.scan.cell_set import CellSet
    from kudu_core.rowset.disk.diskrowset import DiskRowsAt
    from kudu_core.rowset.rows.delta_view import DeltaView

CELLS_FACTOR = 64
"""Single cells are read instead of pages when at most one row in so many was selected."""

MOST_BYTES = 16 << 20
"""Strings of one column in one batch, if it has more than one row."""

_FORM_CELLS, _FORM_BITS, _FORM_CODES = range(3)
_MANY_RANGES = 16
_GAP_ROWS = 256
"""So many rows are passed over in less time than a range takes in each column: with 100 columns, a scan of
10,000 keys among 60,000 took four times as long range by range."""


class Chosen:
    """Rows of one unit of work that pass, and how to read their columns.  One thread at a time."""

    def __init__(self, scan: FileScan, selection: Selection, ranges: np.ndarray) -> None:
        self.rows = selection.chosen
        self._scan = scan
        self._selection = selection
        self._ranges = ranges
        self._rowids: np.ndarray | None = None

    def columns(self, columns: Iterable[StoredColumn]) -> dict[int, ColumnBuffers]:
        """The columns as buffers, by id.  ``TooLarge``: choose fewer rows."""
        wanted = {column.id: column for column in columns}
        found = self._read(list(wanted.values()), lambda _: _FORM_CELLS, allocate)
        result: dict[int, ColumnBuffers] = {}
        for id_, column in wanted.items():
            made = found.get(id_)
            if made is None:
                result[id_] = self._general(column)
                continue
            result[id_] = as_column(column.type.width, self.rows, *made[:3])
        return result

    def batch(
        self, columns: tuple[StoredColumn, ...], schema: pa.Schema, dictionary: frozenset[int]
    ) -> pa.RecordBatch:
        """The columns as an Arrow batch.  ``TooLarge``: choose fewer rows."""
        forms = {column.id: self._form(column, dictionary) for column in columns}
        found = self._read(list(columns), lambda column: forms[column.id], pa.allocate_buffer)
        arrays = []
        for column, field in zip(columns, schema, strict=True):
            made = found.get(column.id)
            if made is None:
                array = self._general(column).to_arrow(column.type)
                arrays.append(array.dictionary_encode() if column.id in dictionary else array)
                continue
            values, offsets, validity, nulls = made
            if forms[column.id] == _FORM_CODES:
                words = self._scan.words(column)
                buffers = [validity, values]
                array = pa.DictionaryArray.from_buffers(field.type, self.rows, buffers, words, nulls)
            else:
                buffers = [validity, values] if offsets is None else [validity, offsets, values]
                array = pa.Array.from_buffers(column.type.arrow, self.rows, buffers, nulls)
                if column.id in dictionary:
                    array = array.dictionary_encode()
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _form(self, column: StoredColumn, dictionary: frozenset[int]) -> int:
        if column.type.kind == TYPE_BOOL:
            return _FORM_BITS
        coded = column.id in dictionary and self._scan.has_words(column.id)
        return _FORM_CODES if coded else _FORM_CELLS

    def _read(
        self, columns: list[StoredColumn], form: Callable[[StoredColumn], int], room: Callable[[int], Any]
    ) -> dict[int, tuple[Any, Any, Any, int]]:
        """What the kernel reads of the columns, by id."""
        readers = self._scan.source.file.scans
        readers.ask_sections([column.id for column in columns])
        direct = [column for column in columns if self._scan.is_readable(column)]
        if self.rows > 1 and any(self._scan.stored_bytes(c.id, self.rows) > MOST_BYTES for c in direct):
            raise TooLarge  # before a page is read, which would be read again for fewer rows
        readers.ask([column.id for column in direct], self._ranges)
        patches = [self._scan.patch(column) for column in direct]
        found = read(
            self._selection,
            [readers.column(column.id) for column in direct],
            bytes([form(column) for column in direct]),
            room,
            MOST_BYTES,
            patches,
        )
        result = {}
        for column, buffers, patch in zip(direct, found, patches, strict=True):
            if buffers is not None and self._scan.source.touches(column.id):
                views = self._scan.source.views if patch is None else self._scan.source.patches.rest
                if any(view.touches(column.id) for view in views):
                    buffers = self._changed(column, buffers, room, views)
            if buffers is not None:
                result[column.id] = buffers
        return result

    def _changed(
        self,
        column: StoredColumn,
        read: tuple[Any, Any, Any, int],
        room: Callable[[int], Any],
        views: tuple[DeltaView, ...],
    ) -> tuple[Any, Any, Any, int] | None:
        """What the kernel read of a column of fixed width, with what the views change."""
        first: int | np.ndarray = int(self._ranges[0, 0])
        lower, upper = int(self._ranges[0, 0]), int(self._ranges[-1, 1])
        if upper - lower != self.rows:
            first = self.rowids
            lower, upper = int(first[0]), int(first[-1]) + 1
            if self.rows * CELLS_FACTOR <= upper - lower:
                return None  # single rows are looked for
        parts = self._scan.source.parts(column.id, lower, upper, views)
        if not parts:
            return read if parts is not None else None
        values, offsets, validity, _ = read
        width, size = column.type.width, (self.rows + 7) // 8
        cells = np.frombuffer(values, np.uint8, width * self.rows)
        bits = None
        if validity is not None:
            bits = np.frombuffer(validity, np.uint8, size)
        elif any(part.nullable for part in parts):
            validity = room(size)
            bits = np.frombuffer(validity, np.uint8, size)
            bits[:] = 0xFF
        made = lay_over(ColumnBuffers(width, self.rows, cells, None, bits), first, parts, owned=True)
        return values, offsets, validity, made.null_count

    # ---- the general way ----

    @property
    def rowids(self) -> np.ndarray:
        if self._rowids is None:
            self._rowids = self._selection.rowids()
        return self._rowids

    def _general(self, column: StoredColumn) -> ColumnBuffers:
        """A column with its changes laid over, or one that the kernel does not read.

        ``ColumnTooLarge``: choose fewer rows.
        """
        source, ranges = self._scan.source, self._ranges
        if not source.has(column.id) and not source.touches(column.id):
            return ColumnBuffers.constant(column.type, column.read_default, self.rows)
        if len(ranges) == 1 and self.rows == ranges[0, 1] - ranges[0, 0]:
            return source.column(column, int(ranges[0, 0]), int(ranges[0, 1]))
        rows = self.rowids
        if self.rows * CELLS_FACTOR <= int(rows[-1]) - int(rows[0]):
            return source.cells(column, rows)
        # Pages in which something was chosen, neighbours together.
        stored = source.file.columns.get(column.id)
        pages = rows >> (PAGE_BITS if stored is None else stored.page_bits)
        cuts = [0, *(np.flatnonzero(pages[1:] > pages[:-1] + 1) + 1).tolist(), len(rows)]
        parts = []
        for start, stop in pairwise(cuts):
            own = rows[start:stop]
            lower = int(own[0])
            parts.append(source.column(column, lower, int(own[-1]) + 1).take(own - lower))
        return ColumnBuffers.concat(parts)


class FileScan:
    """A scan of one rowset on disk at one snapshot, set up once; units of work may run at the same time."""

    def __init__(self, source: DiskRowsAt, schema: Schema, where: Filter | None, wanted_rows: int) -> None:
        """``wanted_rows``: how many are about to be read, or 0 where that is not known."""
        self.source = source
        self._wanted_rows = wanted_rows
        self._schema = schema
        self._where = where
        self._tests: list[tuple[int, CellSet, np.ndarray]] = []
        self._rest: Filter | None = None
        if where is None:
            return
        self._rest = where.rest
        for condition in where.conditions:
            if not self.is_direct(condition.column_id):
                self._rest = where
                continue
            test, states = source.file.scans.compile(condition.column_id, condition.passing)
            self._tests.append((condition.column_id, test, states))
        # What statistics decide, and what is short, comes first.
        self._tests.sort(key=lambda test: int((test[2] == SOME_ROWS).sum()) * source.file.scans.cost(test[0]))

    def is_direct(self, column_id: int) -> bool:
        """Whether what is stored of a column is what the snapshot sees of it.

        Asked of the columns that a scan needs, and not of each that a wide table has.
        """
        return self.source.has(column_id) and not self.source.touches(column_id)

    def is_readable(self, column: StoredColumn) -> bool:
        """Whether the kernel reads a column: numbers are changed meanwhile or afterwards, bools meanwhile."""
        if column.type.width and column.type.kind != TYPE_BOOL:
            return self.source.has(column.id)
        if self.is_direct(column.id):
            return True
        patch = self.patch(column)
        return patch is not None and not any(view.touches(column.id) for view in self.source.patches.rest)

    def patch(self, column: StoredColumn) -> Patch | None:
        """What is laid over a column while it is read; None: nothing, or it is laid over afterwards."""
        source = self.source
        if not column.type.width or not source.has(column.id) or not source.touches(column.id):
            return None
        return source.patches.of(column.id, self._wanted_rows)

    def words(self, column: StoredColumn) -> pa.Array:
        return self.source.file.scans.words(column.id)

    def stored_bytes(self, column_id: int, rows: int) -> float:
        """About what so many strings take in the file, and three times that where a dictionary helps to pack
        them: a guess at what they take here.  0 for cells of fixed width."""
        column = self.source.file.columns[column_id]
        if column.width:
            return 0
        return column.extent.length * rows / column.rows * (1 if column.codec_dictionary is None else 3)

    def has_words(self, column_id: int) -> bool:
        return self.is_direct(column_id) and self.source.file.columns[column_id].words is not None

    def choose(self, ranges: np.ndarray) -> Chosen | None:
        """The rows of the ranges, (m, 2), that pass; None where none does."""
        selection = Selection(*_with_gaps(ranges, self._live(ranges), self.source.rows))
        rest = self._rest
        for column_id, test, states in self._tests:
            try:
                selection.test(self.source.file.scans.column(column_id), test, states)
            except (NeedsGeneralPath, PageError):
                rest = self._where  # whatever it was, the general path gives the answer or the error
            if not selection.chosen:
                return None
        if not selection.chosen:
            return None
        if rest is not None:
            columns = [self._schema.by_name[name] for name in sorted(rest.columns)]
            chosen = Chosen(self, selection, ranges)
            fields = pa.schema([pa.field(c.name, c.type.arrow, c.nullable) for c in columns])
            batch = chosen.batch(tuple(columns), fields, frozenset())
            selection.keep(rest.mask(batch).view(np.uint8))
            if not selection.chosen:
                return None
        return Chosen(self, selection, ranges)

    def pieces(self, ranges: np.ndarray, use: Callable[[Chosen], Any]) -> Iterator[Any]:
        """``use`` of what is chosen of the ranges; of smaller pieces where one column is too large."""
        try:
            chosen = self.choose(ranges)
            if chosen is None:
                return
            made = use(chosen)
        except (TooLarge, ColumnTooLarge):
            if int((ranges[:, 1] - ranges[:, 0]).sum()) < 2:
                raise
            for half in halves(ranges):
                yield from self.pieces(half, use)
            return
        yield made

    def count_live(self, ranges: np.ndarray) -> int:
        """How many rows of the ranges, (m, 2), are present."""
        live = self._live(ranges)
        return int((ranges[:, 1] - ranges[:, 0]).sum()) if live is None else int(np.count_nonzero(live))

    def _live(self, ranges: np.ndarray) -> np.ndarray | None:
        """(rows,) uint8: which rows of the ranges are present; None: all."""
        source = self.source
        if source.all_live:
            return None
        if len(ranges) > _MANY_RANGES:
            rows = np.concatenate([np.arange(lower, upper) for lower, upper in ranges.tolist()])
            return source.live_cells(rows).view(np.uint8)
        parts = []
        for lower, upper in ranges.tolist():
            live = source.live(lower, upper)
            parts.append(np.ones(upper - lower, np.uint8) if live is None else live)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _with_gaps(
    ranges: np.ndarray, live: np.ndarray | None, rows: int
) -> tuple[np.ndarray, int, np.ndarray | None]:
    """What a ``Selection`` is made of: ranges, rows of the file, flags.

    Ranges that lie close together are one, of which the rows between are flagged as not there.
    """
    if len(ranges) <= _MANY_RANGES:
        return ranges, rows, live
    begins = np.append(True, ranges[1:, 0] - ranges[:-1, 1] > _GAP_ROWS)
    if 2 * np.count_nonzero(begins) > len(ranges):
        return ranges, rows, live
    first = np.flatnonzero(begins)
    joined = np.stack([ranges[first, 0], ranges[np.append(first[1:], len(ranges)) - 1, 1]], axis=1)
    lengths, sizes = ranges[:, 1] - ranges[:, 0], joined[:, 1] - joined[:, 0]
    # Where each range begins among the rows of the joined ones, and each of its rows.
    begin = ranges[:, 0] + (np.cumsum(sizes) - sizes - joined[:, 0])[np.cumsum(begins) - 1]
    places = np.repeat(begin - (np.cumsum(lengths) - lengths), lengths)
    places += np.arange(len(places))
    flags = np.zeros(int(sizes.sum()), np.uint8)
    flags[places] = 1 if live is None else live
    return joined, rows, flags


def halves(ranges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ranges as two lists with half of the rows each; there are at least two rows."""
    ends = np.cumsum(ranges[:, 1] - ranges[:, 0])
    half = int(ends[-1]) // 2
    at = int(np.searchsorted(ends, half, side="right"))
    cut = int(ranges[at, 1] - (ends[at] - half))
    first, second = ranges[: at + 1].copy(), ranges[at:].copy()
    first[-1, 1] = second[0, 0] = cut
    return first[first[:, 0] < first[:, 1]], second
