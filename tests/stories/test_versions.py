"""The model keeps every version: whatever was done to the table, each readable time is as it was.

Random batches, ingests and ``where=`` writes, with flushes, compactions of all kinds, history GC, pinned
snapshots and reopening (after a clean close and after a crash) in between; then all ways to read at many past
times, and the changes between many pairs of them.
"""

from __future__ import annotations

import random

import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.tablet.compact.merge import merge_rowsets
from kudu_core.tablet.maintain.delta_policy import MAJOR, MINOR
from tests.support.clock import ManualClock
from tests.support.faults import SMALL, Stage, checking, drop, segments_of
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of, oldest_ts_of, wait_durable
from tests.support.models.changes import check_changes, check_pairs
from tests.support.models.history import SCHEMA, VALUES, History, random_batch
from tests.support.models.reads import check_reads

RETENTION_S = 2
KEYS = range(90)


class Run:
    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)
        disk = MemoryFileSystem()
        disk.mkdir("/tables")
        disk.sync_all()
        self.stage = Stage(disk, History(), self.rng.randrange(1 << 30), ManualClock())
        self.stage.create(
            buckets=self.rng.choice((1, 2, 3)),
            history_retention_s=RETENTION_S,
            durability=self.rng.choice(("sync", "none")),
            ingest_threshold_rows=60,
        )
        self.pinned: list[tuple[kc.Snapshot, int]] = []
        self.done: dict[str, int] = {}
        self.operations = 0

    @property
    def table(self) -> kc.Table:
        return self.stage.opened

    @property
    def history(self) -> History:
        return self.stage.history

    def readable(self) -> list[int]:
        """The times of writes that can still be read."""
        return [time for time in self.history.writes if time >= oldest_ts_of(self.table)]

    def step(self) -> None:
        name, act = self.rng.choices(
            [
                ("write", self.write),
                ("where", self.write_where),
                ("flush", self.stage.flush),
                ("flush memrowsets", self.stage.flush_memrowsets),
                ("minor", lambda: self.compact(MINOR)),
                ("major", lambda: self.compact(MAJOR)),
                ("full", lambda: self.table.compact(full=True)),
                ("merge", self.merge),
                ("gc", self.collect),
                ("pin", self.pin),
                ("release", self.release),
                ("reopen", self.reopen),
                ("crash", self.crash),
                ("wait", lambda: self.stage.clock.advance(us=self.rng.randrange(900_000))),
            ],
            [60, 6, 10, 3, 8, 10, 1, 8, 4, 3, 3, 2, 2, 6],
        )[0]
        act()
        self.done[name] = self.done.get(name, 0) + 1

    # ---- what is done ----

    def write(self) -> None:
        rows = self.rng.choice((1, 3, 10, 70))
        self.stage.clock.advance(us=7)
        batch = random_batch(self.rng, self.history.model, KEYS, rows, whole=self.rng.random() < 0.4)
        self.history.write(self.table, batch)
        self.operations += rows

    def write_where(self) -> None:
        """Rows that a predicate finds in the newest state are updated or deleted."""
        lower = self.rng.randrange(-(10**6), 10**6)
        upper = lower + 300_000
        where = [("a", ">=", lower), ("a", "<", upper)]
        found = [key[0] for key, row in self.history.model.state().items() if row[0] is not None]
        state = self.history.model.state()
        found = sorted(k for k in found if lower <= state[(k,)][0] < upper)
        self.stage.clock.advance(us=7)
        if self.rng.random() < 0.3:
            self.history.begin([("delete", [{"k": k} for k in found])] if found else [])
            self.history.acknowledge(self.table.delete(where=where).timestamp)
        else:
            rows = [{"k": k, "a": state[(k,)][0] + 1, "b": "where"} for k in found]
            self.history.begin([("update", rows)] if rows else [])
            result = self.table.update(where=where, set={"a": pc.field("a") + 1, "b": "where"})
            self.history.acknowledge(result.timestamp)
        self.operations += len(found)

    def compact(self, kind: str) -> None:
        engine = engine_of(self.table)
        assert engine.compactions is not None
        tablet = self.rng.choice(engine.tablets)
        for rowset in tablet.view.rowsets:
            if self.rng.random() < 0.6:
                columns = [c.id for c in engine.schema.value_columns if self.rng.random() < 0.6]
                engine.compactions.compact(tablet, rowset.id, kind, columns)

    def merge(self) -> None:
        """Some rowsets of a tablet; now and then somebody writes or flushes meanwhile."""
        engine, rng = engine_of(self.table), self.rng
        tablet = rng.choice(engine.tablets)
        ids = [rowset.id for rowset in tablet.view.rowsets]
        meanwhile = {
            step: rng.choice((self.write, self.write_where, self.stage.flush_memrowsets))
            for step in ("begun", "written", "round")
            if rng.random() < 0.4
        }

        def at_step(step: str) -> None:
            meanwhile.pop(step, lambda: None)()

        if ids:
            picked = rng.sample(ids, rng.randint(1, min(4, len(ids))))
            merge_rowsets(tablet, picked, horizon=lambda drop: engine.horizon(drop=drop), at_step=at_step)

    def collect(self) -> None:
        if self.rng.random() < 0.3:
            self.stage.clock.advance(us=RETENTION_S * 1_000_000)
        self.table.gc()
        pins = [at for _, at in self.pinned]
        assert all(at >= oldest_ts_of(self.table) for at in pins), "a pinned snapshot was collected"

    def pin(self) -> None:
        times = self.readable()
        if times and len(self.pinned) < 3:
            at = self.rng.choice(times)
            self.pinned.append((self.table.snapshot(at), at))

    def release(self) -> None:
        if self.pinned:
            self.pinned.pop(self.rng.randrange(len(self.pinned)))[0].close()

    def reopen(self) -> None:
        while self.pinned:
            self.release()
        self.table.close()
        self.stage.open()

    def crash(self) -> None:
        """All records are made durable first: what no fsync covered may be lost.  Manifests need not be."""
        wait_durable(self.table)
        while self.pinned:
            self.release()
        drop(self.table)
        self.stage.fs = self.stage.fs.crash_clone(self.rng)
        self.stage.open()
        self.history.settle(self.table)

    # ---- what is read ----

    def check(self) -> None:
        rng, table = self.rng, self.table
        self.history.check(table, rng)
        for snapshot, at in self.pinned:
            check_reads(table, snapshot, self.history.past.at(at), KEYS, rng)
        for at in rng.sample(self.readable(), min(4, len(self.readable()))):
            check_reads(table, at, self.history.past.at(at), KEYS, rng)
        # Changes end with what is durable.
        wait_durable(table)
        times = self.readable()
        for _ in range(3):
            if len(times) > 1:
                since, until = sorted(rng.sample(times, 2))
                check_changes(table, self.history, since, until)
        if oldest_ts_of(table) == 0:  # nothing is forgotten yet: from the very beginning
            check_pairs(table, self.history, rng, 1)


@pytest.mark.timeout(7200)
def test_every_readable_time_is_as_it_was(seed: int, long: bool) -> None:
    wanted = 10_000 if long else 160
    operations, number = 0, 0
    done: dict[str, int] = {}
    while sum(done.values()) < wanted:
        number += 1
        try:
            with checking(True), segments_of(SMALL):
                run = Run(f"{seed} {number}")
                for step in range(60):
                    run.step()
                    if step % 15 == 14:
                        run.check()
                run.reopen()
                run.check()
                run.table.close()
        except Exception as error:
            error.add_note(f"run {number} of --seed={seed}")
            raise
        operations += run.operations
        for name, count in run.done.items():
            done[name] = done.get(name, 0) + count
    print(f"{sum(done.values())} steps, {operations} changes of rows, {done}")
    assert SCHEMA.names == ["k", *VALUES]
    wanted_kinds = ("write", "where", "flush", "minor", "major", "merge", "gc", "crash")
    assert all(done.get(name) for name in wanted_kinds)
