"""The log in the writing process: order, watermarks and durability."""

from __future__ import annotations

import functools
import operator
import random
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kudu_core.errors import Closed
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.wal import RECORD_KIND_ALTER, RECORD_KIND_INGEST, RECORD_KIND_WRITE
from kudu_core.wal.format import RECORD_HEADER, SEGMENT_HEADER
from tests.support.cases.wal import (
    GROUP,
    NONE,
    SMALL,
    Tapped,
    commit,
    create,
    eventually,
    payloads,
    read,
    resume,
    write,
)
from tests.support.clock import Clock, ManualClock

# Order -------------------------------------------------------------------------------------------


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    rng = random.Random(1)
    log = create(tmp_path)
    want = []
    for i in range(200):
        parts = [rng.randbytes(rng.choice((0, 1, 7, 8, 63, 500, 3000))) for _ in range(rng.randrange(4))]
        kind = rng.choice((RECORD_KIND_WRITE, RECORD_KIND_INGEST, RECORD_KIND_ALTER))
        ts = log.append(kind, i, parts)
        log.applied(ts)
        want.append((i + 1, ts, kind, i, b"".join(parts)))
    last = log.close()
    tail = read(tmp_path, clean_end=last or 0)
    assert [(r.lsn, r.ts, r.kind, r.schema_version, bytes(r.payload)) for r in tail.records()] == want
    assert (tail.last_lsn, tail.last_ts) == (200, want[-1][1])


def test_parts_may_be_any_contiguous_buffer(tmp_path: Path) -> None:
    log = create(tmp_path)
    numbers = memoryview(b"12345678" * 3).cast("q")
    write(log, b"a", bytearray(b"bc"), memoryview(b""), numbers, memoryview(b"xy"))  # type: ignore[arg-type]
    log.close()
    assert payloads(list(read(tmp_path).records())) == [b"abc" + b"12345678" * 3 + b"xy"]


def test_timestamps_strictly_increase_though_the_clock_goes_back(tmp_path: Path) -> None:
    """Protocol L1 and N1, also over reopening and a takeover."""
    clock = ManualClock()
    log = create(tmp_path, clock=clock)
    seen = [write(log, b"a"), write(log, b"b")]
    clock.advance(1)
    seen.append(write(log, b"c"))
    clock.set_us(clock.now_us() - 3_600_000_000)
    seen += [write(log, b"d") for _ in range(3)]
    log.wait_durable(seen[-1])
    log.abandon()  # as a crash would
    log, records = resume(tmp_path, 2, clock=clock)
    assert [r.ts for r in records] == seen
    seen.append(write(log, b"e"))
    log.close()
    log, records = resume(tmp_path, 3, clock=clock)
    assert log.last_ts == seen[-1] == log.durable_ts == log.committed_ts == log.applied_ts
    seen.append(write(log, b"f"))
    assert seen == sorted(set(seen))
    log.close()


def test_a_reserved_timestamp_is_not_given_to_a_record_and_is_no_cut(tmp_path: Path) -> None:
    log = create(tmp_path)
    first = commit(log, b"a")
    assert log.raise_last_ts(first + 100) == first
    log.wait_visible(first + 100)
    assert log.applied_ts == first + 100
    assert log.committed_ts == first, "other processes learn only what is on disk"
    assert log.cut() == first
    assert write(log, b"b") > first + 100
    log.close()


# Watermarks --------------------------------------------------------------------------------------


def test_watermarks_stop_before_the_oldest_record_in_flight(tmp_path: Path) -> None:
    """Protocol N10: W <= A and W <= durable."""
    log = create(tmp_path)
    zero = commit(log, b"0")
    one = log.append(RECORD_KIND_WRITE, 1, [b"1"])
    two = log.append(RECORD_KIND_WRITE, 1, [b"2"])
    log.applied(two)
    log.wait_durable(two)
    assert log.durable_ts == two
    assert zero <= log.committed_ts < one
    assert zero <= log.applied_ts < one
    log.applied(one)
    assert log.applied_ts == log.committed_ts == two
    log.close()


def test_sync_returns_when_durable_and_applied_in_order(tmp_path: Path) -> None:
    log = create(tmp_path)
    one = log.append(RECORD_KIND_WRITE, 1, [b"1"])
    two = write(log, b"2")
    done = threading.Event()
    thread = threading.Thread(target=lambda: (log.wait_visible(two), done.set()))
    thread.start()
    eventually(lambda: log.durable_ts == two)
    assert not done.wait(0.05), "an earlier record is not applied yet"
    log.applied(one)
    assert done.wait(5)
    thread.join()
    assert log.visible_ts == two
    log.close()


def test_group_answers_at_once_and_syncs_within_the_interval(tmp_path: Path) -> None:
    log = create(tmp_path, options=GROUP)
    ts = commit(log, b"a")
    assert log.visible_ts == ts
    eventually(lambda: log.committed_ts == ts)
    syncs = log.fsyncs
    time.sleep(0.05)
    assert log.fsyncs == syncs, "nothing new, nothing to sync"
    log.close()


def test_none_syncs_only_when_asked(tmp_path: Path) -> None:
    log = create(tmp_path, options=NONE)
    one = commit(log, b"a")
    commit(log, b"b")
    assert (log.fsyncs, log.durable_ts, log.committed_ts) == (0, 0, 0)
    log.wait_durable(one)
    assert log.fsyncs == 1
    assert log.committed_ts == log.last_ts
    commit(log, b"c")
    log.close()
    assert log.fsyncs == 2


def test_many_waiters_share_one_fsync(tmp_path: Path) -> None:
    gate = threading.Event()
    first = threading.Event()

    def tap(operation: str, path: str) -> None:
        if operation == "file.sync" and path.endswith(".log") and not first.is_set() and armed:
            first.set()
            assert gate.wait(10)

    armed = False
    fs = Tapped(PosixFileSystem(), tap)
    log = create(tmp_path, fs=fs)
    armed = True
    threads = [threading.Thread(target=commit, args=(log, b"x" * 50)) for _ in range(17)]
    threads[0].start()
    assert first.wait(10)
    for thread in threads[1:]:
        thread.start()
    eventually(lambda: log.last_lsn == 17)
    gate.set()
    for thread in threads:
        thread.join()
    assert log.fsyncs == 2, "one was running; the sixteen that came meanwhile share the next"
    log.close()


def test_threads_commit_in_log_order(tmp_path: Path) -> None:
    log = create(tmp_path, clock=Clock(), options=replace(SMALL, segment_bytes=64 << 10))
    stamps: list[list[int]] = [[] for _ in range(6)]

    def work(mine: list[int], name: int) -> None:
        for i in range(40):
            ts = commit(log, b"%d-%d" % (name, i) * 20)
            assert log.committed_ts >= ts
            assert log.visible_ts >= ts
            mine.append(ts)

    threads = [threading.Thread(target=work, args=(mine, k)) for k, mine in enumerate(stamps)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = log.close()
    assert all(mine == sorted(mine) for mine in stamps)
    assert [r.ts for r in read(tmp_path, clean_end=last or 0).records()] == sorted(
        functools.reduce(operator.iadd, stamps, [])
    )


def test_a_closed_log_refuses(tmp_path: Path) -> None:
    log = create(tmp_path)
    commit(log, b"a")
    assert log.close() == 1
    assert log.close() == 1
    with pytest.raises(Closed):
        log.append(RECORD_KIND_WRITE, 1, [b"x"])


def test_record_positions_follow_the_documented_sizes(tmp_path: Path) -> None:
    log = create(tmp_path)
    write(log, b"123")
    assert log.segments[0].end == SEGMENT_HEADER.size + RECORD_HEADER.size + 8
    assert log.bytes_retained == log.segments[0].end
    log.close()
