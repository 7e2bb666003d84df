"""What sorted rows come to in each tablet, written to staging (protocol G2).

Reads the tablets' views and writes new files only, so any process may do it: the holder of the lease, or
one that has the table open for reading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kudu_core.common.run.gates import Flag
from kudu_core.common.run.held_memory import release_free
from kudu_core.common.run.measure.work import under_way
from kudu_core.errors import ColumnTooLarge
from kudu_core.rowset.disk.writing import DECODED_FACTOR
from kudu_core.table.calls.call import row_default_bytes
from kudu_core.table.calls.refused import Refused, returned
from kudu_core.table.calls.repeats import NO_RULES, RowRules
from kudu_core.table.ingest.decide_range import DecidedRange, decide_range
from kudu_core.table.runs.sorted import KeyRange, Run, halved, range_bytes
from kudu_core.table.runs.staged import StagedRows, ranges_of
from kudu_core.tablet.ingest import part as ingest

if TYPE_CHECKING:
    from kudu_core.common.partition.partitions import PartitionSchema
    from kudu_core.common.schema.schema import Schema
    from kudu_core.table.opened.engine import Engine

MEMORY_DIVISOR = 4
"""The memory limit divided by this: what the ranges that are built at one time take before encoding."""
Done = tuple[DecidedRange, ingest.Built | None]
"""What became of a range, and its files where its tablet takes them."""
LARGE_FACTOR = 2
"""A range of so many times what it should have is cut at its middle."""
MAX_BYTES = 512 << 20
"""Of a run or a range: what int32 offsets address with room to spare."""


@dataclass(slots=True)
class SortedRows:
    """The rows of calls as runs."""

    schema: Schema
    partitions: PartitionSchema
    runs: Sequence[Run]
    starts: np.ndarray
    """Number of the first row of each call, (calls,) int64."""
    rules: RowRules = NO_RULES
    job: str | None = None
    """The id of the distributed write that they are of."""
    errors_kept: int | None = None
    """So many refused rows are told of with their keys, the others by their number; None: all."""

    @property
    def ordinals(self) -> list[int]:
        """Ordinals of the partitions that the rows belong to, ascending; -1 where none takes some."""
        return sorted({ordinal for run in self.runs for ordinal in run.spans})


@dataclass(slots=True)
class Errors:
    """Rows that were refused."""

    kept: int | None
    rows: list[Refused] = field(default_factory=list)
    counts: dict[int, int] = field(default_factory=dict)
    """By code."""
    _count: int = 0

    def add(self, refused: Refused) -> None:
        codes, counts = np.unique(refused.codes, return_counts=True)
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            self.counts[code] = self.counts.get(code, 0) + count
        left = len(refused.rows) if self.kept is None else max(0, self.kept - self._count)
        if left:
            self._count += min(left, len(refused.rows))
            self.rows.append(refused if left >= len(refused.rows) else refused.slice(0, left))

    def told(self, schema: Schema, starts: np.ndarray, on_error: str) -> pa.Table | None:
        """The refused rows; raises them when that is the policy."""
        refused = Refused.concat(self.rows) if self.rows else None
        return returned(schema, refused, starts, on_error, None if self.kept is None else self.counts)


def build_parts(
    engine: Engine,
    rows: SortedRows,
    parts: Sequence[ingest.IngestPart],
    staging: str,
    *,
    raising: bool,
    newest: bool = False,
) -> Errors:
    """Decide the rows of these parts' tablets, and those of no tablet, and write the files.

    ``raising``: nothing will be applied when some row is refused, so from there on rows are only decided.
    ``newest``: under the tablets' mutexes, against the newest state and not that of the parts' cuts.
    """
    by_ordinal = {part.tablet.partition.ordinal: part for part in parts}
    failed = Flag()

    def one(range_: KeyRange) -> Done:
        part = by_ordinal.get(range_.ordinal)
        view = None if part is None else part.view
        cut = None if part is None or newest else part.cut
        decided = decide_range(rows.schema, rows.partitions, view, cut, range_, rows.rules)
        if decided.refused is not None and raising:
            failed.set()
        built = None
        if part is not None and not failed.is_set():
            assert decided.net is not None
            built = ingest.build(part.tablet, rows.schema, part.view, decided.net, staging)
        return replace(decided, net=None), built

    most = _target(engine)

    def work(range_: KeyRange) -> list[Done]:
        done = _in_pieces(rows.schema, range_, most, one)
        release_free(range_bytes(range_))
        return done

    ranges = _ranges(engine, rows, {-1, *by_ordinal}, most)
    errors = Errors(rows.errors_kept)
    waiting_limit = engine.options.memory_bytes // MEMORY_DIVISOR
    window = engine.pool.threads + 1
    load = under_way()
    if load is not None:
        load.begin("writing", sum(map(_rows_of, ranges)))
    for range_, results in zip(ranges, engine.pool.map(work, ranges, window=window), strict=True):
        if load is not None:
            load.advance(_rows_of(range_), quiet=newest)  # under the mutexes nobody is told
        part = by_ordinal.get(range_.ordinal)
        for decided, built in results:
            if decided.refused is not None:
                errors.add(decided.refused)
            if part is None:
                continue
            part.counts += decided.counts
            part.undecided |= decided.undecided
            if built is not None and not failed.is_set():
                part.add(built)
        if part is None or failed.is_set():
            continue
        if part.waiting_bytes > waiting_limit and range_.end is not None:
            part.write_deltas(part.passed(range_.end))
    if not failed.is_set():
        for part in parts:
            part.write_deltas(list(part.waiting), engine.pool)
    return errors


def _in_pieces(schema: Schema, range_: KeyRange, target: int, act: Callable[[KeyRange], Done]) -> list[Done]:
    """A range; as several where it is large, which samples of so many rows do not tell of large rows, or
    where one column of it is too large."""
    done: list[Done] = []
    waiting = [range_]
    while waiting:
        some = waiting.pop()
        halves = halved(schema, some) if _is_large(some, target) else None
        if halves is not None:
            waiting.extend(reversed(halves))
            continue
        try:
            done.append(act(some))
        except ColumnTooLarge:
            halves = halved(schema, some)
            if halves is None:
                raise
            waiting.extend(reversed(halves))
    return done


def _is_large(range_: KeyRange, target: int) -> bool:
    """Whether it is to be cut.  What a task has staged was cut by it, and may be a rowset already."""
    staged = any(isinstance(run, StagedRows) for run, _, _ in range_.spans)
    return not staged and range_bytes(range_) > LARGE_FACTOR * target


def _rows_of(range_: KeyRange) -> int:
    return sum(upper - lower for _, lower, upper in range_.spans)


def _target(engine: Engine) -> int:
    """Bytes of a range that makes about one rowset; as many as there are threads fit into memory."""
    share = engine.options.memory_bytes // (MEMORY_DIVISOR * engine.pool.threads)
    return min(engine.options.rowset_target_bytes * DECODED_FACTOR, share, MAX_BYTES)


def _ranges(engine: Engine, rows: SortedRows, wanted: set[int], target: int) -> list[KeyRange]:
    """Ranges of about so many bytes."""
    threads = engine.pool.threads
    runs: dict[int, list[Run]] = {}
    for run in rows.runs:
        for ordinal in run.spans:
            if ordinal in wanted:
                runs.setdefault(ordinal, []).append(run)
    evenly = threads if len(runs) == 1 else 1  # with several tablets there is work for all anyway
    return [
        r
        for o in sorted(runs)
        for r in ranges_of(rows.schema, runs[o], o, _given_bytes(rows.schema, runs[o], target), evenly)
    ]


def _given_bytes(schema: Schema, runs: Sequence[Run], target_bytes: int) -> int:
    """How many bytes of what a call gives come to a target, with the defaults of what it does not give."""
    given = sum(run.nbytes for run in runs)
    added = 0
    for run in runs:
        rows = sum(part.upper - part.lower for part in run.spans.values())
        added += rows * row_default_bytes(schema, run.column_ids, run.op)
    return max(1, target_bytes * given // (given + added)) if added else target_bytes


__all__ = ["MAX_BYTES", "MEMORY_DIVISOR", "Errors", "SortedRows", "build_parts"]
