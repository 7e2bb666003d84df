"""A crash at every call of the file system while what has expired is deleted, and then leaves the files.

Whatever of it was done: reads show what has not expired, all of it, and the keys of the rest are free.
"""

from __future__ import annotations

import random
from typing import Any

import kudu_core as kc
from tests.support.clock import ManualClock
from tests.support.faults import drop
from tests.support.fs.faulty import FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem
from tests.table.ttl.twins import DAY, LIFETIME, SCHEMA, now_of

PATH = "/tables/t"
KEYS = 60
OPTIONS = {"maintenance": "manual", "history_retention_s": 0}
CRASHES = 10
"""Of the short run."""


def _made() -> tuple[MemoryFileSystem, int]:
    """Rows in two tablets of which every third has expired, in files with changes and in memory; and when."""
    disk, clock = MemoryFileSystem(), ManualClock()
    disk.mkdir("/tables")
    parts = [kc.HashPartition("k", 2)]
    table = kc.create_table(
        PATH, SCHEMA, "k", ttl=("at", LIFETIME), partition_by=parts, options=OPTIONS, _fs=disk, _clock=clock
    )
    old, new = now_of(clock) - LIFETIME + DAY, now_of(clock) + DAY
    table.insert([{"k": k, "at": new, "v": k} for k in range(40)])
    table.flush()
    table.update([{"k": k, "at": old} for k in range(0, 40, 3)])
    table.flush()
    table.insert([{"k": k, "at": old if k % 3 == 0 else new, "v": k} for k in range(40, KEYS)])
    clock.advance(2 * DAY.total_seconds())
    drop(table)
    return disk, clock.now_us()


def _removed(disk: Any, clock: ManualClock) -> None:
    table = kc.open_table(PATH, "rw", _fs=disk, _clock=clock)
    try:
        table.compact()
        table.flush()
        clock.advance(1.0)
        table.compact(full=True)
        table.gc()
    finally:
        drop(table)


def _check(disk: MemoryFileSystem, clock: ManualClock) -> None:
    alive = {k: k for k in range(KEYS) if k % 3}
    with kc.open_table(PATH, "rw", _fs=disk, _clock=clock) as table:
        assert {row["k"]: row["v"] for row in table.to_table().to_pylist()} == alive
        assert table.insert([{"k": 0}, {"k": 42}]).inserted == 2
        table.delete([0, 42])
        table.verify()
    _removed(disk, clock)
    with kc.open_table(PATH, _fs=disk, _clock=clock) as table:
        assert {row["k"]: row["v"] for row in table.to_table().to_pylist()} == alive
        assert sum(table.stats()["rows_stored"].to_pylist()) == len(alive)


def test_a_crash_at_every_call(long: bool) -> None:
    made, now_us = _made()
    whole = FaultyFileSystem(made.crash_clone(0, keep="all"))
    _removed(whole, ManualClock(now_us))
    stride = 1 if long else max(1, whole.calls // CRASHES)
    for number in range(1, whole.calls + 1, stride):
        disk, clock = made.crash_clone(number, keep="all"), ManualClock(now_us)
        try:
            _removed(FaultyFileSystem(disk, [Rule(nth=number, error="crash")], seed=number), clock)
        except SimulatedCrash:
            pass
        else:
            raise AssertionError(f"no crash at call {number} of {whole.calls}")
        _check(disk.crash_clone(random.Random(number)), clock)
