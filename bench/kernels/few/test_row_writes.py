"""A row that is written, by the compiled walk; and its parts: a record appended, bytes counted."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa

import kudu_core as kc
from kudu_core._ext.few.few_writes import FewWrites
from kudu_core._ext.few.log_state import LogState
from kudu_core._ext.few.memory_counts import MemoryCounts
from kudu_core._ext.few.row_writes import RowWrites
from kudu_core._ext.rules.decide import CALL_INSERT
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.opened.store_memory import no_memory
from tests.support.inside import engine_of, log_of

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("f", pa.float64()), ("w", pa.string())])
CALLS = 1000


def made(tmp_path: Path) -> kc.Table:
    options = {"durability": "none", "maintenance": "manual"}
    return kc.create_table(tmp_path / "t", SCHEMA, "k", options=options)


def test_write(benchmark: Any, tmp_path: Path) -> None:
    with made(tmp_path) as table:
        engine = engine_of(table)
        writes = RowWrites(
            engine, engine.log, engine.memory, ingest_bytes=1 << 20, ingest_rows=100, limit_bytes=1 << 30,
            result=WriteResult, no_memory=no_memory, checks=False,
        )  # fmt: skip
        keys = itertools.count()

        def rows() -> tuple[tuple[list[dict[str, Any]]], dict[str, Any]]:
            return ([{"k": next(keys), "n": 7, "f": 0.5, "w": "word"} for _ in range(CALLS)],), {}

        def write(given: list[dict[str, Any]]) -> None:
            for row in given:
                writes.write(CALL_INSERT, False, row)

        benchmark.extra_info["calls"] = CALLS
        benchmark.pedantic(write, setup=rows, rounds=20)
        assert table.count() == next(keys)


def test_write_few(benchmark: Any, tmp_path: Path) -> None:
    with made(tmp_path) as table:
        engine = engine_of(table)
        writes = FewWrites(
            engine, engine.log, engine.memory, ingest_bytes=1 << 20, ingest_rows=100, limit_bytes=1 << 30,
            result=WriteResult, no_memory=no_memory, checks=False,
        )  # fmt: skip
        keys = itertools.count()

        def rows() -> tuple[tuple[list[dict[str, Any]]], dict[str, Any]]:
            return ([{"k": next(keys), "n": 7, "f": 0.5, "w": "word"} for _ in range(10)],), {}

        benchmark.pedantic(lambda given: writes.write_few(CALL_INSERT, False, given), setup=rows, rounds=200)
        assert table.count() == next(keys)


def test_append(benchmark: Any, tmp_path: Path) -> None:
    payload = bytes(160)
    with made(tmp_path) as table:
        log: LogState = log_of(table)

        def append() -> None:
            for _ in range(CALLS):
                log.applied(log_of(table).append(1, 1, (payload,)))

        benchmark.extra_info["calls"] = CALLS
        benchmark.pedantic(append, rounds=20)


def test_count(benchmark: Any) -> None:
    counts = MemoryCounts()
    counts.step_bytes = 1 << 20
    benchmark(lambda: counts.count_bytes(320, 160))
