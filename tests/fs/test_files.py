"""What every file system promises: one set of tests for the machine's, one in memory, one wrapped."""

from __future__ import annotations

import errno
import os
import random
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kudu_core.errors import Closed, Corruption, Locked
from kudu_core.fs import FileSystem, PosixFileSystem, is_temporary
from kudu_core.fs import base as fs_base
from kudu_core.fs import posix as fs_posix
from tests.support.fs.faulty import FaultyFileSystem
from tests.support.fs.memory import MemoryFileSystem


@pytest.fixture(params=["posix", "memory", "faulty", "posix-rooted", "memory-rooted", "faulty-rooted"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    """A file system and an empty directory in it."""
    kind, _, rooted = request.param.partition("-")
    fs: FileSystem = PosixFileSystem()
    folder = str(tmp_path)
    if kind != "posix":
        memory = MemoryFileSystem(now_s=time.time)
        memory.mkdir("/d")
        fs, folder = FaultyFileSystem(memory) if kind == "faulty" else memory, "/d"
    return (fs.rooted(folder) if rooted else fs), folder


def write(fs: FileSystem, path: str, data: bytes) -> None:
    file = fs.create(path)
    file.append(data)
    file.sync()
    file.close()


# Files -----------------------------------------------------------------------------------------


def test_append_takes_any_buffers_and_returns_the_offset(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    file = fs.create(f"{d}/a")
    assert file.append(b"head") == 0
    assert file.append([b"", bytearray(b"xy"), np.arange(3, dtype="<u2"), memoryview(b"abc")[1:]]) == 4
    assert file.append([]) == 14
    assert file.append(np.empty((0, 2))) == 14
    assert file.append(tuple(np.array([9, 8], np.uint8) for _ in range(3000))) == 14
    assert file.size() == 14 + 6000
    file.close()
    assert fs.read_bytes(f"{d}/a", 10_000) == b"headxy\0\0\1\0\2\0bc" + b"\x09\x08" * 3000


def test_pwrite_leaves_zeros_in_gaps_and_moves_the_end(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    file = fs.create(f"{d}/a")
    file.pwrite([b"ab", b"cd"], 5)
    assert file.append(b"e") == 9
    file.pwrite(b"X", 6)
    file.truncate(8)
    assert file.append(b"f") == 8
    file.truncate(11)
    assert file.append(b"g") == 11
    file.sync(data_only=True)
    file.close()
    assert fs.read_bytes(f"{d}/a", 100) == b"\0\0\0\0\0aXcf\0\0g"
    again = fs.open_write(f"{d}/a")
    assert again.append(b"h") == 12
    again.close()
    assert fs.stat(f"{d}/a").size == 13


def test_reads_are_short_only_at_the_end(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    data = random.Random(1).randbytes(200_000)
    write(fs, f"{d}/a", data)
    file = fs.open_read(f"{d}/a")
    assert file.path == f"{d}/a"
    assert file.size() == len(data)
    assert file.pread(10, 5) == data[5:15]
    assert file.pread(0, 5) == b""
    assert file.pread(100, 199_990) == data[-10:]
    assert file.pread(10, 300_000) == b""
    for sizes in ([3, 0, 5], [60_000, 20_000, 1], [150_000, 40_000, 20_000, 7], []):
        got = file.preadv(sizes, 4)
        want, at = [], 4
        for size in sizes:
            want.append(data[at : at + size])
            at += size
        assert got == want
    file.close()
    file.close()


def test_a_closed_file_refuses_every_call(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    file = fs.create(f"{d}/a")
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [
        lambda: file.append(b"x"),
        lambda: file.pwrite(b"x", 0),
        file.sync,
        file.size,
        lambda: file.truncate(0),
    ]
    reader = fs.open_read(f"{d}/a")
    reader.close()
    calls += [lambda: reader.pread(1, 0), lambda: reader.preadv([1], 0), reader.size]
    for call in calls:
        with pytest.raises(Closed):
            call()


def test_create_refuses_a_taken_name_and_open_a_missing_one(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    write(fs, f"{d}/a", b"old")
    with pytest.raises(FileExistsError):
        fs.create(f"{d}/a")
    assert fs.read_bytes(f"{d}/a", 10) == b"old"
    for call in (fs.open_read, fs.open_write, fs.stat, fs.identity, fs.unlink, fs.listdir, fs.rmtree):
        with pytest.raises(FileNotFoundError):
            call(f"{d}/missing")
    with pytest.raises(FileNotFoundError):
        fs.create(f"{d}/missing/a")
    fs.unlink(f"{d}/missing", missing_ok=True)
    with pytest.raises(NotADirectoryError):
        fs.listdir(f"{d}/a")
    assert not fs.exists(f"{d}/a/b")


def test_read_bytes_refuses_what_is_too_long(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    write(fs, f"{d}/a", b"12345")
    assert fs.read_bytes(f"{d}/a", 5) == b"12345"
    with pytest.raises(Corruption, match="longer than 4 bytes"):
        fs.read_bytes(f"{d}/a", 4)


def test_an_open_file_outlives_its_name(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    write(fs, f"{d}/a", b"first")
    reader = fs.open_read(f"{d}/a")
    before = fs.identity(f"{d}/a")
    fs.replace_file(f"{d}/a", [b"sec", b"ond"])
    assert reader.pread(10, 0) == b"first"
    assert fs.read_bytes(f"{d}/a", 10) == b"second"
    assert fs.listdir(d) == ["a"]
    assert fs.identity(f"{d}/a") != before
    fs.unlink(f"{d}/a")
    assert reader.pread(10, 0) == b"first"
    reader.close()


def test_identity_tells_replacements_apart_even_when_inode_numbers_come_back(
    place: tuple[FileSystem, str],
) -> None:
    fs, d = place
    fs.replace_file(f"{d}/TABLE", b"0")
    mine = fs.identity(f"{d}/TABLE")
    assert fs.identity(f"{d}/TABLE") == mine
    for i in range(4):
        time.sleep(0.006)  # the kernel's file times move every 4 ms
        fs.replace_file(f"{d}/TABLE", b"%d" % i)
        assert fs.identity(f"{d}/TABLE") != mine
    fs.unlink(f"{d}/TABLE")
    with pytest.raises(FileNotFoundError):
        fs.identity(f"{d}/TABLE")


# Names -----------------------------------------------------------------------------------------


def test_directories(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    fs.mkdir(f"{d}/sub")
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{d}/sub")
    fs.mkdir(f"{d}/sub", exist_ok=True)
    with pytest.raises(FileNotFoundError):
        fs.mkdir(f"{d}/x/y")
    write(fs, f"{d}/sub/f", b"1")
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{d}/sub/f", exist_ok=True)
    fs.mkdir(f"{d}/sub/deep")
    write(fs, f"{d}/sub/deep/g", b"2")
    fs.sync_dir(f"{d}/sub")
    assert fs.listdir(f"{d}/sub") == ["deep", "f"]
    assert fs.is_dir(f"{d}/sub")
    assert not fs.is_dir(f"{d}/sub/f")
    assert not fs.is_dir(f"{d}/none")
    assert fs.exists(f"{d}/sub/f")
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir(f"{d}/sub")
    fs.rmtree(f"{d}/sub")
    assert fs.listdir(d) == []
    fs.mkdir(f"{d}/e")
    fs.rmdir(f"{d}/e")
    assert not fs.exists(f"{d}/e")


def test_rename_replaces_and_links_are_second_names(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    write(fs, f"{d}/a", b"a")
    write(fs, f"{d}/b", b"b")
    fs.link(f"{d}/a", f"{d}/c")
    assert fs.stat(f"{d}/a").inode == fs.stat(f"{d}/c").inode
    with pytest.raises(FileExistsError):
        fs.link(f"{d}/a", f"{d}/b")
    fs.rename(f"{d}/a", f"{d}/c")  # two names of one file: nothing happens
    assert fs.listdir(d) == ["a", "b", "c"]
    fs.rename(f"{d}/a", f"{d}/b")
    assert fs.listdir(d) == ["b", "c"]
    file = fs.open_write(f"{d}/b")
    file.append(b"!")
    file.close()
    assert fs.read_bytes(f"{d}/b", 9) == b"a!"
    assert fs.read_bytes(f"{d}/c", 9) == b"a", "what has another name is not written to"
    fs.mkdir(f"{d}/sub")
    fs.rename(f"{d}/b", f"{d}/sub/b")
    assert fs.listdir(f"{d}/sub") == ["b"]
    with pytest.raises(FileNotFoundError):
        fs.rename(f"{d}/none", f"{d}/x")
    with pytest.raises(IsADirectoryError):
        fs.rename(f"{d}/c", f"{d}/sub")
    with pytest.raises(OSError, match=r"[Ii]nvalid"):
        fs.rename(f"{d}/sub", f"{d}/sub/in")


def test_stat_has_a_time_of_the_last_write(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    write(fs, f"{d}/a", b"abc")
    found = fs.stat(f"{d}/a")
    assert found.size == 3
    assert abs(found.mtime_s - time.time()) < 60


def test_a_failed_replace_leaves_the_old_file_and_no_other(
    place: tuple[FileSystem, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, d = place
    fs.replace_file(f"{d}/a", b"old")

    def broken(*_args: object) -> None:
        assert any(is_temporary(name) for name in fs.listdir(d))
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(fs, "rename", broken)
    with pytest.raises(OSError, match="broken"):
        fs.replace_file(f"{d}/a", b"new")
    assert fs.listdir(d) == ["a"]
    assert fs.read_bytes(f"{d}/a", 10) == b"old"


# Threads ---------------------------------------------------------------------------------------


def test_a_read_begun_before_close_in_another_thread_ends_well(place: tuple[FileSystem, str]) -> None:
    fs, d = place
    for name in ("a", "b"):
        write(fs, f"{d}/{name}", name.encode() * 100_000)
    wrong: list[bytes] = []

    def read_on(file: Any) -> None:
        try:
            while True:
                data = file.pread(100_000, 0)
                if data != b"a" * 100_000:
                    wrong.append(data[:10])
        except Closed:
            pass

    for _ in range(20):
        file = fs.open_read(f"{d}/a")
        threads = [threading.Thread(target=read_on, args=(file,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        file.close()
        # Takes the freed descriptor number at once: a reader that still used it would see b's.
        other = fs.open_read(f"{d}/b")
        for thread in threads:
            thread.join()
        other.close()
    assert not wrong


# What only the machine's has ---------------------------------------------------------------------


def test_files_are_for_the_owner_only(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    old = os.umask(0)
    try:
        fs.mkdir(f"{tmp_path}/d")
        fs.create(f"{tmp_path}/d/a").close()
        fs.replace_file(f"{tmp_path}/d/b", b"x")
        fs.lease(f"{tmp_path}/d/LOCK").try_acquire()
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(f"{tmp_path}/d").st_mode) == 0o700
    for name in ("a", "b", "LOCK"):
        assert stat.S_IMODE(os.stat(f"{tmp_path}/d/{name}").st_mode) == 0o600


def test_links_put_in_place_of_files_are_not_followed(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    (tmp_path / "secret").write_bytes(b"secret")
    os.symlink(tmp_path / "secret", tmp_path / "a")
    os.symlink(tmp_path / "nowhere", tmp_path / "dangling")
    for call in (fs.open_read, fs.open_write, fs.identity, lambda p: fs.lease(p).holder()):
        with pytest.raises(Corruption, match="a link stands here"):
            call(f"{tmp_path}/a")
    with pytest.raises(Corruption, match="a link stands here"):
        fs.lease(f"{tmp_path}/a").try_acquire()
    assert fs.exists(f"{tmp_path}/dangling")  # something is there, and create must not pass through it
    with pytest.raises(FileExistsError):
        fs.create(f"{tmp_path}/dangling")
    fs.mkdir(f"{tmp_path}/tree")
    os.symlink(tmp_path, tmp_path / "tree" / "up")
    fs.rmtree(f"{tmp_path}/tree")
    assert (tmp_path / "secret").exists()


def test_a_table_directory_may_be_reached_through_a_link(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    fs.mkdir(f"{tmp_path}/real")
    os.symlink(tmp_path / "real", tmp_path / "link")
    fs.replace_file(f"{tmp_path}/link/a", b"1")
    fs.sync_dir(f"{tmp_path}/link")
    assert fs.listdir(f"{tmp_path}/real") == ["a"]


def test_descriptors_are_not_inherited_and_not_leaked(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    before = len(os.listdir("/proc/self/fd"))
    fs.replace_file(f"{tmp_path}/a", b"1")
    files: list[Any] = [fs.open_read(f"{tmp_path}/a"), fs.open_write(f"{tmp_path}/a")]
    lease = fs.lease(f"{tmp_path}/LOCK")
    lease.try_acquire()
    for fd in [file._descriptor.fd for file in files] + [lease._descriptor.fd]:
        assert not os.get_inheritable(fd)
    for file in files:
        file.close()
    lease.release()
    with pytest.raises(FileExistsError):
        fs.create(f"{tmp_path}/a")
    fs.identity(f"{tmp_path}/a")
    fs.sync_dir(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("refusal", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP])
def test_link_copies_where_links_are_impossible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    fs = PosixFileSystem()
    data = random.Random(3).randbytes(70_001)
    write(fs, f"{tmp_path}/a", data)
    synced: list[int] = []
    fsync = os.fsync

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    def note(fd: int) -> None:
        synced.append(fd)
        fsync(fd)

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(fs_base, "COPY_BYTES", 1000)
    fs.link(f"{tmp_path}/a", f"{tmp_path}/b")
    assert fs.read_bytes(f"{tmp_path}/b", 100_000) == data
    assert len(synced) == 1
    assert fs.stat(f"{tmp_path}/a").inode != fs.stat(f"{tmp_path}/b").inode
    with pytest.raises(FileExistsError):
        fs.link(f"{tmp_path}/a", f"{tmp_path}/b")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        fs.link(f"{tmp_path}/a", f"{tmp_path}/c")
    assert fs.listdir(str(tmp_path)) == ["a", "b"]


def test_short_reads_and_writes_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    pread, pwritev, pwrite = os.pread, os.pwritev, os.pwrite

    def short_pread(fd: int, n: int, offset: int) -> bytes:
        return pread(fd, rng.randint(1, n) if n else 0, offset)

    def short_pwritev(fd: int, buffers: list[memoryview], offset: int) -> int:
        joined = b"".join(buffers)
        return pwritev(fd, [joined[: rng.randint(1, len(joined))]], offset)

    def short_pwrite(fd: int, data: bytes, offset: int) -> int:
        return pwrite(fd, data[: rng.randint(1, len(data))] if data else data, offset)

    monkeypatch.setattr(os, "pread", short_pread)
    monkeypatch.setattr(os, "pwritev", short_pwritev)
    monkeypatch.setattr(os, "pwrite", short_pwrite)
    monkeypatch.setattr(fs_posix, "_IOV_MAX", 3)
    fs = PosixFileSystem()
    for i in range(30):
        pieces = [rng.randbytes(rng.randint(0, 50)) for _ in range(rng.randint(0, 12))]
        want = b"".join(pieces)
        file = fs.create(f"{tmp_path}/{i}")
        assert file.append(pieces) == 0
        assert file.append(b"end") == len(want)
        file.pwrite(b"E" + b"n" * 40 + b"d", len(want))
        file.pwrite(b"end", len(want))
        file.truncate(len(want) + 3)
        reader = fs.open_read(f"{tmp_path}/{i}")
        assert reader.pread(10_000, 0) == want + b"end"
        assert reader.preadv([len(p) for p in pieces], 0) == pieces


def test_sync_errors_pass_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = PosixFileSystem()
    file = fs.create(f"{tmp_path}/a")

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "sync failed")

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(os, "fdatasync", fail)
    calls: list[Callable[[], object]] = [
        file.sync,
        lambda: file.sync(data_only=True),
        lambda: fs.sync_dir(str(tmp_path)),
    ]
    for call in calls:
        with pytest.raises(OSError, match="sync failed"):
            call()
    with pytest.raises(OSError, match="sync failed"):
        fs.replace_file(f"{tmp_path}/b", b"new")
    assert fs.listdir(str(tmp_path)) == ["a"]
    file.close()  # never syncs


def test_a_disk_that_cannot_tell_does_not_make_files_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise fs_base.os_error(errno.EIO, "x")

    fs = PosixFileSystem()
    monkeypatch.setattr(os, "stat", fail)
    with pytest.raises(OSError, match="error"):
        fs.exists("/x")


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


_MANY = """
import resource, sys
from kudu_core.fs.posix import PosixFileSystem
hard = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
fs = PosixFileSystem()
fs.replace_file(sys.argv[1], b"x")
try:
    files = [fs.open_read(sys.argv[1]) for _ in range(100)]
    print(len(files), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
except OSError as exc:
    print(exc)
"""


def test_more_files_than_the_soft_limit_allows(tmp_path: Path) -> None:
    """A table of a thousand rowsets has as many files open; systems begin with a soft limit of 1,024."""
    path = str(tmp_path / "f")

    def run(hard: int) -> str:
        command = [sys.executable, "-c", _MANY, path, str(hard)]
        made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return made.stdout

    assert run(200) == "100 200\n"
    assert "may have 40 files open" in run(40) and "ulimit -Hn" in run(40)
