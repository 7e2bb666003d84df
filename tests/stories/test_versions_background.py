"""The versioned model beside a table that looks after itself: two writers, two readers, real threads.

Flushes, delta flushes, compactions of deltas, merges, history GC and the dropping of log segments and files
happen when the maintenance manager likes.  Each writer has keys of its own and notes what each of its batches
changed at which time; whatever lies at or below the last answer of both is *settled*, and there every way to
read must give what the notes say.
"""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.tablet.maintain import delta_policy, lane, operations
from tests.support.faults import SMALL, checking, segments_of
from tests.support.inside import log_of, oldest_ts_of
from tests.support.models.changes import check_changes
from tests.support.models.history import SCHEMA, History, random_batch, send
from tests.support.models.model import Key, State, TableModel
from tests.support.models.reads import check_reads
from tests.support.threads import LONGEST_S, Run, quick_switches

WRITERS, READERS = 2, 2
KEYS = range(3000)
OPTIONS: dict[str, Any] = {
    "flush_threshold_bytes": 64 << 10,
    "flush_age_s": 0.1,
    "rowset_target_bytes": 64 << 10,
    "ingest_threshold_rows": 250,
    "file_grace_s": 0,
    "scan_threads": 2,
    "maintenance_threads": 2,
}
KINDS = ("flush", "delta_flush", "minor", "major", "merge", "log_gc", "file_gc")
BUSY_S = 0.9
"""Of every two seconds."""


class Notes:
    """What one writer's keys were when.  One thread writes, others read up to ``settled``."""

    def __init__(self, keys: range) -> None:
        self.keys = keys
        self.settled = 0
        """Everything at or below it is noted; later batches have later times."""
        self.times: list[int] = []
        self._changes: list[dict[Key, tuple[Any, ...] | None]] = []
        self._rows: dict[int, tuple[list[int], list[tuple[Any, ...] | None]]]
        self._rows = {key: ([0], [None]) for key in keys}

    def note(self, timestamp: int, changed: dict[int, tuple[Any, ...] | None]) -> None:
        if self.times and timestamp == self.times[-1]:
            assert not changed, "two batches have one time"
        else:
            for key, row in changed.items():
                times, rows = self._rows[key]
                rows.append(row)  # first: whoever finds the time finds the row
                times.append(timestamp)
            self._changes.append({(key,): row for key, row in changed.items()})
            self.times.append(timestamp)
        assert timestamp >= self.settled, "time went back"
        self.settled = timestamp

    def at(self, timestamp: int) -> State:
        state: State = {}
        for key, (times, rows) in self._rows.items():
            row = rows[bisect_right(times, timestamp) - 1]
            if row is not None:
                state[(key,)] = row
        return state

    def changes(self, since: int, until: int) -> list[tuple[int, Any]]:
        """(time, row or None by key) of the batches in ``(since, until]``."""
        first, last = bisect_right(self.times, since), bisect_right(self.times, until)
        return list(zip(self.times[first:last], self._changes[first:last], strict=True))


class Beside:
    """The writers and readers of one table."""

    def __init__(self, table: kc.Table, seed: str, run: Run) -> None:
        self.table = table
        self.seed = seed
        self.run = run
        self.notes = [Notes(KEYS[number::WRITERS]) for number in range(WRITERS)]

    @property
    def settled(self) -> int:
        return min(notes.settled for notes in self.notes)

    def state(self, at: int) -> State:
        assert at <= self.settled
        return {key: row for notes in self.notes for key, row in notes.at(at).items()}

    def history(self, since: int, until: int) -> History:
        """Every state from one time to another, and nothing else."""
        history = History()
        state = self.state(since)
        history.past.commit(since, dict(state))
        changes = sorted((c for notes in self.notes for c in notes.changes(since, until)), key=lambda c: c[0])
        for number, (at, changed) in enumerate(changes):
            for key, row in changed.items():
                if row is None:
                    del state[key]
                else:
                    state[key] = row
            if number + 1 == len(changes) or changes[number + 1][0] > at:
                history.past.commit(at, dict(state))
        return history

    def times(self) -> list[int]:
        """Settled times of batches, ascending."""
        settled = self.settled
        return sorted({t for notes in self.notes for t in notes.times if t <= settled})

    # ---- writers ----

    def writer(self, number: int) -> None:
        rng = random.Random(f"{self.seed} writer {number}")
        notes = self.notes[number]
        model = TableModel(["k"], dict.fromkeys(("a", "b", "c")))
        began = time.monotonic()
        while self.run.goes_on():
            # In turns: many changes, and so few of rows on disk that compactions have no reason to rewrite.
            busy = (time.monotonic() - began) % 2 < BUSY_S or not len(model)
            rows = rng.choice((1, 3, 10, 60, 300)) if busy else 1
            low = rng.randrange(len(notes.keys) - 200)
            keys: Sequence[int] = rng.choice((notes.keys, notes.keys[low : low + 200]))
            if not busy:
                keys = sorted(key[0] for key in model.state())
            batch = random_batch(rng, model, keys, rows, whole=rows > 10)
            after = model.copy()
            for operation, some in batch:
                assert not after.call(operation, some).errors
            told = send(self.table, batch).timestamp
            touched = {row["k"] for _, some in batch for row in some}
            old, new = model.state(), after.state()
            notes.note(told, {k: new.get((k,)) for k in touched if old.get((k,)) != new.get((k,))})
            model = after
            self.run.did(f"batches of writer {number}")
            if not busy:
                time.sleep(rng.uniform(0, 0.1))
        notes.settled = 1 << 63  # nothing more will come

    # ---- readers ----

    def reader(self, number: int) -> None:
        rng = random.Random(f"{self.seed} reader {number}")
        while self.run.goes_on():
            what = rng.choice((self.read_past, self.read_past, self.read_pinned, self.read_changes))
            what(rng)
            if rng.random() < 0.3:
                self.read_slowly(rng)

    def choose(self, rng: random.Random) -> int | None:
        """A settled time: mostly one that can be read, often a late one."""
        times = self.times()
        if rng.random() < 0.95:
            times = times[bisect_right(times, oldest_ts_of(self.table)) :]
        if rng.random() < 0.5:
            times = times[-20:]
        return rng.choice(times) if times else None

    def read_past(self, rng: random.Random) -> None:
        at = self.choose(rng)
        if at is not None:
            state = self.state(at)
            self.unless_gone(at, "past times", lambda: check_reads(self.table, at, state, KEYS, rng))

    def read_pinned(self, rng: random.Random) -> None:
        """The newest state, now and again when much has been merged: never refused."""
        with self.table.snapshot() as snapshot:
            while self.settled < snapshot.timestamp and self.run.goes_on():
                time.sleep(0.002)
            if self.settled < snapshot.timestamp:
                return
            state = self.state(snapshot.timestamp)
            check_reads(self.table, snapshot, state, KEYS, rng)
            time.sleep(rng.choice((0, 0.05, 0.5)))
            check_reads(self.table, snapshot, state, KEYS, rng)
        self.run.did("pinned snapshots")

    def read_slowly(self, rng: random.Random) -> None:
        """A scan that goes on while the files that it began with are replaced."""
        at = self.choose(rng)
        if at is None:
            return
        state = self.state(at)

        def read() -> None:
            rows: list[dict[str, Any]] = []
            for batch in self.table.scan(at=at, order=rng.choice(("any", "key")), batch_rows=200):
                rows += batch.to_pylist()
                time.sleep(rng.uniform(0, 0.05))
            assert len(rows) == len(state)
            assert {(row["k"],): (row["a"], row["b"], row["c"]) for row in rows} == state

        self.unless_gone(at, "slow scans", read)

    def read_changes(self, rng: random.Random) -> None:
        ends = sorted({at for at in (self.choose(rng), self.choose(rng)) if at is not None})
        if len(ends) < 2:
            return
        since, until = ends
        later = [t for t in self.times() if since < t <= until]
        until = later[min(len(later), 30) - 1]  # the states of many batches take long to compare
        history = self.history(since, until)
        log_of(self.table).wait_durable(until)  # changes end there

        def read() -> None:
            check_changes(self.table, history, since, until)

        self.unless_gone(since, "changes", read)

    def unless_gone(self, at: int, what: str, read: Callable[[], object]) -> None:
        """Only what lies before the oldest readable time may be refused."""
        oldest = oldest_ts_of(self.table)
        try:
            read()
        except kc.SnapshotTooOld:
            assert at < oldest_ts_of(self.table), f"{at} was refused"
            self.run.did("refused")
        else:
            assert at >= oldest, f"{at} was read, history begins at {oldest}"
            self.run.did(what)


def missing(table: kc.Table, kinds: Sequence[str]) -> list[str]:
    done = table.metrics()
    return [kind for kind in kinds if not done.get(f"{kind}_count")]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("retention_s", [86_400, 0.5], ids=["history kept", "history collected"])
def test_every_settled_time_is_as_it_was(
    tmp_path: Path, seed: int, long: bool, retention_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "POLL_S", 0.02)
    monkeypatch.setattr(operations, "LOOK_AGAIN_S", 0.1)
    for name, files in {"MINOR_FILES": 4, "MOST_FILES": 8}.items():
        monkeypatch.setattr(delta_policy, name, files)
    for number in range(20 if long else 1):
        rng = random.Random(f"{seed} {number}")
        options = {**OPTIONS, "history_retention_s": retention_s, "durability": rng.choice(("sync", "none"))}
        by = [kc.HashPartition(["k"], 2)] if rng.random() < 0.7 else []
        path = tmp_path / f"t{number}"
        with checking(number % 4 == 0), segments_of(SMALL), quick_switches():
            table = kc.create_table(path, SCHEMA, "k", partition_by=by, options=options)
            try:
                beside = one_run(table, f"{seed} {number}", 20 if long else 4, retention_s, rng)
            except Exception as error:
                error.add_note(f"run {number} of --seed={seed}, {options['durability']}, {by}")
                raise
            finally:
                table.close()
        with kc.open_table(path, "rw", options={"maintenance": "manual"}) as again:
            look_back(again, beside, rng)


def one_run(table: kc.Table, seed: str, seconds: float, retention_s: float, rng: random.Random) -> Beside:
    run = Run(LONGEST_S)
    beside = Beside(table, seed, run)
    kinds = (*KINDS, "history_gc") if retention_s < 1 else KINDS

    wanted = [*(f"batches of writer {n}" for n in range(WRITERS)), "past times", "pinned snapshots"]
    wanted += ["slow scans", "changes"]

    def seldom() -> list[str]:
        return [name for name in wanted if run.counts.get(name, 0) <= 3]

    def watch() -> None:
        """The end comes when everything has happened, but not before the time is up."""
        until = time.monotonic() + seconds
        while run.goes_on() and (missing(table, kinds) or seldom() or time.monotonic() < until):
            time.sleep(0.05)
        run.until = 0

    run.all(
        watch,
        *(lambda number=number: beside.writer(number) for number in range(WRITERS)),
        *(lambda number=number: beside.reader(number) for number in range(READERS)),
    )
    metrics = table.metrics()
    print(run.counts, {name: n for name, n in metrics.items() if name.endswith("_count")})
    assert not missing(table, kinds), f"{missing(table, kinds)} never happened"
    told = table.history()  # once: maintenance goes on
    failed = told.filter(told["error"].is_valid())
    assert not failed.num_rows, failed.to_pylist()
    assert not seldom(), run.counts
    assert bool(run.counts.get("refused")) <= (retention_s < 1)
    look_back(table, beside, rng)
    return beside


def look_back(table: kc.Table, beside: Beside, rng: random.Random) -> None:
    """Nobody writes any more: times of the whole run, and what all of it came to."""
    newest = max(notes.times[-1] for notes in beside.notes)
    state = beside.state(newest)
    check_reads(table, None, state, KEYS, rng)
    beside.table = table
    for at in rng.sample(beside.times(), 20):
        past = beside.state(at)
        # The background may still collect history.
        read = lambda at=at, past=past: check_reads(table, at, past, KEYS, rng)  # noqa: E731
        beside.unless_gone(at, "looks back", read)
    assert {(r["k"],): (r["a"], r["b"], r["c"]) for r in table.scan().to_pylist()} == state
    table.verify()
