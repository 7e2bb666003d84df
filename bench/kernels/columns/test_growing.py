"""Appending to a MemRowSet's column: 200,000 rows in batches, growth included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.columns.growing import AppendColumn

ROWS = 200_000


@pytest.mark.benchmark(group="kernel: append column")
@pytest.mark.parametrize("width", [0, 8])
@pytest.mark.parametrize("batch", [100, 1_000, 100_000])
def test_append(benchmark: Any, width: int, batch: int) -> None:
    values = np.arange(8 * batch, dtype=np.uint64).astype(np.uint8)
    offsets = None if width else np.arange(0, 8 * batch + 1, 8, dtype=np.int32)
    rows = np.arange(batch - 1, -1, -1, dtype=np.int64)
    benchmark.extra_info |= {"rows": ROWS}

    def fill() -> AppendColumn:
        column = AppendColumn(width)
        for _ in range(ROWS // batch):
            column.append(values, offsets, None, rows)
        return column

    column = benchmark(fill)
    assert len(column) == ROWS and column.cell(0) == values[-8:].tobytes()


@pytest.mark.benchmark(group="kernel: append column, one cell")
def test_append_cell(benchmark: Any) -> None:
    cell = b"12345678"

    def fill() -> AppendColumn:
        column = AppendColumn(8)
        for _ in range(10_000):
            column.append_cell(cell)
        return column

    benchmark.extra_info |= {"rows": 10_000}
    assert len(benchmark(fill)) == 10_000


@pytest.mark.benchmark(group="kernel: append column, snapshot")
def test_snapshot(benchmark: Any) -> None:
    column = AppendColumn(8)
    column.append(np.zeros(8 * ROWS, np.uint8))
    assert len(benchmark(column.snapshot, 0, ROWS)[0]) == 8 * ROWS
