"""``repartition``: a table gets other partitions beside reads and writes, and nobody is told of a change."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.common.format.envelope import Envelope
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.stored.table_state import ENVELOPE
from kudu_core.table.write.whole import repartition
from tests.support.inside import handle_of
from tests.support.tables import Make
from tests.table.jobs.test_job_commits import FILES, SCHEMA, resolved, rows_of, stage
from tests.table.manage.worlds import World, found

WAYS: tuple[Any, ...] = (
    (),
    kc.HashPartition("k", 2),
    kc.HashPartition("k", 16),
    kc.HashPartition("k", 3, seed=7),
    kc.RangePartition("k", [(None, 10), (10, None)]),
    kc.RangePartition("k", [(None, 5), (5, 12), (12, 20), (20, None)]),
    [kc.HashPartition("k", 3), kc.RangePartition("k", [(None, 12), (12, None)])],
)


def told(table: kc.Table, since: Any, **how: Any) -> list[Any]:
    """What changes tell, in an order of their own."""
    rows = table.changes(since, **how).to_table().to_pylist()
    return sorted(rows, key=lambda row: (row["_timestamp"], row["k"], row["_op"]))


def told_by(table: kc.Table, tokens: Iterable[Any]) -> int:
    return sum(table.change_token(token).to_table().num_rows for token in tokens)


@pytest.mark.parametrize("tablets", [1, 4])
def test_every_state_and_change_is_what_it_was(
    tablets: int, tmp_path: Path, seed: int, long: bool
) -> None:
    for number in range(50 if long else 2):
        (tmp_path / str(number)).mkdir()
        rng = random.Random(seed * 1000 + number)
        world = World("folder", tmp_path / str(number), tablets, ingest_threshold_rows=rng.choice((9, 10**6)))
        world.note()
        world.churn(rng)
        for way in rng.sample(WAYS, 3):
            if rng.random() < 0.2:
                world.table.truncate()
                world.rows = {}
                world.note()
            since = rng.choice(list(world.then))
            before = [told(world.table, *some) for some in ((since,), (None,))]
            net = [told(world.table, some, net=True) for some in (since, None)]
            history = world.table.history_of(3).to_pylist()
            tokens, changed = world.table.scan_tokens(at=since), world.table.change_tokens(since)
            try:
                at = world.table.repartition(way)
            except kc.InvalidArgument as error:
                assert "has these partitions" in str(error)
                continue
            assert at > max(world.then) and world.table.timestamp == at
            world.note()
            assert [told(world.table, *some) for some in ((since,), (None,))] == before
            assert [told(world.table, some, net=True) for some in (since, None)] == net
            assert told(world.table, at - 1) == told(world.table, at - 1, net=True) == []
            assert world.table.history_of(3).to_pylist() == history
            read = [row for token in tokens for row in world.table.scan_token(token).to_table().to_pylist()]
            assert {row["k"]: (row["v"], row["s"]) for row in read} == world.then[since]
            assert told_by(world.table, changed) == len(before[0])
            assert told_by(world.table, world.table.change_tokens(since, net=True)) == len(net[0])
            times, counts = world.table.changes(since).counts()
            assert at not in times and counts.sum() >= len(before[0])
            world.churn(rng, 4)
            world.check()
            if rng.random() < 0.5:
                world.reopen()
                world.check()
        world.table.verify()
        world.table.close()


def test_a_window_over_several_changes_of_partitions(tmp_path: Path, seed: int) -> None:
    """Whatever became of a key on both sides of a change, it is told once, of both ends."""
    rng = random.Random(seed)
    world = World("folder", tmp_path, 1)
    world.write(rng, range(60), 60)
    world.note()
    for way in (WAYS[2], WAYS[0], WAYS[4]):
        world.churn(rng, 3)
        world.table.repartition(way)
        world.churn(rng, 3)
    world.check()
    first, *_ = world.then
    with kc.open_table(world.path) as reader:
        for at in world.then:
            world.check_changes(reader, first, at)
            every = reader.changes(first, at).to_table().to_pylist()
            rows = dict(world.then[first])
            for change in sorted(every, key=lambda change: change["_timestamp"]):
                rows.pop(change["k"], None)
                if change["_op"] != "delete":
                    rows[change["k"]] = change["v"], change["s"]
            assert rows == world.then[at]
    world.table.close()


def test_writers_beside_it_lose_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inserts, changes and deletions, few and many, before it, while it reads, and after it."""
    monkeypatch.setattr(repartition, "FEW_CHANGES", 5)
    table = make(durability="sync", ingest_threshold_rows=100)
    table.insert({"k": list(range(-500, 0)), "a": [0] * 500})
    stop, failed = threading.Event(), []
    rows: list[dict[int, int]] = [{} for _ in range(3)]

    def write(first: int) -> None:
        rng, mine = random.Random(first), rows[first]
        key = first
        try:
            while not stop.is_set():
                many = list(range(key, key + (150 if rng.random() < 0.1 else 2) * 3, 3))
                table.insert({"k": many, "a": many})
                mine.update(zip(many, many, strict=True))
                key = many[-1] + 3
                some = rng.choice(list(mine))
                table.upsert([{"k": some, "a": key}])
                mine[some] = key
                gone = rng.choice(list(mine))
                table.delete([gone])
                del mine[gone]
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    times = []
    try:
        for way in (kc.HashPartition("k", 4), (), kc.HashPartition("k", 2)):
            times.append(table.repartition(way))
            assert told(table, times[-1] - 1, until=times[-1], net=True) == []
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed
    there = table.scan(["k", "a"]).to_table().to_pydict()
    wanted = dict.fromkeys(range(-500, 0), 0) | rows[0] | rows[1] | rows[2]
    assert dict(zip(there["k"], there["a"], strict=True)) == wanted
    assert table.count() == len(wanted) and len(table.partitions.partitions) == 2
    for at in times:  # the state is told alike by the tablets of before and by those of after
        assert table.scan(at=at).to_table().sort_by("k") == table.scan(at=at - 1).to_table().sort_by("k")
    table.verify()


@pytest.mark.parametrize("rounds", [0, 20])
def test_what_comes_while_it_reads_is_there(make: Make, monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """In the rounds and, with none, under the mutexes."""
    monkeypatch.setattr(repartition, "ROUNDS", rounds)
    table = make()
    table.insert({"k": list(range(9)), "a": [0] * 9})

    def between(done: int, of: int) -> None:
        assert 0 <= done <= of == 9
        if not done:
            table.delete([1, 2])
            table.upsert({"k": [2, 3, 20], "a": [2, 3, 20]})

    table.repartition(kc.HashPartition("k", 3), progress=between)
    rows = table.scan(["k", "a"], order="key").to_table().to_pydict()
    assert rows == {"k": [0, *range(2, 9), 20], "a": [0, 2, 3, 0, 0, 0, 0, 0, 20]}


def test_what_progress_raises_ends_it(make: Make, path: Path) -> None:
    table = make()
    table.insert({"k": [1, 2]})
    before = sorted(p.name for p in path.rglob("*"))

    def stop(done: int, of: int) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        table.repartition(kc.HashPartition("k", 3), progress=stop)
    assert sorted(p.name for p in path.rglob("*")) == before
    assert len(table.partitions.partitions) == 1 and table.count() == 2


def test_rows_outside_are_named(make: Make, path: Path) -> None:
    """Those that are there, and those that come while it reads."""
    table = make()
    table.insert({"k": [1, 2, 30]})
    before = sorted(p.name for p in path.rglob("*"))
    with pytest.raises(kc.InvalidArgument, match=r"1 rows lie in none of the ranges.*'k': 30"):
        table.repartition(kc.RangePartition("k", [(0, 10)]))
    table.delete([30])
    with pytest.raises(kc.InvalidArgument, match=r"'k': 40"):
        table.repartition(
            kc.RangePartition("k", [(0, 10)]),
            progress=lambda done, of: None if done else table.upsert({"k": [40]}),
        )
    table.delete([40])
    assert sorted(p.name for p in path.rglob("*")) == before, "nothing is left of what failed"
    table.repartition(kc.RangePartition("k", [(0, 10)]))
    with pytest.raises(kc.RowErrors):
        table.insert({"k": [30]})
    assert table.count() == 2


def test_it_begins_anew_beside_other_changes(make: Make) -> None:
    table = make(partition_by=kc.RangePartition("k", [(0, 10)]))
    table.insert({"k": [1], "a": [5]})
    acts = [
        lambda: table.alter(rename={"a": "b"}),
        lambda: table.alter(add_range=(10, 20)),
        lambda: table.repartition(kc.HashPartition("k", 2)),
        lambda: table.insert({"k": [15]}),
        lambda: table.truncate(),
        lambda: table.insert({"k": [16], "b": [6]}),
    ]

    def between(done: int, of: int) -> None:
        if not done and acts:
            acts.pop(0)()

    table.repartition(kc.HashPartition("k", 4), progress=between)
    table.repartition(kc.HashPartition("k", 5), progress=between)
    table.repartition(kc.HashPartition("k", 6), progress=between)
    assert not acts and len(table.partitions.partitions) == 6
    assert table.scan(["k", "b"]).to_pylist() == [{"k": 16, "b": 6}]


def test_others_that_never_stop(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repartition, "TRIES", 2)
    table = make()
    names = iter("bcdefg")
    table.insert({"k": [1]})
    with pytest.raises(kc.Conflict, match="each of 2 tries"):
        table.repartition(
            kc.HashPartition("k", 4),
            progress=lambda done, of: done or table.alter(add=[kc.Column(next(names), "int64")]),
        )
    assert len(table.partitions.partitions) == 1


def test_bad_input(make: Make, path: Path) -> None:
    table = make(partition_by=kc.HashPartition("k", 4))
    with pytest.raises(kc.InvalidArgument, match=r"these partitions: hash\(k\) into 4"):
        table.repartition(kc.HashPartition("k", 4))
    with pytest.raises(kc.InvalidArgument, match="not in the primary key"):
        table.repartition(kc.HashPartition("a", 4))
    with pytest.raises(kc.InvalidArgument, match="partition_by is a partition or a list"):
        table.repartition(4)
    with kc.open_table(path) as reader, pytest.raises(kc.ReadOnly):
        reader.repartition()


def test_a_store_refuses(tmp_path: Path) -> None:
    world = World("store", tmp_path)
    with pytest.raises(kc.NotSupported, match="object store"):
        world.table.repartition()
    world.table.close()


def test_the_old_tablets_go_with_the_history(tmp_path: Path) -> None:
    """And with them what TABLE says of them; a tag keeps both."""
    world = World("folder", tmp_path, history_retention_s=0, file_grace_s=0)
    world.write(random.Random(1), range(50), 50)
    world.table.tag("then")
    before = world.note()
    world.table.repartition(kc.HashPartition("k", 3))
    world.write(random.Random(2))
    world.table.gc()
    assert found(world.table, "then") == world.then[before]
    assert world.table.partitions.former and len(world.table.stats("tablet")) == 5
    world.table.untag("then")
    world.table.gc()
    world.table.gc()
    with pytest.raises(kc.SnapshotTooOld):
        world.table.count(at=before)
    assert not world.table.partitions.former
    assert world.table.stats("tablet").column("tablet").to_pylist() == [3, 4, 5]
    assert len(list((tmp_path / "t" / "tablets").iterdir())) == 3
    world.reopen()
    assert found(world.table) == world.rows and not world.table.partitions.former
    world.write(random.Random(3))
    world.table.repartition(())
    world.table.repartition(kc.RangePartition("k", [(None, 9), (9, None)]))
    assert found(world.table) == world.rows
    assert world.table.get(3) is None or world.table.get(3)["v"] == world.rows[3][0]
    world.table.close()


def test_ranges_after_it(make: Make, path: Path) -> None:
    table = make(partition_by=kc.HashPartition("k", 3))
    table.insert({"k": list(range(20))})
    at = table.repartition([kc.HashPartition("k", 2), kc.RangePartition("k", [(0, 10), (10, 20)])])
    table.alter(add_range=(20, 30), rename={"k": "key"})
    table.alter(drop_range=(0, 10))
    table.insert({"key": [25]})
    assert table.scan(["key"], order="key").to_table()["key"].to_pylist() == [*range(10, 20), 25]
    assert table.count(at=at) == table.count(at=at - 1) == 20
    table.repartition(kc.HashPartition("key", 2))
    table.close()
    with kc.open_table(path, "rw") as again:
        assert again.count() == 11 and again.get(25)["key"] == 25 and again.get(5) is None
        assert again.get(5, at=at)["key"] == 5
        again.truncate()
        assert again.count() == 0
        again.insert({"key": [5]})
        again.restore_to(at)
        assert again.count() == 20


def test_what_is_held_across_it(make: Make, path: Path, tmp_path: Path) -> None:
    """Readers follow when they refresh; snapshots, handles that were sent, backups and clones go on."""
    table = make(history_retention_s=None, durability="sync")
    table.insert({"k": list(range(30)), "a": list(range(30))})
    reader, snapshot = kc.open_table(path), table.snapshot()
    scan, sent = table.scan(), pickle.dumps(table)
    full = table.backup(tmp_path / "backups")
    table.delete([3])
    at = table.repartition(kc.HashPartition("k", 4))
    assert len(reader.partitions.partitions) == 1 and reader.count() == 30
    table.upsert({"k": [4, 50], "a": [-4, 50]})
    reader.refresh()
    assert len(reader.partitions.partitions) == 4 and reader.count() == 30 and reader.get(50)["a"] == 50
    assert snapshot.scan().count() == scan.count() == 30
    assert pickle.loads(sent).count() == 30 and len(pickle.loads(sent).partitions.partitions) == 4
    last = table.backup(tmp_path / "backups", since=full)
    assert (last.inserted, last.updated, last.deleted) == (1, 1, 1)
    with kc.restore(tmp_path / "backups", tmp_path / "restored") as restored:
        assert len(restored.partitions.partitions) == 4
        assert restored.scan().to_table().sort_by("k") == table.scan().to_table().sort_by("k")
    for when in (None, at - 1):
        table.clone(tmp_path / f"clone{when}", at=when)
        with kc.open_table(tmp_path / f"clone{when}", "rw") as clone:
            assert clone.scan().to_table().sort_by("k") == table.scan(at=when).to_table().sort_by("k")
            assert len(clone.partitions.partitions) == 4 and clone.count(at=at - 1) == 29
            clone.verify()
    snapshot.close()
    reader.close()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_distributed_write_that_began_before(make: Make, path: Path, overwrite: bool) -> None:
    """It is committed by the partitions of today, also where it was resolved by those of before."""
    table = make(SCHEMA, "k", durability="sync", **FILES, partition_by=kc.HashPartition("k", 2))
    table.insert({"k": list(range(40)), "v": ["old"] * 40})
    before = table.timestamp
    job, runs = stage(table, list(range(30, 60)), "upsert", overwrite=overwrite)
    resolutions = resolved(path, job, runs)
    with table.batch() as batch:
        batch.upsert({"k": [1, 2], "v": ["batch"] * 2})
        table.repartition(kc.HashPartition("k", 5))
    jobs.commit_job(job, runs, handle_of(table), resolutions)
    rows = dict.fromkeys(range(30, 60), "job")
    if not overwrite:
        rows = dict.fromkeys(range(30), "old") | {1: "batch", 2: "batch"} | rows
    assert rows_of(table) == rows
    assert table.count(at=before) == 40 and table.get(59)["v"] == "job"
    told = table.changes(before, net=True).to_table()
    assert told.num_rows == (60 if overwrite else 32)
    table.verify()


def test_a_library_that_knows_of_none_refuses_the_table(make: Make, path: Path) -> None:
    table = make()
    table.repartition(kc.HashPartition("k", 2))
    table.close()
    before = Envelope(magic=ENVELOPE.magic, version=1, other="", flags=1)
    with pytest.raises(kc.NotSupported, match="flags 8"):
        before.body("TABLE", (path / "TABLE").read_bytes())
