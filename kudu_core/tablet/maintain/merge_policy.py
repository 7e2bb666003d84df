"""Which rowsets a merging compaction takes: a pure function of what is known of them.

Two reasons to merge, and the better gain per byte wins.

*Overlap* is Kudu's budgeted choice.  Each rowset is worth its *width*, the fraction of the tablet's data that
lies between its first and its last key, and a little for being small; a set is worth the sum less what it
spans as one.  The best set within the budget is chosen exactly (``_ext/rules/knapsack.pyx``): a bound for
every leftmost rowset first, then tables, the most promising first.  What is gained is the fall of the
average height: how many rowsets a key must be looked for in.

*Tidying* is what Kudu lacks: rows that nobody can see any more in rowsets that overlap nothing, cells that
nobody reads, and adjacent small rowsets.  A rowset is *small* by its size in bytes, with two exceptions that
prevent endless merging: one that has the full number of rows, however well it is encoded, and one that an
earlier merge could not make larger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kudu_core._ext.rules import knapsack
from kudu_core._ext.search.share import below as bytes_below
from kudu_core.common.rows.keys import EncodedKeys

OVERLAP = "overlap"
DEAD = "dead"
SMALL = "small"

SMALL_VALUE = 0.009
"""What an empty rowset is worth beside its width.  Below ``MIN_GAIN``, or what a merge rolls into several
files would be worth merging again and again."""

MIN_GAIN = 0.01
"""A set of overlapping rowsets that gains less stays as it is."""

SPAN_COST = 1.003
"""What a unit of span costs: a little more than it is worth, so that of two choices the narrower wins."""

TOLERANCE = 1.05
"""How far below the best the overlap choice may stay once it has cost ``WORK``."""

WORK = 2_000_000_000
"""Cells of knapsack tables, about a second, after which ``TOLERANCE`` holds."""

DEAD_FRACTION = 0.2
"""Of a rowset's rows: from there on it is written anew for those that nobody can see."""

STALE_FRACTION = 0.4
"""Of a rowset's bytes: from there on it is written anew without the cells that nobody reads, those that major
delta compactions wrote anew beside them and those of dropped columns."""

SMALL_FRACTION = 0.35
"""Of the target size: below, a rowset is small.  What a bulk load rolls is not: its ranges are cut by a
guess of what they will take."""

RUN = 4
"""Small rowsets that are merged whatever they make; fewer must make three quarters of a full one."""

MAX_INPUTS = 128
"""Of one merge: each has its files open, of which a process may have 1,024."""

MAX_UNITS = 4096
"""Of weight in one knapsack.  A larger budget counts in larger units, each time twice as large."""


@dataclass(frozen=True, slots=True)
class RowSetStats:
    """What the policy knows of a rowset."""

    id: int
    min_key: bytes
    max_key: bytes
    """Encoded keys of the first and the last row."""
    size_bytes: int
    """Of all its files."""
    rows: int = 1
    droppable_rows: int = 0
    """Rows whose deletion no readable snapshot can see the other side of, about."""
    stale_bytes: int = 0
    """Of ``size_bytes``, those of cells that stand anew elsewhere or whose column is dropped, about."""
    full: bool = False
    """As large as the writer makes them, whatever its bytes: being small is no reason to merge it."""
    available: bool = True
    """False while another operation has it: it counts as data and is not chosen."""


@dataclass(frozen=True, slots=True)
class MergeChoice:
    """What one merging compaction should take."""

    rowsets: tuple[int, ...]
    """Ids, ascending by first key."""
    reason: str
    """``OVERLAP``, ``DEAD`` or ``SMALL``."""
    gain: float
    """By how many rowsets the average height falls, or the share of the data that goes, with
    ``SMALL_VALUE`` for each rowset less."""
    input_bytes: int
    height: float = 1.0
    """In how many rowsets a key lies before, averaged over the data."""
    exact: bool = True
    """Whether no other set within the budget gains more, by the same reason."""

    @property
    def gain_per_byte(self) -> float:
        return self.gain / max(1, self.input_bytes)


def choose_merge(
    rowsets: Sequence[RowSetStats], *, budget_bytes: int, target_bytes: int
) -> MergeChoice | None:
    """What to merge next, None when nothing is worth it.  The order of ``rowsets`` does not matter."""
    if len(rowsets) == 1 and not (rowsets[0].droppable_rows or rowsets[0].stale_bytes):
        return None  # as most tablets are, and there are many
    layout = RowSetLayout.of(rowsets)
    overlap = overlap_choice(layout, budget_bytes=budget_bytes, target_bytes=target_bytes)
    if overlap is not None and len(overlap.rowsets) > MAX_INPUTS:
        overlap = _first_of(layout, overlap, target_bytes)
    found = [
        choice
        for choice in (
            overlap,
            tidy_choice(layout, budget_bytes=budget_bytes, target_bytes=target_bytes),
        )
        if choice is not None
    ]
    return max(found, key=lambda choice: choice.gain_per_byte, default=None)


@dataclass(frozen=True, slots=True, eq=False)
class RowSetLayout:
    """Rowsets by first key, and what share of the tablet's data lies at or below each bound."""

    rowsets: tuple[RowSetStats, ...]
    low: np.ndarray
    high: np.ndarray
    """(n,) float64 in [0, 1]: the shares below the first and the last key."""
    sizes: np.ndarray
    """(n,) int64, bytes."""

    @staticmethod
    def of(rowsets: Sequence[RowSetStats]) -> RowSetLayout:
        ordered = tuple(sorted(rowsets, key=lambda r: (r.min_key, r.max_key, r.id)))
        sizes = np.array([r.size_bytes for r in ordered], np.int64)
        keys = sorted({key for r in ordered for key in (r.min_key, r.max_key)})
        place = {key: number for number, key in enumerate(keys)}
        first = np.array([place[r.min_key] for r in ordered], np.int64)
        last = np.array([place[r.max_key] for r in ordered], np.int64)
        packed = EncodedKeys.from_list(keys)
        below = bytes_below(packed.data, packed.offsets, first, last, sizes)
        share = np.maximum.accumulate(below / max(1, int(sizes.sum())))
        return RowSetLayout(ordered, share[first], share[last], sizes)

    @property
    def height(self) -> float:
        """In how many rowsets a key lies, averaged over the data."""
        return float((self.high - self.low).sum())


def overlap_choice(layout: RowSetLayout, *, budget_bytes: int, target_bytes: int) -> MergeChoice | None:
    """The set whose merging lowers the average height most."""
    chosen = [n for n, r in enumerate(layout.rowsets) if r.available and 0 < r.size_bytes <= budget_bytes]
    if len(chosen) < 2:
        return None
    order = np.array(sorted(chosen, key=lambda n: layout.high[n]), np.int64)
    low, high, sizes = layout.low[order], layout.high[order], layout.sizes[order]
    value = _values(layout, order, target_bytes)
    best: tuple[float, np.ndarray, bool] = (MIN_GAIN, np.empty(0, np.int64), True)
    # The coarsest first: what it finds is a floor that mostly rules the finer ones out by their bounds.
    for unit, units in reversed(list(_scales(sizes, budget_bytes))):
        weight = -(-sizes // unit)
        gain, picked, exact = knapsack.choose(
            low, high, value, weight, units, SPAN_COST, best[0], TOLERANCE, WORK
        )
        if len(picked):
            best = gain, picked, exact
    gain, picked, exact = best
    if len(picked) < 2:
        return None
    numbers = np.sort(order[picked])
    ids = tuple(layout.rowsets[n].id for n in numbers.tolist())
    return MergeChoice(ids, OVERLAP, gain, int(layout.sizes[numbers].sum()), layout.height, exact)


def _first_of(layout: RowSetLayout, choice: MergeChoice, target_bytes: int) -> MergeChoice | None:
    """As many of an overlap choice as one merge takes, by their first keys, and what they gain alone."""
    wanted = set(choice.rowsets[:MAX_INPUTS])
    numbers = np.array([n for n, r in enumerate(layout.rowsets) if r.id in wanted], np.int64)
    value = float(_values(layout, numbers, target_bytes).sum())
    gain = value - SPAN_COST * float(layout.high[numbers].max() - layout.low[numbers].min())
    if gain <= MIN_GAIN:
        return None
    return MergeChoice(
        choice.rowsets[:MAX_INPUTS],
        OVERLAP,
        gain,
        int(layout.sizes[numbers].sum()),
        layout.height,
        exact=False,
    )


def _values(layout: RowSetLayout, numbers: np.ndarray, target_bytes: int) -> np.ndarray:
    """What rowsets are worth in an overlap choice: their width, and a little for being small."""
    full = np.array([layout.rowsets[n].full for n in numbers.tolist()])
    small = np.maximum(0.0, 1 - layout.sizes[numbers] / (SMALL_FRACTION * target_bytes))
    return np.asarray(layout.high[numbers] - layout.low[numbers] + SMALL_VALUE * np.where(full, 0.0, small))


def _scales(sizes: np.ndarray, budget_bytes: int) -> Iterator[tuple[int, int]]:
    """(bytes of a unit, units of the budget), coarser ones for what finer ones cannot reach.

    The unit follows the rowsets and not the budget, and each scale of a budget is one of every larger
    budget too: so the best gain never falls when the budget grows.
    """
    typical = int((sizes.astype(np.float64) ** 2).sum() / sizes.sum())  # that of a byte's rowset
    unit = 1 << max(0, (typical // 128).bit_length() - 1)
    while True:
        units = min(budget_bytes // unit, int((-(-sizes // unit)).sum()))
        yield unit, min(units, MAX_UNITS)
        if units <= MAX_UNITS or budget_bytes < 2 * unit * MAX_UNITS:
            return
        unit *= 2


def tidy_choice(layout: RowSetLayout, *, budget_bytes: int, target_bytes: int) -> MergeChoice | None:
    """The neighbours whose merging frees or joins most, by byte."""
    total = max(1, int(layout.sizes.sum()))
    best: MergeChoice | None = None
    for run in _runs(layout, budget_bytes, target_bytes):
        sizes = [r.size_bytes for r in run]
        kept = sum(_kept_bytes(r) for r in run)
        freed = sum(sizes) - kept
        fewer = len(run) - max(1, -(-kept // target_bytes))
        if any(map(_is_dying, run)):
            reason = DEAD
        elif fewer > 0 and (len(run) >= RUN or kept >= 0.75 * target_bytes):
            reason = SMALL
        else:
            continue
        gain = freed / total + SMALL_VALUE * max(0, fewer)
        choice = MergeChoice(tuple(r.id for r in run), reason, gain, sum(sizes))
        if best is None or choice.gain_per_byte > best.gain_per_byte:
            best = choice
    return best


def _runs(layout: RowSetLayout, budget_bytes: int, target_bytes: int) -> Iterator[list[RowSetStats]]:
    """Neighbours in the order of keys that are each worth tidying, as many as the budget takes."""
    run: list[RowSetStats] = []
    room = budget_bytes
    for rowset in layout.rowsets:
        small = not rowset.full and _kept_bytes(rowset) < SMALL_FRACTION * target_bytes
        wanted = rowset.available and rowset.size_bytes <= budget_bytes and (small or _is_dying(rowset))
        if run and (not wanted or rowset.size_bytes > room or len(run) == MAX_INPUTS):
            yield run
            run, room = [], budget_bytes
        if wanted:
            run.append(rowset)
            room -= rowset.size_bytes
    if run:
        yield run


def _is_dying(rowset: RowSetStats) -> bool:
    return rowset.droppable_rows >= max(1, DEAD_FRACTION * rowset.rows) or rowset.stale_bytes >= max(
        1, STALE_FRACTION * rowset.size_bytes
    )


def _kept_bytes(rowset: RowSetStats) -> int:
    """What a rowset takes without the rows and the cells that go."""
    dead = min(rowset.droppable_rows, rowset.rows)
    size = rowset.size_bytes - min(rowset.stale_bytes, rowset.size_bytes)
    return size - size * dead // max(1, rowset.rows)


__all__ = [
    "DEAD",
    "OVERLAP",
    "SMALL",
    "MergeChoice",
    "RowSetLayout",
    "RowSetStats",
    "choose_merge",
    "overlap_choice",
    "tidy_choice",
]
