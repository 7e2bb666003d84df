"""How ranges of rows become pieces of work; those that lie close together are read as one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kudu_core._ext.scan.selection import Selection
from kudu_core.rowset.scan import filescan
from kudu_core.rowset.scan.scan import PAGE_ROWS, UNIT_PAGES, rows_of, units
from tests.support.tables import Make

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])


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


@pytest.mark.parametrize("gap", [0, 3, 1000])
def test_the_rows_are_those_of_the_ranges(seed: int, gap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filescan, "_GAP_ROWS", gap)
    rng = np.random.default_rng(seed)
    joined = 0
    for count in (1, 16, 17, 100, 400):
        for most in (2, 40, 3000):
            steps = rng.integers(1, most, 2 * count)
            steps[2::2] -= 1  # ranges may touch
            ranges = np.cumsum(steps).reshape(count, 2)
            rows = int(ranges[-1, 1]) + 5
            wanted = np.concatenate([np.arange(lower, upper) for lower, upper in ranges])
            for live in (None, rng.integers(0, 2, len(wanted)).astype(np.uint8)):
                made = filescan._with_gaps(ranges, live, rows)
                found = Selection(*made).rowids()
                assert found.tolist() == (wanted if live is None else wanted[live > 0]).tolist()
                joined += len(made[0]) < len(ranges)
    assert joined or gap < 1000


@pytest.mark.parametrize("state", ["flushed", "changed", "dead rows", "merged"])
def test_keys_of_a_list(make: Make, seed: int, state: str) -> None:
    table = make(SCHEMA)
    rows = {k: {"k": k, "v": k, "s": f"s{k % 7}"} for k in range(6000)}
    table.insert(pa.Table.from_pylist(list(rows.values()), SCHEMA))
    table.flush()
    if state != "flushed":
        for k in range(0, 6000, 5):
            rows[k]["v"] = -k
        table.update([{"k": k, "v": -k} for k in range(0, 6000, 5)])
    if state in ("dead rows", "merged"):
        for k in range(0, 6000, 3):
            del rows[k]
        table.delete([{"k": k} for k in range(0, 6000, 3)])
    if state == "merged":
        table.compact(full=True)
    rng = np.random.default_rng(seed)
    for count in (17, 300, 3000):
        keys = rng.permutation(7000)[:count].tolist()
        where = pc.field("k").isin(keys)
        wanted = [rows[k] for k in sorted(keys) if k in rows]
        assert table.scan(where=where, order="key").to_table().to_pylist() == wanted
        assert table.scan(where=where).count() == len(wanted)
        where &= pc.field("v") >= 0
        wanted = [row for row in wanted if row["v"] >= 0]
        found = table.scan(where=where).to_table().sort_by("k")
        assert found.to_pylist() == wanted
