"""``.delta`` files: changes of rows of one DiskRowSet, by rowid and time.

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
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from kudu_core._ext.changes.replay import Updates
from kudu_core.cfile.columns.pages import column_entries, need
from kudu_core.cfile.columns.reader import ColumnReader, uncached
from kudu_core.cfile.columns.specs import MAX_ROWS, ColumnSpec, check_rows
from kudu_core.cfile.columns.writer import write_column
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.pages.container import KIND_DELTA, Extent, FileReader, FileWriter
from kudu_core.cfile.pages.page import PAGE_BITS, PAGE_ROWS
from kudu_core.cfile.readers.point_reader import open_delta_points
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType

if TYPE_CHECKING:
    from kudu_core._ext.row.changes import DeltaPoints
    from kudu_core.cfile.pages.page_cache import PageCache
    from kudu_core.fs.api import FileSystem

    U8 = npt.NDArray[np.uint8]
    U32 = npt.NDArray[np.uint32]
    U64 = npt.NDArray[np.uint64]

REDO = "redo"
UNDO = "undo"

OP_UPDATE = 1
OP_DELETE = 2  # REDO: the row is dead from its timestamp on
OP_DEAD = 2  # UNDO: the row is absent before its timestamp
OP_ALIVE = 3  # UNDO: the row is present before its timestamp, with this image

ROWID_ID = -3
TIMESTAMP_ID = -4
OP_ID = -5

_PLACES = -(1 << 48)
"""Places in the page cache of what is kept decoded lie below; above are those of ``point_reader``."""


@dataclass(frozen=True, slots=True)
class DeltaMeta:
    """What a manifest records of a ``.delta`` file.

    ``delete_count`` counts DELETE or DEAD, ``reinsert_count`` ALIVE entries; ``updates`` the values
    by column id; the times are None where they are the record's.
    """

    kind: str
    entries: int
    size: int
    footer_crc: int
    min_ts: int | None
    max_ts: int | None
    min_rowid: int
    max_rowid: int
    delete_count: int
    reinsert_count: int
    updates: dict[int, int]
    column_stats: dict[int, dict[str, Any]]


def write_delta_file(
    fs: FileSystem,
    path: str,
    kind: str,
    rowids: U32,
    ts: U64 | None,
    ops: U8,
    columns: Mapping[int, tuple[ColumnSpec, U32, ColumnBuffers]],
    *,
    file_id: bytes | None = None,
) -> DeltaMeta:
    """Write and sync a file of at least one entry; the directory is the caller's.

    Parameters
    ----------
    kind : "redo" or "undo"
    rowids : (entries,) uint32, ascending
    ts : (entries,) uint64, within a rowid strictly ascending (REDO) or descending (UNDO);
        None: the record's, rowids are then strictly ascending
    ops : (entries,) uint8
    columns
        By column id: its spec, the ordinals of the entries that change it (strictly ascending), and
        as many values.

    An exception leaves no file behind.
    """
    entries = len(rowids)
    assert kind in (REDO, UNDO) and entries and len(ops) == entries
    check_rows(path, entries)
    assert in_order(kind, rowids, ts), "entries are not sorted by rowid and time"
    delete_count = int(np.count_nonzero(ops == OP_DELETE))
    reinsert_count = int(np.count_nonzero(ops == OP_ALIVE))
    writer = FileWriter(fs, path, KIND_DELTA, file_id=file_id)
    try:
        stored = [
            _write_numbers(writer, ROWID_ID, "rowid", "uint32", rowids),
            _write_numbers(writer, OP_ID, "op", "uint8", ops),
        ]
        if ts is not None:
            assert len(ts) == entries
            stored.append(_write_numbers(writer, TIMESTAMP_ID, "timestamp", "uint64", ts))
        stats: dict[int, dict[str, Any]] = {}
        for id_, (spec, positions, column) in columns.items():
            assert spec.id == id_ and spec.role in ("key", "value")
            assert len(positions) == column.length > 0 and positions[-1] < entries
            assert len(positions) == 1 or bool((positions[1:] > positions[:-1]).all())
            stored.append(_write_numbers(writer, id_, "entry", "uint32", positions))
            stored.append(write_column(writer, spec, column))
            size = sum((stored[-1][part] or (0, 0))[1] for part in ("pages", "index", "dictionary"))
            stats[id_] = {"bytes": size, **stored[-1]["zone"]}
        meta = {
            "kind": kind,
            "entries": entries,
            "columns": stored,
            "delete_count": delete_count,
            "reinsert_count": reinsert_count,
        }
        file = writer.finish(meta)
    except BaseException:
        writer.abort()
        raise
    return DeltaMeta(
        kind,
        entries,
        file.size,
        file.footer_crc,
        None if ts is None else int(ts.min()),
        None if ts is None else int(ts.max()),
        int(rowids[0]),
        int(rowids[-1]),
        delete_count,
        reinsert_count,
        {id_: len(positions) for id_, (_, positions, _) in columns.items()},
        stats,
    )


def in_order(kind: str, rowids: U32, ts: U64 | None) -> bool:
    """Whether entries are sorted by rowid, and within a rowid by strictly rising or falling time."""
    if len(rowids) < 2:
        return True
    later = rowids[1:] > rowids[:-1]
    if ts is None:
        return bool(later.all())
    apart = ts[1:] > ts[:-1] if kind == REDO else ts[1:] < ts[:-1]
    return bool((later | ((rowids[1:] == rowids[:-1]) & apart)).all())


def _write_numbers(
    writer: FileWriter, id_: int, role: str, type_name: str, values: npt.NDArray[Any]
) -> dict[str, Any]:
    type_ = ColumnType.parse(type_name)
    raw = np.ascontiguousarray(values, type_.dtype).view(np.uint8)
    column = ColumnBuffers(type_.width, len(values), raw, None, None)
    return write_column(writer, ColumnSpec(id_, type_, False, role), column)


class DeltaFile:
    """An open ``.delta`` file.  Thread safe; works on after the file is unlinked, until ``close``.

    All ranges are of rowids, half-open.  Raises ``NotSupported`` or ``Corruption`` at open or later,
    where the bytes are first read.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        cache: PageCache | None = None,
        *,
        size: int | None = None,
        footer_crc: int | None = None,
    ) -> None:
        self._take(FileReader(fs, path, KIND_DELTA, size=size, footer_crc=footer_crc, cache=cache))

    @classmethod
    def of(cls, file: FileReader) -> DeltaFile:
        """The changes of a container that is open, which is closed with them, or if they are none."""
        changes = cls.__new__(cls)
        changes._take(file)
        return changes

    def _take(self, file: FileReader) -> None:
        self.path = file.path
        self.file = file
        try:
            self._open()
        except BaseException:
            file.close()
            raise

    def _open(self) -> None:
        file, footer = self.file, self.file.footer
        at = file.footer_extent.offset
        self.kind: str = footer.get("kind", "")
        if self.kind not in (REDO, UNDO):
            file.damaged(at, f"footer: a delta file of kind {self.kind!r}")
        self.entry_count = need(file, footer.get("entries"), "entries", 1, MAX_ROWS)
        self.delete_count = need(file, footer.get("delete_count"), "deletes", 0, self.entry_count)
        self.reinsert_count = need(file, footer.get("reinsert_count"), "reinserts", 0, self.entry_count)
        own: dict[int, ColumnReader] = {}
        self._positions: dict[int, ColumnReader] = {}
        self._values: dict[int, ColumnReader] = {}
        for entry in column_entries(file):
            column = ColumnReader(file, entry)
            id_, role = column.spec.id, column.spec.role
            place = own if id_ < 0 else self._positions if role == "entry" else self._values
            if id_ in place:
                file.damaged(at, f"footer: column {id_} is double")
            place[id_] = column
        for id_, width in ((ROWID_ID, 4), (OP_ID, 1), (TIMESTAMP_ID, 8)):
            found = own.get(id_)
            if found is None and id_ != TIMESTAMP_ID:
                file.damaged(at, f"footer: column {id_} is missing")
            if found is not None and (found.width != width or found.rows != self.entry_count):
                file.damaged(at, f"footer: column {id_} is not one of {self.entry_count} entries")
        if self._positions.keys() != self._values.keys():
            file.damaged(at, "footer: updates without entries, or entries without updates")
        for id_, column in self._positions.items():
            if column.width != 4 or column.rows != self._values[id_].rows or not column.rows:
                file.damaged(at, f"footer: column {id_} has other entries than values")
        self._rowids, self._ops, self._ts = own[ROWID_ID], own[OP_ID], own.get(TIMESTAMP_ID)
        self._points: DeltaPoints | None = None
        self._ordinals = {id_: number for number, id_ in enumerate(self._positions)}
        self._piece_rows: dict[int, tuple[list[int], list[int]]] = {}
        self.min_rowid, self.max_rowid = _limits(self._rowids)
        self.min_ts = self.max_ts = None
        if self._ts is not None:
            self.min_ts, self.max_ts = _limits(self._ts)

    @property
    def meta(self) -> DeltaMeta:
        """What ``write_delta_file`` returned."""
        return DeltaMeta(
            self.kind,
            self.entry_count,
            self.file.size,
            self.file.footer_crc,
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
        return {id_: column.rows for id_, column in self._values.items()}

    def spec(self, column_id: int) -> ColumnSpec:
        return self._values[column_id].spec

    def zone(self, column_id: int) -> Zone:
        """Bounds of all values that the file gives a column."""
        return self._values[column_id].zone

    def uncached(self) -> DeltaFile:
        """The same entries, read past the page cache; open as long as this one.  Not for ``points``."""
        other = copy.copy(self)
        other.file = uncached(self.file)
        other._rowids, other._ops = self._rowids.uncached(), self._ops.uncached()
        other._ts = None if self._ts is None else self._ts.uncached()
        other._positions = {id_: column.uncached() for id_, column in self._positions.items()}
        other._values = {id_: column.uncached() for id_, column in self._values.items()}
        return other

    @property
    def points(self) -> DeltaPoints:
        """The same for reads of one row; what it cannot answer (``Elsewhere``), the methods here do."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ------------------------------------------------------------------ reading

    def span(self, row_lower: int, row_upper: int) -> tuple[int, int, U32]:
        """Entries [lower, upper) of the rows, and their rowids."""
        if row_lower > self.max_rowid or row_upper <= self.min_rowid or row_lower >= row_upper:
            return 0, 0, np.empty(0, np.uint32)
        return _span(self._rowids, row_lower, row_upper)

    def entries(self, row_lower: int = 0, row_upper: int = 1 << 32) -> tuple[U32, U64 | None, U8]:
        """``(rowids, timestamps or None, ops)`` of the rows' entries, in file order."""
        lower, upper, rowids = self.span(row_lower, row_upper)
        ts = None if self._ts is None else self._ts.read(lower, upper).values.view("<u8")
        return rowids, ts, self._ops.read(lower, upper).values

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
        first, last, found = _span(positions, lower, upper)
        picked = found - np.uint32(lower)
        ts = None
        if self._ts is not None:
            ts = self._ts.read(lower, upper).values.view("<u8")[picked]
        return rowids[picked], ts, found, values.read(first, last)

    def changes(
        self, row_lower: int = 0, row_upper: int = 1 << 32, wanted: Collection[int] | None = None
    ) -> tuple[U32, U64 | None, U8, dict[int, tuple[U32, ColumnBuffers]]]:
        """The rows' entries, and by column (of ``wanted``, None: all) which of them have a value, and it."""
        lower, upper, rowids = self.span(row_lower, row_upper)
        ts = None if self._ts is None else self._ts.read(lower, upper).values.view("<u8")
        columns: dict[int, tuple[U32, ColumnBuffers]] = {}
        for id_, positions in self._positions.items():
            if lower < upper and (wanted is None or id_ in wanted):
                first, last, found = _span(positions, lower, upper)
                if first < last:
                    columns[id_] = (found - np.uint32(lower), self._values[id_].read(first, last))
        return rowids, ts, self._ops.read(lower, upper).values, columns

    # ------------------------------------------------------------------ what scans lay over

    def parts(self, column_id: int, row_lower: int, row_upper: int) -> list[Updates]:
        """The changes of a column of fixed width, as pieces of a page each, those that rows
        [row_lower, row_upper) may be in.  Decoded once and kept in the page cache.
        """
        positions, values = self._positions[column_id], self._values[column_id]
        return self._pieces(
            1 + self._ordinals[column_id],
            positions,
            row_lower,
            row_upper,
            lambda lower, upper: self._updates_of(positions, values, lower, upper),
        )

    def liveness_parts(self, row_lower: int, row_upper: int) -> list[Updates]:
        """The same of the entries that are no updates: a byte each, 1 for rows that are present."""
        if not self.delete_count and not self.reinsert_count:
            return []
        return self._pieces(0, None, row_lower, row_upper, self._liveness_of)

    def _pieces(
        self,
        number: int,
        positions: ColumnReader | None,
        row_lower: int,
        row_upper: int,
        make: Callable[[int, int], Updates],
    ) -> list[Updates]:
        bounds = self._piece_rows.get(number)
        if bounds is None:
            bounds = self._piece_rows.setdefault(number, self._bounds_of_pieces(positions))
        lows, highs = bounds
        first, end = bisect_left(highs, row_lower), bisect_left(lows, row_upper)
        if first >= end:
            return []
        places = [_PLACES - (number << 32) - k for k in range(first, end)]
        found: list[Updates | None] = self.file.cached(places)
        rows = self.entry_count if positions is None else positions.rows
        for at, part in enumerate(found):
            if part is None:
                lower = (first + at) * PAGE_ROWS
                try:
                    found[at] = part = make(lower, min(lower + PAGE_ROWS, rows))
                except ValueError:
                    self.file.damaged(self._rowids.extent.offset, "rowids do not ascend")
                self.file.remember(places[at], part)
        return found  # type: ignore[return-value]

    def _bounds_of_pieces(self, positions: ColumnReader | None) -> tuple[list[int], list[int]]:
        """The least and the largest rowid of each piece, as far as page indexes tell."""
        lows, highs = _page_bounds(self._rowids)
        if positions is not None and positions.rows != self.entry_count:
            first, last = _page_bounds(positions)
            if last[-1] >= self.entry_count:
                self.file.damaged(positions.index_extent.offset, "the entries of a column do not ascend")
            lows = [lows[entry >> PAGE_BITS] for entry in first]
            highs = [highs[entry >> PAGE_BITS] for entry in last]
        return lows, highs

    def _updates_of(
        self, positions: ColumnReader, values: ColumnReader, lower: int, upper: int
    ) -> Updates:
        if positions.rows == self.entry_count:
            rowids = self._rowids.read(lower, upper).values.view("<u4")
        else:
            found = positions.read(lower, upper).values.view("<u4")
            first, end = int(found[0]), int(found[-1]) + 1
            if end > self.entry_count or bool((found[1:] <= found[:-1]).any()):
                self.file.damaged(positions.extent.offset, "the entries of a column do not ascend")
            rowids = self._rowids.read(first, end).values.view("<u4")[found - np.uint32(first)]
        new = values.read(lower, upper)
        return Updates(rowids, new.values, new.width, new.validity, ascending=True)

    def _liveness_of(self, lower: int, upper: int) -> Updates:
        rowids, ops = self._rowids.read(lower, upper).values.view("<u4"), self._ops.read(lower, upper).values
        keep = ops != OP_UPDATE
        return Updates(rowids[keep], (ops[keep] == OP_ALIVE).view(np.uint8), 1, ascending=True)

    def liveness(self, row_lower: int = 0, row_upper: int = 1 << 32) -> tuple[U32, U64 | None, U8]:
        """The entries that are no updates: ``(rowids, timestamps or None, ops)``."""
        if not self.delete_count and not self.reinsert_count:
            empty = np.empty(0, np.uint32)
            return empty, None if self._ts is None else np.empty(0, np.uint64), np.empty(0, np.uint8)
        rowids, ts, ops = self.entries(row_lower, row_upper)
        keep = ops != OP_UPDATE
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
        if (int(counts[OP_DELETE]), int(counts[OP_ALIVE])) != wanted or counts[0] or len(counts) > 4:
            file.damaged(self._ops.extent.offset, "other operations than the footer counts")
        for column in self._positions.values():
            positions = column.read(0, column.rows).values.view("<u4")
            if positions[-1] >= self.entry_count or bool((positions[1:] <= positions[:-1]).any()):
                file.damaged(column.extent.offset, "the entries of a column do not ascend")


def _limits(column: ColumnReader) -> tuple[int, int]:
    zone = column.zone
    width = column.width
    if zone.minimum is None or zone.maximum is None or {len(zone.minimum), len(zone.maximum)} != {width}:
        column.file.damaged(column.file.footer_extent.offset, "footer: bounds of rowids or times")
    return int.from_bytes(zone.minimum, "little"), int.from_bytes(zone.maximum, "little")


def _page_bounds(column: ColumnReader) -> tuple[list[int], list[int]]:
    """Least and largest value of each page of an ascending uint32 column."""
    if column.page_count == 1:
        low, high = _limits(column)
        if low > high:
            column.file.damaged(column.extent.offset, "the bounds of a page do not ascend")
        return [low], [high]
    index = column.index()
    lows, highs = (
        np.ascontiguousarray(index[end]).view("<u4").ravel().astype(np.int64) for end in ("low", "high")
    )
    if bool((lows > highs).any()) or bool((lows[1:] < highs[:-1]).any()):
        column.file.damaged(column.index_extent.offset, "the bounds of pages do not ascend")
    return lows.tolist(), highs.tolist()


def _span(column: ColumnReader, lower: int, upper: int) -> tuple[int, int, U32]:
    """Of an ascending uint32 column: the cells with values in [lower, upper), and those values."""
    if column.page_count == 1:
        first_page, end_page = 0, 1
    else:
        index = column.index()
        lows = np.ascontiguousarray(index["low"]).view("<u4").ravel()
        highs = np.ascontiguousarray(index["high"]).view("<u4").ravel()
        first_page = int(np.searchsorted(highs, lower))
        end_page = int(np.searchsorted(lows, upper))
    if first_page >= end_page:
        return 0, 0, np.empty(0, np.uint32)
    base = first_page * PAGE_ROWS
    end = min(end_page * PAGE_ROWS, column.rows)
    values: Any = column.read(base, end).values.view("<u4")
    begin = int(np.searchsorted(values, lower))
    stop = int(np.searchsorted(values, upper))
    found = values[begin:stop]
    if len(found) and not lower <= int(found.min()) <= int(found.max()) < upper:
        # Callers index with these: they must hold whatever order the file keeps.
        column.file.damaged(column.extent.offset, "rowids or entries do not ascend")
    return base + begin, base + stop, found
