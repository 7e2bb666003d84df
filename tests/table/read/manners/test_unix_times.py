"""Seconds since 1970, and their parts, are no timestamps: ``at=``, ``since=`` and ``until=`` say so."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kudu_core as kc
from kudu_core.common.run.clock import hybrid
from tests.support.clock import ManualClock
from tests.support.tables import Make

MEANT = 1_767_225_600
NUMBERS = {"seconds": MEANT, "milliseconds": MEANT * 10**3, "microseconds": MEANT * 10**6}
NUMBERS["nanoseconds"] = MEANT * 10**9
DOORS: dict[str, Callable[[kc.Table, Any], Any]] = {
    "scan": lambda t, at: t.scan(at=at),
    "get": lambda t, at: t.get(1, at=at),
    "get_many": lambda t, at: t.get_many([1], at=at),
    "count": lambda t, at: t.count(at=at),
    "snapshot": lambda t, at: t.snapshot(at),
    "dataset": lambda t, at: t.to_dataset(at=at),
    "tokens": lambda t, at: t.scan_tokens(at=at),
    "since": lambda t, at: t.changes(since=at),
    "until": lambda t, at: t.changes(since=0, until=at),
    "change tokens": lambda t, at: t.change_tokens(at),
}


@pytest.fixture(params=["nothing", "memory", "files", "a file of one time"])
def table(make: Make, request: pytest.FixtureRequest) -> kc.Table:
    made = make()
    for k in range(0 if request.param == "nothing" else 3 if request.param != "a file of one time" else 1):
        made.insert([{"k": k}])
    if "file" in request.param:
        made.flush()
    return made


@pytest.mark.parametrize("unit", NUMBERS)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_them(table: kc.Table, door: str, unit: str) -> None:
    told = rf"{NUMBERS[unit]} looks like {unit} since 1970: give an aware datetime, .*2026-01-01T00:00:00\+00"
    with pytest.raises(kc.InvalidArgument, match=told):
        DOORS[door](table, NUMBERS[unit])
    with pytest.raises(kc.InvalidArgument, match=told):
        DOORS[door](table, np.int64(NUMBERS[unit]))


def test_now_is_refused_in_every_unit(make: Make) -> None:
    table = make()
    for number in (int(time.time()), time.time_ns() // 10**6, time.time_ns() // 1000, time.time_ns()):
        with pytest.raises(kc.InvalidArgument, match="since 1970"):
            table.count(at=number)


@pytest.mark.parametrize("number", [0, 1, 4096, 10**6, 2**55])
def test_other_numbers_before_the_first_write_are_what_they_were(make: Make, number: int) -> None:
    table = make()
    table.insert([{"k": 1}])
    assert table.count(at=number) == 0 and table.changes(since=0, until=number).to_table().num_rows == 0


def test_a_reader_refuses_them_too(make: Make) -> None:
    table = make(durability="sync")
    table.insert([{"k": 1}])
    with kc.open_table(table.path) as reader:
        for number in NUMBERS.values():
            with pytest.raises(kc.InvalidArgument, match="since 1970"):
                reader.scan(at=number)
        assert reader.count(at=table.timestamp) == 1


def test_of_history_that_is_gone_it_is_said_too(tmp_path: Path) -> None:
    clock = ManualClock()
    options = kc.Options(maintenance="manual", history_retention_s=0)
    columns = [kc.Column("k", "int64")]
    with kc.create_table(tmp_path / "t", columns, "k", options=options, _clock=clock) as table:
        table.insert([{"k": 1}])
        table.flush()
        clock.advance(100)
        table.gc()
        table.compact(full=True)
        with pytest.raises(kc.InvalidArgument, match="looks like seconds since 1970"):
            table.changes(since=MEANT)


@pytest.mark.parametrize("state", ["memory", "changed", "files", "merged", "reader"])
@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_no_timestamp_of_a_write_is_refused(tmp_path: Path, unit: int, state: str) -> None:
    """A machine without a battery begins in 1970: its first timestamps are such numbers."""
    clock = ManualClock((700_000_000 * unit >> 12) + 1)
    options = kc.Options(maintenance="manual", history_retention_s=None)
    columns = [kc.Column("k", "int64"), kc.Column("v", "int64")]
    with kc.create_table(tmp_path / "t", columns, "k", options=options, _clock=clock) as table:
        stamps = []
        for k in range(5):
            stamps.append(table.insert([{"k": k, "v": k}]).timestamp)
            clock.advance(us=1)
        stamps.append(table.delete([{"k": 0}]).timestamp)
        assert all(630_000_000 * unit <= ts < 4_500_000_000 * unit for ts in stamps)
        clock.set_us(int(datetime(2026, 6, 1, tzinfo=UTC).timestamp()) * 10**6)
        table.upsert([{"k": 1, "v": 9}])
        if state != "memory":
            table.flush()
        if state == "changed":
            table.delete([1, 2, 3, 4])
        if state == "merged":
            table.upsert([{"k": 7, "v": 9}])
            table.flush()
            table.compact(full=True)
        held = kc.open_table(table.path, _clock=clock) if state == "reader" else table
        with held:
            for number, ts in enumerate(stamps):
                expected = min(number + 1, 5) - (number == 5)
                assert held.count(at=ts) == expected
                assert held.scan(at=ts + 1 if number == 5 else ts).count() == expected
                assert held.changes(since=ts).since == ts
            with pytest.raises(kc.InvalidArgument, match="since 1970"):
                held.count(at=stamps[0] - 1)


def test_no_timestamp_of_a_new_range_is_refused(tmp_path: Path) -> None:
    clock = ManualClock(700_000_000 * 10**3 >> 12)
    ranges = kc.RangePartition("k", [(0, 10)])
    columns = [kc.Column("k", "int64")]
    with kc.create_table(tmp_path / "t", columns, "k", partition_by=ranges, _clock=clock) as table:
        at = table.alter(add_range=(10, 20))
        clock.set_us(int(datetime(2026, 6, 1, tzinfo=UTC).timestamp()) * 10**6)
        table.insert([{"k": 1}])
        assert table.count(at=at) == 0
        with pytest.raises(kc.InvalidArgument, match="looks like milliseconds since 1970"):
            table.count(at=at - 1)


def test_clocks_of_tests_are_let_be(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    with kc.create_table(tmp_path / "t", [kc.Column("k", "int64")], "k", _clock=clock) as table:
        at = hybrid(900_000)
        assert 631_152_000 < at < 4_500_000_000
        assert table.count(at=at) == 0
