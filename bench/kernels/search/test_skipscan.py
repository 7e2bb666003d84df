"""Searches in the key columns of 1,000,000 rows of (host, ts), 200 hosts: 1% of the times, one host."""

from __future__ import annotations

import numpy as np
import pytest

from kudu_core._ext.pages import blocks
from kudu_core._ext.search.skipscan import KeyOrder

HOSTS, ROWS, PAGE, BLOCK = 200, 1_000_000, 16_384, 1024
FLIP = 1 << 63


@pytest.fixture(scope="module")
def made():
    host = np.repeat(np.arange(HOSTS, dtype=np.uint16), ROWS // HOSTS)
    ts = np.tile(np.arange(ROWS // HOSTS, dtype=np.int64) * 1000, HOSTS)
    pages = [
        [blocks.encode_fixed(c[i : i + PAGE].view(np.uint8), width, 1) for i in range(0, ROWS, PAGE)]
        for c, width in ((host, 2), (ts, 8))
    ]
    firsts = [host[::BLOCK].astype(np.uint64), ts[::BLOCK].astype(np.uint64) ^ np.uint64(FLIP)]
    order = KeyOrder(ROWS, [(2, 0, firsts[0]), (8, FLIP, firsts[1])])
    return order, ts, lambda column, first, last: pages[column][first:last]


MIDDLE = np.array([[FLIP + 2_000_000, FLIP + 2_049_999]], np.uint64)  # 1%


@pytest.mark.benchmark(group="kernel: skip scan")
def test_range_of_the_second_column(benchmark, made):
    order, _, load = made
    found, stop = benchmark(order.ranges, 0, ROWS, [None, MIDDLE], load, 64)
    assert stop is None and (found[:, 1] - found[:, 0]).sum() == ROWS // 100


@pytest.mark.benchmark(group="kernel: skip scan")
def test_numpy_compares_every_decoded_cell(benchmark, made):
    _, ts, _ = made
    found = benchmark(lambda: np.flatnonzero((ts >= 2_000_000) & (ts < 2_050_000)))
    assert len(found) == ROWS // 100


@pytest.mark.benchmark(group="kernel: skip scan")
def test_one_value_of_the_first_column(benchmark, made):
    order, _, load = made
    found, _ = benchmark(order.ranges, 0, ROWS, [np.array([[77, 77]], np.uint64)], load)
    assert found.tolist() == [[77 * ROWS // HOSTS, 78 * ROWS // HOSTS]]
