"""A crash and an I/O error at every call of the file system while a table is altered, and in its replay."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.errors import KuduError
from kudu_core.table.stored.table_state import read_state
from tests.crash.test_faults import shares, telling
from tests.support.clock import ManualClock
from tests.support.faults import (
    ROOT,
    SMALL,
    check_disk,
    check_no_litter,
    checking,
    drop,
    error_for,
    segments_of,
)
from tests.support.fs.faulty import FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of, is_closed, schema_of, tablets_of
from tests.support.models.altering import Altering

pytestmark = pytest.mark.timeout(7200)  # --long takes its time

TRIED = 8
"""Calls of a story that the short run tries."""
HOUR = 3600.0
OPTIONS = {
    "maintenance": "manual",
    "scan_threads": 1,
    "file_grace_s": 0,
    "history_retention_s": None,
    "ingest_threshold_rows": 5,
}

Step = Callable[["Stage"], None]


class Stage:
    def __init__(self, fs: Any, model: Altering, seed: int, clock: ManualClock) -> None:
        self.fs, self.model, self.rng, self.clock = fs, model, random.Random(seed), clock
        self.table: kc.Table | None = None

    @property
    def opened(self) -> kc.Table:
        assert self.table is not None
        return self.table

    def open(self, mode: str = "rw") -> kc.Table:
        self.table = kc.open_table(ROOT, mode, _fs=self.fs, _clock=self.clock)
        return self.table

    def write(self) -> None:
        self.clock.advance(us=7)
        self.model.write(self.rng, self.opened, 8)

    def alter(self) -> None:
        self.clock.advance(us=7)
        self.model.alter(self.rng, self.opened, most=4)

    def flush(self) -> None:
        self.opened.flush()


def _altered(stage: Stage) -> None:
    for _ in range(3):
        stage.alter()
        stage.write()


def _flushed(stage: Stage) -> None:
    stage.alter()
    stage.write()
    stage.flush()
    stage.alter()
    stage.opened.compact(full=True)


def _closed(stage: Stage) -> None:
    stage.alter()
    stage.opened.close()
    stage.open()
    stage.write()


STORIES: dict[str, Step] = {"altered": _altered, "flushed": _flushed, "closed": _closed}


def prepared(seed: int) -> Stage:
    disk = MemoryFileSystem()
    disk.mkdir("/tables")
    disk.sync_all()
    clock = ManualClock()
    rng = random.Random(seed)
    model, table = Altering.begin(ROOT, hashed=rng.random() < 0.5, options=OPTIONS, _fs=disk, _clock=clock)
    stage = Stage(disk, model, seed, clock)
    stage.table = table
    for step in (stage.write, stage.flush, stage.write, stage.alter, stage.write):
        step()
    drop(table)
    return stage


def played(base: Stage, story: Step, seed: int, rule: Rule | None, *, in_open: bool) -> Stage:
    """The story in a new process, to its end or to the fault; ``in_open``: faults begin with the open."""
    fs = FaultyFileSystem(base.fs.crash_clone(0, keep="all"), seed=seed)
    stage = Stage(fs, base.model.copy(), seed, ManualClock(base.clock.now_us() + 1000))
    try:
        if in_open:
            fs.rules = [rule] if rule else []
            stage.open()
        else:
            stage.open()
            fs.rules = [rule] if rule else []
            fs.calls = 0
        story(stage)
    except SimulatedCrash:
        pass
    return stage


def operations(run: Callable[[], Stage]) -> list[str]:
    """The operations of a run without faults; the n-th is call n + 1."""
    log: list[str] = []
    original = FaultyFileSystem._enter

    def entered(fs: FaultyFileSystem, op: str, path: str) -> Any:
        log.append(op)
        return original(fs, op, path)

    FaultyFileSystem._enter = entered  # type: ignore[method-assign, assignment]
    try:
        stage = run()
    finally:
        FaultyFileSystem._enter = original  # type: ignore[method-assign]
    drop(stage.table)
    return log[len(log) - stage.fs.calls :]


def check_survivor(fs: MemoryFileSystem, model: Altering, rng: random.Random, clock: ManualClock) -> None:
    """What a power cut left: a reader follows the log, a writer repeats what is missing, and life goes on."""
    check_disk(fs)
    before = model.now
    stage = Stage(fs, model, rng.randrange(1 << 30), clock)
    reader = stage.open("r")
    seen = model.copy()
    seen.settle(reader)
    seen.check(rng, reader, looks=2)
    reader.close()
    with checking(True):
        table = stage.open()
    check_no_litter(fs)
    told = read_state(fs, f"{ROOT}/TABLE")  # replay has repeated what was missing: the log may go
    assert told.schema == schema_of(table)
    assert [t.id for t in told.tablets] == [t.id for t in tablets_of(table)]
    model.settle(table)
    # A reader ends before an ingest that is not installed yet (protocol R2); what it saw is never taken back.
    assert seen.now in (before, model.now)
    model.check(rng, table)
    for step in (stage.write, stage.alter, stage.write):
        step()
    drop(table)
    stage.fs = fs.crash_clone(rng)
    with checking(True):
        table = stage.open()
    model.check(rng, table)
    table.close()


def survivors(stage: Stage, rng: random.Random, long: bool) -> list[tuple[str, MemoryFileSystem]]:
    disk = stage.fs.inner
    kinds = ["none", "all", "random"] if long else [rng.choice(["none", "all"]), "random"]
    return [(kind, disk.crash_clone(rng, keep=kind)) for kind in kinds]


@pytest.mark.parametrize("name", list(STORIES))
def test_crash_at_every_call_of_an_alter(name: str, seed: int, long: bool) -> None:
    story = STORIES[name]
    with segments_of(SMALL), checking(False):
        base = prepared(seed)
        calls = operations(lambda: played(base, story, seed, None, in_open=False))
        for number in shares(len(calls), TRIED, seed, long):
            rng = random.Random(seed * 1_000_003 + number)
            torn = calls[number - 1] in ("append", "pwrite") and rng.random() < 0.6
            with telling(f"{name}: crash at call {number}, {calls[number - 1]}", seed):
                rule = Rule(nth=number, error="torn" if torn else "crash")
                stage = played(base, story, seed, rule, in_open=False)
                assert stage.fs.crashed
                drop(stage.table)
                for kind, disk in survivors(stage, rng, long):
                    with telling(f"power cut {kind!r}", seed):
                        check_survivor(disk, stage.model.copy(), rng, stage.clock)


@pytest.mark.parametrize("name", list(STORIES))
def test_error_at_every_call_of_an_alter(name: str, seed: int, long: bool) -> None:
    story = STORIES[name]
    with segments_of(SMALL), checking(False):
        base = prepared(seed)
        calls = operations(lambda: played(base, story, seed, None, in_open=False))
        for number in shares(len(calls), TRIED, seed + 1, long):
            rng = random.Random(seed * 1_000_033 + number)
            fault = error_for(calls[number - 1], rng)
            with telling(f"{name}: {fault} at call {number}, {calls[number - 1]}", seed):
                rule = Rule(nth=number, error=fault)
                stage = _failed(base, story, seed, rule)
                assert rule.fired
                drop(stage.table)
                for kind, disk in survivors(stage, rng, long):
                    with telling(f"power cut {kind!r}", seed):
                        check_survivor(disk, stage.model.copy(), rng, stage.clock)


def _failed(base: Stage, story: Step, seed: int, rule: Rule) -> Stage:
    fs = FaultyFileSystem(base.fs.crash_clone(0, keep="all"), seed=seed)
    stage = Stage(fs, base.model.copy(), seed, ManualClock(base.clock.now_us() + 1000))
    stage.open()
    fs.rules, fs.calls = [rule], 0
    try:
        story(stage)
    except (OSError, KuduError) as error:
        engine = engine_of(stage.opened)
        if engine.poisoned is None and not is_closed(stage.opened):
            # Not poisoned: nothing of the call was applied, and the table goes on.
            assert isinstance(error, OSError), f"{error!r} without poison"
            stage.model.in_flight = None
            stage.model.check(random.Random(seed), stage.opened, looks=2)
            stage.write()
            stage.alter()
    return stage


def test_crash_in_the_replay_of_an_alter(seed: int, long: bool) -> None:
    """Replay repeats what is missing, however often it is interrupted."""
    with segments_of(SMALL), checking(False):
        base = prepared(seed)
        calls = operations(lambda: played(base, _altered, seed, None, in_open=False))
        rng = random.Random(seed)
        for number in shares(len(calls), 3, seed, long):
            stage = played(base, _altered, seed, Rule(nth=number, error="crash"), in_open=False)
            drop(stage.table)
            for kind, disk in survivors(stage, rng, long):
                again = Stage(disk, stage.model, seed, stage.clock)
                opening = operations(lambda a=again: played(a, lambda _: None, seed, None, in_open=True))
                # Of the openings a share at all times: all of them, after every crash, take hours.
                for call in shares(len(opening), 12 if long else 2, seed + number, long=False):
                    with telling(f"crash at {number}, cut {kind!r}, crash in open at {call}", seed):
                        rule = Rule(nth=call, error="crash")
                        twice = played(again, lambda _: None, seed, rule, in_open=True)
                        drop(twice.table)
                        for _, left in survivors(twice, rng, long):
                            check_survivor(left, stage.model.copy(), rng, stage.clock)


def test_crash_in_a_purge(seed: int, long: bool) -> None:
    """TABLE first, then the files: what is left is an orphan, and never a tablet without its rows."""

    def story(stage: Stage) -> None:
        table = stage.opened
        table.alter(drop_range=(0, 20))
        stage.clock.advance(2 * HOUR)
        table.upsert({"k": [30]})
        table.gc()
        table.gc()

    with segments_of(SMALL), checking(False):
        disk = MemoryFileSystem()
        disk.mkdir("/tables")
        disk.sync_all()
        clock = ManualClock()
        model, table = Altering.begin(
            ROOT, hashed=True, options={**OPTIONS, "history_retention_s": HOUR}, _fs=disk, _clock=clock
        )
        table.upsert({"k": list(range(40))})
        before = table.timestamp
        table.flush()
        drop(table)
        base = Stage(disk, model, seed, clock)
        calls = operations(lambda: played(base, story, seed, None, in_open=False))
        seen = set()
        for number in shares(len(calls), 2 * TRIED, seed, long):
            rng = random.Random(seed + number)
            with telling(f"crash at call {number}, {calls[number - 1]}", seed):
                stage = played(base, story, seed, Rule(nth=number, error="crash"), in_open=False)
                drop(stage.table)
                for _, left in survivors(stage, rng, long):
                    check_disk(left)
                    for mode in ("r", "rw", "r"):
                        with kc.open_table(ROOT, mode, _fs=left, _clock=stage.clock) as table:
                            keys = set(table.scan(["k"]).to_table()["k"].to_pylist())
                            assert keys in (set(range(40)), set(range(20, 40)))
                            try:
                                assert table.count(at=before) == 40
                                seen.add("kept")
                            except kc.SnapshotTooOld:
                                assert len(keys) == 20
                                seen.add("purged")
                    check_no_litter(left)
        assert "kept" in seen
