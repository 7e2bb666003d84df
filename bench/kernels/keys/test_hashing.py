"""Hashes of 1,000,000 keys or cells.  ``rows`` in extra_info divides a round into ns a key."""

from __future__ import annotations

import mmh3
import numpy as np
import numpy.typing as npt
import pytest
import xxhash
from pytest_benchmark.fixture import BenchmarkFixture

from kudu_core._ext.keys import hashing

ROWS = 1_000_000


@pytest.fixture(scope="module")
def data() -> npt.NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, 20 * ROWS, np.uint8)


@pytest.mark.parametrize("size", [8, 20])
def test_murmur3(benchmark: BenchmarkFixture, data: npt.NDArray[np.uint8], size: int) -> None:
    benchmark.group = "hashing.murmur3"
    benchmark.extra_info["rows"] = ROWS
    offsets = np.arange(ROWS + 1, dtype=np.int64) * size
    hashes = benchmark(hashing.murmur3, data, offsets)
    assert int(hashes[-1]) == mmh3.hash64(data[offsets[-2] : offsets[-1]].tobytes(), 0, signed=False)[0]


@pytest.mark.parametrize(
    "kind, width", [(1, 4), (1, 8), (4, 16), (3, 0)], ids=["int32", "int64", "decimal", "10 bytes"]
)
def test_xxh64_column(
    benchmark: BenchmarkFixture, data: npt.NDArray[np.uint8], kind: int, width: int
) -> None:
    benchmark.group = "hashing.xxh64_column"
    benchmark.extra_info["rows"] = ROWS
    offsets = np.arange(ROWS + 1, dtype=np.int32) * 10 if kind == 3 else None
    values = data[: (width or 10) * ROWS]
    benchmark(hashing.xxh64_column, kind, width, values, offsets, np.full(ROWS, 42, np.uint64))
    hashes = np.full(ROWS, 42, np.uint64)
    hashing.xxh64_column(kind, width, values, offsets, hashes)
    if kind != 4:
        assert int(hashes[0]) == xxhash.xxh64_intdigest(values[: width or 10].tobytes(), 42)


def test_bucket(benchmark: BenchmarkFixture) -> None:
    benchmark.group = "hashing.bucket"
    benchmark.extra_info["rows"] = ROWS
    hashes = np.random.default_rng(1).integers(0, 2**64, ROWS, np.uint64)
    chosen = benchmark(hashing.bucket, hashes, 12)
    np.testing.assert_array_equal(chosen, hashes.view(np.int64) % 12)
