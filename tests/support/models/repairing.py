"""What a repaired table may hold: the contract of ``kudu_core.repair``, checked against a history.

Never a row that was not its key's at some time; never another than the newest without saying so; never less
than can be read; the damaged table untouched, the repaired one sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

import kudu_core as kc
from tests.support.clock import ManualClock
from tests.support.faults import ROOT, TINY, checking, segments_of
from tests.support.fs.memory import MemoryFileSystem
from tests.support.hostile.damage import Files, contents, walk
from tests.support.models.model import State, difference

TARGET = f"{ROOT}.repaired"


@dataclass
class Repaired:
    """A repaired table and what its report says."""

    report: kc.RepairReport
    rows: State
    lost: set[tuple[Any, ...]]
    """Keys of rows that were put aside."""
    doubtful: set[tuple[Any, ...]]
    """Keys of rows that may not be the newest."""


class Past(Protocol):
    """What a table has held."""

    times: Sequence[int]

    def at(self, timestamp: int) -> State: ...


def repaired(fs: MemoryFileSystem, now_us: int, **given: Any) -> Repaired:
    """Repair the table at ``ROOT``; what comes of it, which is checked to be a sound table."""
    before = contents_of(fs)
    with segments_of(TINY), checking(False):
        clock = ManualClock(now_us)
        dry = kc.repair(ROOT, _fs=fs, _clock=clock, **given)
        assert contents_of(fs) == before and not fs.exists(TARGET), "a dry run has changed something"
        report = kc.repair(ROOT, dry_run=False, _fs=fs, _clock=clock, **given)
        assert contents_of(fs) == before, "the damaged table was changed"
        assert not any(name.endswith(".tmp") for name in fs.listdir(ROOT.rsplit("/", 1)[0]))
        assert dry.text().splitlines()[:-1] == report.text().splitlines()[:-1]
        with kc.open_table(TARGET, "rw", _fs=fs, _clock=ManualClock(now_us + 1_000_000)) as table:
            table.verify()
            rows = state_of(table.scan(), table.primary_key)
            some = table.scan().to_table().slice(0, 3)
            table.upsert(some)
            table.flush()
            assert table.count() == len(rows)
            key_names = table.primary_key
    aside: dict[str, set[tuple[Any, ...]]] = {"lost": set(), "older": set(), "doubtful": set()}
    for path in walk(fs, f"{TARGET}/repair"):
        if path.endswith(".arrow"):
            for row in pa.ipc.open_stream(fs.read_bytes(path, 1 << 30)).read_all().to_pylist():
                aside[row["_status"]].add(tuple(row[name] for name in key_names))
    assert len(rows) == report.rows_kept
    doubtful = aside["older"] | aside["doubtful"]
    assert len(doubtful) == report.rows_doubtful
    return Repaired(report, rows, aside["lost"], doubtful)


def contents_of(fs: MemoryFileSystem) -> Files:
    return contents(fs)


def state_of(scan: Any, key: Sequence[str]) -> State:
    """The rows of a scan by key: the other columns in their order."""
    state: State = {}
    for row in scan.to_pylist():
        at = tuple(row.pop(name) for name in key)
        assert at not in state, f"key {at!r} came twice"
        state[at] = tuple(row.values())
    return state


def check(found: Repaired, past: Past, newest: State) -> None:
    """Every row is one that its key had, and the newest one unless the report says that it may not be."""
    report = found.report
    until = report.complete_until
    missing = 0
    for key in {*found.rows, *newest, *(key for time in past.times for key in past.at(time))}:
        row = found.rows.get(key)
        states = [past.at(time).get(key) for time in past.times]
        assert row is None or row in states, f"invented: {key} {row!r}, it was {states!r}"
        if row == newest.get(key):
            continue
        if until is not None:
            since = [past.at(max(until, 0)).get(key)]
            since += [past.at(time).get(key) for time in past.times if time > until]
            if row in since:
                continue
        if row is None:
            missing += key not in found.lost
            assert report.rows_lost, f"{key} is missing and nothing is said of it; it was {newest[key]!r}"
        else:
            assert key in found.doubtful, f"{key} is {row!r} without a doubt, and was {newest.get(key)!r}"
    unreadable = sum(tablet.rows_unreadable for tablet in report.tablets)
    assert missing <= unreadable, f"{missing} rows are missing, {unreadable} at most are said to be"


def check_equal(found: Repaired, wanted: State) -> None:
    """Nothing is lost and nothing in doubt."""
    assert found.rows == wanted, difference(found.rows, wanted)
    report = found.report
    assert (report.rows_lost, report.rows_doubtful, report.changes_aside) == (0, 0, 0), report.text()
    assert report.complete_until is None, report.text()
