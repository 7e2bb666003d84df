"""Batches that read, merges and conditional writes from many threads come to the same as one after the other.

Their histories are replayed in the order of the timestamps, and every read, every count, every refusal and
every past state must be explained by it (``tests/support/models/serial.py``).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.models.serial import NotSerial, Recorded, State, saw
from tests.support.tables import Make
from tests.support.threads import Run, quick_switches, together

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64())])
KEYS = 24
OPTIONS = {
    "durability": "group",
    "maintenance": "background",
    "flush_threshold_bytes": 65_536,
    "flush_age_s": 0.05,
    "rowset_target_bytes": 65_536,
    "ingest_threshold_rows": 12,
}


class Threads:
    """What each thread does over and over, and its record."""

    def __init__(self, table: kc.Table, seed: int, run: Run) -> None:
        self.table, self.seed, self.run = table, seed, run
        self.recorded = Recorded()

    def work(self, number: int) -> None:
        rng = random.Random(f"{self.seed} {number}")
        others = (self.merge, self.by_source, self.update_if, self.update_set)
        ways = (*[self.batch] * 3, *others)
        while self.run.goes_on():
            way = rng.choice(ways)
            way(rng)
            self.run.did(way.__name__)

    def batch(self, rng: random.Random) -> None:
        """Reads some rows, and writes what follows from them, also after it has written."""
        keys = rng.sample(range(KEYS), rng.randint(1, 4))
        told: list[tuple[Any, Any]] = []
        written: dict[int, Any] = {}
        with self.recorded.one("batch") as done:
            try:
                with self.table.batch() as batch:
                    total = 0
                    for key in keys:
                        row = batch.get(key)
                        if key in written:
                            assert (row and row["n"]) == written[key], "its own write"
                        else:
                            told.append((key, row and row["n"]))
                        total += 0 if row is None else row["n"]
                        if rng.random() < 0.4:
                            target = rng.choice((key, rng.randrange(KEYS)))
                            if rng.random() < 0.2:
                                batch.delete([target], on_missing="ignore")
                                written[target] = None
                            else:
                                batch.upsert([{"k": target, "n": total + 1}])
                                written[target] = total + 1
            except kc.Conflict:
                self.run.did("conflicts")
                return

            def effect(state: State) -> dict[int, Any]:
                for key, found in told:
                    saw(state, key, found)
                return written

            done(batch.result.timestamp, effect, any(batch.result.counts[:3]))

    def merge(self, rng: random.Random) -> None:
        """Adds to what is even, deletes what is large, inserts what is not there, if it is odd."""
        rows = {k: rng.randint(0, 9) for k in rng.sample(range(KEYS), rng.choice((2, 6, 20)))}
        with self.recorded.one("merge") as done:
            merge = self.table.merge({"k": list(rows), "n": list(rows.values())})
            merge.when_matched_delete(where=kc.old("n") > 40)
            merge.when_matched({"n": kc.old("n") + kc.new("n")}, where=kc.new("n") > 3)
            merge.when_not_matched_insert(where=kc.new("n") > 5)
            result = merge.execute()

            def effect(state: State) -> dict[int, Any]:
                gone = {k: None for k in rows if state.get(k, 0) > 40}
                more = {k: state[k] + n for k, n in rows.items() if k in state and k not in gone and n > 3}
                fresh = {k: n for k, n in rows.items() if k not in state and n > 5}
                saw({"clauses": (len(gone), len(more), len(fresh))}, "clauses", result.clauses, "told")
                return {**gone, **more, **fresh}

            done(result.timestamp, effect, any(result.counts[:3]))

    def by_source(self, rng: random.Random) -> None:
        """Looks at every row of the table."""
        kept = rng.sample(range(KEYS), KEYS - 3)
        with self.recorded.one("by source") as done:
            merge = self.table.merge({"k": kept})
            result = merge.when_not_matched_by_source_update({"n": kc.old("n") - 1}).execute()

            def effect(state: State) -> dict[int, Any]:
                found = {k: n - 1 for k, n in state.items() if k not in kept}
                saw({"updated": len(found)}, "updated", result.updated, "told")
                return found

            done(result.timestamp, effect, any(result.counts[:3]))

    def update_if(self, rng: random.Random) -> None:
        """Compare and set; those of which the condition does not hold are told, with what is there."""
        rows = {k: rng.randint(0, 20) for k in rng.sample(range(KEYS), 3)}
        with self.recorded.one("update if") as done:
            data = {"k": list(rows), "n": list(rows.values())}
            less = kc.old("n") < kc.new("n")
            result = self.table.update(data, if_=less, on_missing="ignore", on_error="return")
            assert result.errors is not None
            refused = {row["key"]["k"]: row["there"]["n"] for row in result.errors.to_pylist()}

            def effect(state: State) -> dict[int, Any]:
                failed = {k: state[k] for k, n in rows.items() if k in state and not state[k] < n}
                saw({"refused": failed}, "refused", refused, "told")
                return {k: n for k, n in rows.items() if k in state and state[k] < n}

            done(result.timestamp, effect, any(result.counts[:3]))

    def update_set(self, rng: random.Random) -> None:
        keys = rng.sample(range(KEYS), 2)
        with self.recorded.one("update set") as done:
            result = self.table.upsert({"k": keys, "n": [1, 1]}, set={"n": kc.old("n") + kc.new("n")})

            def effect(state: State) -> dict[int, Any]:
                saw({"inserted": sum(k not in state for k in keys)}, "inserted", result.inserted, "told")
                return {k: state.get(k, 0) + 1 for k in keys}

            done(result.timestamp, effect, True)


def state_of(table: kc.Table, at: int | None = None) -> State:
    return {row["k"]: row["n"] for row in table.scan(at=at).to_pylist()}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("tablets", [1, 4])
def test_histories_are_serialisable(path: Path, long: bool, seed: int, tablets: int) -> None:
    for turn in range(20 if long else 1):
        by = [kc.HashPartition("k", tablets)] if tablets > 1 else []
        place = path.with_name(f"t{turn}")
        wanted = {"batch": 20, "merge": 5, "by_source": 5, "update_if": 5, "update_set": 5, "conflicts": 1}
        run = Run(5 if long else 1.0, wanted)
        with kc.create_table(place, SCHEMA, "k", partition_by=by, options=OPTIONS) as table:
            table.insert({"k": list(range(0, KEYS, 2)), "n": [10] * (KEYS // 2)})
            first, threads = state_of(table), Threads(table, seed + turn, run)
            with quick_switches():
                run.all(*(partial(threads.work, number) for number in range(4)))
            replayed = threads.recorded.replayed(first)
            assert state_of(table) == replayed.states[-1]
            for at in random.Random(seed).sample(replayed.times[1:], min(40, len(replayed.times) - 1)):
                assert state_of(table, at) == replayed.at(at), at
        with kc.open_table(place) as again:
            assert state_of(again) == replayed.states[-1]


def _transaction(recorded: Recorded, at: int, reads: State, writes: State) -> None:
    def effect(state: State) -> State:
        for key, found in reads.items():
            saw(state, key, found)
        return writes

    with recorded.one("one") as done:
        done(at, effect, True)


def test_the_checker_finds_what_is_not_serialisable() -> None:
    first = {"x": 1, "y": 1}
    sound = Recorded()
    _transaction(sound, 1, {"x": 1}, {"y": 2})
    _transaction(sound, 2, {"x": 1, "y": 2}, {"x": None})
    assert sound.replayed(first).states == [first, {"x": 1, "y": 2}, {"y": 2}]
    assert sound.replayed(first).at(1) == {"x": 1, "y": 2}
    lost, skew, backwards, twice = Recorded(), Recorded(), Recorded(), Recorded()
    for at in (1, 2):
        _transaction(lost, at, {"x": 1}, {"x": 2})
    _transaction(skew, 1, first, {"x": 0})
    _transaction(skew, 2, first, {"y": 0})
    _transaction(backwards, 2, {}, {"x": 2})
    _transaction(backwards, 1, {}, {"y": 2})
    for _ in range(2):
        _transaction(twice, 1, {}, {})
    for history in (lost, skew, backwards, twice):
        with pytest.raises(NotSerial):
            history.replayed(first)


def test_no_write_skew(make: Make) -> None:
    """Each of two on call may leave if the other one stays; both have looked before either has left."""
    table = make(SCHEMA, ["k"], partition_by=kc.HashPartition("k", 3))
    table.insert({"k": [1, 2], "n": [1, 1]})

    def leave(batch: kc.Batch, who: int) -> None:
        assert sum(batch.get_many([1, 2])["n"].to_pylist()) == 2
        batch.update([{"k": who, "n": 0}])

    told = r"1 rows have changed.*'k': 1"
    with pytest.raises(kc.Conflict, match=told), table.batch() as second, table.batch() as first:
        leave(first, 1)
        leave(second, 2)
    assert state_of(table) == {1: 0, 2: 1}


# ---- a bank


ACCOUNTS, EACH = 30, 100


def test_transfers_between_any_accounts_keep_the_sum(path: Path, long: bool, seed: int) -> None:
    """No account has an owner: every thread reads two of them and moves money, if there is enough."""
    run = Run(20 if long else 1.5, {"transfers": 50, "looks": 5})
    by = kc.HashPartition("k", 4)
    with kc.create_table(path, SCHEMA, "k", partition_by=by, options=OPTIONS) as table:
        times = [table.insert({"k": list(range(ACCOUNTS)), "n": [EACH] * ACCOUNTS}).timestamp]

        def transfer(number: int) -> None:
            rng = random.Random(f"{seed} {number}")
            while run.goes_on():
                one, other = rng.sample(range(ACCOUNTS), 2)
                amount = rng.randint(1, EACH)
                try:
                    with table.batch() as batch:
                        rows = batch.get_many([one, other])["n"].to_pylist()
                        if rows[0] < amount:
                            continue
                        batch.update({"k": [one, other], "n": [rows[0] - amount, rows[1] + amount]})
                except kc.Conflict:
                    run.did("conflicts")
                    continue
                times.append(batch.result.timestamp)
                run.did("transfers")

        def look() -> None:
            rng = random.Random(seed)
            while run.goes_on():
                for at in (None, rng.choice(times)):
                    found = table.scan(["n"], at=at).to_table()["n"].to_pylist()
                    assert sum(found) == ACCOUNTS * EACH and min(found) >= 0
                with kc.open_table(path) as reader:
                    assert sum(reader.scan(["n"]).to_table()["n"].to_pylist()) == ACCOUNTS * EACH
                run.did("looks")

        with quick_switches():
            run.all(*(partial(transfer, number) for number in range(3)), look)
        for at in random.Random(seed).sample(times, min(len(times), 200)):
            assert sum(state_of(table, at).values()) == ACCOUNTS * EACH


# ---- a counter


EACH_THREAD = 200


def _by_modify(table: kc.Table) -> None:
    table.modify(1, lambda row: {"n": row["n"] + 1})  # type: ignore[index]


def _by_value(table: kc.Table) -> None:
    assert table.update({"k": [1]}, set={"n": kc.old("n") + 1}).updated == 1


def _by_condition(table: kc.Table) -> None:
    while True:
        row = table.get(1)
        assert row is not None
        done = table.update({"k": [1], "n": [row["n"] + 1]}, if_=kc.old("n") == row["n"], on_error="return")
        if done.updated:
            return


def _by_batch(table: kc.Table) -> None:
    while True:
        try:
            with table.batch() as batch:
                row = batch.get(1)
                assert row is not None
                batch.update([{"k": 1, "n": row["n"] + 1}])
        except kc.Conflict:
            continue
        return


def _by_merge(table: kc.Table) -> None:
    table.merge({"k": [1], "n": [1]}).when_matched({"n": kc.old("n") + kc.new("n")}).execute()


WAYS: tuple[Callable[[kc.Table], None], ...] = (_by_modify, _by_value, _by_condition, _by_batch, _by_merge)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.removeprefix("_by_"))
@pytest.mark.parametrize("files", [False, True], ids=["log", "files"])
def test_800_increments_of_four_threads_are_800(
    make: Make, way: Callable[[kc.Table], None], files: bool, long: bool
) -> None:
    count = EACH_THREAD if long or not files else 20  # files are many for one row each
    table = make(SCHEMA, ["k"], ingest_threshold_rows=1 if files else 1000)
    table.insert({"k": [1], "n": [0]})

    def work(_: int) -> None:
        for _ in range(count):
            way(table)

    with quick_switches():
        together(4, work)
    assert table.get(1) == {"k": 1, "n": 4 * count}
