"""1,000,000 changes of ten writes put in the order of their times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.changes.times import order_of_few

WRITES = np.arange(10, dtype=np.uint64) << np.uint64(30)
TIMES = np.random.default_rng(0).permutation(np.repeat(WRITES, 100_000))


@pytest.mark.benchmark(group="kernel: changes by time")
def test_order_of_few(benchmark: Any) -> None:
    benchmark.extra_info |= {"changes": len(TIMES)}
    order = benchmark(order_of_few, TIMES)
    assert bool((np.diff(TIMES[order].astype(np.int64)) >= 0).all())


@pytest.mark.benchmark(group="kernel: changes by time")
def test_numpy(benchmark: Any) -> None:
    benchmark.extra_info |= {"changes": len(TIMES)}
    assert len(benchmark(np.argsort, TIMES, kind="stable")) == len(TIMES)
