"""The log in the writing process: order, watermarks, durability, segments, failure."""

from __future__ import annotations

import errno
import functools
import gc
import operator
import os
import random
import signal
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from kudu_core.errors import Closed, Fenced, Poisoned
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.wal import RECORD_KIND_ALTER, RECORD_KIND_INGEST, RECORD_KIND_WRITE, LogOptions
from kudu_core.wal.format import RECORD_HEADER, SEGMENT_HEADER
from tests.support.cases.wal import SMALL, Tapped, commit, create, payloads, read, resume, segments, write
from tests.support.clock import Clock, ManualClock

GROUP = replace(SMALL, durability="group", group_interval_s=0.01)
NONE = replace(SMALL, durability="none")


def eventually(reached: object, timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not reached():  # type: ignore[operator]
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.002)


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


# Segments ----------------------------------------------------------------------------------------


def test_a_full_segment_is_durable_before_the_next_gets_a_record(tmp_path: Path) -> None:
    """Protocol L2: fsync of the old one, then header, fsync and directory of the new one, then the record."""
    order: list[tuple[str, str]] = []
    fs = Tapped(PosixFileSystem(), lambda operation, path: order.append((operation, os.path.basename(path))))
    log = create(tmp_path, fs=fs, options=NONE)
    while len(log.segments) == 1:
        order.clear()
        write(log, b"x" * 1000)
    old, new = (os.path.basename(segment.path) for segment in log.segments)
    steps = [step for step in order if step[0] in ("file.sync", "sync_dir", "file.pwrite", "create")]
    steps = [step for step in steps if step[1] != "COMMITTED"]
    assert steps[0] == ("file.sync", old)
    assert steps[1:5] == [
        ("create", new),
        ("file.pwrite", new),
        ("file.sync", new),
        ("sync_dir", tmp_path.name),
    ]
    assert set(steps[5:]) == {("file.pwrite", new)}
    log.close()


def test_what_slips_in_while_a_full_segment_is_synced_is_synced_too(tmp_path: Path) -> None:
    """Protocol L2: the fsync that others may append beside does not count for what they append."""
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs, options=NONE)
    while log.segments[-1].end < 7000:
        write(log, b"x" * 500)
    slipped: list[int] = []
    syncs: list[int] = []

    def tap(operation: str, path: str) -> None:
        if operation == "file.sync" and path == old:
            syncs.append(log.last_lsn)
            if not slipped:
                slipped.append(0)
                thread = threading.Thread(target=lambda: slipped.append(write(log, b"small")))
                thread.start()
                thread.join()

    old = log.segments[-1].path
    fs.tap = tap
    big = write(log, b"x" * 2000)
    assert slipped[1] < big
    assert len(syncs) == 2
    assert syncs[1] == syncs[0] + 1
    assert log.durable_ts == slipped[1]
    assert [s.last_ts for s in log.segments] == [slipped[1], big]
    log.close()


def test_a_record_larger_than_a_segment_gets_its_own(tmp_path: Path) -> None:
    log = create(tmp_path)
    big = os.urandom(50_000)
    commit(log, b"small")
    commit(log, big)
    commit(log, b"after")
    assert [s.last_lsn for s in log.segments] == [1, 2, 3]
    last = log.close()
    assert payloads(list(read(tmp_path, clean_end=last or 0).records())) == [b"small", big, b"after"]


def test_a_small_log_is_a_small_file(tmp_path: Path) -> None:
    log = create(tmp_path, options=LogOptions())
    commit(log, b"x")
    log.close()
    assert segments(tmp_path)[0].stat().st_size <= 512 << 10


def test_checkpoint_drops_what_it_covers_and_nothing_else(tmp_path: Path) -> None:
    """Protocol N4, as far as the log sees it: every record above `through` is retained."""
    log = create(tmp_path)
    stamps = [commit(log, b"x" * 1000) for _ in range(60)]
    assert len(log.segments) > 5
    for through in (stamps[3], stamps[20], stamps[20], stamps[41]):
        log.checkpoint(through, {1: 7, 9: 2})
        retained = list(tmp_path.glob("*.log"))
        assert sorted(map(str, retained)) == [s.path for s in log.segments]
        tail = read(tmp_path)
        assert [r.ts for r in tail.records()] == [ts for ts in stamps if ts > through]
        assert (tail.through, tail.checkpoint.edits) == (through, {1: 7, 9: 2})
        assert tail.sealed_segments()[0].last_ts > through
    log.close()


def test_nothing_is_dropped_before_the_checkpoint_is_durable(tmp_path: Path) -> None:
    events: list[str] = []

    def tap(operation: str, path: str) -> None:
        if operation in ("unlink", "rename") or (operation == "file.sync" and path == log.segments[-1].path):
            events.append(operation)

    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs)
    stamps = [commit(log, b"x" * 1000) for _ in range(30)]
    fs.tap = tap
    log.checkpoint(stamps[-1], {})
    assert events[0] == "file.sync"
    assert len(events) > 2
    log.close()


def test_segments_are_recycled_after_their_grace(tmp_path: Path) -> None:
    clock = ManualClock()
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs, clock=clock, options=replace(SMALL, first_fill_bytes=8 << 10))
    inodes = {}

    def until_next_segment() -> int:
        count = log.segments[-1].seq
        ts = commit(log, b"x" * 700)
        while log.segments[-1].seq == count:
            inodes[os.stat(log.segments[-1].path).st_ino] = count
            ts = commit(log, b"x" * 700)
        return ts

    for _ in range(5):
        ts = until_next_segment()
    log.checkpoint(log.committed_ts, {})
    assert len(list(tmp_path.glob("spare-*"))) == 2
    until_next_segment()
    assert len(list(tmp_path.glob("spare-*"))) == 2, "within the grace nobody may touch them"
    clock.advance(1.5)
    until_next_segment()
    assert os.stat(log.segments[-1].path).st_ino in inodes
    assert len(list(tmp_path.glob("spare-*"))) == 1
    # The rest of the recycled file holds old records: they read as the end of the log.
    ts = commit(log, b"new life")
    last = log.last_lsn
    log.abandon()
    tail = read(tmp_path)
    assert (tail.last_lsn, tail.last_ts) == (last, ts)
    assert payloads(list(tail.records()))[-1] == b"new life"


def test_a_crash_between_renaming_and_the_new_header_reads_as_an_empty_segment(tmp_path: Path) -> None:
    log = create(tmp_path)
    stamps = [commit(log, b"x" * 1000) for _ in range(30)]
    log.abandon()
    first, *_, last = segments(tmp_path)
    epoch, seq = last.stem.split("-")
    following = tmp_path / f"{epoch}-{int(seq) + 1:010d}.log"
    following.write_bytes(first.read_bytes())
    assert [r.ts for r in read(tmp_path).records()] == stamps
    log, records = resume(tmp_path, 2)
    assert [r.ts for r in records] == stamps
    assert not following.exists()
    stamps.append(commit(log, b"more"))
    log.close()
    assert [r.ts for r in read(tmp_path).records()] == stamps


# Failure -----------------------------------------------------------------------------------------


class Trouble:
    """Fails the next operations of one kind."""

    def __init__(self, operation: str, times: int = 1, only: str = ".log") -> None:
        self.operation, self.times, self.only = operation, times, only

    def __call__(self, operation: str, path: str) -> None:
        if operation == self.operation and self.times and path.endswith(self.only):
            self.times -= 1
            raise OSError(errno.EIO, "injected", path)


def test_a_failed_fsync_is_final(tmp_path: Path) -> None:
    """Protocol W8: one failure, no retry, no further record; what is visible stays visible."""
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs)
    good = commit(log, b"good")
    fs.tap = Trouble("file.sync")
    ts = write(log, b"lost?")
    with pytest.raises(Poisoned):
        log.wait_visible(ts)
    syncs = fs.counts["file.sync"]
    for call in (lambda: log.wait_durable(ts), lambda: log.append(RECORD_KIND_WRITE, 1, [b"x"])):
        with pytest.raises(Poisoned):
            call()
    log.wait_visible(good)
    assert log.visible_ts == good
    assert isinstance(log.poisoned, OSError)
    assert log.close() is None
    assert fs.counts["file.sync"] == syncs


@pytest.mark.parametrize("operation", ["file.sync", "sync_dir"])
def test_a_failed_fsync_while_changing_segments_is_final(tmp_path: Path, operation: str) -> None:
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs, options=NONE)
    fs.tap = Trouble(operation, only="" if operation == "sync_dir" else ".log")
    with pytest.raises(Poisoned):
        for _ in range(20):
            write(log, b"x" * 1000)
    with pytest.raises(Poisoned):
        log.append(RECORD_KIND_WRITE, 1, [b"x"])
    log.close()


def test_a_failed_fsync_of_the_group_thread_is_seen(tmp_path: Path) -> None:
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs, options=GROUP)
    fs.tap = Trouble("file.sync")
    ts = commit(log, b"a")
    eventually(lambda: log.poisoned is not None)
    with pytest.raises(Poisoned):
        log.append(RECORD_KIND_WRITE, 1, [b"x"])
    with pytest.raises(Poisoned):
        log.wait_durable(ts)
    log.close()


@pytest.mark.parametrize("partly", [0, 1, 39, 41, 300])
@pytest.mark.parametrize("room", [0, 4 << 10])
def test_a_failed_write_never_was(tmp_path: Path, partly: int, room: int) -> None:
    """Protocol W5: cut back, also when part of the record had reached the file."""
    fs = Tapped(PosixFileSystem())
    options = replace(SMALL, first_fill_bytes=max(room, 1), fill_bytes=max(room, 1), fill_record_bytes=room)
    log = create(tmp_path, fs=fs, options=options)
    one = commit(log, b"one")
    before = log.segments[-1].end

    def tap(operation: str, path: str) -> None:
        if operation == "file.pwrite" and path.endswith(".log") and armed:
            armed.pop()
            with open(path, "r+b") as file:
                file.seek(before)
                file.write(b"\xa5" * partly)
            raise OSError(errno.ENOSPC, "injected", path)

    armed = [1]
    fs.tap = tap
    if room and log.segments[-1].size < before + 600:
        armed = [1, 1]  # the zeros fail first, silently
    with pytest.raises(OSError, match="injected"):
        log.append(RECORD_KIND_WRITE, 1, [b"two" * 150])
    assert not armed
    assert log.poisoned is None
    assert log.applied_ts == log.last_ts == one
    three = commit(log, b"3")
    log.abandon()
    assert [r.ts for r in read(tmp_path).records()] == [one, three]


def test_a_failed_cut_poisons(tmp_path: Path) -> None:
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs)
    commit(log, b"one")
    fs.tap = Trouble("file.pwrite", times=2)
    with pytest.raises(OSError, match="injected"):
        log.append(RECORD_KIND_WRITE, 1, [b"two"])
    with pytest.raises(Poisoned):
        log.append(RECORD_KIND_WRITE, 1, [b"three"])
    log.close()


def test_a_disk_too_full_for_a_new_segment_is_no_damage(tmp_path: Path) -> None:
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs)
    stamps = []
    fs.tap = Trouble("create", times=3)
    failed = 0
    while len(stamps) < 25:
        try:
            stamps.append(commit(log, b"x" * 1000))
        except OSError:
            failed += 1
    assert failed == 3
    last = log.close()
    assert [r.ts for r in read(tmp_path, clean_end=last or 0).records()] == stamps


def test_an_exception_while_applying_poisons_and_wakes_waiters(tmp_path: Path) -> None:
    log = create(tmp_path)
    log.append(RECORD_KIND_WRITE, 1, [b"never applied"])
    two = write(log, b"2")
    failures: list[BaseException] = []

    def wait() -> None:
        try:
            log.wait_visible(two)
        except Poisoned as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: log.durable_ts == two)
    log.poison(MemoryError("while applying"))
    thread.join(5)
    assert len(failures) == 1
    assert isinstance(failures[0].__cause__, MemoryError)
    log.close()


def test_a_fenced_writer_acknowledges_nothing(tmp_path: Path) -> None:
    """Protocol P2: asked after each fsync, before COMMITTED and before anybody returns."""
    fenced = False

    def check() -> None:
        if fenced:
            raise Fenced("another writer")

    log = create(tmp_path, fence_check=check)
    good = commit(log, b"good")
    committed = (tmp_path / "COMMITTED").read_bytes()
    fenced = True
    ts = write(log, b"stale")
    with pytest.raises(Fenced):
        log.wait_visible(ts)
    assert (tmp_path / "COMMITTED").read_bytes() == committed
    assert log.committed_ts == good
    with pytest.raises(Fenced):
        log.append(RECORD_KIND_WRITE, 1, [b"x"])
    assert log.close() is None


def test_an_interrupted_wait_leaves_the_record_to_the_log_thread(tmp_path: Path) -> None:
    """Protocol W7: the watermarks advance whatever happens to the waiting thread."""
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs)

    def tap(operation: str, path: str) -> None:
        if operation == "file.sync" and armed:
            armed.pop()
            raise KeyboardInterrupt

    armed = [1]
    fs.tap = tap
    ts = write(log, b"a")
    with pytest.raises(KeyboardInterrupt):
        log.wait_visible(ts)
    eventually(lambda: log.committed_ts == ts)
    commit(log, b"b")
    log.close()


def test_what_poisoned_holds_nothing_of_the_caller(tmp_path: Path) -> None:
    """The log lives as long as the table: kept with its traceback, an error would keep every frame's rows."""
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs)

    class Rows:
        pass

    def work() -> weakref.ref[Rows]:
        rows = Rows()
        fs.tap = Trouble("file.sync")
        try:
            log.wait_durable(write(log, b"x"))
        except Poisoned:
            return weakref.ref(rows)
        raise AssertionError("not poisoned")

    held = work()
    gc.collect()
    assert isinstance(log.poisoned, OSError) and log.poisoned.errno == errno.EIO
    assert log.poisoned.__traceback__ is None and held() is None
    log.close()


def test_an_interrupted_append_never_was_or_poisons(tmp_path: Path) -> None:
    fs = Tapped(PosixFileSystem())
    log = create(tmp_path, fs=fs)
    one = commit(log, b"one")

    def tap(operation: str, path: str) -> None:
        if operation == "file.pwrite" and path.endswith(".log") and armed:
            armed.pop()
            raise KeyboardInterrupt

    armed = [1]
    fs.tap = tap
    with pytest.raises(KeyboardInterrupt):
        log.append(RECORD_KIND_WRITE, 1, [b"two"])
    assert log.poisoned is None
    three = commit(log, b"three")
    log.close()
    assert [r.ts for r in read(tmp_path).records()] == [one, three]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signals")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_any_moment_corrupt_nothing(tmp_path: Path) -> None:
    """What was acknowledged is in the log, the log never hangs, and no other record is torn."""
    rng = random.Random(2)
    log = create(tmp_path, clock=Clock())
    acknowledged: list[int] = []
    epoch = 1

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    interrupts = 0
    try:
        for _ in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00005 + rng.random() * 0.001)
                for _ in range(100):  # a destructor may swallow the interrupt
                    ts = log.append(RECORD_KIND_WRITE, 1, [b"x" * 300])
                    try:
                        log.applied(ts)
                    except BaseException as error:
                        log.poison(error)
                        raise
                    log.wait_visible(ts)
                    acknowledged.append(ts)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
            except Poisoned:
                pass
            signal.setitimer(signal.ITIMER_REAL, 0)
            if log.poisoned is not None or log.applied_ts < log.last_ts:
                log.abandon()
                epoch += 1
                log, _ = resume(tmp_path, epoch, clock=Clock())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 100
    log.close()
    found = [r.ts for r in read(tmp_path).records()]
    assert set(acknowledged) <= set(found)
    assert found == sorted(set(found))


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


def test_a_rolled_segment_can_be_dropped(tmp_path: Path) -> None:
    """Without a full one; a segment without records is not replaced."""
    log = create(tmp_path)
    commit(log, b"first")
    commit(log, b"second")
    assert len(log.segments) == 1
    through = log.committed_ts
    log.roll()
    log.roll()
    assert [segment.last_ts for segment in log.segments] == [through, through]
    log.checkpoint(through, {})
    assert len(log.segments) == 1
    commit(log, b"third")
    log.close()
    tail = read(tmp_path)
    assert tail.through == through
    assert payloads(list(tail.records()))[-1:] == [b"third"]
    tail.close()
    with pytest.raises(Closed):
        log.roll()


def test_spares_are_dropped_after_their_grace(tmp_path: Path) -> None:
    clock = ManualClock()
    log = create(tmp_path, clock=clock, options=replace(SMALL, file_grace_s=10))
    while len(log.segments) < 4:
        commit(log, bytes(100))
    log.checkpoint(log.committed_ts, {})
    spares = list(tmp_path.rglob("*spare*"))
    assert spares
    assert log.spare_bytes == log.drop_spares() == 0
    clock.advance(us=10_000_001)
    wanted = sum(path.stat().st_size for path in spares)
    assert log.spare_bytes == log.drop_spares() == wanted > 0
    assert not list(tmp_path.rglob("*spare*"))
    commit(log, b"goes on")
    log.close()
