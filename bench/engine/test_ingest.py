"""Bulk loads, one call each into an empty table, beside DuckDB with the same key and Parquet without.

The rows of ``bench/compare``; ``KUDU_CORE_BENCH_ROWS=2000000 ci/bench.sh bench/engine/test_ingest.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from bench.compare import data
from bench.compare.engines import DuckDB, Parquet

ROUNDS = 1 if data.ROWS < 1_000_000 else 3
BATCH = 100_000


def _timed(
    benchmark: Any, work: str, folder: Path, make: Callable[[], Any], load: Callable[[Any], Any]
) -> None:
    made: list[Any] = []

    def fresh() -> None:
        while made:
            made.pop().close()
        made.append(make())

    benchmark.group = work
    benchmark.extra_info |= {"rows": data.ROWS}
    benchmark.pedantic(lambda: load(made[0]), setup=fresh, rounds=ROUNDS, iterations=1)
    target = made.pop()
    if isinstance(target, kc.Table):
        assert target.count() == data.ROWS
        files = (folder / "t" / "tablets").rglob("*")
        benchmark.extra_info["bytes"] = sum(f.stat().st_size for f in files if f.is_file())
    target.close()


def _table(folder: Path, **options: Any) -> Callable[[], kc.Table]:
    number = iter(range(100))

    def make() -> kc.Table:
        path = folder / "t"
        if path.exists():
            path.rename(folder / f"old-{next(number)}")
        return kc.create_table(path, data.readings().schema, data.KEY, options=options)

    return make


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("order", ["by time", "by key"])
def test_load(benchmark: Any, tmp_path: Path, order: str, threads: int) -> None:
    rows = data.readings() if order == "by time" else data.ordered()
    made = _table(tmp_path, scan_threads=threads)
    _timed(benchmark, f"bulk load, rows {order}", tmp_path, made, lambda t: t.insert(rows))


def test_load_of_small_batches(benchmark: Any, tmp_path: Path) -> None:
    rows = data.readings().to_batches(max_chunksize=10_000)
    _timed(benchmark, "bulk load, rows by time", tmp_path, _table(tmp_path), lambda t: t.insert(iter(rows)))


def test_load_spilled(benchmark: Any, tmp_path: Path) -> None:
    """A call of more than a quarter of the memory limit (but for the few rows of a test)."""
    rows = data.readings().to_batches(max_chunksize=BATCH)
    made = _table(tmp_path, memory_limit_bytes=128 << 20)
    _timed(benchmark, "bulk load, rows by time", tmp_path, made, lambda t: t.insert(iter(rows)))


def test_load_with_repeats(benchmark: Any, tmp_path: Path) -> None:
    """One key in each range comes twice: every cell is asked where it comes from."""
    rows = data.readings()
    doubled = pa.concat_tables([rows, rows.slice(0, data.ROWS // 100)])
    made = _table(tmp_path)
    _timed(benchmark, "bulk load, rows by time", tmp_path, made, lambda t: t.upsert(doubled))


def test_load_into_partitions(benchmark: Any, tmp_path: Path) -> None:
    rows = data.readings()
    number = iter(range(100))

    def make() -> kc.Table:
        path = tmp_path / "t"
        if path.exists():
            path.rename(tmp_path / f"old-{next(number)}")
        hashed = kc.HashPartition(["host"], 4)
        return kc.create_table(path, rows.schema, data.KEY, partition_by=hashed)

    _timed(benchmark, "bulk load, rows by time", tmp_path, make, lambda t: t.insert(rows))


def test_load_duckdb(benchmark: Any, tmp_path: Path) -> None:
    rows = data.readings()
    _timed(
        benchmark,
        "bulk load, rows by time",
        tmp_path,
        lambda: DuckDB(tmp_path / "t.db"),
        lambda db: db.load(rows),
    )


def test_write_parquet(benchmark: Any, tmp_path: Path) -> None:
    rows = data.readings()
    _timed(
        benchmark,
        "bulk load, rows by time",
        tmp_path,
        lambda: Parquet(tmp_path / "t.parquet"),
        lambda file: file.load(rows),
    )
