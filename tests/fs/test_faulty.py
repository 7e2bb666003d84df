"""The file systems of the tests themselves: processes that are killed, and calls that fail by rules."""

from __future__ import annotations

import errno
import fnmatch
import pickle
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from kudu_core.errors import Locked
from kudu_core.fs import FileSystem, PosixFileSystem
from tests.fs.test_power_cut import OLD, write
from tests.support.fs.faulty import CHANGES, LOOKS, FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem

# The death of the process ----------------------------------------------------------------------


def test_a_killed_process_leaves_data_but_no_lease_and_no_files(memory: MemoryFileSystem) -> None:
    lease = memory.lease("/d/LOCK")
    lease.try_acquire()
    file = write(memory, "/d/a", OLD, sync=False)
    with pytest.raises(Locked):
        memory.lease("/d/LOCK").try_acquire()
    for after in (memory.crash_clone(keep="all"), memory):
        memory.kill()
        assert after.lease("/d/LOCK").holder() is None
        other = after.lease("/d/LOCK")
        other.try_acquire()
        assert after.read_bytes("/d/a", 1 << 20) == OLD
        lease.release()  # the dead process's handle must not free the new one's
        assert other.held
        assert not lease.held
    with pytest.raises(OSError, match="error"):
        file.append(b"x")


def test_abandon_keeps_the_lease(memory: MemoryFileSystem) -> None:
    lease = memory.lease("/d/LOCK")
    lease.try_acquire()
    lease.abandon()
    assert memory.lease("/d/LOCK").holder() is not None


def test_threads_see_whole_calls(memory: MemoryFileSystem) -> None:
    memory.replace_file("/d/a", b"0" * 1000)
    torn: list[bytes] = []
    stop = threading.Event()

    def read_on() -> None:
        while not stop.is_set():
            data = memory.read_bytes("/d/a", 1000)
            if len(set(data)) != 1 or len(data) != 1000:
                torn.append(data)

    def append_on(name: str) -> None:
        file = memory.create(f"/d/{name}")
        for _ in range(200):
            file.append(b"x" * 10)
            file.sync()

    readers = [threading.Thread(target=read_on) for _ in range(2)]
    writers = [threading.Thread(target=append_on, args=(name,)) for name in ("x", "y")]
    for thread in readers + writers:
        thread.start()
    for i in range(300):
        memory.replace_file("/d/a", str(i % 10).encode() * 1000)
        memory.crash_clone(i)
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert not torn
    assert memory.read_bytes("/d/x", 5000) == memory.read_bytes("/d/y", 5000) == b"x" * 2000


# Faults ----------------------------------------------------------------------------------------


def script(fs: FileSystem) -> None:
    """A little of everything, as the engine does it."""
    lease = fs.lease("/d/LOCK")
    lease.try_acquire()
    try:
        fs.mkdir("/d/t")
        fs.sync_dir("/d")
        file = fs.create("/d/t/log")
        try:
            for i in range(3):
                file.append([b"record", b"%d" % i])
                file.sync(data_only=True)
            file.pwrite(b"!", 0)
            file.truncate(10)
            assert file.size() == 10
        finally:
            file.close()
        fs.link("/d/t/log", "/d/t/log2")
        fs.rename("/d/t/log2", "/d/t/log3")
        fs.replace_file("/d/t/M", b"manifest")
        assert fs.read_bytes("/d/t/M", 99) == b"manifest"
        assert fs.exists("/d/t/M")
        assert fs.is_dir("/d/t")
        assert fs.stat("/d/t/M").size == 8
        assert fs.identity("/d/t/M") == fs.identity("/d/t/M")
        appended = fs.open_write("/d/t/M")
        appended.append(b"x")
        appended.close()
        reader = fs.open_read("/d/t/M")
        assert reader.preadv([8, 1], 0) == [b"manifest", b"x"]
        reader.close()
        assert fs.lease("/d/LOCK").holder() is not None
        fs.rmtree("/d/t")
    finally:
        lease.release()


def make(kind: str, tmp_path: Path) -> FileSystem:
    if kind == "memory":
        fs = MemoryFileSystem()
        fs.mkdir("/d")
        return fs
    return Moved(str(tmp_path))


class Moved(PosixFileSystem):
    """The machine's file system with ``/d`` moved into a directory of the test."""

    def __init__(self, root: str, of: str | None = None) -> None:
        super().__init__(of)
        self.root = root

    def __getattribute__(self, name: str) -> Any:
        method = super().__getattribute__(name)
        if name.startswith("_") or name == "root":
            return method
        if name == "rooted":
            return lambda path: Moved(self.root, self.root + path[2:])

        def call(*args: Any, **kwargs: Any) -> Any:
            args = tuple(
                self.root + arg[2:] if isinstance(arg, str) and arg.startswith("/d") else arg for arg in args
            )
            return method(*args, **kwargs)

        return call


@pytest.mark.parametrize("kind", ["memory", "posix"])
def test_every_call_is_counted_and_may_fail(kind: str, tmp_path: Path) -> None:
    counted = FaultyFileSystem(make(kind, tmp_path), keep_log=True)
    script(counted)
    assert counted.calls == len(counted.log) == sum(counted.counts.values())
    assert [call.number for call in counted.log] == list(range(1, counted.calls + 1))
    assert set(counted.counts) >= (CHANGES | LOOKS) - {"pread", "listdir"}
    assert set(counted.counts) <= CHANGES | LOOKS
    errors: list[Any] = [errno.EIO, errno.ENOSPC, "crash", "torn", "torn-error", "short", "short write"]
    for n in range(1, counted.calls + 1):
        error = errors[n % len(errors)]
        inner = make(kind, tmp_path)
        fs = FaultyFileSystem(inner, [Rule(nth=n, error=error)], seed=n)
        short_read = error == "short" and counted.log[n - 1].op in ("pread", "preadv")
        with pytest.raises(AssertionError if short_read else (OSError, SimulatedCrash)) as caught:
            script(fs)
        assert fs.fired == 1
        assert fs.crashed == (error in ("crash", "torn"))
        assert isinstance(caught.value, SimulatedCrash) == fs.crashed
        assert inner.lease("/d/LOCK").holder() is None  # the script's finally gave it back
        if inner.exists("/d/t"):
            inner.rmtree("/d/t")


def test_after_a_crash_nothing_happens_any_more(memory: MemoryFileSystem) -> None:
    fs = FaultyFileSystem(memory, [Rule(ops={"sync"}, nth=2, error="crash")])
    file = fs.create("/d/a")
    lease = fs.lease("/d/LOCK")
    lease.try_acquire()
    file.append(b"1")
    file.sync()
    file.append(b"2")
    with pytest.raises(SimulatedCrash):
        file.sync()
    caught: list[BaseException] = []

    def other() -> None:
        for call in (
            lambda: file.append(b"3"),
            file.sync,
            lambda: fs.unlink("/d/a"),
            lambda: fs.exists("/d"),
            lambda: fs.lease("/d/LOCK").holder(),
        ):
            try:
                call()
            except SimulatedCrash as exc:
                caught.append(exc)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert len(caught) == 5
    file.close()
    lease.release()
    assert memory.read_bytes("/d/a", 9) == b"12"
    assert memory.lease("/d/LOCK").holder() is None
    again = pickle.loads(pickle.dumps(caught[0]))
    assert isinstance(again, SimulatedCrash)
    assert not isinstance(again, OSError)


@pytest.mark.parametrize(
    ("error", "number"),
    [("torn", None), ("torn-error", errno.EIO), ("short", errno.ENOSPC), ("short write", errno.ENOSPC)],
)
def test_a_torn_append_leaves_a_beginning_that_the_next_one_overwrites(
    error: Any, number: int | None, seed: int
) -> None:
    lengths = set()
    for case in range(60):
        memory = MemoryFileSystem()
        fs = FaultyFileSystem(memory, [Rule(ops={"append"}, nth=2, error=error)], seed=seed + case)
        file = fs.create("/a")
        file.append(b"head")
        with pytest.raises((SimulatedCrash, OSError)) as caught:
            file.append([b"01234", b"56789"])
        assert getattr(caught.value, "errno", None) == number
        found = memory.read_bytes("/a", 99)
        assert found == b"head0123456789"[: len(found)]
        assert 4 <= len(found) < 14
        lengths.add(len(found))
        if number is not None:
            assert file.append(b"next") == 4
            file.truncate(8)
            assert memory.read_bytes("/a", 99) == b"headnext"
    assert len(lengths) > 5


def test_reads_come_back_short_or_with_one_bit_turned(memory: MemoryFileSystem, seed: int) -> None:
    data = random.Random(seed).randbytes(500)
    write(memory, "/d/a", data)
    fs = FaultyFileSystem(memory, [Rule(ops={"pread", "preadv"}, error="flip", sticky=True)], seed=seed)
    reader = fs.open_read("/d/a")
    for got in (reader.pread(500, 0), b"".join(reader.preadv([200, 300], 0))):
        different = int.from_bytes(got, "little") ^ int.from_bytes(data, "little")
        assert different.bit_count() == 1
    fs.rules = [Rule(error="short", sticky=True, ops={"pread", "preadv"})]
    got = reader.pread(500, 0)
    assert len(got) < 500
    assert data.startswith(got)
    pieces = reader.preadv([200, 300], 0)
    assert len(pieces) == 2
    assert len(b"".join(pieces)) < 500
    assert data.startswith(b"".join(pieces))


def test_rules_choose_by_operation_path_count_and_odds(memory: MemoryFileSystem) -> None:
    def fired(rule: Rule, calls: int = 6, seed: int = 0) -> list[int]:
        fs = FaultyFileSystem(memory, [rule], seed=seed)
        hits = []
        for i in range(calls):
            try:
                fs.exists("/d/x/a.log")
                fs.is_dir("/d")
            except OSError as exc:
                hits.append(i if exc.errno == errno.ENOSPC else -1)
        return hits

    looks = {"exists"}
    assert fired(Rule(ops=looks, error=errno.ENOSPC)) == [0]
    assert fired(Rule(ops=looks, error=errno.ENOSPC, sticky=True)) == [0, 1, 2, 3, 4, 5]
    assert fired(Rule(ops=looks, nth=3, error=errno.ENOSPC)) == [2]
    assert fired(Rule(ops=looks, nth=3, error=errno.ENOSPC, sticky=True)) == [2, 3, 4, 5]
    assert fired(Rule(path_glob="*.log", nth=2, error=errno.ENOSPC)) == [1]
    assert fired(Rule(path_glob="*.rows", error=errno.ENOSPC)) == []
    assert fired(Rule(ops={"sync"}, error=errno.ENOSPC)) == []
    assert fired(Rule(ops=looks, probability=0.0, error=errno.ENOSPC)) == []
    some = fired(Rule(ops=looks, probability=0.3, error=errno.ENOSPC), calls=200)
    assert 30 < len(some) < 90
    assert some == fired(Rule(ops=looks, probability=0.3, error=errno.ENOSPC), calls=200)
    first, second = Rule(ops=looks, nth=1, error=errno.EIO), Rule(error=errno.ENOSPC)
    fs = FaultyFileSystem(memory, [first, second])
    with pytest.raises(OSError, match=r"[Ii]nput"):
        fs.exists("/d")
    assert (first.fired, second.fired, fs.fired) == (1, 0, 1)
    assert fnmatch.fnmatchcase("/d/x/a.log", "/d/*.log")


def test_before_sees_each_call_outside_the_lock(memory: MemoryFileSystem) -> None:
    seen: list[str] = []
    fs = FaultyFileSystem(memory, before=lambda call: seen.append(f"{call.op} {call.path} {fs.calls}"))
    fs.replace_file("/d/a", b"1")
    assert [line.split()[0] for line in seen] == ["create", "append", "sync", "rename", "sync_dir"]
    assert seen[-1] == "sync_dir /d 5"
