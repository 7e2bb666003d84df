"""What to merge of 6,815 rowsets, 40 of which lie over each key, within 256 units."""

from __future__ import annotations

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture

from kudu_core._ext.rules import knapsack

ROWSETS = 6815


def test_choose(benchmark: BenchmarkFixture) -> None:
    rng = np.random.default_rng(1)
    low = rng.random(ROWSETS)
    high = np.minimum(low + rng.exponential(40 / ROWSETS, ROWSETS), 1.0)
    order = np.argsort(high)
    low, high = low[order], high[order]
    weight = rng.integers(1, 33, ROWSETS)
    arguments = (low, high, high - low, weight, 256, 1.003, 0.01, 1.05, 1 << 40)
    benchmark.extra_info["rows"] = ROWSETS
    score, picked, exact = benchmark.pedantic(  # type: ignore[no-untyped-call]
        knapsack.choose, arguments, rounds=3, warmup_rounds=1
    )
    assert exact
    assert score > 0.01
    assert weight[picked].sum() <= 256
