"""Options and events."""

from __future__ import annotations

import json
import logging
import pickle
import threading
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from kudu_core.common.run.clock import hybrid, last_of_microsecond, micros_of
from kudu_core.common.run.pool import Pool
from kudu_core.errors import Closed, InvalidArgument
from kudu_core.events import FlushEnd, MaintenanceError, log_events, tell
from kudu_core.options import NAMES, Options
from tests.support.clock import ManualClock

GIB = 1 << 30


def test_options_survive_json_and_pickle() -> None:
    options = Options(durability="group", scan_threads=3, history_retention_s=0)
    assert Options.from_json(json.loads(json.dumps(options.to_json()))) == options
    assert pickle.loads(pickle.dumps(options)) == options
    assert Options.from_json({}) == Options()
    with pytest.raises(FrozenInstanceError):
        options.durability = "none"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"durabilty": "sync"}, "durability"),
        ({"nonsense": 1}, "nonsense"),
        ({"durability": "maybe"}, "durability"),
        ({"maintenance": None}, "maintenance"),
        ({"scan_threads": 0}, "scan_threads"),
        ({"memory_limit_bytes": 1}, "memory_limit_bytes"),
        ({"memory_limit_bytes": 1e9}, "memory_limit_bytes"),
        ({"memory_limit_bytes": True}, "memory_limit_bytes"),
        ({"flush_age_s": float("nan")}, "flush_age_s"),
        ({"flush_age_s": "60"}, "flush_age_s"),
        ({"flush_age_s": -1}, "flush_age_s"),
        ({"bloom_false_positive_rate": 0}, "bloom_false_positive_rate"),
        ({"page_cache_bytes": -1}, "page_cache_bytes"),
    ],
)
def test_a_bad_option_is_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        Options().replace(**change)


@pytest.mark.parametrize(
    ("memory", "options", "limit", "cache"),
    [
        (64 * GIB, {}, 4 * GIB, GIB // 2),
        (24 * GIB, {}, 3 * GIB, GIB // 2),
        (8 * GIB, {}, GIB, GIB // 4),
        (GIB, {}, GIB // 8, GIB // 32),
        (GIB // 4, {}, GIB // 8, GIB // 32),
        (24 * GIB, {"memory_limit_bytes": 16 << 20}, 16 << 20, 4 << 20),
        (24 * GIB, {"page_cache_bytes": 0}, 3 * GIB, 0),
        (GIB, {"page_cache_bytes": 8 * GIB}, GIB // 8, 8 * GIB),
    ],
)
def test_memory_follows_the_machine(memory: int, options: dict[str, Any], limit: int, cache: int) -> None:
    asked = Options(durability="none", **options)
    found = asked.in_force(memory)
    assert (found.memory_limit_bytes, found.page_cache_bytes) == (limit, cache)
    assert (found.memory_bytes, found.cache_bytes) == (limit, cache)
    assert found.given == asked.given and found.durability == "none"
    assert asked.memory_limit_bytes == options.get("memory_limit_bytes")


def test_every_default_lies_in_its_range() -> None:
    assert set(Options().replace(**Options().to_json()).to_json()) == set(NAMES)


def test_options_of_a_handle_override_those_of_the_table() -> None:
    stored = Options(durability="none", flush_age_s=5)
    assert stored.overridden(None) is stored
    assert stored.overridden(Options(flush_age_s=7)) == Options(durability="none", flush_age_s=7)
    assert stored.overridden({"durability": "sync"}) == Options(flush_age_s=5)


def test_a_listener_that_raises_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: object, /) -> None:
        raise RuntimeError("boom")

    event = FlushEnd(tablet_id="1", rows=5, rowsets_added=1, output_bytes=9)
    with caplog.at_level(logging.INFO, "kudu_core"):
        tell(broken, event)
        tell(log_events, event)
        tell(log_events, MaintenanceError(tablet_id="1", operation="flush", error="disk full"))
        tell(None, event)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "WARNING"]
    assert "rows=5" in caplog.records[1].getMessage()
    assert "disk full" in caplog.records[2].getMessage()


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(5)
    assert (clock.now_us(), clock.now_hybrid(), clock.monotonic_s()) == (5, hybrid(5), 0.0)
    clock.sleep(2)
    assert (clock.now_us(), clock.monotonic_s()) == (2_000_005, 2.0)
    clock.set_us(1)
    assert (clock.now_us(), clock.monotonic_s()) == (1, 2.0)
    assert micros_of(last_of_microsecond(7)) == 7
    assert last_of_microsecond(7) + 1 == hybrid(8)


def test_a_pool_keeps_the_order_and_stays_in_its_window() -> None:
    read: list[int] = []

    def items() -> object:
        for i in range(100):
            read.append(i)
            yield i

    with Pool(3) as pool:
        results = pool.map(lambda x: x * x, items(), window=4)  # type: ignore[arg-type]
        assert next(results) == 0
        assert len(read) <= 5
        assert list(results) == [i * i for i in range(1, 100)]
        assert len(pool._workers) == 3


def test_an_exception_in_a_pool_comes_at_its_place() -> None:
    def fail_at_5(x: int) -> int:
        if x == 5:
            raise KeyError(x)
        return x

    with Pool(2) as pool:
        seen = []
        with pytest.raises(KeyError):
            seen.extend(pool.map(fail_at_5, range(100)))
        assert seen == [0, 1, 2, 3, 4]
        assert list(pool.map(str, range(3))) == ["0", "1", "2"]


def test_a_pool_works_in_parallel_and_closes() -> None:
    barrier = threading.Barrier(2, timeout=10)
    pool = Pool(2)
    assert list(pool.map(lambda _: barrier.wait() >= 0, range(2))) == [True, True]
    pool.close()
    with pytest.raises(Closed):
        pool.submit(int)
    pool.close()
