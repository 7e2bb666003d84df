"""How ranges of rows become pieces of work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kudu_core.rowset.scan.scan import PAGE_ROWS, UNIT_PAGES, rows_of, units


def rows(ranges: np.ndarray) -> list[int]:
    return [row for lower, upper in ranges.tolist() for row in range(lower, upper)]


@given(
    gaps=st.lists(st.tuples(st.integers(1, 40_000), st.integers(1, 70_000)), max_size=8),
    batch_rows=st.sampled_from([1, 7, 1000, PAGE_ROWS, 40_000, 65_536, 1 << 24]),
)
def test_units_hold_every_row_once_and_in_order(gaps: list[tuple[int, int]], batch_rows: int) -> None:
    edges = np.cumsum([n for gap in gaps for n in gap]).reshape(-1, 2).astype(np.int64)
    batch_rows = max(batch_rows, rows_of(edges) // 200)  # not too many units
    found = list(units(edges, batch_rows))
    assert [row for unit in found for row in rows(unit)] == rows(edges)
    for unit in found:
        assert 0 < rows_of(unit) <= batch_rows
        assert (unit[:, 0] < unit[:, 1]).all() and (unit[1:, 0] >= unit[:-1, 1]).all()


def test_long_ranges_are_cut_at_pages() -> None:
    found = list(units(np.array([[100, 10 * PAGE_ROWS + 5]]), 4 * PAGE_ROWS))
    assert [u.tolist() for u in found] == [
        [[100, 4 * PAGE_ROWS]],
        [[4 * PAGE_ROWS, 8 * PAGE_ROWS]],
        [[8 * PAGE_ROWS, 10 * PAGE_ROWS + 5]],
    ]
    assert [u.tolist() for u in units(np.array([[10, 30]]), 15)] == [[[10, 25]], [[25, 30]]]


def test_many_small_ranges_are_one_unit() -> None:
    lower = np.arange(1000, dtype=np.int64) * 5000
    (unit,) = units(np.stack([lower, lower + 50], axis=1), 65_536)
    assert rows_of(unit) == 50_000


@pytest.mark.parametrize("count", [2, 2000])
def test_a_unit_does_not_reach_far(count: int) -> None:
    lower = np.arange(count, dtype=np.int64) * (UNIT_PAGES * PAGE_ROWS * 3 // count)
    for unit in units(np.stack([lower, lower + 1], axis=1), 65_536):
        assert unit[-1, 1] - unit[0, 0] <= UNIT_PAGES * PAGE_ROWS
