"""What ``_ext.rules.knapsack`` means: every set is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

Interval = tuple[float, float, float, int]
"""Lower end, upper end, value, weight."""


def score(intervals: Sequence[Interval], adjust: float) -> float:
    span = max(i[1] for i in intervals) - min(i[0] for i in intervals)
    return sum(i[2] for i in intervals) - adjust * span


def choose(intervals: Sequence[Interval], budget: int, adjust: float) -> float:
    """The best score of a set within the budget, at least 0."""
    best = 0.0
    for count in range(1, len(intervals) + 1):
        for chosen in combinations(intervals, count):
            if sum(i[3] for i in chosen) <= budget:
                best = max(best, score(chosen, adjust))
    return best
