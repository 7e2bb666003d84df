"""Which rowsets ``compact(full=True)`` merges: those that overlap, are small side by side, hold dead rows, or
whose files are for a good part cells that stand anew elsewhere.

A pure function of what the manifest says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kudu_core.rowset.rows.meta import RowSetMeta
from kudu_core.tablet.maintain.merge_policy import MAX_INPUTS, STALE_FRACTION

SMALL_DIVISOR = 2
"""A rowset smaller than the target divided by this is merged with its neighbours."""

MERGE_FILES = 16
"""So many outputs' worth of rowsets that do not overlap the next ones are merged at one time: what a
merge needs on the disk is bounded."""


def full_merges(
    metas: Sequence[RowSetMeta], target_bytes: int, horizon: int, column_ids: Collection[int]
) -> Iterator[tuple[int, ...]]:
    """Ids of rowsets to be merged with each other; together they overlap no other rowset, but for parts of
    ``MAX_INPUTS`` of more that do: what these become is merged the next time.

    ``horizon``: how far back history may be dropped; dead rows at or below it are worth a merge.
    ``column_ids``: the columns of the schema and what else a file keeps; others are dropped ones.
    """

    def worn(meta: RowSetMeta) -> bool:
        return may_have_dead(meta, horizon) or will_be_stale(meta, column_ids)

    run: list[RowSetMeta] = []
    overlapping = False
    for group in overlapping_groups(metas):
        size = sum(meta.size_bytes for meta in run)
        is_small = len(group) == 1 and group[0].size_bytes < target_bytes // SMALL_DIVISOR
        if size >= MERGE_FILES * target_bytes or (len(group) == 1 and not is_small):
            yield from _worth(run, target_bytes, overlapping)
            run, overlapping = [], False
        if len(group) == 1 and worn(group[0]) and not is_small:
            yield (group[0].id,)
        elif len(group) > 1 or is_small:
            run += group
            overlapping |= len(group) > 1 or worn(group[0])
    yield from _worth(run, target_bytes, overlapping)


def _worth(run: list[RowSetMeta], target_bytes: int, overlapping: bool) -> Iterator[tuple[int, ...]]:
    """Those of a run; where it has more than one merge takes, in parts, if these become fewer by it."""
    outputs = -(-sum(meta.size_bytes for meta in run) // target_bytes)
    if not run or not (overlapping or outputs < len(run)):
        return
    parts = -(-len(run) // MAX_INPUTS)
    step = MAX_INPUTS if outputs + parts < len(run) else len(run)
    for first in range(0, len(run), step):
        yield tuple(meta.id for meta in run[first : first + step])


def overlapping_groups(metas: Sequence[RowSetMeta]) -> Iterator[list[RowSetMeta]]:
    """Rowsets in groups whose keys no other group overlaps, in their order."""
    group: list[RowSetMeta] = []
    end = b""
    for meta in sorted(metas, key=lambda m: (m.min_key, m.id)):
        if group and meta.min_key > end:
            yield group
            group, end = [], b""
        group.append(meta)
        end = max(end, meta.max_key)
    if group:
        yield group


def may_have_dead(meta: RowSetMeta, horizon: int) -> bool:
    """Whether the rowset holds rows that a merge would leave out, as far as statistics tell."""
    return any(ref.liveness and ref.min_ts <= horizon for ref in meta.redo)


def will_be_stale(meta: RowSetMeta, column_ids: Collection[int]) -> bool:
    """Whether so many cells stand anew elsewhere, once the updates do, that all is better written anew.

    Beside the cells alone: how much history lies there is no reason to keep them twice.
    """
    updated = {i for ref in meta.redo for i in ref.updates}
    cells = meta.base.size + sum(columns.file.size for columns in meta.replaced)
    return meta.stale_bytes(column_ids, updated) >= STALE_FRACTION * cells


__all__ = ["full_merges", "may_have_dead", "overlapping_groups"]
