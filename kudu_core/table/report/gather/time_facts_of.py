"""Time: which past can be read and what it takes, and how much changed when.

Times come from where they are kept: of rows and changes in memory each has its own; a file of changes says
from when to when they are; a rowset has one time for all of its rows, or a column of them.  What has none of
these is counted and not placed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.common.run.clock import COUNTER_BITS, hybrid, micros_of
from kudu_core.page.report_data import ActivityFacts, HistoryBin, HistoryFacts, TimeBin
from kudu_core.tablet.compact import history_gc

if TYPE_CHECKING:
    from kudu_core.rowset.disk.diskrowset import DiskRowSet
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.view.view import View

BINS = 60
WIDTHS_S = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400)
"""What a bin may last."""
_SPANS_AT_ONCE = 10_000
READ_ROWS = 2_000_000
"""Insert times that are read from files, of the newest rowsets."""


def horizon_of(engine: Engine) -> int:
    """How far back history may be dropped now, of a reader as if it were the writer."""
    if engine.writer:
        return engine.horizon()
    retention = engine.options.history_retention_s
    oldest = 0 if retention is None else hybrid(max(0, engine.clock.now_us() - int(retention * 1e6)))
    return engine.pins.horizon(min(engine.visible_ts, oldest), drop=False)


def history_facts(engine: Engine, rowsets: Sequence[DiskRowSet], horizon: int) -> HistoryFacts:
    now_us = engine.clock.now_us()
    refs = [(ref, True) for r in rowsets for ref in r.meta.undo]
    refs += [(ref, False) for r in rowsets for ref in r.meta.redo]
    first_us = min((micros_of(ref.min_ts) for ref, _ in refs), default=now_us)
    width_us = _width_us(min(first_us, micros_of(engine.oldest_ts) or now_us), now_us)
    start_us = _start_us(now_us, width_us)
    bins = {
        wanted: spread(
            [(micros_of(r.min_ts), micros_of(r.max_ts), r.entries) for r, undo in refs if undo is wanted],
            start_us,
            width_us,
        )
        for wanted in (True, False)
    }
    return HistoryFacts(
        now_us=now_us,
        newest_ts=engine.visible_ts,
        oldest_ts=engine.oldest_ts,
        horizon_ts=horizon,
        retention_s=engine.options.history_retention_s,
        tags=dict(sorted(engine.table_file.state.tags.items(), key=lambda item: item[1])),
        snapshots_pinned=len(engine.pins),
        oldest_pin_ts=engine.pins.oldest,
        undo_bytes=sum(ref.file.size for ref, undo in refs if undo),
        undo_entries=sum(ref.entries for ref, undo in refs if undo),
        redo_bytes=sum(ref.file.size for ref, undo in refs if not undo),
        redo_entries=sum(ref.entries for ref, undo in refs if not undo),
        collectable_bytes=sum(history_gc.ancient_bytes(rowset, horizon) for rowset in rowsets),
        bin_s=width_us / 1e6,
        bins=[
            HistoryBin(start_us=start_us + n * width_us, undo_entries=float(u), redo_entries=float(r))
            for n, (u, r) in enumerate(zip(bins[True], bins[False], strict=True))
        ],
    )


def activity_facts(
    engine: Engine, views: Iterable[View], rowsets: Sequence[DiskRowSet], most_files: int
) -> ActivityFacts:
    """``most_files``: how many base files may be opened for the times of inserts."""
    times, spans = _changes(list(views), rowsets)
    unplaced: list[DiskRowSet] = []
    left, files = READ_ROWS, most_files
    for rowset in sorted(rowsets, key=lambda r: -r.meta.max_insert_ts):
        meta = rowset.meta
        if meta.insert_ts is not None:
            spans.append((meta.insert_ts, meta.insert_ts, meta.rows))
        elif meta.rows <= left and files > 0:
            left, files = left - meta.rows, files - 1
            read = rowset.base.open().uncached().insert_times(0, meta.rows)
            if read is not None:
                times.append(read)
        else:
            unplaced.append(rowset)
    # What merges leave of times up to the floor is the floor: no time at which anything happened.
    known = [ts[ts > np.uint64(engine.oldest_ts)] for ts in times]
    older = sum(map(len, times)) - sum(map(len, known))
    older += sum(count for _, high, count in spans if high <= engine.oldest_ts)
    spans = [span for span in spans if span[1] > engine.oldest_ts]
    stamps = np.concatenate([*known, np.empty(0, np.uint64)]) >> np.uint64(COUNTER_BITS)
    now_us = engine.clock.now_us()
    oldest = [int(stamps.min())] if len(stamps) else []
    oldest += [micros_of(low) for low, _, _ in spans]
    width_us = _width_us(min(oldest, default=now_us), now_us)
    start_us = _start_us(now_us, width_us)
    places = (stamps.astype(np.int64) - start_us) // width_us
    exact = np.bincount(places[(places >= 0) & (places < BINS)], minlength=BINS)
    wide: list[tuple[int, int, int]] = []
    for low, high, count in ((micros_of(first), micros_of(last), n) for first, last, n in spans):
        place = (low - start_us) // width_us
        if place == (high - start_us) // width_us and 0 <= place < BINS:
            exact[place] += count
        else:
            wide.append((low, high, count))
    evenly = spread(wide, start_us, width_us)
    placed = int(exact.sum()) + round(float(evenly.sum()))
    return ActivityFacts(
        bin_s=width_us / 1e6,
        bins=[
            TimeBin(start_us=start_us + n * width_us, exact=int(e), spread=round(float(s), 3))
            for n, (e, s) in enumerate(zip(exact, evenly, strict=True))
        ],
        older=max(0, older + len(stamps) + sum(count for _, _, count in spans) - placed),
        unplaced_rows=sum(r.meta.rows for r in unplaced),
        unplaced_until_ts=max((r.meta.max_insert_ts for r in unplaced), default=None),
    )


def _changes(
    views: Sequence[View], rowsets: Sequence[DiskRowSet]
) -> tuple[list[np.ndarray], list[tuple[int, int, int]]]:
    """Timestamps of what memory holds, (n,) uint64 each; and (first, last, how many) of files of changes."""
    times: list[np.ndarray] = []
    for view in views:
        for memory in (view.active, *view.frozen):
            if len(memory):
                times.append(memory.inserted(0, len(memory)).copy())
            times += [log.changes(0, len(log))[0].copy() for log in memory.logs if len(log)]
        times += [s.changes(0, len(s))[0].copy() for r in view.changed for s in r.memory_stores if len(s)]
    spans = [
        (ref.min_ts, ref.max_ts, ref.entries) for r in rowsets for ref in (*r.meta.redo, *r.meta.undo)
    ]
    return times, spans


def spread(spans: Sequence[tuple[int, int, int]], start_us: int, width_us: int) -> np.ndarray:
    """(``BINS``,) float64: amounts, each taken to lie evenly from its first to its last time, in bins of
    ``width_us`` from ``start_us`` on.  What lies outside of them is left out."""
    bins = np.zeros(BINS)
    edges = (np.arange(BINS + 1) * width_us).astype(np.float64)
    for at in range(0, len(spans), _SPANS_AT_ONCE):
        # Differences of whole numbers first: as floats, microseconds since 1970 are not exact enough to add.
        some = spans[at : at + _SPANS_AT_ONCE]
        part = [(low - start_us, high - start_us, amount) for low, high, amount in some]
        low, high, amount = np.array(part, np.float64).T[:, :, None]
        below = np.clip((edges - low) / np.maximum(1.0, high - low), 0.0, 1.0)
        bins += np.diff(below * amount, axis=1).sum(axis=0)
    return bins


def _width_us(first_us: int, now_us: int) -> int:
    """What a bin lasts, so that all of them reach back to ``first_us`` if that can be."""
    needed = max(0, now_us - first_us) / (BINS - 1)
    return int(1e6 * next((width for width in WIDTHS_S if width * 1e6 >= needed), WIDTHS_S[-1]))


def _start_us(now_us: int, width_us: int) -> int:
    """Where the first bin begins: now is in the last one, and bins begin at multiples of that."""
    return (now_us // width_us - (BINS - 1)) * width_us


__all__ = ["BINS", "activity_facts", "history_facts", "horizon_of"]
