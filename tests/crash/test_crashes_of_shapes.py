"""A crash at calls of the file system, on tables of a shape: few rows, fat cells, many columns, many tablets.

What a power cut leaves opens, and holds what was acknowledged; of the call under way all or nothing.  By
default some of the calls are tried, ``--long`` tries many.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import kudu_core as kc
from bench.shapes.shapes import Shape
from tests.support.faults import drop
from tests.support.fs.faulty import FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem
from tests.support.models.shaped import ODD, Rows, Shaped, Step, in_memory

ROOT = "/tables/t"
TRIED, TRIED_LONG = 2, 60

pytestmark = pytest.mark.timeout(7200)  # --long takes its time


def flush(table: kc.Table) -> object:
    return table.flush()


def steps_of(kept: Shaped) -> list[Callable[[], Step]]:
    return [
        lambda: kept.insert(kept.all),
        lambda: flush,
        lambda: kept.update(kept.some(0.4)),
        lambda: kept.upsert_one(next(iter(kept.all))),
        lambda: kept.delete(kept.some(0.2)),
        lambda: flush,
        lambda: kept.insert(kept.some(0.3)),
        lambda: lambda table: table.compact(full=True),
        lambda: kept.update(kept.some(0.1)),
    ]


def play(shape: Shape, seed: int, rule: Rule | None) -> tuple[FaultyFileSystem, list[Rows]]:
    """The states that a survivor may have: the last that was acknowledged, and that of the call under way."""
    disk = MemoryFileSystem()
    disk.mkdir("/tables")
    disk.sync_all()
    fs = FaultyFileSystem(disk, seed=seed)
    kept = Shaped(shape, seed)
    table = kept.create(in_memory(fs, ROOT), durability="sync", scan_threads=1)
    fs.rules = [rule] if rule else []
    fs.calls = 0
    allowed: list[Rows] = [{}]
    try:
        for step in steps_of(kept):
            act = step()
            allowed = [allowed[-1], dict(kept.rows)]
            act(table)
            allowed = allowed[1:]
    except SimulatedCrash:
        pass
    drop(table)
    return fs, allowed


@pytest.mark.parametrize("shape", ODD)
def test_a_crash_leaves_what_was_acknowledged(seed: int, long: bool, shape: str) -> None:
    fs, allowed = play(ODD[shape], seed, None)
    assert len(allowed) == 1
    count = TRIED_LONG if long else TRIED
    rng = random.Random(f"{shape} {seed}")
    for number in rng.sample(range(1, fs.calls + 1), min(count, fs.calls)):
        crashed, allowed = play(ODD[shape], seed, Rule(nth=number, error="crash"))
        assert crashed.crashed
        for keep in ("none", "random") if long else (rng.choice(("none", "random", "all")),):
            disk = crashed.inner.crash_clone(rng, keep=keep)  # type: ignore[attr-defined]
            table = kc.open_table(ROOT, "rw", _fs=disk)
            found = {row["k"]: row for row in table.scan().to_table().to_pylist()}
            assert found in allowed, f"{shape}, crash at call {number}, {keep}: other rows; seed {seed}"
            kept = Shaped(ODD[shape], seed + 1)
            kept.rows = found
            kept.upsert_one(next(iter(kept.all)))(table)
            table.flush()
            assert table.scan(order="key").to_table().to_pylist() == kept.wanted().to_pylist()
            table.close()
