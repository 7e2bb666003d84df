"""A crash inside a purge: the past is what it was, or nobody may read it; never a part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.lifecycle import purge
from kudu_core.table.opened.table_file import TableFile
from kudu_core.table.opened.tablets import Tablets
from tests.support.clock import ManualClock
from tests.support.faults import TINY, drop, segments_of
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of

ROOT = "/t"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
OPTIONS = {"maintenance": "manual", "history_retention_s": 0, "file_grace_s": 0}


class Killed(BaseException):
    """The process dies here."""


PLACES: dict[str, tuple[Any, str]] = {
    "before TABLE": (TableFile, "change"),
    "before the list of tablets": (Tablets, "without"),
    "before memory lets go": (purge, "_retire"),
    "before the files go": (purge, "delete_purged"),
}


@pytest.mark.parametrize("keep", ["none", "all"])
@pytest.mark.parametrize("place", PLACES)
def test_the_flush_lane_drops_the_log_at_any_moment_of_a_purge(
    place: str, keep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the dropped range are in memory and in the log alone: TABLE forgets the tablet first."""
    fs, clock = MemoryFileSystem(), ManualClock()
    ranges = kc.RangePartition("k", bounds=[(0, 100), (100, 10**6)])
    with segments_of(TINY):
        table = kc.create_table(ROOT, SCHEMA, "k", partition_by=ranges, options=OPTIONS, _fs=fs, _clock=clock)
        table.insert({"k": [1, 2, 3], "v": [1, 1, 1]})
        before = table.timestamp
        table.alter(drop_range=(0, 100))
        for step in range(40):
            clock.advance(us=10)
            table.insert({"k": list(range(100 + 20 * step, 120 + 20 * step)), "v": [0] * 20})
        engine = engine_of(table)
        maintenance = engine.maintenance
        assert maintenance is not None
        for tablet in engine.tablets:
            if tablet.dropped_ts is None:
                maintenance.flush(tablet)
        owner, name = PLACES[place]
        real: Callable[..., Any] = getattr(owner, name)
        begun = engine.log.segments[0].seq

        def killed(*_: Any) -> Any:
            monkeypatch.setattr(owner, name, real)  # what truncates the log comes here too
            maintenance.truncate_log()
            raise Killed

        monkeypatch.setattr(owner, name, killed)
        if name == "delete_purged":
            monkeypatch.setattr("kudu_core.table.lifecycle.posix_home.delete_purged", killed)
        with pytest.raises(Killed):
            table.gc()
        if place in ("before memory lets go", "before the files go"):
            assert engine.log.segments[0].seq > begun, "the log was to be dropped at this moment"
        drop(table)
        left = fs.crash_clone(0, keep=keep)
        with kc.open_table(ROOT, "rw", _fs=left, _clock=clock) as again:
            assert again.count() == 800
            try:
                assert again.count(at=before) == 3
                assert place == "before TABLE"
            except kc.SnapshotTooOld:
                assert place != "before TABLE"
