"""``_ext.rules.knapsack``: what it chooses scores as much as the best of all sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.rules import knapsack
from tests.support.oracles.rules import knapsack as oracle

NO_END = 1 << 62


def cases(rng: np.random.Generator) -> list[oracle.Interval]:
    """Intervals that touch, nest, repeat and have no width."""
    count = int(rng.integers(0, 11))
    steps = int(rng.choice((4, 30, 1000)))
    out = []
    for _ in range(count):
        low, high = sorted((rng.integers(0, steps + 1, 2) / steps).tolist())
        value = high - low + float(rng.choice((0, 0.009, 0.3)))
        out.append((low, high, value, int(rng.choice((1, 2, 5, 8, 20)))))
    return sorted(out, key=lambda i: i[1])


def arrays(intervals: list[oracle.Interval]) -> list[np.ndarray]:
    columns = list(zip(*intervals, strict=True)) or [()] * 4
    return [np.array(c, np.int64 if n == 3 else np.float64) for n, c in enumerate(columns)]


def test_the_best_set_is_found(seed: int, long: bool) -> None:
    chosen = 0
    for run in range(3000 if long else 300):
        rng = np.random.default_rng((seed, run))
        intervals = cases(rng)
        budget = int(rng.integers(1, 40))
        adjust = float(rng.choice((0, 1, 1.003, 2)))
        wanted = oracle.choose(intervals, budget, adjust)
        score, picked, exact = knapsack.choose(*arrays(intervals), budget, adjust, 0.0, 1.05, NO_END)
        assert exact
        assert score == pytest.approx(wanted, abs=1e-9), run
        mine = [intervals[n] for n in picked.tolist()]
        if mine:
            chosen += len(mine) > 1
            assert sum(i[3] for i in mine) <= budget
            assert oracle.score(mine, adjust) == pytest.approx(score, abs=1e-9)
        else:
            assert score == 0
        # Nothing is told that scores no more than the floor.
        assert knapsack.choose(*arrays(intervals), budget, adjust, wanted + 1e-9, 1.05, NO_END)[0] == 0
        # With little work allowed it comes within the tolerance.
        hasty, some, _ = knapsack.choose(*arrays(intervals), budget, adjust, 0.0, 1.05, 0)
        assert hasty >= wanted / 1.05 - 1e-9
        assert hasty == pytest.approx(oracle.score([intervals[n] for n in some], adjust) if len(some) else 0)
    assert chosen > 50


def test_larger_sets(seed: int) -> None:
    """A set that is known to be good is not missed among many."""
    rng = np.random.default_rng(seed)
    low = rng.random(400) * 0.9
    high = low + rng.random(400) * 0.01
    low[:20], high[:20] = 0.5, 0.52
    order = np.argsort(high, kind="stable")
    value = high - low
    weight = rng.integers(1, 5, 400)
    arguments = [a[order] for a in (low, high, value, weight)]
    budget = int(weight[:20].sum())
    score, picked, exact = knapsack.choose(*arguments, budget, 1.003, 0.0, 1.05, NO_END)
    assert exact
    assert score >= 20 * 0.02 - 1.003 * 0.02 - 1e-9
    assert arguments[3][picked].sum() <= budget


def test_wrong_arguments_are_refused() -> None:
    good: dict[str, Any] = {
        "low": np.array([0.0, 0.0]),
        "high": np.array([0.5, 1.0]),
        "value": np.array([0.5, 1.0]),
        "weight": np.array([1, 1]),
        "budget": 2,
        "adjust": 1.0,
        "floor": 0.0,
        "tolerance": 1.0,
        "work": 0,
    }
    assert knapsack.choose(**good)[0] == 0.5
    for name, value in (
        ("low", np.array([0.0])),
        ("low", np.array([0.0, 2.0])),
        ("low", np.array([0.0, np.nan])),
        ("low", np.array([-np.inf, 0.0])),
        ("high", np.array([1.0, 0.5])),
        ("high", np.array([0.5, np.inf])),
        ("value", np.array([0.5, -1.0])),
        ("value", np.array([0.5, np.nan])),
        ("weight", np.array([1, 0])),
        ("weight", np.array([1, -(2**63)])),
        ("budget", 0),
        ("budget", 65_537),
        ("adjust", -1.0),
        ("adjust", np.nan),
        ("floor", -1.0),
        ("tolerance", 0.9),
    ):
        with pytest.raises(ValueError, match=r"."):
            knapsack.choose(**{**good, name: value})
    heavy = {**good, "weight": np.array([2**62, 2**62])}
    assert knapsack.choose(**heavy)[1].tolist() == []
