"""Intervals of numbers as arrays: what many values of one column are tested with.

The same intervals as the tuples of ``sets.py``, of which each operation takes one step for all of them.
Only of types whose cells have at most 8 bytes, since their places fit into 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

_MOST = np.uint64((1 << 64) - 1)
_ONE = np.uint64(1)


class Values(Sequence[Any]):
    """A sequence that is equal to a tuple of the same values and looks like it, and keeps them as arrays."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class Spans(Values):
    """Half-open intervals, ascending and apart, as a sequence of pairs.  Immutable."""

    __slots__ = ("ends",)

    def __init__(self, ends: U64) -> None:
        """``ends``: (n, 2) first and last places, ascending and apart."""
        self.ends = ends

    @staticmethod
    def of(intervals: Iterable[tuple[int, int | None]]) -> Spans:
        """Intervals that are ascending and apart."""
        if isinstance(intervals, Spans):
            return intervals
        most = int(_MOST)
        pairs = [(low, most if high is None else high - 1) for low, high in intervals]
        return Spans(np.array(pairs, np.uint64).reshape(-1, 2))

    @staticmethod
    def joined(lows: U64, highs: U64) -> Spans:
        """What lies in any of the closed intervals, which are in any order."""
        order = np.argsort(lows, kind="stable")
        lows, highs = lows[order], np.maximum.accumulate(highs[order])
        begins = np.ones(len(lows), bool)
        # One that begins right behind the end of another belongs to it.
        begins[1:] = (lows[1:] > highs[:-1]) & (lows[1:] - highs[:-1] > _ONE)
        last = np.append(begins[1:], True) if len(begins) else begins
        return Spans(np.stack([lows[begins], highs[last]], axis=1))

    def __and__(self, other: Spans) -> Spans:
        one, two = self.ends, other.ends
        first = np.searchsorted(two[:, 1], one[:, 0], "left")
        count = np.maximum(np.searchsorted(two[:, 0], one[:, 1], "right") - first, 0)
        mine = np.repeat(np.arange(len(one)), count)
        theirs = np.arange(len(mine)) + np.repeat(first - (np.cumsum(count) - count), count)
        lows = np.maximum(one[mine, 0], two[theirs, 0])
        return Spans(np.stack([lows, np.minimum(one[mine, 1], two[theirs, 1])], axis=1))

    def __or__(self, other: Spans) -> Spans:
        both = np.concatenate([self.ends, other.ends])
        return Spans.joined(both[:, 0], both[:, 1])

    def __invert__(self) -> Spans:
        """All other numbers of 64 bits."""
        lows, highs = self.ends[:, 0], self.ends[:, 1]
        first = np.concatenate([np.zeros(1, np.uint64), highs + _ONE])  # the last one may wrap
        last = np.append(lows - _ONE, _MOST)
        some = np.ones(len(first), bool)
        if len(lows):
            some[0], some[-1] = lows[0] > 0, highs[-1] < _MOST
        return Spans(np.stack([first[some], last[some]], axis=1))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return tuple(self)[at]
        low, high = self.ends[at].tolist()
        return low, high + 1

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return ((low, high + 1) for low, high in self.ends.tolist())

    def __reduce__(self) -> tuple[Any, ...]:
        return Spans, (self.ends,)
