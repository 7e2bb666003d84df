"""What the memory of an open table counts, when it slows writers, and what it leaves to the page cache."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kudu_core.cfile.pages.page_cache import PageCache
from kudu_core.common.run.held_memory import WorkingMemory
from kudu_core.errors import MemoryLimit
from kudu_core.events import WritersThrottled
from kudu_core.options import Options
from kudu_core.rowset.memory.growing import StoreFull
from kudu_core.table.opened.store_memory import StoreMemory
from tests.support.clock import ManualClock

MIB = 1 << 20
LIMIT = 64 * MIB
OPTIONS = Options(memory_limit_bytes=LIMIT, page_cache_bytes=32 * MIB, flush_threshold_bytes=8 * MIB)
STORES = LIMIT - LIMIT // 8


class Lane:
    """A flush lane that flushes 4 MiB of the only tablet at a time, down to a rest."""

    flush_pace_s = 1 / (8 * MIB)

    def __init__(self, tablet: Any, rest: int = 0) -> None:
        self.tablet, self.rest = tablet, rest
        self.kicks = self.flushes = 0

    def kick(self) -> None:
        self.kicks += 1

    def relieve(self) -> bool:
        if self.tablet.memory_bytes <= self.rest:
            return False
        self.flushes += 1
        self.tablet.memory_bytes = max(self.rest, self.tablet.memory_bytes - 4 * MIB)
        return True


class Case:
    """The memory of a table with one tablet."""

    def __init__(self, options: Options = OPTIONS, *, rest: int = 0, lane: bool = True) -> None:
        self.tablet: Any = SimpleNamespace(memory_bytes=0)
        self.cache, self.work = PageCache(options.page_cache_bytes), WorkingMemory()
        self.clock = ManualClock()
        self.told: list[Any] = []
        self.lane = Lane(self.tablet, rest)
        self.memory = StoreMemory(options, self.clock, self.cache, self.work, [self.tablet], self.told.append)
        given: Any = self.lane if lane else None
        self.memory.flush_lane = given


def test_the_estimate_is_the_last_measurement_and_what_was_written_since() -> None:
    case = Case()
    memory = case.memory
    assert memory.store_limit_bytes == STORES
    case.tablet.memory_bytes = 5 * MIB
    assert memory.estimate() == 0
    assert memory.measure() == memory.estimate() == 5 * MIB
    memory.note(100)
    assert memory.estimate() == 5 * MIB + 200, "a batch takes up to twice its bytes"
    memory.note(100, 5_000)
    assert memory.estimate() == 5 * MIB + 5_200, "or what its rows take in the stores, if that is more"
    assert memory.measure() == memory.estimate() == 5 * MIB


def test_what_operations_hold_counts_up_to_a_quarter() -> None:
    case = Case()
    with case.work.hold(MIB):
        assert case.memory.measure() == MIB
        with case.work.hold(LIMIT):
            assert case.memory.measure() == STORES // 4


@pytest.mark.parametrize(("stores", "left"), [(0, 32), (16, 32), (40, 24), (56, 8), (63, 8), (80, 8)])
def test_the_page_cache_takes_what_stores_leave_and_an_eighth_in_any_case(stores: int, left: int) -> None:
    case = Case()
    case.tablet.memory_bytes = stores * MIB
    case.memory.measure()
    assert case.cache.limit_bytes == left * MIB


def test_the_flush_lane_is_woken_once_for_many_small_writes() -> None:
    case = Case()
    for _ in range(2 * 1024 + 2):
        case.memory.note(512)  # counts twice
    assert case.lane.kicks == 1, "for each 2 MiB, a quarter of what is flushed at once"


def test_below_half_nobody_waits_and_nothing_is_measured() -> None:
    case = Case()
    case.tablet.memory_bytes = STORES // 2
    case.memory.measure()
    case.tablet.memory_bytes = LIMIT  # nobody looks
    case.memory.admit()
    assert case.memory.estimate() == STORES // 2
    assert not case.told and not case.lane.flushes and not case.memory.throttle.waits


def test_near_the_limit_a_writer_flushes_itself() -> None:
    case = Case()
    case.tablet.memory_bytes = STORES
    case.memory.measure()
    case.memory.admit()
    assert [type(event) for event in case.told] == [WritersThrottled]
    assert (case.told[0].memory_bytes, case.told[0].limit_bytes) == (STORES, STORES)
    assert case.lane.flushes == 3 and case.memory.estimate() <= 0.8 * STORES


@pytest.mark.parametrize("lane", [True, False])
def test_a_writer_goes_on_where_there_is_nothing_to_flush(lane: bool) -> None:
    case = Case(rest=STORES, lane=lane)
    case.tablet.memory_bytes = STORES
    case.memory.measure()
    case.memory.admit()
    assert len(case.told) == 1 and not case.lane.flushes and case.memory.estimate() == STORES


@pytest.mark.parametrize(("maintenance", "slowed"), [("background", True), ("manual", False)])
def test_only_beside_a_flush_lane_that_runs_is_a_writer_slowed(maintenance: str, slowed: bool) -> None:
    case = Case(OPTIONS.replace(maintenance=maintenance))
    case.tablet.memory_bytes = round(0.7 * STORES)
    case.memory.measure()
    case.memory.note(2 * MIB)
    case.tablet.memory_bytes += 4 * MIB
    before = case.clock.monotonic_s()
    case.memory.admit()
    assert (case.clock.monotonic_s() > before) == slowed == bool(case.memory.throttle.waits)
    assert not case.told, "nobody was stopped"


class Wanted:
    """What a record would lay into a store."""

    def __init__(self, nbytes: int = 10, closes: bool = False, error: Exception | None = None) -> None:
        self.nbytes, self.closes, self.error = nbytes, closes, error

    def reserve(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.closes


def test_a_batch_that_never_fits_is_refused_before_anything_is_reserved() -> None:
    case = Case()
    wanted: Any = [Wanted(LIMIT // 2), Wanted(LIMIT // 2 + 1)]
    wanted[0].error = AssertionError("reserved")
    with pytest.raises(MemoryLimit, match="does not fit into memory_limit_bytes"):
        case.memory.reserve(wanted, 1)
    case.memory.check_batch(LIMIT)
    with pytest.raises(MemoryLimit):
        case.memory.check_batch(LIMIT + 1)


@pytest.mark.parametrize("error", [StoreFull("full", empty=True), MemoryError()])
def test_what_was_refused_is_not_counted(error: Exception) -> None:
    case = Case()
    refused: Any = [Wanted(error=error)]
    with pytest.raises(MemoryLimit, match="nothing of it was applied"):
        case.memory.reserve(refused, 100)
    assert case.memory.estimate() == 0
    reserved: Any = [Wanted(1000)]
    case.memory.reserve(reserved, 100)
    assert case.memory.estimate() == 1000 and not case.lane.kicks


def test_a_store_that_was_closed_is_flushed_soon() -> None:
    case = Case()
    wanted: Any = [Wanted(), Wanted(closes=True)]
    case.memory.reserve(wanted, 1)
    assert case.lane.kicks == 1
