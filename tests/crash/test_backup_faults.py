"""A crash and an I/O error at every call of the file system, of a backup and of a restore.

After it there is the new backup, whole, or none; and the new table, whole, or none; what was there before
is untouched, and the same call made again ends well and leaves no litter.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.fs.base import is_temporary
from kudu_core.table.backup import backup as module
from kudu_core.table.backup.backup_manifest import read_manifests
from tests.crash.test_faults import shares, telling
from tests.support.clock import ManualClock
from tests.support.faults import ROOT, SMALL, Stage, drop, error_for, segments_of
from tests.support.fs.faulty import FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem
from tests.support.models.history import History
from tests.support.models.model import State, state_of

CALLS = 5
"""That the short run hits, of each walk and kind of failure."""
FOLDER = "/backups/of t"
NEW = "/tables/new"

pytestmark = pytest.mark.timeout(7200)  # --long takes its time


@contextmanager
def small() -> Iterator[None]:
    """Several runs a backup, and segments of the size that tests use."""
    usual = module.RUN_BYTES
    module.RUN_BYTES = 400
    try:
        with segments_of(SMALL):
            yield
    finally:
        module.RUN_BYTES = usual


class Scene:
    """A table with a full backup and an increment, and changes after them; copies of its disk."""

    def __init__(self, seed: int) -> None:
        self.disk = MemoryFileSystem()
        self.disk.mkdir("/tables")
        self.disk.mkdir("/backups")
        stage = Stage(self.disk, History(), seed, ManualClock())
        self.states: list[State] = []
        with small():
            stage.create(history_retention_s=None)
            for _ in range(2):
                stage.ingest()
                stage.write(10)
                stage.flush()
                stage.write(10)
                since = "last" if self.states else None
                stage.opened.backup(FOLDER, since)
                self.states.append(stage.history.model.state())
            stage.write(12)
        self.states.append(stage.history.model.state())
        drop(stage.table)
        self.history = stage.history
        self.now_us = stage.clock.now_us() + 1000

    def check(self, disk: MemoryFileSystem, count: int) -> None:
        """The first ``count`` backups are in the folder and give their states."""
        manifests = read_manifests(disk, FOLDER)
        assert len(manifests) == count
        for manifest, wanted in zip(manifests, self.states, strict=False):
            path = f"/tables/check{manifest.number}"
            with kc.restore(FOLDER, path, manifest.timestamp, _fs=disk, _clock=ManualClock(self.now_us)) as t:
                assert state_of(self.history.model, t.scan().to_pylist()) == wanted
            disk.rmtree(path)


Act = Callable[[Any, ManualClock, Callable[[], None]], None]


def back_up(fs: Any, clock: ManualClock, begin: Callable[[], None] = lambda: None) -> None:
    table = kc.open_table(ROOT, "rw", _fs=fs, _clock=clock)
    try:
        begin()
        table.backup(FOLDER, "last")
    finally:
        drop(table)


def bring_back(fs: Any, clock: ManualClock, begin: Callable[[], None] = lambda: None) -> None:
    begin()
    table = kc.restore(FOLDER, NEW, _fs=fs, _clock=clock)
    try:
        table.close()
    finally:
        drop(table)


def play(scene: Scene, act: Act, rule: Rule | None) -> tuple[FaultyFileSystem, Exception | None]:
    """On a copy of the disk; the rule counts from where the act begins."""
    fs = FaultyFileSystem(scene.disk.crash_clone(0, keep="all"), seed=1)

    def begin() -> None:
        fs.rules = [] if rule is None else [rule]
        fs.calls = 0

    error: Exception | None = None
    with small():
        try:
            act(fs, ManualClock(scene.now_us), begin)
        except (OSError, kc.KuduError, SimulatedCrash) as exc:
            error = exc
    fs.rules = []
    return fs, error


def operations_of(scene: Scene, act: Act) -> list[str]:
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
        fs, error = play(scene, act, None)
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


def check_backup(scene: Scene, disk: MemoryFileSystem) -> int:
    count = len(read_manifests(disk, FOLDER))
    assert count in (2, 3)
    scene.check(disk, count)
    with small():
        back_up(disk, ManualClock(scene.now_us))
    assert not [name for name in disk.listdir(FOLDER) if is_temporary(name)]
    scene.check(disk, 3)  # where the backup was there, the call finds that nothing was written since
    return count


def check_restored(scene: Scene, disk: MemoryFileSystem) -> int:
    """The table is there whole, or it is not; then the same call makes it."""
    there = disk.exists(NEW)
    clock = ManualClock(scene.now_us + 1000)
    if not there:
        with small():
            bring_back(disk, clock)
    with small(), pytest.raises(kc.TableExists):
        bring_back(disk, clock)
    for mode in ("r", "rw"):
        with small(), kc.open_table(NEW, mode, _fs=disk, _clock=clock) as table:
            assert state_of(scene.history.model, table.scan().to_pylist()) == scene.states[1]
            assert table.verify().records <= 1
    if not there:
        assert disk.listdir("/tables") == ["new", "t"]
    scene.check(disk, 2)
    return int(there)


WALKS: dict[str, tuple[Act, Callable[[Scene, MemoryFileSystem], int]]] = {
    "backup": (back_up, check_backup),
    "restore": (bring_back, check_restored),
}


@pytest.fixture(scope="module")
def scene(seed: int) -> Scene:
    return Scene(seed)


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("kind", ["crash", "error"])
def test_a_failure_at_every_call(scene: Scene, seed: int, long: bool, walk: str, kind: str) -> None:
    act, check = WALKS[walk]
    operations = operations_of(scene, act)
    outcomes = set()
    chosen = set(shares(len(operations), CALLS, seed, long))
    chosen |= {number for number, op in enumerate(operations, 1) if op == "rename"}
    chosen.add(len(operations))
    for number in sorted(chosen):
        rng = random.Random(seed * 1_000_003 + number)
        operation = operations[number - 1]
        fault = error_for(operation, rng)
        if kind == "crash":
            fault = "torn" if operation in ("append", "pwrite") and rng.random() < 0.5 else "crash"
        rule = Rule(nth=number, error=fault)
        with telling(f"{walk}: {fault} at call {number} of {len(operations)}, {operation}", seed):
            fs, error = play(scene, act, rule)
            assert rule.fired
            assert isinstance(error, SimulatedCrash) == (kind == "crash") or error is None
            if isinstance(error, OSError) and not isinstance(error, kc.KuduError):
                assert error.errno in (errno.ENOSPC, errno.EIO)
            for disk in disks_after(fs, rng, long, crashed=fs.crashed):
                outcome = check(scene, disk)
                outcomes.add(outcome)
                if walk == "backup" and isinstance(error, OSError | kc.KuduError):
                    assert outcome == 2, "a backup that raises has made nothing"
    if (walk, kind) != ("backup", "error"):
        assert len(outcomes) == 2, "the failures all came before the rename, or all after it"


class FullDisk(Rule):
    """No write finds room.  That the copies for repairs find none ends nothing: they do not count."""

    def fires(self, op: str, path: str, rng: random.Random) -> bool:
        return ".copy" not in path and super().fires(op, path, rng)


def test_a_full_disk_says_so_and_leaves_nothing(scene: Scene) -> None:
    for walk, (act, _) in WALKS.items():
        for number in range(1, 200, 3):
            ops = {"append", "pwrite", "create"}
            rule = FullDisk(ops=ops, nth=number, error=errno.ENOSPC, sticky=True)
            fs, error = play(scene, act, rule)
            if not rule.fired:
                break
            assert isinstance(error, OSError | kc.KuduError), f"{walk} ended well on a full disk"
            text = str(error) + str(error.__cause__)
            assert "No space left on device" in text
            assert isinstance(fs.inner, MemoryFileSystem)
            assert fs.inner.listdir(FOLDER) == ["00000001", "00000002", "LOCK"]
            if fs.inner.exists(NEW):  # it was to be opened: the table itself is whole
                fs.inner.kill()
                check_restored(scene, fs.inner)
            else:
                assert fs.inner.listdir("/tables") == ["t"]
        else:
            raise AssertionError("the walk is longer than thought")
        assert number > 3
