"""A disk that is full or fails, for good, from the n-th operation on: then space again, and all is well.

``tests/crash/test_faults.py`` has single faults and what a power cut makes of them; here the fault stays,
reads are hit too, and what is counted afterwards is files, handles and threads.
"""

from __future__ import annotations

import errno
import gc
import random
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from kudu_core.errors import KuduError
from kudu_core.fs.faulty import CHANGES, FaultyFileSystem, FaultyReadFile, FaultyWriteFile, Rule
from kudu_core.fs.memory import MemoryFileSystem
from tests.crash.test_faults import shares, telling
from tests.support.faults import (
    ROOT,
    STORIES,
    Play,
    Stage,
    check_no_litter,
    check_survivor,
    checking,
    drop,
    segments_of,
)

pytestmark = pytest.mark.timeout(7200)  # --long takes its time

CALLS = 10
"""Calls of each story that the short run tries."""
NEED_SPACE = frozenset({"create", "append", "pwrite", "mkdir", "link"})


class Handles:
    """The files that were opened through faulty file systems, while they are open and somebody holds them."""

    def __init__(self) -> None:
        self._files: weakref.WeakSet[FaultyReadFile | FaultyWriteFile] = weakref.WeakSet()
        self._closed: weakref.WeakSet[FaultyReadFile | FaultyWriteFile] = weakref.WeakSet()

    def left_open(self) -> list[str]:
        gc.collect()
        return sorted(file.path for file in self._files - self._closed if file.path.startswith(ROOT))


@pytest.fixture
def handles(monkeypatch: pytest.MonkeyPatch) -> Handles:
    counted = Handles()
    for kind in (FaultyReadFile, FaultyWriteFile):

        def begin(file: Any, *given: Any, init: Any = kind.__init__) -> None:
            init(file, *given)
            counted._files.add(file)

        def end(file: Any, close: Any = kind.close) -> None:
            counted._closed.add(file)
            close(file)

        monkeypatch.setattr(kind, "__init__", begin)
        monkeypatch.setattr(kind, "close", end)
    return counted


@contextmanager
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [t.name for t in set(threading.enumerate()) - before if t.name.startswith("kudu")]
    assert not left, f"threads left behind: {left}"


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("name", STORIES)
def test_from_the_nth_operation_on(name: str, fault: int, seed: int, long: bool, handles: Handles) -> None:
    """The call ends in an error of ours or the system's; what was acknowledged can be read; after ENOSPC the
    same handle writes on once there is space, after EIO a new one does."""
    story = STORIES[name]
    play = Play(story, seed)
    operations = play.calls()
    for number in shares(len(operations), CALLS, seed + fault, long):
        what = f"{name}: {errno.errorcode[fault]} from call {number} on, {operations[number - 1]}"
        with telling(what, seed), segments_of(story.segments), checking(False), no_thread_left():
            _sticky(play, number, fault, random.Random(seed * 1_000_003 + number), handles)


def _sticky(play: Play, number: int, fault: int, rng: random.Random, handles: Handles) -> None:
    full = fault == errno.ENOSPC
    # A full disk refuses what needs space, a broken one every change; both from call ``number`` on.
    ops = NEED_SPACE if full else CHANGES
    rule = Rule(ops=set(ops), error=fault, sticky=True)
    started = False

    class Late(Rule):
        def fires(self, op: str, path: str, random_: random.Random) -> bool:
            nonlocal started
            self.seen = getattr(self, "seen", 0) + 1
            started = started or self.seen >= number
            return started and op in ops and rule.fires(op, path, random_)

    seen: list[Exception] = []

    def look(stage: Stage, error: Exception) -> None:
        seen.append(error)
        assert isinstance(error, OSError | KuduError), f"{error!r} is no error that a caller expects"
        assert str(error), "an error without words"
        table = stage.table
        if table is None or table._engine._closed is not None:
            stage.fs.rules = []  # the story opens or has closed: it goes on with space
            if table is not None:
                stage.open()
            return
        if table._engine.poisoned is None:
            stage.history.in_flight = None
        history = stage.history.copy()
        history.settle(table)
        history.check(table, rng, past=1)
        with pytest.raises(
            (OSError, KuduError)
        ):  # still full, still broken: no wait for ever, no false success
            table.upsert({"k": [1], "a": [1], "b": ["x" * 70_000]})
        # Once more readable, and then there is space.
        history.check(table, rng, past=1)
        stage.fs.rules = []

    stage = play.run(Late(), look)
    if full and seen:
        engine = stage.opened._engine
        assert (
            engine.poisoned is None
            or not isinstance(engine.poisoned, OSError)
            or (engine.poisoned.errno != errno.ENOSPC or _a_cut_failed(stage))
        ), f"a full disk alone poisoned the table: {engine.poisoned!r}"
    stage.fs.rules = []
    assert isinstance(stage.fs, FaultyFileSystem)
    disk = stage.fs.inner
    with suppress(OSError, KuduError):
        stage.opened.close()
    drop(stage.table)
    stage.table = None
    left = handles.left_open()
    assert not left, f"left open: {left}"
    assert isinstance(disk, MemoryFileSystem)
    disk.kill()
    check_survivor(disk, stage.history.copy(), rng, stage.clock)
    check_no_litter(disk)


def _a_cut_failed(stage: Stage) -> bool:
    return stage.fs.counts["truncate"] > 0
