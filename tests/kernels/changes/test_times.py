"""Changes put in the order of their times by counting."""

from __future__ import annotations

import os

import numpy as np
import pytest

from kudu_core._ext.changes.times import order_of_few

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))


def test_the_order_is_numpys_stable_one(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (3000 if long else 200)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        most = [3, 1 << 20, (1 << 64) - 1][seed % 3]
        distinct = rng.integers(0, most, int(rng.integers(1, 257)), np.uint64)
        values = rng.choice(distinct, int(rng.integers(0, 2000)))
        if rng.random() < 0.5:
            values = np.repeat(values, 3)
        found = order_of_few(values)
        assert found is not None
        assert found.tolist() == np.argsort(values, kind="stable").tolist()


@pytest.mark.parametrize("step", [1, 1 << 10, 1 << 54])  # the last all hash alike
@pytest.mark.parametrize(("count", "few"), [(255, True), (256, True), (257, False), (1000, False)])
def test_only_so_many_may_differ(step: int, count: int, few: bool) -> None:
    values = np.arange(count, dtype=np.uint64)[::-1] * np.uint64(step)
    for given in (values.copy(), np.tile(values, 2)):
        distinct = len(np.unique(given))
        found = order_of_few(given)
        assert (found is not None) == (distinct <= 256)
        assert found is None or found.tolist() == np.argsort(given, kind="stable").tolist()
        assert few or step == 1 << 54 or found is None
