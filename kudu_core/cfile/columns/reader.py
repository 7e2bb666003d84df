"""Read one column: ranges of rows and single cells.

Pages that the cache lacks come by one system call per run, and decode straight into the buffer that
is returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.base.status import PageError
from kudu_core._ext.pages import blocks
from kudu_core.cfile.columns.pages import ColumnPages
from kudu_core.cfile.columns.time_dictionary import times_of
from kudu_core.cfile.pages.container import (
    FileReader,
)
from kudu_core.common.rows.allocation import allocate
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.errors import InvalidArgument

if TYPE_CHECKING:
    U8 = npt.NDArray[np.uint8]


BLOCK_KINDS = ("plain", "constant", "for", "delta", "rle", "bitshuffle", "string", "prefix")


class ColumnReader(ColumnPages):
    """Reads the values of one column.  Thread safe."""

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
        bits = self.page_bits
        for first, last in ranges:
            for lower, upper in self.by_page(first, last):
                number = lower >> bits
                plan.append((number, lower - (number << bits), upper - lower))
        numbers = list(dict.fromkeys([number for number, _, _ in plan]))
        found = dict(zip(numbers, self.payloads(numbers), strict=True))
        return [(number, found[number], begin, count) for number, begin, count in plan]

    def _read_binary(self, pieces: list[tuple[int, Any, int, int]]) -> ColumnBuffers:
        """Empties ``pieces``, so that large payloads go as their cells come."""
        parts = []
        pieces.reverse()
        while pieces:
            number, payload, begin, count = pieces.pop()
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
        if self.spec.type.width:
            return times_of(codes, words)
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
        numbers = rows >> self.page_bits
        starts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        bounds = [0, *starts.tolist(), count]
        parts: list[ColumnBuffers] = []
        out = allocate(count * self.width)
        validity: U8 | None = None
        wanted = numbers[bounds[:-1]].tolist()
        for at, (number, payload) in enumerate(zip(wanted, self.payloads(wanted), strict=True)):
            begin, end = bounds[at], bounds[at + 1]
            local = rows[begin:end] - (number << self.page_bits)
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
            "page_rows": 1 << self.page_bits,
            "words": self.words,
            "blocks": dict(kinds.most_common()),
        }

    def uncached(self) -> ColumnReader:
        """The same column, read past the page cache; it is open as long as this one."""
        other = ColumnReader.__new__(ColumnReader)
        other.__dict__.update(self.__dict__)  # a merge makes one of each column: copy.copy takes longer
        other.file = uncached(self.file)
        return other

    def verify(self) -> None:
        """Read and decode everything, past the cache; raises Corruption at the first damage."""
        fresh = self.uncached()
        fresh._index = fresh.fetcher = fresh._dictionary = None
        fresh._words = fresh._zones = fresh._zone_table = None
        if fresh.codec_dictionary is not None:
            fresh.codec_dictionary = fresh.codec_dictionary.alone()
        page_zones = fresh.zones()
        for number in range(self.page_count):
            lower = number << self.page_bits
            column = fresh.read_stored(lower, lower + self.page_rows(number))
            if column.null_count != page_zones[number].null_count:
                self.file.damaged(fresh._offsets[number], "the page index counts other nulls")


class _Uncached:
    """A reader that leaves the cache alone: verification must see the disk's bytes, and a compaction must
    not throw out what point reads need."""

    reader = None

    def __init__(self, file: FileReader) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def cached(self, offsets: Sequence[int]) -> list[Any]:
        return [None] * len(offsets)

    def cached_page(self, offset: int) -> Any:
        return None

    def remember(self, offset: int, payload: Any) -> bool:
        return False


def uncached(file: FileReader) -> Any:
    """The same file without its cache."""
    return _Uncached(file)
