"""One history out of the copies of a key in several rowsets (protocol C2).

A key that was deleted and inserted anew has a dead copy in one rowset and a younger one in another;
lifetimes may interleave, since a copy that was dead may live again within its own rowset.  At any time
above the horizon at most one copy lives.  So the starts and ends of all lifetimes, put in order of time, are
the history of the one row that remains:

    copy in rowset 3     |10------20|                 |40----->
    copy in rowset 8                    |30-----35|
    the joined row       inserted at 10, UNDO of 20 "present before, with this image",
                         UNDO of 30 "absent before", of 35 "present before", of 40 "absent before"

The first start is the insert time.  Each later start becomes an UNDO record "absent before".  Each end that
is followed by a start becomes "present before, with this image".  What happened at or below the horizon is
not told any more: files may contradict each other there, as some have lost their history and others have not.

Source: Kudu's MergeDuplicatedRowHistory (tablet/compaction.cc), which chains copies from the newest to
the oldest; that is wrong where lifetimes interleave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NEVER = np.uint64(0)
"""Stands for the deletion of a copy that was not deleted."""


class Unjoinable(ValueError):
    """The histories of a key's copies contradict each other."""

    def __init__(self, key: int, reason: str) -> None:
        super().__init__(reason)
        self.key = key
        """Number of the key."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of some keys."""

    key: np.ndarray
    """(n,) int64: number of each copy's key, from 0, ascending."""
    inserted: np.ndarray
    """(n,) uint64: start of the copy's first lifetime."""
    deleted: np.ndarray
    """(n,) uint64: end of its last one, ``NEVER`` where it lives."""


@dataclass(frozen=True, slots=True)
class LifetimeTurns:
    """What UNDO records above the horizon say of copies' lifetimes."""

    copy: np.ndarray
    """(m,) int64: number of the copy."""
    timestamps: np.ndarray
    """(m,) uint64."""
    ended: np.ndarray
    """(m,) bool: "present before", a lifetime ended; else "absent before", one began."""


@dataclass(frozen=True, slots=True)
class Joined:
    """One row for each key."""

    last: np.ndarray
    """(keys,) int64: the copy that holds the row's last image; -1 where nothing of the key is left."""
    inserted: np.ndarray
    """(keys,) uint64: start of the first lifetime kept."""
    deleted: np.ndarray
    """(keys,) uint64: end of the last one, ``NEVER`` where the key lives."""
    begun: tuple[np.ndarray, np.ndarray]
    """(keys, timestamps): later lifetimes that no UNDO record tells of yet: "absent before"."""
    ended: tuple[np.ndarray, np.ndarray]
    """(copies, timestamps): earlier ends that were deletions: "present before", with the copy's image."""
    told: np.ndarray
    """(t,) int64: numbers of ``LifetimeTurns`` that ``inserted`` tells of."""


_INSERT, _TURN, _DELETE = 0, 1, 2


def join(copies: Copies, turns: LifetimeTurns, horizon: int) -> Joined:
    """Join the copies of each key.

    Raises
    ------
    Unjoinable
        Two copies of a key live at one time above the horizon, or two changes have one timestamp.
    """
    above = np.uint64(horizon)
    keys = int(copies.key[-1]) + 1
    inserted = np.flatnonzero(copies.inserted > above)
    deleted = np.flatnonzero(copies.deleted > above)
    copy = np.concatenate([inserted, turns.copy, deleted])
    times = np.concatenate([copies.inserted[inserted], turns.timestamps, copies.deleted[deleted]])
    starts = np.concatenate([np.ones(len(inserted), bool), ~turns.ended, np.zeros(len(deleted), bool)])
    origin = np.repeat(
        np.array([_INSERT, _TURN, _DELETE], np.uint8), [len(inserted), len(turns.copy), len(deleted)]
    )

    # Which copy lives at the horizon: its first turn above it says so, else its end.
    lives = (copies.inserted <= above) & (copies.deleted == NEVER)
    order = np.lexsort((times, copy))
    first = _first(copy[order])
    lives[copy[order[first]]] = ~starts[order[first]]
    living = np.flatnonzero(lives)
    at_horizon = np.full(keys, -1, np.int64)
    at_horizon[copies.key[living]] = living
    if len(living) > 1 and (twice := copies.key[living[1:]] == copies.key[living[:-1]]).any():
        key = int(copies.key[living[1:]][twice][0])
        raise Unjoinable(key, f"it lives in two rowsets at {horizon}")

    order = np.lexsort((times, copies.key[copy]))
    copy, times, starts, origin = copy[order], times[order], starts[order], origin[order]
    key = copies.key[copy]
    first = _first(key)
    last = np.ones(len(key), bool)
    last[:-1] = first[1:]
    before = np.zeros(len(key), bool)
    before[1:] = starts[:-1]
    before[first] = at_horizon[key[first]] >= 0
    same_time = np.zeros(len(key), bool)
    same_time[1:] = ~first[1:] & (times[1:] == times[:-1])
    wrong = (starts == before) | same_time | (last & ~starts & (origin == _TURN))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        what = "begins while another one lives" if starts[at] else "ends and none lived"
        raise Unjoinable(int(key[at]), f"a lifetime {what}, at {int(times[at])}")

    final = at_horizon.copy()
    final[key[last]] = copy[last]
    begin = np.where(at_horizon >= 0, copies.inserted[at_horizon], NEVER)
    opening = first & starts
    begin[key[opening]] = times[opening]
    end = np.full(keys, NEVER, np.uint64)
    closing = last & ~starts
    end[key[closing]] = times[closing]
    begun = (origin == _INSERT) & ~opening
    ended = (origin == _DELETE) & ~last
    # Back to the numbers of ``turns``.
    told = order[opening & (origin == _TURN)] - len(inserted)
    return Joined(final, begin, end, (key[begun], times[begun]), (copy[ended], times[ended]), told)


def _first(numbers: np.ndarray) -> np.ndarray:
    """Which of equal numbers side by side is the first, bool."""
    first = np.ones(len(numbers), bool)
    first[1:] = numbers[1:] != numbers[:-1]
    return first


__all__ = ["NEVER", "Copies", "Joined", "LifetimeTurns", "Unjoinable", "join"]
