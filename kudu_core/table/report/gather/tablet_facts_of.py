"""Tablets and their rowsets: sizes, and where rowsets lie over each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kudu_core._ext.base.status import PageError
from kudu_core.errors import KuduError
from kudu_core.page.report_data import MemRowSetFacts, ReportedTablet, RowSetFacts
from kudu_core.tablet.maintain.merge_policy import RowSetLayout
from kudu_core.tablet.maintain.operations import fixed_row_bytes, rowset_stats

if TYPE_CHECKING:
    from kudu_core.rowset.disk.diskrowset import DiskRowSet
    from kudu_core.table.opened.engine import Engine
    from kudu_core.tablet.maintain.merge_policy import RowSetStats
    from kudu_core.tablet.store.tablet import Tablet
    from kudu_core.tablet.view.view import View

KEY_CHARACTERS = 80
"""Of a key for people."""


def tablet_facts(
    engine: Engine,
    views: Mapping[int, View],
    tablet: Tablet,
    place: int,
    horizon: int,
    chosen: Collection[int],
) -> ReportedTablet:
    """``views``: by tablet, of the report's moment; ``chosen``: the rowsets that a merge would take."""
    view = views[tablet.id]
    schema = engine.schema
    row_bytes, column_ids = fixed_row_bytes(schema), frozenset(schema.by_id)
    target = engine.options.rowset_target_bytes
    stats = {
        r.id: rowset_stats(r.meta, horizon, target, row_bytes, column_ids=column_ids) for r in view.rowsets
    }
    layout = RowSetLayout.of(list(stats.values()))
    lanes = lanes_of(layout)
    with tablet.mutex:
        busy = frozenset(tablet.compacting)
    places = {r.id: place for place, r in enumerate(layout.rowsets)}
    rowsets = [
        _rowset(
            engine,
            rowset,
            stats[rowset.id],
            (float(layout.low[at]), float(layout.high[at]), lanes[at]),
            rowset.id in busy,
            rowset.id in chosen,
        )
        for rowset in sorted(view.rowsets, key=lambda r: places[r.id])
        for at in (places[rowset.id],)
    ]
    memories = [m for m in (view.active, *view.frozen) if len(m) or m.first_ts is not None]
    keys = [(r.meta.min_key, r.meta.max_key) for r in view.rowsets]
    return ReportedTablet(
        id=tablet.id,
        partition=tablet.partition.ordinal,
        place=place,
        partition_text=engine.partitions.describe(tablet.partition),
        rowsets=rowsets,
        memrowsets=[
            MemRowSetFacts(
                rows=len(m), changes=sum(map(len, m.logs)), bytes=m.nbytes, frozen_ts=m.frozen_at
            )
            for m in memories
        ],
        rows_stored=sum(r.rows for r in rowsets) + sum(len(m) for m in (view.active, *view.frozen)),
        memory_rows=sum(len(m) for m in (view.active, *view.frozen)),
        memory_bytes=view.memory_bytes,
        disk_bytes=sum(r.bytes for r in rowsets),
        height=layout.height if rowsets else 0.0,
        most_height=1 + max(lanes, default=-1),
        redo_bytes=sum(r.redo_bytes for r in rowsets),
        undo_bytes=sum(r.undo_bytes for r in rowsets),
        changes=sum(r.redo_entries + r.memory_changes for r in rowsets),
        first_key=key_text(engine, min(k for k, _ in keys)) if keys else None,
        last_key=key_text(engine, max(k for _, k in keys)) if keys else None,
        created_ts=tablet.created_ts,
        dropped_ts=tablet.dropped_ts,
    )


def _rowset(
    engine: Engine,
    rowset: DiskRowSet,
    known: RowSetStats,
    place: tuple[float, float, int],
    busy: bool,
    chosen: bool,
) -> RowSetFacts:
    meta, stores = rowset.meta, rowset.memory_stores
    return RowSetFacts(
        id=meta.id,
        rows=meta.rows,
        low=place[0],
        high=place[1],
        lane=place[2],
        first_key=key_text(engine, meta.min_key),
        last_key=key_text(engine, meta.max_key),
        bytes=meta.size_bytes,
        base_bytes=meta.base.size,
        redo_files=len(meta.redo),
        redo_bytes=sum(d.file.size for d in meta.redo),
        redo_entries=sum(d.entries for d in meta.redo),
        undo_files=len(meta.undo),
        undo_bytes=sum(d.file.size for d in meta.undo),
        undo_entries=sum(d.entries for d in meta.undo),
        memory_changes=sum(map(len, stores)),
        memory_bytes=sum(s.nbytes for s in stores),
        durable_ts=meta.durable,
        newest_insert_ts=meta.max_insert_ts,
        droppable_rows=known.droppable_rows,
        stale_bytes=known.stale_bytes,
        busy=busy,
        chosen=chosen,
    )


def in_key_order(tablets: Iterable[Tablet]) -> dict[int, int]:
    """By tablet: its place among all by the lower bound of its range, then by its buckets."""

    def bounds(tablet: Tablet) -> tuple[bytes, tuple[int, ...], int]:
        held = tablet.partition.range
        return (b"" if held is None else held.lower or b""), tablet.partition.buckets, tablet.id

    return {tablet.id: place for place, tablet in enumerate(sorted(tablets, key=bounds))}


def lanes_of(layout: RowSetLayout) -> list[int]:
    """For each rowset, by its first key, the lowest lane in which it overlaps none before it.

    Neighbours touch: where a rowset ends at the share at which another begins, keys decide.
    """
    lanes = []
    taken: list[tuple[bytes, int]] = []
    """Heap of (last key, lane) of the newest rowset of each lane that may still lie over one."""
    free: list[int] = []
    for rowset in layout.rowsets:
        while taken and taken[0][0] < rowset.min_key:
            heappush(free, heappop(taken)[1])
        lane = heappop(free) if free else len(taken)
        heappush(taken, (rowset.max_key, lane))
        lanes.append(lane)
    return lanes


def key_text(engine: Engine, key: bytes) -> str:
    """An encoded key for people."""
    codec = engine.schema.key_codec
    try:
        told = [repr(v) if isinstance(v, str | bytes) else str(v) for v in codec.decode(key)]
        text = ", ".join(told)
    except (PageError, KuduError, ValueError, OverflowError):
        text = codec.show(key)  # it has a value that Python has no type for
    return text if len(text) <= KEY_CHARACTERS else f"{text[:KEY_CHARACTERS]}..."


__all__ = ["KEY_CHARACTERS", "in_key_order", "key_text", "lanes_of", "tablet_facts"]
