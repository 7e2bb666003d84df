"""Shares of the data at the 13,630 bounds of a tablet's 6,815 rowsets."""

from __future__ import annotations

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture

from kudu_core._ext.search import share
from kudu_core.common.rows.keys import EncodedKeys

ROWSETS = 6815


def test_below(benchmark: BenchmarkFixture) -> None:
    rng = np.random.default_rng(1)
    keys = EncodedKeys.from_list(sorted(b"user%019d" % k for k in rng.integers(0, 10**18, 2 * ROWSETS)))
    first = rng.integers(0, len(keys), ROWSETS)
    last = np.minimum(first + rng.integers(1, 200, ROWSETS), len(keys) - 1)
    sizes = np.full(ROWSETS, 32 << 20)
    benchmark.extra_info["rows"] = ROWSETS
    arguments = (keys.data, keys.offsets, first, last, sizes)
    below = benchmark.pedantic(  # type: ignore[no-untyped-call]
        share.below, arguments, rounds=5, warmup_rounds=1
    )
    assert below[-1] == sizes.sum()
