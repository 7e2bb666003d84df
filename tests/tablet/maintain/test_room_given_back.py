"""A table that has lost most of its rows gives their room on disk back by itself, the log's included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.tablet.maintain import flush_lane, lane
from tests.support.clock import ManualClock
from tests.support.faults import segments_of
from tests.tablet.maintain.test_maintenance import eventually, stat

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.float64()), ("b", pa.int64()), ("s", pa.string())])
ROWS = 300_000
OPTIONS = {"history_retention_s": 0, "file_grace_s": 0, "flush_age_s": 0.2, "durability": "none"}
LONGEST_S = 30
SEGMENTS = {
    "usual": {},
    "small": {"segment_bytes": 1 << 20, "first_fill_bytes": 64 << 10, "fill_bytes": 256 << 10},
}
"""Of small ones many are full, and some of these kept to be written again."""


def stored(path: Path) -> int:
    """Bytes of all files."""
    found = 0
    for file in path.rglob("*"):
        try:
            found += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:  # deleted meanwhile
            continue
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("segments", SEGMENTS)
@pytest.mark.parametrize("batch_rows", [ROWS, 20_000], ids=["bulk loaded", "inserted"])
def test_deleting_most_rows_gives_their_room_back(
    tmp_path: Path, seed: int, batch_rows: int, segments: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """90% at random, then nothing is called but looks at the disk."""
    monkeypatch.setattr(lane, "POLL_S", 0.05)
    monkeypatch.setattr(flush_lane, "REST_S", 0.3)
    rng = np.random.default_rng(seed)
    path = tmp_path / "t"
    keys = rng.permutation(ROWS)
    with segments_of(SEGMENTS[segments]), kc.create_table(path, SCHEMA, "k", options=OPTIONS) as table:
        for some in np.split(keys, ROWS // batch_rows):
            words = pa.array([f"{n:x}" for n in rng.integers(0, 1 << 60, len(some)).tolist()])
            numbers = rng.integers(0, 1 << 60, len(some))
            table.insert(pa.table([some, rng.random(len(some)), numbers, words], schema=SCHEMA))
        # At rest: all in files, and no log beside it that would make the share of what is left small.
        assert eventually(lambda: stat(table, "memory_rows") == 0, LONGEST_S)
        assert eventually(lambda: table.metrics()["log_bytes"] < 64 << 10, LONGEST_S), table.metrics()
        before = stored(path / "tablets")
        gone, kept = np.split(rng.permutation(ROWS), [ROWS * 9 // 10])
        for some in np.split(gone, 27):
            table.delete({"k": some})
        assert eventually(lambda: stored(path) < 0.15 * before, LONGEST_S), (
            f"{stored(path):,} of {before:,} bytes: "
            f"{sorted((f.stat().st_size, f.name) for f in path.rglob('*'))}"
        )
        assert table.scan(["k"], order="key").to_table()["k"].to_numpy().tolist() == sorted(kept.tolist())
        table.verify()
    with kc.open_table(path) as reader:
        assert reader.count() == len(kept)


@pytest.mark.parametrize("records", [1, 3, 7, 8, 10, 11, 12, 13])
@pytest.mark.parametrize("segments", SEGMENTS)
def test_at_rest_no_segment_stays_for_the_zeros_ahead_of_its_records(
    tmp_path: Path, segments: str, records: int
) -> None:
    """Wherever in a segment the last record ends, and whatever life its file had before: what counts is its
    size.  Small segments are full after five records, and are written again."""
    clock, wal = ManualClock(), tmp_path / "t" / "wal"
    options = {"maintenance": "manual", "file_grace_s": 0, "durability": "none"}
    schema = pa.schema([("k", pa.int64()), ("b", pa.binary())])
    with (
        segments_of(SEGMENTS[segments]),
        kc.create_table(tmp_path / "t", schema, "k", options=options, _clock=clock) as table,
    ):
        empty = stored(wal)
        for number in range(records):
            table.insert({"k": [number], "b": [bytes(200 << 10)]})
            if number % 3 == 2:
                table.flush()
                clock.advance(0.01)
        table.flush()
        for _ in range(3):  # a checkpoint is a record too: then rest begins again
            clock.advance(flush_lane.REST_S + 1)
            table.maintain()
        at_rest = stored(wal)
        assert at_rest <= empty + flush_lane.REST_BYTES + (64 << 10), [f.name for f in wal.iterdir()]
        # And then it is quiet: no segment is exchanged for another one again and again.
        names = sorted(f.name for f in wal.iterdir())
        for _ in range(3):
            clock.advance(flush_lane.REST_S + 1)
            assert table.maintain() == 0
        assert sorted(f.name for f in wal.iterdir()) == names
