"""Data files whose header, footer or trailer is damaged, or whose length is another: opened all the same.

What a footer says is known twice.  Of a file of rows a manifest has the count of rows, and of each column
the bytes that it takes and its zone; a file holds its columns one after the other, in the order of their
ids, each with its page index at its end.  So it is computed where each page index must lie, and its
checksum says whether it lies there.  A header is needed for the file's id alone, which is part of every
checksum: where the footer is sound, its own checksum gives the id's share back.

Nothing is guessed: a file that is sound and another one than its manifest names is refused, and so is one
of which a column has another zone, or the keys other bounds, than the manifest says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kudu_core._ext.base.crc32c import crc32c
from kudu_core.cfile.columns import zone as zones
from kudu_core.cfile.columns.column_list import ColumnEntry, ColumnList, pack_entries
from kudu_core.cfile.columns.reader import ColumnReader
from kudu_core.cfile.columns.specs import DICTIONARY_HEAD, INDEX_ENTRY, INDEX_HEAD, zone_width
from kudu_core.cfile.columns.statistics import FileStatistics, StatisticsBlock, StatisticsRef
from kudu_core.cfile.files.delta_file import DeltaFile
from kudu_core.cfile.files.rows_file import RowsFile
from kudu_core.cfile.pages.container import (
    CONTAINER_DELTA,
    CONTAINER_ROWS,
    CRC_PLACE,
    FOOTER_LIMIT_BYTES,
    HEADER,
    SECTION_CODEC_DICTIONARY,
    SECTION_DICTIONARY,
    SECTION_FOOTER,
    SECTION_FRAME,
    SECTION_KEY_INDEX,
    SECTION_PAGE_INDEX,
    SECTION_STATISTICS,
    Extent,
    FileReader,
)
from kudu_core.cfile.pages.footer import split_footer
from kudu_core.cfile.pages.page import PAGE_BITS
from kudu_core.common.format.members import BROKEN
from kudu_core.errors import Corruption

if TYPE_CHECKING:
    from kudu_core.cfile.columns.zone import Zone
    from kudu_core.common.schema.schema import StoredColumn
    from kudu_core.common.types.types import ColumnType
    from kudu_core.fs.api import FileSystem

_WINDOW_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class KnownRows:
    """What a manifest says of a file of rows."""

    size: int
    footer_crc: int
    rows: int
    statistics: FileStatistics | None
    key_ids: tuple[int, ...] = ()
    """Empty: a file of rewritten columns."""
    min_key: bytes = b""
    max_key: bytes = b""


def salvage_rows(
    fs: FileSystem,
    path: str,
    known: KnownRows,
    columns: Mapping[int, StoredColumn],
    types: Mapping[int, ColumnType],
) -> tuple[RowsFile, frozenset[int]]:
    """A file of rows that does not open by itself, and those of its columns that cannot be read at all.

    ``columns``: those of the schema, by id; others that the file has are left out.  ``types``: of those that
    may lie in it as another type, which its footer tells alone.

    Raises
    ------
    Corruption
        It cannot be read, or it is another file than ``known`` says.
    """
    file = _DamagedFile(fs, path, CONTAINER_ROWS, known.size, known.footer_crc)
    try:
        if file.footer:
            return RowsFile.of(file, types), frozenset()
        of_one_type = {i: column for i, column in columns.items() if i not in types}
        file.footer, entries, lost = _rebuilt(file, known, of_one_type)
        lost |= types.keys()
        file.footer_rest = memoryview(pack_entries(entries))
        made = RowsFile.of(file)
        _check_keys(made, known)
    except BaseException:
        file.close()
        raise
    return made, lost


def salvage_delta(
    fs: FileSystem, path: str, size: int, footer_crc: int, types: Mapping[int, ColumnType]
) -> DeltaFile:
    """A file of changes that does not open by itself: its footer must be there.  ``types``: as above.

    Raises
    ------
    Corruption
        It cannot be read, or it is another file.
    """
    file = _DamagedFile(fs, path, CONTAINER_DELTA, size, footer_crc)
    try:
        if not file.footer:
            file.damaged(0, "its footer cannot be read")
        return DeltaFile.of(file, types)
    except BaseException:
        file.close()
        raise


class _DamagedFile(FileReader):
    """A container that is read without its trailer, or without its header.  ``footer`` is empty where it
    cannot be read."""

    def __init__(self, fs: FileSystem, path: str, kind: int, size: int, footer_crc: int) -> None:
        self.path = path
        self.cache = None
        self.closed = False
        self._file = fs.open_read(path)
        self._cache_token = -1
        self._attached = None
        self.last_dictionary = None
        self._copies = {}
        self._ids: list[int] = []
        """What the file's id may come to in checksums."""
        try:
            self.size = self._file.size()
            self.footer_extent, self.footer_crc, self.footer = Extent(self.size, 0), footer_crc, {}
            self.footer_rest = memoryview(b"")
            place = self._find_footer(min(self.size, size))
            proven = self._find_ids(kind, place)
            if place is not None:
                self._take_footer(place, proven=proven)
            else:
                self._id_crc = self._ids[0]
                self._refuse_another()
        except BaseException:
            self._file.close()
            raise

    def ids(self) -> Iterable[None]:
        """Try one id after the other."""
        for found in self._ids:
            self._id_crc = found
            yield

    def holds(self, extent: Extent, kind: int) -> bool:
        """Whether a sound section of that kind lies there."""
        try:
            self.section(extent, kind)
        except Corruption:
            return False
        return True

    def _find_footer(self, end: int) -> Extent | None:
        """Where the frame lies that has the checksum and the kind of the footer."""
        wanted = SECTION_FRAME.pack(self.footer_crc, SECTION_FOOTER, 0, 0)[:8]
        upper = end
        while upper > 0:
            lower = max(0, upper - _WINDOW_BYTES)
            data = self.read_at(lower, min(upper + len(wanted) - 1, self.size) - lower)
            at = data.rfind(wanted)
            while at >= 0:
                offset = lower + at
                if offset + SECTION_FRAME.size <= self.size:
                    length = SECTION_FRAME.unpack(self.read_at(offset, SECTION_FRAME.size))[3]
                    if length <= FOOTER_LIMIT_BYTES and offset + SECTION_FRAME.size + length <= self.size:
                        return Extent(offset, SECTION_FRAME.size + length)
                at = data.rfind(wanted, 0, at + len(wanted) - 1)
            upper = lower
        return None

    def _find_ids(self, kind: int, footer: Extent | None) -> bool:
        """Whether the header itself says the id; else what there is are candidates."""
        head = self.read_at(0, HEADER.size)
        file_id, crc = head[20:36], int.from_bytes(head[36:], "little")
        self.file_id, self._ids = bytes(file_id), [crc32c(file_id, 0)]
        if crc32c(head[:-4], 0) == crc:
            self._read_header(kind)
            self._id_crc = self._ids[0]
            return True
        if footer is not None:
            data = self.read_at(*footer)
            start = _start_value(self.footer_crc, data[4:])
            self._ids.append(_start_value(start, CRC_PLACE.pack(footer.offset, SECTION_FOOTER)))
        return False

    def _take_footer(self, place: Extent, *, proven: bool) -> None:
        """Believe the footer where its checksum and, without a sound header, that of something else match."""
        for _ in self.ids():
            if not self.holds(place, SECTION_FOOTER):
                continue
            try:
                footer, rest = split_footer(self.section(place, SECTION_FOOTER))
                columns = ColumnList(rest)
                if proven or any(self.holds(column.index, SECTION_PAGE_INDEX) for column in columns):
                    self.footer_extent, self.footer, self.footer_rest = place, footer, rest
                    return
            except (*BROKEN, RecursionError, Corruption):
                continue

    def _refuse_another(self) -> None:
        """``Corruption`` where the file is sound, and not the one that is meant."""
        try:
            found = self._read_footer()[1]
        except Corruption:
            return
        self.damaged(0, f"not the file that the manifest names: its footer has CRC {found:#010x}")


def _start_value(crc: int, data: bytes) -> int:
    """The value from which the checksum of some bytes comes to ``crc``: a checksum is linear in it."""
    zero = crc32c(data, 0)
    basis: list[tuple[int, int]] = []
    for bit in range(32):
        image, start = crc32c(data, 1 << bit) ^ zero, 1 << bit
        for other, its_start in basis:
            if image ^ other < image:
                image, start = image ^ other, start ^ its_start
        basis.append((image, start))
        basis.sort(reverse=True)
    image, start = crc ^ zero, 0
    for other, its_start in basis:
        if image ^ other < image:
            image, start = image ^ other, start ^ its_start
    return start


def _rebuilt(
    file: _DamagedFile, known: KnownRows, columns: Mapping[int, StoredColumn]
) -> tuple[dict[str, Any], list[ColumnEntry], frozenset[int]]:
    """What the footer has said, but for what only leads to rows; and the columns that cannot be read."""
    entries: list[ColumnEntry] = []
    lost: frozenset[int] = frozenset()
    end = HEADER.size
    for _ in file.ids():
        try:
            block = _block(file, known.statistics)
        except Corruption:
            continue
        entries, end = _entries(file, known.rows, block, columns)
        if entries:
            lost = frozenset(block.column_ids) - {entry.id for entry in entries}
            break
    if not entries or lost & set(known.key_ids):
        file.damaged(0, "neither its footer nor its columns can be found")
    entries = [replace(entry, role="key") if entry.id in known.key_ids else entry for entry in entries]
    key_index = _section_at(file, end, SECTION_KEY_INDEX) or Extent(HEADER.size, 0)
    footer = {
        "rows": known.rows,
        "key_ids": list(known.key_ids),
        "key_index": list(key_index) if known.key_ids else None,
        "bloom": None,
        "min_key": known.min_key.hex(),
        "max_key": known.max_key.hex(),
    }
    return footer, entries, lost


def _block(file: _DamagedFile, statistics: FileStatistics | None) -> StatisticsBlock:
    """What the manifest says of the columns, or the section of the file that it names."""
    if isinstance(statistics, StatisticsBlock):
        return statistics
    if not isinstance(statistics, StatisticsRef):
        file.damaged(0, "nothing says where its columns lie")
    extent = Extent(statistics.offset, statistics.length)
    data = file.section(extent, SECTION_STATISTICS)
    if int.from_bytes(file.read_at(extent.offset, 4), "little") != statistics.crc:
        file.damaged(extent.offset, "not the statistics that the manifest names")
    try:
        return StatisticsBlock(bytes(data))
    except ValueError as error:
        file.damaged(extent.offset, str(error))


def _entries(
    file: _DamagedFile, rows: int, block: StatisticsBlock, columns: Mapping[int, StoredColumn]
) -> tuple[list[ColumnEntry], int]:
    """The columns that are where they must be, as a footer lists them; and where the last one ends."""
    found = []
    at = HEADER.size
    for column_id in block.column_ids:
        start, at = at, at + block.stored_bytes(column_id)
        column, zone = columns.get(column_id), block.zone(column_id)
        if column is None or zone is None:
            continue
        entry = _entry(file, column, rows, start, at, zone)
        if entry is None:
            continue
        reader = ColumnReader(file, entry)
        try:
            told = zones.merge(column.type, reader.zones())
        except Corruption:
            continue
        if told != zone:
            file.damaged(start, f"column {column_id} is not the one that the manifest names: other bounds")
        found.append(entry)
    return found, at


def _entry(
    file: _DamagedFile, column: StoredColumn, rows: int, start: int, end: int, zone: Zone
) -> ColumnEntry | None:
    """A column between two bytes; None: it is not there."""
    width = column.type.width
    for words in (None,) if width else (None, 1):
        found = _index_at(file, rows, zone_width(width, words), start, end)
        if found is None:
            continue
        index, page_bits = found
        if words is None:
            dictionary = _section_at(file, start, SECTION_CODEC_DICTIONARY)
        else:
            dictionary = _section_at(file, start, SECTION_DICTIONARY)
            if dictionary is None or dictionary.length < SECTION_FRAME.size + DICTIONARY_HEAD.size:
                return None
            words = DICTIONARY_HEAD.unpack_from(file.section(dictionary, SECTION_DICTIONARY))[0]
        first = start if dictionary is None else dictionary.end
        pages = Extent(first, index.offset - first)
        return ColumnEntry(
            column.id,
            "value",
            column.type.stored.name,
            column.nullable,
            rows,
            page_bits,
            pages,
            index,
            dictionary,
            words,
            zone,
        )
    return None


def _index_at(
    file: _DamagedFile, rows: int, bound_width: int, start: int, end: int
) -> tuple[Extent, int] | None:
    """The page index that ends at a byte, and the power of two of a page's rows; None: it is not there."""
    for page_bits in range(PAGE_BITS, -1, -1):
        pages = (rows + (1 << page_bits) - 1) >> page_bits
        length = SECTION_FRAME.size + INDEX_HEAD.size + pages * (INDEX_ENTRY.size + 2 * bound_width)
        index = Extent(end - length, length)
        if index.offset >= start and file.holds(index, SECTION_PAGE_INDEX):
            # Few rows make as many pages of one power as of another: the index says which.
            found = INDEX_HEAD.unpack_from(file.section(index, SECTION_PAGE_INDEX))
            return (index, found[2]) if found[:2] == (pages, bound_width) else None
    return None


def _section_at(file: _DamagedFile, offset: int, kind: int) -> Extent | None:
    """The sound section of that kind which begins there."""
    if offset + SECTION_FRAME.size > file.size:
        return None
    length = SECTION_FRAME.unpack(file.read_at(offset, SECTION_FRAME.size))[3]
    extent = Extent(offset, SECTION_FRAME.size + length)
    return extent if extent.end <= file.size and file.holds(extent, kind) else None


def _check_keys(file: RowsFile, known: KnownRows) -> None:
    """``Corruption`` where the first or the last key can be read and is another one."""
    for row, wanted in ((0, known.min_key), (known.rows - 1, known.max_key)) if known.key_ids else ():
        try:
            found = file.keys(row, row + 1)[0].tobytes()
        except Corruption:
            continue
        if found != wanted:
            file.file.damaged(0, f"not the file that the manifest names: row {row} has another key")


__all__ = ["KnownRows", "salvage_delta", "salvage_rows"]
