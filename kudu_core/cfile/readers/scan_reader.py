"""Scans of a ``.rows`` file: the kernels ``_ext.scan.selection`` and ``_ext.scan.read`` set up for one open
file.

Conditions become sets of stored values here, and zone maps say of which pages they are known to hold, or
not to.  What the kernels say they cannot do goes to ``column_reader``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kudu_core._ext.pages.holder import PageHolder
from kudu_core._ext.scan.cell_set import CellSet
from kudu_core._ext.scan.column import ScanColumn
from kudu_core._ext.scan.read import TooLarge, read
from kudu_core._ext.scan.selection import Selection
from kudu_core.cfile.columns.asking import ask_pages, ask_rows, ask_sections
from kudu_core.cfile.columns.zone_table import SOME_ROWS
from kudu_core.common.rows.allocation import allocate
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import TYPE_BOOL, TYPE_DECIMAL, TYPE_FLOAT, TYPE_SIGNED, TYPE_UNSIGNED
from kudu_core.common.where.sets import closed_ends
from kudu_core.common.where.spans import Spans

if TYPE_CHECKING:
    from kudu_core.cfile.columns.reader import ColumnReader
    from kudu_core.cfile.pages.container import FileReader
    from kudu_core.common.where.sets import Interval, ValueSet

    U8 = npt.NDArray[np.uint8]
    U64 = npt.NDArray[np.uint64]

_STRING_COST = 32
_FEW_INTERVALS = 8
"""Of a set of values that is kept as it was compiled, beside the pages of an open file."""
_MOST_RANGES = 64
_LONG_ROWS = 4096
_MOST_COMPILED = 8
"""Columns of a file for which one is kept."""
_NUMBER, _SIGNED, _FLOAT, _CODE = range(4)
_KINDS = {
    TYPE_UNSIGNED: _NUMBER,
    TYPE_BOOL: _NUMBER,
    TYPE_SIGNED: _SIGNED,
    TYPE_DECIMAL: _SIGNED,
    TYPE_FLOAT: _FLOAT,
}


class ScanReader:
    """The columns of one open file for scans; pages come when they are asked for.  Thread safe."""

    def __init__(self, columns: Mapping[int, ColumnReader]) -> None:
        """``columns`` may come to lie in other files before the first read, if they are rewritten."""
        self._columns = columns
        self._files: dict[FileReader, tuple[PageHolder, bool]] = {}
        self._made: dict[int, ScanColumn] = {}
        self._words: dict[int, pa.Array] = {}
        self._compiled: dict[int, tuple[ValueSet, CellSet, U8]] = {}
        """By column, of the last set with few intervals that it was tested with."""

    @property
    def pages(self) -> int:
        """How many pages are held beside the cache."""
        return sum(held.pages for held, _ in self._files.values())

    def column(self, column_id: int) -> ScanColumn:
        made = self._made.get(column_id)
        if made is None:
            column = self._columns[column_id]
            words = None
            if column.words is not None:
                dictionary = column.dictionary()
                assert dictionary.offsets is not None
                words = (dictionary.offsets, dictionary.values)
            held, watched = self._held(column.file)
            made = ScanColumn(
                held,
                _loader(column, watched),
                column.rows,
                column.width,
                words,
                column.file.remember,
                column.page_bits,
            )
            made = self._made.setdefault(column_id, made)
        return made

    def _held(self, file: FileReader) -> tuple[PageHolder, bool]:
        """What holds pages of the file; it may only if the cache tells it when it drops one."""
        found = self._files.get(file)
        if found is None:
            held = PageHolder()
            found = self._files.setdefault(file, (held, file.watch(held)))
        return found

    def ask_sections(self, column_ids: Sequence[int]) -> None:
        """Of a file in a store: have be fetched what is read of these columns before any page."""
        ask_sections(self._columns[i] for i in column_ids if i in self._columns)

    def ask(self, column_ids: Sequence[int], ranges: npt.NDArray[np.int64]) -> None:
        """Of a file in a store: have pages be fetched that hold rows of the ranges, which will be read; of a
        long run also as many behind it, since a scan goes on."""
        columns = [self._columns[i] for i in column_ids]
        if not len(ranges) or all(column.file.ask is None for column in columns):
            return
        if len(ranges) > _MOST_RANGES:
            ask_rows(columns, ranges[:, 0])
            return
        for lower, upper in ranges.tolist():
            ask_pages(columns, lower, upper)
        rows = columns[0].rows
        lower, upper = ranges[-1].tolist()
        if len(ranges) == 1 and lower and upper - lower >= _LONG_ROWS and upper < rows:
            ask_pages(columns, upper, min(rows, 2 * upper - lower))

    def read(
        self, rows: int, column_ids: Sequence[int], lower: int, upper: int, wanted: U8 | None = None
    ) -> list[ColumnBuffers | None]:
        """Rows [lower, upper), of ``rows``, of some columns in one step; None: ask for that column alone.

        ``wanted``: (upper - lower,) uint8, 1 for those of them that are read; None: all.
        """
        selection = Selection(np.array([[lower, upper]], np.int64), rows, wanted)
        chosen = selection.chosen
        try:
            found = read(selection, [self.column(i) for i in column_ids], bytes(len(column_ids)), allocate)
        except TooLarge:
            return [None] * len(column_ids)
        return [
            None if made is None else as_column(self._columns[i].spec.type.width, chosen, *made[:3])
            for i, made in zip(column_ids, found, strict=True)
        ]

    def words(self, column_id: int) -> pa.Array:
        """The dictionary of a column that has one, as an Arrow array: one object for all batches."""
        found = self._words.get(column_id)
        if found is None:
            column = self._columns[column_id]
            found = self._words.setdefault(column_id, column.dictionary().to_arrow(column.spec.type))
        return found

    def cost(self, column_id: int) -> int:
        """How much there is to look at in a cell, to compare columns with."""
        return self._columns[column_id].width or _STRING_COST

    def close(self) -> None:
        for held, _ in list(self._files.values()):
            held.close()

    # ------------------------------------------------------------------ conditions

    def compile(self, column_id: int, passing: ValueSet) -> tuple[CellSet, U8]:
        """The set as stored values of the column, and what the zone maps say of each page, (pages,) uint8.

        Neither is to be changed: whoever asks again with the same set gets them again.
        """
        known = self._compiled.get(column_id)
        if known is not None and known[0] is passing:
            return known[1], known[2]
        test, states = self._compile(column_id, passing)
        if len(passing.intervals) <= _FEW_INTERVALS:
            if len(self._compiled) >= _MOST_COMPILED:
                self._compiled = {}
            self._compiled[column_id] = passing, test, states
        return test, states

    def _compile(self, column_id: int, passing: ValueSet) -> tuple[CellSet, U8]:
        column = self._columns[column_id]
        type_ = column.spec.type
        if column.words is not None:
            found = column.sought_words()
            assert found is not None
            codes = found.spans(passing)
            spans = Spans.joined(codes[:, 0], codes[:, 1]).ends
            test = CellSet(_CODE, column.width, spans[:, 0], spans[:, 1], passing.null, column.words)
            return test, column.zone_table().states(spans, passing.null)
        if type_.width == 0:
            return _strings(passing), np.full(column.page_count, SOME_ROWS, np.uint8)
        kind, width = _KINDS[type_.kind], type_.width
        if width == 16:
            test = CellSet(kind, width, *_wide_ends(passing.intervals), passing.null)
            return test, np.full(column.page_count, SOME_ROWS, np.uint8)
        spans = closed_ends(type_, passing)
        test = CellSet(kind, width, spans[:, 0], spans[:, 1], passing.null)
        return test, column.zone_table().states(spans, passing.null)


def as_column(width: int, rows: int, values: U8, offsets: U8 | None, validity: U8 | None) -> ColumnBuffers:
    """What the kernel has read of a column, in buffers that may be larger than that."""
    size = width * rows if offsets is None else len(values)
    return ColumnBuffers(
        width,
        rows,
        values[:size],
        None if offsets is None else offsets[: 4 * (rows + 1)].view(np.int32),
        None if validity is None else validity[: (rows + 7) // 8],
    )


def _loader(column: ColumnReader, watched: bool) -> Callable[[list[int]], list[tuple[Any, int | None]]]:
    def load(numbers: list[int]) -> list[tuple[Any, int | None]]:
        """Payloads of pages and their places in the cache, None where they may not be held."""
        if not watched:
            return [(payload, None) for payload in column.payloads(numbers)]
        payloads, _ = column.found(numbers)
        return [(page, column.page_offset(at)) for at, page in zip(numbers, payloads, strict=True)]

    return load


def _wide_ends(intervals: Sequence[Interval]) -> tuple[U64, U64]:
    """Intervals of 16-byte cells as the kernel takes them: lower and upper ends, both included."""
    raw: list[bytes] = []
    for low, high in intervals:
        assert high is not None
        raw += (low.to_bytes(16, "little"), (high - 1).to_bytes(16, "little"))
    ends = np.frombuffer(b"".join(raw), np.uint64).reshape(-1, 2, 2)
    return np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1])


def _strings(passing: ValueSet) -> CellSet:
    ends: list[bytes] = []
    for low, high in passing.intervals:
        ends += (low, b"" if high is None else high)
    offsets = np.cumsum([0, *map(len, ends)], dtype=np.int64)
    data = np.frombuffer(b"".join(ends), np.uint8)
    open_end = bool(passing.intervals) and passing.intervals[-1][1] is None
    return CellSet.of_strings(data, offsets, open_end, passing.null)
