"""Rows of several rowsets in one order of keys, a range of keys at a time.

``plan`` cuts the keys of all inputs into ranges of about one output each, by their key indexes, or where
rows are large by their keys, so that whatever the inputs hold, memory holds one range.  ``MergedRows`` are
the rows of one range: the keys are merged first, then each column is read and put into that order when it is
asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kudu_core._ext.keys import keys as keys_kernel
from kudu_core._ext.keys.merge_plan import merge
from kudu_core.cfile.files.delta_codes import REDO_DELETE
from kudu_core.cfile.pages.page import BLOCK_ROWS
from kudu_core.common.rows.keys import EncodedKeys, decode_keys
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.run.ordering import distinct
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.errors import Corruption
from kudu_core.rowset.disk.diskrowset import DiskRowsAt, DiskRowSet
from kudu_core.rowset.disk.entries import changes_between
from kudu_core.rowset.memory.changelog import ChangeLog

ROW_BYTES = 48
"""What a row of a range takes in memory beside its cells: key, hash, and where it comes from."""

LARGEST_STEP = 1 / 8
"""Share of an output that the smallest part of a range may have.  A mini-block of rows is less, unless rows
are large or outputs small."""

KEYS_AT_ONCE = 64 * BLOCK_ROWS
SAMPLE_BYTES = 1 << 20
"""About as much is read of a column, three times, to know how large its rows are."""

MAX_COLUMN_BYTES = 1 << 30
"""Of a column of one range: what int32 offsets address, with room to spare."""


class TooMuch(Exception):
    """The rows of a range are too large for one file: cut it."""


@dataclass(frozen=True, slots=True, eq=False)
class MergeInput:
    """One input as the merge reads it."""

    rowset: DiskRowSet
    """Past the page cache, without UNDO that is dropped anyway."""
    at: DiskRowsAt
    """At the cut."""
    dead: np.ndarray
    """Rowids, ascending, uint32, of rows whose deletion lies at or below the horizon."""

    @staticmethod
    def of(rowset: DiskRowSet, cut: int, horizon: int) -> MergeInput:
        """Opens the rowset's files."""
        past_cache = rowset.uncached(horizon)
        at = past_cache.at(cut)
        assert at is not None, "every row was inserted before the cut"
        return MergeInput(past_cache, at, _dead(past_cache, horizon))

    @property
    def rows(self) -> int:
        return self.rowset.meta.rows


def _dead(rowset: DiskRowSet, horizon: int) -> np.ndarray:
    """Rowids, ascending, uint32, of rows that were deleted at or below the horizon."""
    found = [np.empty(0, np.uint32)]
    for store in rowset.redo:
        if isinstance(store, ChangeLog) or store.ref.liveness:
            entries = changes_between(store, 0, horizon, columns=())
            if entries is not None:
                found.append(entries.rowids[entries.ops == REDO_DELETE])
    return np.sort(np.concatenate(found))


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """How large one output may be."""

    file_bytes: int
    """As stored, of the base."""
    memory_bytes: int
    """Decoded, with what the merge itself needs."""


def plan(
    sources: Sequence[MergeInput], sizes: Sequence[tuple[float, float]], limits: OutputLimits
) -> np.ndarray:
    """(ranges + 1, sources) int64: where each range of keys begins and ends in each source.

    ``sizes``: ``row_bytes`` of each source.  Reads only key indexes, page indexes and some keys: all of a
    source, where few of its rows fill a range, and none where all sources fit into one.
    """
    ends = np.array([[s.rows for s in sources]], np.int64)
    shares = [
        (stored / limits.file_bytes, (decoded + ROW_BYTES) / limits.memory_bytes) for stored, decoded in sizes
    ]
    if sum(source.rows * max(share) for source, share in zip(sources, shares, strict=True)) <= 1:
        return np.concatenate([np.zeros_like(ends), ends])
    firsts: list[EncodedKeys] = []
    weights: list[np.ndarray] = []
    for source, (in_file, in_memory) in zip(sources, shares, strict=True):
        step = _step(max(in_file, in_memory))
        keys = _keys_at(source, step)
        rows = np.full(len(keys), step, np.float64)
        rows[-1] = source.rows - step * (len(keys) - 1)
        gone = np.bincount(source.dead // np.uint32(step), minlength=len(keys))
        firsts.append(keys)
        # Dead rows take no room in a file, but in memory while they are looked at.
        weights.append(np.maximum((rows - gone) * in_file, rows * in_memory))
    every = EncodedKeys.concat(firsts)
    order = every.sort()
    filled = np.cumsum(np.concatenate(weights)[order])
    count = int(np.ceil(filled[-1]))
    edges = np.zeros((1, len(sources)), np.int64)
    if count > 1:
        wanted = np.arange(1, count) * (filled[-1] / count)
        chosen = distinct(np.searchsorted(filled, wanted))
        bounds = every.take(order[chosen[chosen > 0]])
        inner = np.array([[s.at.file.lower_bound(key) for s in sources] for key in bounds], np.int64)
        edges = np.concatenate([edges, inner.reshape(-1, len(sources))])
    edges = np.concatenate([edges, ends])
    filled_ranges = np.ones(len(edges), bool)
    filled_ranges[1:] = (edges[1:] > edges[:-1]).any(axis=1)
    return edges[filled_ranges]


def _step(share: float) -> int:
    """Of how many rows a range may be put together, of which each is such a share of an output."""
    step = BLOCK_ROWS
    while step > 1 and step * share > LARGEST_STEP:
        step //= 2
    return step


def _keys_at(source: MergeInput, step: int) -> EncodedKeys:
    """The keys of every so many rows, from the first one on."""
    file = source.at.file
    if step == BLOCK_ROWS:
        return EncodedKeys(*file.key_index())
    found = []
    for first in range(0, source.rows, KEYS_AT_ONCE):
        keys = EncodedKeys(*file.keys(first, min(first + KEYS_AT_ONCE, source.rows)))
        found.append(keys.take(np.arange(0, len(keys), step)))
    return EncodedKeys.concat(found)


def row_bytes(schema: Schema, source: MergeInput) -> tuple[float, float]:
    """About how many bytes a row of the source takes: (as stored, decoded)."""
    file, meta = source.at.file, source.rowset.meta
    stored = file.bloom_bytes + file.key_bytes
    decoded = 0.0
    for column in schema.columns:
        pages = file.columns.get(column.id)
        if pages is None:
            decoded += column.type.width or 4 + source.at.default_bytes([column])
            continue
        stored += pages.stored_bytes
        if column.type.width:
            decoded += column.type.width
        else:
            # Strings: those of some mini-blocks stand for all, or of as many rows as come to some bytes.
            count = int(np.clip(SAMPLE_BYTES * source.rows / max(1, pages.stored_bytes), 1, BLOCK_ROWS))
            last = (source.rows - 1) // count
            picked = sorted({0, last // 2, last})
            ranges = [(b * count, min((b + 1) * count, source.rows)) for b in picked]
            some = pages.read_ranges(ranges)
            decoded += some.nbytes / some.length
    deltas = sum(store.file.size for store in (*meta.redo, *meta.undo)) / meta.rows
    return stored / meta.rows, decoded + 2 * deltas


class MergedRows:
    """The rows of one range of keys, in their order; equal keys in the order of the sources."""

    def __init__(
        self, schema: Schema, sources: Sequence[MergeInput], lower: np.ndarray, upper: np.ndarray
    ) -> None:
        """``lower``, ``upper``: (sources,) int64, the rows of each source."""
        self.schema = schema
        self.source_rows = [
            SourceRows(number, source, int(a), int(b))
            for number, (source, a, b) in enumerate(zip(sources, lower, upper, strict=True))
            if a < b
        ]
        self.starts = np.cumsum([0, *(len(part) for part in self.source_rows)])
        """Rows are also numbered source after source; where each source begins in that count."""
        keys = [EncodedKeys(*p.source.at.file.keys(p.lower, p.upper)) for p in self.source_rows]
        self._from: tuple[np.ndarray, np.ndarray] | None = None
        """(which of ``source_rows`` int32, row in it int64) of each row; None: source after source."""
        if len(self.source_rows) > 1:
            source, position = merge([(part.data, part.offsets) for part in keys])
            if bool((source[1:] < source[:-1]).any()):
                self._from = source, position
        if self._from is None:
            self.keys = EncodedKeys.concat(keys)
        else:
            self.keys = EncodedKeys.interleave(keys, *self._from)
        self.repeated: np.ndarray | None = None
        """(rows,) bool: the key is that of the row before; None: no key repeats."""
        known = self.keys.order()
        if known == 0:
            names = ", ".join(part.source.rowset.base.path for part in self.source_rows)
            raise Corruption(names, 0, "keys are not in order")
        if known == 1:
            self.repeated = keys_kernel.same(self.keys.data, self.keys.offsets).view(np.bool_)

    def __len__(self) -> int:
        return len(self.keys)

    def order(self) -> np.ndarray:
        """(rows,) int64: out of source after source into the order of keys."""
        if self._from is None:
            return np.arange(len(self))
        source, position = self._from
        order: np.ndarray = self.starts[source]
        order += position
        return order

    def places(self) -> np.ndarray:
        """(rows,) int64: the place in order of each row, source after source."""
        if self._from is None:
            return np.arange(len(self))
        places = np.empty(len(self), np.int64)
        places[self.order()] = np.arange(len(self))
        return places

    def keep(self, kept: np.ndarray) -> None:
        """Only these places, (n,) int64 ascending, are asked for from now on."""
        self.keys = self.keys.take(kept)
        if self._from is None:
            self._from = self.place_of(kept)
        else:
            source, position = self._from
            self._from = source[kept], position[kept]

    def place_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(which of ``source_rows`` int32, row in it int64) of rows counted source after source."""
        source = np.searchsorted(self.starts, numbers, side="right") - 1
        return source.astype(np.int32), numbers - self.starts[source]

    def key_columns(self) -> dict[int, ColumnBuffers]:
        """The key columns of the rows kept: decoded from the keys, which no change touches."""
        return decode_keys(self.schema, self.keys).columns

    def parts(self, column: StoredColumn) -> list[ColumnBuffers]:
        """A column at the cut, source by source.

        Raises
        ------
        TooMuch
            More than one file can take.
        """
        if (
            sum(len(part) * part.source.at.default_bytes([column]) for part in self.source_rows)
            > MAX_COLUMN_BYTES
        ):
            raise TooMuch  # before it is made
        parts = [part.source.at.column(column, part.lower, part.upper) for part in self.source_rows]
        if not column.type.width and sum(len(part.data) for part in parts) > MAX_COLUMN_BYTES:
            raise TooMuch
        return parts

    def arranged(self, parts: list[ColumnBuffers]) -> ColumnBuffers:
        """A column of the rows kept, in their order."""
        if self._from is None:
            return ColumnBuffers.concat(parts)
        source, position = self._from
        if len(parts) == 1:
            return parts[0].take(position)
        return ColumnBuffers.interleave(parts, source, position)

    def cells(self, parts: list[ColumnBuffers], numbers: np.ndarray) -> ColumnBuffers:
        """Cells of ``parts`` of rows counted source after source, (n,) int64."""
        return ColumnBuffers.interleave(parts, *self.place_of(numbers))

    def insert_times_of(self, numbers: np.ndarray) -> np.ndarray:
        """(n,) uint64 of rows counted source after source."""
        parts = [ColumnBuffers(8, len(part), part.insert_times().view(np.uint8)) for part in self.source_rows]
        times: np.ndarray = self.cells(parts, numbers).values.view(np.uint64)
        return times

    def insert_times(self, horizon: int) -> np.ndarray:
        """(rows kept,) uint64.  Times at or below the horizon, which nobody tells apart, are one."""
        metas = [part.source.rowset.meta for part in self.source_rows]
        old = [meta.max_insert_ts for meta in metas if meta.max_insert_ts <= horizon]
        if len(old) == len(metas):
            return np.full(len(self), max(old), np.uint64)
        known = [meta.insert_ts for meta in metas]
        oldest = max(old, default=0)
        if None not in known:
            each = np.array([oldest if ts <= horizon else ts for ts in known if ts is not None], np.uint64)
            if len(each) == 1:
                return np.full(len(self), each[0], np.uint64)
            if self._from is None:
                return np.repeat(each, [len(part) for part in self.source_rows])
            times: np.ndarray = each[self._from[0]]
            return times
        above = np.uint64(horizon)
        parts = [part.insert_times() for part in self.source_rows]
        newest = np.uint64(max(oldest, *(int(times[times <= above].max(initial=0)) for times in parts)))
        buffers = []
        for part_times in parts:
            clamped = np.where(part_times <= above, newest, part_times)
            buffers.append(ColumnBuffers(8, len(clamped), clamped.view(np.uint8)))
        times = self.arranged(buffers).values.view(np.uint64)
        return times  # noqa: RET504  its type


@dataclass(frozen=True, slots=True, eq=False)
class SourceRows:
    """Rows ``[lower, upper)`` of a source."""

    number: int
    """Of the source."""
    source: MergeInput
    lower: int
    upper: int

    def __len__(self) -> int:
        return self.upper - self.lower

    def insert_times(self) -> np.ndarray:
        """(rows,) uint64."""
        meta = self.source.rowset.meta
        if meta.insert_ts is not None:
            return np.full(len(self), meta.insert_ts, np.uint64)
        times = self.source.at.file.insert_times(self.lower, self.upper)
        assert times is not None, "the manifest or the file says when rows were inserted"
        return times


__all__ = ["MergeInput", "MergedRows", "OutputLimits", "SourceRows", "TooMuch", "plan", "row_bytes"]
