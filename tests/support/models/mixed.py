"""Histories that mix everything: writes by every door, alters, overwrites, jobs that are stale, tokens,
clocks set back, crashes, reopens, readers, pinned snapshots, flushes, compactions, merges, history GC.

Each feature has tests of its own; what is looked for here is what two of them do to each other.  The model
is that of ``altering``; the disk is one that forgets what was not synced.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.jobs import commit
from kudu_core.table.jobs.resolve import resolve
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.staged import StagedRun
from tests.support.bulk import small_runs
from tests.support.clock import ManualClock
from tests.support.faults import SMALL, checking, drop, segments_of
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of, handle_of, oldest_ts_of, schema_of
from tests.support.models.altering import Altering, Col, World

ROOT = "/tables/t"
RETENTION_S = 400
JOB_OPERATIONS = ("upsert", "insert_ignore", "update_ignore", "delete_ignore")
OPTIONS: dict[str, Any] = {
    "maintenance": "manual",
    "scan_threads": 1,
    "ingest_threshold_rows": 9,
    "history_retention_s": RETENTION_S,
}


@dataclass
class Pending:
    """A job that is staged, perhaps resolved, and not committed."""

    job: commit.Job
    runs: list[StagedRun]
    resolutions: Sequence[Resolution]
    rows: dict[int, dict[int, Any]]
    """Cells by key and column id."""
    columns: list[Col]


class Mixed:
    """One history: ``run`` plays random steps, after each of which the table is what the model says."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.fs = MemoryFileSystem()
        self.fs.mkdir("/tables")
        self.fs.sync_dir("/")
        options = OPTIONS | {"file_grace_s": self.rng.choice((0, 60))}
        self.model, table = Altering.begin(
            ROOT, hashed=self.rng.random() < 0.5, options=options, _fs=self.fs, _clock=self.clock
        )
        self.table: kc.Table = table
        self.reader: kc.Table | None = None
        self.pinned: list[tuple[kc.Snapshot, int]] = []
        self.pending: list[Pending] = []
        self.token = 0
        self.done: list[str] = []

    # ---- the steps ----

    def run(self, steps: int) -> None:
        spill = self.rng.random() < 0.3
        with checking(True), segments_of(SMALL), small_runs(spill=spill):
            try:
                for _ in range(steps):
                    self.step()
                self.reopen()
                self.look(looks=6)
            finally:
                self.let_go()
                drop(self.table)

    def step(self) -> None:
        self.clock.advance(us=self.rng.choice((0, 0, 1, 90, 2_000_000)))
        weights = {
            self.write: 10, self.overwrite: 1, self.alter: 3, self.repeat: 1, self.batch: 2,
            self.begin_job: 2, self.commit_job: 3, self.pin: 1, self.unpin: 1,
            self.flush: 4, self.compact: 3, self.collect: 2, self.maintain: 1,
            self.turn_clock_back: 1, self.pass_time: 1, self.reopen: 1, self.crash: 1, self.read_elsewhere: 2,
        }  # fmt: skip
        [chosen] = self.rng.choices(list(weights), list(weights.values()))
        self.done.append(chosen.__name__)
        chosen()
        self.look()

    def write(self) -> None:
        count = self.rng.choice((1, 3, 6, 12, 25))
        self.model.write(self.rng, self.table, count)

    def overwrite(self) -> None:
        self.model.overwrite(self.rng, self.table)

    def alter(self) -> None:
        self.model.alter(self.rng, self.table)

    def batch(self) -> None:
        """Two calls under one timestamp, of which the second sees the first."""
        after = self.next_world()
        keys = self._keys(after, 4)
        if not keys:
            return
        columns = after.columns
        cells = {k: {c.id: self.model.value(self.rng, c) for c in columns} for k in keys}
        with self.table.batch() as batch:
            batch.upsert(self._data(cells, columns))
            batch.delete({"k": keys[:2]})
        after.rows |= {k: dict(row) for k, row in cells.items()}
        for k in keys[:2]:
            del after.rows[k]
        assert batch.result is not None
        self.finish(after, batch.result.timestamp)

    def repeat(self) -> None:
        """A write with a token, and once more: now, after a reopen, by bulk or by row."""
        after = self.next_world()
        keys = self._keys(after, self.rng.choice((1, 4, 12)))
        if not keys:
            return
        cells = {k: {c.id: self.model.value(self.rng, c) for c in after.columns} for k in keys}
        data = self._data(cells, after.columns)
        self.token += 1
        first = self.table.upsert(data, txn=("mixed", self.token))
        after.rows |= {k: dict(row) for k, row in cells.items()}
        self.finish(after, first.timestamp)
        if self.rng.random() < 0.5:
            self.reopen()
        again = self.table.upsert(data, txn=("mixed", self.token))
        assert (again.timestamp, again.deduplicated) == (first.timestamp, True)

    # ---- jobs ----

    def begin_job(self) -> None:
        """Staged and resolved now; committed some steps later, when much has changed."""
        world = self.model.now
        keys = self._keys(world, self.rng.choice((1, 5, 20)))
        overwrite = self.rng.random() < 0.1
        operation = "insert" if overwrite else self.rng.choice(JOB_OPERATIONS)
        if not keys or (operation == "update_ignore" and not world.columns):
            return
        least = int(operation == "update_ignore")
        some = self.rng.sample(world.columns, self.rng.randint(least, len(world.columns)))
        given = [] if operation == "delete_ignore" else [c for c in world.columns if c in some]
        rows = {k: {c.id: self.model.value(self.rng, c) for c in given} for k in keys}
        data = self._data(rows, given)
        schema = schema_of(self.table)
        types = [(name, str(schema.column(name).type)) for name in data.schema.names]
        job = commit.begin(handle_of(self.table), operation, types, overwrite=overwrite)
        attempts = self.rng.randint(1, 3)
        runs: list[StagedRun] = []
        for attempt in range(attempts):
            stager = commit.stager(job, f"{attempt}", self.fs)
            mine = data.take(pa.array(range(attempt, data.num_rows, attempts), pa.int64()))
            for one in mine.combine_chunks().to_batches():
                stager.append(one)
            runs += stager.finish()
        resolutions: Sequence[Resolution] = ()
        if self.rng.random() < 0.7:
            with self.open("r") as reader:
                resolutions = resolve(handle_of(reader), job, commit.form_of(job), runs)
        self.pending.append(Pending(job, runs, resolutions, rows, given))

    def commit_job(self) -> None:
        if not self.pending:
            return
        staged = self.pending.pop(self.rng.randrange(len(self.pending)))
        after = self.next_world()
        refusal = self._refusal(staged, after)
        if refusal is not None:
            with pytest.raises(refusal):
                commit.commit_job(staged.job, staged.runs, handle_of(self.table), staged.resolutions)
            return
        if staged.job.overwrite:
            after.rows = {}
        for k, cells in staged.rows.items():
            self._apply(after, staged.job.operation, k, cells)
        result = commit.commit_job(staged.job, staged.runs, handle_of(self.table), staged.resolutions)
        self.finish(after, result.timestamp)

    @staticmethod
    def _refusal(staged: Pending, now: World) -> type[kc.KuduError] | None:
        here = {c.id for c in now.columns}
        if any(c.id not in here for c in staged.columns):
            return kc.SchemaMismatch
        if any(not any(low <= k < high for low, high in now.ranges) for k in staged.rows):
            return kc.RowErrors
        return None

    @staticmethod
    def _apply(world: World, operation: str, k: int, cells: dict[int, Any]) -> None:
        if operation == "delete_ignore":
            world.rows.pop(k, None)
        elif k in world.rows:
            if operation in ("upsert", "update_ignore"):
                world.rows[k] |= cells
        elif operation != "update_ignore":
            world.rows[k] = {c.id: c.new for c in world.columns} | cells

    # ---- snapshots and readers ----

    def pin(self) -> None:
        ts, _ = self.rng.choice(self._readable())
        self.pinned.append((self.table.snapshot(ts), ts))

    def unpin(self) -> None:
        if self.pinned:
            self.pinned.pop(self.rng.randrange(len(self.pinned)))[0].close()

    def read_elsewhere(self) -> None:
        """A reader that was opened some steps ago is refreshed, or a new one takes its place."""
        if self.reader is None or self.rng.random() < 0.3:
            if self.reader is not None:
                self.reader.close()
            self.reader = self.open("r")
        else:
            self.reader.refresh()
        columns = self.model.now.columns
        assert self.model.found(self.reader.scan(), columns) == self.model.now.state(columns)
        self._look_back(self.reader, 2)

    # ---- upkeep ----

    def flush(self) -> None:
        if self.rng.random() < 0.5:
            self.table.flush()
            return
        engine = engine_of(self.table)
        assert engine.maintenance is not None
        tablet = self.rng.choice(engine.tablets)
        for rowset in tablet.view.changed:
            if self.rng.random() < 0.5:
                engine.maintenance.flush_rowset(tablet, rowset.id)
        if self.rng.random() < 0.5:
            engine.maintenance.flush(tablet)

    def compact(self) -> None:
        engine = engine_of(self.table)
        assert engine.compactions is not None
        if self.rng.random() < 0.2:
            self.table.compact(full=True)
            return
        tablet = self.rng.choice(engine.tablets)
        ids = [rowset.id for rowset in tablet.view.rowsets]
        if not ids:
            return
        kind = self.rng.choice(("minor", "major", "merge", "merge"))
        if kind == "merge":
            engine.compactions.merge(tablet, self.rng.sample(ids, self.rng.randint(1, len(ids))))
            return
        columns = None
        if kind == "major":
            every = [c.id for c in engine.schema.value_columns]
            columns = self.rng.sample(every, self.rng.randint(0, len(every))) or None
        engine.compactions.compact(tablet, self.rng.choice(ids), kind, columns)

    def collect(self) -> None:
        self.table.gc()

    def maintain(self) -> None:
        self.table.maintain()

    def pass_time(self) -> None:
        """History becomes old."""
        self.clock.advance(self.rng.choice((30, RETENTION_S)))

    def turn_clock_back(self) -> None:
        self.clock.set_us(self.clock.now_us() - self.rng.randrange(1, 3_000_000_000))

    # ---- lives ----

    def reopen(self) -> None:
        self.let_go()
        self.table.close()
        self.table = self.open("rw")

    def crash(self) -> None:
        """The power goes: what was not synced stays in part."""
        self.let_go()
        if self.rng.random() < 0.3:
            disk = self.fs.crash_clone(keep="all")  # only the process dies
        else:
            disk = self.fs.crash_clone(self.rng)
        drop(self.table)
        self.fs = disk
        self.pending.clear()  # the driver dies too; its staging is swept some day
        self.table = self.open("rw")

    def let_go(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None
        for snapshot, _ in self.pinned:
            snapshot.close()
        self.pinned.clear()

    def open(self, mode: str) -> kc.Table:
        return kc.open_table(ROOT, mode, options={"maintenance": "manual"}, _fs=self.fs, _clock=self.clock)

    # ---- the model ----

    def next_world(self) -> World:
        now = self.model.now
        return World(list(now.columns), copy.deepcopy(now.rows), list(now.ranges))

    def finish(self, after: World, timestamp: int) -> None:
        self.model.in_flight = after
        self.model._done(timestamp)

    def _keys(self, world: World, count: int) -> list[int]:
        keys = [k for low, high in world.ranges for k in range(low, high)]
        return self.rng.sample(keys, min(count, len(keys)))

    @staticmethod
    def _data(rows: dict[int, dict[int, Any]], columns: list[Col]) -> pa.Table:
        given = [{"k": k, **{c.name: cells[c.id] for c in columns}} for k, cells in rows.items()]
        types = pa.schema([("k", pa.int64()), *((c.name, c.type) for c in columns)])
        return pa.Table.from_pylist(given, schema=types)

    # ---- looks ----

    def _readable(self) -> list[tuple[int, Any]]:
        """States of the past that history still holds, with the rows of each."""
        oldest = oldest_ts_of(self.table)
        first = max((i for i, (ts, _) in enumerate(self.model.past) if ts <= oldest), default=0)
        known = self.model.past[first:]
        return [(max(ts, oldest), rows) for ts, rows in known]

    def look(self, looks: int = 2) -> None:
        columns = self.model.now.columns
        table = self.table
        assert table.schema.names == ["k", *(c.name for c in columns)]
        wanted = self.model.now.state(columns)
        assert self.model.found(table.scan(), columns) == wanted
        assert table.count() == len(wanted)
        self._look_back(table, looks)
        for snapshot, ts in self.pinned:
            state = self._state_at(ts)
            assert self.model.found(snapshot.scan(), columns) == state
        if self.rng.random() < 0.1:
            table.verify()

    def _state_at(self, ts: int) -> Any:
        columns = self.model.now.columns
        return World(columns, self.model.rows_at(ts), []).state(columns)

    def _look_back(self, table: kc.Table, looks: int) -> None:
        columns = self.model.now.columns
        times = [(ts, rows) for ts, rows in self._readable() if ts >= oldest_ts_of(table)]
        for _ in range(looks):
            ts, rows = self.rng.choice(times)
            state = World(columns, rows, []).state(columns)
            order = self.rng.choice(("any", "key"))
            assert self.model.found(table.scan(at=ts, order=order), columns) == state, ts
            assert table.count(at=ts) == len(state)
            keys = self.rng.sample(range(60), 5)
            found = table.get_many(keys, at=ts).to_pylist()
            assert [row["_found"] for row in found] == [k in state for k in keys]
            row = table.get(keys[0], at=ts)
            assert (row and tuple(row.values())[1:]) == state.get(keys[0])
            if columns:
                self.model._filtered(self.rng, table, ts, state, columns)
        (a, first), (b, last) = sorted(self.rng.choices(times, k=2), key=lambda entry: entry[0])
        for net in (False, True):
            self._follow(table, a, b, first, last, net)

    def _follow(self, table: kc.Table, a: int, b: int, first: Any, last: Any, net: bool) -> None:
        """A state and the changes since, with the rows before and after each, are the later state."""
        columns = self.model.now.columns
        names = [c.name for c in columns]
        now = World(columns, first, []).state(columns)
        for row in table.changes(a, b, net=net, images="both").to_table().to_pylist():
            key, before = row["k"], row["_before"]
            assert (before is None) == (row["_op"] == "insert") == (key not in now), row
            if before is not None:
                assert tuple(before[name] for name in names) == now[key], row
            if row["_op"] == "delete":
                del now[key]
            else:
                now[key] = tuple(row[name] for name in names)
        assert now == World(columns, last, []).state(columns), (a, b, net)
