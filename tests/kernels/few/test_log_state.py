"""Appends by compiled code, and by the log in Python: the same bytes, timestamps and watermarks."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kudu_core._ext.few.log_state import LogState
from kudu_core.common.run.clock import hybrid
from kudu_core.errors import Closed, NotSupported, Poisoned
from kudu_core.fs.descriptors import opened
from kudu_core.fs.posix import PosixFileSystem, PosixWriteFile
from kudu_core.wal import RECORD_KIND_WRITE, Log, LogOptions
from tests.support.cases.wal import NONE, SMALL, Tapped, commit, create, read, write
from tests.support.clock import ManualClock

SMALL_BYTES, LARGE_BYTES = 16 << 10, 256 << 10


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = create(tmp_path / "log", options=LogOptions(durability="none"))
    commit(log, b"first")  # zeros lie ahead
    yield log
    log.close()


def plainly(log: Log, payload: bytes) -> int:
    ts = log.append_plain(RECORD_KIND_WRITE, 1, payload)
    if ts:
        log.applied(ts)
    return ts


def state_of(log: Log) -> dict[str, Any]:
    names = [name for name in vars(LogState) if not name.startswith("_")]
    simple = {name: getattr(log, name) for name in names}
    return {name: value for name, value in simple.items() if isinstance(value, int | dict)}


@pytest.mark.parametrize("durability", ["none", "sync"])
def test_both_ways_make_the_same_log(tmp_path: Path, seed: int, durability: Any) -> None:
    """Behind a file that looks at its calls every record goes the long way."""
    r = random.Random(seed)
    options = replace(SMALL, durability=durability, segment_bytes=40 << 10)
    looked = Tapped(PosixFileSystem())
    fast = create(tmp_path / "fast", options=options)
    slow = create(tmp_path / "slow", options=options, fs=looked)
    plain = 0
    for step in range(300):
        payload = r.randbytes(r.choice([0, 1, 7, 8, 9, 100, 900]) if step % 40 else 20 << 10)
        end, before = fast.active.end, looked.counts.get("file.pwrite", 0)
        stamps = [write(log, payload) for log in (fast, slow)]
        plain += fast.active.end < fast.active.filled and end < fast.active.end
        assert stamps[0] == stamps[1] and looked.counts["file.pwrite"] > before
        if r.random() < 0.1:
            for log in (fast, slow):
                log.wait_durable(stamps[0])
        assert state_of(fast) == state_of(slow)
        assert [replace(s, path="") for s in fast.segments] == [replace(s, path="") for s in slow.segments]
    assert plain > 100 and len(fast.segments) > 2
    for log in (fast, slow):
        log.close()
    names = sorted(os.listdir(tmp_path / "fast"))
    assert names == sorted(os.listdir(tmp_path / "slow"))
    for name in names:
        assert (tmp_path / "fast" / name).read_bytes() == (tmp_path / "slow" / name).read_bytes(), name


@pytest.mark.parametrize("size", [0, 1, 8, 1000, SMALL_BYTES, SMALL_BYTES + 1, 200_000])
def test_a_small_record_lies_where_zeros_do(log: Log, size: int) -> None:
    end = log.active.end
    ts = plainly(log, b"x" * size)
    assert ts == log.last_ts == log.last_record_ts == log.applied_ts == log.active.last_ts
    assert log.active.end == end + ((40 + size + 7) & ~7) and log.records == 2
    assert log.active.last_lsn == log.last_lsn == 2 and not log.in_flight


def test_what_is_not_plain_goes_the_long_way(log: Log) -> None:
    before = state_of(log)
    active, end = log.active, log.active.end
    assert log.append_plain(RECORD_KIND_WRITE, 1, bytes(LARGE_BYTES + 1)) == 0
    active.filled, filled = end + 40, active.filled
    assert log.append_plain(RECORD_KIND_WRITE, 1, b"x") == 0, "no zeros lie there"
    active.filled, active.capacity, capacity = filled, end + 40, active.capacity
    assert log.append_plain(RECORD_KIND_WRITE, 1, b"x") == 0, "the segment is full"
    active.capacity, active.following = capacity, active
    assert log.append_plain(RECORD_KIND_WRITE, 1, b"x") == 0, "the next segment takes records"
    active.following = None
    active.file, file = Tapped(PosixFileSystem()), active.file
    assert log.append_plain(RECORD_KIND_WRITE, 1, b"x") == 0, "something stands before the file"
    active.file = file
    assert state_of(log) == before and not log.in_flight
    assert plainly(log, b"x")


def test_a_log_that_refuses_does_so_in_both_ways(tmp_path: Path) -> None:
    log = create(tmp_path / "closed")
    commit(log, b"first")
    log.close()
    assert log.append_plain(RECORD_KIND_WRITE, 1, b"x") == 0
    with pytest.raises(Closed):
        write(log, b"x")
    log = create(tmp_path / "poisoned")
    commit(log, b"first")
    log.poison(OSError("the disk"))
    assert log.append_plain(RECORD_KIND_WRITE, 1, b"x") == 0
    with pytest.raises(Poisoned):
        write(log, b"x")
    log.close()


@pytest.mark.parametrize("now", [((1 << 64) - (1 << 32)) >> 12, 1 << 53])
def test_a_clock_beyond_all_timestamps(tmp_path: Path, now: int) -> None:
    clock = ManualClock()
    log = create(tmp_path / "log", clock=clock, options=NONE)
    last = commit(log, b"first")
    clock.set_us(now)
    assert hybrid(now) >= (1 << 64) - (1 << 32)
    assert log.append_plain(RECORD_KIND_WRITE, 1, b"x") == 0
    with pytest.raises(NotSupported):
        write(log, b"x")
    assert log.last_ts == last and not log.in_flight
    log.close()


class Mended(PosixWriteFile):
    """Its descriptor takes no writes; what is written with the file's own methods goes to ``real``."""

    def __init__(self, real: PosixWriteFile) -> None:
        super().__init__(real.path, opened(real.path, os.O_RDONLY), real.size())
        self.real: Any = real

    def pwrite(self, data: Any, offset: int) -> None:
        self.real.pwrite(data, offset)


def test_a_failed_write_is_cut_back(tmp_path: Path, log: Log) -> None:
    """Protocol W5."""
    end, before, file = log.active.end, state_of(log), log.active.file
    log.active.file = Mended(file)
    path = log.active.path
    with open(path, "r+b") as raw:  # as if a part had come there
        raw.seek(end)
        raw.write(b"\xa5" * 60)
    with pytest.raises(OSError, match="Bad file descriptor"):
        log.append_plain(RECORD_KIND_WRITE, 1, b"lost")
    with open(path, "rb") as raw:
        raw.seek(end)
        assert raw.read(40) == bytes(40)
    assert log.poisoned is None and state_of(log) == before and not log.in_flight
    log.active.file = file
    ts = write(log, b"next")
    log.wait_durable(ts)
    assert [r.ts for r in read(Path(path).parent).records()][-1] == ts


def test_a_failed_cut_poisons(log: Log) -> None:
    file = log.active.file
    log.active.file = Mended(file)
    log.active.file.real = None
    with pytest.raises(AttributeError):
        log.append_plain(RECORD_KIND_WRITE, 1, b"lost")
    assert isinstance(log.poisoned, OSError)
    log.active.file = file


def test_a_file_that_was_closed_takes_the_long_way(log: Log) -> None:
    file = log.active.file
    log.active.file = PosixWriteFile(file.path, opened(file.path, os.O_RDWR), file.size())
    log.active.file.close()
    assert log.append_plain(RECORD_KIND_WRITE, 1, b"x") == 0
    log.active.file = file
