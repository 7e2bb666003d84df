"""Few rows in the order of keys: narrow rows in 1 to 256 hash tablets, and in 1 to 200 rowsets that overlap.

    ci/bench.sh bench/shapes/test_order.py

Beside them RocksDB with the same rows in one tree, read from Python as pickled tuples.  Times are processor
time; `extra_info` says how many rowsets were begun and how many pages read.  As a test it runs smaller, for
the answers, and without RocksDB where that is not installed.
"""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.rowset.scan.scan import ScanCounts
from kudu_core.table.read import scan
from tests.support.inside import page_cache_of

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.float64()), ("c", pa.int64())])
STEP = 7
"""Between keys: what is asked for lies anywhere."""
SHAPES = {f"{n} tablets": (n, 1) for n in (1, 16, 64, 256)} | {f"{n} rowsets": (1, n) for n in (20, 200)}
LIMITS = (1, 10, 100)
PROBES = 500


@dataclass
class Size:
    rows: int
    most: int
    """Tablets or rowsets."""


@pytest.fixture(scope="module")
def size(request: pytest.FixtureRequest) -> Size:
    timed = request.config.getoption("benchmark_enable")
    return Size(1_000_000, 256) if timed else Size(4_000, 16)


def rows_of(keys: np.ndarray) -> pa.Table:
    return pa.table({"k": keys, "a": keys % 97, "b": keys * 0.5, "c": keys * 3}, SCHEMA)


def keys_of(size: Size) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.arange(size.rows) * STEP)


def probes_of(size: Size) -> Iterator[int]:
    found = np.random.default_rng(1).integers(0, (size.rows - max(LIMITS)) * STEP, PROBES)
    return itertools.cycle(found.tolist())


def expected(first: int, limit: int) -> list[int]:
    begin = -(-first // STEP)
    return [STEP * i for i in range(begin, begin + limit)]


@pytest.fixture(scope="module", params=SHAPES)
def table(
    request: pytest.FixtureRequest, size: Size, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[kc.Table]:
    tablets, rowsets = (min(count, size.most) for count in SHAPES[request.param])
    path: Path = tmp_path_factory.mktemp("order") / "t"
    parts = [kc.HashPartition(["k"], tablets)] if tablets > 1 else []
    options = {"durability": "none", "maintenance": "manual"}
    keys = keys_of(size)
    with kc.create_table(path, SCHEMA, ["k"], partition_by=parts, options=options) as made:
        for first in range(rowsets):
            made.insert(rows_of(keys[first::rowsets]))
            made.flush()
        yield made


@pytest.fixture(scope="module")
def rocks(size: Size, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    rocksdict = pytest.importorskip("rocksdict")
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    made = rocksdict.Rdict(str(tmp_path_factory.mktemp("rocks")), options)
    for row in rows_of(keys_of(size)).to_pylist():
        made[row["k"].to_bytes(8, "big")] = pickle.dumps(tuple(row.values()))
    made.flush()
    yield made
    made.close()


def counted(table: kc.Table, run: Callable[[], Any]) -> dict[str, int]:
    """What one call reads."""
    made: list[ScanCounts] = []
    before = page_cache_of(table).statistics()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "ScanCounts", lambda: made.append(ScanCounts()) or made[-1])
        run()
    after = page_cache_of(table).statistics()
    return {"rowsets_begun": made[-1].rowsets_begun, "pages_read": after.misses - before.misses}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.benchmark(group="few rows in the order of keys", timer=time.process_time, min_rounds=50)
def test_first_rows(benchmark: Any, table: kc.Table, size: Size, limit: int) -> None:
    probes = probes_of(size)
    last = [0]

    def read() -> pa.Table:
        last[0] = next(probes)
        return table.scan(order="key", limit=limit, key_range=(last[0], None)).to_table()

    found = benchmark(read)
    assert found["k"].to_pylist() == expected(last[0], limit)
    benchmark.extra_info |= counted(table, read)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.benchmark(group="few rows in the order of keys", timer=time.process_time, min_rounds=50)
def test_rocksdb(benchmark: Any, rocks: Any, size: Size, limit: int) -> None:
    probes = probes_of(size)
    last = [0]

    def read() -> list[Any]:
        last[0] = next(probes)
        values = rocks.values(from_key=last[0].to_bytes(8, "big"))
        return [pickle.loads(value) for value in itertools.islice(values, limit)]

    found = benchmark(read)
    assert [row[0] for row in found] == expected(last[0], limit)
