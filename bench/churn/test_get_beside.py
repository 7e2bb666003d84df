"""Point reads while a flush, a compaction of changes or a merge runs on another thread of the process.

    ci/bench.sh bench/churn/test_get_beside.py

Each work is measured beside the same reads in the moment before it, of the same state.  By the wall, one
reader: ``extra_info`` has both rates, the median and the 99th percentile of one read, in microseconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc

WORDS = np.array([f"text {i}" for i in range(1000)])
PARTS, ASKED = 8, 20_000


def rows_of(keys: np.ndarray[Any, Any], seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    count = len(keys)
    numbers = rng.integers(0, 1000, count)
    return pa.table({"k": keys, "a": numbers, "v": rng.random(count), "s": pa.array(WORDS[numbers])})


class Reader:
    """Reads keys one by one and keeps how long each took."""

    def __init__(self, table: kc.Table, keys: list[int]) -> None:
        self.table = table
        self.keys = keys
        self.took: list[float] = []
        self.missed = 0

    def read(self, until: Callable[[int], bool]) -> None:
        self.took, number, clock = [], 0, time.perf_counter
        while not until(number):
            begun = clock()
            found = self.table.get(self.keys[number % len(self.keys)])
            self.took.append(clock() - begun)
            self.missed += found is None
            number += 1

    def report(self) -> tuple[float, float, float]:
        """Reads a second; median and 99th percentile in microseconds."""
        took = np.array(self.took) * 1e6
        middle, high = np.percentile(took, [50, 99])
        return 1e6 * len(took) / float(took.sum()), float(middle), float(high)


@pytest.mark.benchmark(group="get beside maintenance")
@pytest.mark.parametrize("work", ["flush", "delta compaction", "full compaction", "merge"])
def test_get(benchmark: Any, tmp_path: Path, work: str, timed: bool) -> None:
    count = 2_000_000 if timed else 4000
    rng = np.random.default_rng(1)
    keys = rng.permutation(count)
    table = kc.create_table(
        tmp_path / "t",
        rows_of(keys[:1], 0).schema,
        "k",
        options={"maintenance": "manual", "memory_limit_bytes": 2 << 30},
    )
    with table:
        parts = np.array_split(keys, PARTS)
        for number, part in enumerate(parts):
            table.insert(rows_of(part, number))
            table.flush()
        if work != "merge":
            table.compact(full=True)
            for number in range(4):
                table.upsert(rows_of(rng.choice(keys, count // 20, replace=False), number))
                if work != "flush":
                    table.flush()
        act: Callable[[], Any] = {
            "flush": table.flush,
            "delta compaction": table.compact,
            "full compaction": lambda: table.compact(full=True),
            "merge": table.compact,
        }[work]
        reader = Reader(table, rng.choice(keys, min(ASKED, count)).tolist())
        for _ in range(2):  # the first finds the pages
            reader.read(lambda number: number >= len(reader.keys))
        quiet = reader.report()
        ended = threading.Event()

        def beside() -> None:
            ended.clear()
            thread = threading.Thread(target=reader.read, args=(lambda number: ended.is_set(),))
            thread.start()
            act()
            ended.set()
            thread.join()

        benchmark.pedantic(beside, rounds=1)
        if reader.took:
            rate, middle, high = reader.report()
            benchmark.extra_info["of quiet"] = round(rate / quiet[0], 2)
            benchmark.extra_info["99th percentile by the median"] = round(high / middle, 2)
            benchmark.extra_info["us"] = f"median {middle:.1f} (quiet {quiet[1]:.1f}), p99 {high:.1f}"
        assert reader.missed == 0
        assert table.count() == count
