"""Hashes of 1,000,000 rows, column by column.  ``rows`` in extra_info divides a round into ns a cell."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kudu_core._ext.columns import row_hash
from tests.support.oracles.columns import row_hash as oracle

ROWS = 1_000_000


@pytest.fixture(scope="module")
def data() -> npt.NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, 16 * ROWS, np.uint8)


@pytest.mark.parametrize("nulls", [False, True], ids=["none", "nulls"])
@pytest.mark.parametrize("width", [1, 4, 8, 16, 0], ids=["1", "4", "8", "16", "10 bytes"])
def test_chain_column(
    benchmark: BenchmarkFixture, data: npt.NDArray[np.uint8], width: int, nulls: bool
) -> None:
    benchmark.group = "rowhash.chain_column"
    benchmark.extra_info["rows"] = ROWS
    offsets = None if width else np.arange(ROWS + 1, dtype=np.int32) * 10
    validity = np.full(ROWS // 8, 0b11110111, np.uint8) if nulls else None
    values = data[: (width or 10) * ROWS]
    benchmark(row_hash.chain_column, 7, width, values, offsets, validity, np.zeros(ROWS, np.uint64))
    hashes = np.zeros(ROWS, np.uint64)
    row_hash.chain_column(7, width, values, offsets, validity, hashes)
    assert int(hashes[0]) == oracle.cell_hash(0, 7, values[: width or 10].tobytes())


def test_sums(benchmark: BenchmarkFixture) -> None:
    benchmark.group = "rowhash.sums"
    benchmark.extra_info["rows"] = ROWS
    hashes = np.random.default_rng(1).integers(0, 2**64, ROWS, np.uint64)
    plain, _ = benchmark(row_hash.sums, hashes)
    assert plain == int(hashes.sum(dtype=np.uint64))
