"""Rowid map: noting changes and looking them up, against numpy's direct addressing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.index.rowid_map import RowidMap

ROWS = 500_000


@pytest.mark.benchmark(group="kernel: rowid map")
def test_exchange(benchmark: Any, seed: int) -> None:
    rowids = np.random.default_rng(seed).integers(0, ROWS, ROWS, dtype=np.uint32)
    benchmark.extra_info["rows"] = ROWS

    def run() -> RowidMap:
        table = RowidMap()
        table.exchange(rowids, 0)
        return table

    table = benchmark(run)
    assert table.count == len(np.unique(rowids))


@pytest.mark.benchmark(group="kernel: rowid map")
def test_find(benchmark: Any, seed: int) -> None:
    rowids = np.random.default_rng(seed).permutation(ROWS).astype(np.uint32)
    table = RowidMap()
    table.exchange(rowids, 0)
    benchmark.extra_info["rows"] = ROWS
    found = benchmark(table.find, rowids)
    assert (found == np.arange(ROWS)).all()
