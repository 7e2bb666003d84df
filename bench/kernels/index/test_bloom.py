"""Bloom filters of 1,000,000 keys.  Divide by KEYS for ns a key."""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kudu_core._ext.index import bloom

KEYS = 1_000_000


@pytest.fixture(scope="module")
def hashes() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 2**64, 2 * KEYS, np.uint64)


@pytest.mark.parametrize("bits", [12, 16])
def test_build(benchmark: BenchmarkFixture, hashes: np.ndarray, bits: int) -> None:
    built = benchmark(bloom.build, hashes[:KEYS], bits)
    assert bloom.probe(built, hashes[:KEYS]).all()


@pytest.mark.parametrize("bits", [12, 16])
def test_probe(benchmark: BenchmarkFixture, hashes: np.ndarray, bits: int) -> None:
    built = bloom.build(hashes[:KEYS], bits)
    mask = benchmark(bloom.probe, built, hashes[KEYS:])
    assert 0.0005 < mask.mean() < 0.007
