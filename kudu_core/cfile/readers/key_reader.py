"""Find rows of a ``.rows`` file by key: bloom, key index, and the key columns.

A key is looked for in three steps: the bloom says that most absent keys are absent; the key index
(first encoded key of every mini-block) names the one mini-block that may hold a key; the key columns
of that mini-block hold it or not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kudu_core._ext.index import bloom as bloom_kernel
from kudu_core._ext.keys import block_search, hashing
from kudu_core._ext.keys import keys as key_kernel
from kudu_core.cfile.columns.asking import ask_rows
from kudu_core.cfile.columns.specs import KEY_INDEX_HEAD
from kudu_core.cfile.pages.container import SECTION_BLOOM, SECTION_KEY_INDEX, Extent, FileReader
from kudu_core.cfile.pages.page import BLOCK_ROWS, PAGE_ROWS
from kudu_core.common.run.locks import mutex
from kudu_core.common.run.ordering import distinct
from kudu_core.errors import InvalidArgument

if TYPE_CHECKING:
    from kudu_core.cfile.columns.reader import ColumnReader

    U8 = npt.NDArray[np.uint8]
    I64 = npt.NDArray[np.int64]
    U64 = npt.NDArray[np.uint64]

_FIND_BLOCKS = 512  # mini-blocks of keys decoded at once: some 10 MiB


class KeyReader:
    """The keys of one open file.  Thread safe; bloom and key index are read once, and kept."""

    def __init__(
        self,
        file: FileReader,
        rows: int,
        columns: Sequence[ColumnReader],
        keys_column: ColumnReader | None,
        index_extent: Extent | None,
        bloom_extent: Extent | None,
    ) -> None:
        """``columns`` in key order, none for a file of columns only; ``keys_column`` holds encoded keys."""
        self.file = file
        self.rows = rows
        self._columns = tuple(columns)
        self._keys_column = keys_column
        self._key_index_extent = index_extent
        self._bloom_extent = bloom_extent
        self.by_number = keys_column is None and all(column.width in (1, 2, 4, 8) for column in columns)
        """Every key column is a number no wider than a word, or has a dictionary."""
        self._mutex = mutex()  # guards the lazy loading of the two below
        self._bloom: U8 | None = None
        self._key_index: tuple[U8, I64] | None = None

    def uncached(self) -> KeyReader:
        """The same keys, read past the page cache."""
        other = copy.copy(self)
        other._columns = tuple(column.uncached() for column in self._columns)
        other._keys_column = None if self._keys_column is None else self._keys_column.uncached()
        return other

    @property
    def columns(self) -> tuple[ColumnReader, ...]:
        """The key columns, in key order."""
        return self._columns

    @property
    def keys_column(self) -> ColumnReader | None:
        """The stored encoded keys, where there are."""
        return self._keys_column

    @property
    def page_rows(self) -> int:
        """Of the smallest page that holds keys."""
        stored = self._columns if self._keys_column is None else (self._keys_column,)
        return min([1 << column.page_bits for column in stored], default=PAGE_ROWS)

    @property
    def has_index(self) -> bool:
        return self._key_index_extent is not None

    def unread_sections(self) -> list[Extent | None]:
        """What is read before any key: the bloom and the key index, where that was not done."""
        return [
            self._bloom_extent if self._bloom is None else None,
            self._key_index_extent if self._key_index is None else None,
        ]

    def bloom(self) -> U8 | None:
        """The bloom, None where the file has none."""
        return None if self._bloom_extent is None else self._load_bloom()

    def bloom_once_near(self) -> U8 | None:
        """The bloom of a file in a store, None until it has come: a key may be looked for without."""
        extent, file = self._bloom_extent, self.file
        if extent is None or file.ask is None or file.is_near is None:
            return self.bloom()
        if self._bloom is None and not file.is_near(extent.length, extent.offset):
            file.ask(extent.length, extent.offset)
            return None
        return self._load_bloom()

    def may_contain(self, hashes: U64) -> npt.NDArray[np.bool_]:
        """Which keys the bloom does not exclude; all, where the file has none."""
        if self._bloom_extent is None:
            return np.ones(len(hashes), np.bool_)
        return bloom_kernel.probe(self._load_bloom(), hashes).view(np.bool_)

    def _load_bloom(self) -> U8:
        with self._mutex:
            if self._bloom is None:
                assert self._bloom_extent is not None
                payload = self.file.section(self._bloom_extent, SECTION_BLOOM)
                if not len(payload) or len(payload) % 32:
                    self.file.damaged(self._bloom_extent.offset, f"a bloom of {len(payload)} bytes")
                self._bloom = np.frombuffer(payload, np.uint8)
            return self._bloom

    def key_index(self) -> tuple[U8, I64]:
        """The first encoded key of every mini-block: (data, offsets)."""
        index = self._key_index
        if index is not None:
            return index
        with self._mutex:
            if self._key_index is None:
                self._key_index = self._load_key_index()
            return self._key_index

    def _load_key_index(self) -> tuple[U8, I64]:
        if self._key_index_extent is None:
            raise InvalidArgument(f"{self.file.path} holds columns only, no keys")
        file, at = self.file, self._key_index_extent.offset
        payload = file.section(self._key_index_extent, SECTION_KEY_INDEX)
        count = (self.rows + BLOCK_ROWS - 1) // BLOCK_ROWS
        start = KEY_INDEX_HEAD.size + 8 * (count + 1)
        if len(payload) < start or KEY_INDEX_HEAD.unpack_from(payload) != (count, 0):
            file.damaged(at, f"a key index that is not one of {count} mini-blocks")
        offsets = np.frombuffer(payload, "<i8", count + 1, KEY_INDEX_HEAD.size)
        lengths = np.diff(offsets)
        if offsets[0] or offsets[-1] != len(payload) - start or bool((lengths < 0).any()):
            file.damaged(at, "the offsets of the key index do not cover its keys")
        data = (
            np.frombuffer(payload, np.uint8, offset=start) if len(payload) > start else np.empty(0, np.uint8)
        )
        return data, offsets

    def keys(self, lower: int, upper: int) -> tuple[U8, I64]:
        """The encoded keys of rows [lower, upper)."""
        return self._keys_of(((lower, upper),))

    def _keys_of(self, ranges: Sequence[tuple[int, int]]) -> tuple[U8, I64]:
        """The encoded keys of several ranges of rows, ascending, one after the other."""
        if self._keys_column is not None:
            stored = self._keys_column.read_ranges(ranges)
            assert stored.offsets is not None
            return stored.values, stored.offsets.astype(np.int64)
        if not self._columns:
            raise InvalidArgument(f"{self.file.path} holds columns only, no keys")
        columns = [column.read_ranges(ranges) for column in self._columns]
        if len(columns) == 1 and columns[0].offsets is not None:
            # A string at the end of a key is encoded as it is.
            return columns[0].values, columns[0].offsets.astype(np.int64)
        parts = [
            (reader.spec.type.kind, column.width, column.values, column.offsets)
            for reader, column in zip(self._columns, columns, strict=True)
        ]
        return key_kernel.encode(parts, columns[0].length)

    def find(self, data: U8, offsets: I64) -> I64:
        """The rowid of each probed key, or -1.

        Probes may come in any order.  Each mini-block that may hold one is decoded once.
        """
        count = len(offsets) - 1
        result = np.full(count, -1, np.int64)
        if not count or not self.rows:
            return result
        index_data, index_offsets = self.key_index()
        block_of = key_kernel.lower_bound(index_data, index_offsets, data, offsets, upper=True) - 1
        inside = np.flatnonzero(block_of >= 0)
        needed = distinct(block_of[inside])
        if self.file.ask is not None:
            ask_rows(self._columns if self._keys_column is None else [self._keys_column], needed * BLOCK_ROWS)
        for first in range(0, len(needed), _FIND_BLOCKS):
            chunk = needed[first : first + _FIND_BLOCKS]
            if len(needed) <= _FIND_BLOCKS:
                probes = inside
            else:
                of = block_of[inside]
                probes = inside[(of >= chunk[0]) & (of <= chunk[-1])]
            result[probes] = self._find_in_blocks(chunk, data, offsets, probes, block_of)
        return result

    def _find_in_blocks(self, chunk: I64, data: U8, offsets: I64, probes: I64, block_of: I64) -> I64:
        """Rowids of the probes, each of which belongs into its mini-block, one of ``chunk``.

        The seam for a search that looks at cells instead of decoding mini-blocks.
        """
        if len(probes) != len(offsets) - 1:
            data, offsets = key_kernel.take(data, offsets, probes)
        ranges = list(_ranges(chunk, self.rows))
        if self.by_number:
            try:
                sought = key_kernel.decode(
                    data, offsets, [(c.spec.type.kind, c.spec.type.width) for c in self._columns]
                )
            except ValueError:  # some probes are no keys of the table: found nowhere, or not here
                return self._find_encoded(chunk, ranges, data, offsets)
            return self._find_numbers(chunk, ranges, sought, block_of[probes])
        return self._find_encoded(chunk, ranges, data, offsets)

    def _find_encoded(self, chunk: I64, ranges: list[tuple[int, int]], data: U8, offsets: I64) -> I64:
        """The general way: encode the keys of the mini-blocks.  These ascend, so one search does."""
        block_data, block_offsets = self._keys_of(ranges)
        at = key_kernel.lower_bound(block_data, block_offsets, data, offsets)
        after = key_kernel.lower_bound(block_data, block_offsets, data, offsets, upper=True)
        rowids = chunk[np.minimum(at // BLOCK_ROWS, len(chunk) - 1)] * BLOCK_ROWS + at % BLOCK_ROWS
        found: I64 = np.where(after > at, rowids, -1)
        return found

    def _find_numbers(
        self, chunk: I64, ranges: list[tuple[int, int]], sought: list[Any], block_of: I64
    ) -> I64:
        """The fast way, equal in result: bisect in the mini-blocks' numbers and dictionary codes."""
        possible = np.ones(len(block_of), np.bool_)
        cells: list[Any] = []
        wanted: list[Any] = []
        for column, (values, value_offsets) in zip(self._columns, sought, strict=True):
            stored = column.read_ranges_stored(ranges)
            if column.words is None:
                cells.append(stored.values.view(column.spec.type.dtype))
                wanted.append(np.asarray(values).view(column.spec.type.dtype))
                continue
            codes, known = _codes_of(column, np.asarray(values), np.asarray(value_offsets, np.int64))
            possible &= known
            cells.append(stored.values.view(f"<u{column.width}"))
            wanted.append(codes.astype(f"<u{column.width}"))
        position = np.searchsorted(chunk, block_of)
        columns = [
            (c.view(np.uint8), np.ascontiguousarray(w).view(np.uint8), c.itemsize, c.dtype.kind == "i")
            for c, w in zip(cells, wanted, strict=True)
        ]
        at = block_search.find(columns, position, BLOCK_ROWS)
        possible &= at >= 0
        rowids: I64 = np.where(possible, block_of * BLOCK_ROWS + (at - position * BLOCK_ROWS), -1)
        return rowids

    def lower_bound(self, key: bytes) -> int:
        """How many rows have a smaller key; ``key`` may be a prefix."""
        if not self.rows:
            return 0
        probe = np.frombuffer(key, np.uint8) if key else np.empty(0, np.uint8)
        probe_offsets = np.array([0, len(key)], np.int64)
        index_data, index_offsets = self.key_index()
        block = int(key_kernel.lower_bound(index_data, index_offsets, probe, probe_offsets)[0]) - 1
        if block < 0:
            return 0
        lower = block * BLOCK_ROWS
        data, offsets = self.keys(lower, min(lower + BLOCK_ROWS, self.rows))
        return lower + int(key_kernel.lower_bound(data, offsets, probe, probe_offsets)[0])

    def split_keys(self, target_rows: int) -> list[bytes]:
        """Keys that cut the rows into pieces of about ``target_rows`` (the first piece begins open)."""
        data, offsets = self.key_index()
        step = max(1, target_rows // BLOCK_ROWS)
        return [
            data[int(offsets[at]) : int(offsets[at + 1])].tobytes()
            for at in range(step, len(offsets) - 1, step)
        ]

    def verify(self, min_key: bytes, max_key: bytes) -> None:
        """Keys ascend, the index holds each mini-block's first, the bloom lets all of them pass."""
        if self._bloom_extent is not None:
            self.file.section(self._bloom_extent, SECTION_BLOOM)
        if self._key_index_extent is None:
            return
        at = self._key_index_extent.offset
        index_data, index_offsets = self._load_key_index()
        last = b""
        for lower in range(0, self.rows, 64 * BLOCK_ROWS):
            upper = min(lower + 64 * BLOCK_ROWS, self.rows)
            data, offsets = self.keys(lower, upper)
            first = data[: int(offsets[1])].tobytes()
            if key_kernel.order(data, offsets) != 2 or (lower and first <= last):
                self.file.damaged(at, f"keys of rows {lower}..{upper} do not ascend")
            if lower == 0 and first != min_key:
                self.file.damaged(at, "the footer names another first key")
            last = data[int(offsets[-2]) : int(offsets[-1])].tobytes()
            firsts = np.arange(0, upper - lower, BLOCK_ROWS, dtype=np.int64)
            found, _ = key_kernel.take(data, offsets, firsts)
            begin = lower // BLOCK_ROWS
            bounds = int(index_offsets[begin]), int(index_offsets[begin + len(firsts)])
            if bytes(found) != index_data[bounds[0] : bounds[1]].tobytes():
                self.file.damaged(at, f"the key index does not hold the keys of rows {lower}..{upper}")
            if not self.may_contain(hashing.murmur3(data, offsets)).all():
                self.file.damaged(at, f"the bloom excludes keys of rows {lower}..{upper}")
        if last != max_key:
            self.file.damaged(at, "the footer names another last key")


def _ranges(chunk: I64, rows: int) -> Iterator[tuple[int, int]]:
    """Mini-block numbers, ascending, as ranges of rows; adjacent ones joined."""
    breaks = np.flatnonzero(np.diff(chunk) != 1) + 1
    bounds = [0, *breaks.tolist(), len(chunk)]
    for begin, end in pairwise(bounds):
        yield int(chunk[begin]) * BLOCK_ROWS, min((int(chunk[end - 1]) + 1) * BLOCK_ROWS, rows)


def _codes_of(column: ColumnReader, values: U8, offsets: I64) -> tuple[I64, npt.NDArray[np.bool_]]:
    """The dictionary codes of words, and which words the dictionary has."""
    words = column.dictionary()
    assert words.offsets is not None
    ends = words.offsets.astype(np.int64)
    codes = key_kernel.lower_bound(words.values, ends, values, offsets)
    after = key_kernel.lower_bound(words.values, ends, values, offsets, upper=True)
    return codes, after > codes
