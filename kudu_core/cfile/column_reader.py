"""Read one column: ranges of rows, single cells, zones.

Pages that the cache lacks come by one system call per run, and decode straight into the buffer that
is returned.  Nothing that a file says is believed before it was checked.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext import blocks
from kudu_core._ext.status import PageError
from kudu_core.cfile import page as pages
from kudu_core.cfile import zone as zones
from kudu_core.cfile.container import (
    HEADER,
    SECTION_DICTIONARY,
    SECTION_PAGE_INDEX,
    Extent,
    FileReader,
)
from kudu_core.cfile.page import ENCODING_CODES, ENCODING_VALUES, PAGE_BITS, PAGE_ROWS
from kudu_core.cfile.specs import (
    DICTIONARY_HEAD,
    DICTIONARY_WORDS,
    INDEX_ENTRY,
    INDEX_HEAD,
    ROLES,
    ROWS_LIMIT,
    ZONE_FLAGS,
    ZONE_HIGH_CUT,
    ZONE_HIGH_OPEN,
    ZONE_LOW_CUT,
    ZONE_PRESENT,
    ColumnSpec,
    allocate,
    code_width,
    word,
    zone_width,
)
from kudu_core.cfile.zone import STRING_ZONE_BYTES, Zone
from kudu_core.common.rowblock import ColumnBuffers
from kudu_core.common.types import ColumnType
from kudu_core.errors import InvalidArgument

if TYPE_CHECKING:
    U8 = npt.NDArray[np.uint8]


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


BLOCK_KINDS = ("plain", "constant", "for", "delta", "rle", "bitshuffle", "string", "prefix")


class ColumnReader:
    """One stored column of an open file.

    Its page index and dictionary are read when first used, and kept.  Thread safe.
    """

    def __init__(self, file: FileReader, entry: Any) -> None:
        """``entry`` comes from the footer and is believed in nothing."""
        self.file = file
        footer_at = file.footer_extent.offset
        if not isinstance(entry, dict):
            file.damaged(footer_at, "footer: a column is not an object")
        self.rows = need(file, entry.get("rows"), "rows of a column", 0, ROWS_LIMIT)
        role, nullable = entry.get("role"), entry.get("nullable")
        if role not in ROLES or type(nullable) is not bool or type(entry.get("type")) is not str:
            file.damaged(footer_at, "footer: role, type or nullability of a column")
        try:
            type_ = ColumnType.parse(entry["type"])
            self.zone = Zone.from_json(entry["zone"])
        except (InvalidArgument, ValueError, KeyError, TypeError) as error:
            file.damaged(footer_at, f"footer: type or zone of a column: {error}")
        for bound in (self.zone.minimum, self.zone.maximum):
            if bound is not None and type_.width and len(bound) != type_.width:
                file.damaged(footer_at, "footer: a bound of a column has another width")
        self.spec = ColumnSpec(need(file, entry.get("id"), "column id", -16, 1 << 31), type_, nullable, role)
        self.extent = need_extent(file, entry.get("pages"), "pages of a column")
        self.index_extent = need_extent(file, entry.get("index"), "page index of a column")
        self.words: int | None = None
        self.dictionary_extent: Extent | None = None
        if entry.get("words") is not None:
            self.words = need(file, entry["words"], "words of a column", 1, DICTIONARY_WORDS)
            self.dictionary_extent = need_extent(file, entry.get("dictionary"), "dictionary of a column")
            if type_.width:
                file.damaged(footer_at, "footer: a dictionary of a column that holds no strings")
        self.page_count = (self.rows + PAGE_ROWS - 1) // PAGE_ROWS
        self.encoding = ENCODING_VALUES if self.words is None else ENCODING_CODES
        # How values lie in pages: a dictionary's codes are a fixed column.
        self.width = type_.width if self.words is None else code_width(self.words)
        self._bound_width = zone_width(type_.width, self.words)
        self._mutex = threading.Lock()  # guards the lazy loading below
        self._index: Any = None
        self._offsets: list[int] = []
        self._sizes: list[int] = []
        self._nulls: list[int] = []
        self._dictionary: ColumnBuffers | None = None
        self._zones: list[Zone] | None = None

    @property
    def stored_bytes(self) -> int:
        """Bytes of pages, page index and dictionary in the file."""
        dictionary = 0 if self.dictionary_extent is None else self.dictionary_extent.length
        return self.extent.length + self.index_extent.length + dictionary

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
        count, found_width, reserved = INDEX_HEAD.unpack_from(payload)
        entry_bytes = INDEX_ENTRY.size + 2 * width
        if count != self.page_count or found_width != width or reserved:
            file.damaged(at, f"an index of {count} pages, bounds of {found_width} bytes")
        if len(payload) != INDEX_HEAD.size + count * entry_bytes:
            file.damaged(at, f"an index of {count} pages in {len(payload)} bytes")
        layout = np.dtype(
            [
                ("offset", "<u8"),
                ("size", "<u4"),
                ("nulls", "<u4"),
                ("nans", "<u4"),
                ("flags", "<u4"),
                ("low", "u1", (width,)),
                ("high", "u1", (width,)),
            ]
        )
        index = np.frombuffer(payload, layout, offset=INDEX_HEAD.size)
        offsets, sizes = index["offset"].tolist(), index["size"].tolist()
        nulls, nans = index["nulls"].tolist(), index["nans"].tolist()
        expected = self.extent.offset
        for number in range(count):
            rows = self.page_rows(number)
            if offsets[number] != expected or sizes[number] < pages.PAGE_FRAME.size:
                file.damaged(at, f"page {number} is not where the one before it ends")
            if nulls[number] + nans[number] > rows:
                file.damaged(at, f"page {number} counts more nulls than rows")
            expected += sizes[number]
        if expected != self.extent.end or (count and bool((index["flags"] > ZONE_FLAGS).any())):
            file.damaged(at, "the page index does not cover the column's pages")
        self._offsets, self._sizes, self._nulls = offsets, sizes, nulls
        return index

    def page_rows(self, number: int) -> int:
        return min(PAGE_ROWS, self.rows - number * PAGE_ROWS)

    def zones(self) -> list[Zone]:
        """The zone of every page."""
        if self._zones is None:
            self._zones = self._load_zones()
        return self._zones

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
        return ColumnBuffers(0, words, data, offsets.astype(np.int32), None)

    # ------------------------------------------------------------------ pages

    def payloads(self, numbers: Sequence[int]) -> list[Any]:
        """The checked payloads of pages, ascending; missing ones come by one read per run."""
        self.index()
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
            pieces = self.file.read_run(sizes[first : number + 1], offsets[first])
            for number, piece in enumerate(pieces, first):
                payload = pages.open_page(
                    self.file,
                    piece,
                    offsets[number],
                    self.encoding,
                    self.width,
                    self.page_rows(number),
                    self._nulls[number] > 0,
                )
                self.file.remember(offsets[number], payload)
                found[at] = payload
                at += 1
        return found

    def _blame(self, number: int, error: PageError) -> None:
        """Raise Corruption for a page that passed its CRC and does not decode."""
        self.file.damaged(self._offsets[number] + pages.PAGE_FRAME.size + error.offset, error.reason)

    # ------------------------------------------------------------------ ranges of rows

    def read(self, lower: int, upper: int) -> ColumnBuffers:
        """The values of rows [lower, upper)."""
        return self.read_ranges(((lower, upper),))

    def read_stored(self, lower: int, upper: int) -> ColumnBuffers:
        """Rows [lower, upper) as stored: values, or the codes of the dictionary (checked)."""
        return self.read_ranges_stored(((lower, upper),))

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> ColumnBuffers:
        """The values of several ranges of rows, ascending, one after the other."""
        stored = self.read_ranges_stored(ranges)
        return stored if self.words is None else self._expand(stored)

    def read_ranges_stored(self, ranges: Sequence[tuple[int, int]]) -> ColumnBuffers:
        """Like ``read_ranges``, but the codes of the dictionary, where there is one (checked)."""
        rows = 0
        for lower, upper in ranges:
            if not 0 <= lower <= upper <= self.rows:
                raise InvalidArgument(f"rows {lower}..{upper} of a column of {self.rows}")
            rows += upper - lower
        if rows == 0:
            return self._empty()
        pieces = self._pieces(ranges)
        if self.width == 0:
            return self._read_binary(pieces)
        width = self.width
        out = allocate(rows * width)
        nullable = any(self._nulls[number] for number, _, _, _ in pieces)
        validity = np.zeros((rows + 7) // 8, np.uint8) if nullable else None
        at = 0
        for number, payload, begin, count in pieces:
            room = out[at * width : (at + count) * width]
            try:
                blocks.decode_fixed(payload, width, room, validity, begin, count, at)
            except PageError as error:
                self._blame(number, error)
            at += count
        if self.words is not None:
            self._check_codes(out, pieces[0][0])
        return ColumnBuffers(width, rows, out, None, validity)

    def _pieces(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, Any, int, int]]:
        """The ranges cut at page borders: (page, its payload, first row in it, row count)."""
        plan: list[tuple[int, int, int]] = []
        for lower, upper in ranges:
            while lower < upper:
                number = lower >> PAGE_BITS
                stop = min((number + 1) << PAGE_BITS, upper)
                plan.append((number, lower - (number << PAGE_BITS), stop - lower))
                lower = stop
        numbers = list(dict.fromkeys([number for number, _, _ in plan]))
        found = dict(zip(numbers, self.payloads(numbers), strict=True))
        return [(number, found[number], begin, count) for number, begin, count in plan]

    def _read_binary(self, pieces: Sequence[tuple[int, Any, int, int]]) -> ColumnBuffers:
        parts = []
        for number, payload, begin, count in pieces:
            try:
                offsets, data, validity = blocks.decode_binary(payload, begin, count, allocate)
            except PageError as error:
                self._blame(number, error)
            parts.append(ColumnBuffers(0, count, data, offsets, validity))
        return parts[0] if len(parts) == 1 else ColumnBuffers.concat(parts)

    def _empty(self) -> ColumnBuffers:
        offsets = np.zeros(1, np.int32) if self.width == 0 else None
        return ColumnBuffers(self.width, 0, np.empty(0, np.uint8), offsets, None)

    def _check_codes(self, codes: U8, first: int) -> None:
        """Codes of null cells are 0, so every cell must be a word."""
        assert self.words is not None
        if len(codes) and int(codes.view(f"<u{self.width}").max()) >= self.words:
            self.file.damaged(self._offsets[first], "a code beyond the dictionary")

    def _expand(self, codes: ColumnBuffers) -> ColumnBuffers:
        words = self.dictionary()
        assert words.offsets is not None
        try:
            offsets, data = blocks.dictionary_expand(
                codes.values, codes.width, words.offsets, words.values, codes.validity, allocate
            )
        except PageError as error:
            self.file.damaged(self.extent.offset, error.reason)
        return ColumnBuffers(0, codes.length, data, offsets, codes.validity)

    # ------------------------------------------------------------------ single cells

    def cells(self, rows: npt.NDArray[np.int64]) -> ColumnBuffers:
        """The values of the given rows, in their order; rows may repeat."""
        stored = self.cells_stored(rows)
        return stored if self.words is None else self._expand(stored)

    def cells_stored(self, rows: npt.NDArray[np.int64]) -> ColumnBuffers:
        """The given rows as stored: values, or the codes of the dictionary (checked)."""
        count = len(rows)
        if count == 0:
            return self._empty()
        order = None
        if count > 1 and bool((rows[1:] < rows[:-1]).any()):
            order = np.argsort(rows, kind="stable")
            rows = rows[order]
        if rows[0] < 0 or rows[-1] >= self.rows:
            raise InvalidArgument(f"rows {rows[0]}..{rows[-1]} of a column of {self.rows}")
        numbers = rows >> PAGE_BITS
        starts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        bounds = [0, *starts.tolist(), count]
        parts: list[ColumnBuffers] = []
        out = allocate(count * self.width)
        validity: U8 | None = None
        wanted = numbers[bounds[:-1]].tolist()
        for at, (number, payload) in enumerate(zip(wanted, self.payloads(wanted), strict=True)):
            begin, end = bounds[at], bounds[at + 1]
            local = rows[begin:end] - (number << PAGE_BITS)
            if self._nulls[number] and self.width and validity is None:
                validity = np.full((count + 7) // 8, 255, np.uint8)
            try:
                if self.width:
                    blocks.cells_fixed(
                        payload,
                        self.width,
                        local,
                        out[begin * self.width : end * self.width],
                        validity if self._nulls[number] else None,
                        begin,
                    )
                else:
                    offsets, data, bits = blocks.cells_binary(payload, local)
                    parts.append(ColumnBuffers(0, end - begin, data, offsets, bits))
            except PageError as error:
                self._blame(number, error)
        if self.width:
            if self.words is not None:
                self._check_codes(out, int(numbers[0]))
            result = ColumnBuffers(self.width, count, out, None, validity)
        else:
            result = parts[0] if len(parts) == 1 else ColumnBuffers.concat(parts)
        if order is None:
            return result
        inverse = np.empty(count, np.int64)
        inverse[order] = np.arange(count)
        return result.take(inverse)

    # ------------------------------------------------------------------ verification, report

    def layout(self) -> dict[str, Any]:
        """How the column is stored: bytes, pages, words of its dictionary, mini-blocks by kind."""
        kinds: Counter[str] = Counter()
        packed = 0
        for number in range(self.page_count):
            payload = self.payloads((number,))[0]
            packed += len(payload)
            kinds.update(BLOCK_KINDS[block[0]] for block in blocks.describe(payload))
        return {
            "type": self.spec.type.name,
            "rows": self.rows,
            "bytes": self.stored_bytes,
            "bytes_decompressed": packed,
            "pages": self.page_count,
            "words": self.words,
            "blocks": dict(kinds.most_common()),
        }

    def extents(self) -> list[Extent]:
        """Where the column lies: dictionary, pages, page index."""
        dictionary = [] if self.dictionary_extent is None else [self.dictionary_extent]
        return [*dictionary, self.extent, self.index_extent]

    def verify(self) -> None:
        """Read and decode everything, past the cache; raises Corruption at the first damage."""
        fresh = ColumnReader.__new__(ColumnReader)
        fresh.__dict__.update(self.__dict__)
        fresh.file = _uncached(self.file)
        fresh._index = fresh._dictionary = fresh._zones = None
        fresh._mutex = threading.Lock()
        page_zones = fresh.zones()
        for number in range(self.page_count):
            lower = number * PAGE_ROWS
            column = fresh.read_stored(lower, lower + self.page_rows(number))
            if column.null_count != page_zones[number].null_count:
                self.file.damaged(self._offsets[number], "the page index counts other nulls")


class _Uncached:
    """A reader that leaves the cache alone: verification must see the disk's bytes."""

    def __init__(self, file: FileReader) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def cached(self, offsets: Sequence[int]) -> list[Any]:
        return [None] * len(offsets)

    def remember(self, offset: int, payload: Any) -> None:
        pass


def _uncached(file: FileReader) -> Any:
    return _Uncached(file)


def column_entries(file: FileReader) -> list[Mapping[str, Any]]:
    """The footer's list of columns."""
    found = file.footer.get("columns")
    if not isinstance(found, list):
        file.damaged(file.footer_extent.offset, "footer: no list of columns")
    return found
