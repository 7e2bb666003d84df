"""Sorted runs: how the rows of a large call are put in order of their keys.

A run is up to some hundred thousand rows that follow each other in one call, in order of tablet and
key.  One in memory is nothing but that order beside the caller's own rows; one that was spilled is a
file in staging (``spilled.py``).  Both give rows by their place in the order, so whoever wants the
rows of a range of keys asks every run for its part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.rows.keys import EncodedKeys, encode_keys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema.schema import Schema
from kudu_core.table.calls.call import Call, join, oversized_rows, same_form

RUN_ROWS = 1 << 19
"""Rows of a run in memory: keys and order stay in a core's cache while they are sorted."""
WHOLE_DIVISOR = 8
"""A batch of a run's size divided by this becomes a run of its own."""
SAMPLE_ROWS = 1 << 10
"""Of so many rows of a run the first key is kept, to find the others by."""


@dataclass(slots=True, eq=False)
class TabletSpan:
    """The part of a run that belongs to one tablet."""

    lower: int
    upper: int
    known: EncodedKeys | Callable[[], EncodedKeys]
    """The samples, or what reads them when they are first asked for."""

    @property
    def samples(self) -> EncodedKeys:
        """Keys of places ``lower``, ``lower + SAMPLE_ROWS``, ..."""
        if not isinstance(self.known, EncodedKeys):
            self.known = self.known()
        return self.known


class Run(Protocol):
    """Rows of one call in order of tablet and key; equal keys in the order of the call."""

    @property
    def call(self) -> int:
        """Which call, from 0."""
        ...

    @property
    def unique(self) -> bool: ...

    @property
    def alone(self) -> bool: ...

    @property
    def op(self) -> int | None:
        """The operation of all rows; None: each has its own."""
        ...

    @property
    def spans(self) -> dict[int, TabletSpan]:
        """By ordinal of the partition; -1: rows that none takes."""
        ...

    @property
    def nbytes(self) -> int:
        """Of its rows before encoding, with their keys."""
        ...

    @property
    def suspect(self) -> bool:
        """Some row may have to be refused whatever the table holds."""
        ...

    @property
    def column_ids(self) -> Sequence[int]: ...

    def column(self, column_id: int, lower: int, upper: int) -> ColumnBuffers:
        """The cells of the rows at places ``[lower, upper)`` of the order; so all that follow."""
        ...

    def numbers(self, lower: int, upper: int) -> np.ndarray:
        """(n,) int64: the rows' numbers, counted over all calls."""
        ...

    def ops(self, lower: int, upper: int) -> np.ndarray:
        """(n,) uint8, of a run without ``op``."""
        ...

    def status(self, lower: int, upper: int) -> np.ndarray | None:
        """(n,) uint8, as ``Call.status``."""
        ...


@dataclass(slots=True, eq=False)
class MemoryRun:
    """Rows ``lower, lower + 1, ...`` of ``source``, and their order."""

    call: int
    first: int
    source: Call
    lower: int
    order: np.ndarray | None
    """(n,) int64 rows of ``source``; None: they lie in order."""
    spans: dict[int, TabletSpan]
    nbytes: int
    suspect: bool
    begun: int
    """Number of the call's first row, over all calls."""

    @property
    def unique(self) -> bool:
        return self.source.unique

    @property
    def alone(self) -> bool:
        return self.source.alone

    @property
    def column_ids(self) -> Sequence[int]:
        return tuple(self.source.block.columns)

    def rows(self, lower: int, upper: int) -> np.ndarray:
        """(n,) int64: where in ``source`` the rows lie."""
        if self.order is None:
            return np.arange(self.lower + lower, self.lower + upper)
        return self.order[lower:upper]

    def column(self, column_id: int, lower: int, upper: int) -> ColumnBuffers:
        column = self.source.block.columns[column_id]
        if self.order is None:
            return column.slice(self.lower + lower, self.lower + upper)
        return column.take(self.order[lower:upper])

    def numbers(self, lower: int, upper: int) -> np.ndarray:
        rows = self.rows(lower, upper)
        known = self.source.numbers
        return rows + self.first if known is None else known[rows] + self.begun

    @property
    def op(self) -> int | None:
        return self.source.ops if isinstance(self.source.ops, int) else None

    def ops(self, lower: int, upper: int) -> np.ndarray:
        ops = self.source.ops
        assert isinstance(ops, np.ndarray)
        picked: np.ndarray = ops[self.rows(lower, upper)]
        return picked

    def status(self, lower: int, upper: int) -> np.ndarray | None:
        status = self.source.status
        return None if status is None else status[self.rows(lower, upper)]


class RunPiece(NamedTuple):
    """Rows of one call that are to become a run."""

    call: int
    first: int
    """Number, over all calls, of row 0 of ``source``."""
    source: Call
    lower: int
    upper: int
    begun: int
    """Number of the call's first row, over all calls."""


def pieces(calls: Iterable[Call], run_rows: int, run_bytes: int) -> Iterator[RunPiece]:
    """Cut calls into runs of at most so many rows and bytes.

    Large batches are cut; small ones that follow each other in a call are put together, by a copy.  Parts of
    a call in another form than the part before count as a call of their own.
    """
    number, first, begun, waiting_rows, waiting_bytes = -1, 0, 0, 0, 0
    before: Call | None = None
    waiting: list[Call] = []

    def together() -> Iterator[RunPiece]:
        nonlocal waiting_rows, waiting_bytes
        if waiting:
            source = join(waiting, first - waiting_rows - begun)
            waiting.clear()
            waiting_rows = waiting_bytes = 0
            yield RunPiece(number, first - source.rows, source, 0, source.rows, begun)

    for call in calls:
        nbytes = call.block.nbytes
        if before is None or not call.continues or not same_form(before, call):
            yield from together()
            number += 1
        if not call.continues:
            begun = first
        before = call
        if waiting_rows + call.rows > run_rows or waiting_bytes + nbytes > run_bytes:
            yield from together()
        if call.rows >= run_rows // WHOLE_DIVISOR or nbytes >= run_bytes // WHOLE_DIVISOR:
            yield from together()
            count = max(-(-call.rows // run_rows), -(-nbytes // run_bytes))
            step = max(8, -(-call.rows // count // 8) * 8)  # bitmaps are cut where a byte begins
            for lower in range(0, call.rows, step):
                yield RunPiece(number, first, call, lower, min(lower + step, call.rows), begun)
        else:
            waiting.append(call)
            waiting_rows += call.rows
            waiting_bytes += nbytes
        first += call.rows
    yield from together()


def sort_run(schema: Schema, partitions: PartitionSchema, piece: RunPiece) -> MemoryRun:
    """Put rows in order of tablet and key."""
    call, first, source, lower, upper, begun = piece
    count = upper - lower
    block = source.block if count == source.rows else source.block.slice(lower, upper)
    keys = encode_keys(schema, block)
    route = partitions.route(block)
    order, spans = tablet_spans(keys, route)
    if order is not None:
        order += lower
    suspect = (
        (source.status is not None and bool(source.status[lower:upper].any()))
        or keys.too_large() is not None
        or oversized_rows(block) is not None
    )
    nbytes = block.nbytes + len(keys.data)
    return MemoryRun(call, first, source, lower, order, spans, nbytes, suspect, begun)


def tablet_spans(keys: EncodedKeys, route: np.ndarray) -> tuple[np.ndarray | None, dict[int, TabletSpan]]:
    """Rows, of which there are some, in order of tablet and key: (n,) int64, None where they lie so; and the
    part of each tablet.  Equal keys stay in their order."""
    count = len(route)
    if bool((route == route[0]).all()):
        order = None if keys.order() >= 1 else keys.sort()
        return order, {int(route[0]): _span(keys, order, 0, count)}
    spans: dict[int, TabletSpan] = {}
    by_tablet = np.argsort(route, kind="stable")
    ordinals, starts = np.unique(route[by_tablet], return_index=True)
    ends = [*starts[1:].tolist(), count]
    ordered = np.empty(count, np.int64)
    for ordinal, start, end in zip(ordinals.tolist(), starts.tolist(), ends, strict=True):
        mine = by_tablet[start:end]
        of_tablet = keys.take(mine)
        ordered[start:end] = mine if of_tablet.order() >= 1 else mine[of_tablet.sort()]
        spans[ordinal] = _span(keys, ordered, start, end)
    return ordered, spans


def _span(keys: EncodedKeys, order: np.ndarray | None, lower: int, upper: int) -> TabletSpan:
    places = np.arange(lower, upper, SAMPLE_ROWS)
    return TabletSpan(lower, upper, keys.take(places if order is None else order[places]))


# ------------------------------------------------------------------------------------------- ranges


RunSpan = tuple[Run, int, int]
"""The rows at places ``[lower, upper)`` of a run."""


@dataclass(slots=True, eq=False)
class KeyRange:
    """All rows of one tablet whose keys lie in a range that no other rows' keys lie in."""

    ordinal: int
    spans: list[RunSpan]
    """Where its rows lie, in the order of the calls."""
    end: bytes | None
    """First key of the range that follows; None for the last one."""


def key_ranges(
    schema: Schema, runs: Sequence[Run], ordinal: int, target_bytes: int, multiple: int = 1
) -> list[KeyRange]:
    """Cut a tablet's rows into ranges of at most about so many bytes, in the order of their keys.

    ``multiple``: their number, if more than one, is a multiple of it.
    """
    mine = [(run, run.spans[ordinal]) for run in runs if ordinal in run.spans]
    nbytes = 0
    for run, span in mine:
        total = sum(s.upper - s.lower for s in run.spans.values())
        nbytes += run.nbytes * (span.upper - span.lower) // max(1, total)
    count = max(1, -(-nbytes // target_bytes))
    if count > 1:
        count = -(-count // multiple) * multiple
    cuts = _splitters([s.samples for _, s in mine], count)
    edges = [_places(schema, run, span, cuts) for run, span in mine]
    ranges = []
    for i in range(len(cuts) + 1):
        spans = [
            (run, at[i], at[i + 1]) for (run, _), at in zip(mine, edges, strict=True) if at[i] < at[i + 1]
        ]
        if spans:
            ranges.append(KeyRange(ordinal, spans, cuts[i] if i < len(cuts) else None))
    return ranges


def range_bytes(range_: KeyRange) -> int:
    """About, before encoding: a run's rows are taken to be of one size."""
    nbytes = 0
    for run, lower, upper in range_.spans:
        rows = sum(span.upper - span.lower for span in run.spans.values())
        nbytes += run.nbytes * (upper - lower) // max(1, rows)
    return nbytes


def halved(schema: Schema, range_: KeyRange) -> tuple[KeyRange, KeyRange] | None:
    """A range cut at the middle of its rows; None where they all have one key."""
    keys = [
        encode_keys(schema, RowBlock({i: run.column(i, lower, upper) for i in schema.key_ids}, upper - lower))
        for run, lower, upper in range_.spans
    ]
    every = EncodedKeys.concat(keys)
    ordered = every.take(every.sort())
    later = (ordered[i] for i in range(len(ordered) // 2, len(ordered)))
    middle = next((key for key in later if key != ordered[0]), None)
    if middle is None:
        return None
    cut = EncodedKeys.from_list([middle])
    below, above = [], []
    for (run, lower, upper), mine in zip(range_.spans, keys, strict=True):
        at = lower + int(mine.lower_bound(cut)[0])
        if lower < at:
            below.append((run, lower, at))
        if at < upper:
            above.append((run, at, upper))
    return KeyRange(range_.ordinal, below, middle), KeyRange(range_.ordinal, above, range_.end)


def _splitters(samples: Sequence[EncodedKeys], pieces: int) -> EncodedKeys:
    """Keys that cut what the samples stand for into equal pieces, strictly ascending."""
    every = EncodedKeys.concat(samples)
    if pieces <= 1 or len(every) < 2:
        return EncodedKeys.from_list(())
    every = every.take(every.sort())
    picked = np.linspace(0, len(every), pieces + 1).astype(np.int64)[1:-1]
    return EncodedKeys.from_list(sorted({every[row] for row in picked.tolist()}))


def _places(schema: Schema, run: Run, span: TabletSpan, cuts: EncodedKeys) -> list[int]:
    """Where in a run each piece begins, and where the last one ends."""
    places = [span.lower]
    samples = span.samples.lower_bound(cuts)
    for number, sample in enumerate(samples.tolist()):
        lower = span.lower + max(0, sample - 1) * SAMPLE_ROWS
        upper = min(span.upper, span.lower + sample * SAMPLE_ROWS)
        if lower < upper:
            columns = {c.id: run.column(c.id, lower, upper) for c in schema.key_columns}
            keys = encode_keys(schema, RowBlock(columns, upper - lower))
            lower += int(keys.lower_bound(cuts.slice(number, number + 1))[0])
        places.append(lower)
    return [*places, span.upper]
