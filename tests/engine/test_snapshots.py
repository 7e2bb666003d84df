"""A snapshot is one moment, and reading it never changes."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from tests.engine.conftest import Make


@pytest.mark.parametrize("threshold", [1, 100_000])
def test_a_pinned_snapshot_reads_the_same_while_others_write(make: Make, threshold: int) -> None:
    table = make(partition_by=kc.HashPartition("k", 2), ingest_threshold_rows=threshold)
    table.insert({"k": list(range(100)), "a": list(range(100)), "s": ["old"] * 100})
    with table.snapshot() as snapshot:
        half_read = iter(snapshot.scan(["k", "a", "s"], batch_rows=10))
        first = next(half_read)
        whole = snapshot.scan(order="key").to_table()
        for step in range(6):
            table.update({"k": [step, 50 + step], "a": [-1, -2]})
            table.delete({"k": [10 + step]})
            table.upsert({"k": [200 + step, 20 + step], "s": ["new"] * 2})
            with table.batch() as batch:
                batch.delete({"k": [30 + step]})
                batch.insert({"k": [30 + step], "a": [7]})
            if step % 2:
                table.flush()
            assert snapshot.scan(order="key").to_table().equals(whole)
            assert snapshot.get(step, ["a"]) == {"a": step}
            assert snapshot.get(10 + step, ["s"]) == {"s": "old"}
            assert snapshot.get(200 + step) is None
            assert snapshot.scan(where=pc.field("s") == "new").count() == 0
            assert snapshot.get_many([10, 200], ["a"])["_found"].to_pylist() == [True, False]
        rest = pa.Table.from_batches([first, *half_read])
        assert rest.sort_by("k").select(["k", "a", "s"]).equals(whole.select(["k", "a", "s"]))
        assert table.scan(order="key", at=snapshot).to_table().equals(whole)
        assert table.scan(order="key", at=snapshot.timestamp).to_table().equals(whole)
    assert table.count() == 100


def test_at_is_inclusive(table: kc.Table) -> None:
    times = [table.upsert({"k": [1], "a": [i]}).timestamp for i in range(5)]
    assert times == sorted(set(times))
    for flushed in (False, True):
        for i, ts in enumerate(times):
            assert table.get(1, ["a"], at=ts) == {"a": i}
            assert table.get(1, ["a"], at=ts - 1) == (None if i == 0 else {"a": i - 1})
            assert table.count(at=ts - 1) == (0 if i == 0 else 1)
        if not flushed:
            table.flush()


def test_at_takes_aware_times(table: kc.Table) -> None:
    before = dt.datetime.now(dt.UTC)
    time.sleep(0.002)
    table.insert({"k": [1]})
    time.sleep(0.002)
    after = dt.datetime.now(dt.UTC)
    table.delete([1])
    assert table.count(at=before) == 0
    assert table.count(at=after) == 1
    assert table.count(at=after.astimezone(dt.timezone(dt.timedelta(hours=-7)))) == 1
    assert table.count(at=dt.datetime.now(dt.UTC)) == 0
    with pytest.raises(kc.InvalidArgument, match="no time zone"):
        table.count(at=dt.datetime(2024, 1, 1))


def test_what_was_read_does_not_change(table: kc.Table) -> None:
    """A moment that was read is over: no write may come to lie at or before it."""
    for i in range(20):
        now = dt.datetime.now(dt.UTC)
        seen = table.count(at=now)
        ts = table.insert({"k": [i]}).timestamp
        assert table.count(at=now) == seen == i
        assert table.scan(at=now).timestamp < ts


def test_the_future_cannot_be_read(table: kc.Table, path: Path) -> None:
    table.insert({"k": [1]})
    tomorrow = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    for at in (tomorrow, 2**63):
        with pytest.raises(kc.SnapshotInFuture):
            table.scan(at=at)
    with pytest.raises(kc.InvalidArgument):
        table.scan(at=2**64)
    table.flush()
    with kc.open_table(path) as reader:
        last = table.insert({"k": [2]}).timestamp
        table.flush()
        with pytest.raises(kc.SnapshotInFuture):
            reader.count(at=last)
        reader.refresh()
        assert reader.count(at=last) == 2


def test_old_moments_survive_flushes_and_reopening(make: Make, path: Path) -> None:
    """Deleted, flushed, inserted anew, flushed, reopened: each moment is still as it was."""
    table = make(durability="sync")
    states: list[tuple[int, list[dict[str, object]]]] = []

    def note(result: kc.WriteResult) -> None:
        states.append((result.timestamp, table.scan(["k", "a"], order="key").to_pylist()))

    def check(t: kc.Table) -> None:
        for ts, rows in states:
            assert t.scan(["k", "a"], order="key", at=ts).to_pylist() == rows

    note(table.insert({"k": [1, 2], "a": [1, 1]}))
    table.flush()
    note(table.delete([1]))
    table.flush()
    note(table.insert({"k": [1], "a": [2]}))
    check(table)
    table.flush()
    note(table.delete([1]))
    note(table.insert({"k": [1], "a": [3]}))
    note(table.update({"k": [1, 2], "a": [4, 4]}))
    check(table)
    table.flush()
    note(table.delete([1, 2]))
    with table.batch() as batch:
        batch.insert({"k": [1], "a": [5]})
        batch.update({"k": [1], "a": [6]})
    assert batch.result is not None
    note(batch.result)
    check(table)
    table.close()
    with kc.open_table(path) as reader:
        check(reader)
    with kc.open_table(path, "rw") as again:
        check(again)
        again.flush()
        check(again)


def test_snapshots_are_counted_and_let_go(table: kc.Table) -> None:
    def pinned() -> int:
        count: int = table.stats()["snapshots_pinned"].to_pylist()[0]
        return count

    assert pinned() == 0
    snapshot, scan = table.snapshot(), table.scan()
    assert pinned() == 2
    snapshot.close()
    snapshot.close()
    del scan
    assert pinned() == 0
    with pytest.raises(kc.Closed):
        table.scan(at=snapshot)
    with pytest.raises(kc.Closed):
        snapshot.scan()
