"""Readers' locks of a lease's file: the holder of the lease is told that somebody reads, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kudu_core.fs import FileSystem, PosixFileSystem
from kudu_core.fs import lease as lease_module

FS = PosixFileSystem()

READ = """
import sys
from kudu_core.fs import PosixFileSystem
lock = PosixFileSystem().reader_lock(sys.argv[1])
print(lock.take(), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}/LOCK"


def test_the_holder_knows_of_readers_and_none_hinders_another(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    assert not fs.reader_lock(f"{d}/LOCK").take(), "no file, and none is made"
    assert not fs.exists(f"{d}/LOCK")
    mine = fs.lease(f"{d}/LOCK")
    assert mine.has_readers(), "who does not hold the lease cannot say"
    mine.try_acquire()
    assert not mine.has_readers()
    locks = [fs.reader_lock(f"{d}/LOCK") for _ in range(3)]
    for lock in locks:
        assert lock.take()
    for lock in locks:
        assert mine.has_readers()
        lock.release()
        lock.release()
    assert not mine.has_readers()
    assert locks[0].take()
    mine.release()
    assert mine.has_readers()
    again = fs.lease(f"{d}/LOCK")
    again.try_acquire()  # readers keep nobody from writing
    assert again.has_readers() and again.holder() is not None
    again.release()
    assert again.holder() is None, "a reader is no holder"
    locks[0].release()


def test_a_lock_goes_with_its_process(path: str) -> None:
    mine = FS.lease(path)
    mine.try_acquire()
    os.chmod(path, 0o400)  # whoever may read the file may have the lock
    process = subprocess.Popen(
        [sys.executable, "-c", READ, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "True\n"
        assert mine.has_readers()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not mine.has_readers()
    finally:
        process.kill()
        process.communicate()
        mine.release()


def test_a_child_made_by_fork_keeps_no_lock(path: str) -> None:
    mine = FS.lease(path)
    mine.try_acquire()
    lock = FS.reader_lock(path)
    assert lock.take()
    stay, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        lock.release()
        os.read(stay, 1)
        os._exit(0)
    try:
        os.close(stay)
        assert mine.has_readers(), "the parent's, whatever the child does"
        lock.release()
        assert not mine.has_readers()
    finally:
        os.close(go)
        os.waitpid(pid, 0)
        mine.release()


def test_where_there_are_no_such_locks_somebody_may_read(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = FS.lease(path)
    mine.try_acquire()
    with monkeypatch.context() as patch:
        patch.setattr(lease_module, "_OFD_SETLK", 9999)
        assert not FS.reader_lock(path).take()
    with monkeypatch.context() as patch:
        patch.setattr(lease_module, "_OFD_GETLK", 9999)
        assert mine.has_readers()
    assert not mine.has_readers()
    mine.release()
