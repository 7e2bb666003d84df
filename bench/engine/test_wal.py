"""The log alone: append, fsync, answer.  The floor under every durable write.

``pytest bench/engine/test_wal.py --benchmark-enable``; the figures are the disk's as much as ours, so
each run also measures a bare ``fdatasync`` of the same bytes.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from kudu_core.common.run.clock import Clock
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.wal import RECORD_KIND_WRITE, Log, LogOptions, read_log

UUID = bytes(16)
BATCHES = 200
RECORD_BYTES = {"one row": 150, "1,000 rows": 30_000}


def make_log(path: Path, **options: Any) -> Log:
    path.mkdir()
    return Log.create(PosixFileSystem(), str(path), UUID, 1, clock=Clock(), options=LogOptions(**options))


def commit_all(log: Log, payload: list[bytes], count: int) -> None:
    for _ in range(count):
        ts = log.append(RECORD_KIND_WRITE, 1, payload)
        log.applied(ts)
        log.wait_visible(ts)


@pytest.mark.benchmark(group="log: commit 200 records")
@pytest.mark.parametrize("durability", ["sync", "group", "none"])
@pytest.mark.parametrize("size", RECORD_BYTES)
@pytest.mark.parametrize("threads", [1, 4])
def test_commit(benchmark: Any, tmp_path: Path, durability: str, size: str, threads: int) -> None:
    payload = [os.urandom(RECORD_BYTES[size] // 3)] * 3
    log = make_log(tmp_path / "wal", durability=durability)

    def run() -> None:
        workers = [
            threading.Thread(target=commit_all, args=(log, payload, BATCHES // threads))
            for _ in range(threads)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    benchmark.extra_info |= {"rows": BATCHES}  # one a record
    benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    log.close()


@pytest.mark.benchmark(group="log: commit 200 records")
@pytest.mark.parametrize("size", RECORD_BYTES)
def test_bare_fdatasync(benchmark: Any, tmp_path: Path, size: str) -> None:
    """The same bytes into a file that was written before, without a log: the disk's share."""
    payload = os.urandom(RECORD_BYTES[size])
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, bytes(len(payload) * BATCHES))
    os.fsync(descriptor)

    def run() -> None:
        for i in range(BATCHES):
            os.pwrite(descriptor, payload, i * len(payload))
            os.fdatasync(descriptor)

    benchmark.extra_info |= {"rows": BATCHES}
    benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    os.close(descriptor)


@pytest.mark.benchmark(group="log: read")
@pytest.mark.parametrize("size", RECORD_BYTES)
def test_read_8_mib(benchmark: Any, tmp_path: Path, size: str) -> None:
    """What an open reads, checks and hands out before any record is applied."""
    payload = [os.urandom(RECORD_BYTES[size])]
    log = make_log(tmp_path / "wal", durability="none")
    count = (8 << 20) // RECORD_BYTES[size]
    for _ in range(count):
        log.applied(log.append(RECORD_KIND_WRITE, 1, payload))
    last = log.close() or 0

    def run() -> int:
        tail = read_log(PosixFileSystem(), str(tmp_path / "wal"), UUID, clean_end=last)
        found = sum(1 for _ in tail.records())
        tail.close()
        return found

    benchmark.extra_info |= {"rows": count}
    assert benchmark.pedantic(run, rounds=3) == count
