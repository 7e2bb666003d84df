"""The first rows of an ordered scan: found one by one by their keys, then their cells are gathered.

Who asks for ten rows in the order of keys gets them from here, however many rowsets there are.  A rowset is
begun only when its first possible key is the smallest of all, and nothing is decoded but keys that are
compared and the rows that leave.  That costs more a row than decoding blocks, so it ends after some hundred
rows, and ``ordered`` goes on behind the last key.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.ordered.in_order import RowsInOrder
from kudu_core._ext.row.scattered import gather
from kudu_core.common.rows.rowblock import ColumnBuffers, in_pieces, too_large
from kudu_core.common.types.values import raw_bytes
from kudu_core.rowset.disk.diskrowset import DiskRowsAt
from kudu_core.rowset.memory.memrowset import MemRowsAt, MemRowSet
from kudu_core.rowset.rows.rows_at import RowsAt
from kudu_core.rowset.scan.filescan import MOST_BYTES
from kudu_core.rowset.scan.scan import FIRST_ROWS, ScanSpec, Selected, evaluate
from kudu_core.rowset.scan.scan_counts import ScanCounts

if TYPE_CHECKING:
    from kudu_core._ext.row.file import PointFile

ROWS_ONE_BY_ONE = 512
ROWS_TESTED = 128
"""So many rows are looked for in this way, and so many if a predicate tests them, which blocks do by zone
maps and on stored values; the others come from blocks."""

_PIECE_BYTES = 4 << 20
"""Strings of so many rows are gathered at once, once it is known how long they are."""

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
List = tuple[I64, npt.NDArray[np.uint8], I64]
"""Rows, and their encoded keys."""


class FirstRows:
    """The first rows with ``spec.lower <= key < spec.upper`` of some rowsets, in the order of keys."""

    def __init__(self, sources: list[RowsAt], spec: ScanSpec, counts: ScanCounts) -> None:
        self._sources = sources
        self._spec = spec
        self._counts = counts
        self._order = RowsInOrder(
            [source.rowset.meta.min_key if isinstance(source, DiskRowsAt) else b"" for source in sources],
            [source.file if isinstance(source, DiskRowsAt) else None for source in sources],
            partial(_listed, sources, spec.lower, spec.upper),
            spec.lower,
            spec.upper,
        )
        needed = {column.id: column for column in spec.columns}
        for name in () if spec.filter is None else spec.filter.columns:
            needed[spec.schema.by_name[name].id] = spec.schema.by_name[name]
        self._needed = tuple(needed.values())
        self._widths = [(column.id, column.type.width) for column in self._needed]
        self._ids = {column.id for column in self._needed}
        self._known: set[int] = set()
        """Sources of which the next four are known."""
        self._partly_live: set[int] = set()
        self._elsewhere: set[int] = set()
        """Rows in memory, and in files that lack a column."""
        self._points: list[PointFile | None] = [None] * len(sources)
        """Of the others, the file."""
        self._changed: set[int] = set()
        """Those of them of which a change is to be laid over."""
        variable = [column for column in self._needed if not column.type.width]
        self._variable = bool(variable)
        defaults = [len(raw_bytes(c.type, c.read_default)) for c in variable if c.read_default is not None]
        self._most = max(1, MOST_BYTES // max(1, sum(defaults)))
        """So many rows take no more, even if all of them are older than their columns."""
        self.after: bytes | None = None
        """No row at or above this key was looked at; None: there are no others."""

    def blocks(self, limit: int | None) -> Iterator[Selected]:
        """Blocks that grow; the first has ``limit`` rows where nothing tests them."""
        tested = self._spec.filter is not None
        left = ROWS_TESTED if tested else ROWS_ONE_BY_ONE
        most = min(left, self._spec.batch_rows)
        size = min(FIRST_ROWS if limit is None or tested else limit, most)
        while left:
            size = min(size, left)
            found, rows = self._order.take(size)
            self._counts.rowsets_begun = self._order.begun
            self._counts.rows_read += len(rows)
            yield from self._gathered(found, rows)
            if len(rows) < size:
                return
            left -= size
            size = min(2 * size, most)
        yield from self._copies_of_last()

    def _copies_of_last(self) -> Iterator[Selected]:
        """The other copies of the last key, of which one at most is present; the next key is ``after``."""
        last = self._order.last_key
        while True:
            found, rows = self._order.take(1)
            if not len(rows):
                return
            if self._order.last_key != last:
                self.after = self._order.last_key
                return
            self._counts.rows_read += 1
            yield from self._gathered(found, rows)

    def _gathered(self, found: I32, rows: I64) -> Iterator[Selected]:
        """The rows as blocks; as several where their strings are long."""
        lower, step = 0, min(FIRST_ROWS if self._variable else len(rows), self._most)
        while lower < len(rows):
            upper = min(lower + step, len(rows))
            read_bytes = 0
            for _, _, made in in_pieces(lower, upper, lambda i, k: self._gather(found[i:k], rows[i:k])):
                if made is not None:
                    read_bytes += sum(column.nbytes for column in made.columns.values())
                    self._counts.rows_selected += made.rows
                    yield made
            step = min(max(1, _PIECE_BYTES * (upper - lower) // max(1, read_bytes)), self._most)
            lower = upper

    def _gather(self, found: I32, rows: I64) -> Selected | None:
        """Those of some rows that are present and pass."""
        numbers = set(found.tolist())
        for number in numbers - self._known:
            self._learn(number)
        if not numbers.isdisjoint(self._partly_live):
            live = np.ones(len(rows), bool)
            for number in numbers & self._partly_live:
                places = np.flatnonzero(found == number)
                live[places] = self._sources[number].live_cells(rows[places])
            if not live.all():
                found, rows = found[live], rows[live]
        if not len(rows):
            return None
        return self._passed(self._cells(found, rows), len(rows))

    def _learn(self, number: int) -> None:
        """Find out how the rows of a source are read."""
        source = self._sources[number]
        self._known.add(number)
        if not source.all_live:
            self._partly_live.add(number)
        if isinstance(source, DiskRowsAt) and all(map(source.has, self._ids)):
            self._points[number] = source.file.points
            if source.views and any(map(source.touches, self._ids)):
                self._changed.add(number)
        else:
            self._elsewhere.add(number)

    def _cells(self, found: I32, rows: I64) -> dict[int, ColumnBuffers]:
        """Cells of rows that are present."""
        elsewhere = set(found.tolist()) & self._elsewhere
        if not elsewhere:
            cells = self._in_place(found, rows)
            if cells is not None:
                return cells
            elsewhere = set(found.tolist())
        parts: list[dict[int, ColumnBuffers]] = []
        part, position = np.empty(len(rows), np.int32), np.empty(len(rows), np.int64)
        stored = ~np.isin(found, list(elsewhere))
        if stored.any():
            cells = self._in_place(found[stored], rows[stored])
            if cells is None:
                stored[:] = False
            else:
                part[stored], position[stored] = 0, np.arange(np.count_nonzero(stored))
                parts.append(cells)
        for places in _together(found, np.flatnonzero(~stored)):
            part[places], position[places] = len(parts), np.arange(len(places))
            parts.append(self._sources[found[places[0]]].cells_of(self._needed, rows[places]))
        return {
            id_: ColumnBuffers.interleave([cells[id_] for cells in parts], part, position) for id_ in parts[0]
        }

    def _in_place(self, found: I32, rows: I64) -> dict[int, ColumnBuffers] | None:
        """Cells of rows in files that have all columns; None where the general path must be asked."""
        try:
            made = [gather(self._points, found, rows, id_, width) for id_, width in self._widths]
        except OverflowError as error:
            raise too_large(len(rows), error) from error
        except (NeedsGeneralPath, PageError):
            return None
        result = {
            id_: ColumnBuffers(width, len(rows), *cells)
            for (id_, width), cells in zip(self._widths, made, strict=True)
        }
        for number in self._changed and self._changed.intersection(found.tolist()):
            places = np.flatnonzero(found == number)
            for id_, cells in result.items():
                result[id_] = self._sources[number].lay_over_cells(id_, rows[places], cells, places)
        return result

    def _passed(self, columns: dict[int, ColumnBuffers], rows: int) -> Selected | None:
        """What the predicate leaves of rows."""
        if self._spec.filter is not None:
            picked = np.flatnonzero(evaluate(self._spec, columns, rows))
            if not len(picked):
                return None
            if len(picked) < rows:
                rows = len(picked)
                columns = {column.id: columns[column.id].take(picked) for column in self._spec.columns}
        return Selected(rows, columns)


def _listed(
    sources: list[RowsAt], lower: bytes | None, upper: bytes | None, number: int, row: int
) -> Iterator[List]:
    """Rows of a source and their keys, from a row of its file on or, with -1, from the bound on: for
    ``RowsInOrder``, where it cannot look by itself.

    No method: an order that holds who holds it would keep the files of a scan that has ended.
    """
    source = sources[number]
    if isinstance(source, MemRowsAt):
        yield from listed_in_memory(source.store, source.rows, lower, upper)
        return
    assert isinstance(source, DiskRowsAt)
    size = FIRST_ROWS
    if row < 0:
        row = 0 if lower is None else source.file.lower_bound(lower)
    while row < source.rows:
        end = min(row + size, source.rows)
        yield np.arange(row, end), *source.file.keys(row, end)
        row, size = end, min(2 * size, ROWS_ONE_BY_ONE)


def listed_in_memory(store: MemRowSet, rows: int, lower: bytes | None, upper: bytes | None) -> Iterator[List]:
    """The first ``rows`` of a MemRowSet between bounds, in the order of keys, and their keys."""
    size = FIRST_ROWS
    while True:
        ordinals, keys = store.first_keys(lower, upper, rows, size)
        if len(ordinals):
            yield ordinals, keys.data, keys.offsets
        if len(ordinals) < size:
            return
        lower, size = keys[size - 1] + b"\0", min(2 * size, ROWS_ONE_BY_ONE)


def _together(found: I32, places: I64) -> Iterator[I64]:
    """Those of the places whose rows are of one source, for each source; ascending."""
    order = places[np.argsort(found[places], kind="stable")]
    cuts = np.flatnonzero(np.diff(found[order])) + 1
    for lower, upper in pairwise([0, *cuts.tolist(), len(order)]):
        yield order[lower:upper]
