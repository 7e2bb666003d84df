"""Sorted dictionaries and zone maps of a page's worth of cells and more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.pages import dictionary, zones

ROWS = 500_000


@pytest.mark.benchmark(group="kernel: dictionary")
@pytest.mark.parametrize("words", [8, 1000, 50_000])
def test_build(benchmark: Any, seed: int, words: int) -> None:
    picked = np.random.default_rng(seed).integers(0, words, ROWS)
    offsets = np.arange(ROWS + 1, dtype=np.int32) * 10
    data = np.frombuffer(b"".join(b"host-%05d" % i for i in picked.tolist()), np.uint8)
    benchmark.extra_info["rows"] = ROWS
    built = benchmark(dictionary.dictionary_build, offsets, data, None, 1 << 20)
    assert (built[0] == np.unique(picked, return_inverse=True)[1]).all()


@pytest.mark.benchmark(group="kernel: zones")
@pytest.mark.parametrize("dtype", ["i8", "f8", "u1"])
def test_zone_fixed(benchmark: Any, seed: int, dtype: str) -> None:
    values = np.random.default_rng(seed).integers(0, 200, ROWS).astype(dtype)
    benchmark.extra_info["rows"] = ROWS
    kind = {"u": 0, "i": 1, "f": 2}[dtype[0]]
    low, high, nulls, _ = benchmark(zones.zone_fixed, values.view(np.uint8), values.itemsize, kind, None)
    assert (low, high, nulls) == (values.min().tobytes(), values.max().tobytes(), 0)
