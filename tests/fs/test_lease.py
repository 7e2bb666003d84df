"""The lease between processes: who holds it, who is told, and who lets go of it how."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kudu_core.errors import Locked, NotSupported
from kudu_core.fs import FileSystem, LeaseHolder, PosixFileSystem
from kudu_core.fs import lease as lease_module

FS = PosixFileSystem()

HOLD = """
import os, sys
from kudu_core.fs import PosixFileSystem
lease = PosixFileSystem().lease(sys.argv[1])
lease.try_acquire(float(sys.argv[2]))
print("held", flush=True)
sys.stdin.readline()
lease.release()
print("released", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}/LOCK"


@pytest.fixture
def start(path: str) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts processes that hold the lease until they are told to go on."""
    started: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, path, "30"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def in_child(work: Callable[[], object]) -> str:
    """What ``work`` returns in a forked child, as JSON text, or the exception it raises."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                text = json.dumps(work())
            except BaseException as exc:  # noqa: BLE001 (the parent hears of whatever it was)
                text = repr(exc)
            os.write(writer, text.encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


def test_another_process_is_refused_and_told_who_holds_it(
    path: str, start: Callable[[], subprocess.Popen[str]]
) -> None:
    process = start()
    assert says(process) == "held"
    with pytest.raises(Locked) as caught:
        FS.lease(path).try_acquire()
    assert caught.value.pid == process.pid
    assert caught.value.host == os.uname().nodename
    assert caught.value.path == path
    assert str(process.pid) in str(caught.value)
    assert FS.lease(path).holder() == LeaseHolder(process.pid, os.uname().nodename)
    tell(process)
    assert says(process) == "released"
    # It lives on, and what it wrote stands there still; neither matters.
    assert FS.lease(path).holder() is None
    mine = FS.lease(path)
    mine.try_acquire()
    assert mine.holder() == LeaseHolder(os.getpid(), os.uname().nodename)
    mine.release()


def test_kill_9_of_the_holder_frees_the_lease(path: str, start: Callable[[], subprocess.Popen[str]]) -> None:
    process = start()
    assert says(process) == "held"
    inode = os.stat(path).st_ino
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert FS.lease(path).holder() is None
    assert os.path.exists(path)
    mine = FS.lease(path)
    mine.try_acquire()
    assert os.stat(path).st_ino == inode
    mine.release()


def test_a_waiting_process_gets_the_lease_when_it_is_free(
    path: str, start: Callable[[], subprocess.Popen[str]]
) -> None:
    mine = FS.lease(path)
    mine.try_acquire()
    process = start()
    threading.Timer(0.2, mine.release).start()
    assert says(process) == "held"
    holder = mine.holder()
    assert holder is not None
    assert holder.pid == process.pid


def test_holder_is_found_in_a_directory_one_may_only_read(
    path: str, tmp_path: Path, start: Callable[[], subprocess.Popen[str]]
) -> None:
    process = start()
    assert says(process) == "held"
    os.chmod(path, 0o444)
    os.chmod(tmp_path, 0o555)
    before = sorted((e.name, e.stat().st_mtime_ns) for e in os.scandir(tmp_path))
    closed_parents: list[tuple[Path, int]] = []

    def look() -> object:
        if os.geteuid() == 0:  # root may write anywhere: look as somebody else
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        return FS.lease(path).holder()

    def take() -> object:
        look()
        FS.lease(path).try_acquire()
        return "taken"

    try:
        for parent in tmp_path.parents:  # pytest keeps its directories for the owner
            found = os.stat(parent)
            if found.st_uid == os.geteuid() and not found.st_mode & 0o001:
                closed_parents.append((parent, found.st_mode))
                os.chmod(parent, found.st_mode | 0o011)
        assert in_child(look) == json.dumps([process.pid, os.uname().nodename])
        assert "PermissionError" in in_child(take)
    finally:
        for parent, mode in closed_parents:
            os.chmod(parent, mode)
        os.chmod(tmp_path, 0o755)
    assert sorted((e.name, e.stat().st_mtime_ns) for e in os.scandir(tmp_path)) == before


def test_a_missing_file_has_no_holder_and_none_is_made(path: str) -> None:
    assert FS.lease(path).holder() is None
    assert not os.path.exists(path)


def test_a_forked_child_cannot_give_the_lease_away(path: str) -> None:
    mine = FS.lease(path)
    mine.try_acquire()

    def child() -> object:
        inherited = mine.held
        mine.release()  # must not unlock: the lock belongs to the open file, which both have
        mine.abandon()
        try:
            FS.lease(path).try_acquire()
        except Locked as exc:
            return [inherited, exc.pid]
        return "taken"

    assert in_child(child) == json.dumps([False, os.getpid()])
    assert mine.held
    assert FS.lease(path).holder() is not None
    mine.release()
    assert FS.lease(path).holder() is None


def test_a_dropped_lease_object_frees_the_lock(path: str) -> None:
    mine = FS.lease(path)
    mine.try_acquire()
    del mine
    assert FS.lease(path).holder() is None


def test_a_replaced_lock_file_is_not_mistaken_for_the_locked_one(path: str) -> None:
    mine = FS.lease(path)
    mine.try_acquire()
    os.rename(path, path + ".moved")
    other = FS.lease(path)
    other.try_acquire()  # a stranger deleted LOCK: the fencing by TABLE's identity has to catch the old one
    assert other.held
    other.release()


def test_one_of_many_threads_gets_the_lease(path: str) -> None:
    leases = [FS.lease(path) for _ in range(16)]
    refused: list[int] = []
    barrier = threading.Barrier(16)

    def take(i: int) -> None:
        barrier.wait()
        try:
            leases[i].try_acquire()
        except Locked:
            refused.append(i)

    threads = [threading.Thread(target=take, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 15
    assert sum(lease.held for lease in leases) == 1


def test_the_hint_may_be_anything(path: str, seed: int) -> None:
    rng = random.Random(seed)
    mine = FS.lease(path)
    mine.try_acquire()
    for text in [
        b"",
        b"pid \nhost \n",
        b"pid 99999999999999999999999\n",
        "pid \u0663\n".encode(),
        b"\xff" * 600,
    ]:
        Path(path).write_bytes(text)
        assert mine.holder() == LeaseHolder(None, None)
    for _ in range(100):
        Path(path).write_bytes(rng.randbytes(rng.randint(0, 40)))
        assert mine.holder() is not None
    Path(path).write_bytes(b"")
    with pytest.raises(Locked, match="another process"):
        FS.lease(path).try_acquire()
    assert lease_module.parse_hint(lease_module.format_hint(12, "a-host")) == LeaseHolder(12, "a-host")


def test_a_full_disk_does_not_keep_anybody_from_the_lease(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> int:
        raise OSError(28, "full")

    monkeypatch.setattr(os, "pwrite", full)
    mine = FS.lease(path)
    mine.try_acquire()
    assert mine.holder() == LeaseHolder(None, None)
    mine.release()


def test_a_system_without_such_locks_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "_OFD_SETLK", 9999)
    with pytest.raises(NotSupported, match="open-file-description"):
        FS.lease(path).try_acquire()
    monkeypatch.setattr(lease_module, "_OFD_GETLK", 9999)
    with pytest.raises(NotSupported):
        FS.lease(path).holder()


# Leases: the promises that need no second process --------------------------------------------------


def test_a_lease_excludes_a_second_one_in_the_same_process(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    first = fs.lease(f"{d}/LOCK")
    assert first.holder() is None
    first.try_acquire()
    assert first.held
    second = fs.lease(f"{d}/LOCK")
    with pytest.raises(Locked) as caught:
        second.try_acquire()
    assert caught.value.pid == os.getpid()
    assert caught.value.host
    assert not second.held
    holder = second.holder()
    assert holder is not None
    assert holder.pid == os.getpid()
    # Other descriptors of the file come and go without touching the lock.
    fs.open_read(f"{d}/LOCK").close()
    assert second.holder() is not None
    first.release()
    first.release()
    assert not first.held
    assert second.holder() is None
    assert fs.exists(f"{d}/LOCK")
    second.try_acquire()
    second.release()


def test_a_lease_waits_for_as_long_as_it_is_told(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    first = fs.lease(f"{d}/LOCK")
    first.try_acquire()
    pauses: list[float] = []
    with pytest.raises(Locked):
        fs.lease(f"{d}/LOCK", sleep=pauses.append).try_acquire(0.5)
    assert sum(pauses) == pytest.approx(0.5)
    second = fs.lease(f"{d}/LOCK", sleep=lambda _s: first.release())
    second.try_acquire(60)
    assert second.held
    second.release()

    third = fs.lease(f"{d}/LOCK")
    third.try_acquire()
    timer = threading.Timer(0.05, third.release)
    timer.start()
    fourth = fs.lease(f"{d}/LOCK")
    fourth.try_acquire(30)
    timer.join()
    assert fourth.held
    fourth.release()
