"""Which rowsets are merged: beside the best of all choices, by properties, on a real tablet's layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kudu_core.tablet.maintain.merge_policy import (
    DEAD,
    MAX_INPUTS,
    MIN_GAIN,
    OVERLAP,
    SMALL,
    SMALL_FRACTION,
    SMALL_VALUE,
    SPAN_COST,
    MergeChoice,
    RowSetLayout,
    RowSetStats,
    choose_merge,
    overlap_choice,
    tidy_choice,
)
from tests.support.cases.layouts import MIB, average_height, merged, ycsb
from tests.support.oracles.rules import knapsack
from tests.support.oracles.search import share

TARGET = 32 * MIB
LAYOUT = Path(__file__).parent / "data/ycsb-rowsets.tsv"


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def rowset(number: int, lower: int, upper: int, mib: float = 32, **more: object) -> RowSetStats:
    return RowSetStats(number, key(lower), key(upper), int(mib * MIB), **more)  # type: ignore[arg-type]


def disjoint(count: int, mib: float = 32) -> list[RowSetStats]:
    return [rowset(n, n * 1000, n * 1000 + 999, mib) for n in range(count)]


def random_layout(rng: np.random.Generator, count: int) -> list[RowSetStats]:
    out = []
    for number in range(count):
        low, high = sorted(rng.integers(0, int(rng.choice((20, 10_000))), 2).tolist())
        out.append(rowset(number, low, high, float(rng.choice((0.5, 4, 16, 32, 40)))))
    return out


def brute_force(rowsets: Sequence[RowSetStats], budget: int) -> float:
    """The best gain of any set, from the definitions."""
    keys = sorted({k for r in rowsets for k in (r.min_key, r.max_key)})
    place = {k: n for n, k in enumerate(keys)}
    below = share.below(keys, [(place[r.min_key], place[r.max_key], r.size_bytes) for r in rowsets])
    total = sum(r.size_bytes for r in rowsets)
    intervals = []
    for r in rowsets:
        low, high = below[place[r.min_key]] / total, below[place[r.max_key]] / total
        value = high - low + SMALL_VALUE * max(0.0, 1 - r.size_bytes / (SMALL_FRACTION * TARGET))
        intervals.append((low, high, value, r.size_bytes))
    best = knapsack.choose(intervals, budget, SPAN_COST)
    return best if best > MIN_GAIN else 0.0


def overlap(rowsets: Sequence[RowSetStats], budget_mib: int = 256) -> MergeChoice | None:
    return overlap_choice(RowSetLayout.of(rowsets), budget_bytes=budget_mib * MIB, target_bytes=TARGET)


def gain(choice: MergeChoice | None) -> float:
    return 0.0 if choice is None else choice.gain


def test_no_choice_gains_more(seed: int, long: bool) -> None:
    """Of 12 rowsets at most, and budgets in whole units of weight, the best of all sets."""
    found = 0
    for run in range(400 if long else 40):
        rng = np.random.default_rng((seed, run))
        rowsets = random_layout(rng, int(rng.integers(1, 12)))
        budget = int(rng.choice((32, 64, 100, 256)))
        choice = overlap(rowsets, budget)
        assert gain(choice) == pytest.approx(brute_force(rowsets, budget * MIB), abs=1e-9), run
        if choice is not None:
            found += 1
            chosen = [r for r in rowsets if r.id in choice.rowsets]
            assert len(chosen) == len(choice.rowsets) >= 2
            assert sum(r.size_bytes for r in chosen) == choice.input_bytes <= budget * MIB
            assert choice.exact
            assert choice.reason == OVERLAP
    assert found > 10


def test_the_order_of_the_rowsets_does_not_matter(seed: int) -> None:
    for run in range(40):
        rng = np.random.default_rng((seed, run))
        rowsets = random_layout(rng, 12)
        shuffled = [rowsets[n] for n in rng.permutation(len(rowsets))]
        for choose in (overlap, lambda r: choose_merge(r, budget_bytes=64 * MIB, target_bytes=TARGET)):
            assert choose(rowsets) == choose(shuffled)


@pytest.mark.parametrize("count", [0, 1, 2, 8, 100])
def test_full_rowsets_that_overlap_nowhere_are_left_alone(count: int) -> None:
    assert choose_merge(disjoint(count), budget_bytes=256 * MIB, target_bytes=TARGET) is None


def test_what_a_merge_has_rolled_is_not_merged_again() -> None:
    """However much was merged: its files are of one size, at most the target."""
    for mib in range(1, 400, 3):
        pieces = -(-mib // 32)
        assert overlap(disjoint(pieces, mib / pieces)) is None, mib


def test_one_alone_is_no_merge() -> None:
    assert overlap([rowset(0, 0, 10, 1)]) is None
    assert overlap([rowset(0, 0, 10), rowset(1, 0, 10, 300)]) is None  # the other is above the budget
    assert overlap([rowset(0, 5, 5, 32), rowset(1, 5, 5, 32)]) is None  # no width


def test_rowsets_under_work_are_not_chosen() -> None:
    three = [rowset(n, n, 1000 - n) for n in range(3)]
    assert gain(overlap(three)) > 1.9
    busy = [three[0], replace(three[1], available=False), three[2]]
    choice = overlap(busy)
    assert choice is not None
    assert choice.rowsets == (0, 2)
    assert gain(overlap([replace(r, available=False) for r in three])) == 0


def test_two_that_overlap_are_merged_rather_than_two_that_do_not() -> None:
    rowsets = [*disjoint(30), rowset(30, 5000, 8999), rowset(31, 5500, 8500)]
    choice = overlap(rowsets, 128)
    assert choice is not None
    assert {30, 31} <= set(choice.rowsets)


@pytest.mark.parametrize("seed_of", range(6))
def test_it_comes_to_an_end_and_the_height_falls(seed: int, seed_of: int) -> None:
    """MergeChoice after choice: the average height falls, or with it unchanged the number of rowsets."""
    rng = np.random.default_rng((seed, seed_of))
    rowsets = random_layout(rng, 40)
    rowsets[::3] = [replace(r, rows=100, droppable_rows=int(rng.integers(0, 100))) for r in rowsets[::3]]
    for _ in range(200):
        before = RowSetLayout.of(rowsets)
        choice = choose_merge(rowsets, budget_bytes=256 * MIB, target_bytes=TARGET)
        if choice is None:
            break
        rowsets = merged(rowsets, choice.rowsets, TARGET)
        after = RowSetLayout.of(rowsets)
        if choice.reason == OVERLAP:
            lower = average_height(after) < average_height(before) - 1e-6
            assert lower or len(after.rowsets) < len(before.rowsets)
        if choice.reason == SMALL:
            assert len(after.rowsets) < len(before.rowsets)
    else:
        pytest.fail("it never ends")
    assert average_height(RowSetLayout.of(rowsets)) < 2


# ---- what Kudu lacks


def test_dead_rows_are_a_reason() -> None:
    rowsets = disjoint(10)
    rowsets[4] = replace(rowsets[4], rows=1000, droppable_rows=199)
    assert choose_merge(rowsets, budget_bytes=256 * MIB, target_bytes=TARGET) is None
    rowsets[4] = replace(rowsets[4], droppable_rows=200)
    choice = choose_merge(rowsets, budget_bytes=256 * MIB, target_bytes=TARGET)
    assert choice is not None
    assert choice.rowsets == (4,)
    assert choice.reason == DEAD
    # Neighbours that are dying too become one.
    rowsets[5] = replace(rowsets[5], rows=1000, droppable_rows=900)
    choice = choose_merge(rowsets, budget_bytes=256 * MIB, target_bytes=TARGET)
    assert choice is not None
    assert choice.rowsets == (4, 5)
    assert choice.reason == DEAD


def test_cells_that_nobody_reads_are_a_reason() -> None:
    rowsets = disjoint(10)
    size = rowsets[4].size_bytes
    rowsets[4] = replace(rowsets[4], stale_bytes=int(0.39 * size))
    assert choose_merge(rowsets, budget_bytes=256 * MIB, target_bytes=TARGET) is None
    rowsets[4] = replace(rowsets[4], stale_bytes=int(0.5 * size))
    choice = choose_merge(rowsets, budget_bytes=256 * MIB, target_bytes=TARGET)
    assert choice is not None
    assert choice.rowsets == (4,)
    assert choice.reason == DEAD
    assert choice.gain == pytest.approx(0.05)  # half of a tenth of the data goes


@pytest.mark.parametrize("apart", [True, False])
def test_a_merge_has_at_most_so_many_inputs(apart: bool) -> None:
    """However small they are: each has files open."""
    rowsets = disjoint(1000, 0.01)
    if not apart:
        rowsets = [replace(r, min_key=key(0), max_key=key(5000 + r.id)) for r in rowsets]
    choice = choose_merge(rowsets, budget_bytes=256 * MIB, target_bytes=TARGET)
    assert choice is not None and len(choice.rowsets) == MAX_INPUTS
    assert choice.gain > 0 and choice.input_bytes == MAX_INPUTS * rowsets[0].size_bytes


def test_a_dead_rowset_above_the_budget_waits() -> None:
    dead = [rowset(0, 0, 9, 300, rows=10, droppable_rows=10)]
    assert choose_merge(dead, budget_bytes=256 * MIB, target_bytes=TARGET) is None
    assert choose_merge(dead, budget_bytes=300 * MIB, target_bytes=TARGET) is not None


def test_runs_of_small_rowsets_become_full_ones() -> None:
    """Three of 9 MiB are too little for the overlap choice in a large tablet, and worth merging."""
    small = [rowset(n, n * 1000, n * 1000 + 999, 9) for n in range(3)]
    choice = tidy_choice(RowSetLayout.of(small), budget_bytes=256 * MIB, target_bytes=TARGET)
    assert choice is not None
    assert choice.reason == SMALL
    assert choice.rowsets == (0, 1, 2)
    assert overlap(small) is None
    full = [replace(r, full=True) for r in small]
    assert choose_merge(full, budget_bytes=256 * MIB, target_bytes=TARGET) is None
    apart = [small[0], rowset(9, 999, 1000), small[1]]
    assert tidy_choice(RowSetLayout.of(apart), budget_bytes=256 * MIB, target_bytes=TARGET) is None


def test_few_tiny_rowsets_wait_for_more() -> None:
    for count in range(1, 9):
        choice = tidy_choice(RowSetLayout.of(disjoint(count, 1)), budget_bytes=256 * MIB, target_bytes=TARGET)
        assert (choice is not None) == (count >= 4)


def test_tidying_keeps_within_the_budget(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rowsets = [replace(r, size_bytes=int(rng.integers(1, 15 * MIB))) for r in disjoint(200)]
    choice = tidy_choice(RowSetLayout.of(rowsets), budget_bytes=64 * MIB, target_bytes=TARGET)
    assert choice is not None
    assert choice.input_bytes <= 64 * MIB
    assert len(choice.rowsets) >= 4


# ---- a real tablet


def test_a_tablet_after_days_of_inserts() -> None:
    """The gain never falls as the budget grows, and merging lowers the height as promised."""
    rowsets = ycsb(LAYOUT)
    layout = RowSetLayout.of(rowsets)
    assert len(rowsets) == 6815
    assert 40 < average_height(layout) < 41
    last = 0.0
    for budget in (16, 32, 33, 64, 100, 128, 200, 255, 256, 257, 400, 1024, 2048, 4096, 16384):
        choice = overlap_choice(layout, budget_bytes=budget * MIB, target_bytes=TARGET)
        assert gain(choice) >= last, budget
        last = gain(choice)
        if choice is not None:
            assert choice.exact
            assert choice.input_bytes <= budget * MIB
            after = average_height(RowSetLayout.of(merged(rowsets, choice.rowsets, TARGET)))
            promised = choice.gain - SMALL_VALUE * len(choice.rowsets)
            assert after <= average_height(layout) - promised + 0.01
    assert last > 1


def test_budgets_beyond_one_knapsack(seed: int) -> None:
    """Coarser units: the gain does not fall there either."""
    rng = np.random.default_rng(seed)
    rowsets = []
    for number in range(400):
        low = int(rng.integers(0, 10**6))
        size = float(rng.integers(1, 33)) / 1024
        rowsets.append(rowset(number, low, low + int(rng.integers(0, 10**5)), size))
    last = 0.0
    for budget in np.geomspace(1 << 16, 16 << 20, 25).astype(int).tolist():
        choice = overlap_choice(RowSetLayout.of(rowsets), budget_bytes=budget, target_bytes=32 << 10)
        assert gain(choice) >= last, budget
        assert choice is None or choice.input_bytes <= budget
        last = gain(choice)
    every = overlap_choice(RowSetLayout.of(rowsets), budget_bytes=1 << 50, target_bytes=32 << 10)
    assert gain(every) >= last > 5
