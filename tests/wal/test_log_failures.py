"""Failures of the log are final: fsyncs and writes that fail, fences, interrupts, a full disk."""

from __future__ import annotations

import errno
import gc
import random
import signal
import threading
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from kudu_core.errors import Fenced, Poisoned
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.wal import RECORD_KIND_WRITE
from tests.support.cases.wal import (
    GROUP,
    NONE,
    SMALL,
    Tapped,
    commit,
    create,
    eventually,
    read,
    resume,
    write,
)
from tests.support.clock import Clock

# Failure -----------------------------------------------------------------------------------------


class Trouble:
    """Fails the next operations of one kind."""

    def __init__(self, operation: str, times: int = 1, only: str = ".log") -> None:
        self.operation, self.times, self.only = operation, times, only

    def __call__(self, operation: str, path: str) -> None:
        if operation == self.operation and self.times and path.endswith(self.only):
            self.times -= 1
            raise OSError(errno.EIO, "injected", path)


def test_a_failed_fsync_is_final(tmp_path: Path) -> None:
    """Protocol W8: one failure, no retry, no further record; what is visible stays visible."""
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs)
    good = commit(log, b"good")
    fs.tap = Trouble("file.sync")
    ts = write(log, b"lost?")
    with pytest.raises(Poisoned):
        log.wait_visible(ts)
    syncs = fs.counts["file.sync"]
    for call in (lambda: log.wait_durable(ts), lambda: log.append(RECORD_KIND_WRITE, 1, [b"x"])):
        with pytest.raises(Poisoned):
            call()
    log.wait_visible(good)
    assert log.visible_ts == good
    assert isinstance(log.poisoned, OSError)
    assert log.close() is None
    assert fs.counts["file.sync"] == syncs


@pytest.mark.parametrize("operation", ["file.sync", "sync_dir"])
def test_a_failed_fsync_while_changing_segments_is_final(tmp_path: Path, operation: str) -> None:
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs, options=NONE)
    fs.tap = Trouble(operation, only="" if operation == "sync_dir" else ".log")
    with pytest.raises(Poisoned):
        for _ in range(20):
            write(log, b"x" * 1000)
    with pytest.raises(Poisoned):
        log.append(RECORD_KIND_WRITE, 1, [b"x"])
    log.close()


def test_a_failed_fsync_of_the_group_thread_is_seen(tmp_path: Path) -> None:
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs, options=GROUP)
    fs.tap = Trouble("file.sync")
    ts = commit(log, b"a")
    eventually(lambda: log.poisoned is not None)
    with pytest.raises(Poisoned):
        log.append(RECORD_KIND_WRITE, 1, [b"x"])
    with pytest.raises(Poisoned):
        log.wait_durable(ts)
    log.close()


@pytest.mark.parametrize("partly", [0, 1, 39, 41, 300])
@pytest.mark.parametrize("room", [0, 4 << 10])
def test_a_failed_write_never_was(tmp_path: Path, partly: int, room: int) -> None:
    """Protocol W5: cut back, also when part of the record had reached the file."""
    fs = Tapped(PosixFileSystem())
    options = replace(SMALL, first_fill_bytes=max(room, 1), fill_bytes=max(room, 1), fill_record_bytes=room)
    log = create(tmp_path, fs=fs, options=options)
    one = commit(log, b"one")
    before = log.segments[-1].end

    def tap(operation: str, path: str) -> None:
        if operation == "file.pwrite" and path.endswith(".log") and armed:
            armed.pop()
            with open(path, "r+b") as file:
                file.seek(before)
                file.write(b"\xa5" * partly)
            raise OSError(errno.ENOSPC, "injected", path)

    armed = [1]
    fs.tap = tap
    if room and log.segments[-1].size < before + 600:
        armed = [1, 1]  # the zeros fail first, silently
    with pytest.raises(OSError, match="injected"):
        log.append(RECORD_KIND_WRITE, 1, [b"two" * 150])
    assert not armed
    assert log.poisoned is None
    assert log.applied_ts == log.last_ts == one
    three = commit(log, b"3")
    log.abandon()
    assert [r.ts for r in read(tmp_path).records()] == [one, three]


def test_a_failed_cut_poisons(tmp_path: Path) -> None:
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs)
    commit(log, b"one")
    fs.tap = Trouble("file.pwrite", times=2)
    with pytest.raises(OSError, match="injected"):
        log.append(RECORD_KIND_WRITE, 1, [b"two"])
    with pytest.raises(Poisoned):
        log.append(RECORD_KIND_WRITE, 1, [b"three"])
    log.close()


def test_a_disk_too_full_for_a_new_segment_is_no_damage(tmp_path: Path) -> None:
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs)
    stamps = []
    fs.tap = Trouble("create", times=3)
    failed = 0
    while len(stamps) < 25:
        try:
            stamps.append(commit(log, b"x" * 1000))
        except OSError:
            failed += 1
    assert failed == 3
    last = log.close()
    assert [r.ts for r in read(tmp_path, clean_end=last or 0).records()] == stamps


def test_an_exception_while_applying_poisons_and_wakes_waiters(tmp_path: Path) -> None:
    log = create(tmp_path)
    log.append(RECORD_KIND_WRITE, 1, [b"never applied"])
    two = write(log, b"2")
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            log.wait_visible(two)
        except Poisoned as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: log.durable_ts == two)
    log.poison(MemoryError("while applying"))
    thread.join(5)
    assert len(failures) == 1
    assert isinstance(failures[0].__cause__, MemoryError)
    log.close()


def test_a_fenced_writer_acknowledges_nothing(tmp_path: Path) -> None:
    """Protocol P2: asked after each fsync, before COMMITTED and before anybody returns."""
    fenced = False

    def check() -> None:
        if fenced:
            raise Fenced("another writer")

    log = create(tmp_path, fence_check=check)
    good = commit(log, b"good")
    committed = (tmp_path / "COMMITTED").read_bytes()
    fenced = True
    ts = write(log, b"stale")
    with pytest.raises(Fenced):
        log.wait_visible(ts)
    assert (tmp_path / "COMMITTED").read_bytes() == committed
    assert log.committed_ts == good
    with pytest.raises(Fenced):
        log.append(RECORD_KIND_WRITE, 1, [b"x"])
    assert log.close() is None


def test_an_interrupted_wait_leaves_the_record_to_the_log_thread(tmp_path: Path) -> None:
    """Protocol W7: the watermarks advance whatever happens to the waiting thread."""
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs)

    def tap(operation: str, path: str) -> None:
        if operation == "file.sync" and armed:
            armed.pop()
            raise KeyboardInterrupt

    armed = [1]
    fs.tap = tap
    ts = write(log, b"a")
    with pytest.raises(KeyboardInterrupt):
        log.wait_visible(ts)
    eventually(lambda: log.committed_ts == ts)
    commit(log, b"b")
    log.close()


def test_what_poisoned_holds_nothing_of_the_caller(tmp_path: Path) -> None:
    """The log lives as long as the table: kept with its traceback, an error would keep every frame's rows."""
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs)

    class Rows:
        pass

    def work() -> weakref.ref[Rows]:
        rows = Rows()
        fs.tap = Trouble("file.sync")
        try:
            log.wait_durable(write(log, b"x"))
        except Poisoned:
            return weakref.ref(rows)
        raise AssertionError("not poisoned")

    held = work()
    gc.collect()
    assert isinstance(log.poisoned, OSError) and log.poisoned.errno == errno.EIO
    assert log.poisoned.__traceback__ is None and held() is None
    log.close()


def test_an_interrupted_append_never_was_or_poisons(tmp_path: Path) -> None:
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs)
    one = commit(log, b"one")

    def tap(operation: str, path: str) -> None:
        if operation == "file.pwrite" and path.endswith(".log") and armed:
            armed.pop()
            raise KeyboardInterrupt

    armed = [1]
    fs.tap = tap
    with pytest.raises(KeyboardInterrupt):
        log.append(RECORD_KIND_WRITE, 1, [b"two"])
    assert log.poisoned is None
    three = commit(log, b"three")
    log.close()
    assert [r.ts for r in read(tmp_path).records()] == [one, three]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_any_moment_corrupt_nothing(tmp_path: Path) -> None:
    """What was acknowledged is in the log, the log never hangs, and no other record is torn."""
    rng = random.Random(2)
    log = create(tmp_path, clock=Clock())
    acknowledged: list[int] = []
    epoch = 1

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupts = 0
    try:
        for _ in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00005 + rng.random() * 0.001)
                for _ in range(100):  # a destructor may swallow the interrupt
                    ts = log.append(RECORD_KIND_WRITE, 1, [b"x" * 300])
                    try:
                        log.applied(ts)
                    except BaseException as error:
                        log.poison(error)
                        raise
                    log.wait_visible(ts)
                    acknowledged.append(ts)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
            except Poisoned:
                pass
            signal.setitimer(signal.ITIMER_REAL, 0)
            if log.poisoned is not None or log.applied_ts < log.last_ts:
                log.abandon()
                epoch += 1
                log, _ = resume(tmp_path, epoch, clock=Clock())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 100
    log.close()
    found = [r.ts for r in read(tmp_path).records()]
    assert set(acknowledged) <= set(found)
    assert found == sorted(set(found))
