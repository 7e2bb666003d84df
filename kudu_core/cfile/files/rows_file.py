"""Reading ``.rows`` files: the base of a DiskRowSet, or the columns that a compaction has rewritten.

    header | columns | key index | bloom | footer | trailer

Rows lie in key order; a row's address is its ordinal, the *rowid*.  The key index holds the first
encoded key of every mini-block (1,024 rows).  Keys are found through it and the key columns
themselves; only a composite key with a string that has no dictionary is stored once more, as
encoded keys with shared prefixes.  A file of rewritten columns has neither keys nor bloom.
Layout: docs/format.md, "Rows files".
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.keys import keys as key_kernel
from kudu_core.cfile.columns.asking import ask_rows
from kudu_core.cfile.columns.column_list import column_list
from kudu_core.cfile.columns.column_readers import ColumnReaders
from kudu_core.cfile.columns.pages import need, need_extent
from kudu_core.cfile.columns.specs import MAX_ROWS
from kudu_core.cfile.columns.statistics import FileStatistics, StatisticsBlock, StatisticsRef, spans_of
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.files.open_file import OpenFile
from kudu_core.cfile.files.rows_format import INSERT_TIME_ID, KEYS_ID, RowsMeta, rows_meta, statistics_of
from kudu_core.cfile.pages.container import CONTAINER_ROWS, SECTION_STATISTICS, Extent, FileMeta
from kudu_core.cfile.pages.page import PAGE_ROWS
from kudu_core.cfile.readers.key_reader import KeyReader
from kudu_core.cfile.readers.key_search import KeySearch
from kudu_core.cfile.readers.point_reader import open_points
from kudu_core.cfile.readers.scan_reader import ScanReader
from kudu_core.common.rows.rowblock import ColumnBuffers

if TYPE_CHECKING:
    from kudu_core._ext.row.file import PointFile
    from kudu_core.cfile.columns.reader import ColumnReader
    from kudu_core.cfile.columns.zone_table import ZoneTable

    U8 = npt.NDArray[np.uint8]
    I64 = npt.NDArray[np.int64]
    U64 = npt.NDArray[np.uint64]

# PAGE_ROWS too: scans are planned by pages.
__all__ = ["PAGE_ROWS", "RowsFile"]

_ROWS_PER_PROBE = 64
"""With fewer rows a probe, decoding the mini-blocks costs less than looking at cells."""


def _check_rows(rows: int, column: ColumnReader) -> None:
    if column.rows != rows:
        file = column.file
        file.damaged(
            file.footer_extent.offset,
            f"footer: column {column.spec.id} has {column.rows} rows, the file {rows}",
        )


class RowsFile(OpenFile):
    """An open ``.rows`` file.  Thread safe; reads through the cache, one system call per column and
    run of missing pages.  Works on after the file is unlinked, until ``close``.

    Raises ``NotSupported`` or ``Corruption`` at open or later, where the bytes are first read.
    """

    KIND = CONTAINER_ROWS

    def _open(self) -> None:
        file, footer = self.file, self.file.footer
        at = file.footer_extent.offset
        self.rows = need(file, footer.get("rows"), "rows", 0, MAX_ROWS)
        self._list = column_list(file)
        numbers = {id_: number for number, id_ in enumerate(self._list.ids)}
        if len(numbers) != len(self._list):
            file.damaged(at, "footer: a column is double")
        check = partial(_check_rows, self.rows)
        self.columns = ColumnReaders.of_list(file, self._list, numbers, check, self._types)
        key_ids = footer.get("key_ids")
        if not isinstance(key_ids, list) or not all(
            type(id_) is int and id_ in self.columns and self.columns[id_].spec.type.is_key_type
            for id_ in key_ids
        ):
            file.damaged(at, "footer: a key column is missing, or of a type that no key has")
        self.key_ids: tuple[int, ...] = tuple(key_ids)
        self._keys_column = self.columns.get(KEYS_ID)
        self._insert_column = self.columns.get(INSERT_TIME_ID)
        for column_, width in ((self._keys_column, 0), (self._insert_column, 8)):
            if column_ is not None and column_.spec.type.width != width:
                file.damaged(at, "footer: the encoded keys or insert times are of another type")
        self._key_index_extent = self._bloom_extent = self._statistics_extent = None
        if self.key_ids:
            self._key_index_extent = need_extent(file, footer.get("key_index"), "key index")
        if footer.get("bloom") is not None:
            self._bloom_extent = need_extent(file, footer["bloom"], "bloom")
        if footer.get("statistics") is not None:
            self._statistics_extent = need_extent(file, footer["statistics"], "statistics")
        try:
            self.min_key = bytes.fromhex(footer["min_key"])
            self.max_key = bytes.fromhex(footer["max_key"])
        except (KeyError, TypeError, ValueError):
            file.damaged(at, "footer: the bounds of the keys")
        self._keys = KeyReader(
            file,
            self.rows,
            [self.columns[id_] for id_ in self.key_ids],
            self._keys_column,
            self._key_index_extent,
            self._bloom_extent,
        )
        self._replacing: list[RowsFile] = []
        self._points: PointFile | None = None
        self._search: KeySearch | None = None
        self.scans = ScanReader(self.columns)

    def replace_columns(self, other: RowsFile, column_ids: Sequence[int]) -> None:
        """Read these columns from a file of rewritten ones, which is closed with this one.

        Before the first read.
        """
        unknown = any(id_ not in other.columns or id_ in self.key_ids for id_ in column_ids)
        if other.rows != self.rows or unknown:
            other.file.damaged(other.file.footer_extent.offset, "footer: other rows or columns than expected")
        assert self._points is None
        self._replacing.append(other)
        self.columns.replace(column_ids, other.columns)

    @property
    def column_ids(self) -> tuple[int, ...]:
        """The columns that a table knows."""
        return tuple(id_ for id_ in self.columns if id_ >= 0)

    def uncached(self) -> Self:
        """The same columns and keys, read past the page cache; open as long as this one.

        For ``read``, ``keys`` and insert times; what reads single cells caches all the same.
        """
        other = copy.copy(self)
        other.columns = self.columns.uncached()
        if self._insert_column is not None:
            other._insert_column = other.columns[INSERT_TIME_ID]
        other._keys = self._keys.uncached()
        return other

    @property
    def points(self) -> PointFile:
        """The same file for point reads; where it raises ``NeedsGeneralPath``, the methods here answer."""
        points = self._points
        if points is None:
            points = self._points = open_points(self.file, self.rows, self.columns, self._keys)
        return points

    @property
    def search(self) -> KeySearch | None:
        """Searches in the key columns; None for keys that are not numbers or words, and for no rows.

        ``PageError`` where the key index holds no keys: damage that the general path names.
        """
        search = self._search
        if search is None and self._keys.by_number and self.key_ids and self.rows:
            search = self._search = KeySearch(self._keys)
        return search

    def let_go(self) -> None:
        """See ``FileReader.let_go``.  Point reads end; scans that have begun go on."""
        self.file.let_go()
        for other in self._replacing:
            other.let_go()
        if self._points is not None:
            self._points.close()

    def close(self) -> None:
        """Idempotent; reads after it raise ``Closed``."""
        self.let_go()
        self.file.close()
        for other in self._replacing:
            other.close()
        self.scans.close()

    @property
    def meta(self) -> RowsMeta:
        """What ``write_rows_file`` returned."""
        return rows_meta(
            self.rows,
            None if self._insert_column is None else self._insert_column.zone,
            FileMeta(self.file.size, self.file.footer_crc, self.file.tail),
            (self.min_key, self.max_key),
            self._file_statistics(),
            self.bloom_bytes,
            self.key_bytes,
        )

    @property
    def bloom_bytes(self) -> int:
        """Of the bloom in the file."""
        return 0 if self._bloom_extent is None else self._bloom_extent.length

    @property
    def key_bytes(self) -> int:
        """Of the encoded keys in the file, and their index."""
        index, keys = self._key_index_extent, self._keys_column
        return (0 if index is None else index.length) + (0 if keys is None else keys.stored_bytes)

    def _file_statistics(self) -> FileStatistics:
        extent, block = self._statistics_extent, self.statistics()
        if extent is None:
            return block
        crc = int.from_bytes(self.file.read_at(extent.offset, 4), "little")
        return StatisticsRef(*extent, crc, spans_of(block.column_ids))

    # ------------------------------------------------------------------ columns

    def has(self, column_id: int) -> bool:
        """Whether the file has a column; not said of those that no table knows, as of encoded keys.

        Of a wide table ``column_ids``, which is a tuple, would be walked through.
        """
        return column_id in self.columns

    def read(self, column_id: int, lower: int, upper: int) -> ColumnBuffers:
        """The values of rows [lower, upper) of a column."""
        return self.columns[column_id].read(lower, upper)

    def read_columns(
        self, column_ids: Sequence[int], lower: int, upper: int, wanted: U8 | None = None
    ) -> list[ColumnBuffers]:
        """``read`` of several columns: of thousands in few steps.

        ``wanted``: (upper - lower,) uint8, 1 for the rows that are read; None: all.
        """
        found = self.scans.read(self.rows, column_ids, lower, upper, wanted)
        result = []
        for column_id, made in zip(column_ids, found, strict=True):
            if made is None:
                made = self.read(column_id, lower, upper)
                made = made if wanted is None else made.take(np.flatnonzero(wanted))
            result.append(made)
        return result

    def dictionary(self, column_id: int) -> ColumnBuffers | None:
        """The sorted words of a column, or None."""
        column = self.columns[column_id]
        return None if column.words is None else column.dictionary()

    def cells(self, column_ids: Sequence[int], rows: I64) -> list[ColumnBuffers]:
        """The values of single rows in some columns, in the order asked."""
        if self.file.ask is not None:
            ask_rows([self.columns[column_id] for column_id in column_ids], rows)
        try:
            found = self.points.cells(column_ids, np.ascontiguousarray(rows, np.int64))
        except (NeedsGeneralPath, PageError, IndexError):
            found = [None] * len(column_ids)
        out = []
        for column_id, buffers in zip(column_ids, found, strict=True):
            column = self.columns[column_id]
            if buffers is None:
                # Whatever it was, the general path gives the answer or the error.
                out.append(column.cells(rows))
            else:
                out.append(ColumnBuffers(column.spec.type.width, len(rows), *buffers))
        return out

    def zone(self, column_id: int) -> Zone:
        """Bounds and counts of the whole column."""
        return self.columns[column_id].zone

    def zones(self, column_id: int) -> list[Zone]:
        """Bounds and counts of every page of the column."""
        return self.columns[column_id].zones()

    def zone_table(self, column_id: int) -> ZoneTable:
        """The bounds of every page as arrays."""
        return self.columns[column_id].zone_table()

    def insert_times(self, lower: int, upper: int) -> U64 | None:
        """When rows [lower, upper) were inserted; None where the manifest knows it."""
        if self._insert_column is None:
            return None
        return self._insert_column.read(lower, upper).values.view("<u8")

    def insert_times_of(self, rows: I64) -> U64 | None:
        """Like ``insert_times``, for single rows."""
        if self._insert_column is None:
            return None
        return self._insert_column.cells(rows).values.view("<u8")

    # ------------------------------------------------------------------ keys

    @property
    def key_page_rows(self) -> int:
        """Rows of the smallest page that holds keys."""
        return self._keys.page_rows

    def may_contain(self, hashes: U64) -> npt.NDArray[np.bool_]:
        """Which keys the bloom does not exclude; all, where the file has none."""
        return self._keys.may_contain(hashes)

    def find(self, data: U8, offsets: I64) -> I64:
        """The rowid of each probed encoded key, or -1.

        Probes may come in any order.  Each mini-block that may hold one is decoded once.
        """
        return self._keys.find(data, offsets)

    def locate(self, data: U8, offsets: I64, hashes: U64) -> I64:
        """``find`` where the bloom lets a key pass, -1 elsewhere.

        A few probes are looked for cell by cell; many in mini-blocks that are decoded.
        """
        count = len(hashes)
        few = count * _ROWS_PER_PROBE <= self.rows
        if few and self.file.ask is None:  # it reads page after page
            try:
                return self.points.find_many(data, offsets, hashes)
            except (NeedsGeneralPath, PageError):
                pass
        found = np.full(count, -1, np.int64)
        if few and self._keys.bloom_once_near() is None:  # the pages of keys come sooner than it
            maybe = np.arange(count)
        else:
            maybe = np.flatnonzero(self.may_contain(hashes))
        if len(maybe):
            if len(maybe) < count:
                data, offsets = key_kernel.take(data, offsets, maybe)
            found[maybe] = self.find(data, offsets)
        return found

    def lower_bound(self, key: bytes) -> int:
        """How many rows have a smaller key; ``key`` may be a prefix."""
        try:
            found = None if self.search is None else self.search.lower_bound(key)
        except (PageError, ValueError):
            found = None  # whatever it was, the general path gives the answer or the error
        return self._keys.lower_bound(key) if found is None else found

    def keys(self, lower: int, upper: int) -> tuple[U8, I64]:
        """The encoded keys of rows [lower, upper): (data, offsets)."""
        return self._keys.keys(lower, upper)

    def key_index(self) -> tuple[U8, I64]:
        """The first encoded key of every mini-block: (data, offsets)."""
        return self._keys.key_index()

    def split_keys(self, target_rows: int) -> list[bytes]:
        """Keys that cut the rows into pieces of about ``target_rows`` (the first piece begins open)."""
        return self._keys.split_keys(target_rows)

    # ------------------------------------------------------------------ verification, report

    def statistics(self) -> StatisticsBlock:
        """What the footer says of the columns, as a manifest would have it of this file alone."""
        return statistics_of(self.rows, self._list)

    def _verify_statistics(self) -> None:
        """The section of statistics says what the footer does."""
        extent = self._statistics_extent
        if extent is None:
            return
        try:
            told = self.statistics().data
        except struct.error:
            told = b""  # counts that no file of ours has
        if bytes(self.file.section(extent, SECTION_STATISTICS)) != told:
            self.file.damaged(extent.offset, "the statistics of columns are not those of the footer")

    def layout(self) -> dict[int, dict[str, Any]]:
        """How each column is stored, by id; see ``ColumnReader.layout``.  Reads the whole file."""
        return {id_: column.layout() for id_, column in self.columns.items()}

    def verify(self) -> None:
        """Read and check every byte, past the cache; raises ``Corruption`` at the first damage."""
        extents: list[Extent] = []
        for column in self.columns.own().values():
            extents += column.extents()
            column.verify()
        sections = (self._key_index_extent, self._bloom_extent, self._statistics_extent)
        extents += [extent for extent in sections if extent is not None]
        self._keys.verify(self.min_key, self.max_key)
        self._verify_statistics()
        self.file.verify_layout(extents)
        for other in self._replacing:
            other.verify()
