"""Many threads on one table: what is promised to one of them holds for all at once."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.idempotence.writers import RECENT_VERSIONS
from tests.support.inside import log_of
from tests.support.threads import Run

ACCOUNTS = 200
START = 100
SCHEMA = pa.schema([("id", pa.int64()), ("balance", pa.int64()), ("note", pa.string())])
OPTIONS = {
    "durability": "group",
    "flush_threshold_bytes": 262_144,
    "flush_age_s": 0.2,
    "rowset_target_bytes": 65_536,
    "ingest_threshold_rows": 40,
    "file_grace_s": 5,
}


class Transfers:
    """A table of accounts, and what its threads do: money moves between the accounts of one half."""

    def __init__(self, path: Path, seed: int, run: Run) -> None:
        self.path, self.seed, self.run = path, seed, run
        by = kc.HashPartition("id", 4)
        self.table = kc.create_table(path, SCHEMA, "id", partition_by=by, options=OPTIONS)
        ids = list(range(ACCOUNTS))
        self.table.insert({"id": ids, "balance": [START] * ACCOUNTS, "note": ["x"] * ACCOUNTS})
        self.balances = dict.fromkeys(ids, START)

    def transfer(self, accounts: range, number: int) -> None:
        """The one writer of its accounts, so that it knows what is in them."""
        rng = random.Random(self.seed * 100 + number)
        while self.run.goes_on():
            some = rng.sample(accounts, rng.choice((2, 5, 10, 60)))
            amount = rng.randint(1, 5)
            new = {k: self.balances[k] + amount for k in some}
            new[some[0]] -= amount * len(some)
            x = rng.random()
            if x < 0.6:
                self.table.update({"id": some, "balance": [new[k] for k in some]})
            elif x < 0.8:
                with self.table.batch() as batch:
                    batch.delete(some)
                    batch.insert({"id": some, "balance": [new[k] for k in some], "note": ["y"] * len(some)})
            else:
                self.table.upsert({"id": some, "balance": [new[k] for k in some], "note": [None] * len(some)})
            self.balances.update(new)
            own = self.table.get(some[0], ["balance"])
            assert own == {"balance": new[some[0]]}, "one's own write is visible"
            self.run.did("transfers")

    def insert(self) -> None:
        """Grows and shrinks the table beside the accounts, with rows that hold nothing."""
        first = 10**6
        while self.run.goes_on():
            ids = list(range(first, first + 30 + first % 30))
            self.table.insert({"id": ids, "balance": [0] * len(ids), "note": ["z"] * len(ids)})
            if first % 7 == 0:
                self.table.delete(where=[("id", ">=", first - 500), ("balance", "=", 0)])
            first += len(ids)
            self.run.did("inserts")

    def read(self, number: int) -> None:
        rng = random.Random(self.seed * 100 + 50 + number)
        seen: list[int] = []
        last = 0
        while self.run.goes_on():
            with self.table.snapshot() as snapshot:
                assert snapshot.timestamp >= last, "time went back"
                last = snapshot.timestamp
                seen.append(last)
                scan = snapshot.scan(["id", "balance"], order=rng.choice(("any", "key")), batch_rows=1000)
                found = scan.to_table()
                assert sum(found["balance"].to_pylist()) == ACCOUNTS * START
                accounts = [i for i in found["id"].to_pylist() if i < ACCOUNTS]
                assert len(accounts) == ACCOUNTS == len(set(accounts))
                assert snapshot.scan(where=[("id", "<", ACCOUNTS)]).count() == ACCOUNTS
                many = snapshot.get_many(list(range(ACCOUNTS)), ["balance"])
                assert sum(many["balance"].to_pylist()) == ACCOUNTS * START
            past = self.table.scan(["balance"], at=rng.choice(seen)).to_table()
            assert sum(past["balance"].to_pylist()) == ACCOUNTS * START
            self.run.did("snapshots")

    def read_elsewhere(self) -> None:
        last = 0
        while self.run.goes_on():
            with kc.open_table(self.path) as reader:
                for _ in range(3):
                    assert reader.timestamp >= last
                    last = reader.timestamp
                    assert sum(reader.scan(["balance"]).to_table()["balance"].to_pylist()) == ACCOUNTS * START
                    tokens = reader.scan_tokens(["balance"], target_rows=50)
                    shares = [reader.scan_token(t).to_table()["balance"].to_pylist() for t in tokens]
                    assert sum(map(sum, shares)) == ACCOUNTS * START
                    reader.refresh()
            self.run.did("openings")
            time.sleep(0.05)

    def flush(self) -> None:
        while self.run.goes_on():
            time.sleep(0.1)
            self.table.flush()
            self.run.did("flushes")


@pytest.mark.parametrize("checked", [True, False], ids=["invariants checked", "at full speed"])
def test_transfers_keep_the_sum(
    path: Path, long: bool, seed: int, checked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Money moves in batches; every snapshot, of every kind of reader, holds the same sum."""
    if checked:
        monkeypatch.setenv("KUDU_CORE_CHECK", "1")
    run = Run(30 if long else 1.5, {"transfers": 3, "inserts": 1, "snapshots": 2, "openings": 1})
    bank = Transfers(path, seed, run)
    halves = (range(ACCOUNTS // 2), range(ACCOUNTS // 2, ACCOUNTS))
    run.all(
        lambda: bank.transfer(halves[0], 0),
        lambda: bank.transfer(halves[1], 1),
        bank.insert,
        lambda: bank.read(0),
        lambda: bank.read(1),
        bank.read_elsewhere,
        bank.flush,
    )
    bank.table.close()
    with kc.open_table(path, "rw") as again:
        rows = again.scan(["id", "balance"], where=[("id", "<", ACCOUNTS)]).to_pylist()
        assert {r["id"]: r["balance"] for r in rows} == bank.balances


def test_writers_of_the_same_keys_are_in_one_order(path: Path, long: bool) -> None:
    """Each write sees the ones before it: no insert succeeds twice, no counter loses a step."""
    run = Run(10 if long else 1.0)
    table = kc.create_table(path, SCHEMA, "id", options={**OPTIONS, "durability": "none"})
    table.insert({"id": [0], "balance": [0]})
    inserted = [0] * 3
    added = [0] * 3

    def write(number: int) -> None:
        rng = random.Random(number)
        while run.goes_on():
            key = rng.randrange(1, 30)
            done = table.insert({"id": [key] * 2 + [key + 1000], "balance": [1] * 3}, on_conflict="ignore")
            inserted[number] += done.inserted
            inserted[number] -= table.delete([key, key + 1000], on_missing="ignore").deleted
            import pyarrow.compute as pc

            added[number] += table.update(
                where=[("id", "=", 0)], set={"balance": pc.field("balance") + 1}
            ).updated
            run.did("rounds")

    run.all(*(lambda n=n: write(n) for n in range(3)))  # type: ignore[misc]
    assert table.get(0, ["balance"]) == {"balance": sum(added)}
    assert table.count() == 1 + sum(inserted)
    table.close()


def test_one_txn_from_many_threads_is_applied_once(path: Path) -> None:
    run = Run(30)
    table = kc.create_table(path, SCHEMA, "id", options={"maintenance": "manual", "durability": "group"})
    results: list[kc.WriteResult] = []

    def write() -> None:
        for version in range(RECENT_VERSIONS):  # a thread may begin when the others have ended
            results.append(table.upsert({"id": [version], "balance": [1]}, txn=("job", version)))

    run.all(*[write] * 4)
    assert sum(not r.deduplicated for r in results) == table.count() == RECENT_VERSIONS
    table.close()


def test_closing_while_others_work(path: Path) -> None:
    """They get ``Closed``; what was acknowledged is there."""
    table = kc.create_table(path, SCHEMA, "id", options={**OPTIONS, "durability": "none"})
    run = Run(30)
    acknowledged: list[int] = []

    def write() -> None:
        try:
            for k in range(10**6):
                table.insert({"id": [k]})
                acknowledged.append(k)
        except kc.Closed:
            return

    def read() -> None:
        try:
            while run.goes_on():
                table.scan().to_table()
                table.get(0)
        except kc.Closed:
            return

    def close() -> None:
        time.sleep(0.3)
        table.close()

    run.all(write, read, read, close)
    with kc.open_table(path) as again:
        keys = again.scan(["id"], order="key").to_table()["id"].to_pylist()
    assert keys[: len(acknowledged)] == acknowledged
    assert len(keys) <= len(acknowledged) + 1
    assert os.path.exists(path)


def test_tokens_made_while_the_watermark_is_written_have_every_row(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an fsync has just made durable is not yet below the watermark that other processes read."""
    schema = pa.schema([("k", pa.int64()), ("a", pa.int64())])
    with kc.create_table(path, schema, "k", options={"durability": "group"}) as table:
        table.insert({"k": [1, 2], "a": [1, 2]})
        table.flush()
        log = log_of(table)
        publish, entered, go = log.publish, threading.Event(), threading.Event()

        def slowly(watermark: int) -> None:
            entered.set()
            assert go.wait(60)
            publish(watermark)

        monkeypatch.setattr(log, "publish", slowly)
        found: list[int] = []

        def shares() -> None:
            for token in table.scan_tokens():
                found.extend(table.scan_token(token).to_table()["k"].to_pylist())

        writer = threading.Thread(target=lambda: table.insert({"k": [3], "a": [3]}))
        writer.start()
        assert entered.wait(60), "the log's thread makes it durable by itself"
        writer.join(1)  # it may return: its row is visible in this process
        reader = threading.Thread(target=shares)
        reader.start()
        reader.join(0.3)
        go.set()
        reader.join(60)
        writer.join(60)
        assert sorted(found) == [1, 2, 3]
