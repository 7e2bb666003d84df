"""``.rows`` files: the base of a DiskRowSet, or the columns that a compaction has rewritten.

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from kudu_core._ext.base.crc32c import crc32c
from kudu_core._ext.base.status import Elsewhere, PageError
from kudu_core._ext.index import bloom as bloom_kernel
from kudu_core._ext.keys import keys as key_kernel
from kudu_core.cfile.columns.pages import column_entries, need, need_extent
from kudu_core.cfile.columns.reader import ColumnReader
from kudu_core.cfile.columns.specs import KEY_INDEX_HEAD, MAX_ROWS, ColumnSpec, check_rows
from kudu_core.cfile.columns.statistics import (
    INLINE_BYTES,
    FileStatistics,
    StatisticsBlock,
    StatisticsRef,
    pack,
    runs_of,
)
from kudu_core.cfile.columns.writer import write_column
from kudu_core.cfile.columns.zone import Zone
from kudu_core.cfile.pages.container import (
    KIND_ROWS,
    SECTION_BLOOM,
    SECTION_FRAME,
    SECTION_KEY_INDEX,
    SECTION_STATISTICS,
    Extent,
    FileMeta,
    FileReader,
    FileWriter,
)
from kudu_core.cfile.pages.page import BLOCK_ROWS, PAGE_ROWS
from kudu_core.cfile.readers.key_reader import KeyReader
from kudu_core.cfile.readers.key_search import KeySearch
from kudu_core.cfile.readers.point_reader import open_points
from kudu_core.cfile.readers.scan_reader import ScanReader
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InvalidArgument

if TYPE_CHECKING:
    from kudu_core._ext.row.file import PointFile
    from kudu_core.cfile.columns.zone_table import ZoneTable
    from kudu_core.cfile.pages.page_cache import PageCache
    from kudu_core.fs.api import FileSystem

    U8 = npt.NDArray[np.uint8]
    I64 = npt.NDArray[np.int64]
    U64 = npt.NDArray[np.uint64]

# PAGE_ROWS too: scans are planned by pages.
__all__ = ["PAGE_ROWS", "EncodedKeys", "RowsFile", "RowsMeta", "write_rows_file"]

_ROWS_PER_PROBE = 64
"""With fewer rows a probe, decoding the mini-blocks costs less than looking at cells."""

KEYS_ID = -1
INSERT_TIME_ID = -2


class EncodedKeys(Protocol):
    """Keys in their order-preserving encoding: ``common.rows.keys`` makes them."""

    @property
    def data(self) -> U8: ...
    @property
    def offsets(self) -> I64: ...


@dataclass(frozen=True, slots=True)
class RowsMeta:
    """What a manifest records of a ``.rows`` file.

    ``statistics``: of the columns, or where in the file they are.
    ``min_insert``, ``max_insert``: of the insert-time column, None where the file has none.
    """

    rows: int
    size: int
    footer_crc: int
    min_key: bytes
    max_key: bytes
    statistics: FileStatistics
    bloom_bytes: int
    key_bytes: int
    min_insert: int | None
    max_insert: int | None


def write_rows_file(
    fs: FileSystem,
    path: str,
    *,
    columns: Iterable[tuple[ColumnSpec, ColumnBuffers]],
    key_ids: Sequence[int],
    keys: EncodedKeys | None,
    hashes: U64 | None = None,
    insert_times: U64 | None = None,
    bloom_bits_per_key: int = 12,
    prefix_key: bool | None = None,
    file_id: bytes | None = None,
    durable: bool = True,
) -> RowsMeta:
    """Write and sync a file of rows that lie in memory in key order; the directory is the caller's.

    Parameters
    ----------
    columns
        All of one length, taken one after the other, each when it is written.  Key columns are never
        delta-encoded, but for the last.
    keys
        Their encoded keys, strictly ascending; None for a file of rewritten columns only
        (``key_ids`` is then empty).
    hashes : (rows,) uint64, or None for no bloom
    insert_times : (rows,) uint64, or None: constant or the record's, which the manifest knows
    prefix_key
        Whether encoded keys are stored besides the columns; None: where needed, see above.
    durable
        False: the file is not synced, for one that a crash may take.

    An exception leaves no file behind.
    """
    rows = -1 if keys is None else len(keys.offsets) - 1
    assert (keys is None) == (not key_ids)
    if keys is not None and rows:
        assert key_kernel.order(keys.data, keys.offsets) == 2, "rows are not in strictly ascending key order"
    writer = FileWriter(fs, path, KIND_ROWS, file_id=file_id)
    try:
        entries: list[dict[str, Any]] = []
        for spec, column in columns:
            rows = column.length if rows < 0 else rows
            assert column.length == rows
            check_rows(path, rows)
            delta = spec.id not in key_ids or spec.id == key_ids[-1]
            entries.append(write_column(writer, spec, column, allow_delta=delta))
        by_id = {entry["id"]: entry for entry in entries}
        key_index = bloom = None
        min_key = max_key = b""
        key_bytes = 0
        if keys is not None:
            if prefix_key is None:
                prefix_key = len(key_ids) > 1 and any(
                    by_id[id_]["words"] is None and by_id[id_]["type"] in ("string", "binary")
                    for id_ in key_ids
                )
            if prefix_key:
                entries.append(_write_keys(writer, keys))
                key_bytes += _stored_bytes(entries[-1])
            key_index = _write_key_index(writer, keys)
            key_bytes += key_index.length
            if rows:
                min_key, max_key = _key(keys, 0), _key(keys, rows - 1)
        if insert_times is not None:
            assert len(insert_times) == rows
            entries.append(_write_insert_times(writer, insert_times))
        if hashes is not None and bloom_bits_per_key:
            assert len(hashes) == rows
            bloom = writer.add_section(SECTION_BLOOM, [bloom_kernel.build(hashes, bloom_bits_per_key)])
        block = _statistics(rows, entries)
        statistics = _write_statistics(writer, block) if len(block.data) > INLINE_BYTES else block
        footer: dict[str, Any] = {}
        if isinstance(statistics, StatisticsRef):
            footer["statistics"] = [statistics.offset, statistics.length]
        file = writer.finish(
            {
                **footer,
                "rows": rows,
                "columns": entries,
                "key_ids": list(key_ids),
                "key_index": None if key_index is None else list(key_index),
                "bloom": None if bloom is None else list(bloom),
                "min_key": min_key.hex(),
                "max_key": max_key.hex(),
            },
            sync=durable,
        )
    except BaseException:
        writer.abort()
        raise
    bloom_bytes = 0 if bloom is None else bloom.length
    return _meta(rows, entries, file, (min_key, max_key), statistics, bloom_bytes, key_bytes)


def _meta(
    rows: int,
    entries: Sequence[dict[str, Any]],
    file: FileMeta,
    bounds: tuple[bytes, bytes],
    statistics: FileStatistics,
    bloom_bytes: int,
    key_bytes: int,
) -> RowsMeta:
    inserts = next((entry["zone"] for entry in entries if entry["role"] == "insert_time"), None)
    times: tuple[int | None, int | None] = (None, None)
    if inserts is not None and rows:
        first, last = (int.from_bytes(bytes.fromhex(inserts[end]), "little") for end in ("min", "max"))
        times = first, last
    return RowsMeta(
        rows,
        file.size,
        file.footer_crc,
        *bounds,
        statistics,
        bloom_bytes,
        key_bytes,
        *times,
    )


def _statistics(rows: int, entries: Sequence[dict[str, Any]]) -> StatisticsBlock:
    """Of the columns that a schema knows."""
    known = {entry["id"]: entry for entry in entries if entry["id"] >= 0}
    return pack(rows, {id_: (_stored_bytes(e), Zone.from_json(e["zone"])) for id_, e in known.items()})


def _write_statistics(writer: FileWriter, block: StatisticsBlock) -> StatisticsRef:
    length = SECTION_FRAME.size + len(block.data)
    rest = SECTION_FRAME.pack(0, SECTION_STATISTICS, 0, len(block.data))[4:]
    crc = crc32c(block.data, crc32c(rest, writer.place_crc(SECTION_STATISTICS)))
    extent = writer.add_section(SECTION_STATISTICS, [block.data])
    assert extent.length == length
    return StatisticsRef(extent.offset, length, crc, runs_of(block.column_ids))


def _stored_bytes(entry: dict[str, Any]) -> int:
    extents = (entry["pages"], entry["index"], entry["dictionary"] or (0, 0))
    return sum(extent[1] for extent in extents)


def _key(keys: EncodedKeys, row: int) -> bytes:
    return keys.data[int(keys.offsets[row]) : int(keys.offsets[row + 1])].tobytes()


def _write_keys(writer: FileWriter, keys: EncodedKeys) -> dict[str, Any]:
    spec = ColumnSpec(KEYS_ID, ColumnType.parse("binary"), False, "keys", encoding="prefix")
    base = int(keys.offsets[0])
    if int(keys.offsets[-1]) - base > 0x7FFFFFFF:
        raise InvalidArgument("the keys of one rowset exceed 2 GiB")
    offsets = (keys.offsets - base).astype(np.int32)
    data = np.ascontiguousarray(keys.data[base : int(keys.offsets[-1])])
    return write_column(writer, spec, ColumnBuffers(0, len(offsets) - 1, data, offsets, None))


def _write_key_index(writer: FileWriter, keys: EncodedKeys) -> Extent:
    firsts = np.arange(0, len(keys.offsets) - 1, BLOCK_ROWS, dtype=np.int64)
    data, offsets = key_kernel.take(keys.data, keys.offsets, firsts)
    head = KEY_INDEX_HEAD.pack(len(firsts), 0)
    return writer.add_section(SECTION_KEY_INDEX, [head, offsets.astype("<u8").tobytes(), data])


def _write_insert_times(writer: FileWriter, insert_times: U64) -> dict[str, Any]:
    spec = ColumnSpec(INSERT_TIME_ID, ColumnType.parse("uint64"), False, "insert_time")
    values = np.ascontiguousarray(insert_times, "<u8").view(np.uint8)
    column = ColumnBuffers(8, len(insert_times), values, None, None)
    return write_column(writer, spec, column, allow_delta=False)  # `get` reads single cells


class RowsFile:
    """An open ``.rows`` file.  Thread safe; reads through the cache, one system call per column and
    run of missing pages.  Works on after the file is unlinked, until ``close``.

    Raises ``NotSupported`` or ``Corruption`` at open or later, where the bytes are first read.
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
        self._take(FileReader(fs, path, KIND_ROWS, size=size, footer_crc=footer_crc, cache=cache))

    @classmethod
    def of(cls, file: FileReader) -> RowsFile:
        """The rows of a container that is open, which is closed with them, or if they are none."""
        rows = cls.__new__(cls)
        rows._take(file)
        return rows

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
        self.rows = need(file, footer.get("rows"), "rows", 0, MAX_ROWS)
        self.columns: dict[int, ColumnReader] = {}
        for entry in column_entries(file):
            column = ColumnReader(file, entry)
            if column.rows != self.rows or column.spec.id in self.columns:
                file.damaged(at, f"footer: column {column.spec.id} is double or has {column.rows} rows")
            self.columns[column.spec.id] = column
        key_ids = footer.get("key_ids")
        if not isinstance(key_ids, list) or not all(
            type(id_) is int and id_ in self.columns and self.columns[id_].spec.type.is_key_type
            for id_ in key_ids
        ):
            file.damaged(at, "footer: a key column is missing, or of a type that no key has")
        self.key_ids: tuple[int, ...] = tuple(key_ids)
        self.column_ids: tuple[int, ...] = tuple(id_ for id_ in self.columns if id_ >= 0)
        self._keys_column = self.columns.get(KEYS_ID)
        self._insert_column = self.columns.get(INSERT_TIME_ID)
        for column_, width in ((self._keys_column, 0), (self._insert_column, 8)):
            if column_ is not None and column_.width != width:
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
        self._own = tuple(self.columns.values())
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
        self.columns.update((id_, other.columns[id_]) for id_ in column_ids)
        self.column_ids = tuple(id_ for id_ in self.columns if id_ >= 0)

    def uncached(self) -> RowsFile:
        """The same columns and keys, read past the page cache; open as long as this one.

        For ``read``, ``read_ranges``, ``keys`` and insert times; what reads single cells caches all the same.
        """
        other = copy.copy(self)
        other.columns = {id_: column.uncached() for id_, column in self.columns.items()}
        if self._insert_column is not None:
            other._insert_column = other.columns[INSERT_TIME_ID]
        other._keys = self._keys.uncached()
        return other

    @property
    def points(self) -> PointFile:
        """The same file for point reads; what it cannot answer (``Elsewhere``), the methods here do."""
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def meta(self) -> RowsMeta:
        """What ``write_rows_file`` returned."""
        entries = column_entries(self.file)
        index, bloom = self._key_index_extent, self._bloom_extent
        key_bytes = 0 if index is None else index.length
        if self._keys_column is not None:
            key_bytes += self._keys_column.stored_bytes
        return _meta(
            self.rows,
            entries,
            FileMeta(self.file.size, self.file.footer_crc),
            (self.min_key, self.max_key),
            self._file_statistics(),
            0 if bloom is None else bloom.length,
            key_bytes,
        )

    def _file_statistics(self) -> FileStatistics:
        extent, block = self._statistics_extent, self.statistics()
        if extent is None:
            return block
        crc = int.from_bytes(self.file.read_at(extent.offset, 4), "little")
        return StatisticsRef(*extent, crc, runs_of(block.column_ids))

    # ------------------------------------------------------------------ columns

    def read(self, column_id: int, lower: int, upper: int) -> ColumnBuffers:
        """The values of rows [lower, upper) of a column."""
        return self.columns[column_id].read(lower, upper)

    def read_ranges(self, column_id: int, ranges: I64) -> ColumnBuffers:
        """The values of several ranges of rows, (m, 2), ascending, one after the other."""
        return self.columns[column_id].read_ranges(ranges.tolist())

    def read_dictionary(
        self, column_id: int, lower: int, upper: int
    ) -> tuple[U8, int, U8 | None, ColumnBuffers] | None:
        """Codes (raw), their width, validity, and the sorted words; None where there is no dictionary.

        Every code, of null cells too, is an ordinal of the words.
        """
        column = self.columns[column_id]
        if column.words is None:
            return None
        codes = column.read_stored(lower, upper)
        return codes.values, codes.width, codes.validity, column.dictionary()

    def dictionary(self, column_id: int) -> ColumnBuffers | None:
        """The sorted words of a column, or None."""
        column = self.columns[column_id]
        return None if column.words is None else column.dictionary()

    def cells(self, column_ids: Sequence[int], rows: I64) -> list[ColumnBuffers]:
        """The values of single rows in some columns, in the order asked."""
        try:
            found = self.points.cells(column_ids, np.ascontiguousarray(rows, np.int64))
        except (Elsewhere, PageError, IndexError):
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
        """Bounds and counts of every page of 16,384 rows."""
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
        if count * _ROWS_PER_PROBE <= self.rows:
            try:
                return self.points.find_many(data, offsets, hashes)
            except (Elsewhere, PageError):
                pass
        found = np.full(count, -1, np.int64)
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
        known = {c.spec.id: (c.stored_bytes, c.zone) for c in self._own if c.spec.id >= 0}
        return pack(self.rows, known)

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
        for column in self._own:
            extents += column.extents()
            column.verify()
        sections = (self._key_index_extent, self._bloom_extent, self._statistics_extent)
        extents += [extent for extent in sections if extent is not None]
        self._keys.verify(self.min_key, self.max_key)
        self._verify_statistics()
        self.file.verify_layout(extents)
        for other in self._replacing:
            other.verify()
