"""Stable orders, and the values that differ, are numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core.common.run.ordering import distinct, order_of_pairs, stable_order

BASE = np.uint64(1_790_000_000_000_000 << 12)


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
@pytest.mark.parametrize("spread", [1, 5, 1 << 40, (1 << 63) - 1])
def test_an_order_is_the_stable_one(count: int, spread: int, seed: int) -> None:
    rng = np.random.default_rng([seed, count, spread])
    values = rng.integers(0, spread, count, np.uint64, endpoint=True) + (BASE if spread < 1 << 50 else 0)
    for given in (values, np.sort(values), np.sort(values)[::-1].copy()):
        wanted = np.argsort(given, kind="stable")
        found = stable_order(given)
        assert (found is None) == (wanted.tolist() == list(range(count)))
        assert found is None or found.tolist() == wanted.tolist()
    first = rng.integers(0, 20, count)
    assert order_of_pairs(first, values).tolist() == np.lexsort((values, first)).tolist()


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64, np.uint64, np.float64])
def test_the_values_that_differ(count: int, kind: type, seed: int) -> None:
    rng = np.random.default_rng([seed, count])
    values = rng.integers(0, max(1, count // 2), count).astype(kind)
    for given in (values, np.sort(values), np.sort(values)[::-1], np.arange(count).astype(kind)):
        before = given.copy()
        found = distinct(given)
        assert found.dtype == kind and found.tolist() == sorted(set(given.tolist()))
        assert given.tolist() == before.tolist() and not np.shares_memory(found, given)
