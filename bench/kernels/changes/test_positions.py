"""Sorting a log of 500,000 changes by buckets of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.changes.positions import ChangePositions, bucket_sort

ROWIDS = np.random.default_rng(4).integers(0, 5_000_000, 500_000).astype(np.uint32)


@pytest.mark.benchmark(group="kernel: positions of changes")
def test_bucket_sort(benchmark: Any) -> None:
    benchmark.extra_info |= {"changes": len(ROWIDS)}
    starts, perm = benchmark(bucket_sort, ROWIDS, 16)
    assert starts[-1] == len(ROWIDS) and (np.diff((ROWIDS >> 16)[perm].astype(np.int64)) >= 0).all()


@pytest.mark.benchmark(group="kernel: positions of changes")
def test_positions(benchmark: Any) -> None:
    benchmark.extra_info |= {"changes": 65_536}
    assert benchmark(ChangePositions, ROWIDS[:65_536]).count == 65_536
