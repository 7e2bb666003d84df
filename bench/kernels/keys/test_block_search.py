"""50,000 tuples sought in 1,000 blocks of 1,024 rows."""

from __future__ import annotations

import numpy as np
from pytest_benchmark.fixture import BenchmarkFixture

from kudu_core._ext.keys import block_search

BLOCKS = 1000
PROBES = 50_000


def test_find(benchmark: BenchmarkFixture) -> None:
    rng = np.random.default_rng(1)
    rows = BLOCKS * 1024
    codes = (np.arange(rows) // 5000).astype("<u2")
    times = (np.arange(rows) % 5000 * 1000).astype("<i8")
    at = np.sort(rng.integers(0, rows, PROBES))
    columns = [
        (codes.view(np.uint8), codes[at].view(np.uint8), 2, False),
        (times.view(np.uint8), times[at].view(np.uint8), 8, True),
    ]
    of = (at // 1024).astype(np.int64)
    benchmark.extra_info["rows"] = PROBES
    found = benchmark.pedantic(  # type: ignore[no-untyped-call]
        block_search.find, (columns, of, 1024), rounds=5, warmup_rounds=1
    )
    np.testing.assert_array_equal(found, at)
