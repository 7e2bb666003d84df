"""What maintenance could do to a tablet, with what each would free and gain: for ``scoring`` to choose from.

Reads only what views and manifests say; opens no file and takes no lock but to look at claims.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from kudu_core.common.run.clock import micros_of
from kudu_core.common.run.locks import mutex
from kudu_core.common.schema.schema import Schema
from kudu_core.rowset.disk.patches import may_be_kept
from kudu_core.rowset.disk.writing import DECODED_FACTOR
from kudu_core.rowset.rows.meta import DeltaRef, RowSetMeta
from kudu_core.tablet.compact import history_gc
from kudu_core.tablet.compact.delta_compaction import redo_files
from kudu_core.tablet.maintain.delta_policy import ColumnUse, delta_choice, major_columns
from kudu_core.tablet.maintain.merge_policy import MergeChoice, RowSetStats, choose_merge
from kudu_core.tablet.maintain.scoring import DELTA_FLUSH, FLUSH, HISTORY_GC, MAJOR, MERGE, Operation
from kudu_core.tablet.store.tablet import Tablet

if TYPE_CHECKING:
    from kudu_core.options import Options
    from kudu_core.rowset.disk.diskrowset import DiskRowSet
    from kudu_core.wal.format import Segment

FILE_COST = 0.05
"""What a REDO file costs a read of its rowset, where reading a rowset costs 1, beside the share of its rows
that the files change."""

FULL_FRACTION = 0.75
"""Of the decoded size at which the writer of rowsets begins the next one: such a rowset is as large as
rowsets get, however few bytes it takes on disk."""

LOOK_AGAIN_S = 30.0
"""How long what a merge policy said of a layout holds: rows become droppable with time."""


# ---- the flush lane


class KeptLog:
    """What a replay of the log costs from some time on."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        """``segments``: oldest first."""
        self._last_ts = [segment.last_ts for segment in segments]
        costs = accumulate((segment.replay_bytes for segment in reversed(segments)), initial=0)
        self._costs = [*costs][::-1]  # of each with those after it

    def since(self, first_ts: int | None) -> int:
        """Bytes of the segments that may hold what happened then or later; None: nothing did."""
        return 0 if first_ts is None else self._costs[bisect_left(self._last_ts, first_ts)]


def flush_operations(tablet: Tablet, options: Options, now_us: int, log: KeptLog) -> Iterator[Operation]:
    """The memory stores of a tablet: each can be flushed."""

    def due(size: int, first_ts: int | None, is_frozen: bool) -> float:
        if is_frozen:
            return float("inf")  # a flush of it has failed, or was interrupted
        by_size = size / options.flush_threshold_bytes
        if first_ts is None:
            return by_size
        age_us = max(0, now_us - micros_of(first_ts))
        limit_us = options.flush_age_s * 1e6
        by_age = age_us / limit_us if limit_us else float(age_us > 0)
        return max(by_size, by_age)

    view = tablet.view
    if len(view.active) or view.frozen:
        memories = [view.active, *view.frozen]
        stamps = [m.first_ts for m in memories if m.first_ts is not None]
        first_ts = min(stamps, default=None)
        size = sum(m.nbytes for m in memories)
        yield Operation(
            FLUSH,
            tablet.id,
            memory_bytes=size,
            log_bytes=log.since(first_ts),
            due=due(size, first_ts, bool(view.frozen)),
        )
    for rowset in view.changed:
        stores = rowset.memory_stores
        first_ts = min((s.first_ts for s in stores if s.first_ts is not None), default=None)
        size = sum(s.nbytes for s in stores)
        if first_ts is None and all(s.frozen_at is None for s in stores):
            continue
        yield Operation(
            DELTA_FLUSH,
            tablet.id,
            (rowset.id,),
            memory_bytes=size,
            log_bytes=log.since(first_ts),
            due=due(size, first_ts, any(s.frozen_at is not None for s in stores)),
        )


# ---- the compaction lane


@dataclass(frozen=True, slots=True)
class _Known:
    """What the merge policy said of a layout."""

    metas: tuple[RowSetMeta, ...]
    """Entries and not the rowsets: who holds one of those keeps its files from being deleted."""
    busy: frozenset[int]
    until_s: float
    choice: MergeChoice | None


class Merges:
    """What the merge policy says of each tablet, kept while its layout stays."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._settled: dict[int, frozenset[int]] = {}
        """By tablet: rowsets that a merge has made no larger, and not less dead."""
        self._mutex = mutex()
        """One thread at a time changes these; others choose meanwhile."""

    def choice(
        self, tablet: Tablet, options: Options, horizon: int, now_s: float, left_alone: Collection[int]
    ) -> MergeChoice | None:
        """What to merge in a tablet.  ``left_alone``: ids of rowsets whose compaction has failed."""
        view = tablet.view
        with tablet.mutex:
            busy = frozenset(tablet.compacting) | frozenset(left_alone)
        known = self._known.get(tablet.id)
        same = known is not None and known.busy == busy and now_s < known.until_s
        metas = tuple(r.meta for r in view.rowsets)
        if same and known is not None and len(known.metas) == len(metas):
            if all(mine is other for mine, other in zip(known.metas, metas, strict=True)):
                return known.choice
        settled = self._settled.get(tablet.id, frozenset())
        schema = tablet.context.schema()
        row_bytes, column_ids = fixed_row_bytes(schema), frozenset(schema.by_id)
        choice = choose_merge(
            [
                rowset_stats(
                    r.meta, horizon, options.rowset_target_bytes, row_bytes, column_ids=column_ids,
                    available=r.id not in busy, settled=r.id in settled,
                )
                for r in view.rowsets
            ],
            budget_bytes=options.compaction_budget_bytes,
            target_bytes=options.rowset_target_bytes,
        )  # fmt: skip
        with self._mutex:
            # Else a merge ended meanwhile, after which the choice may be to do the same again.
            if self._settled.get(tablet.id, frozenset()) == settled:
                self._known[tablet.id] = _Known(metas, busy, now_s + LOOK_AGAIN_S, choice)
        return choice

    def settle(self, tablet: Tablet, rowset_ids: Collection[int]) -> None:
        """Merging these again would do no more than it just did."""
        with self._mutex:
            still = self._settled.get(tablet.id, frozenset()) & frozenset(tablet.view.tree.ids)
            self._settled[tablet.id] = still | frozenset(rowset_ids)
            self._known.pop(tablet.id, None)


def rowset_stats(
    meta: RowSetMeta,
    horizon: int,
    target_bytes: int,
    row_bytes: int,
    *,
    column_ids: Collection[int] | None = None,
    available: bool = True,
    settled: bool = False,
) -> RowSetStats:
    """What the merge policy asks of a rowset; ``row_bytes``: what a row takes decoded, at least.

    ``column_ids``: of the schema; None takes no column to be dropped.
    """
    full = settled or meta.rows * row_bytes >= FULL_FRACTION * DECODED_FACTOR * target_bytes
    droppable = 0 if settled else sum(droppable_deletions(ref, horizon) for ref in meta.redo)
    stale = 0 if settled else meta.stale_bytes(meta.column_ids if column_ids is None else column_ids)
    return RowSetStats(
        meta.id,
        meta.min_key,
        meta.max_key,
        meta.size_bytes,
        meta.rows,
        min(droppable, meta.rows),
        stale,
        full,
        available,
    )


def droppable_deletions(ref: DeltaRef, horizon: int) -> int:
    """Deletions of a REDO file at or below the horizon, taken to lie evenly in its time."""
    if horizon >= ref.max_ts:
        return ref.liveness
    if horizon <= ref.min_ts:
        return 0
    return int(ref.liveness * ((horizon - ref.min_ts) / (ref.max_ts - ref.min_ts)))


def fixed_row_bytes(schema: Schema) -> int:
    """Bytes of a decoded row beside its strings: what the writer of rowsets counts at least."""
    return sum(column.type.width or 4 for column in schema.columns) + 8 * len(schema.key_ids)


def compaction_operations(
    tablet: Tablet, options: Options, merges: Merges, horizon: int, now_s: float, left_alone: Collection[int]
) -> Iterator[Operation]:
    """Compactions and history GC of a tablet that are worth something."""
    view = tablet.view
    sizes = {r.id: r.meta.size_bytes for r in view.rowsets}
    total = max(1, sum(sizes.values()))
    freed = sum(history_gc.ancient_bytes(rowset, horizon) for rowset in view.rowsets)
    if freed:
        yield Operation(HISTORY_GC, tablet.id, freed_bytes=freed)
    with tablet.mutex:
        busy = set(tablet.compacting) | set(left_alone)
    for rowset in view.rowsets:
        if not rowset.meta.redo or rowset.id in busy:
            continue
        refs = live_refs(tablet, rowset)
        uses = column_uses(tablet, rowset, refs)
        kind = delta_choice(rowset.meta, refs, uses)
        if kind is None:
            continue
        changed = sum(ref.entries for ref in refs)
        deltas = sum(ref.file.size for ref in refs)
        gain = sizes[rowset.id] / total * (min(1.0, changed / rowset.meta.rows) + FILE_COST * len(refs))
        cost = 2 * deltas
        if kind == MAJOR:
            cost += 2 * sum(map(rowset.meta.column_bytes, major_columns(rowset.meta, refs, uses)))
        yield Operation(kind, tablet.id, (rowset.id,), gain=gain, cost_bytes=cost)
    if tablet.dropped_ts is None:
        choice = merges.choice(tablet, options, horizon, now_s, left_alone)
        if choice is not None:
            yield Operation(
                MERGE,
                tablet.id,
                choice.rowsets,
                gain=choice.gain,
                cost_bytes=2 * choice.input_bytes,
                merge=choice,
                overlap_ns=view.tree.bounds.overlap_ns,
            )


def column_uses(tablet: Tablet, rowset: DiskRowSet, refs: Sequence[DeltaRef]) -> dict[int, ColumnUse]:
    """What reads make of the columns that REDO files of a rowset change."""
    columns, cache = tablet.context.schema().by_id, tablet.context.cache
    changes: dict[int, int] = {}
    for ref in refs:
        for column_id, count in ref.updates.items():
            changes[column_id] = changes.get(column_id, 0) + count
    limit_bytes = 0 if cache is None else cache.limit_bytes
    return {
        i: ColumnUse(
            rowset.heat.scans(i), may_be_kept(count, columns[i].type.width, rowset.meta.rows, limit_bytes)
        )
        for i, count in changes.items()
    }


def worth_folding(tablet: Tablet, rowset_id: int) -> Sequence[int]:
    """The columns of which a major compaction of a rowset pays; none of a rowset that is gone."""
    rowset = tablet.view.rowset(rowset_id)
    if rowset is None:
        return ()
    refs = live_refs(tablet, rowset)
    return major_columns(rowset.meta, refs, column_uses(tablet, rowset, refs))


def live_refs(tablet: Tablet, rowset: DiskRowSet) -> tuple[DeltaRef, ...]:
    """A rowset's first REDO files, but for what they say of dropped columns: no scan pays for that."""
    known = tablet.context.schema().by_id
    return tuple(
        replace(store.ref, updates={i: count for i, count in store.ref.updates.items() if i in known})
        for store in redo_files(rowset)
    )


__all__ = [
    "KeptLog",
    "Merges",
    "column_uses",
    "compaction_operations",
    "flush_operations",
    "live_refs",
    "rowset_stats",
    "worth_folding",
]
