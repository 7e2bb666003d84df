"""Who may hold a key, and each of 10,000, in a tablet of 6,815 rowsets; beside all that have begun."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.index.rowset_tree import BoundsTree
from kudu_core._ext.keys import keys as keys_kernel
from kudu_core.common.rows.keys import EncodedKeys

ROWSETS = 6815
HEIGHTS = [1, 40]


def layout(height):
    """Keys of 8 bytes; each lies in ``height`` rowsets or so, and one rowset spans everything."""
    rng = np.random.default_rng(1)
    first = np.sort(rng.integers(0, 1 << 60, ROWSETS))
    first[0] = 0
    last = np.minimum(first + height * (1 << 60) // ROWSETS, 1 << 60)
    last[0] = 1 << 60
    return tuple(EncodedKeys.from_list([int(k).to_bytes(8, "big") for k in keys]) for keys in (first, last))


def tree_of(first, last):
    return BoundsTree((first.data, first.offsets), (last.data, last.offsets))


@pytest.mark.benchmark(group="kernel: rowset tree, built")
def test_build(benchmark):
    first, last = layout(40)
    benchmark.extra_info["rows"] = ROWSETS
    assert benchmark(tree_of, first, last).count == ROWSETS


@pytest.mark.benchmark(group="kernel: rowset tree, one key")
@pytest.mark.parametrize("height", HEIGHTS)
def test_point(benchmark, height):
    tree = tree_of(*layout(height))
    rng = np.random.default_rng(2)
    keys = [int(k).to_bytes(8, "big") for k in rng.integers(0, 1 << 60, 1000)]
    benchmark.extra_info["rows"] = len(keys)
    found = benchmark(lambda: [len(tree.point(key)) for key in keys])
    assert height / 2 < np.mean(found) < height + 3


@pytest.mark.benchmark(group="kernel: rowset tree, 10,000 keys")
@pytest.mark.parametrize("way", ["tree", "bounds"])
@pytest.mark.parametrize("height", HEIGHTS)
def test_batch(benchmark, height, way):
    first, last = layout(height)
    tree = tree_of(first, last)
    keys = np.sort(np.random.default_rng(2).integers(0, 1 << 60, 10_000))
    packed = EncodedKeys.from_list([int(k).to_bytes(8, "big") for k in keys])
    benchmark.extra_info["rows"] = len(keys)

    def every():
        """What the presence check did: each bound is sought among the keys."""
        lower = keys_kernel.lower_bound(packed.data, packed.offsets, first.data, first.offsets)
        upper = keys_kernel.lower_bound(packed.data, packed.offsets, last.data, last.offsets, upper=True)
        hit = np.flatnonzero(lower < upper)
        return hit, lower[hit], upper[hit]

    found = benchmark(every if way == "bounds" else lambda: tree.batch(packed.data, packed.offsets))
    for mine, theirs in zip(found, every(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
