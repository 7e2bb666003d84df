"""What every file system promises: one set of tests for the machine's, one in memory, one wrapped."""

from __future__ import annotations

import errno
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kudu_core.errors import Closed, Corruption
from kudu_core.fs import FileSystem, is_temporary


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
    with pytest.raises((NotADirectoryError, Corruption)):
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
