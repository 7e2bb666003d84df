"""Replay in its corners (protocol O5, N12): flushes between two records, crashes inside it, twice over."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.table.opened.store_memory import StoreMemory
from tests.support.clock import ManualClock
from tests.support.faults import ROOT, SMALL, TINY, Stage, check_survivor, checking, drop, segments_of
from tests.support.fs.faulty import FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem
from tests.support.models.history import History

pytestmark = pytest.mark.timeout(7200)  # --long takes its time


@contextmanager
def flushing_in_replay(rng: random.Random, share: float) -> Iterator[list[int]]:
    """After some of the replayed records memory is short: everything is flushed."""
    flushed: list[int] = []
    real = StoreMemory.admit

    def admit(memory: StoreMemory) -> None:
        if rng.random() < share:
            assert memory.flush_lane is not None
            while memory.flush_lane.relieve():
                flushed.append(1)
        else:
            real(memory)

    StoreMemory.admit = admit  # type: ignore[method-assign, assignment]
    try:
        yield flushed
    finally:
        StoreMemory.admit = real  # type: ignore[method-assign]


def story(seed: int, **options: Any) -> Stage:
    """A table that was not closed, with all kinds of records in its log."""
    disk = MemoryFileSystem()
    disk.mkdir("/tables")
    disk.sync_all()
    stage = Stage(disk, History(), seed, ManualClock())
    stage.create(**options)
    for _ in range(stage.rng.randrange(4, 9)):
        step = stage.rng.choice((stage.write, stage.write, stage.write, stage.ingest, stage.flush))
        step()
    stage.write()
    drop(stage.table)
    return stage


@pytest.mark.parametrize("number", range(6))
def test_flush_between_two_records(number: int, seed: int, long: bool) -> None:
    flushes = 0
    for run in range(25):
        if flushes and run >= 2 and not long:
            break
        case = seed * 100_000 + number * 1000 + run
        rng = random.Random(case)
        print(f"case {case}; run again with --seed={seed}")
        with segments_of(rng.choice((SMALL, TINY))):
            stage = story(case)
            disk = stage.fs.crash_clone(rng)
            with flushing_in_replay(rng, rng.choice((0.3, 0.6, 1.0))) as flushed, checking(True):
                table = kc.open_table(ROOT, "rw", _fs=disk, _clock=stage.clock)
            flushes += len(flushed)
            stage.history.settle(table)
            stage.history.check(table, rng)
            drop(table)
            check_survivor(disk.crash_clone(rng), stage.history, rng, stage.clock)
    assert flushes, "no flush took place"


def test_crash_in_a_replay_that_flushes(seed: int, long: bool) -> None:
    for run in range(200 if long else 4):
        case = seed * 100_000 + run
        rng = random.Random(case)
        print(f"case {case}; run again with --seed={seed}")
        with segments_of(rng.choice((SMALL, TINY))):
            stage = story(case)
            disk = stage.fs.crash_clone(rng)
            for _ in range(3):  # crash, and crash again in the replay of that
                fs = FaultyFileSystem(disk, [Rule(nth=rng.randrange(5, 400), error="crash")], seed=case)
                table = None
                with flushing_in_replay(rng, 0.5), checking(False), suppress(SimulatedCrash):
                    table = kc.open_table(ROOT, "rw", _fs=fs, _clock=stage.clock)
                drop(table)
                disk = disk.crash_clone(rng)
            check_survivor(disk, stage.history, rng, stage.clock)


@pytest.mark.parametrize("number", range(3))
def test_opening_twice_gives_the_same(number: int, seed: int, long: bool) -> None:
    for run in range(20 if long else 1):
        case = seed * 100_000 + number * 1000 + run
        rng = random.Random(case)
        print(f"case {case}; run again with --seed={seed}")
        with segments_of(TINY), checking(True):
            stage = story(case, durability=rng.choice(("sync", "group", "none")))
            disk = stage.fs.crash_clone(rng, keep="all")
            for _ in range(3):
                table = kc.open_table(ROOT, "rw", _fs=disk, _clock=stage.clock)
                stage.history.settle(table)
                stage.history.check(table, rng)
                drop(table)
                disk = disk.crash_clone(rng)


def test_flush_before_an_ingest_that_is_only_in_the_log(seed: int, long: bool) -> None:
    """What the record names (files, rowset ids) is given to nobody else meanwhile."""
    for run in range(100 if long else 4):
        case = seed * 100_000 + run
        rng = random.Random(case)
        print(f"case {case}; run again with --seed={seed}")
        with segments_of(SMALL), checking(False):
            stage = story(case)
            inner = stage.fs.crash_clone(rng)
            fs = FaultyFileSystem(inner, seed=case)
            last = Stage(fs, stage.history, case, stage.clock)
            last.open()
            last.write(8, range(100, 140))  # rows in memory beside those that the ingest changes
            # The record is durable, the edit of one of the tablets is not.
            fs.rules = [Rule(ops={"append"}, path_glob="*/MANIFEST", nth=rng.randrange(1, 3), error="crash")]
            with pytest.raises(SimulatedCrash):
                last.ingest(range(100, 160))
            drop(last.table)
            disk = inner.crash_clone(rng)
            with flushing_in_replay(rng, 1.0), checking(True):
                table = kc.open_table(ROOT, "rw", _fs=disk, _clock=stage.clock)
            stage.history.settle(table)
            stage.history.check(table, rng)
            drop(table)
            check_survivor(disk.crash_clone(rng), stage.history, rng, stage.clock)
