"""CRC-32C of pages and of much.  ``bytes`` in extra_info over a round's time is the rate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kudu_core._ext.base import crc32c as kernel

KIB = 1024


@pytest.fixture(params=[True, False], ids=["sse4.2", "tables"])
def body(request: pytest.FixtureRequest) -> Iterator[str]:
    if kernel._choose(request.param) != request.param:
        pytest.skip("this machine has no SSE 4.2")
    yield "sse4.2" if request.param else "tables"
    kernel._choose(True)


@pytest.mark.parametrize("size", [4 * KIB, 32 * KIB, 256 * KIB, 64 * KIB * KIB])
def test_crc32c(benchmark: BenchmarkFixture, body: str, size: int) -> None:
    benchmark.group = f"crc32c, {body}"
    benchmark.extra_info["bytes"] = size
    data = np.random.default_rng(1).bytes(size)
    crc = benchmark(kernel.crc32c, data)
    half = size // 2 + 3
    assert crc == kernel.crc32c(data[half:], kernel.crc32c(data[:half]))
