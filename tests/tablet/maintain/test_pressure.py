"""Memory below its limit: writers that wait, the largest store that is flushed, a cache that gives way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core import events
from kudu_core.errors import MemoryLimit
from kudu_core.table.opened import throttle
from kudu_core.tablet.maintain import scoring
from tests.support.clock import Clock, ManualClock
from tests.support.inside import engine_of, page_cache_of
from tests.support.tables import Make
from tests.tablet.maintain.test_maintaining import SCHEMA
from tests.tablet.maintain.test_maintenance import eventually, stat


def test_writers_are_slowed_before_memory_is_full() -> None:
    """Nothing below the threshold, then ever more, to twice the time of the flush."""
    shares = np.linspace(0, 1.2, 50)
    found = [throttle.severity(share) for share in shares]
    assert found == sorted(found)
    assert throttle.severity(scoring.MEMORY_FRACTION) == 0
    assert 0 < throttle.severity(scoring.MEMORY_FRACTION + 0.01) < 0.1
    assert throttle.severity(throttle.STOP_FRACTION) == throttle.MOST == throttle.severity(5)


def test_what_is_owed_is_waited_for() -> None:
    clock = ManualClock()
    writers = throttle.Throttle(clock)
    pace = 1 / (1 << 20)  # a MiB a second
    writers.owe(1 << 18)
    writers.slow_down(0.5, pace)
    assert clock.monotonic_s() == 0
    writers.owe(1 << 10)
    writers.slow_down(0.65, pace)  # once the time of the flush: a millisecond
    assert clock.monotonic_s() == 0, "saved up" if writers.waits == 0 else ""
    writers.owe(1 << 10)
    writers.slow_down(0.65, pace)
    assert clock.monotonic_s() == pytest.approx(2 / 1024, rel=0.01)
    writers.owe(1 << 30)
    writers.slow_down(1, pace)
    assert clock.monotonic_s() == pytest.approx(2 / 1024 + throttle.LONGEST_S, rel=0.01)
    assert writers.waits == 2
    assert writers.waited_s == pytest.approx(clock.monotonic_s())


def test_memory_stays_below_its_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush lane that never comes: writers slow down, then flush themselves."""
    told: list[events.Event] = []

    class Counting(Clock):
        slept = 0.0

        def sleep(self, seconds: float) -> None:
            self.slept += seconds

    clock = Counting()
    options = {
        "durability": "none", "memory_limit_bytes": 16 << 20, "ingest_threshold_rows": 1 << 30,
        "ingest_threshold_bytes": 64 << 30, "flush_age_s": 3600,
    }  # fmt: skip
    kc.create_table(path, SCHEMA, "k", options=options).close()
    with kc.open_table(path, "rw", listener=told.append, _clock=clock) as table:
        engine = engine_of(table)
        assert engine.maintenance is not None
        monkeypatch.setattr(engine.maintenance, "run_due", lambda: 0)
        slept_at: list[tuple[float, float]] = []
        for part in range(60):
            table.insert({"k": np.arange(part * 20_000, part * 20_000 + 20_000)})
            used = stat(table, "memory_bytes")
            slept_at.append((used / engine.memory.store_limit_bytes, clock.slept))
            # Arrays that grow may double in one write, after it was let in.
            assert used + table.metrics()["page_cache_bytes"] < 1.2 * (16 << 20)
        below = [slept for share, slept in slept_at[:3] if share < 0.3]
        assert below and not any(below)
        assert clock.slept > 0, "slowed down"
        assert any(isinstance(e, events.WritersThrottled) for e in told)
        metrics = table.metrics()
        assert metrics["throttled_count"] > 1
        assert metrics["throttled_s"] >= clock.slept
        assert metrics["flush_count"] > 0, "by the writers"
        assert table.count() == 60 * 20_000


def test_the_largest_store_is_flushed_under_pressure(path: Path) -> None:
    """Long before its size or age asks for it."""
    options = {
        "durability": "none", "memory_limit_bytes": 16 << 20, "ingest_threshold_bytes": 64 << 30,
        "ingest_threshold_rows": 1 << 30, "flush_age_s": 3600, "flush_threshold_bytes": 64 << 20,
    }  # fmt: skip
    with kc.create_table(path, SCHEMA, "k", options=options) as table:
        for part in range(25):
            table.insert({"k": np.arange(part * 10_000, part * 10_000 + 10_000)})
        limit = engine_of(table).memory.store_limit_bytes
        assert eventually(lambda: stat(table, "memory_bytes") < scoring.MEMORY_FRACTION * limit)
        assert table.metrics()["flush_count"] > 0


def test_only_a_batch_that_cannot_fit_is_refused(make: Make) -> None:
    table = make(
        pa.schema([("k", pa.int64()), ("s", pa.string())]),
        memory_limit_bytes=16 << 20, ingest_threshold_rows=1 << 30, ingest_threshold_bytes=64 << 30,
    )  # fmt: skip
    big = "x" * (1 << 20)
    for part in range(12):
        table.insert({"k": [part * 4 + n for n in range(4)], "s": [big] * 4})
    with pytest.raises(MemoryLimit, match="memory_limit_bytes"):
        table.insert({"k": range(1000, 1020), "s": [big] * 20})
    assert table.count() == 48


def test_the_page_cache_gives_way_to_memory_stores(make: Make) -> None:
    table = make(SCHEMA, memory_limit_bytes=16 << 20, page_cache_bytes=1 << 30, ingest_threshold_rows=1 << 30)
    engine = engine_of(table)
    engine.memory.measure()
    assert engine.cache.limit_bytes > 15 << 20
    for part in range(10):
        table.insert({"k": np.arange(part * 10_000, part * 10_000 + 10_000)})
    used = engine.memory.measure()
    assert engine.cache.limit_bytes == max((16 << 20) - used, 2 << 20)
    small = make(SCHEMA, at=Path(table.path + "-2"), memory_limit_bytes=16 << 20, page_cache_bytes=0)
    assert engine_of(small).memory.store_limit_bytes == 16 << 20
    engine_of(small).memory.measure()
    assert page_cache_of(small).limit_bytes == 0
