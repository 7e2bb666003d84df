"""A table of ten times the memory that its process may use, cold and warm, beside RocksDB.

    ci/bench.sh bench/shapes/test_beyond.py

The process has a control group with a limit of 1 GiB; the options are the defaults, which follow it.  Cells
of 10 KB that no codec makes smaller.  Cold: the operating system has forgotten the files.  Warm: the same
keys again.  By the wall, in turns.  Where no control group may be made it is skipped.  As a test it runs with
256 MiB and a table of 4 MB, for the answers.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.compare import engines
from bench.shapes.apart import NoGroup, apart, enter, forget_peak, group_of, peak_bytes, peak_of
from bench.shapes.peers import RocksDB, drop_from_memory
from bench.shapes.report import Line, Report
from bench.shapes.shapes import SCALE

MIB = 1 << 20
TIMES = 10
CELL_BYTES = 10_000
BATCH = 2_000
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("n", pa.int64()), ("p0", pa.binary())])
GETS = 200
GOAL = 1.5


@cache
def _pool() -> bytes:
    return np.random.default_rng(9).bytes(4 * MIB)


def cell(key: int) -> bytes:
    """Of this key."""
    begin = key * 2_654_435_761 % (len(_pool()) - CELL_BYTES)
    return _pool()[begin : begin + CELL_BYTES]


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, rows, BATCH):
        keys = np.arange(first, min(first + BATCH, rows))
        cells = pa.array([cell(int(key)) for key in keys], pa.binary())
        yield pa.record_batch([pa.array(keys), pa.array(keys % 100), cells], schema=SCHEMA)


class Ours(engines.Ours):
    def __init__(self, path: Path) -> None:
        super().__init__(path, schema=SCHEMA, durability="none", maintenance="manual")

    def fill(self, rows: int) -> None:
        for batch in batches(rows):
            self.table.insert(batch)
        self.table.flush()

    def first_rows(self, key: int, limit: int) -> list[tuple[Any, ...]]:
        found = self.table.scan(order="key", limit=limit, key_range=(key, None)).to_table()
        return list(zip(*found.to_pydict().values(), strict=True))


class Rocks(RocksDB):
    def __init__(self, path: Path, cache_bytes: int) -> None:
        engines.RocksDB.__init__(
            self, path, key=["k"], encode=_key, dumps=_dumps, loads=_loads, cache_bytes=cache_bytes
        )

    def fill(self, rows: int) -> None:  # type: ignore[override]
        for batch in batches(rows):
            for row in batch.to_pylist():
                self.insert_row(row)
        self.db.flush()


def _key(key: Any) -> bytes:
    return int(key[0] if isinstance(key, tuple) else key).to_bytes(8, "big")


def _dumps(row: dict[str, Any]) -> bytes:
    return int(row["n"]).to_bytes(8, "big") + row["p0"]


def _loads(value: bytes) -> tuple[int, bytes]:
    return int.from_bytes(value[:8], "big"), value[8:]


def _cell_of(row: Any) -> bytes:
    found: bytes = row["p0"] if isinstance(row, dict) else row[-1]
    return found


def _works(rows: int, gets: int) -> dict[str, Callable[[Any], bool]]:
    """Each says whether its answer is right."""
    keys = np.random.default_rng(3).integers(0, rows - 10, gets).tolist()

    def get(engine: Any) -> bool:
        return all(_cell_of(engine.get(key)) == cell(key) for key in keys)

    def ten(engine: Any) -> bool:
        for key in keys[: max(1, gets // 10)]:
            found = engine.first_rows(key, 10)
            if [row[-1] for row in found] != [cell(k) for k in range(key, key + 10)]:
                return False
        return True

    return {f"{gets} x get": get, f"{max(1, gets // 10)} x 10 rows in key order": ten}


def _measured(folder: str, group: str, rows: int, gets: int, answer: Any) -> None:
    """In a process of its own, which enters the group before it does anything."""
    enter(group)
    _pool()
    before = forget_peak()
    ours = Ours(Path(folder) / "ours")
    cache_bytes = int(ours.table.metrics()["page_cache_limit_bytes"])
    began = time.perf_counter()
    ours.fill(rows)
    said: dict[str, Any] = {"load_s": time.perf_counter() - began, "load_peak": peak_bytes() - before}
    said |= {"cache_bytes": cache_bytes, "size": ours.size()}
    said["memory"] = ours.table.metrics()["memory_limit_bytes"]
    forget_peak()
    began = time.perf_counter()
    said["scanned"] = sum(len(batch) for batch in ours.table.scan())
    said |= {"scan_s": time.perf_counter() - began, "scan_peak": peak_bytes() - before}
    both: dict[str, Any] = {"kudu_core": ours}
    if gets == GETS:
        both["RocksDB"] = Rocks(Path(folder) / "rocks", cache_bytes)
        both["RocksDB"].fill(rows)
    times: dict[str, dict[str, float]] = {}
    for name, work in _works(rows, gets).items():
        for state, (who, engine) in itertools.product(("cold", "warm"), both.items()):
            if state == "cold":
                drop_from_memory(engine)
            began = time.perf_counter()
            assert work(engine), f"{who}: {name} has another answer"
            times.setdefault(f"{name}, {state}", {})[who] = time.perf_counter() - began
    for engine in both.values():
        engine.close()
    answer.put(said | {"times": times, "group_peak": peak_of(group)})


def test_ten_times_the_memory(benchmark: Any, report: Report, timed: bool, tmp_path: Path) -> None:
    limit = (1024 if timed else 256) * MIB
    rows = int(TIMES * limit * SCALE) // CELL_BYTES if timed else 400
    shape = "cells of 10 KB, 10 x memory"
    try:
        with group_of(limit) as group:
            given = (str(tmp_path), str(group), rows, GETS if timed else 10)
            said = benchmark.pedantic(apart, (_measured, *given), rounds=1)
    except NoGroup as error:
        pytest.skip(str(error))
    assert said["scanned"] == rows
    assert said["memory"] == max(limit // 8, 128 * MIB)
    benchmark.extra_info |= {name: value for name, value in said.items() if name != "times"}
    for name, spent in said["times"].items():
        goal = GOAL if "get" in name else None
        line = "get beyond the memory"
        report.add(Line(line, name, shape, spent["kudu_core"], goal, spent.get("RocksDB"), "RocksDB"))
    for name in ("load_peak", "scan_peak"):
        figure = f"peak of the {name[:4]}"
        report.add(Line("memory in a group of 1 GiB", figure, shape, said[name] / MIB, None, unit="MiB"))
