"""Facts about keys, and what follows from them: the rule of a repair (docs/repair.md, protocol S2).

Whatever can be read of a damaged table says of some key what was true at some time: a file of rows that
holds every change up to D says what the key's row was at D, a deletion says that there was none, an update
says what some columns were from then on.  True facts do not contradict each other, so the newest one
that tells of the whole row, with the later updates laid over it, is the row.  Where an update is known to
have been lost between, or a cell cannot be read, the row is what it was before that: a state that it
really had.  A row is never put together from two times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kudu_core._ext.keys import keys as keys_kernel
from kudu_core.common.rows.keys import EncodedKeys
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema.schema import Schema, StoredColumn

IMAGE, ABSENT, CHANGE = 0, 1, 2
"""What a fact says: the whole row; that there was none; what some columns became."""

PRESENT, MAYBE, OLDER, GONE, LOST = 0, 1, 2, 3, 4
"""What becomes of a key: its newest row; a row of which something newer, or its end, may not be known; an
older row, since not all of a newer one is known; none, as it was deleted; none, though there was one."""

_NONE = -1
_DEFAULT = 1
"""Among the sources of cells: the read default, in one row.  Before it is NULL."""
_EVER = np.iinfo(np.uint64).max


@dataclass(slots=True, eq=False)
class Facts:
    """Facts of one kind and from one source.  Keys may repeat, at other times."""

    kind: int
    keys: EncodedKeys
    times: np.ndarray
    """(n,) uint64."""
    columns: dict[int, ColumnBuffers] = field(default_factory=dict)
    """By id; of a CHANGE those that it sets.  In a column that an IMAGE lacks, its rows have the read
    default."""
    known: dict[int, np.ndarray] = field(default_factory=dict)
    """(n,) bool: which rows have a cell of the column; one that is not here has all."""
    doubtful: np.ndarray | None = None
    """(n,) bool: of an IMAGE: its end may not be known."""
    stale: bool = False
    """Newer IMAGEs of these keys may be missing."""
    closed: bool = False
    """No change is laid over these IMAGEs: others between may be missing."""
    newest: bool = False
    """Of facts of one time these come last: they are made of the others."""

    def __len__(self) -> int:
        return len(self.times)

    def take(self, rows: np.ndarray) -> Facts:
        return Facts(
            self.kind,
            self.keys.take(rows),
            self.times[rows],
            {i: column.take(rows) for i, column in self.columns.items()},
            {i: mask[rows] for i, mask in self.known.items()},
            None if self.doubtful is None else self.doubtful[rows],
            self.stale,
            self.closed,
            self.newest,
        )

    def between(self, lower: bytes | None, upper: bytes | None) -> Facts:
        """Those of keys in ``[lower, upper)``; keys must ascend."""
        first = 0 if lower is None else _bound(self.keys, lower)
        end = len(self) if upper is None else _bound(self.keys, upper)
        return self if end - first == len(self) else self.take(np.arange(first, max(first, end)))

    def sorted(self) -> Facts:
        """In the order of keys."""
        return self if self.keys.order() else self.take(self.keys.sort())


@dataclass(frozen=True, slots=True)
class MissingFacts:
    """What is known to be missing among the facts of a tablet."""

    gaps: tuple[int, ...] = ()
    """Times before which changes of any key may have been lost, back to some time that is later than what
    the facts before it tell of."""
    holes: tuple[tuple[bytes | None, bytes | None], ...] = ()
    """Ranges of keys, both ends included, in which a store that cannot be read may hold rows."""
    mark: int = 0
    """What changes a key up to this time and finds no row is of a row that is gone since."""


@dataclass(slots=True, eq=False)
class Verdicts:
    """One verdict for each key, in the order of keys."""

    keys: EncodedKeys
    verdict: np.ndarray
    """(n,) uint8."""
    columns: dict[int, ColumnBuffers]
    """The row, of keys that have one; of a LOST one the cells that are known, else NULL."""
    known: dict[int, np.ndarray]
    """(n,) bool by column: of LOST rows, which cells are known."""
    aside: np.ndarray
    """(n,) int64: changes of the key that are newer than the row and not laid over it."""

    def __len__(self) -> int:
        return len(self.verdict)


def judge(schema: Schema, parts: Sequence[Facts], missing: MissingFacts) -> Verdicts:
    """What follows from all facts of some keys."""
    parts = [part for part in parts if len(part)]
    values = schema.value_columns
    if not parts:
        nothing = {c.id: ColumnBuffers.nulls(c.type, 0) for c in values}
        none = np.empty(0, bool)
        empty = np.empty(0, np.int64)
        return Verdicts(EncodedKeys.from_list([]), none.view(np.uint8), nothing, {}, empty)
    table = _Ordered(parts)
    groups = len(table.starts)
    keys = EncodedKeys.concat([part.keys for part in parts]).take(table.order[table.starts])
    in_hole = _within(keys, missing.holes)
    verdict = np.full(groups, GONE, np.uint8)
    source = {c.id: np.full(groups, _NONE, np.int64) for c in values}
    partial = {c.id: np.full(groups, _NONE, np.int64) for c in values}
    cutoff = np.full(groups, _EVER, np.uint64)
    end = np.full(groups, len(table.numbers), np.int64)
    aside = np.zeros(groups, np.int64)
    left = np.ones(groups, bool)
    first_look = True
    while left.any():
        look = table.look(cutoff, end, missing.gaps)
        known = np.ones(groups, bool)
        for column in values:
            setter, fresh = look.setter(column.id)
            known &= fresh
            source[column.id][left] = setter[left]
            if first_look:
                partial[column.id] = np.where(fresh, setter, _NONE)
        whole = left & look.present & known
        if first_look:
            verdict[whole] = np.where(look.doubtful[whole], MAYBE, PRESENT)
            # A change proves that there was a row then.  It may be gone since, where nothing is missing.
            orphan = left & ~look.present & (look.changed_at > 0)
            verdict[orphan & (in_hole | (look.changed_at > np.uint64(missing.mark)))] = LOST
        else:
            verdict[whole] = OLDER
            aside[whole] = look.aside[whole]
            verdict[left & ~look.present] = LOST
        left &= look.present & ~known
        cutoff, end = look.earlier(cutoff, end)
        first_look = False
    lost = verdict == LOST
    columns, told = {}, {}
    for column in values:
        chosen = np.where(lost, partial[column.id], source[column.id])
        chosen[verdict == GONE] = _NONE
        columns[column.id] = table.gathered(column, chosen)
        told[column.id] = partial[column.id] >= 0
    return Verdicts(keys, verdict, columns, told, aside)


class _Ordered:
    """All facts by key and time."""

    def __init__(self, parts: Sequence[Facts]) -> None:
        self.parts = parts
        times = np.concatenate([part.times for part in parts])
        sizes = [len(part) for part in parts]
        newest = np.repeat([part.newest for part in parts], sizes)
        by_time = np.lexsort((newest, times))
        keys = EncodedKeys.concat([part.keys for part in parts]).take(by_time)
        by_key = keys.sort()  # stable
        self.order = by_time[by_key]
        same = keys_kernel.same(*_buffers(keys.take(by_key))).view(np.bool_)
        self.starts = np.flatnonzero(~same)
        """Where each key's facts begin."""
        self.group = np.cumsum(~same) - 1
        self.part_of = np.repeat(np.arange(len(parts)), sizes)[self.order]
        self.row_of = self.order - np.cumsum([0, *sizes])[self.part_of]
        self.times = times[self.order]
        self.kinds = np.array([part.kind for part in parts], np.uint8)[self.part_of]
        self.closed = np.array([part.closed for part in parts])[self.part_of]
        self.stale = np.array([part.stale for part in parts])[self.part_of]
        doubts = [np.zeros(len(p), bool) if p.doubtful is None else p.doubtful for p in parts]
        self.doubts = np.concatenate(doubts)[self.order]
        self.numbers = np.arange(len(times))

    def sets(self, column_id: int) -> np.ndarray:
        """(n,) bool: which facts say what the column is."""
        return np.concatenate([_says(part, column_id) for part in self.parts])[self.order]

    def last(self, which: np.ndarray) -> np.ndarray:
        """The last of some facts of each key, (keys,) int64, ``_NONE`` where there is none."""
        found: np.ndarray = np.maximum.reduceat(np.where(which, self.numbers, _NONE), self.starts)
        return found

    def look(self, cutoff: np.ndarray, end: np.ndarray, gaps: Sequence[int]) -> _Look:
        return _Look(self, cutoff, end, gaps)

    def gathered(self, column: StoredColumn, chosen: np.ndarray) -> ColumnBuffers:
        """The cells of some facts, NULL where none is chosen."""
        pool = [
            ColumnBuffers.nulls(column.type, 1),
            ColumnBuffers.constant(column.type, column.read_default, 1),
        ]
        slot = np.full(len(self.parts), _DEFAULT, np.int32)
        for number, part in enumerate(self.parts):
            cells = part.columns.get(column.id)
            if cells is not None:
                slot[number] = len(pool)
                pool.append(cells)
        at = np.maximum(chosen, 0)
        sources = np.where(chosen >= 0, slot[self.part_of[at]], 0).astype(np.int32)
        position = np.where(sources > _DEFAULT, self.row_of[at], 0).astype(np.int64)
        return ColumnBuffers.interleave(pool, sources, position)


class _Look:
    """The facts up to a time and before one of them, of each key another one."""

    def __init__(self, table: _Ordered, cutoff: np.ndarray, end: np.ndarray, gaps: Sequence[int]) -> None:
        self._table = table
        group, times, kinds = table.group, table.times, table.kinds
        seen = (times <= cutoff[group]) & (table.numbers < end[group])
        base = table.last(seen & (kinds != CHANGE))
        at = np.maximum(base, 0)
        there = base >= 0
        self.present = there & (kinds[at] == IMAGE)
        """Whether the newest fact that tells of a whole row tells of one."""
        self._base = base
        self._after = seen & (table.numbers > base[group])  # all of them changes
        self._after &= ~(self.present & table.closed[at])[group]
        changed = table.last(self._after)
        self.changed_at = np.where(changed >= 0, times[np.maximum(changed, 0)], np.uint64(0))
        since = np.where(there, times[at], np.uint64(0))
        self._barrier = np.zeros(len(base), np.uint64)
        for gap in sorted(gaps):
            crossed = (np.uint64(gap) <= self.changed_at) & (since + np.uint64(1) < np.uint64(gap))
            self._barrier[crossed] = gap
        self.doubtful = (table.doubts[at] & (changed < 0)) | table.stale[at]
        """What is changed later is there; it may have been another's."""

    def earlier(self, cutoff: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What to look at next of keys whose row is not whole: what was before the gap, else before the state
        of which a cell is missing.  Of the same time too: of such facts a file's state is made."""
        barred = self._barrier > 0
        return np.where(barred, self._barrier - np.uint64(1), cutoff), np.where(barred, end, self._base)

    @property
    def aside(self) -> np.ndarray:
        """(keys,) int64: newer changes that are not laid over the row."""
        table = self._table
        late = (table.kinds == CHANGE) & (table.numbers > self._base[table.group]) & ~self._after
        return np.bincount(table.group[late], minlength=len(self._base))

    def setter(self, column_id: int) -> tuple[np.ndarray, np.ndarray]:
        """The fact that says last what a column is, and whether nothing may have come after it."""
        table = self._table
        which = self._after | (table.numbers == self._base[table.group])
        found = table.last(which & table.sets(column_id))
        times = table.times[np.maximum(found, 0)]
        return found, (found >= 0) & ((self._barrier == 0) | (times >= self._barrier))


def _says(part: Facts, column_id: int) -> np.ndarray:
    if column_id not in part.columns:
        return np.full(len(part), part.kind == IMAGE)
    mask = part.known.get(column_id)
    return np.ones(len(part), bool) if mask is None else mask


def _buffers(keys: EncodedKeys) -> tuple[np.ndarray, np.ndarray]:
    return keys.data, keys.offsets


def _bound(keys: EncodedKeys, key: bytes, *, upper: bool = False) -> int:
    return int(keys.lower_bound(EncodedKeys.from_list([key]), upper=upper)[0])


def _within(keys: EncodedKeys, holes: Sequence[tuple[bytes | None, bytes | None]]) -> np.ndarray:
    """(n,) bool: which of ascending keys lie in one of the ranges."""
    inside = np.zeros(len(keys), bool)
    for lower, upper in holes:
        first = 0 if lower is None else _bound(keys, lower)
        end = len(keys) if upper is None else _bound(keys, upper, upper=True)
        inside[first:end] = True
    return inside


__all__ = [
    "ABSENT",
    "CHANGE",
    "GONE",
    "IMAGE",
    "LOST",
    "MAYBE",
    "OLDER",
    "PRESENT",
    "Facts",
    "MissingFacts",
    "Verdicts",
    "judge",
]
