"""Protocol O3: which ends of a log are legal, and what a writer does with them (protocol N17)."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from kudu_core.errors import Corruption
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.wal import RECORD_KIND_WRITE, Log, read_log
from kudu_core.wal.format import RECORD_HEADER, SEGMENT_HEADER, padded
from tests.support.cases.wal import (
    SMALL,
    Tapped,
    commit,
    crashed,
    create,
    payloads,
    read,
    resume,
    segments,
    write,
)
from tests.support.clock import ManualClock

NONE = replace(SMALL, durability="none")


def extent(payload: bytes) -> int:
    return padded(RECORD_HEADER.size + len(payload))


def unsynced_tail(directory: Path, tail: list[bytes]) -> tuple[list[int], list[int]]:
    """A crashed log: three synced records, then ``tail``.  The timestamps, and where each
    record of the tail begins, then the end."""
    log = create(directory, options=NONE)
    stamps = [write(log, b"%d" % i * 30) for i in range(3)]
    log.wait_durable(stamps[-1])
    starts = []
    for payload in tail:
        starts.append(log.segments[-1].end)
        stamps.append(write(log, payload))
    starts.append(log.segments[-1].end)
    log.abandon()
    return stamps, starts


def damage(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def restore(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.write(data)
        file.truncate(len(data))


# A power cut may take what was not synced -----------------------------------------------------------


@pytest.mark.parametrize("how", ["zeros", "garbage", "end of file", "flip", "zero from the middle"])
def test_a_torn_tail_opens_at_every_byte(tmp_path: Path, how: str) -> None:
    """Protocol N17: whatever a power cut leaves of the last record, the records before it are there."""
    rng = random.Random(how)
    stamps, (start, end) = unsynced_tail(tmp_path, [os.urandom(121)])
    path = segments(tmp_path)[0]
    whole = path.read_bytes()
    for at in range(start, end):
        if how == "zeros":
            damage(path, at, bytes(end - at))
        elif how == "garbage":
            damage(path, at, rng.randbytes(end - at))
        elif how == "end of file":
            os.truncate(path, at)
        elif how == "flip":
            damage(path, at, bytes([whole[at] ^ (1 << rng.randrange(8))]))
        else:
            damage(path, start, bytes(at - start + 1))
        got = [r.ts for r in read(tmp_path).records()]
        torn = path.read_bytes()[start:end] != whole[start:end]
        assert got == (stamps[:3] if torn else stamps), (how, at)
        restore(path, whole)
    assert [r.ts for r in read(tmp_path).records()] == stamps


def test_unsynced_records_may_go_in_any_order(tmp_path: Path) -> None:
    """The disk may keep a later record and lose an earlier one: none of them was synced."""
    stamps, starts = unsynced_tail(tmp_path, [b"a" * 50, b"b" * 50, b"c" * 50])
    path = segments(tmp_path)[0]
    whole = path.read_bytes()
    for lost in range(3):
        damage(path, starts[lost], bytes(starts[lost + 1] - starts[lost]))
        assert [r.ts for r in read(tmp_path).records()] == stamps[: 3 + lost]
        log, records = resume(tmp_path, 2)
        assert len(records) == 3 + lost
        more = commit(log, b"more")
        log.abandon()
        # What the cut left behind does not come back.
        assert [r.ts for r in read(tmp_path).records()] == [*stamps[: 3 + lost], more]
        for leftover in tmp_path.iterdir():
            leftover.unlink()
        path.write_bytes(whole)


@pytest.mark.parametrize("seed", range(20))
def test_any_subset_of_unsynced_sectors_may_be_lost(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    stamps, starts = unsynced_tail(tmp_path, [rng.randbytes(rng.randrange(900)) for _ in range(5)])
    path = segments(tmp_path)[0]
    for sector in range(starts[0] // 512, starts[-1] // 512 + 1):
        lower, upper = max(sector * 512, starts[0]), min(sector * 512 + 512, starts[-1])
        if rng.random() < 0.3 and lower < upper:
            damage(path, lower, rng.choice((bytes(upper - lower), rng.randbytes(upper - lower))))
    log, records = resume(tmp_path, 2)
    got = [r.ts for r in records]
    assert got == stamps[: len(got)]
    assert len(got) >= 3
    log.close()


# Damage to what was synced ---------------------------------------------------------------------------


def test_a_flip_in_any_synced_byte_refuses(tmp_path: Path) -> None:
    """Protocol N17, without COMMITTED: each record says how far the log was synced when it was written."""
    rng = random.Random(5)
    log = create(tmp_path)
    stamps = [commit(log, rng.randbytes(40 + i)) for i in range(4)]
    log.abandon()
    (tmp_path / "COMMITTED").unlink()
    path = segments(tmp_path)[0]
    whole = path.read_bytes()
    last = SEGMENT_HEADER.size + sum(extent(b"x" * (40 + i)) for i in range(3))
    for at in range(last):
        damage(path, at, bytes([whole[at] ^ (1 << rng.randrange(8))]))
        with pytest.raises(Corruption) as caught:
            read(tmp_path)
        assert caught.value.path.startswith(str(tmp_path))
        damage(path, at, whole[at : at + 1])
    assert [r.ts for r in read(tmp_path).records()] == stamps


@pytest.mark.parametrize("proof", ["COMMITTED", "clean_end"])
def test_a_flip_in_the_last_synced_record_refuses(tmp_path: Path, proof: str) -> None:
    log = create(tmp_path)
    for _ in range(3):
        commit(log, b"x" * 60)
    end = log.segments[-1].end
    clean_end = log.close() or 0
    if proof == "clean_end":
        (tmp_path / "COMMITTED").unlink()
    else:
        clean_end = 0
    path = segments(tmp_path)[0]
    whole = path.read_bytes()
    for at in range(end - extent(b"x" * 60), end):
        damage(path, at, bytes([whole[at] ^ 1]))
        with pytest.raises(Corruption, match="had been synced"):
            read(tmp_path, clean_end=clean_end)
        damage(path, at, whole[at : at + 1])
    assert len(list(read(tmp_path, clean_end=clean_end).records())) == 3


def test_a_zeroed_or_cut_tail_of_synced_records_refuses(tmp_path: Path) -> None:
    log = create(tmp_path, options=replace(SMALL, segment_bytes=2 << 10))
    for i in range(12):
        commit(log, b"%d" % i * 200)
    clean_end = log.close() or 0
    for path in segments(tmp_path):
        whole = path.read_bytes()
        for start in range(SEGMENT_HEADER.size, len(whole), 8):
            if not any(whole[start:]):
                break
            restore(path, whole[:start] + bytes(len(whole) - start))
            with pytest.raises(Corruption):
                read(tmp_path, clean_end=clean_end)
            restore(path, whole[:start])
            with pytest.raises(Corruption):
                read(tmp_path, clean_end=clean_end)
        restore(path, whole)
    assert len(list(read(tmp_path, clean_end=clean_end).records())) == 12


def test_a_missing_segment_refuses(tmp_path: Path) -> None:
    log = create(tmp_path)
    stamps = [commit(log, b"x" * 1000) for _ in range(40)]
    log.checkpoint(stamps[10], {})
    log.abandon()
    (tmp_path / "COMMITTED").unlink()
    names = segments(tmp_path)
    assert len(names) > 3
    for name in names[:-1]:
        data = name.read_bytes()
        name.unlink()
        with pytest.raises(Corruption):
            read(tmp_path)
        name.write_bytes(data)
    assert [r.ts for r in read(tmp_path).records()] == stamps[11:]


def test_old_segments_may_go_in_any_order(tmp_path: Path) -> None:
    """Unlinking is not synced: after a crash any of the dropped segments may be back."""
    log = create(tmp_path)
    stamps = [commit(log, b"x" * 1000) for _ in range(40)]
    before = crashed(tmp_path, tmp_path.with_name("before"))
    log.checkpoint(stamps[30], {})
    log.abandon()
    dropped = sorted({p.name for p in segments(before)} - {p.name for p in segments(tmp_path)})
    assert len(dropped) >= 3
    rng = random.Random(3)
    for round_ in range(8):
        back = [name for name in dropped if rng.random() < 0.5]
        state = crashed(tmp_path, tmp_path.with_name("state"))
        for name in back:
            (state / name).write_bytes((before / name).read_bytes())
        log, records = resume(state, 2)
        assert [r.ts for r in records] == stamps[31:], (round_, back)
        log.close()


def test_what_a_takeover_replaced_may_come_back(tmp_path: Path) -> None:
    """An fsync of the directory that failed may have lost the removal of a replaced segment for good; the
    log has dropped the copy since, and the old one stands before its successors with fewer records."""
    log = create(tmp_path)
    stamps = [commit(log, b"x" * 1000) for _ in range(2)]
    log.abandon()
    [replaced] = segments(tmp_path)
    data = replaced.read_bytes()
    log, _ = resume(tmp_path, 2)
    while len(log.segments) < 3:
        stamps.append(commit(log, b"y" * 1000))
    kept = [ts for ts in stamps if ts > log.segments[0].last_ts]
    assert 2 < len(stamps) - len(kept) < len(stamps), "the copy took more records, and has successors"
    log.checkpoint(log.segments[0].last_ts, {})
    log.abandon()
    assert [p.name[9:] for p in segments(tmp_path)] == ["0000000002.log", "0000000003.log"]
    replaced.write_bytes(data)
    assert segments(tmp_path)[0] == replaced
    log, records = resume(tmp_path, 3)
    assert [r.ts for r in records] == kept
    assert not replaced.exists()
    log.close()


def test_records_of_another_table_or_segment_are_none(tmp_path: Path) -> None:
    other = create(tmp_path / "other", options=NONE)
    log = Log.create(PosixFileSystem(), str(make(tmp_path / "mine")), bytes(16), 1, clock=ManualClock())
    for each in (other, log):
        for _ in range(3):
            write(each, b"x" * 100)
    other.abandon()
    log.abandon()
    theirs, mine = segments(tmp_path / "other")[0], segments(tmp_path / "mine")[0]
    with pytest.raises(Corruption, match="another table"):
        mine.write_bytes(theirs.read_bytes())
        read_log(PosixFileSystem(), str(tmp_path / "mine"), bytes(16))


def make(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_mark_beyond_the_log_refuses(tmp_path: Path) -> None:
    log = create(tmp_path)
    ts = commit(log, b"x")
    log.close()
    tail = read(tmp_path)
    tail.check_mark(ts)
    with pytest.raises(Corruption, match="manifest"):
        tail.check_mark(ts + 1)


# Taking over -----------------------------------------------------------------------------------------


def test_a_crash_anywhere_in_the_take_over_loses_nothing(tmp_path: Path) -> None:
    """Each step of ``resume`` may be the last one; the next open finds the same records."""

    class Crash(BaseException):
        pass

    stamps, _ = unsynced_tail(make(tmp_path / "start"), [b"a" * 3000, b"b" * 3000, b"c" * 100])
    start = tmp_path / "start"
    steps = 0
    while True:
        state = crashed(start, tmp_path / "state")
        left = [steps]

        def tap(operation: str, path: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Crash

        try:
            log, records = resume(state, 2, fs=Tapped(PosixFileSystem(), tap))
        except Crash:
            after, records = resume(state, 3)
            assert [r.ts for r in records] == stamps, steps
            commit(after, b"more")
            after.close()
            assert len(segments(state)) == len(segments(start))
            steps += 1
        else:
            left[0] = 1 << 30
            log.close()
            break
    assert steps > 10


def test_after_the_take_over_everything_read_is_durable(tmp_path: Path) -> None:
    """The records of the torn segment are copied and synced before anything follows them."""
    stamps, _ = unsynced_tail(tmp_path, [b"a" * 100])
    log, _records = resume(tmp_path, 2)
    assert log.durable_ts == log.committed_ts == stamps[-1]
    assert segments(tmp_path)[0].name.startswith("00000002-")
    log.abandon()
    damage(segments(tmp_path)[0], SEGMENT_HEADER.size + 5, b"\xff")
    with pytest.raises(Corruption):
        read(tmp_path)


def test_a_stale_writer_cannot_get_into_the_log(tmp_path: Path) -> None:
    """What a writer of an older epoch still writes, also whole segments, is not read."""
    stale = create(tmp_path, options=NONE)
    stamps = [write(stale, b"x" * 500) for _ in range(3)]
    log, records = resume(tmp_path, 2, options=NONE)
    assert [r.ts for r in records] == stamps
    for _ in range(40):
        stale.append(RECORD_KIND_WRITE, 1, [b"stale" * 100])
    assert any(path.name.startswith("00000001-") for path in segments(tmp_path))
    stamps += [write(log, b"y" * 500) for _ in range(3)]
    assert [r.ts for r in read(tmp_path).records()] == stamps
    stamps += [write(log, b"y" * 500) for _ in range(40)]
    log.close()
    assert [r.ts for r in read(tmp_path).records()] == stamps
    log, records = resume(tmp_path, 3)
    assert not any(path.name.startswith("00000001-") for path in segments(tmp_path))
    log.close()
    stale.abandon()


def test_many_opens_and_crashes_keep_one_history(tmp_path: Path, seed: int = 11) -> None:
    rng = random.Random(seed)
    log = create(tmp_path, options=NONE)
    stamps: list[int] = []
    contents: list[bytes] = []
    through = 0
    for epoch in range(2, 40):
        for _ in range(rng.randrange(12)):
            contents.append(rng.randbytes(rng.randrange(2500)))
            stamps.append(write(log, contents[-1]))
            if rng.random() < 0.2:
                log.wait_durable(stamps[-1])
            if rng.random() < 0.1:
                through = rng.choice([ts for ts in [through, *stamps] if through <= ts <= log.committed_ts])
                log.checkpoint(through, {1: epoch})
        clean_end = 0
        if rng.random() < 0.5:
            clean_end = log.close() or 0
        else:
            log.abandon()
        log, records = resume(tmp_path, epoch, clean_end=clean_end, options=NONE)
        want = [(ts, data) for ts, data in zip(stamps, contents, strict=True) if ts > through]
        assert [(r.ts, bytes(r.payload)) for r in records] == want
    assert payloads(records) == [data for _, data in want]
    log.close()
