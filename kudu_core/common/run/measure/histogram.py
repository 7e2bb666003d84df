"""How often something took how long: counts in buckets, each twice as wide as the one before."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import frexp

LOWEST = -20
"""The first bucket ends at 2**-20 seconds, about a microsecond."""
BUCKETS = 29
"""The last bucket but one ends at 128 seconds, the last has no end."""
BOUNDS = tuple(2.0**power for power in range(LOWEST, LOWEST + BUCKETS - 1))
"""Seconds: where the buckets end, but for the last."""


@dataclass(frozen=True, slots=True)
class Times:
    """What a histogram has counted, at one moment."""

    counts: tuple[int, ...]
    """In each bucket: of what took less than its end in ``BOUNDS``, and not less than the one before."""
    total_s: float
    """Seconds, of all together."""

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, int]]:
        """As Prometheus has them: (end of a bucket in seconds, as text; how many took no longer)."""
        return list(zip((*map(repr, BOUNDS), "+Inf"), accumulate(self.counts), strict=True))

    def quantile(self, share: float) -> float:
        """Seconds that the ``share`` of all did not exceed, as the end of its bucket; 0 of none.

        What is in the last bucket counts as its beginning.
        """
        wanted, passed = share * self.count, 0
        for bound, count in zip((*BOUNDS, BOUNDS[-1]), self.counts, strict=True):
            passed += count
            if passed >= wanted and passed:
                return bound
        return 0.0


class Histogram:
    """Takes times from any thread.

    There is no lock: a step of counting is whole under the interpreter's lock.  Where Python has none, two
    threads that count at one moment may count one time less.
    """

    __slots__ = ("_counts", "_total_s")

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS
        self._total_s = 0.0

    def add(self, seconds: float, times: int = 1) -> None:
        """Something took so long; ``times``: for so many that were not measured it stands."""
        place = frexp(seconds)[1] - LOWEST if seconds > 0 else 0
        if place >= BUCKETS:
            place = BUCKETS - 1
        elif place < 0:
            place = 0
        self._counts[place] += times
        self._total_s += seconds * times

    def now(self) -> Times:
        return Times(tuple(self._counts), self._total_s)


__all__ = ["BOUNDS", "BUCKETS", "Histogram", "Times"]
