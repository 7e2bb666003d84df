"""Segments of the log: when one is full, when it may go, and when it is used again."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kudu_core.errors import Closed
from kudu_core.fs.posix import PosixFileSystem, PosixWriteFile
from kudu_core.wal import LogOptions
from tests.support.cases.wal import (
    NONE,
    SMALL,
    Tapped,
    commit,
    create,
    payloads,
    read,
    resume,
    segments,
    write,
)
from tests.support.clock import ManualClock

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
    assert steps[1:6] == [
        ("create", new),
        ("file.pwrite", new),  # zeros in the place of the header
        ("file.pwrite", new),
        ("file.sync", new),
        ("sync_dir", tmp_path.name),
    ]
    assert set(steps[6:]) == {("file.pwrite", new)}
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


def test_zeros_are_written_ahead_in_small_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one call writes may be one folio of the page cache, which makes each record in it expensive."""
    written: list[tuple[int, int]] = []
    real = PosixWriteFile.pwrite

    def pwrite(file: PosixWriteFile, data: Any, offset: int) -> None:
        if file.path.endswith(".log"):
            written.append((offset, len(data)))
        real(file, data, offset)

    monkeypatch.setattr(PosixWriteFile, "pwrite", pwrite)
    sizes = {"segment_bytes": 1 << 20, "first_fill_bytes": 200 << 10, "fill_bytes": 400 << 10}
    log = create(tmp_path, options=LogOptions(durability="none", **sizes))
    write(log, b"x" * 1000)
    pieces = [(offset, offset + size) for offset, size in written if size > 2000]
    borders = [64, *(number << 16 for number in range(1, 4)), 64 + (200 << 10)]
    assert pieces == list(pairwise(borders))
    segment = log.segments[-1]
    assert os.stat(segment.path).st_size == segment.size == borders[-1]
    while log.segments[-1].end <= borders[-1]:
        write(log, b"x" * 1000)
    pieces = [(offset, offset + size) for offset, size in written if size > 2000]
    assert len(pieces) > 4 and all(end - begin <= 1 << 16 for begin, end in pieces)
    assert [end for _, end in pieces[:-1]] == [begin for begin, _ in pieces[1:]], "no gap, and nothing twice"
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
