"""A snapshot is one moment, and reading it never changes."""

from __future__ import annotations

import datetime as dt
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.common.format.members import LIMIT
from tests.support.clock import ManualClock, now
from tests.support.inside import engine_of
from tests.support.tables import SCHEMA, Make
from tests.support.threads import Run


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
    before = now()
    time.sleep(0.002)
    table.insert({"k": [1]})
    time.sleep(0.002)
    after = now()
    table.delete([1])
    assert table.count(at=before) == 0
    assert table.count(at=after) == 1
    assert table.count(at=after.astimezone(dt.timezone(dt.timedelta(hours=-7)))) == 1
    assert table.count(at=now()) == 0
    with pytest.raises(kc.InvalidArgument, match="no time zone"):
        table.count(at=dt.datetime(2024, 1, 1))


def test_what_was_read_does_not_change(table: kc.Table) -> None:
    """A moment that was read is over: no write may come to lie at or before it."""
    for i in range(20):
        moment = now()
        seen = table.count(at=moment)
        ts = table.insert({"k": [i]}).timestamp
        assert table.count(at=moment) == seen == i
        assert table.scan(at=moment).timestamp < ts


def test_the_future_cannot_be_read(table: kc.Table, path: Path) -> None:
    table.insert({"k": [1]})
    tomorrow = now() + dt.timedelta(days=1)
    for at in (tomorrow, LIMIT - 1):
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


def test_a_reader_alone_reads_any_moment_up_to_now(table: kc.Table, path: Path) -> None:
    """Nobody writes, so the newest state is that of every moment since (protocol H2)."""
    last = table.insert({"k": [1]}).timestamp
    table.close()
    soon = now()
    with kc.open_table(path) as reader:
        assert reader.count(at=soon) == 1 and reader.scan(at=soon).timestamp == last
        assert reader.get(1, ["k"], at=last + 1) == {"k": 1}
        assert reader.to_dataset(at=soon).timestamp == last
        assert reader.changes(0, soon).until == last
        with pytest.raises(kc.SnapshotInFuture, match=r"is readable here, 0 to \d+ \(1970.*Z to 2\d\d\d-"):
            reader.count(at=soon + dt.timedelta(days=1))
        with kc.open_table(path, "rw") as writer:
            with pytest.raises(kc.SnapshotInFuture, match=r"refresh\(\)"):
                reader.count(at=soon)
            newest = writer.insert({"k": [2]}).timestamp
        for at in (now(), newest):  # nobody writes, but somebody has
            with pytest.raises(kc.SnapshotInFuture, match=r"refresh\(\)"):
                reader.count(at=at)
        reader.refresh()
        assert reader.count(at=now()) == 2


def test_what_is_gone_and_what_is_to_come_say_the_range(make: Make) -> None:
    table = make(history_retention_s=0, durability="sync")
    first = table.insert({"k": [1]}).timestamp
    table.update({"k": [1], "a": [1]})
    table.flush()
    table.compact(full=True)
    table.gc()
    last = table.timestamp
    calls: list[Callable[[Any], Any]] = [
        lambda at: table.scan(at=at),
        lambda at: table.get(1, at=at),
        lambda at: table.get_many([1], at=at),
        lambda at: table.count(at=at),
        lambda at: table.snapshot(at=at),
        lambda at: table.to_dataset(at=at),
        lambda at: table.scan_tokens(at=at),
    ]
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    future = dt.datetime(2111, 1, 1, tzinfo=dt.UTC)
    for call in calls:
        for old in (first, past):
            with pytest.raises(kc.SnapshotTooOld) as gone:
                call(old)
            assert re.search(rf"readable here, (\d+) to {last} \(2\d+.*Z to 2\d+.*Z\)", str(gone.value))
            assert ("2020-01-01T00:00:00+00:00" if old == past else str(first)) in str(gone.value)
        for late in (LIMIT - 1, future):
            with pytest.raises(kc.SnapshotInFuture, match=f"readable here, .* to {last} "):
                call(late)
        for wrong in (dt.datetime(2026, 1, 1), "2026-01-01", 1.5, True, -1, 2**64):
            with pytest.raises(kc.InvalidArgument):
                call(wrong)
        call(last)
    with pytest.raises(kc.ChangesLost, match=rf"since {first} are gone: history reaches back to \d+ \(2"):
        table.changes(first)


@pytest.mark.parametrize("what", ["scan_tokens", "count", "snapshot", "get", "scan", "changes"])
def test_history_that_is_dropped_while_now_is_looked_for(
    make: Make, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is visible is the same before and after; what is durable, and so dropped, has come nearer."""
    table = make(history_retention_s=0, durability="sync")
    table.insert({"k": [1]})
    first = table.update({"k": [1], "a": [1]}).timestamp
    table.update({"k": [1], "a": [2]})
    engine = engine_of(table)
    calls: dict[str, Callable[[], Any]] = {
        "scan_tokens": table.scan_tokens, "count": table.count, "snapshot": table.snapshot,
        "get": lambda: table.get(1), "scan": lambda: table.scan().to_table(), "changes": table.changes,
    }  # fmt: skip
    pin, dropped = engine.pins.pin, []

    def later(snapshot: int) -> Any:
        if not dropped:
            dropped.append(engine.horizon(drop=True))
            snapshot = min(snapshot, first)  # as of who has looked before the last write was durable
        return pin(snapshot)

    monkeypatch.setattr(engine.pins, "pin", later)
    calls[what]()
    assert dropped or what == "get"


def test_a_datetime_covers_its_microsecond(path: Path) -> None:
    """All writes of it, and none of the next."""
    clock = ManualClock()
    with kc.create_table(path, SCHEMA, "k", options={"maintenance": "manual"}, _clock=clock) as table:
        stamps = [table.insert({"k": [k]}).timestamp for k in range(3)]
        at = dt.datetime.fromtimestamp(clock.now_us() // 10**6, dt.UTC) + dt.timedelta(
            microseconds=clock.now_us() % 10**6
        )
        assert len({stamp >> 12 for stamp in stamps}) == 1
        clock.advance(us=1)
        table.insert({"k": [3]})
        assert table.count(at=at) == 3
        assert table.count(at=at - dt.timedelta(microseconds=1)) == 0
        assert table.count(at=at + dt.timedelta(microseconds=1)) == 4
        paris = dt.timezone(dt.timedelta(hours=1))
        assert table.count(at=at.astimezone(paris)) == 3


def test_a_snapshot_is_shared_between_threads_and_keeps_its_history(make: Make) -> None:
    """Read by several while writes, flushes, compactions and GC go on, with no history kept for its own sake;
    every read is one cut over all tablets."""
    table = make(
        partition_by=kc.HashPartition("k", 16), history_retention_s=0, durability="sync", file_grace_s=0
    )
    keys = list(range(160))
    table.insert({"k": keys, "a": [0] * 160})
    run = Run(2, {"snapshots": 2, "reads": 10})
    wrong: list[object] = []
    snapshots = [table.snapshot()]

    def write() -> None:
        step = 0
        while run.goes_on():
            step += 1
            with table.batch() as batch:  # over all tablets: every row gets the same value
                batch.update({"k": keys[:80], "a": [step] * 80})
                batch.update({"k": keys[80:], "a": [step] * 80})
            if step % 7 == 0:
                table.flush()
                table.compact(full=True)
                table.gc()
            if step % 5 == 0:
                snapshots.append(table.snapshot())
                run.did("snapshots")

    def read(number: int) -> None:
        rng = random.Random(number)
        first: dict[int, int] = {}
        while run.goes_on():
            snapshot = rng.choice(snapshots)
            kind = rng.randrange(3)
            if kind == 0:
                seen = set(snapshot.scan(["a"]).to_table()["a"].to_pylist())
            elif kind == 1:
                seen = set(snapshot.get_many(rng.sample(keys, 9), ["a"])["a"].to_pylist())
            else:
                seen = {row["a"] for row in (snapshot.get(k, ["a"]) for k in rng.sample(keys, 3)) if row}
            if len(seen) != 1 or first.setdefault(snapshot.timestamp, min(seen)) not in seen:
                wrong.append((snapshot, seen, first.get(snapshot.timestamp)))
            now = set(table.scan(["a"]).to_table()["a"].to_pylist())
            if len(now) != 1:
                wrong.append(("now", now))
            run.did("reads")

    run.all(write, *(lambda n=n: read(n) for n in range(3)))  # type: ignore[misc]
    assert not wrong
    oldest = snapshots[0]
    assert engine_of(table).pins.oldest == oldest.timestamp
    assert set(oldest.scan(["a"]).to_table()["a"].to_pylist()) == {0}
    for snapshot in snapshots:
        snapshot.close()
    table.update({"k": keys, "a": [-1] * 160})
    table.flush()
    table.compact(full=True)
    table.gc()
    with pytest.raises(kc.SnapshotTooOld):
        table.count(at=oldest.timestamp)


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
