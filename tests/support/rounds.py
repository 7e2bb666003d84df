"""Rounds of random tests of kernels: one generator each, whose seed is printed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))


def rounds(long: bool, short: int) -> Iterator[np.random.Generator]:
    """``short`` of them, or with ``--long`` fifty times as many."""
    for seed in range(FIRST_SEED, FIRST_SEED + (50 * short if long else short)):
        print(f"seed {seed}")
        yield np.random.default_rng(seed)
