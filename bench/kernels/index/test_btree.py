"""B-trees of 1,000,000 keys, filled in sorted runs.  Divide by KEYS for ns a key.

Random keys flatter a tree of prefixes; the keys with a long common beginning are the ones to watch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kudu_core._ext.index.btree import BTree
from kudu_core._ext.index.btree_u64 import BTreeU64

KEYS = 1_000_000
TICKS = np.arange(KEYS, dtype=np.uint64) // 1000 * 10_000_000 + 1_700_000_000_000_000


def random_int64(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (KEYS, 8), np.uint8)


def ascending_int64(rng: np.random.Generator) -> np.ndarray:
    return np.arange(KEYS, dtype=">u8").view(np.uint8).reshape(KEYS, 8)


def random_20_bytes(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (KEYS, 20), np.uint8)


def host_ticks(rng: np.random.Generator) -> np.ndarray:
    hosts = np.array([list(b"host-%05d\0\0" % i) for i in range(1000)], np.uint8)
    return np.concatenate(
        [hosts[np.arange(KEYS) % 1000], TICKS.astype(">u8").view(np.uint8).reshape(KEYS, 8)], axis=1
    )


def host_random(rng: np.random.Generator) -> np.ndarray:
    return host_ticks(rng)[rng.permutation(KEYS)]


SHAPES = [random_int64, ascending_int64, random_20_bytes, host_ticks, host_random]


def arrange(make: Callable[[np.random.Generator], np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arena, its offsets, and all ordinals in the order of their keys."""
    keys = make(np.random.default_rng(1))
    padded = np.zeros((KEYS, 24), np.uint8)
    padded[:, : keys.shape[1]] = keys
    words = padded.view(">u8").astype(np.uint64)
    order = np.lexsort((words[:, 2], words[:, 1], words[:, 0]))
    return keys.reshape(-1), np.arange(KEYS + 1, dtype=np.int64) * keys.shape[1], order


def sorted_runs(order: np.ndarray, size: int) -> list[np.ndarray]:
    rank = np.empty(KEYS, np.int64)
    rank[order] = np.arange(KEYS)
    return [(at + np.argsort(rank[at : at + size])).astype(np.uint32) for at in range(0, KEYS, size)]


def fill(data: np.ndarray, offsets: np.ndarray, runs: list[np.ndarray]) -> BTree:
    tree = BTree()
    for run in runs:
        tree.insert_sorted(data, offsets, run)
    return tree


@pytest.mark.parametrize("size", [1_000, 10_000, KEYS])
@pytest.mark.parametrize("make", SHAPES)
def test_insert(
    benchmark: BenchmarkFixture, make: Callable[[np.random.Generator], np.ndarray], size: int
) -> None:
    data, offsets, order = arrange(make)
    runs = sorted_runs(order, size)
    tree = benchmark.pedantic(  # type: ignore[no-untyped-call]
        lambda: fill(data, offsets, runs), rounds=3, warmup_rounds=1
    )
    np.testing.assert_array_equal(tree.range(data, offsets, None, None, KEYS), order)


def test_range_of_all(benchmark: BenchmarkFixture) -> None:
    data, offsets, order = arrange(host_random)
    tree = fill(data, offsets, sorted_runs(order, 10_000))
    np.testing.assert_array_equal(benchmark(tree.range, data, offsets, None, None, KEYS), order)


def test_range_of_one_key(benchmark: BenchmarkFixture) -> None:
    """1,000 calls a round, two searches each."""
    data, offsets, order = arrange(host_random)
    tree = fill(data, offsets, sorted_runs(order, 10_000))
    wanted = np.random.default_rng(2).integers(0, KEYS, 1000)
    bounds = [(key, key + b"\0") for key in (data[offsets[i] : offsets[i + 1]].tobytes() for i in wanted)]
    found = benchmark(lambda: [tree.range(data, offsets, lower, upper, KEYS) for lower, upper in bounds])
    np.testing.assert_array_equal(np.concatenate(found), wanted)


@pytest.mark.parametrize("size", [1_000, 10_000])
def test_u64_insert(benchmark: BenchmarkFixture, size: int) -> None:
    """As a DeltaMemStore's: rowids at random over 500,000 rows, changes ascending."""
    keys = np.random.default_rng(1).integers(0, 500_000, KEYS).astype(np.uint64) << np.uint64(32)
    keys |= np.arange(KEYS, dtype=np.uint64)
    runs = [np.sort(keys[at : at + size]) for at in range(0, KEYS, size)]

    def fill_u64() -> BTreeU64:
        tree = BTreeU64()
        for run in runs:
            tree.insert_sorted(run)
        return tree

    tree = benchmark.pedantic(fill_u64, rounds=3, warmup_rounds=1)  # type: ignore[no-untyped-call]
    np.testing.assert_array_equal(tree.range(0, 1 << 64), np.sort(keys))
