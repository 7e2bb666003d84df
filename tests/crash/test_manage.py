"""A crash and an I/O error at every call of the file system, of what is done to a table as a whole.

After it the table is as before or as after, whole, at every readable time, and the same call made again ends
well.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import kudu_core as kc
from tests.crash.test_faults import shares, telling
from tests.support.clock import ManualClock
from tests.support.faults import ROOT, SMALL, Stage, drop, error_for, segments_of
from tests.support.fs.faulty import FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem
from tests.support.models.history import History
from tests.support.models.model import State, state_of

CALLS = 3
"""That the short run hits, of each walk and kind of failure."""
NEW = "/tables/new"

pytestmark = pytest.mark.timeout(7200)  # --long takes its time


class Scene:
    """A table with rows in files and in memory, and a past; copies of its disk."""

    def __init__(self, seed: int) -> None:
        self.disk = MemoryFileSystem()
        self.disk.mkdir("/tables")
        stage = Stage(self.disk, History(), seed, ManualClock())
        with segments_of(SMALL):
            stage.create(history_retention_s=None)
            stage.ingest()
            stage.write(20)
            stage.flush()
            self.past_ts = stage.opened.timestamp
            self.past = stage.history.model.state()
            stage.write(20)
            stage.flush()
            stage.write(12)
        self.newest_ts = stage.opened.timestamp
        self.newest = stage.history.model.state()
        assert self.past != self.newest
        drop(stage.table)
        self.history = stage.history
        self.now_us = stage.clock.now_us() + 1000

    def rows(self, table: kc.Table, at: Any = None) -> State:
        return state_of(self.history.model, table.scan(at=at).to_pylist())


Begin = Callable[[], None]


class Walk:
    """What is done, and what is there then."""

    def act(self, scene: Scene, fs: Any, clock: ManualClock, begin: Begin) -> None:
        """``begin``: from here on calls fail."""
        raise NotImplementedError

    def check(self, scene: Scene, disk: MemoryFileSystem, clock: ManualClock) -> object:
        """Which of the outcomes that may be it was; then the call made again ends well."""
        raise NotImplementedError


class Opened(Walk):
    """Something done to a table that is open for writing."""

    def act(self, scene: Scene, fs: Any, clock: ManualClock, begin: Begin) -> None:
        table = kc.open_table(ROOT, "rw", _fs=fs, _clock=clock)
        try:
            begin()
            self.call(scene, table)
        finally:
            drop(table)

    def call(self, scene: Scene, table: kc.Table) -> None:
        raise NotImplementedError

    def check(self, scene: Scene, disk: MemoryFileSystem, clock: ManualClock) -> object:
        with kc.open_table(ROOT, "rw", _fs=disk, _clock=clock) as table:
            assert scene.rows(table, scene.past_ts) == scene.past
            assert scene.rows(table, scene.newest_ts) == scene.newest
            outcome = self.outcome(scene, table)
            self.call(scene, table)
            assert self.outcome(scene, table)
            table.verify()
        with kc.open_table(ROOT, _fs=disk, _clock=clock) as reader:
            assert self.outcome(scene, reader)
        return outcome

    def outcome(self, scene: Scene, table: kc.Table) -> bool:
        """Whether it is done."""
        raise NotImplementedError


class Drop(Walk):
    def act(self, scene: Scene, fs: Any, clock: ManualClock, begin: Begin) -> None:
        begin()
        kc.drop_table(ROOT, _fs=fs, _clock=clock)

    def check(self, scene: Scene, disk: MemoryFileSystem, clock: ManualClock) -> object:
        try:
            with kc.open_table(ROOT, "rw", _fs=disk, _clock=clock) as table:
                assert scene.rows(table) == scene.newest
                table.verify()
        except kc.TableNotFound:
            again = disk.crash_clone(0, keep="all")
            with suppress(kc.TableNotFound):  # the folder may be gone
                assert kc.drop_table(ROOT, _fs=again, _clock=clock) == ()
            assert not again.exists(ROOT) or again.listdir(ROOT) in ([], ["LOCK"])
            stage = Stage(disk, History(), 0, clock)
            stage.create()
            stage.write(5)
            assert stage.opened.verify().unnamed == stage.opened.verify().foreign == ()
            drop(stage.table)
            return True
        assert kc.drop_table(ROOT, _fs=disk, _clock=clock) == () and not disk.exists(ROOT)
        return False


class Rename(Walk):
    def act(self, scene: Scene, fs: Any, clock: ManualClock, begin: Begin) -> None:
        begin()
        kc.rename_table(ROOT, NEW, _fs=fs)

    def check(self, scene: Scene, disk: MemoryFileSystem, clock: ManualClock) -> object:
        assert disk.exists(ROOT) != disk.exists(NEW)
        done = disk.exists(NEW)
        if not done:
            kc.rename_table(ROOT, NEW, _fs=disk)
        with kc.open_table(NEW, "rw", _fs=disk, _clock=clock) as table:
            assert scene.rows(table) == scene.newest
        return done


class Truncate(Opened):
    def call(self, scene: Scene, table: kc.Table) -> None:
        table.truncate()

    def outcome(self, scene: Scene, table: kc.Table) -> bool:
        assert scene.rows(table) in (scene.newest, {})
        return scene.rows(table) == {}


class RestoreTo(Opened):
    def call(self, scene: Scene, table: kc.Table) -> None:
        table.restore_to(scene.past_ts)

    def outcome(self, scene: Scene, table: kc.Table) -> bool:
        assert scene.rows(table) in (scene.newest, scene.past)
        return scene.rows(table) == scene.past


class Tag(Opened):
    def call(self, scene: Scene, table: kc.Table) -> None:
        table.tag("past", at=scene.past_ts)

    def outcome(self, scene: Scene, table: kc.Table) -> bool:
        assert table.tags() in ({}, {"past": scene.past_ts})
        return bool(table.tags())


class Clone(Opened):
    """At a past time, so that it is opened and written to before it has its name."""

    def call(self, scene: Scene, table: kc.Table) -> None:
        table.clone(NEW, at=scene.past_ts)

    def check(self, scene: Scene, disk: MemoryFileSystem, clock: ManualClock) -> object:
        with kc.open_table(ROOT, "rw", _fs=disk, _clock=clock) as table:
            assert scene.rows(table) == scene.newest
            there = disk.exists(NEW)
            if there:
                with pytest.raises(kc.TableExists):
                    self.call(scene, table)
            else:
                self.call(scene, table)
            assert disk.listdir("/tables") == ["new", "t"] or there
            self.outcome(scene, table)
        kc.drop_table(ROOT, _fs=disk, _clock=clock)
        with kc.open_table(NEW, "rw", _fs=disk, _clock=clock) as clone:
            assert scene.rows(clone) == scene.past == scene.rows(clone, scene.past_ts)
            assert scene.rows(clone, scene.newest_ts) == scene.newest
            assert clone.verify().foreign == clone.verify().unnamed == ()
        return there

    def outcome(self, scene: Scene, table: kc.Table) -> bool:
        assert scene.rows(table) == scene.newest and scene.rows(table, scene.past_ts) == scene.past
        return bool(table.verify().records)


WALKS: dict[str, Walk] = {
    "drop": Drop(), "rename": Rename(), "truncate": Truncate(), "restore_to": RestoreTo(), "tag": Tag(),
    "clone": Clone(),
}  # fmt: skip
CERTAIN = frozenset({("rename", "error")})
"""Of which an error is told only where nothing has happened."""


def play(scene: Scene, walk: Walk, rule: Rule | None) -> tuple[FaultyFileSystem, Exception | None]:
    """On a copy of the disk; the rule counts from where the act begins."""
    fs = FaultyFileSystem(scene.disk.crash_clone(0, keep="all"), seed=1)

    def begin() -> None:
        fs.rules = [] if rule is None else [rule]
        fs.calls = 0

    error: Exception | None = None
    with segments_of(SMALL):
        try:
            walk.act(scene, fs, ManualClock(scene.now_us), begin)
        except (OSError, kc.KuduError, SimulatedCrash) as exc:
            error = exc
    fs.rules = []
    return fs, error


def operations_of(scene: Scene, walk: Walk) -> list[str]:
    """The calls of an undisturbed run, in order."""
    log: list[str] = []
    original = FaultyFileSystem._enter

    def entered(fs: FaultyFileSystem, op: str, path: str) -> Any:
        if fs.calls == 0:
            log.clear()
        log.append(op)
        return original(fs, op, path)

    FaultyFileSystem._enter = entered  # type: ignore[method-assign, assignment]
    try:
        fs, error = play(scene, walk, None)
    finally:
        FaultyFileSystem._enter = original  # type: ignore[method-assign]
    assert error is None and len(log) == fs.calls
    return log


def disks_after(
    fs: FaultyFileSystem, rng: random.Random, long: bool, *, crashed: bool
) -> Iterator[MemoryFileSystem]:
    """What power cuts may leave; after an error also the disk of the machine that goes on."""
    assert isinstance(fs.inner, MemoryFileSystem)
    for keep in ("none", "all", "random") if long else (rng.choice(("none", "all")), "random"):
        yield fs.inner.crash_clone(rng, keep=keep)  # type: ignore[arg-type]
    if not crashed:
        fs.inner.kill()
        yield fs.inner


@pytest.fixture(scope="module")
def scene(seed: int) -> Scene:
    return Scene(seed)


@pytest.mark.parametrize("name", WALKS)
@pytest.mark.parametrize("kind", ["crash", "error"])
def test_a_failure_at_every_call(scene: Scene, seed: int, long: bool, name: str, kind: str) -> None:
    walk = WALKS[name]
    operations = operations_of(scene, walk)
    outcomes = set()
    chosen = set(shares(len(operations), CALLS, seed, long))
    renames = [number for number, op in enumerate(operations, 1) if op == "rename"]
    chosen |= {renames[at - 1] for at in shares(len(renames), 4, seed, long)}
    chosen |= {1, len(operations)}
    for number in sorted(chosen):
        rng = random.Random(seed * 1_000_003 + number)
        operation = operations[number - 1]
        fault = error_for(operation, rng)
        if kind == "crash":
            fault = "torn" if operation in ("append", "pwrite") and rng.random() < 0.5 else "crash"
        rule = Rule(nth=number, error=fault)
        with telling(f"{name}: {fault} at call {number} of {len(operations)}, {operation}", seed):
            fs, error = play(scene, walk, rule)
            assert rule.fired
            if kind == "crash":
                assert isinstance(error, SimulatedCrash) or error is None
            if isinstance(error, OSError) and not isinstance(error, kc.KuduError):
                assert error.errno in (errno.ENOSPC, errno.EIO)
            for disk in disks_after(fs, rng, long, crashed=fs.crashed):
                with segments_of(SMALL):
                    outcome = walk.check(scene, disk, ManualClock(scene.now_us + 1000))
                outcomes.add(outcome)
                if (name, kind) in CERTAIN and error is not None:
                    assert not outcome, "a call that raises has changed nothing"
    if kind == "crash":
        assert len(outcomes) == 2, "the failures all came before the change, or all after it"
