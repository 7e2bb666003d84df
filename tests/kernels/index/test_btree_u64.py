"""The B-tree of integers gives their order, whatever came in which runs."""

from __future__ import annotations

import os

import numpy as np
import pytest

from kudu_core._ext.index.btree_u64 import BTreeU64
from tests.support.oracles.index import btree_u64 as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))


def test_u64_agrees_with_a_sorted_list(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (2000 if long else 60)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        count = int(rng.choice([1, 65, 300, 8000]))
        if seed % 3 == 0:
            keys = rng.integers(0, 2**64, count, np.uint64)
        elif seed % 3 == 1:
            keys = rng.integers(0, 50, count).astype(np.uint64) << np.uint64(32) | np.arange(
                count, dtype=np.uint64
            )
        else:
            keys = np.arange(count, dtype=np.uint64)[:: int(rng.choice([1, -1]))]
        keys = keys[np.sort(np.unique(keys, return_index=True)[1])]
        tree, expected = BTreeU64(), oracle.BTreeU64()
        largest = int(rng.choice([1, 10, 100, 10_000]))
        done = 0
        while done < len(keys):
            run = np.sort(keys[done : done + int(rng.integers(1, largest + 1))])
            tree.insert_sorted(run)
            done += len(run)
        expected.insert_sorted(keys.tolist())
        assert tree.count == len(tree) == len(keys)
        assert tree.range(0, 1 << 64).tolist() == expected.keys
        for _ in range(20):
            lower = int(rng.choice(keys)) + int(rng.integers(0, 2))
            upper = int(rng.choice(keys)) + int(rng.integers(0, 2))
            assert tree.range(lower, upper).tolist() == expected.range(lower, upper)


def test_u64_edges() -> None:
    tree = BTreeU64()
    assert tree.range(0, 1 << 64).tolist() == []
    tree.insert_sorted(np.empty(0, np.uint64))
    ends = [0, 1, 2**63, 2**64 - 1]
    tree.insert_sorted(np.array(ends, np.uint64))
    assert tree.range(0, 1 << 64).tolist() == ends
    assert tree.range(2**64 - 1, 1 << 64).tolist() == ends[-1:]
    assert (
        tree.range(1 << 64, 1 << 64).tolist() == tree.range(1, 1).tolist() == tree.range(5, 2).tolist() == []
    )
    for faulty in ([3, 3], [4, 3]):
        with pytest.raises(ValueError, match="not above"):
            tree.insert_sorted(np.array(faulty, np.uint64))
    for lower, upper in ((-1, 5), (0, (1 << 64) + 1)):
        with pytest.raises(ValueError, match="not within"):
            tree.range(lower, upper)
    assert tree.count == 4
