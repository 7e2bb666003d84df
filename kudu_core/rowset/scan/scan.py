"""The walk of a scan through one rowset.

Pages that statistics rule out are not read; predicate columns come first, the others only where
rows were selected; changes are laid over by rowid.  What comes out are blocks of selected rows,
in key order when asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa

from kudu_core.cfile.files.rows_file import PAGE_ROWS
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers, in_pieces
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.where.predicates import Filter
from kudu_core.errors import ColumnTooLarge
from kudu_core.rowset.disk.diskrowset import DiskRowsAt
from kudu_core.rowset.memory.memrowset import MemRowsAt
from kudu_core.rowset.rows.rows_at import RowsAt, encoded_keys_of
from kudu_core.rowset.scan.by_index import ColumnsIndex
from kudu_core.rowset.scan.filescan import CELLS_FACTOR, MOST_BYTES, Chosen, FileScan, halves
from kudu_core.rowset.scan.row_ranges import Candidates, Pruning, choose, pages_of
from kudu_core.rowset.scan.scan_counts import ScanCounts

FIRST_ROWS = 16
"""Of the first block, where nobody knows how many are wanted; each one after it has twice as many."""

ALL_ROWS = 1 << 32
"""No fewer than a rowset has."""

UNIT_PAGES = 512
"""Rows of one piece of work lie no further apart: so many pages of a column are held at once."""


@dataclass(frozen=True, slots=True)
class ScanSpec:
    """What a scan wants from each rowset."""

    schema: Schema
    columns: tuple[StoredColumn, ...]
    filter: Filter | None
    lower: bytes | None
    """First encoded key, or None for the first there is."""
    upper: bytes | None
    """Encoded key to stop before, or None."""
    ordered: bool
    batch_rows: int
    first_rows: int | None = None
    """Rows of the first unit of work, each one after it has twice as many; None: ``batch_rows`` at once."""
    arrow: pa.Schema | None = None
    """Of the batches that are made; None: columns as buffers.  Not of an ordered scan."""
    dictionary: frozenset[int] = frozenset()
    """Columns of a batch that are dictionaries."""
    implied: tuple[bool, bool] = (False, False)
    """Which of the bounds say no more than the predicate."""
    rowids: bool = False
    """Whether it is to be told where the rows lie.  Of columns as buffers, in no order."""
    indexes: tuple[ColumnsIndex, ...] = ()
    """Those of the table, by which rows may be found."""
    pruning: Pruning = field(init=False, compare=False)

    def __post_init__(self) -> None:
        pruning = Pruning.of(self.schema, self.filter, self.lower, self.upper, self.implied)
        object.__setattr__(self, "pruning", pruning)


@dataclass(slots=True)
class Selected:
    """Rows that passed, with the projected columns by id and, in an ordered scan, their keys."""

    rows: int
    columns: dict[int, ColumnBuffers]
    keys: EncodedKeys | None = field(default=None)
    batch: pa.RecordBatch | None = field(default=None)
    """Instead of the columns, where the scan makes batches."""
    rowids: np.ndarray | None = field(default=None)
    """Rowids, or ordinals in memory, (rows,) int64, where the scan is to tell them."""

    def first(self, rows: int) -> Selected:
        """Only so many of the rows, which hold on to no memory of the others."""
        return Selected(rows, {i: column.slice(0, rows).compact() for i, column in self.columns.items()})


Select = Callable[[np.ndarray], list[Selected]]
"""Selected rows of a unit of work, ranges of rows (m, 2).  May be called by several threads at once."""


def scan_rowset(source: RowsAt, spec: ScanSpec, counts: ScanCounts) -> Iterator[Selected]:
    """Selected rows of one rowset, at most ``spec.batch_rows`` at a time."""
    counts.rowsets_begun += 1
    if by_ordinal(source, spec):
        assert isinstance(source, MemRowsAt)
        yield from _scan_ordinals(source, spec, counts)
        return
    found = row_ranges(source, spec, counts)
    select = selector(source, spec, found)
    for ranges in units(found.ranges, spec.batch_rows, spec.first_rows):
        counts.rows_read += rows_of(ranges)
        for selected in select(ranges):
            counts.rows_selected += selected.rows
            yield selected


def by_ordinal(source: RowsAt, spec: ScanSpec) -> bool:
    """Whether rows are asked for in the order of keys that do not lie so: not by ranges."""
    bounded = spec.lower is not None or spec.upper is not None
    return isinstance(source, MemRowsAt) and (spec.ordered or bounded)


def selector(source: RowsAt, spec: ScanSpec, found: Candidates) -> Select:
    """What tests units of work of the rows that were found, and fetches what it selected."""
    most = _most_rows(source, spec, found.where)
    if not isinstance(source, DiskRowsAt):
        return lambda ranges: [
            selected for some in smaller(ranges, most) for selected in _select_in_memory(source, spec, some)
        ]
    scan = _file_scan(source, spec, found)

    def use(chosen: Chosen) -> Selected:
        if spec.arrow is not None and spec.columns:
            batch = chosen.batch(spec.columns, spec.arrow, spec.dictionary)
            return Selected(chosen.rows, {}, batch=batch)
        rowids = chosen.rowids if spec.rowids else None
        return _finish(spec, chosen.columns(_wanted(spec)), chosen.rows, rowids)

    return lambda ranges: [made for some in smaller(ranges, most) for made in scan.pieces(some, use)]


def _file_scan(source: DiskRowsAt, spec: ScanSpec, found: Candidates) -> FileScan:
    wanted_rows = rows_of(found.ranges) if spec.first_rows is None else 0
    if source.is_good_part(wanted_rows):
        tested = () if found.where is None else [spec.schema.by_name[name] for name in found.where.columns]
        ids = {column.id for column in (*_wanted(spec), *tested)}
        source.rowset.heat.note(filter(source.touches, ids))
    return FileScan(source, spec.schema, found.where, wanted_rows)


def _most_rows(source: RowsAt, spec: ScanSpec, where: Filter | None) -> int:
    """How many rows may be read at once: defaults of rows that are older than their column take memory that
    no page has."""
    tested = () if where is None else [spec.schema.by_name[name] for name in where.columns]
    row_bytes = source.default_bytes({column.id: column for column in (*_wanted(spec), *tested)}.values())
    return ALL_ROWS if not row_bytes else max(1, MOST_BYTES // row_bytes)


def smaller(ranges: np.ndarray, most: int) -> Iterator[np.ndarray]:
    """The ranges in pieces of at most so many rows."""
    if rows_of(ranges) <= most:
        yield ranges
        return
    for half in halves(ranges):
        yield from smaller(half, most)


def counter(source: RowsAt, spec: ScanSpec, found: Candidates) -> Callable[[np.ndarray], int]:
    """What counts the rows of a unit of work that pass, reading nothing but what the predicate needs."""
    where = found.where
    most = _most_rows(source, spec, where)
    if not isinstance(source, DiskRowsAt):
        return lambda ranges: sum(
            selected.rows
            for some in smaller(ranges, most)
            for selected in _select_in_memory(source, spec, some)
        )
    if where is None and source.all_live:
        return rows_of
    scan = _file_scan(source, spec, found)
    if where is None:
        return scan.count_live
    return lambda ranges: sum(
        rows for some in smaller(ranges, most) for rows in scan.pieces(some, lambda chosen: chosen.rows)
    )


def _select_in_memory(source: RowsAt, spec: ScanSpec, ranges: np.ndarray) -> Iterator[Selected]:
    for first, end in ranges.tolist():
        for _, _, selected in in_pieces(
            first, end, lambda lower, upper: _select_range(source, spec, lower, upper)
        ):
            if selected is not None:
                yield selected


def _select_range(source: RowsAt, spec: ScanSpec, lower: int, upper: int) -> Selected | None:
    rows = upper - lower
    live = source.live(lower, upper)
    mask = None if live is None else live != 0
    if mask is not None and not mask.any():
        return None
    read: dict[int, ColumnBuffers] = {}
    if spec.filter is not None:
        for name in sorted(spec.filter.columns):
            column = spec.schema.by_name[name]
            read[column.id] = source.column(column, lower, upper)
        passed = evaluate(spec, read, rows, mask)
        mask = passed if mask is None else mask & passed
    if mask is None or mask.all():
        columns = {c.id: _have(source, read, c, lower, upper) for c in _wanted(spec)}
        return _finish(spec, columns, rows, np.arange(lower, upper) if spec.rowids else None)
    picked = np.flatnonzero(mask)
    if not len(picked):
        return None
    columns = {}
    for column in _wanted(spec):
        if column.id in read:
            columns[column.id] = read[column.id].take(picked)
        elif len(picked) * CELLS_FACTOR <= rows:
            columns[column.id] = source.cells(column, picked + lower)
        else:
            columns[column.id] = source.column(column, lower, upper).take(picked)
    return _finish(spec, columns, len(picked), picked + lower)


def _have(
    source: RowsAt, read: dict[int, ColumnBuffers], column: StoredColumn, lower: int, upper: int
) -> ColumnBuffers:
    values = read.get(column.id)
    return source.column(column, lower, upper) if values is None else values


def _wanted(spec: ScanSpec) -> tuple[StoredColumn, ...]:
    """The projected columns, and in an ordered scan those of the key."""
    if not spec.ordered:
        return spec.columns
    have = {c.id for c in spec.columns}
    return (*spec.columns, *(c for c in spec.schema.key_columns if c.id not in have))


def _finish(
    spec: ScanSpec, columns: dict[int, ColumnBuffers], rows: int, rowids: np.ndarray | None = None
) -> Selected:
    if spec.arrow is not None:
        batch = to_batch(spec.columns, columns, rows, spec.arrow, spec.dictionary)
        return Selected(rows, {}, batch=batch)
    if not spec.ordered:
        return Selected(rows, columns, rowids=rowids)
    return Selected(rows, columns, encoded_keys_of(spec.schema, columns, rows))


def evaluate(
    spec: ScanSpec, read: dict[int, ColumnBuffers], rows: int, live: np.ndarray | None = None
) -> np.ndarray:
    assert spec.filter is not None
    names = sorted(spec.filter.columns)
    columns = [spec.schema.by_name[name] for name in names]
    arrays = [read[c.id].to_arrow(c.type) for c in columns]
    fields = [pa.field(c.name, c.type.arrow, c.nullable) for c in columns]
    if not fields:  # a constant predicate
        fields, arrays = [pa.field("", pa.null())], [pa.nulls(rows)]
    return spec.filter.mask(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), live)


def to_batch(
    columns: Sequence[StoredColumn],
    values: dict[int, ColumnBuffers],
    rows: int,
    schema: pa.Schema,
    dictionary: frozenset[int] = frozenset(),
) -> pa.RecordBatch:
    """Decoded columns as an Arrow batch."""
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    arrays = [values[c.id].to_arrow(c.type) for c in columns]
    if dictionary:
        arrays = [
            array.dictionary_encode() if column.id in dictionary else array
            for column, array in zip(columns, arrays, strict=True)
        ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# ---- which rows are read at all ----


def row_ranges(source: RowsAt, spec: ScanSpec, counts: ScanCounts) -> Candidates:
    """The rows that may hold an answer, and what is left to test on them."""
    if isinstance(source, DiskRowsAt):
        found = choose(source, spec.pruning, spec.filter, spec.indexes)
        if found.index is not None:
            counts.indexes[found.index] = counts.indexes.get(found.index, 0) + 1
        pages = -(-source.rows // PAGE_ROWS)
        counts.pages += pages
        counts.pages_pruned += pages - pages_of(found.ranges)
    else:
        whole = np.array([[0, source.rows]], np.int64)[: source.rows > 0]
        found = Candidates(whole, source.rows, spec.filter)
    counts.rows += source.rows
    counts.rows_by_keys += found.by_keys
    counts.rows_wanted += rows_of(found.ranges)
    return found


def rows_of(ranges: np.ndarray) -> int:
    """How many rows lie in ranges, (m, 2)."""
    if len(ranges) == 1:  # as most often: in a third of the time
        return int(ranges[0, 1]) - int(ranges[0, 0])
    return int((ranges[:, 1] - ranges[:, 0]).sum())


def units(ranges: np.ndarray, batch_rows: int, first_rows: int | None = None) -> Iterator[np.ndarray]:
    """The ranges as pieces of work, (m, 2) each: at most ``batch_rows`` rows, no more than ``UNIT_PAGES``
    pages apart, long ranges cut at the borders of pages where that is possible.

    ``first_rows``: the first one has so many rows, and each one after it twice as many.
    """
    most, batch_rows = batch_rows, min(batch_rows, first_rows or batch_rows)
    if len(ranges) == 1:
        [[first, last]] = ranges.tolist()
        if last - first <= batch_rows and last <= (first // PAGE_ROWS + UNIT_PAGES) * PAGE_ROWS:
            yield ranges
            return
    ends = np.cumsum(ranges[:, 1] - ranges[:, 0])
    at = 0
    lower = int(ranges[0, 0]) if len(ranges) else 0
    while at < len(ranges):
        before = int(ends[at] - (ranges[at, 1] - lower))  # rows of earlier units
        reach = (lower // PAGE_ROWS + UNIT_PAGES) * PAGE_ROWS
        stop = min(
            int(np.searchsorted(ends, before + batch_rows, side="right")),
            int(np.searchsorted(ranges[:, 1], reach, side="right")),
        )
        unit = ranges[at:stop].copy()
        if stop > at:
            unit[0, 0] = lower
            room = batch_rows - (int(ends[stop - 1]) - before)
            lower = int(ranges[stop, 0]) if stop < len(ranges) else 0
        else:
            room = batch_rows
        at = stop
        if at < len(ranges):  # the range that does not fit whole
            cut = min(lower + room, reach)
            aligned = cut // PAGE_ROWS * PAGE_ROWS
            cut = aligned if aligned > lower or len(unit) else cut
            if cut > lower:
                unit = np.concatenate([unit, np.array([[lower, cut]], np.int64)])
                lower = cut
        yield unit
        batch_rows = min(2 * batch_rows, most)


def _scan_ordinals(source: MemRowsAt, spec: ScanSpec, counts: ScanCounts) -> Iterator[Selected]:
    """Rows of a MemRowSet in key order: the visible prefix patched once, then taken by ordinal."""
    ordinals = source.store.ordered(spec.lower, spec.upper, source.rows).astype(np.int64)
    counts.rows_read += len(ordinals)
    live = source.live(0, source.rows)
    if live is not None:
        ordinals = ordinals[live[ordinals] != 0]
    if not len(ordinals):
        return
    needed = {c.id: c for c in _wanted(spec)}
    if spec.filter is not None:
        needed |= {spec.schema.by_name[name].id: spec.schema.by_name[name] for name in spec.filter.columns}
    few = len(ordinals) * CELLS_FACTOR <= source.rows
    patched: dict[int, ColumnBuffers] = {}
    if not few and not source.default_bytes(needed.values()):
        # A column whose changes make it too large is left out: its cells are looked for.
        with suppress(ColumnTooLarge):
            for id_, column in needed.items():
                patched[id_] = source.column(column, 0, source.rows)

    def cells(lower: int, upper: int) -> dict[int, ColumnBuffers]:
        some = ordinals[lower:upper]
        return {
            i: source.cells(c, some) if i not in patched else patched[i].take(some) for i, c in needed.items()
        }

    most = min(spec.batch_rows, _most_rows(source, spec, spec.filter))
    starts = range(0, len(ordinals), most)
    pieces = (in_pieces(start, min(start + most, len(ordinals)), cells) for start in starts)
    for lower, upper, columns in chain.from_iterable(pieces):
        rows, some = upper - lower, ordinals[lower:upper]
        if spec.filter is not None:
            picked = np.flatnonzero(evaluate(spec, columns, rows))
            if not len(picked):
                continue
            if len(picked) < rows:
                columns = {c.id: columns[c.id].take(picked) for c in _wanted(spec)}
                rows, some = len(picked), some[picked]
        counts.rows_selected += rows
        yield _finish(spec, {c.id: columns[c.id] for c in _wanted(spec)}, rows, some)
