"""The pages of one stored column: page index, zones, dictionary, and the pages' payloads.

Nothing that a file says is believed before it was checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from kudu_core._ext.base.status import PageError
from kudu_core.cfile.columns import zone as zones
from kudu_core.cfile.columns.column_list import ColumnEntry
from kudu_core.cfile.columns.page_size import least_page_bits
from kudu_core.cfile.columns.sought_words import SoughtWords
from kudu_core.cfile.columns.specs import (
    DICTIONARY_HEAD,
    DICTIONARY_WORDS,
    INDEX_ENTRY,
    INDEX_HEAD,
    ZONE_FLAGS,
    ZONE_HIGH_CUT,
    ZONE_HIGH_OPEN,
    ZONE_LOW_CUT,
    ZONE_PRESENT,
    ColumnSpec,
    code_width,
    index_layout,
    word,
    zone_width,
)
from kudu_core.cfile.columns.time_dictionary import is_time_dictionary, may_have_words
from kudu_core.cfile.columns.zone import STRING_ZONE_BYTES, Zone
from kudu_core.cfile.columns.zone_table import ZoneTable
from kudu_core.cfile.pages import page as pages
from kudu_core.cfile.pages.codec_dictionary import LONGEST_SECTION, ColumnDictionary
from kudu_core.cfile.pages.container import HEADER, SECTION_DICTIONARY, SECTION_PAGE_INDEX, Extent, FileReader
from kudu_core.cfile.pages.page import ENCODING_CODES, ENCODING_VALUES, PAGE_BITS
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.locks import mutex
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import InvalidArgument

if TYPE_CHECKING:
    from kudu_core._ext.files.page_fetcher import PageFetcher

    U8 = npt.NDArray[np.uint8]
    I64 = npt.NDArray[np.int64]


LEAST_ID = -16
"""Of columns that a file has for itself."""


def need(reader: FileReader, found: Any, what: str, lower: int, upper: int) -> int:
    """``found`` as an integer of [lower, upper], or Corruption of the footer."""
    if type(found) is not int or not lower <= found <= upper:
        reader.damaged(reader.footer_extent.offset, f"footer: {what} is {found!r}")
    return found


def need_extent(reader: FileReader, found: Any, what: str) -> Extent:
    """``found`` as a piece of the file between header and footer, or Corruption."""
    if type(found) is not list or len(found) != 2:
        reader.damaged(reader.footer_extent.offset, f"footer: {what} is {found!r}")
    end = reader.footer_extent.offset
    offset = need(reader, found[0], what, HEADER.size, end)
    return Extent(offset, need(reader, found[1], what, 0, end - offset))


class ColumnPages:
    """One stored column of an open file: where its pages lie and what is known of them.

    Its page index and dictionary are read when first used, and kept.  Thread safe.
    """

    def __init__(self, file: FileReader, entry: ColumnEntry) -> None:
        """``entry`` comes from the footer and is believed in nothing."""
        self.file = file
        role = entry.role
        try:
            type_ = ColumnType.parse(entry.type)
        except InvalidArgument as error:
            self._refuse(f"type of a column: {error}")
        self.rows, self.words, self.zone = entry.rows, entry.words, entry.zone
        self.spec = ColumnSpec(entry.id, type_, entry.nullable, role)
        width = type_.width
        if entry.id < LEAST_ID:
            self._refuse(f"column id is {entry.id}")
        low, high = self.zone.minimum, self.zone.maximum
        if width and not (low is None or len(low) == width) & (high is None or len(high) == width):
            self._refuse("a bound of a column has another width")
        self.extent, self.index_extent, self.dictionary_extent = entry.pages, entry.index, entry.dictionary
        end = file.footer_extent.offset
        for extent in (entry.pages, entry.index, entry.dictionary or entry.index):
            if extent.offset < HEADER.size or extent.offset + extent.length > end:
                self._refuse(f"a column of {extent.length} bytes at {extent.offset}")
        if self.words is not None and not (self.words <= DICTIONARY_WORDS and may_have_words(role, width)):
            self._refuse(f"a dictionary of {self.words} words of a column of {entry.type}")
        helps = self.dictionary_extent if self.words is None else None
        if helps is not None and (width or helps.length > LONGEST_SECTION):
            self._refuse(f"a codec dictionary of {helps.length} bytes of column {entry.id}")
        self.codec_dictionary = None if helps is None else ColumnDictionary(file, helps, entry.id)
        self.encoding = ENCODING_VALUES if self.words is None else ENCODING_CODES
        # How values lie in pages: a dictionary's codes are a fixed column.
        self.width = width if self.words is None else code_width(self.words)
        self.page_bits = entry.page_bits
        """A page has ``1 << page_bits`` rows."""
        if not least_page_bits(role, self.width) <= self.page_bits <= PAGE_BITS:
            self._refuse(f"page_bits of a column is {self.page_bits}")
        self.page_count = (self.rows + (1 << self.page_bits) - 1) >> self.page_bits
        self._bound_width = zone_width(width, self.words)
        self._mutex = mutex()  # guards the lazy loading below
        self._index: Any = None
        # Of each page, as the page index has it; of a single one the footer says as much.
        self._offsets: list[int] = []
        self._sizes: list[int] = []
        self._nulls: list[int] = []
        self.fetcher: PageFetcher | None = None
        """Of files with a descriptor, once the page index is read, or the only page."""
        if self.page_count == 1:
            if self.extent.length < pages.PAGE_FRAME.size:
                self._refuse(f"a page of {self.extent.length} bytes")
            self._nulls = [self.zone.null_count]
            self._sizes = [self.extent.length]
            self._offsets = [self.extent.offset]
        self._dictionary: ColumnBuffers | None = None
        self._words: SoughtWords | None = None
        self._zones: list[Zone] | None = None
        self._zone_table: ZoneTable | None = None

    def _refuse(self, why: str) -> NoReturn:
        self.file.damaged(self.file.footer_extent.offset, f"footer: {why}")

    @property
    def stored_bytes(self) -> int:
        """Bytes of pages, page index and dictionary in the file."""
        dictionary = 0 if self.dictionary_extent is None else self.dictionary_extent.length
        return self.extent.length + self.index_extent.length + dictionary

    def extents(self) -> list[Extent]:
        """Where the column lies: dictionary, pages, page index."""
        dictionary = [] if self.dictionary_extent is None else [self.dictionary_extent]
        return [*dictionary, self.extent, self.index_extent]

    # ------------------------------------------------------------------ index, zones, dictionary

    def index(self) -> Any:
        """The page index: a structured array (offset, size, nulls, nans, flags, low, high)."""
        index = self._index
        if index is not None:
            return index
        with self._mutex:
            if self._index is None:
                self._index = self._load_index()
            return self._index

    def _load_index(self) -> Any:
        file, at = self.file, self.index_extent.offset
        width = self._bound_width
        payload = file.section(self.index_extent, SECTION_PAGE_INDEX)
        if len(payload) < INDEX_HEAD.size:
            file.damaged(at, "the page index has no head")
        count, found_width, page_bits = INDEX_HEAD.unpack_from(payload)
        entry_bytes = INDEX_ENTRY.size + 2 * width
        if (count, found_width, page_bits) != (self.page_count, width, self.page_bits):
            file.damaged(
                at, f"an index of {count} pages of 1 << {page_bits} rows, bounds of {found_width} bytes"
            )
        if len(payload) != INDEX_HEAD.size + count * entry_bytes:
            file.damaged(at, f"an index of {count} pages in {len(payload)} bytes")
        index = np.frombuffer(payload, index_layout(width), offset=INDEX_HEAD.size)
        sizes = index["size"].astype(np.int64)
        ends = self.extent.offset + np.cumsum(sizes)
        self._first_bad(
            (index["offset"] != (ends - sizes).astype(np.uint64)) | (sizes < pages.PAGE_FRAME.size),
            "is not where the one before it ends",
        )
        self._first_bad(
            index["nulls"].astype(np.int64) + index["nans"] > self.rows_of_pages(),
            "counts more nulls than rows",
        )
        end = int(ends[-1]) if count else self.extent.offset
        if end != self.extent.end or bool((index["flags"] > ZONE_FLAGS).any()):
            file.damaged(at, "the page index does not cover the column's pages")
        starts, nulls = ends - sizes, index["nulls"].astype(np.int64)
        if count == 1 and int(nulls[0]) != self.zone.null_count:
            file.damaged(at, "the page index counts other nulls than the footer")
        self.fetcher = self._fetcher(starts, sizes, nulls)
        self._nulls = nulls.tolist()
        self._sizes = sizes.tolist()
        self._offsets = starts.tolist()
        return index

    def _first_bad(self, bad: npt.NDArray[np.bool_], why: str) -> None:
        if bad.any():
            self.file.damaged(self.index_extent.offset, f"page {int(bad.argmax())} {why}")

    def _fetcher(self, offsets: I64, sizes: I64, nulls: I64) -> PageFetcher | None:
        column = self.rows, self.page_bits, self.width, self.encoding, self.codec_dictionary
        return pages.page_fetcher(self.file, offsets, sizes, nulls, *column)

    def locate(self) -> None:
        """Know where the pages lie: of a single one by the footer, else by the page index."""
        if not self._offsets:
            self.index()

    def places(self) -> list[int]:
        """Where the pages lie in the file, and in the cache."""
        self.locate()
        return self._offsets

    def ask(self, number: int) -> bool | None:
        """Have a page be fetched that will be read; None: nobody can be asked."""
        return self.file.ask and self.file.ask(self._sizes[number], self._offsets[number]) is not None

    def page_offset(self, number: int) -> int:
        """Where a page lies in the file, and in the cache."""
        self.locate()
        return self._offsets[number]

    def page_rows(self, number: int) -> int:
        return min(1 << self.page_bits, self.rows - (number << self.page_bits))

    def by_page(self, lower: int, upper: int) -> Iterator[tuple[int, int]]:
        """The range of rows, cut at the borders of pages."""
        while lower < upper:
            end = min(((lower >> self.page_bits) + 1) << self.page_bits, upper)
            yield lower, end
            lower = end

    def rows_of_pages(self) -> npt.NDArray[np.int64]:
        """How many rows each page has."""
        rows = np.full(self.page_count, 1 << self.page_bits, np.int64)
        if self.page_count:
            rows[-1] = self.page_rows(self.page_count - 1)
        return rows

    def zones(self) -> list[Zone]:
        """The zone of every page."""
        if self._zones is None:
            self._zones = self._load_zones()
        return self._zones

    def zone_table(self) -> ZoneTable:
        """The same as arrays, for pruning."""
        table = self._zone_table
        if table is None:
            index = self.index()
            table = ZoneTable(self.spec.type, self.sought_words(), index, self.rows_of_pages())
            self._zone_table = table
        return table

    def _load_zones(self) -> list[Zone]:
        index = self.index()
        words = None if self.words is None else self.dictionary()
        result = []
        for number in range(self.page_count):
            entry = index[number]
            nulls, nans, flags = int(entry["nulls"]), int(entry["nans"]), int(entry["flags"])
            rows = self.page_rows(number)
            if not flags & ZONE_PRESENT:
                if nulls + nans != rows:
                    self.file.damaged(self.index_extent.offset, f"page {number} has values but no bounds")
                result.append(Zone(None, None, nulls, nans, rows))
                continue
            low, high = entry["low"].tobytes(), entry["high"].tobytes()
            if self.words is not None:
                assert words is not None
                first, last = int.from_bytes(low, "little"), int.from_bytes(high, "little")
                if not first <= last < self.words:
                    self.file.damaged(self.index_extent.offset, f"page {number}: bounds are not words")
                cut = zones.cut_bounds(word(words, first), word(words, last))
                result.append(Zone(cut[0], cut[2], nulls, 0, rows, cut[1], cut[3]))
            elif self.spec.type.width:
                result.append(Zone(low, high, nulls, nans, rows))
            else:
                if low[0] > STRING_ZONE_BYTES or high[0] > STRING_ZONE_BYTES:
                    self.file.damaged(self.index_extent.offset, f"page {number}: a bound is too long")
                result.append(
                    Zone(
                        low[1 : 1 + low[0]],
                        None if flags & ZONE_HIGH_OPEN else high[1 : 1 + high[0]],
                        nulls,
                        0,
                        rows,
                        not flags & ZONE_LOW_CUT,
                        not flags & (ZONE_HIGH_CUT | ZONE_HIGH_OPEN),
                    )
                )
        return result

    def dictionary(self) -> ColumnBuffers:
        """The sorted words; only where ``words`` is not None."""
        dictionary = self._dictionary
        if dictionary is not None:
            return dictionary
        with self._mutex:
            if self._dictionary is None:
                self._dictionary = self._load_dictionary()
            return self._dictionary

    def sought_words(self) -> SoughtWords | None:
        """The dictionary to find codes in; None where there is none."""
        if self._words is None and self.words is not None:
            self._words = SoughtWords(self.dictionary())
        return self._words

    def _load_dictionary(self) -> ColumnBuffers:
        assert self.words is not None and self.dictionary_extent is not None
        file, at = self.file, self.dictionary_extent.offset
        payload = file.section(self.dictionary_extent, SECTION_DICTIONARY)
        if len(payload) < DICTIONARY_HEAD.size:
            file.damaged(at, "the dictionary has no head")
        words, codec, reserved, reserved_2, raw_bytes = DICTIONARY_HEAD.unpack_from(payload)
        if words != self.words or reserved or reserved_2:
            file.damaged(at, f"a dictionary of {words} words, the footer says {self.words}")
        raw = pages.decompress(file, at, codec, payload[DICTIONARY_HEAD.size :], raw_bytes)
        start = 4 * (words + 1)
        if len(raw) < start:
            file.damaged(at, "the dictionary ends inside its offsets")
        offsets = np.frombuffer(raw, "<u4", words + 1).astype(np.int64)
        if offsets[0] or offsets[-1] != len(raw) - start or bool((np.diff(offsets) < 0).any()):
            file.damaged(at, "the offsets of the dictionary do not cover its words")
        data = np.frombuffer(raw, np.uint8, offset=start) if len(raw) > start else np.empty(0, np.uint8)
        found = ColumnBuffers(0, words, data, offsets.astype(np.int32), None)
        if self.spec.type.width and not is_time_dictionary(found):
            file.damaged(at, "the words of the dictionary are not times that rise")
        return found

    # ------------------------------------------------------------------ pages

    def fetched(self, number: int) -> Any:
        """The checked payload of a page, read from the file."""
        if self.fetcher is None and self.page_count == 1:
            places = (np.array(one, np.int64) for one in (self._offsets, self._sizes, self._nulls))
            self.fetcher = self._fetcher(*places)
        payload = None if self.fetcher is None else self.fetcher.fetch(number)
        if payload is not None:
            return payload
        return self.checked(number, self.file.read_at(self._offsets[number], self._sizes[number]))

    def opened(self, number: int, data: bytes) -> Any:
        """The payload of a page of which ``data`` was read."""
        payload = None if self.fetcher is None else self.fetcher.opened(number, data)
        return self.checked(number, data) if payload is None else payload

    def checked(self, number: int, data: bytes) -> Any:
        """The same, in Python; what is wrong with a page is said here alone."""
        return pages.open_page(
            self.file,
            data,
            self._offsets[number],
            self.encoding,
            self.width,
            self.page_rows(number),
            self._nulls[number] > 0,
            self.codec_dictionary,
        )

    def payloads(self, numbers: Sequence[int]) -> list[Any]:
        """The checked payloads of pages, ascending; missing ones come by one read per run."""
        found, missing = self.found(numbers)
        for at in missing:
            self.file.remember(self._offsets[numbers[at]], found[at])
        return found

    def found(self, numbers: Sequence[int]) -> tuple[list[Any], list[int]]:
        """``payloads``, and which of them were missing: these are left to the caller to remember."""
        self.locate()
        missing: list[int] = []
        offsets, sizes = self._offsets, self._sizes
        found = self.file.cached([offsets[number] for number in numbers])
        at = 0
        while at < len(found):
            if found[at] is not None:
                at += 1
                continue
            first = number = numbers[at]
            end = at + 1
            while end < len(found) and found[end] is None and numbers[end] == number + 1:
                number += 1
                end += 1
            if number == first:
                found[at] = self.fetched(first)
            else:
                pieces = self.file.read_adjacent(sizes[first : number + 1], offsets[first])
                found[at:end] = map(self.opened, range(first, number + 1), pieces)
            missing += range(at, end)
            at = end
        return found, missing

    def _blame(self, number: int, error: PageError) -> None:
        """Raise Corruption for a page that passed its CRC and does not decode."""
        self.file.damaged(self._offsets[number] + pages.PAGE_FRAME.size + error.offset, error.reason)
