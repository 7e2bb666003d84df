"""A crash and an I/O error at every call of the file system while a table gets other partitions.

After it the table has the old partitions whole or the new ones whole, at every readable time, and what is
left of an attempt is in ``lost/`` or gone.
"""

from __future__ import annotations

import random

import pytest

import kudu_core as kc
from tests.crash.test_faults import shares, telling
from tests.crash.test_manage import Opened, Scene, disks_after, operations_of, play
from tests.support.clock import ManualClock
from tests.support.faults import SMALL, error_for, segments_of
from tests.support.fs.faulty import Rule, SimulatedCrash

CALLS = 4
"""That the short run hits, of each kind of failure."""
BUCKETS = 5

pytestmark = pytest.mark.timeout(7200)  # --long takes its time


class Repartition(Opened):
    """With a write beside it, so that there is something to catch up with."""

    def call(self, scene: Scene, table: kc.Table) -> None:
        if len(table.partitions.partitions) == BUCKETS:
            table.repartition()
        written = []

        def between(done: int, of: int) -> None:
            if not done and not written:
                # What is there already, once more: the rows stay the same, and are changed all the same.
                some = table.scan(limit=7).to_table()
                table.upsert(some)
                written.append(some.num_rows)

        table.repartition(kc.HashPartition(table.primary_key[0], BUCKETS), progress=between)
        assert written == [7]

    def outcome(self, scene: Scene, table: kc.Table) -> bool:
        assert scene.rows(table) == scene.newest
        now = table.timestamp
        assert table.changes(scene.newest_ts, now, net=True).to_table().num_rows == 0
        found = table.verify()
        assert found.unnamed == found.foreign == found.staging == ()
        count = len(table.partitions.partitions)
        if table.mode == "rw":  # what it writes goes where it is found again
            row = table.scan(limit=1).to_pylist()
            table.upsert(row)
            assert table.get({name: row[0][name] for name in table.primary_key}) == row[0]
        return count == BUCKETS


@pytest.fixture(scope="module")
def scene(seed: int) -> Scene:
    return Scene(seed)


@pytest.mark.parametrize("kind", ["crash", "error"])
def test_a_failure_at_every_call(scene: Scene, seed: int, long: bool, kind: str) -> None:
    walk = Repartition()
    operations = operations_of(scene, walk)
    outcomes = set()
    chosen = set(shares(len(operations), CALLS, seed, long)) | {1, len(operations)}
    chosen |= {number for number, op in enumerate(operations, 1) if op == "rename"} if long else set()
    for number in sorted(chosen):
        rng = random.Random(seed * 1_000_003 + number)
        operation = operations[number - 1]
        fault = error_for(operation, rng)
        if kind == "crash":
            fault = "torn" if operation in ("append", "pwrite") and rng.random() < 0.5 else "crash"
        rule = Rule(nth=number, error=fault)
        with telling(f"repartition: {fault} at call {number} of {len(operations)}, {operation}", seed):
            fs, error = play(scene, walk, rule)
            assert rule.fired
            if kind == "crash":
                assert isinstance(error, SimulatedCrash) or error is None
            for disk in disks_after(fs, rng, long, crashed=fs.crashed):
                with segments_of(SMALL):
                    outcomes.add(walk.check(scene, disk, ManualClock(scene.now_us + 1000)))
    if kind == "crash":
        assert len(outcomes) == 2, "the failures all came before the change, or all after it"
