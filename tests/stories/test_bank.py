"""Transfers between accounts, each an atomic batch over rows of several tablets: the sum never changes.

Seen now, at pinned snapshots and at random past times, by scans, counts and point reads, in any order, while
flushes and delta compactions run, and with the engine's invariants asserted.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.support.faults import checking
from tests.support.inside import oldest_ts_of
from tests.support.threads import LONGEST_S, quick_switches

SCHEMA = pa.schema([("account", pa.int64()), ("balance", pa.int64()), ("note", pa.string())])
ACCOUNTS, WRITERS, READERS, EACH = 120, 3, 3, 1000


class Bank:
    def __init__(self, table: kc.Table, seed: int) -> None:
        self.table = table
        self.seed = seed
        self.stop = threading.Event()
        self.failures: list[BaseException] = []
        self.transfers = [0] * WRITERS
        self.looks = [0] * READERS
        rows = {"account": range(ACCOUNTS), "balance": [EACH] * ACCOUNTS}
        self.first = table.insert({k: list(v) for k, v in rows.items()}).timestamp
        self.times = [self.first]
        self.held: kc.Snapshot | None = None
        """One that all readers share."""
        self.gone = 0
        """Reads of times that history no longer reached."""

    def _until_stopped(self, work: Callable[[], None]) -> None:
        try:
            while not self.stop.is_set():
                work()
        except BaseException as error:  # noqa: BLE001  raised by run()
            self.failures.append(error)
            self.stop.set()

    def writer(self, number: int) -> None:
        """Accounts of its own, so that it knows their balances."""
        rng = random.Random(f"{self.seed} writer {number}")
        balances = dict.fromkeys(range(number, ACCOUNTS, WRITERS), EACH)

        def transfer() -> None:
            some = rng.sample(sorted(balances), rng.randint(2, 10))
            left = 0
            for account in some[1:]:
                amount = rng.randint(-50, 50)
                balances[account] += amount
                left -= amount
            balances[some[0]] += left
            rows = [{"account": a, "balance": balances[a]} for a in some]
            way = rng.random()
            if way < 0.5:
                result = self.table.update(rows)
            elif way < 0.8:
                result = self.table.upsert(rows)
            else:  # accounts are closed and opened again within one batch
                with self.table.batch() as batch:
                    batch.delete({"account": some})
                    batch.insert(rows)
                assert batch.result is not None
                result = batch.result
            assert result.updated + result.inserted == len(some), result
            self.times.append(result.timestamp)
            self.transfers[number] += 1

        self._until_stopped(transfer)

    def reader(self, number: int) -> None:
        rng = random.Random(f"{self.seed} reader {number}")

        def look() -> None:
            way = rng.random()
            if way < 0.3:
                self.check(None, rng)
            elif way < 0.45 and len(self.times) > 1:
                times = sorted(rng.sample(self.times[-200:], 2))
                self.unless_gone(times[0], lambda: self.check_changes(*times, rng))
            elif way < 0.7:
                at = rng.choice(self.times)
                self.unless_gone(at, lambda: self.check(at, rng))
            elif way < 0.8:
                held = self.held
                if held is not None:
                    with suppress(kc.Closed):  # it may be let go at any moment
                        assert set(self.check(held, rng).values()) == {EACH}, "not as it was pinned"
            else:
                with self.table.snapshot() as snapshot:
                    seen = self.check(snapshot, rng)
                    time.sleep(rng.random() / 50)
                    assert self.check(snapshot, rng) == seen, "a pinned snapshot has changed"
            self.looks[number] += 1

        self._until_stopped(look)

    def unless_gone(self, at: int, read: Callable[[], object]) -> None:
        """Only what lies before the oldest readable time may be refused."""
        oldest = oldest_ts_of(self.table)
        try:
            read()
        except kc.SnapshotTooOld:
            assert at < oldest_ts_of(self.table), f"{at} was refused"
            self.gone += 1
        else:
            assert at >= oldest, f"{at} was read, history begins at {oldest}"

    def check(self, at: int | kc.Snapshot | None, rng: random.Random) -> dict[int, int]:
        order = rng.choice(("any", "key"))
        found = self.table.scan(["account", "balance"], at=at, order=order).to_table()
        assert found.num_rows == ACCOUNTS, f"{found.num_rows} accounts at {at}"
        assert pc.sum(found["balance"]).as_py() == ACCOUNTS * EACH, f"money at {at}"
        seen = dict(zip(found["account"].to_pylist(), found["balance"].to_pylist(), strict=True))
        if at is not None:
            bound = rng.randint(EACH - 200, EACH + 200)
            above = self.table.scan(["account"], [("balance", ">", bound)], at=at).to_table()
            assert set(above["account"].to_pylist()) == {a for a, b in seen.items() if b > bound}
            keys = rng.sample(range(ACCOUNTS), 7)
            many = self.table.get_many(keys, ["balance"], at)["balance"].to_pylist()
            assert many == [seen[key] for key in keys]
            assert self.table.get(keys[0], at=at) == {
                "account": keys[0],
                "balance": seen[keys[0]],
                "note": None,
            }
        return seen

    def check_changes(self, since: int, until: int, rng: random.Random) -> None:
        """What one account gained another lost, in every window and at every time in it."""
        net = rng.random() < 0.5
        told = self.table.changes(since, until, columns=["account", "balance"], images="both", net=net)
        moved: dict[int, int] = {}
        for row in told.to_pylist():
            assert row["_op"] == "update", "an account was opened or closed"
            time = until if net else row["_timestamp"]
            moved[time] = moved.get(time, 0) + row["balance"] - row["_before"]["balance"]
        assert not any(moved.values()), f"money made or lost at {[t for t, m in moved.items() if m]}"

    def tender(self) -> None:
        """Flushes and compactions beside those of the background."""
        rng = random.Random(f"{self.seed} tender")

        def tend() -> None:
            time.sleep(rng.random() / 10)
            compact = lambda: self.table.compact(full=rng.random() < 0.5)  # noqa: E731
            rng.choice((self.table.flush, compact, self.table.gc))()

        self._until_stopped(tend)

    def run(self, seconds: float) -> None:
        works = [
            *(threading.Thread(target=self.writer, args=(n,)) for n in range(WRITERS)),
            *(threading.Thread(target=self.reader, args=(n,)) for n in range(READERS)),
            threading.Thread(target=self.tender),
        ]
        self.held = self.table.snapshot(self.first)
        for work in works:
            work.start()
        self.stop.wait(seconds / 3)
        self.held.close()
        self.held = None
        self.stop.wait(seconds * 2 / 3)
        latest = time.monotonic() + LONGEST_S
        while min(*self.transfers, *self.looks) <= 3 and time.monotonic() < latest:
            self.stop.wait(0.1)  # a busy machine
        self.stop.set()
        for work in works:
            work.join()
        if self.failures:
            raise self.failures[0]


@pytest.mark.parametrize("retention_s", [86_400, 0.2], ids=["history kept", "history collected"])
def test_money_is_neither_made_nor_lost(tmp_path: Path, seed: int, long: bool, retention_s: float) -> None:
    by = [kc.HashPartition(["account"], 4)]
    options = {
        "flush_threshold_bytes": 1 << 20,
        "durability": "none",
        "file_grace_s": 0,
        "scan_threads": 2,
        "history_retention_s": retention_s,
    }
    with checking(True), quick_switches():
        with kc.create_table(tmp_path / "t", SCHEMA, "account", partition_by=by, options=options) as table:
            bank = Bank(table, seed)
            bank.run(60 if long else 4)
            print(f"{bank.transfers} transfers, {bank.looks} looks")
            assert min(bank.transfers) > 3 and min(bank.looks) > 3
            rng = random.Random(seed)
            for moment in rng.sample(bank.times, min(len(bank.times), 20)):
                bank.unless_gone(moment, lambda moment=moment: bank.check(moment, rng))  # type: ignore[misc]
            assert bool(bank.gone) == (retention_s < 1)
            last = bank.check(None, rng)
            table.flush()  # makes all durable, and changes end there
            changes = table.changes(bank.first if retention_s > 1 else None, net=True).to_table()
            changed = dict(zip(changes["account"].to_pylist(), changes["balance"].to_pylist(), strict=True))
            assert dict.fromkeys(range(ACCOUNTS), EACH) | changed == last
        with kc.open_table(tmp_path / "t") as reader:
            assert pc.sum(reader.scan(["balance"]).to_table()["balance"]).as_py() == ACCOUNTS * EACH


@pytest.mark.parametrize("broken", ["torn", "late"])
def test_a_leak_is_noticed(tmp_path: Path, seed: int, broken: str) -> None:
    """The check itself can fail."""
    with kc.create_table(tmp_path / "t", SCHEMA, "account", options={"durability": "none"}) as table:
        bank = Bank(table, seed)
        if broken == "torn":
            table.update([{"account": 1, "balance": EACH - 1}])
        else:
            table.delete({"account": [1]})
        with pytest.raises(AssertionError):
            bank.check(None, random.Random(seed))
        bank.times.append(table.timestamp)
        with pytest.raises(AssertionError):
            bank.check_changes(*bank.times, random.Random(seed))
