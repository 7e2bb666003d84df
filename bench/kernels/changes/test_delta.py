"""Replaying logs of changes.  Goal: 3 to 6 ns a change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.changes import delta

BLOCK = 65_536
TABLE = 5_000_000
RNG = np.random.default_rng(4)
ROWIDS = RNG.integers(0, TABLE, 500_000).astype(np.uint32)
NEW = RNG.integers(0, 256, 8 * len(ROWIDS), np.uint8)
IN_BLOCK = ROWIDS[:BLOCK] % BLOCK


@pytest.mark.benchmark(group="kernel: delta replay")
@pytest.mark.parametrize("rows", [BLOCK, TABLE])
def test_apply_fixed(benchmark: Any, rows: int) -> None:
    rowids = IN_BLOCK if rows == BLOCK else ROWIDS
    new = NEW[: 8 * len(rowids)]
    values = np.zeros(8 * rows, np.uint8)
    benchmark.extra_info |= {"changes": len(rowids)}
    benchmark(delta.apply_fixed, values, 8, 0, rowids, new)
    last = delta.last_per_row(rowids, 0, rows)
    changed = last >= 0
    assert np.array_equal(values.view(np.uint64)[changed], new.view(np.uint64)[last[changed]])


@pytest.mark.benchmark(group="kernel: delta replay")
def test_set_live(benchmark: Any) -> None:
    live, flags = np.zeros(BLOCK, np.uint8), np.ones(BLOCK, np.uint8)
    benchmark.extra_info |= {"changes": BLOCK}
    benchmark(delta.set_live, live, 0, IN_BLOCK, flags)
    assert np.count_nonzero(live) == len(np.unique(IN_BLOCK))


@pytest.mark.benchmark(group="kernel: delta replay")
def test_apply_bits(benchmark: Any) -> None:
    bits = np.zeros(BLOCK // 8, np.uint8)
    benchmark.extra_info |= {"changes": BLOCK}
    benchmark(delta.apply_bits, bits, BLOCK, 0, IN_BLOCK, None)
    assert np.unpackbits(bits).sum() == len(np.unique(IN_BLOCK))


@pytest.mark.benchmark(group="kernel: delta overlay of strings")
@pytest.mark.parametrize("share", [0.01, 0.1])
def test_overlay_var(benchmark: Any, share: float) -> None:
    """One block; the time is mostly that of copying it."""
    offsets = (10 * np.arange(BLOCK + 1)).astype(np.int32)
    data = np.zeros(10 * BLOCK, np.uint8)
    count = int(share * BLOCK)
    benchmark.extra_info |= {"rows": BLOCK, "changes": count}
    _, got = benchmark(
        delta.overlay_var, offsets, data, 0, IN_BLOCK[:count], offsets[: count + 1], data[: 10 * count] + 1
    )
    assert got.sum() == 10 * len(np.unique(IN_BLOCK[:count]))
