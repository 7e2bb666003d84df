"""1,000,000 changes of 2,000,000 rows, in ten passes over the rows, chained by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.changes.chains import chain, settled

SPAN = 2_000_000
_RNG = np.random.default_rng(0)
ROWS = np.concatenate([np.sort(_RNG.choice(SPAN, 100_000, replace=False)) for _ in range(10)])


@pytest.mark.benchmark(group="kernel: chains of changes")
def test_chain(benchmark: Any) -> None:
    benchmark.extra_info |= {"changes": len(ROWS)}
    before, last = benchmark(chain, ROWS, 0, SPAN)
    assert (before < 0).sum() == (last >= 0).sum()


@pytest.mark.benchmark(group="kernel: chains of changes")
def test_settled(benchmark: Any) -> None:
    benchmark.extra_info |= {"changes": len(ROWS)}
    before, _ = chain(ROWS, 0, SPAN)
    known = np.where(np.arange(len(ROWS)) % 3 > 0, np.arange(len(ROWS)), -1)
    assert len(benchmark(settled, before, known)) == len(ROWS)
