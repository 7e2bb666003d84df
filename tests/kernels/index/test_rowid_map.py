"""The map from rowid to last change agrees with a dict, also beside readers without the GIL."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from kudu_core._ext.index.rowid_map import NONE, RowidMap
from tests.support.oracles.index import rowid_map as oracle


@pytest.mark.parametrize("spread", [1, 50, 1 << 20, 0xFFFFFFFF])
def test_agrees_with_oracle(spread: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs = RowidMap(), oracle.RowidMap()
    number = 0
    for size in (0, 1, 3, 64, 1000, 5000, 1):
        rowids = rng.integers(0, spread, size, dtype=np.uint32, endpoint=True)
        assert ours.exchange(rowids, number).tolist() == theirs.exchange(rowids.tolist(), number)
        number += size
        probes = rng.integers(0, spread, 200, dtype=np.uint32, endpoint=True)
        assert ours.find(probes).tolist() == theirs.find(probes.tolist())
        assert [ours.get(p) for p in probes[:20].tolist()] == theirs.find(probes[:20].tolist())
        assert ours.count == len(theirs.last)


def test_an_exchange_after_reserve_does_not_grow() -> None:
    table = RowidMap()
    table.reserve(10_000)
    size = table.nbytes
    table.exchange(np.arange(10_000, dtype=np.uint32), 0)
    assert table.nbytes == size


def test_change_numbers_end_below_the_mark_for_none() -> None:
    with pytest.raises(ValueError, match="fewer than"):
        RowidMap().exchange(np.zeros(2, np.uint32), NONE - 1)


def test_readers_see_some_state_of_each_row_while_one_writer_adds() -> None:
    table = RowidMap()
    rows = 2000
    stop = threading.Event()
    wrong: list[str] = []

    def read() -> None:
        rowids = np.arange(rows, dtype=np.uint32)
        last = np.full(rows, -1, np.int64)
        while not stop.is_set():
            found = table.find(rowids).astype(np.int64)
            known = found != NONE
            if (found[known] % rows != rowids[known]).any():
                wrong.append("a change of another row")
            if (found[known] < last[known]).any():
                wrong.append("an older change than before")
            last[known] = found[known]

    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in readers:
        thread.start()
    try:
        for turn in range(200):
            for first in range(0, rows, 100):
                table.exchange(np.arange(first, first + 100, dtype=np.uint32), turn * rows + first)
    finally:
        stop.set()
        for thread in readers:
            thread.join()
    assert not wrong
