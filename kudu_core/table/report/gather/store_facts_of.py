"""Memory and log of an open table."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kudu_core.fs.missing import FileMissing
from kudu_core.page.report_data import LogFacts, MemoryFacts, SegmentFacts
from kudu_core.wal.format import parse_segment_name

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine
    from kudu_core.table.opened.handle import Handle
    from kudu_core.tablet.view.view import View

HOLDERS = 5
"""Tablets that are named for one segment."""


def memory_facts(engine: Engine, views: Sequence[View]) -> MemoryFacts:
    cache = engine.cache.statistics()
    return MemoryFacts(
        limit_bytes=engine.options.memory_bytes,
        store_limit_bytes=engine.memory.store_limit_bytes,
        slow_bytes=engine.memory.slow_bytes,
        memrowset_bytes=sum(m.nbytes for view in views for m in (view.active, *view.frozen)),
        deltamemstore_bytes=sum(s.nbytes for view in views for r in view.changed for s in r.memory_stores),
        work_bytes=engine.tablet_context.work.held_bytes,
        cache_bytes=cache.bytes,
        cache_limit_bytes=cache.limit_bytes,
        cache_pages=cache.pages,
        cache_hits=cache.hits,
        cache_misses=cache.misses,
        throttled_count=engine.memory.throttle.waits,
        throttled_s=engine.memory.throttle.waited_s,
        flush_threshold_bytes=engine.options.flush_threshold_bytes,
    )


def log_facts(handle: Handle, engine: Engine, views: Mapping[int, View]) -> LogFacts:
    """What keeps the log is what only memory holds; ``views`` by tablet."""
    firsts = {tablet_id: first for tablet_id, view in views.items() if (first := _first_ts(view)) is not None}
    if engine.writer:
        segments = list(engine.log.segments)
        found = [_last_part(s.path) for s in segments]
        told = _held([(name, s.end, s.last_ts) for name, s in zip(found, segments, strict=True)], firsts)
        size: int | None = sum(s.bytes for s in told)
    else:
        told_or_none = None if engine.in_store else _listed(engine)
        told, size = told_or_none or [], None
    return LogFacts(
        durability=engine.options.durability,
        bytes=size,
        segments=None if engine.in_store and not engine.writer else told,
        committed_ts=engine.committed_ts,
        retained_since_ts=min(firsts.values(), default=None),
        reader_lag_s=None if engine.writer else max(0.0, handle.now_s() - handle.refreshed_s),
    )


def _first_ts(view: View) -> int | None:
    stamps = [m.first_ts for m in (view.active, *view.frozen)]
    stamps += [s.first_ts for r in view.changed for s in r.memory_stores]
    return min((ts for ts in stamps if ts is not None), default=None)


def _held(segments: Sequence[tuple[str, int, int]], firsts: Mapping[int, int]) -> list[SegmentFacts]:
    """``segments``: (name, bytes, timestamp of the last record), oldest first; ``firsts``: by tablet, the
    oldest change that only memory holds."""
    holders: list[list[int]] = [[] for _ in segments]
    last = [last_ts for _, _, last_ts in segments]
    for tablet_id, first in sorted(firsts.items(), key=lambda item: item[1]):
        place = bisect_left(last, first)
        if place < len(holders):
            holders[place].append(tablet_id)
    return [
        SegmentFacts(name=name, bytes=size, newest_ts=ts, held_by=by[:HOLDERS], held_by_count=len(by))
        for (name, size, ts), by in zip(segments, holders, strict=True)
    ]


def _listed(engine: Engine) -> list[SegmentFacts]:
    """The segments that lie in the folder, by their names, which begin with the epoch."""
    folder = f"{engine.path}/wal"
    found = []
    for name in engine.fs.listdir(folder):
        if parse_segment_name(name) is None:
            continue
        try:
            size = engine.fs.stat(f"{folder}/{name}").size
        except (FileNotFoundError, FileMissing):
            continue  # the writer has dropped it since
        found.append(SegmentFacts(name=name, bytes=size, newest_ts=None, held_by=[], held_by_count=0))
    return found


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]


__all__ = ["log_facts", "memory_facts"]
