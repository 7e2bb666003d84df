"""Merge of 1,000,000 keys in k runs.  ``rows`` in extra_info divides a round into ns a key."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kudu_core._ext.keys.merge_plan import merge

ROWS = 1_000_000


def interleaved(rng: np.random.Generator, runs: int) -> list[npt.NDArray[np.uint64]]:
    return [np.sort(part) for part in np.array_split(rng.integers(0, 2**63, ROWS, np.uint64), runs)]


def disjoint(rng: np.random.Generator, runs: int) -> list[npt.NDArray[np.uint64]]:
    return np.array_split(np.sort(rng.integers(0, 2**63, ROWS, np.uint64)), runs)


@pytest.mark.parametrize("prefix", [b"", b"host-000"], ids=["8 bytes", "common prefix"])
@pytest.mark.parametrize("shape", [interleaved, disjoint])
@pytest.mark.parametrize("runs", [2, 8, 100])
def test_merge(benchmark: BenchmarkFixture, runs: int, shape: object, prefix: bytes) -> None:
    benchmark.group = f"merge, {runs} runs"
    benchmark.extra_info["rows"] = ROWS
    assert callable(shape)
    parts = shape(np.random.default_rng(1), runs)
    width = len(prefix) + 8
    encoded = []
    for part in parts:
        cells = np.empty((len(part), width), np.uint8)
        cells[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
        cells[:, len(prefix) :] = part.astype(">u8").view(np.uint8).reshape(-1, 8)
        encoded.append((cells.reshape(-1), np.arange(len(part) + 1, dtype=np.int64) * width))
    source, position = benchmark.pedantic(  # type: ignore[no-untyped-call]
        merge, (encoded,), rounds=5, warmup_rounds=1
    )
    starts = np.cumsum([0, *(len(part) for part in parts)])
    merged = np.concatenate(parts)[starts[source] + position]
    assert (merged[1:] >= merged[:-1]).all()
