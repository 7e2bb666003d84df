"""The lease where ``flock`` stands in for locks of ranges, as on macOS: one writer all the same."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.errors import Locked
from kudu_core.fs import PosixFileSystem, lease, posix

FS = PosixFileSystem()


@pytest.fixture(autouse=True)
def whole_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python without the constants, on a system without the calls."""
    monkeypatch.setattr(lease, "_WHOLE_FILES", True)
    monkeypatch.setattr(lease, "_OFD_SETLK", 9999)
    monkeypatch.setattr(lease, "_OFD_GETLK", 9999)


def test_one_has_the_lease_and_others_are_told_who(tmp_path: Path) -> None:
    path = f"{tmp_path}/LOCK"
    mine, other = FS.lease(path), FS.lease(path)
    assert mine.holder() is None
    mine.try_acquire()
    with pytest.raises(Locked) as refused:
        other.try_acquire()
    assert refused.value.pid == os.getpid()
    held = other.holder()
    assert held is not None and held.pid == os.getpid()
    mine.release()
    assert other.holder() is None
    other.try_acquire()
    assert other.holder() is not None
    other.release()


def test_a_process_that_is_killed_lets_go(tmp_path: Path) -> None:
    path = f"{tmp_path}/LOCK"
    hold = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX)\n"
        "print(1, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"1\n"
        with pytest.raises(Locked):
            FS.lease(path).try_acquire()
        holder.kill()
        holder.wait()
    mine = FS.lease(path)
    mine.try_acquire()
    mine.release()


def test_readers_have_no_lock_and_the_writer_takes_it_that_there_are_some(tmp_path: Path) -> None:
    path = f"{tmp_path}/LOCK"
    mine = FS.lease(path)
    mine.try_acquire()
    assert not FS.reader_lock(path).take()
    assert mine.has_readers()
    mine.release()


def test_a_child_of_a_fork_does_not_keep_the_lease(tmp_path: Path) -> None:
    path = f"{tmp_path}/LOCK"
    mine = FS.lease(path)
    mine.try_acquire()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    try:
        mine.release()
        other = FS.lease(path)
        other.try_acquire()
        other.release()
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(child, 0)


def test_a_table_is_written_read_and_written_again(tmp_path: Path) -> None:
    with kc.create_table(tmp_path / "t", {"k": "int64"}, "k") as table:
        table.insert([{"k": 1}])
        with kc.open_table(tmp_path / "t") as reader:
            assert reader.count() == 1
        with pytest.raises(Locked):
            kc.open_table(tmp_path / "t", "rw")
    with kc.open_table(tmp_path / "t", "rw") as table:
        table.flush()
        table.compact(full=True)
        assert table.insert([{"k": 2}]).inserted == 1
        table.verify()


def test_where_there_is_a_full_sync_it_is_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(posix, "_FULL_SYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", lambda fd, command: asked.append(command))
    file = FS.create(f"{tmp_path}/file")
    file.sync()
    file.sync(data_only=True)
    assert asked == [51, 51]
