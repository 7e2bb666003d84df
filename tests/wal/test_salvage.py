"""What is left of a damaged log: every sound record that was durable, and where others were."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kudu_core.fs.posix import PosixFileSystem
from kudu_core.wal.format import RECORD_HEADER, SEGMENT_HEADER, padded
from kudu_core.wal.salvage import LogGap, salvage_log
from tests.support.cases.wal import UUID, commit, create, segments

RECORDS = 120


@pytest.fixture
def times(tmp_path: Path) -> list[int]:
    """A log of several segments, closed; the times of its records."""
    rng = random.Random(7)
    log = create(tmp_path / "wal")
    found = [commit(log, rng.randbytes(300)) for _ in range(RECORDS)]
    assert log.close() == RECORDS
    assert len(segments(tmp_path / "wal")) >= 4
    return found


def left(
    tmp_path: Path, uuid: bytes | None = UUID, clean_end: int = RECORDS
) -> tuple[list[int], list[LogGap]]:
    log = salvage_log(PosixFileSystem(), str(tmp_path / "wal"), uuid, clean_end=clean_end)
    try:
        found = [record.ts for record in log]
        assert log.records == len(found)
        return found, log.gaps
    finally:
        log.close()


def offsets(segment: Path) -> list[int]:
    data, at, found = segment.read_bytes(), SEGMENT_HEADER.size, []
    while at + RECORD_HEADER.size <= len(data):
        length = RECORD_HEADER.unpack_from(data, at)[0]
        if not length:
            break
        found.append(at)
        at += padded(length)
    return found


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def test_a_sound_log(times: list[int], tmp_path: Path) -> None:
    assert left(tmp_path) == (times, [])
    assert left(tmp_path, None) == (times, [])


@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize("segment", [0, 1, -1])
def test_one_record_is_damaged(times: list[int], tmp_path: Path, segment: int, place: int) -> None:
    path = segments(tmp_path / "wal")[segment]
    before = sum(len(offsets(p)) for p in segments(tmp_path / "wal") if p < path)
    here = offsets(path)
    number = before + (place if place >= 0 else len(here) - 1)
    flip(path, here[place] + RECORD_HEADER.size + 3)
    found, gaps = left(tmp_path)
    assert found == times[:number] + times[number + 1 :]
    assert len(gaps) == 1 and gaps[0].records == 1
    assert gaps[0].after_ts == (times[number - 1] if number else 0)
    if number + 1 < RECORDS:
        assert gaps[0].before_ts is not None and times[number] < gaps[0].before_ts <= times[number + 1]
    else:
        assert gaps[0].before_ts is None


def test_a_header_is_damaged(times: list[int], tmp_path: Path) -> None:
    """The name says which segment it is, and the records prove it."""
    for path in segments(tmp_path / "wal"):
        flip(path, 20)
        assert left(tmp_path) == (times, []), path.name
        flip(path, 20)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_segment_is_missing(times: list[int], tmp_path: Path, which: int) -> None:
    path = segments(tmp_path / "wal")[which]
    before = sum(len(offsets(p)) for p in segments(tmp_path / "wal") if p < path)
    mine = len(offsets(path))
    path.unlink()
    found, gaps = left(tmp_path)
    assert found == times[:before] + times[before + mine :]
    assert len(gaps) == 1 and gaps[0].records == (None if which == 0 else mine)


def test_what_was_not_durable_is_no_loss(times: list[int], tmp_path: Path) -> None:
    """Nothing behind a torn record that no fsync covered is believed: nobody was told of it."""
    path = segments(tmp_path / "wal")[-1]
    here = offsets(path)
    (tmp_path / "wal" / "COMMITTED").unlink()
    flip(path, here[-1] + RECORD_HEADER.size)
    assert left(tmp_path, clean_end=0) == (times[:-1], [])
    assert len(left(tmp_path)[1]) == 1, "a clean close says that it was"


def test_segments_of_another_table(times: list[int], tmp_path: Path) -> None:
    log = salvage_log(PosixFileSystem(), str(tmp_path / "wal"), bytes(16))
    assert not log.records and len(log.unused) == len(segments(tmp_path / "wal")) and log.gaps
    log.close()


def test_two_segments_that_changed_names(times: list[int], tmp_path: Path) -> None:
    """The headers say which is which."""
    one, two, *_ = segments(tmp_path / "wal")
    one.rename(tmp_path / "x")
    two.rename(one)
    (tmp_path / "x").rename(two)
    assert left(tmp_path) == (times, [])


@pytest.mark.parametrize("case", range(25))
def test_random_damage(times: list[int], tmp_path: Path, case: int, seed: int) -> None:
    """What is read was written, in order; what is not lies in a gap."""
    rng = random.Random(seed * 100 + case)
    for path in rng.sample(segments(tmp_path / "wal"), 2):
        data = bytearray(path.read_bytes())
        at = rng.randrange(len(data))
        length = rng.choice((1, 8, 600, 5000))
        data[at : at + length] = rng.randbytes(len(data[at : at + length]))
        if rng.random() < 0.2:
            del data[at:]
        path.write_bytes(data)
    found, gaps = left(tmp_path)
    assert found == [time for time in times if time in set(found)]
    for time in set(times) - set(found):
        assert any(g.after_ts < time and (g.before_ts is None or time < g.before_ts) for g in gaps), time
    assert sum(gap.records or 0 for gap in gaps) <= RECORDS - len(found)


def test_nothing_is_there(tmp_path: Path) -> None:
    assert len(left(tmp_path)[1]) == 1
    (tmp_path / "wal").mkdir()
    assert len(left(tmp_path)[1]) == 1
    assert len(left(tmp_path, None)[1]) == 1
