"""Which requests bring the ranges that are wanted."""

from __future__ import annotations

import random
from itertools import pairwise

from kudu_core.objects.fetching import MOST_GAP, MOST_WASTE, SMALL, cut, planned


def test_by_chance(seed: int, long: bool) -> None:
    for case in range(seed, seed + (5000 if long else 300)):
        rng = random.Random(case)
        size = rng.choice([100, 10_000, 3_000_000])
        data = rng.randbytes(size)
        longest = rng.choice([10, size])
        wanted = [(rng.randrange(size), 1 + rng.randrange(longest)) for _ in range(rng.randint(1, 12))]
        plan = planned(wanted)
        told = f"seed {case}"
        for (offset, length), (after, _) in pairwise(plan):
            assert offset + length < after, f"{told}: none meets another"
        pieces = [data[offset : offset + length] for offset, length in plan]
        assert cut(wanted, plan, pieces) == [data[a : a + n] for a, n in wanted], told
        for offset, length in plan:
            useful = {n for a, b in wanted for n in range(max(a, offset), min(a + b, offset + length), 997)}
            assert useful, f"{told}: of each request something is wanted"


def test_what_is_fetched_as_one() -> None:
    near, far = (0, 1000), (MOST_GAP + 1001, 1000)
    assert planned([near, far]) == [near, far], "too far apart"
    assert planned([(0, 1000), (SMALL - 1000, 1000)]) == [(0, SMALL)], "small, so nothing is wasted"
    assert planned([(0, 1000), (SMALL - 999, 1000)]) == [(0, 1000), (SMALL - 999, 1000)]
    large = 4 * SMALL
    half = MOST_GAP
    assert planned([(0, large), (large + half, large)]) == [(0, 2 * large + half)]
    assert half > MOST_WASTE * (2 * SMALL + half)
    assert len(planned([(0, SMALL), (SMALL + half, SMALL)])) == 2, "half were waste"
    assert planned([(10, 10), (10, 10), (5, 100), (50, 5)]) == [(5, 100)]
    assert planned([(10, 10), (20, 10)]) == [(10, 20)], "they meet"
