"""Cutting a tablet into ranges of keys of about equal numbers of rows, without reading pages.

1. Drop rowsets that statistics rule out.
2. Cut the rest into stretches, using their key indexes.
3. Drop stretches whose pages the zone maps rule out.
4. Group what is left, in the order of keys, into shares with about the same number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise

import numpy as np

from kudu_core.cfile.pages.page import BLOCK_ROWS
from kudu_core.rowset.disk.diskrowset import DiskRowSet
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.rowset.scan.row_ranges import Pruning, rows_wanted
from kudu_core.tablet.store.tablet import Tablet

PIECES = 8
"""Stretches of a share, about: how finely rows are counted."""

Stretch = tuple[bytes, int]
"""First encoded key, and rows that may be wanted from there on."""
Share = tuple[bytes | None, bytes | None, int]
"""First encoded key, key to stop before, and about how many rows."""


def shares(tablet: Tablet, pruning: Pruning, snapshot: int, target_rows: int) -> list[Share]:
    """Ranges of keys, within the bounds of ``pruning``, of about ``target_rows`` rows that it leaves.

    None where it leaves nothing.  A range holds, at its begin, rows that zone maps do not rule out.
    """
    lower, upper = pruning.lower, pruning.upper
    step = max(1, target_rows // PIECES)
    found = sorted(_stretches(tablet, pruning, snapshot, step))
    if not found:
        return []
    total = sum(rows for _, rows in found)
    before = [0, *accumulate(rows for _, rows in found)]
    if total <= target_rows * 3 // 2:
        return [(lower, upper, total)]
    pieces = -(-total // target_rows)
    places = {int(np.searchsorted(before, total * i // pieces)) for i in range(1, pieces)}
    cuts: list[tuple[bytes, int]] = []
    for place in sorted(places & set(range(1, len(found)))):
        key = found[place][0]
        if key > (cuts[-1][0] if cuts else found[0][0]):
            cuts.append((key, before[place]))
    edges = [(lower, 0), *cuts, (upper, total)]
    return [(first, last, rows - done) for (first, done), (last, rows) in pairwise(edges)]


def known_rows(tablet: Tablet, snapshot: int) -> int | None:
    """How many rows a tablet has at a snapshot, by manifests and what is in memory; None where deletions or
    later inserts in files would have to be read."""
    rows = 0
    for memory in (tablet.view.active, *tablet.view.frozen):
        seen = memory.at(snapshot)
        live = seen.live(0, seen.rows)
        rows += seen.rows if live is None else int(live.sum())
    for rowset in tablet.view.rowsets:
        first = rowset.meta.insert_ts
        if first is not None and first > snapshot:
            continue
        if rowset.meta.max_insert_ts > snapshot or rowset.may_change_liveness(snapshot):
            return None
        rows += rowset.meta.rows
    return rows


def _stretches(tablet: Tablet, pruning: Pruning, snapshot: int, step: int) -> Iterator[Stretch]:
    view = tablet.view
    for memory in (view.active, *view.frozen):
        yield from _in_memory(memory, pruning, snapshot, step)
    for place in view.tree.range(pruning.lower, pruning.upper).tolist():
        rowset = view.rowsets[place]
        there = rowset.meta.insert_ts is None or rowset.meta.insert_ts <= snapshot
        if there and pruning.rowset_may_match(rowset, snapshot):
            yield from _on_disk(rowset, pruning, snapshot, step)


def _in_memory(memory: MemRowSet, pruning: Pruning, snapshot: int, step: int) -> Iterator[Stretch]:
    """Rows in the order of their inserts: each that is looked at stands for some after it."""
    rows = memory.rows_at(snapshot)
    if not rows:
        return
    lower, upper = pruning.lower or b"", pruning.upper
    if rows <= step:
        yield lower, rows
        return
    step = max(1, step // PIECES)  # they lie in no order, so what a few of them stand for varies
    keys = memory.keys(rows).take(np.arange(0, rows, step))
    outside = 0
    for at, key in enumerate(keys):
        weight = min(step, rows - at * step)
        if key < lower or (upper is not None and key >= upper):
            outside += weight
        else:
            yield key, weight
    if outside == rows:
        yield lower, 1  # between those that were looked at there may be one


def _on_disk(rowset: DiskRowSet, pruning: Pruning, snapshot: int, step: int) -> Iterator[Stretch]:
    meta = rowset.meta
    lower, upper = pruning.lower or b"", pruning.upper
    tested = bool(pruning.columns or pruning.nulls)
    bounded = lower > meta.min_key or (upper is not None and upper <= meta.max_key)
    if not tested and (meta.rows <= step or (meta.rows <= 2 * BLOCK_ROWS and not bounded)):
        yield max(lower, meta.min_key), meta.rows
        return
    source = rowset.at(snapshot)
    assert source is not None, "the caller has looked"
    data, offsets = source.file.key_index()
    count = len(offsets) - 1
    borders = np.minimum(np.arange(count + 1) * BLOCK_ROWS, meta.rows)
    wanted = rows_wanted(source, pruning, searched=False) if tested else None
    weights = np.diff(borders if wanted is None else _rows_below(wanted, borders))
    starts = np.arange(0, count, max(1, step // BLOCK_ROWS))
    sums = np.add.reduceat(weights, starts).tolist()
    keys = [data[int(offsets[at]) : int(offsets[at + 1])].tobytes() for at in starts.tolist()]
    for key, end, rows in zip(keys, [*keys[1:], None], sums, strict=True):
        if rows and (end is None or end > lower) and (upper is None or key < upper):
            yield max(key, lower), rows


def _rows_below(ranges: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """How many rows of the ranges, (m, 2), lie below each row."""
    ends = np.cumsum(ranges[:, 1] - ranges[:, 0])
    at = np.searchsorted(ranges[:, 1], rows)  # ranges that end below
    before = np.concatenate(([0], ends))[at]
    lower = np.concatenate((ranges[:, 0], rows[-1:]))[at]
    below: np.ndarray = before + np.maximum(rows - lower, 0)
    return below
