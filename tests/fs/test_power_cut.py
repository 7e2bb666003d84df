"""What a power cut may take and what it may not, and how chosen calls fail.

The engine's crash tests stand on this: if ``MemoryFileSystem`` kept too much they would prove nothing,
if it lost too much they would refuse correct code.
"""

from __future__ import annotations

import errno
import fnmatch
import pickle
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kudu_core.errors import Locked
from kudu_core.fs import FileSystem, PosixFileSystem, is_temporary
from tests.support.fs.faulty import CHANGES, LOOKS, FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem

OLD, NEW = b"old" * 3000, b"new!" * 3000


@pytest.fixture
def memory() -> MemoryFileSystem:
    """A file system with the durable, empty directory ``/d``."""
    fs = MemoryFileSystem()
    fs.mkdir("/d")
    fs.sync_all()
    return fs


def write(fs: FileSystem, path: str, data: bytes, *, sync: bool = True) -> Any:
    file = fs.create(path)
    file.append(data)
    if sync:
        file.sync()
    return file


def cuts(fs: MemoryFileSystem, seed: int, count: int = 200) -> list[MemoryFileSystem]:
    return [fs.crash_clone(seed + i) for i in range(count)]


def outcomes(fs: MemoryFileSystem, seed: int, look: Callable[[MemoryFileSystem], Any]) -> set[Any]:
    return {look(clone) for clone in cuts(fs, seed)}


# Power cuts ------------------------------------------------------------------------------------


def test_synced_data_under_a_synced_name_are_never_lost(memory: MemoryFileSystem, seed: int) -> None:
    file = write(memory, "/d/a", OLD)
    memory.sync_dir("/d")
    file.append(NEW)
    for clone in cuts(memory, seed):
        assert clone.read_bytes("/d/a", 1 << 20)[: len(OLD)] == OLD


def test_a_synced_file_is_lost_with_its_unsynced_name(memory: MemoryFileSystem, seed: int) -> None:
    write(memory, "/d/a", OLD)
    seen = outcomes(memory, seed, lambda fs: fs.exists("/d/a") and fs.read_bytes("/d/a", 1 << 20))
    assert seen == {False, OLD}
    assert not memory.crash_clone(keep="none").exists("/d/a")
    assert memory.crash_clone(keep="all").exists("/d/a")


def test_a_synced_name_does_not_save_the_data(memory: MemoryFileSystem, seed: int) -> None:
    write(memory, "/d/a", OLD, sync=False)
    memory.sync_dir("/d")
    lengths = outcomes(memory, seed, lambda fs: len(fs.read_bytes("/d/a", 1 << 20)))
    assert {0, len(OLD)} < lengths
    assert max(lengths) == len(OLD)
    assert memory.crash_clone(keep="none").read_bytes("/d/a", 1) == b""


def test_unsynced_writes_survive_in_any_part_torn_with_zeros_in_holes(
    memory: MemoryFileSystem, seed: int
) -> None:
    file = memory.create("/d/a")
    file.append(b"0" * 10)
    file.sync()
    memory.sync_dir("/d")
    for letter in (b"A", b"B", b"C"):
        file.append(letter * 10)
    seen = outcomes(memory, seed, lambda fs: fs.read_bytes("/d/a", 100))
    for data in seen:
        assert data[:10] == b"0" * 10
        for i, code in enumerate(b"ABC"):
            assert set(data[10 + 10 * i : 20 + 10 * i]) <= {code, 0}
    assert b"0" * 10 in seen
    assert b"0" * 10 + b"A" * 10 + b"B" * 10 + b"C" * 10 in seen
    assert b"0" * 10 + b"A" * 10 in seen  # in order
    assert any(b"\0" * 10 + b"B" in data for data in seen)  # out of order: a hole
    assert any(b"A" in data and data[11:20].count(b"A") not in (0, 9) for data in seen)  # torn
    assert any(set(data[10:]) == {0} for data in seen)  # only the new length was written


def test_a_long_write_may_survive_page_by_page(memory: MemoryFileSystem, seed: int) -> None:
    file = write(memory, "/d/a", bytes(40_000))
    memory.sync_dir("/d")
    file.pwrite(b"x" * 40_000, 0)
    seen = outcomes(memory, seed, lambda fs: fs.read_bytes("/d/a", 40_000))
    assert any(data[:4096] == bytes(4096) and b"x" in data for data in seen)


def test_a_truncation_may_be_lost_but_not_after_a_sync(memory: MemoryFileSystem, seed: int) -> None:
    file = write(memory, "/d/a", b"abcdef")
    memory.sync_dir("/d")
    file.truncate(3)
    assert outcomes(memory, seed, lambda fs: fs.read_bytes("/d/a", 9)) == {b"abcdef", b"abc"}
    file.sync(data_only=True)
    assert outcomes(memory, seed, lambda fs: fs.read_bytes("/d/a", 9)) == {b"abc"}


def test_a_rename_may_be_lost_until_the_directory_is_synced(memory: MemoryFileSystem, seed: int) -> None:
    write(memory, "/d/a", OLD)
    write(memory, "/d/b", NEW)
    memory.sync_dir("/d")
    memory.rename("/d/b", "/d/a")

    def look(fs: MemoryFileSystem) -> tuple[tuple[str, bytes], ...]:
        return tuple((name, fs.read_bytes(f"/d/{name}", 1 << 20)) for name in fs.listdir("/d"))

    assert outcomes(memory, seed, look) == {(("a", OLD), ("b", NEW)), (("a", NEW),)}
    memory.sync_dir("/d")
    assert outcomes(memory, seed, look) == {(("a", NEW),)}


def test_a_rename_between_directories_is_whole_until_one_is_synced(
    memory: MemoryFileSystem, seed: int
) -> None:
    memory.mkdir("/e")
    write(memory, "/d/a", OLD)
    memory.sync_all()
    memory.rename("/d/a", "/e/a")

    def look(fs: MemoryFileSystem) -> tuple[bool, bool]:
        return fs.exists("/d/a"), fs.exists("/e/a")

    assert outcomes(memory, seed, look) == {(True, False), (False, True)}
    memory.sync_dir("/d")  # the strictest reading of POSIX: gone here, and not yet there
    assert outcomes(memory, seed, look) == {(False, False), (False, True)}
    memory.sync_dir("/e")
    assert outcomes(memory, seed, look) == {(False, True)}


def test_an_unlink_may_be_lost_and_removals_reach_the_disk_in_any_order(
    memory: MemoryFileSystem, seed: int
) -> None:
    for name in ("a", "b"):
        write(memory, f"/d/{name}", OLD)
    memory.sync_dir("/d")
    memory.unlink("/d/a")
    memory.unlink("/d/b")
    seen = outcomes(memory, seed, lambda fs: tuple(fs.listdir("/d")))
    assert seen == {(), ("a",), ("b",), ("a", "b")}


def test_a_directory_is_lost_with_everything_in_it(memory: MemoryFileSystem, seed: int) -> None:
    memory.mkdir("/d/new")
    write(memory, "/d/new/a", OLD)
    memory.sync_dir("/d/new")
    seen = outcomes(memory, seed, lambda fs: fs.exists("/d/new") and fs.listdir("/d/new") == ["a"])
    assert seen == {True, False}
    memory.sync_dir("/d")
    assert outcomes(memory, seed, lambda fs: fs.read_bytes("/d/new/a", 1 << 20)) == {OLD}


def test_hard_links_are_one_file_after_a_cut(memory: MemoryFileSystem, seed: int) -> None:
    file = write(memory, "/d/a", b"x")
    memory.link("/d/a", "/d/b")
    memory.sync_dir("/d")
    file.append(b"yz")
    for clone in cuts(memory, seed, 50):
        assert clone.stat("/d/a").inode == clone.stat("/d/b").inode
        assert clone.read_bytes("/d/a", 9) == clone.read_bytes("/d/b", 9)
        assert clone.stat("/d/a") == clone.stat("/d/b")


def test_replace_file_is_atomic_in_every_cut(seed: int, long: bool) -> None:
    seen = set()
    for case in range(5000 if long else 500):
        rng = random.Random(seed + case)
        memory = MemoryFileSystem()
        memory.mkdir("/d")
        memory.replace_file("/d/TABLE", OLD)
        memory.sync_all()
        crashing = Rule(ops=CHANGES, nth=rng.randint(1, 6), error=rng.choice(["crash", "torn", errno.EIO]))
        fs = FaultyFileSystem(memory, [crashing], seed=seed + case)
        done = False
        try:
            fs.replace_file("/d/TABLE", NEW)
            done = True
        except (SimulatedCrash, OSError):
            pass
        clone = memory.crash_clone(rng)
        found = clone.read_bytes("/d/TABLE", 1 << 20)
        assert found in (OLD, NEW), f"seed {seed + case}"
        if done:
            assert found == NEW, f"seed {seed + case}"
        others = [name for name in clone.listdir("/d") if name != "TABLE"]
        assert all(map(is_temporary, others)), f"seed {seed + case}"
        clone.replace_file("/d/TABLE", b"next")  # what was left behind is in nobody's way
        seen.add((done, found == NEW, bool(others)))
    assert {(True, True, False), (False, False, False), (False, True, False), (False, False, True)} <= seen


def test_a_cut_of_a_cut_loses_nothing_more(memory: MemoryFileSystem, seed: int) -> None:
    write(memory, "/d/a", OLD, sync=False)
    for clone in cuts(memory, seed, 50):
        tree = {name: clone.read_bytes(f"/d/{name}", 1 << 20) for name in clone.listdir("/d")}
        again = clone.crash_clone(seed)
        assert {name: again.read_bytes(f"/d/{name}", 1 << 20) for name in again.listdir("/d")} == tree


def test_the_same_seed_gives_the_same_cut_and_cuts_are_independent(
    memory: MemoryFileSystem, seed: int
) -> None:
    write(memory, "/d/a", OLD, sync=False)
    memory.sync_dir("/d")
    one, two = memory.crash_clone(seed), memory.crash_clone(random.Random(seed))
    assert one.read_bytes("/d/a", 1 << 20) == two.read_bytes("/d/a", 1 << 20)
    identity = memory.identity("/d/a")
    one.replace_file("/d/a", b"changed")
    assert memory.read_bytes("/d/a", 1 << 20) == OLD
    assert memory.identity("/d/a") == identity
    assert one.identity("/d/a") != identity


def test_a_failed_sync_loses_what_a_later_one_reports_as_saved(memory: MemoryFileSystem, seed: int) -> None:
    write(memory, "/d/a", b"head").close()
    memory.sync_dir("/d")
    fs = FaultyFileSystem(memory, [Rule(ops={"sync"}, nth=1)])
    file = fs.open_write("/d/a")
    file.append(b"lost")
    with pytest.raises(OSError, match="error"):
        file.sync()
    file.append(b"kept")
    file.sync()
    assert fs.read_bytes("/d/a", 99) == b"headlostkept"  # the page cache still shows it
    assert outcomes(memory, seed, lambda m: m.read_bytes("/d/a", 99)) == {b"head\0\0\0\0kept"}

    fs.rules.append(Rule(ops={"sync_dir"}, nth=1))
    write(fs, "/d/b", b"b")
    with pytest.raises(OSError, match="error"):
        fs.sync_dir("/d")
    fs.sync_dir("/d")
    assert fs.exists("/d/b")
    assert outcomes(memory, seed, lambda m: m.exists("/d/b")) == {False}


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
    errors: list[Any] = [errno.EIO, errno.ENOSPC, "crash", "torn", "torn-error", "short"]
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
    ("error", "number"), [("torn", None), ("torn-error", errno.EIO), ("short", errno.ENOSPC)]
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
