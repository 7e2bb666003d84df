"""What is counted towards ``memory_limit_bytes``: stores, and what flushes and merges hold meanwhile."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.run import held_memory
from kudu_core.tablet.compact import merge
from kudu_core.tablet.flush import memory as flush
from kudu_core.tablet.flush.memory import work_bytes
from kudu_core.tablet.maintain import scoring
from tests.support.inside import engine_of
from tests.support.tables import Make

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.float64()), ("b", pa.int64())])
ROWS = 60_000


def insert(table: kc.Table, keys: np.ndarray) -> None:
    for some in np.array_split(keys, 6):
        table.insert({"k": some, "a": some / 7, "b": some * 1_000_003})


def traced(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """Bytes that each call of a module's function had allocated at its peak."""
    peaks: list[int] = []
    usual = getattr(module, name)

    def measured(*arguments: Any, **named: Any) -> Any:
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            result = usual(*arguments, **named)
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
        finally:
            tracemalloc.stop()
        return result

    monkeypatch.setattr(module, name, measured)
    return peaks


def held(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, table: kc.Table) -> list[float]:
    """``memory_work_bytes`` at each call of a module's function."""
    seen: list[float] = []
    usual = getattr(module, name)

    def watched(*arguments: Any, **named: Any) -> Any:
        seen.append(table.metrics()["memory_work_bytes"])
        return usual(*arguments, **named)

    monkeypatch.setattr(module, name, watched)
    return seen


def test_a_flush_counts_what_it_holds(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(SCHEMA)
    insert(table, np.random.default_rng(0).permutation(ROWS))
    seen = held(monkeypatch, flush, "write_rows", table)
    peaks = traced(monkeypatch, flush, "_flush")
    before = engine_of(table).memory.measure()
    table.flush()
    assert len(peaks) == len(seen) == 1
    assert 0.7 * seen[0] < peaks[0] < 1.2 * seen[0]
    assert seen[0] > before / 2, "copies of all rows"
    assert table.metrics()["memory_work_bytes"] == 0


def test_a_flush_that_fails_holds_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(SCHEMA)
    insert(table, np.arange(ROWS))

    def full(*_: Any, **__: Any) -> None:
        assert table.metrics()["memory_work_bytes"] > 0
        raise OSError(28, "no space")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr(flush, "write_rows", full)
        table.flush()
    assert table.metrics()["memory_work_bytes"] == 0
    table.flush()
    assert table.count() == ROWS


def test_a_flush_of_large_cells_makes_files_of_a_share_of_memory(make: Make) -> None:
    """One column of a file is put in order at a time."""
    fields = [pa.field("k", pa.int64(), nullable=False), ("p", pa.binary())]
    table = make(pa.schema(fields), memory_limit_bytes=64 << 20)
    cells = {k: np.random.default_rng(k).bytes(1_000_000) for k in range(24)}
    for k, cell in cells.items():
        table.insert([{"k": k, "p": cell}])
    memory = engine_of(table).tablets[0].view.active
    assert work_bytes(memory, 64 << 20) < 9 << 20 < 24_000_000 < work_bytes(memory, 1 << 30)
    table.flush()
    assert [rowset.meta.rows for rowset in engine_of(table).tablets[0].view.rowsets] == [8, 8, 8]
    assert table.get(7) == {"k": 7, "p": cells[7]}
    assert dict(zip(*table.scan().to_table().to_pydict().values(), strict=True)) == cells


def test_a_merge_counts_what_it_holds(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(SCHEMA)
    for some in np.array_split(np.random.default_rng(0).permutation(ROWS), 3):
        insert(table, some)
        table.flush()
    peaks = traced(monkeypatch, merge, "build")
    seen = held(monkeypatch, merge, "build", table)
    table.maintain()
    assert len(peaks) == len(seen) == 1
    assert 0.7 * seen[0] < peaks[0] < 1.3 * seen[0]
    assert table.metrics()["memory_work_bytes"] == 0


def test_a_flush_begins_while_there_is_room_for_it(make: Make) -> None:
    """Pressure counts the copies of the flush that is to come."""
    table = make(SCHEMA, memory_limit_bytes=16 << 20, ingest_threshold_rows=1 << 30)
    engine = engine_of(table)
    count = 0
    while not engine.memory.pressure(0).on_memory:
        table.insert({"k": np.arange(count, count + 5000)})
        count += 5000
    stores = table.metrics()["memory_store_bytes"]
    flush_bytes = work_bytes(engine.tablets[0].view.active, engine.memory.limit_bytes)
    needed = min(flush_bytes, engine.memory.store_limit_bytes // 4)
    assert stores < scoring.MEMORY_FRACTION * engine.memory.store_limit_bytes <= stores + needed


def test_writers_see_what_is_held(make: Make) -> None:
    """A quarter of what stores may take at most, or writers would flush every batch."""
    table = make(SCHEMA, memory_limit_bytes=16 << 20)
    engine = engine_of(table)
    empty = engine.memory.measure()
    with engine.tablet_context.work.hold(1 << 20):
        assert engine.memory.measure() == empty + (1 << 20)
        with engine.tablet_context.work.hold(1 << 30):
            assert engine.memory.measure() == empty + engine.memory.store_limit_bytes // 4
    assert engine.memory.measure() == empty


def test_free_memory_goes_back_after_a_large_operation_only(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed: list[int] = []
    monkeypatch.setattr(held_memory, "_trim", trimmed.append)
    table = make(SCHEMA)
    insert(table, np.arange(1000))
    table.flush()
    assert not trimmed
    monkeypatch.setattr(held_memory, "RELEASE_BYTES", 1000)
    insert(table, np.arange(1000, 2000))
    table.flush()
    assert trimmed == [0], "once for a flush"


def test_memory_stays_within_the_limit_under_random_inserts(path: Path) -> None:
    limit = 16 << 20
    options = {"durability": "none", "memory_limit_bytes": limit, "ingest_threshold_rows": 1 << 30}
    keys = np.random.default_rng(0).permutation(500_000)
    with kc.create_table(path, SCHEMA, "k", options=options) as table:
        for some in np.array_split(keys, 50):
            table.insert({"k": some, "a": some / 7, "b": some})
            now = table.metrics()
            used = now["memory_store_bytes"] + now["memory_work_bytes"] + now["page_cache_bytes"]
            assert used <= 1.2 * limit
        assert now["flush_count"] > 1
        assert table.count() == len(keys)


@pytest.mark.parametrize("before", [1, 3])
def test_a_store_that_a_writer_flushed_before_the_lane_is_not_left_alone(
    make: Make, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """It was, for seconds in which nobody flushed it and memory grew past any limit."""
    table = make(SCHEMA, flush_age_s=0)
    lane = engine_of(table).memory.flush_lane
    assert lane is not None
    usual, calls = lane.flush, 0

    def after_a_writer(tablet: Any, tell: Any = None) -> bool:
        nonlocal calls
        calls += 1
        if calls > before:
            return usual(tablet, tell)
        assert usual(tablet, tell)
        later = usual(tablet, tell)
        if calls < before:
            insert(table, ROWS * calls + np.arange(ROWS))
        return later

    insert(table, np.arange(ROWS))
    monkeypatch.setattr(lane, "flush", after_a_writer)
    lane.run_due()
    assert calls == min(before, 2), "after twice it is left to the next look"
    monkeypatch.setattr(lane, "flush", usual)
    insert(table, -1 - np.arange(ROWS))
    assert lane.relieve(), "writers find it at once"
    insert(table, -1 - ROWS - np.arange(ROWS))
    assert lane.run_due() > 0, "and so does the lane"
    assert table.metrics()["memory_store_bytes"] < 1 << 20
