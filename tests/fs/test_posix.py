"""The file system of the machine: rights, links, descriptors, short reads and writes, errors."""

from __future__ import annotations

import errno
import os
import random
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kudu_core.errors import Corruption
from kudu_core.fs import PosixFileSystem
from kudu_core.fs import base as fs_base
from kudu_core.fs import posix as fs_posix
from tests.fs.test_files import write

# What only the machine's has ---------------------------------------------------------------------


@pytest.mark.parametrize(("mask", "folder", "file"), [(0o022, 0o755, 0o644), (0o077, 0o700, 0o600)])
def test_what_is_made_follows_the_umask(tmp_path: Path, mask: int, folder: int, file: int) -> None:
    fs = PosixFileSystem()
    old = os.umask(mask)
    try:
        fs.mkdir(f"{tmp_path}/d")
        fs.create(f"{tmp_path}/d/a").close()
        fs.replace_file(f"{tmp_path}/d/b", b"x")
        fs.link(f"{tmp_path}/d/a", f"{tmp_path}/d/c")
        fs.lease(f"{tmp_path}/d/LOCK").try_acquire()
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(f"{tmp_path}/d").st_mode) == folder
    for name in ("a", "b", "c", "LOCK"):
        assert stat.S_IMODE(os.stat(f"{tmp_path}/d/{name}").st_mode) == file


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
    for fd in [file.descriptor.fd for file in files] + [lease._descriptor.fd]:
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
