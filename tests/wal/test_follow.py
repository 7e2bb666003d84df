"""Protocol R1, R2 for the log: reading it beside a writer in another thread or process."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kudu_core.errors import Corruption
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.wal import RECORD_KIND_CHECKPOINT, RECORD_KIND_WRITE, Log, LogChanged, LogTail, open_log
from kudu_core.wal.open_segments import OpenSegments
from tests.support.cases.wal import SMALL, UUID, commit, create, payloads, read, resume, segments, write
from tests.support.clock import Clock, ManualClock

NONE = replace(SMALL, durability="none")


def follow(directory: Path, *, writer_alive: bool = True) -> LogTail:
    return open_log(PosixFileSystem(), str(directory), UUID, writer_alive=writer_alive)


def content(number: int) -> bytes:
    rng = random.Random(number)
    return number.to_bytes(8, "little") + rng.randbytes(rng.randrange(1200))


class Reader:
    """What a process that refreshes would do: read on, or open again when it was overtaken.

    Checks that every record is as written, that none is missing, and that no more is promised
    than was read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tail = follow(directory)
        self.reopened = 0
        self.seen: dict[int, int] = {}
        self.last = 0

    def refresh(self, *, writer_alive: bool = True) -> None:
        try:
            self.tail.read_on(writer_alive=writer_alive)
            records = list(self.tail.records())
        except LogChanged:
            self.tail.close()
            self.tail = follow(self.directory, writer_alive=writer_alive)
            self.reopened += 1
            try:
                records = list(self.tail.records())
            except LogChanged:
                return
        for record in records:
            number = int.from_bytes(record.payload[:8], "little")
            assert record.payload == content(number)
            assert self.seen.setdefault(number, record.ts) == record.ts
            self.last = max(self.last, number)
        if records:
            numbers = [int.from_bytes(r.payload[:8], "little") for r in records]
            assert numbers == list(range(numbers[0], numbers[-1] + 1)), "a record is missing"


def produce(log: Log, numbers: Iterator[int], rng: random.Random) -> None:
    """Commit numbered records; now and then a checkpoint drops or recycles what is behind."""
    for number in numbers:
        commit(log, content(number))
        if rng.random() < 0.05:
            sealed = log.segments[:-1]
            if sealed:
                log.checkpoint(rng.choice(sealed).last_ts, {1: number})


# One step at a time --------------------------------------------------------------------------------


def test_a_reader_sees_what_is_durable_and_nothing_more(tmp_path: Path) -> None:
    log = create(tmp_path, options=NONE)
    one = write(log, b"one")
    tail = follow(tmp_path)
    assert (list(tail.records()), tail.committed_ts) == ([], 0), "written is not durable"
    log.wait_durable(one)
    assert tail.read_on(writer_alive=True) == 1
    assert payloads(list(tail.records())) == [b"one"]
    assert tail.committed_ts == one
    two = write(log, b"two")
    assert tail.read_on(writer_alive=True) == 0
    log.wait_durable(two)
    write(log, b"three")
    tail.read_on(writer_alive=True)
    assert payloads(list(tail.records())) == [b"two"]
    assert tail.committed_ts == two
    log.abandon()
    assert tail.read_on(writer_alive=False) == 1, "without a writer, all of the valid log"
    assert payloads(list(tail.records())) == [b"three"]


def test_a_record_in_flight_holds_the_watermark_back(tmp_path: Path) -> None:
    log = create(tmp_path)
    one = log.append(RECORD_KIND_WRITE, 1, [b"one"])
    two = write(log, b"two")
    log.wait_durable(two)
    tail = follow(tmp_path)
    assert payloads(list(tail.records())) == [b"one", b"two"]
    assert tail.committed_ts < one
    log.applied(one)
    tail.read_on(writer_alive=True)
    assert tail.committed_ts == two, "the watermark moves although nothing was synced"
    log.close()


def test_a_reader_goes_on_through_new_segments(tmp_path: Path) -> None:
    log = create(tmp_path)
    commit(log, content(0))
    tail = follow(tmp_path)
    got = list(tail.records())
    for number in range(1, 100):
        commit(log, content(number))
        if number % 7 == 0:
            tail.read_on(writer_alive=True)
            got += tail.records()
    log.close()
    tail.read_on(writer_alive=False)
    got += tail.records()
    assert payloads(got) == [content(number) for number in range(100)]
    assert len(segments(tmp_path)) > 5


def test_a_reader_survives_truncation_of_what_it_has_open(tmp_path: Path) -> None:
    """Protocol R1: handles first.  Removed segments stay readable; their records are in the manifests too."""
    clock = ManualClock()
    log = create(tmp_path, clock=clock)
    stamps = [commit(log, content(n)) for n in range(60)]
    tail = follow(tmp_path)
    log.checkpoint(stamps[40], {1: 1})
    assert payloads(list(tail.records())) == [content(n) for n in range(60)]
    assert tail.through == 0, "of the checkpoint that the handles were opened under"
    commit(log, content(60))
    tail.read_on(writer_alive=True)
    assert payloads(list(tail.records())) == [content(60)]
    assert tail.through == 0
    fresh = follow(tmp_path)
    assert fresh.through == stamps[40]
    assert fresh.checkpoint.edits == {1: 1}
    log.close()


def test_a_recycled_segment_is_noticed(tmp_path: Path) -> None:
    """Protocol R1: after the last record every header is read again."""
    clock = ManualClock()
    log = create(tmp_path, clock=clock, options=replace(SMALL, first_fill_bytes=8 << 10))
    for number in range(40):
        commit(log, content(number))
    tail = follow(tmp_path)
    log.checkpoint(log.committed_ts, {})
    clock.advance(2)
    number = 40
    while list(tmp_path.glob("spare-*")):
        commit(log, content(number))
        number += 1
    with pytest.raises(LogChanged):
        tail.read_on(writer_alive=True)
    fresh = follow(tmp_path)
    assert payloads(list(fresh.records())) == [content(n) for n in range(40, number)]
    log.close()


def test_a_reader_follows_a_take_over(tmp_path: Path) -> None:
    log = create(tmp_path, options=NONE)
    first = write(log, b"one")
    log.wait_durable(first)
    write(log, b"two")
    tail = follow(tmp_path)
    assert payloads(list(tail.records())) == [b"one"]
    log.abandon()
    log, _ = resume(tmp_path, 2)
    commit(log, b"three")
    tail.read_on(writer_alive=True)
    assert payloads(list(tail.records())) == [b"two", b"three"]
    log.close()
    log, _ = resume(tmp_path, 3)
    commit(log, b"four")
    log.close()
    log, _ = resume(tmp_path, 4)
    tail.read_on(writer_alive=True)
    assert payloads(list(tail.records())) == [b"four"]
    log.close()


def test_damage_to_a_durable_record_is_corruption_for_a_reader_too(tmp_path: Path) -> None:
    log = create(tmp_path)
    for number in range(3):
        commit(log, content(number))
    path = segments(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[log.segments[-1].end - 20] ^= 1
    path.write_bytes(data)
    for alive in (True, False):
        with pytest.raises(Corruption):
            follow(tmp_path, writer_alive=alive)
    log.close()


def test_a_missing_beginning_is_corruption_for_a_reader_too(tmp_path: Path) -> None:
    log = create(tmp_path)
    for number in range(60):
        commit(log, content(number))
    segments(tmp_path)[0].unlink()
    for alive in (True, False):
        with pytest.raises(Corruption, match="missing"):
            follow(tmp_path, writer_alive=alive)
    log.close()


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    log = create(tmp_path)
    for number in range(40):
        commit(log, content(number))
    log.abandon()
    for path in tmp_path.iterdir():
        path.chmod(0o400)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    tail = follow(tmp_path, writer_alive=False)
    assert len(list(tail.records())) == 40
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# Side by side --------------------------------------------------------------------------------------


def test_readers_beside_a_writer_that_truncates_and_recycles(tmp_path: Path) -> None:
    """No grace here: segments are recycled under the readers as fast as they can be."""
    log = create(tmp_path, clock=Clock(), options=replace(SMALL, file_grace_s=0.0, fill_bytes=8 << 10))
    commit(log, content(0))
    done = threading.Event()
    failures: list[BaseException] = []
    readers = [Reader(tmp_path) for _ in range(2)]

    def run(reader: Reader) -> None:
        rng = random.Random(id(reader))
        try:
            while not done.is_set():
                reader.refresh()
                time.sleep(rng.random() * 0.02)
            reader.refresh()
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=run, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    try:
        produce(log, iter(range(1, 1200)), random.Random(4))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert all(reader.last == 1199 for reader in readers)
    log.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_reader_beside_writers_that_are_killed(tmp_path: Path) -> None:
    """Writers in processes of their own, one after the other, each killed at some moment.  What the
    reader was shown stays, and what a writer was promised is found by the next."""
    options = replace(SMALL, file_grace_s=0.01)
    log = create(tmp_path, clock=Clock(), options=options)
    commit(log, content(0))
    log.abandon()
    reader = Reader(tmp_path)
    rng = random.Random(8)
    number = 1
    for epoch in range(2, 8):
        receive, send = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(receive)
                writer, _ = resume(tmp_path, epoch, clock=Clock(), options=options)
                os.write(send, bytes(8))

                def acknowledged(start: int = number, out: int = send) -> Iterator[int]:
                    for n in range(start, start + 100_000):
                        yield n
                        os.write(out, n.to_bytes(8, "little"))

                produce(writer, acknowledged(), random.Random(epoch))
                status = 0
            finally:
                os._exit(status)
        os.close(send)
        with os.fdopen(receive, "rb", buffering=0) as pipe:
            assert len(pipe.read(8)) == 8, "the writer did not start"
            until = time.monotonic() + 0.05 + rng.random() * 0.2
            while time.monotonic() < until:
                reader.refresh()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            acked = number - 1
            while data := pipe.read(8):
                acked = int.from_bytes(data, "little")
        reader.refresh(writer_alive=False)
        tail = read(tmp_path)
        found = [int.from_bytes(r.payload[:8], "little") for r in tail.records()]
        assert found == list(range(found[0], found[-1] + 1))
        assert acked <= found[-1] <= acked + 1
        assert reader.last == found[-1]
        number = found[-1] + 1
        tail.close()
    assert number > 50


def test_checkpoints_are_not_handed_out(tmp_path: Path) -> None:
    log = create(tmp_path)
    ts = commit(log, b"a")
    log.checkpoint(ts - 1, {})
    tail = follow(tmp_path)
    assert [r.kind for r in tail.records()] == [RECORD_KIND_WRITE]
    assert RECORD_KIND_CHECKPOINT not in {r.kind for r in read(tmp_path).records()}
    log.close()


def test_a_listing_that_misses_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that changes while it is listed may show the segments after the copy and not the copy."""
    options = replace(SMALL, file_grace_s=3600)
    log = create(tmp_path, clock=Clock(), options=options)
    for number in range(5):
        commit(log, content(number))
    reader = Reader(tmp_path)
    reader.refresh()
    assert reader.last == 4
    log.abandon()
    log, _ = resume(tmp_path, 2, clock=Clock(), options=options)
    copy = log.segments[-1].seq
    number = 5
    while log.segments[-1].seq < copy + 2:
        commit(log, content(number))
        number += 1
    whole = OpenSegments.listed
    missed = [0]

    def listed(opened: OpenSegments, from_seq: int) -> dict[int, tuple[int, str]]:
        names = whole(opened, from_seq)
        if not missed[0] and names.get(copy, (0, ""))[0] == 2:
            missed[0] += 1
            del names[copy]
        return names

    monkeypatch.setattr(OpenSegments, "listed", listed)
    reader.refresh()
    assert missed == [1] and reader.reopened == 1
    assert reader.last == number - 1
    log.abandon()
