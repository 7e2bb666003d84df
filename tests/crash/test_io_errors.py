"""A disk that is full or fails, for good, from the n-th operation on: then space again, and all is well.

``tests/crash/test_faults.py`` has single faults and what a power cut makes of them; here the fault stays,
reads are hit too, and what is counted afterwards is files, handles and threads.
"""

from __future__ import annotations

import errno
import gc
import os
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.errors import KuduError
from kudu_core.fs.posix import PosixFileSystem
from tests.crash.test_faults import shares, telling
from tests.support.clock import ManualClock
from tests.support.fault_stories import STORIES
from tests.support.faults import (
    ROOT,
    TINY,
    Play,
    Stage,
    check_no_litter,
    check_survivor,
    checking,
    drop,
    segments_of,
)
from tests.support.fs.faulty import CHANGES, FaultyFileSystem, Rule
from tests.support.fs.faulty_files import FaultyReadFile, FaultyWriteFile
from tests.support.fs.memory import MemoryFileSystem
from tests.support.hostile.damage import Subject, subject
from tests.support.inside import engine_of, is_closed, poison_of
from tests.support.tables import Make

pytestmark = pytest.mark.timeout(7200)  # --long takes its time

CALLS = 2
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

    seen: list[str] = []

    def look(stage: Stage, error: Exception) -> None:
        seen.append(repr(error))  # the error itself holds what its frames hold
        assert isinstance(error, OSError | KuduError), f"{error!r} is no error that a caller expects"
        assert str(error), "an error without words"
        table = stage.table
        if table is None or is_closed(table):
            stage.fs.rules = []  # the story opens or has closed: it goes on with space
            if table is not None:
                stage.open()
            return
        if poison_of(table) is None:
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
        engine = engine_of(stage.opened)
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


# ---- reading from a disk that fails


READS = ("open_read", "pread", "preadv", "size", "listdir", "exists", "is_dir", "stat", "identity")


def read_all(stage: Stage, table: kc.Table, rng: random.Random) -> None:
    history = stage.history.copy()
    history.settle(table)
    history.check(table, rng)
    assert table.changes().to_table().num_rows >= len(history.model.state())
    for (key,), values in list(history.model.state().items())[:5]:
        assert table.get(key) == {"k": key, **dict(zip("abc", values, strict=True))}
    assert table.stats("rowset").num_rows


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("fault", ["EIO", "short", "EMFILE"])
def test_reads_that_fail(
    mode: str, sticky: bool, fault: str, seed: int, long: bool, handles: Handles
) -> None:
    """Scans, point reads, changes, refresh: an error of ours or the system's and never other rows; when the
    disk answers again the same handle reads on, and nothing was left open."""
    error: Any = "short" if fault == "short" else getattr(errno, fault)
    made = subject("closed", seed)
    with segments_of(TINY), checking(False):
        sound = _reading(made, mode, [], seed)
        for number in shares(sound, 5, seed + len(fault) + sticky, long):
            rule = Rule(ops=set(READS), nth=number, error=error, sticky=sticky)
            with telling(f"{mode}: {fault} at read {number}, sticky {sticky}", seed), no_thread_left():
                _reading(made, mode, [rule], seed)
            left = handles.left_open()
            assert not left, f"left open: {left}"


def _reading(made: Subject, mode: str, rules: list[Rule], seed: int) -> int:
    fs = FaultyFileSystem(made.disk.crash_clone(0, keep="all"), rules, seed=seed)
    stage = Stage(fs, made.history.copy(), seed, ManualClock(made.now_us))

    def attempt(what: Callable[[], object]) -> bool:
        try:
            what()
        except (OSError, KuduError) as error:
            assert rules, f"without a fault: {error!r}"
            assert str(error)
            return False
        return True

    if not attempt(lambda: stage.open(mode)):
        fs.rules = []
        stage.open(mode)
    fs.rules = rules
    table = stage.opened
    works = (lambda: read_all(stage, table, random.Random(seed)), table.refresh)
    for work in works:
        if not attempt(work):
            fs.rules = []
            work()
            fs.rules = rules
    count = sum(fs.counts[op] for op in READS)
    fs.rules = []
    read_all(stage, table, random.Random(seed))
    table.close()
    stage.table = None
    return count


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_an_open_that_fails_leaves_nothing_open(mode: str, seed: int, long: bool, handles: Handles) -> None:
    """Also while somebody keeps the exception, with all that its frames hold."""
    made = subject("killed", seed)
    with segments_of(TINY), checking(False):
        sound = FaultyFileSystem(made.disk.crash_clone(0, keep="all"))
        Stage(sound, made.history, seed, ManualClock(made.now_us)).open(mode).close()
        for number in shares(sound.calls, 8, seed, long):
            fs = FaultyFileSystem(made.disk.crash_clone(0, keep="all"), [Rule(nth=number)])
            stage = Stage(fs, made.history, seed, ManualClock(made.now_us))
            kept: list[BaseException] = []
            with telling(f"{mode}: EIO at call {number}", seed), no_thread_left():
                try:
                    stage.open(mode).close()
                except (OSError, KuduError) as error:
                    kept.append(error)
                stage.table = None
                left = handles.left_open()
                assert not left, f"left open: {left}, after {kept!r}"


def test_a_lost_column_leaves_the_others(make: Make, path: Path) -> None:
    """EIO in one page: other columns and other tablets can still be read."""
    table = make(partition_by=kc.HashPartition("k", 2), page_cache_bytes=0)
    rng = random.Random(1)
    keys = rng.sample(range(1 << 60), 12_000)
    table.insert({"k": keys, "a": [k * 7 % (1 << 62) for k in keys], "s": [f"{k:x}"[::-1] for k in keys]})
    table.flush()
    table.close()
    files = sorted((path / "tablets").rglob("*.rows"))
    size = files[0].stat().st_size
    spans = range(0, size, size // 25)
    failed = {"k": 0, "a": 0, "s": 0}
    for offset in spans:
        fs = FaultyFileSystem(PosixFileSystem())
        with kc.open_table(path, _fs=fs, options={"scan_threads": 1}) as reader:
            bad = _BadSector(fs, str(files[0]), offset)
            with bad:
                for column in failed:
                    try:
                        assert reader.scan([column]).to_table().num_rows == 12_000
                    except OSError as error:
                        assert error.errno == errno.EIO
                        failed[column] += 1
            assert reader.count() == 12_000
    assert all(0 < count < len(spans) for count in failed.values()), failed


class _BadSector:
    """Reads of 512 bytes of one file fail."""

    def __init__(self, fs: FaultyFileSystem, path: str, offset: int) -> None:
        self._path, self._offset = path, offset
        self._real = FaultyReadFile._read

    def __enter__(self) -> None:
        real, path, first = self._real, self._path, self._offset

        def pread(file: FaultyReadFile, n: int, offset: int) -> bytes:
            if file.path == path and offset < first + 512 and offset + n > first:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return real(file, "pread", lambda: [file._inner.pread(n, offset)])[0]

        def preadv(file: FaultyReadFile, sizes: Any, offset: int) -> list[bytes]:
            pieces = []
            for size in sizes:
                pieces.append(pread(file, size, offset))
                offset += size
            return pieces

        self._before = FaultyReadFile.pread, FaultyReadFile.preadv
        FaultyReadFile.pread, FaultyReadFile.preadv = pread, preadv  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        FaultyReadFile.pread, FaultyReadFile.preadv = self._before  # type: ignore[method-assign]
