"""KeyTable: 1,000,000 keys of 20 bytes, appended and looked up in batches.  Divide by KEYS for ns a key."""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kudu_core._ext.index.hash_index import KeyTable

KEYS = 1_000_000
WIDTH = 20
OFFSETS = np.arange(KEYS + 1, dtype=np.int64) * WIDTH


@pytest.fixture(scope="module")
def keys() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, KEYS * WIDTH, np.uint8), rng.integers(0, 2**64, KEYS, np.uint64)


def fill(table: KeyTable, keys: tuple[np.ndarray, np.ndarray], batch: int) -> KeyTable:
    data, hashes = keys
    for at in range(0, KEYS, batch):
        table.append(data, OFFSETS[at : at + batch + 1], hashes[at : at + batch])
    return table


@pytest.mark.parametrize("capacity", [0, KEYS], ids=["growing", "sized"])
@pytest.mark.parametrize("batch", [1_000, 10_000])
def test_append(
    benchmark: BenchmarkFixture, keys: tuple[np.ndarray, np.ndarray], batch: int, capacity: int
) -> None:
    table = benchmark.pedantic(  # type: ignore[no-untyped-call]
        lambda: fill(KeyTable(7, capacity), keys, batch), rounds=5, warmup_rounds=1
    )
    assert table.count == KEYS
    np.testing.assert_array_equal(table.keys()[0], keys[0])


@pytest.mark.parametrize("present", [True, False], ids=["hit", "miss"])
@pytest.mark.parametrize("batch", [1_000, 10_000])
def test_lookup_random(
    benchmark: BenchmarkFixture, keys: tuple[np.ndarray, np.ndarray], batch: int, present: bool
) -> None:
    table = fill(KeyTable(7), keys, KEYS)
    order = np.random.default_rng(2).permutation(KEYS)
    data = keys[0].reshape(KEYS, WIDTH)[order].reshape(-1)
    hashes = keys[1][order] if present else ~keys[1][order]

    def look_up() -> list[np.ndarray]:
        return [
            table.lookup(data, OFFSETS[at : at + batch + 1], hashes[at : at + batch], KEYS)
            for at in range(0, KEYS, batch)
        ]

    found = np.concatenate(
        benchmark.pedantic(  # type: ignore[no-untyped-call]
            look_up, rounds=5, warmup_rounds=1
        )
    )
    np.testing.assert_array_equal(found, order if present else np.full(KEYS, -1))


def test_find_one(benchmark: BenchmarkFixture, keys: tuple[np.ndarray, np.ndarray]) -> None:
    """1,000 calls a round."""
    table = fill(KeyTable(7), keys, KEYS)
    rows = np.random.default_rng(2).integers(0, KEYS, 1000).tolist()
    probes = [(table.key(row), int(keys[1][row])) for row in rows]
    found = benchmark(lambda: [table.find(key, key_hash, KEYS) for key, key_hash in probes])
    assert found == rows
