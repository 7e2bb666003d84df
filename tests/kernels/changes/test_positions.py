"""Positions of changes by buckets of rows: all of a bucket's, in time order."""

from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
import pytest

from kudu_core._ext.changes.positions import ChangePositions, bucket_sort
from tests.support.oracles.changes import positions as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))


def test_a_sort_by_buckets_agrees_with_oracle(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (7500 if long else 150)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        n = int(rng.integers(0, 300))
        bits = int(rng.choice([1, 5, 12, 20, 23, 32]))
        rowids = rng.integers(0, 2**bits, n, np.uint64).astype(np.uint32)
        if rng.random() < 0.2:
            rowids.sort()
        shift = min(31, max(0, bits - int(rng.integers(0, 8))))
        starts, perm = bucket_sort(rowids, shift)
        got = [perm[a:b].tolist() for a, b in pairwise(starts)]
        assert got == oracle.buckets(rowids.tolist(), shift)


def test_what_cannot_be_sorted_is_refused() -> None:
    rowids = np.zeros(2, np.uint32)
    for shift in (-1, 32):
        with pytest.raises(ValueError, match=f"shift {shift}"):
            bucket_sort(rowids, shift)
    with pytest.raises(ValueError, match="too many"):
        bucket_sort(np.array([2**32 - 1], np.uint32), 0)


def test_positions_take_sixteen_bits() -> None:
    most = ChangePositions(np.zeros(65_536, np.uint32))
    assert (most.count, most.nbytes) == (65_536, 4 * (65_536 + 3))
    assert ChangePositions(np.zeros(0, np.uint32)).count == 0
    with pytest.raises(ValueError, match="at most 65536"):
        ChangePositions(np.zeros(65_537, np.uint32))
