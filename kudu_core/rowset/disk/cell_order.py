"""The rows of a base file in the order of the cells of some of its columns: what an index is for one rowset.

It is made of the file when a scan first asks for it, and kept in the page cache among the pages of the file.
Nothing of it is ever on disk: what a crash leaves, what a merge, a load or another process wrote has no part
of an index that could be wrong.  The cells are those before any change; whoever asks adds the rows that
changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.cfile.columns.sought_words import SoughtWords
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where.sets import ValueSet, closed_ends, places_of
from kudu_core.errors import ColumnTooLarge
from kudu_core.rowset.disk.patches import LARGE_PART

if TYPE_CHECKING:
    from kudu_core.rowset.disk.diskrowset import DiskRowsAt

    U64 = npt.NDArray[np.uint64]
    I64 = npt.NDArray[np.int64]

_PLACES = -(1 << 50)
"""Places in the cache below which those of orders lie; the patches' lie above."""
_MOST_64 = (1 << 64) - 1
_ROW_BYTES = 4
_CELL_BYTES = 8
_WORD_BYTES = 8
"""Of a string beside its bytes: where it begins."""

Source = tuple[tuple[int, str, int, int], ...]
"""Of each column its id, the name of its file, and its type's kind and width."""


@dataclass(frozen=True, slots=True, eq=False)
class CellLine:
    """The cells of one column in the order of all of them."""

    type: ColumnType
    places: npt.NDArray[np.uint32] | U64
    """Less ``least``: the places of numbers (``common.where.sets``), the codes of ``words``."""
    least: int
    nulls: npt.NDArray[np.bool_] | None
    """Which are NULL: last among those of the same cells before; None: none is."""
    words: SoughtWords | None

    @staticmethod
    def ranked(type_: ColumnType, cells: ColumnBuffers) -> tuple[U64, SoughtWords | None]:
        """A number for each cell in the order of the cells; NULLs have any."""
        if type_.width:
            return places_of(type_, np.ascontiguousarray(cells.values).reshape(-1)), None
        assert cells.offsets is not None
        buffers = [None, pa.py_buffer(cells.offsets), pa.py_buffer(cells.values)]
        coded = pa.Array.from_buffers(pa.binary(), cells.length, buffers).dictionary_encode()
        order = pc.sort_indices(coded.dictionary)
        words = coded.dictionary.take(order)
        codes = np.empty(len(words), np.uint64)
        codes[order.to_numpy()] = np.arange(len(words), dtype=np.uint64)
        _, offsets, data = words.buffers()
        ends = np.frombuffer(offsets, np.int32, len(words) + 1, words.offset * 4)
        text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
        sought = SoughtWords(ColumnBuffers(0, len(words), text, ends))
        return codes[coded.indices.to_numpy()], sought

    @staticmethod
    def of(
        type_: ColumnType,
        ranks: U64,
        words: SoughtWords | None,
        null: npt.NDArray[np.bool_] | None,
        order: npt.NDArray[np.uint32],
    ) -> CellLine:
        """``null``: of each row; ``order``: the rows."""
        ranks = ranks[order]
        nulls = None if null is None else null[order]
        least = int(ranks.min()) if len(ranks) else 0
        ranks -= np.uint64(least)
        narrow = not len(ranks) or int(ranks.max()) < 1 << 32
        return CellLine(type_, ranks.astype(np.uint32) if narrow else ranks, least, nulls, words)

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        words = 0 if self.words is None else self.words.data.nbytes + self.words.offsets.nbytes
        return self.places.nbytes + words + (0 if self.nulls is None else self.nulls.nbytes)

    def found(self, wanted: ValueSet, first: int, end: int) -> tuple[I64, bool]:
        """Where the cells of a set lie among ``[first, end)``, which are ascending: (n, 2), half-open; and
        whether these cells are all equal."""
        ends = closed_ends(self.type, wanted) if self.words is None else self.words.spans(wanted)
        if self.nulls is not None:
            end = first + int(np.searchsorted(self.nulls[first:end], True))
        places = self.places[first:end]
        if not len(places) or not len(ends):
            return np.empty((0, 2), np.int64), False
        least = np.uint64(self.least)
        most = np.iinfo(places.dtype).max
        ends = ends[(ends[:, 1] >= least) & (ends[:, 0] <= np.uint64(min(self.least + most, _MOST_64)))]
        if len(ends) == 1:  # as most often: in a third of the time
            [[low, high]] = ends.tolist()
            low, high = max(low - self.least, 0), min(high - self.least, int(most))
            begun = int(places.searchsorted(places.dtype.type(low), "left"))
            ended = int(places.searchsorted(places.dtype.type(high), "right"))
            found = np.array([[first + begun, first + ended]], np.int64)[: begun < ended]
            return found, low == high
        lows = (np.maximum(ends[:, 0], least) - least).astype(places.dtype)
        highs = np.minimum(ends[:, 1] - least, np.uint64(most)).astype(places.dtype)
        begin = np.searchsorted(places, lows, "left")
        behind = np.searchsorted(places, highs, "right")
        spans = np.stack([begin, behind], axis=1).astype(np.int64) + first
        return spans[begin < behind], False


@dataclass(frozen=True, slots=True, eq=False)
class CellOrder:
    """Immutable.  Rows whose cell of the first column is NULL are not in it."""

    source: Source
    rows: npt.NDArray[np.uint32]
    lines: tuple[CellLine, ...]

    def __len__(self) -> int:
        """Memory that it takes, in bytes, as the page cache counts."""
        return 64 + self.rows.nbytes + sum(line.nbytes for line in self.lines)

    def spans(self, sets: Sequence[ValueSet]) -> I64:
        """Which of ``rows`` have cells in these sets of the first columns, (n, 2), or some more.

        A column counts while those before it are fixed to one value."""
        first, end = 0, len(self.rows)
        spans = np.array([[first, end]], np.int64)[: end > first]
        for wanted, line in zip(sets, self.lines, strict=False):
            if not len(spans):
                break
            spans, is_one = line.found(wanted, first, end)
            if not is_one or not len(spans):
                break
            [[first, end]] = spans.tolist()
        return spans


def order_of(
    source: DiskRowsAt, index_id: int, column_ids: Sequence[int], *, make: bool = True
) -> CellOrder | None:
    """The rows of a base file, which has these columns, in their order; ``make``: made if need be.

    None where the page cache would not keep it.
    """
    file = source.file
    types = [file.columns[column_id].spec.type for column_id in column_ids]
    base = source.rowset.base
    made_of = tuple(
        (column_id, base.name_of(column_id), type_.kind, type_.width)
        for column_id, type_ in zip(column_ids, types, strict=True)
    )
    known: CellOrder | None = file.file.cached_page(_PLACES - index_id)
    if known is not None and known.source == made_of:
        return known
    cache = file.file.cache
    if not make or cache is None or _about(source, column_ids, types) * LARGE_PART > cache.limit_bytes:
        return None
    try:
        made = _made(source, made_of, types)
    except ColumnTooLarge:
        return None
    return made if file.file.replace(_PLACES - index_id, made) else None


def _about(source: DiskRowsAt, column_ids: Sequence[int], types: Sequence[ColumnType]) -> int:
    """Bytes that an order may take."""
    strings = sum(
        int(source.rows * (source.stored_bytes(column_id) + _WORD_BYTES))
        for column_id, type_ in zip(column_ids, types, strict=True)
        if not type_.width
    )
    return source.rows * (_ROW_BYTES + _CELL_BYTES * len(types)) + strings


def _made(source: DiskRowsAt, made_of: Source, types: Sequence[ColumnType]) -> CellOrder:
    ranked = []
    for (column_id, *_), type_ in zip(made_of, types, strict=True):
        cells = source.file.read(column_id, 0, source.rows)
        null = None
        if cells.validity is not None:
            null = np.unpackbits(cells.validity, count=cells.length, bitorder="little") == 0
        nulls = null if null is not None and null.any() else None
        ranked.append((type_, *CellLine.ranked(type_, cells), nulls))
    first_null = ranked[0][3]
    some = np.arange(source.rows) if first_null is None else np.flatnonzero(~first_null)
    sorting: list[npt.NDArray[np.bool_] | U64] = []
    for number, (_, ranks, _, null) in reversed(list(enumerate(ranked))):
        sorting.append(ranks[some])
        if number and null is not None:
            sorting.append(null[some])
    order = np.argsort(sorting[0]) if len(sorting) == 1 else np.lexsort(sorting)
    rows = some[order].astype(np.uint32)
    lines = [
        CellLine.of(type_, ranks, words, null if number else None, rows)
        for number, (type_, ranks, words, null) in enumerate(ranked)
    ]
    return CellOrder(made_of, rows, tuple(lines))


__all__ = ["CellLine", "CellOrder", "order_of"]
