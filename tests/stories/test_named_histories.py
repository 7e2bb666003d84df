"""Histories by which Kudu learned: its named corner cases, as its tests and issues tell them.

Each is a list of batches over a few keys.  Wherever flushes, compactions and openings fall between them,
every time shows the fold of the batches up to it, and what changed between any two times is the difference;
and so it is where history was dropped up to any of the times.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.run.clock import hybrid
from kudu_core.tablet.maintain.delta_policy import MAJOR, MINOR
from tests.support.clock import ManualClock
from tests.support.faults import checking
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of, oldest_ts_of, wait_durable
from tests.support.models.drawing import drawing
from tests.support.models.model import Event, TableModel, Timeline, check_events, check_net, state_of

SCHEMA = pa.schema([("key", pa.string()), ("val", pa.uint32())])
OPTIONS = {"maintenance": "manual", "durability": "none", "file_grace_s": 0, "history_retention_s": None}
Batch = Sequence[tuple[str, str, int | None]]
"""Operations of one timestamp: (operation, key, value)."""

UP, DEL, INS = "update", "delete", "insert"
HISTORIES: dict[str, list[Batch]] = {
    "one row through every store": [
        [(INS, "k", 1)], [(UP, "k", 2)], [(UP, "k", 3)], [(DEL, "k", None)], [(INS, "k", 7)], [(UP, "k", 8)],
    ],
    "ghosts in three rowsets": [
        [(INS, "k", 1)], [(DEL, "k", None)], [(INS, "k", 3)], [(DEL, "k", None)], [(INS, "k", 5)],
    ],
    "a dead row beside living ones, revived": [
        [(INS, "a", 1), (INS, "k", 1), (INS, "z", 1)], [(DEL, "k", None)], [(INS, "k", 2), (UP, "a", 2)],
        [(DEL, "k", None), (UP, "z", 3)], [(INS, "k", 4)],
    ],
    "deleted and inserted in one batch": [
        [(INS, "k", 1)], [(DEL, "k", None), (INS, "k", 2)], [(DEL, "k", None)],
        [(INS, "k", 3), (DEL, "k", None), (INS, "k", 4)], [(INS, "j", 1), (DEL, "j", None)],
        [(DEL, "k", None), (INS, "k", 5), (DEL, "k", None)],
    ],
    "updated and deleted in one batch": [
        [(INS, "j", 1), (INS, "k", 1)], [(UP, "k", 2), (DEL, "k", None)], [(INS, "k", 3)],
        [(UP, "k", 4), (DEL, "k", None), (INS, "k", 5), (UP, "k", 6)],
    ],
    "one rowset ends when another begins": [
        [(INS, "a", 1)], [(DEL, "a", None), (INS, "b", 1)], [(DEL, "b", None), (INS, "a", 2)],
        [(UP, "a", 3), (INS, "b", 3)],
    ],
    "changes of two rowsets by turns": [
        [(INS, "a", 1), (INS, "d", 1)], [(INS, "b", 1), (INS, "c", 1)], [(UP, "a", 2)], [(UP, "b", 2)],
        [(UP, "d", 3), (UP, "c", 3)], [(DEL, "a", None), (UP, "b", 4)], [(INS, "a", 5), (DEL, "b", None)],
    ],
    "lives within the window": [
        [(INS, "z", 0)], [(INS, "k", 1)], [(DEL, "k", None)], [(INS, "k", 1)], [(UP, "k", 2)],
        [(DEL, "k", None)],
    ],
    "changed back": [
        [(INS, "k", 1)], [(UP, "k", 2)], [(UP, "k", 1)], [(DEL, "k", None)], [(INS, "k", 1)],
    ],
    "NULL and back": [[(INS, "k", None)], [(UP, "k", 1)], [(UP, "k", None)], [(UP, "k", 2)]],
}  # fmt: skip
BETWEEN = ("", "", "flush", "flush", "minor", "major", "full", "reopen")


class Told:
    """A table and what was written to it."""

    def __init__(self, seed: str, long: bool) -> None:
        self.rng = random.Random(seed)
        self.pairs = 200 if long else 8
        self.fs = MemoryFileSystem()
        self.clock = ManualClock()
        self.model = TableModel(["key"], {"val": None})
        self.timeline = Timeline()
        self.table = kc.create_table("/t", SCHEMA, "key", options=OPTIONS, _fs=self.fs, _clock=self.clock)

    def open(self, mode: str = "r", **options: object) -> kc.Table:
        return kc.open_table("/t", mode, options=options or None, _fs=self.fs, _clock=self.clock)

    def write(self, batch: Batch) -> None:
        self.clock.advance(us=1_000_000)
        with self.table.batch() as b:
            for op, key, value in batch:
                if op == DEL:
                    b.delete({"key": [key]})
                else:
                    getattr(b, op)([{"key": key, "val": value}])
        assert b.result is not None
        for op, key, value in batch:
            row = {"key": key} if op == DEL else {"key": key, "val": value}
            assert self.model.apply(op, row) is None
        if b.result.timestamp > self.timeline.times[-1]:
            self.timeline.commit(b.result.timestamp, self.model.state())

    def reopen(self, **options: object) -> None:
        self.table.close()
        self.table = self.open("rw", **options)

    def between(self, what: str) -> None:
        self.clock.advance(us=1000)
        if what == "reopen":
            self.reopen()
        elif what:
            self.table.flush()
        if what == "full":
            self.table.compact(full=True)
        elif what in ("minor", "major"):
            engine = engine_of(self.table)
            assert engine.compactions is not None
            for tablet in engine.tablets:
                for rowset in tablet.view.rowsets:
                    engine.compactions.compact(tablet, rowset.id, MINOR if what == "minor" else MAJOR)

    # ---- looking ----

    def check(self, table: kc.Table | None = None) -> None:
        table = table or self.table
        if table is self.table:
            wait_durable(table)
        oldest = oldest_ts_of(table)
        times = sorted({t for time in self.timeline.times[1:] for t in (time - 1, time)})
        for at in times:
            if at < oldest:
                with pytest.raises(kc.SnapshotTooOld):
                    table.scan(at=at).to_table()
                with pytest.raises(kc.SnapshotTooOld):
                    table.get("k", at=at)
                continue
            state = self.timeline.at(at)
            for order in ("any", "key"):
                rows = table.scan(at=at, order=order).to_table().to_pylist()
                assert state_of(self.model, rows) == state
            keys = sorted({key for s in self.timeline.times for key in self.timeline.at(s)})
            many = table.get_many([key for (key,) in keys], at=at)
            for (key,), row in zip(keys, many.to_pylist(), strict=True):
                there = (key,) in state
                assert row["_found"] == there and row["val"] == (state[key,][0] if there else None)
                assert table.get(key, at=at) == ({"key": key, "val": state[key,][0]} if there else None)
            assert table.count(at=at) == len(state)
            twos = sum(row == (2,) for row in state.values())
            assert table.scan(where=[("val", "=", 2)], at=at).count() == twos
        readable = [t for t in times if t >= oldest]
        pairs = list(itertools.combinations(readable, 2))
        for since, until in self.rng.sample(pairs, min(len(pairs), self.pairs)):
            self._check_changes(table, since, until)

    def _check_changes(self, table: kc.Table, since: int, until: int) -> None:
        told: dict[bool, list[Event]] = {}
        for net in (False, True):
            rows = table.changes(since, until, images="both", net=net).to_pylist()
            told[net] = [
                (
                    row["_timestamp"],
                    (row["key"],),
                    None if row["_before"] is None else (row["_before"]["val"],),
                    None if row["_op"] == "delete" else (row["val"],),
                )
                for row in rows
            ]
        check_events(self.timeline, since, until, told[False])
        last = {key: time for time, key, _, _ in told[False]}
        check_net(self.timeline, since, until, told[True], last)


def play(seed: str, long: bool, batches: Sequence[Batch], between: Sequence[str]) -> Told:
    story = Told(seed, long)
    for batch, then in zip(batches, between, strict=True):
        story.write(batch)
        story.between(then)
    print(between, *drawing(story.table, story.timeline.times[1:]), sep="\n")  # shown with a failure
    return story


@pytest.mark.parametrize("name", HISTORIES)
def test_every_time_is_the_fold_of_the_batches(name: str, long: bool, seed: int) -> None:
    batches, rng = HISTORIES[name], random.Random(f"{seed}-{name}")
    placements = [[what] * len(batches) for what in dict.fromkeys(BETWEEN)]
    placements += [[rng.choice(BETWEEN) for _ in batches] for _ in range(200 if long else 1)]
    for number, between in enumerate(placements):
        with checking(True):
            story = play(f"{seed}-{number}", long, batches, between)
            story.check()
            story.between("full")
            story.check()
            story.reopen()
            story.check()
            story.table.close()
        with story.open() as reader:
            story.check(reader)


@pytest.mark.parametrize("name", HISTORIES)
def test_history_may_end_at_any_of_the_times(name: str, long: bool, seed: int) -> None:
    """Collected up to one time after the other: what is left is as it was, no dead row comes back."""
    batches, rng = HISTORIES[name], random.Random(f"{seed}-{name}")
    for number in range(60 if long else 1):
        between = [rng.choice(BETWEEN[2:]) for _ in batches]
        with checking(True):
            story = play(f"{seed}-{number}", long, batches, between)
            newest = story.timeline.times[-1]
            for time in story.timeline.times[1:]:
                retention_us = story.clock.now_us() - (time >> 12)
                story.reopen(history_retention_s=retention_us / 1e6)
                wanted = min(hybrid(story.clock.now_us() - retention_us), newest)
                if rng.random() < 0.5:
                    story.table.compact(full=True)
                story.table.gc()
                assert oldest_ts_of(story.table) in (*story.timeline.times, 0)
                assert oldest_ts_of(story.table) <= wanted
                story.check()
            story.write([("insert", "new", 9)])  # ghosts are no rows
            story.write([("upsert", "k", 100)])
            story.check()
            story.between("full")
            story.check()
            story.table.close()


def test_a_collection_between_the_deaths_of_a_row() -> None:
    """The worked history: at its second death, and after its second life has begun."""
    batches = HISTORIES["one row through every store"]
    with checking(True):
        story = play("", True, batches, ("", "flush", "", "flush", "", "flush"))
        times = story.timeline.times
        for at, val in ((times[4], None), (times[5], 7)):
            story.reopen(history_retention_s=(story.clock.now_us() - (at >> 12)) / 1e6)
            story.table.compact(full=True)
            story.table.gc()
            row = story.table.get("k", at=max(at, oldest_ts_of(story.table)))
            assert row == (None if val is None else {"key": "k", "val": val})
            story.check()
        story.table.close()


def test_very_many_updates_of_one_row_in_one_batch_beside_flushes() -> None:
    """One net change under one timestamp, in one store (KUDU-3291 had them in two)."""
    with checking(True):
        story = Told("", True)
        story.write([("insert", "k", 0), ("insert", "other", 0)])
        story.between("flush")
        stop = threading.Event()

        def flush() -> None:
            while not stop.is_set():
                story.table.flush()

        thread = threading.Thread(target=flush)
        thread.start()
        try:
            for round_ in range(4):
                keys = ["k", "other"] * 5000
                values = [round_ * 20_000 + i for i in range(10_000)]
                story.clock.advance(us=10)
                result = story.table.update({"key": keys, "val": values})
                assert result.updated == 10_000
                for key, value in zip(keys[-2:], values[-2:], strict=True):
                    assert story.model.apply("update", {"key": key, "val": value}) is None
                story.timeline.commit(result.timestamp, story.model.state())
        finally:
            stop.set()
            thread.join()
        story.check()
        story.table.close()
