"""Pieces of files kept on this machine: right or not there, whoever writes, whatever becomes of the disk."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kudu_core.fs import piece_cache as module
from kudu_core.fs.piece_cache import HEAD, PIECE_BYTES, PieceCache
from tests.support.threads import Run

GROUP = "0" * 32
SIZE = 3 * PIECE_BYTES + 1000
MOST = 1 << 30


def content(name: str) -> bytes:
    return random.Random(name).randbytes(SIZE)


@pytest.fixture
def cache(tmp_path: Path) -> PieceCache:
    return PieceCache(str(tmp_path / "cache"), 1 << 30)


def files_of(cache: PieceCache) -> list[Path]:
    return sorted(Path(cache.folder).rglob("*.pieces"))


def test_what_was_kept_is_found(cache: PieceCache, seed: int) -> None:
    """Any range of what was kept, put together of pieces; nothing of which a byte is not there."""
    rng = random.Random(seed)
    for number in range(30):
        name = f"file {number}"
        whole = content(name)
        there = bytearray(SIZE)
        for _ in range(rng.randint(1, 8)):
            offset = rng.randrange(SIZE)
            length = rng.choice((1, 7, 5000, PIECE_BYTES, SIZE))
            data = whole[offset : offset + length]
            cache.keep(GROUP, name, offset, data, MOST)
            there[offset : offset + len(data)] = b"\1" * len(data)
        readers = [cache, PieceCache(cache.folder, 1 << 30)]
        for _ in range(40):
            low, high = sorted(rng.randint(0, SIZE) for _ in range(2))
            wanted = whole[low:high] if all(there[low:high]) else None
            for reader in readers:
                assert reader.find(GROUP, name, low, high - low) == wanted
    assert cache.find(GROUP, "another", 0, 1) is None
    assert cache.find("1" * 32, "file 0", 0, 1) is None


def test_what_is_damaged_goes(cache: PieceCache) -> None:
    """Wherever a byte is flipped, or the file cut: the right bytes or none, and then it can be kept anew."""
    rng, whole = random.Random(1), content("a")[:3000]
    for at in [*range(60), *rng.sample(range(60, 3000), 60)]:
        for how in ("flip", "cut", "zero"):
            for path in files_of(cache):
                path.unlink()
            cache.keep(GROUP, "a", 0, whole[:1500], MOST)
            cache.keep(GROUP, "a", 1500, whole[1500:], MOST)
            [path] = files_of(cache)
            data = bytearray(path.read_bytes())
            at = min(at, len(data) - 1)
            if how == "flip":
                data[at] ^= 1 << rng.randrange(8)
            elif how == "cut":
                del data[at:]
            else:
                data[at:] = bytes(len(data) - at)
            path.write_bytes(data)
            for reader in (cache, PieceCache(cache.folder, 1 << 30)):
                assert reader.find(GROUP, "a", 0, 3000) in (None, whole)
                assert reader.find(GROUP, "a", 100, 1000) in (None, whole[100:1100])
            cache.keep(GROUP, "a", 0, whole, MOST)
            cache.find(GROUP, "a", 0, 3000)  # finds what a cut has left between
            cache.keep(GROUP, "a", 0, whole, MOST)
            assert cache.find(GROUP, "a", 0, 3000) == whole


def test_a_file_that_was_begun_anew(cache: PieceCache) -> None:
    """By another process, with pieces in other places, as inodes may be the same."""
    whole, other = content("a"), PieceCache(cache.folder, 1 << 30)
    cache.keep(GROUP, "a", 0, whole[:5000], MOST)
    assert cache.find(GROUP, "a", 0, 5000) == whole[:5000]
    [path] = files_of(cache)
    with path.open("r+b") as file:
        file.truncate(0)
        other.keep(GROUP, "a", 3000, whole[3000:9000], MOST)
    assert cache.find(GROUP, "a", 0, 5000) is None
    assert cache.find(GROUP, "a", 3000, 6000) in (None, whole[3000:9000])


def keep_some(folder: str, seed: int) -> None:
    cache, rng = PieceCache(folder, 1 << 30), random.Random(seed)
    for _ in range(60):
        name = f"file {rng.randrange(4)}"
        whole, offset = content(name), rng.randrange(SIZE)
        length = rng.choice((100, 40_000, 300_000))
        found = cache.find(GROUP, name, offset, length)
        assert found in (None, whole[offset : offset + length])
        if found is None:
            cache.keep(GROUP, name, offset, whole[offset : offset + length], MOST)


def test_processes_and_threads_at_once(cache: PieceCache, seed: int) -> None:
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=keep_some, args=(cache.folder, seed + n)) for n in range(2)]
    for process in others:
        process.start()
    Run(60).all(*(partial(keep_some, cache.folder, seed + n) for n in range(2, 5)))
    for process in others:
        process.join(120)
        assert process.exitcode == 0
    for name in (f"file {n}" for n in range(4)):
        whole = content(name)
        for offset in range(0, SIZE, 50_000):
            length = min(1000, SIZE - offset)
            found = PieceCache(cache.folder, 1 << 30).find(GROUP, name, offset, length)
            assert found in (None, whole[offset : offset + length])


def test_a_file_that_another_process_has_removed_and_made(cache: PieceCache) -> None:
    whole, other = content("a"), PieceCache(cache.folder, 1 << 30)
    cache.keep(GROUP, "a", 0, whole[:5000], MOST)
    assert cache.find(GROUP, "a", 0, 5000) == whole[:5000]
    files_of(cache)[0].rename(Path(cache.folder) / "kept")  # its inode is in use
    assert cache.find(GROUP, "a", 0, 5000) is None
    other.keep(GROUP, "a", 5000, whole[5000:11_000], MOST)
    other.keep(GROUP, "a", 0, whole[:5000], MOST)
    assert cache.find(GROUP, "a", 100, 10_000) == whole[100:10_100]


def test_what_is_being_written_is_not_there_yet(cache: PieceCache) -> None:
    whole = content("a")
    cache.keep(GROUP, "a", 0, whole[:5000], MOST)
    [path] = files_of(cache)
    before = path.read_bytes()
    cache.keep(GROUP, "a", 5000, whole[5000:9000], MOST)
    after = path.read_bytes()
    path.unlink()
    for end in (len(before) + 7, len(before) + HEAD.size, len(after) - 1, len(after)):
        path.write_bytes(after[:end])
        for reader in (cache, PieceCache(cache.folder, 1 << 30)):
            assert reader.find(GROUP, "a", 0, 5000) == whole[:5000]
            assert reader.find(GROUP, "a", 0, 9000) == (whole[:9000] if end == len(after) else None)


def test_what_was_used_longest_ago_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "USES_UNTOLD", 1)
    cache = PieceCache(str(tmp_path / "c"), 1 << 20)
    data = random.Random(1).randbytes(64 << 10)
    foreign = tmp_path / "c" / "mine.txt"
    cache.keep(GROUP, "0", 0, data, MOST)
    foreign.write_bytes(bytes(1 << 20))
    for number in range(1, 40):
        cache.keep(GROUP, str(number), 0, data, MOST)
        assert cache.find(GROUP, "0", 0, 10) == data[:10], "it is used all the time"
        times = {path: path.stat().st_mtime_ns for path in files_of(cache)}
        assert sum(path.stat().st_size for path in times) <= (1 << 20) + 2 * len(data)
    assert len(files_of(cache)) > 5 and foreign.exists()
    assert cache.find(GROUP, "1", 0, 10) is None


def test_no_more_than_said_is_kept_of_a_file(cache: PieceCache) -> None:
    data = bytes(1000)
    for _ in range(10):
        cache.keep(GROUP, "a", 0, data, 3200)
    assert files_of(cache)[0].stat().st_size == 3 * (1000 + HEAD.size)


@pytest.mark.parametrize("call", ["open", "writev", "fstat", "pread", "utime", "makedirs"])
def test_no_call_of_the_system_that_fails_is_an_error(
    cache: PieceCache, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.keep(GROUP, "there", 0, b"abc", MOST)
    real = getattr(os, call)
    failing: Sequence[Any] = (OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "broken"), PermissionError())
    for error in failing:

        def fails(*args: Any, _error: Any = error, **more: Any) -> Any:
            raise _error

        monkeypatch.setattr(module.os, call, fails)
        cache.keep(GROUP, "new", 0, b"abc", MOST)
        assert cache.find(GROUP, "there", 0, 3) in (None, b"abc")
        assert cache.find(GROUP, "new", 0, 3) in (None, b"abc")
        monkeypatch.setattr(module.os, call, real)
        cache.keep(GROUP, "there", 0, b"abc", MOST)
        assert cache.find(GROUP, "there", 0, 3) == b"abc"


def test_a_write_that_is_cut_short_leaves_nothing(cache: PieceCache, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.writev
    monkeypatch.setattr(module.os, "writev", lambda descriptor, parts: real(descriptor, [parts[0]]))
    cache.keep(GROUP, "a", 0, b"abc", MOST)
    assert files_of(cache) == []


def test_of_one_folder_there_is_one(tmp_path: Path) -> None:
    folder = str(tmp_path)
    first = module.piece_cache(folder, 1 << 20)
    assert module.piece_cache(folder, 1 << 21) is first and first.most_bytes == 1 << 21
