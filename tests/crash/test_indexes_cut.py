"""A crash and an error at every call of ``create_index`` and ``drop_index``: the index is there or not, and
rows are found as without it."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.rowset.scan import by_index
from tests.crash.test_faults import telling
from tests.support.clock import ManualClock
from tests.support.faults import ROOT, drop
from tests.support.fs.faulty import FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem

ROWS = 300
OPTIONS = {"maintenance": "manual", "scan_threads": 1}

Act = Callable[[kc.Table], object]
ACTS: dict[str, tuple[Act, bool]] = {
    "create": (lambda table: table.create_index("by_v", "v"), False),
    "drop": (lambda table: table.drop_index("by_v"), True),
}


def begun(*, index: bool) -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.mkdir("/tables")
    disk.sync_all()
    schema = {"k": "int64", "v": "int64"}
    table = kc.create_table(ROOT, schema, "k", options=OPTIONS, _fs=disk, _clock=ManualClock())
    table.insert(pa.table({"k": range(ROWS), "v": [k % 50 for k in range(ROWS)]}))
    table.flush()
    table.update(pa.table({"k": range(40), "v": [7] * 40}))
    if index:
        table.create_index("by_v", "v")
    table.close()
    return disk


def opened(fs: MemoryFileSystem | FaultyFileSystem) -> kc.Table:
    return kc.open_table(ROOT, "rw", _fs=fs, _clock=ManualClock(10**15))


def check(table: kc.Table) -> bool:
    """Whether the index is there; it finds what is there."""
    scan = table.scan(["k"], [("v", "==", 7)])
    assert sorted(scan.to_table()["k"].to_pylist()) == [k for k in range(ROWS) if k < 40 or k % 50 == 7]
    assert list(scan.explain().indexes) == list(table.indexes)
    table.verify()
    return bool(table.indexes)


@pytest.mark.parametrize("name", list(ACTS))
def test_at_every_call(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_index, "_FEW_ROWS", 0)
    monkeypatch.setattr(by_index, "_GOOD_PART", 1)
    act, was = ACTS[name]
    disk = begun(index=was)
    found = set()
    for kind in ("crash", "error"):
        number = 0
        while True:
            number += 1
            rng = random.Random(seed * 1_000_003 + number)
            fs = FaultyFileSystem(disk.crash_clone(0, keep="all"), seed=seed)
            table = opened(fs)
            error = "crash" if kind == "crash" else OSError(errno.EIO, "of the test")
            fs.rules, fs.calls = [Rule(nth=number, error=error)], 0
            ended = False
            with suppress(SimulatedCrash, OSError, kc.KuduError):
                act(table)
                ended = True
            with telling(f"{name}: {kind} at call {number}", seed):
                drop(table)
                for keep in ("none", "all", "random"):
                    again = opened(fs.inner.crash_clone(rng, keep=keep))
                    there = check(again)
                    assert there != was or not ended
                    found.add(there)
                    if there == was:
                        act(again)
                    assert check(again) != was
                    again.close()
            if not fs.fired:
                assert ended
                break
        assert number > 5
    assert found == {True, False}
