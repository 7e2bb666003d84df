"""Sums of bytes between two measurements."""

from __future__ import annotations

from kudu_core._ext.few.memory_counts import MemoryCounts


def test_flushes_are_woken_at_each_step() -> None:
    counts = MemoryCounts()
    counts.step_bytes = 100
    assert [counts.count_bytes(40, 10) for _ in range(7)] == [False, False, True] * 2 + [False]
    assert counts.added == 280 and counts.take_unpaid() == 70 and counts.take_unpaid() == 0


def test_an_estimate_is_what_is_known_and_what_came_since() -> None:
    counts = MemoryCounts()
    counts.step_bytes, counts.known = 1 << 40, 5 << 40
    counts.count_bytes(3, 1)
    assert counts.estimate() == (5 << 40) + 3
    counts.known, counts.added = 7, 0
    assert counts.estimate() == 7
