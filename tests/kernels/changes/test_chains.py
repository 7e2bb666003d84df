"""Changes chained by row, and what is known of a column along the chains."""

from __future__ import annotations

import os

import numpy as np
import pytest

from kudu_core._ext.changes.chains import chain, settled
from tests.support.oracles.changes import chains as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))


def test_chains_agree_with_the_oracle(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (5000 if long else 200)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        first, span, count = int(rng.integers(0, 1 << 33)), int(rng.integers(1, 40)), int(rng.integers(0, 90))
        rows = first + rng.integers(0, span, count)
        before, last = chain(rows, first, span)
        assert (before.tolist(), last.tolist()) == oracle.chain(rows.tolist(), first, span)
        known = np.where(rng.random(count) < rng.random(), rng.integers(0, 1000, count), -1)
        assert settled(before, known).tolist() == oracle.settled(before.tolist(), known.tolist())


def test_what_does_not_fit_is_refused() -> None:
    for row in (4, 7):
        with pytest.raises(ValueError, match=f"change 1 is of row {row}, outside"):
            chain(np.array([5, row]), 5, 2)
    with pytest.raises(ValueError, match="no -1 rows"):
        chain(np.array([5]), 5, -1)
    for at in (0, 1, -2):
        with pytest.raises(ValueError, match=f"change 0 names {at} "):
            settled(np.array([at], np.int32), np.array([3]))
    with pytest.raises(ValueError, match="2 changes, 1 values"):
        settled(np.array([-1, 0], np.int32), np.array([3]))
