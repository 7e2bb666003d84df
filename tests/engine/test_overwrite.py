"""All rows replaced at once (PROTOCOL G7): what is there after it, before it and beside it."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.fs.faulty import FaultyFileSystem, Rule
from kudu_core.fs.memory import MemoryFileSystem
from kudu_core.table import committing, ingest, jobs, rows, write
from kudu_core.table import overwrite as walk
from kudu_core.table.resolving import resolve
from kudu_core.tablet.merge_compaction import merge_rowsets
from kudu_core.wal import Log
from tests.support.altering import Altering
from tests.support.faults import checking, drop
from tests.support.overwriting import overwrite, staged
from tests.support.threads import Run, quick_switches

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
MANUAL = {"maintenance": "manual", "file_grace_s": 0, "ingest_threshold_rows": 20}
OLD = dict.fromkeys(range(6), "old")
NEW = dict.fromkeys(range(3, 9), "new")
CUT = {
    "whole": [],
    "hash": [kc.HashPartition("k", 2)],
    "range": [kc.RangePartition("k", [(0, 5), (5, None)])],
}


@pytest.fixture(params=CUT)
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[kc.Table]:
    made = kc.create_table(str(tmp_path / "t"), SCHEMA, "k", partition_by=CUT[request.param], options=MANUAL)
    made.insert(data(OLD))
    yield made
    made.close()


@pytest.fixture
def hashed(tmp_path: Path) -> Iterator[kc.Table]:
    made = kc.create_table(str(tmp_path / "t"), SCHEMA, "k", partition_by=CUT["hash"], options=MANUAL)
    made.insert(data(OLD))
    yield made
    made.close()


def data(values: dict[int, str]) -> pa.Table:
    return pa.table({"k": list(values), "v": list(values.values())}, schema=SCHEMA)


def found(scan: Any) -> dict[int, str]:
    return {row["k"]: row["v"] for row in scan.to_pylist()}


def directories(table: kc.Table) -> list[str]:
    return sorted(os.listdir(f"{table.path}/tablets"))


def reads(table: kc.Table, at: int | None, wanted: dict[int, str]) -> None:
    """By every way to read."""
    assert found(table.scan(at=at)) == wanted
    assert table.count(at=at) == len(wanted)
    many = table.get_many(list(range(12)), at=at).to_pylist()
    assert {row["k"]: row["v"] for row in many if row["_found"]} == wanted
    for k in (1, 4, 8):
        row = table.get(k, at=at)
        assert (row and row["v"]) == wanted.get(k)
    shares = [table.scan_token(token) for token in table.scan_tokens(at=at, target_rows=2)]
    assert {k: v for share in shares for k, v in found(share).items()} == wanted


# ------------------------------------------------------------------------------------- what is there


@pytest.mark.parametrize("flushed", [True, False])
def test_new_rows_are_in_the_place_of_all(table: kc.Table, flushed: bool) -> None:
    if flushed:
        table.flush()
    before = table.timestamp
    pinned, scan, tokens = table.snapshot(), table.scan(), table.scan_tokens()
    result = overwrite(table, data(NEW), attempts=2)
    assert result.counts == (len(NEW), 0, 0, 0) and result.timestamp > before
    table.upsert({"k": [4, 20], "v": ["later", "later"]})
    later = NEW | {4: "later", 20: "later"}
    for mode in ("as it is", "rw", "r"):
        if mode != "as it is":
            table.close()
            table = kc.open_table(table.path, mode)
        reads(table, before, OLD)
        reads(table, result.timestamp, NEW)
        reads(table, result.timestamp - 1, OLD)
        assert found(table.scan()) == later
        table.verify()
        if mode == "as it is":
            assert found(scan) == found(pinned.scan()) == OLD
            assert {k: v for t in tokens for k, v in found(table.scan_token(t)).items()} == OLD
            pinned.close()
    table.close()


def test_changes_tell_what_went_what_came_and_what_is_another(table: kc.Table) -> None:
    """One change for each key at the time of the overwrite, also of a row that is what it was."""
    start = table.timestamp
    table.update({"k": [3], "v": ["new"]})
    ts = overwrite(table, data(NEW)).timestamp
    end = table.upsert({"k": [3], "v": ["end"]}).timestamp
    for _ in range(2):
        wanted = {
            **dict.fromkeys(range(3), ("delete", None)),
            **dict.fromkeys(range(3, 6), ("update", "new")),
            **dict.fromkeys(range(6, 9), ("insert", "new")),
        }
        told = [r for r in table.changes(start, images="both").to_pylist() if r["_timestamp"] == ts]
        assert len(told) == 9 and {r["k"]: (r["_op"], r["v"]) for r in told} == wanted
        before = {r["k"]: r["_before"] and r["_before"]["v"] for r in told}
        assert before == OLD | {3: "new"} | dict.fromkeys(range(6, 9))
        keys = table.changes(ts - 1, ts, columns=["k"]).to_pylist()
        assert {r["k"]: r["_op"] for r in keys} == {k: op for k, (op, _) in wanted.items()}
        some = table.changes(ts - 1, where=pc.field("v") == "old").to_pylist()
        assert {r["k"] for r in some} == {*range(3)}
        net = {r["k"]: (r["_op"], r["v"]) for r in table.changes(start, ts, net=True).to_pylist()}
        assert net == wanted
        # Net, a row that is what it was has not changed; a window ends before it, or begins at it.
        assert {r["k"] for r in table.changes(ts - 1, ts, net=True).to_pylist()} == {*range(3), *range(4, 9)}
        assert [r["k"] for r in table.changes(start, ts - 1).to_pylist()] == [3]
        assert [(r["_op"], r["v"]) for r in table.changes(ts).to_pylist()] == [("update", "end")]
        first = table.changes(None, ts, net=True).to_pylist()
        assert {r["k"]: r["v"] for r in first} == NEW
        assert table.changes(since=end).to_table().num_rows == 0
        path = table.path
        table.close()
        table = kc.open_table(path, "rw")
    table.close()


def test_a_backup_goes_on_over_an_overwrite(hashed: kc.Table, tmp_path: Path) -> None:
    folder = str(tmp_path / "backup")
    full = hashed.backup(folder)
    overwrite(hashed, data(NEW))
    hashed.backup(folder, since=full)
    with kc.restore(folder, str(tmp_path / "restored")) as again:
        assert found(again.scan()) == NEW


def test_nothing_in_the_place_of_all(table: kc.Table) -> None:
    before = table.timestamp
    assert overwrite(table, data({})).counts == (0, 0, 0, 0)
    assert table.count() == 0 and found(table.scan(at=before)) == OLD
    assert overwrite(table, data({})).timestamp > before
    table.insert(data(NEW))
    path = table.path
    table.close()
    with kc.open_table(path) as reader:
        reads(reader, None, NEW)


@pytest.mark.parametrize("number", range(3))
def test_a_table_that_is_overwritten_and_altered(number: int, tmp_path: Path, seed: int, long: bool) -> None:
    case = seed * 1000 + number
    print(f"case {case}; run again with --seed={seed}")
    rng = random.Random(case)
    options = MANUAL | {"scan_threads": 1, "history_retention_s": None, "ingest_threshold_rows": 5}
    with checking(number == 0):
        path = str(tmp_path / "t")
        model, table = Altering.begin(path, hashed=rng.random() < 0.5, options=options)
        for step in range(400 if long else 24):
            kind = rng.random()
            if kind < 0.4:
                model.write(rng, table, rng.choice((1, 3, 12)))
            elif kind < 0.6:
                model.overwrite(rng, table, rng.choice((1, 12)))
            elif kind < 0.75:
                model.alter(rng, table, most=3)
            elif kind < 0.85:
                table.flush()
            elif kind < 0.9:
                table.compact(full=rng.random() < 0.5)
            elif kind < 0.95:
                with kc.open_table(path) as reader:
                    model.check(rng, reader)
                    model.check_tokens(rng, reader)
            else:
                table.close()
                table = kc.open_table(path, "rw")
            if step % 6 == 0:
                model.check(rng, table)
                model.check_tokens(rng, table)
        table.close()
        with kc.open_table(path, "rw") as table:
            model.check(rng, table, looks=10)
            table.verify()


# ------------------------------------------------------------------------------------- refused, repeated


def test_rows_that_are_refused_leave_everything_as_it_was(table: kc.Table) -> None:
    before, there = table.timestamp, directories(table)
    twice = pa.concat_tables([data(NEW), data({4: "twice"})])
    with pytest.raises(kc.RowErrors) as caught:
        overwrite(table, twice, attempts=2)
    assert [error["key"] for error in caught.value.errors.to_pylist()] == [{"k": 4}]
    if table._engine.partitions.range_ids:
        with pytest.raises(kc.RowErrors, match="no_partition"):
            overwrite(table, data({-1: "nowhere"}))
    assert (table.timestamp, directories(table)) == (before, there)
    assert os.listdir(f"{table.path}/staging") == []
    result = overwrite(table, twice, attempts=2, on_duplicate="last", sequence_by="v")
    assert result.inserted == len(NEW) and found(table.scan()) == NEW | {4: "twice"}
    for operation in ("insert_ignore", "update", "delete", "apply"):
        with pytest.raises(kc.InvalidArgument, match='"insert" or "upsert", not'):
            staged(table, data(NEW), operation=operation)


def test_a_token_makes_it_once(hashed: kc.Table) -> None:
    first = overwrite(hashed, data(NEW), txn=("nightly", 7))
    assert overwrite(hashed, data({1: "again"}), txn=("nightly", 7)).deduplicated
    hashed.insert({"k": [50], "v": ["x"]})
    hashed.close()
    with kc.open_table(hashed.path, "rw") as table:
        again = overwrite(table, data({1: "again"}), txn=("nightly", 7))
        assert again.deduplicated and (again.timestamp, again.counts) == (first.timestamp, first.counts)
        assert found(table.scan()) == NEW | {50: "x"}
        assert overwrite(table, data({1: "next"}), txn=("nightly", 8)).inserted == 1
        assert found(table.scan()) == {1: "next"}


def test_one_that_found_the_table_locked_is_made_later(hashed: kc.Table) -> None:
    job, runs = staged(hashed, data(NEW), lock_timeout_s=0.0)
    with pytest.raises(kc.Locked):
        jobs.commit_job(job, runs)
    hashed.insert({"k": [50], "v": ["x"]})
    assert jobs.resume(hashed.path, job.id, hashed).inserted == len(NEW)
    assert found(hashed.scan()) == NEW


@pytest.mark.parametrize("change", [None, "range", "columns", "overwritten"])
def test_what_tasks_have_resolved_is_taken_in_where_it_still_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str | None
) -> None:
    """Two tablets by one task; runs that overlap, so that they are merged, and such that are adopted."""
    cut = [kc.HashPartition("k", 2), kc.RangePartition("k", [(0, 1000)])]
    with kc.create_table(str(tmp_path / "t"), SCHEMA, "k", partition_by=cut, options=MANUAL) as table:
        table.insert(data(OLD))
        job, runs = staged(table, data(dict.fromkeys(range(200), "new")), attempts=2)
        with kc.open_table(table.path) as reader:
            resolutions = resolve(reader, job, jobs.form_of(job), runs)
        assert [(r.tablet_id, r.ordinal) for r in resolutions] == [(0, 0), (0, 1)]
        assert [r.counts[0] > 80 and r.counts[1:] == (0, 0, 0) for r in resolutions] == [True, True]
        if change == "range":
            table.alter(add_range=(2000, 3000))
        elif change == "columns":
            table.alter(add=[kc.Column("n", "int32", False, default=7)])
        elif change == "overwritten":
            overwrite(table, data({1: "between"}))
        built: list[int] = []
        real = walk.build_parts

        def build(engine: Any, rows: Any, parts: Any, *args: Any, **more: Any) -> Any:
            built.append(sum(part.tablet.partition.ordinal < 2 for part in parts))
            return real(engine, rows, parts, *args, **more)

        monkeypatch.setattr(walk, "build_parts", build)
        assert jobs.commit_job(job, runs, table, resolutions).counts == (200, 0, 0, 0)
        assert built == [2 if change in ("range", "columns") else 0]
        assert {(r["k"], r["v"], r.get("n", 7)) for r in table.scan().to_pylist()} == {
            (k, "new", 7) for k in range(200)
        }
        table.verify()


@pytest.mark.parametrize("over", [{5: "over", 7: "over", 500: "over"}, {500: "over"}])
def test_a_job_resolved_for_tablets_that_were_overwritten_is_decided_anew(
    hashed: kc.Table, over: dict[int, str]
) -> None:
    job, runs = staged(hashed, data(NEW | dict.fromkeys(range(100, 150), "new")), overwrite=False)
    with kc.open_table(hashed.path) as reader:
        resolutions = resolve(reader, job, jobs.form_of(job), runs)
    overwrite(hashed, data(over))
    updated = len(over) - 1
    assert jobs.commit_job(job, runs, hashed, resolutions).counts == (56 - updated, updated, 0, 0)
    assert found(hashed.scan()) == NEW | dict.fromkeys(range(100, 150), "new") | {500: "over"}


# ------------------------------------------------------------------------------------- beside others


def when_first(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, do: Callable[[], object]) -> None:
    """``do`` once, just before a function is called first."""
    real = getattr(owner, name)
    left = [do]

    def called(*args: Any, **more: Any) -> Any:
        if left:
            left.pop()()
        return real(*args, **more)

    monkeypatch.setattr(owner, name, called)


MANY = dict.fromkeys(range(100, 140), "many")
WRITES: dict[str, tuple[Any, str, Callable[[kc.Table], Any], dict[int, str]]] = {
    "row": (rows, "tablet_of_key", lambda t: t.upsert([{"k": 4, "v": "w"}]), NEW | {4: "w"}),
    "rows": (write, "_touched", lambda t: t.upsert({"k": [4, 30], "v": ["w", "w"]}), NEW | {4: "w", 30: "w"}),
    "old row": (write, "_touched", lambda t: t.update({"k": [1, 4], "v": ["w"] * 2}, on_missing="ignore"),
                NEW | {4: "w"}),
    "where": (write, "already_applied",
              lambda t: t.update(where=pc.field("k") < 5, set={"v": "w"}, txn=("a", 1)),
              NEW | {3: "w", 4: "w"}),
    "ingest": (ingest, "_attempt", lambda t: t.upsert(data(MANY | {4: "w"})), NEW | MANY | {4: "w"}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_an_overwrite_overtakes_is_of_the_new_rows(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It was routed to tablets that have ended by the time it has their mutexes."""
    owner, function, act, wanted = WRITES[name]
    over: list[int] = []
    when_first(monkeypatch, owner, function, lambda: over.append(overwrite(table, data(NEW)).timestamp))
    assert act(table).timestamp > over[0]
    assert found(table.scan()) == wanted
    assert found(table.scan(at=over[0])) == NEW and found(table.scan(at=over[0] - 1)) == OLD
    path = table.path
    table.close()
    with kc.open_table(path, "rw") as again:
        assert found(again.scan()) == wanted


def test_an_overwrite_in_the_midst_of_a_flush_and_of_a_merge(hashed: kc.Table) -> None:
    for k in range(3):
        hashed.upsert({"k": list(range(k, 40, 2)), "v": ["more"] * len(range(k, 40, 2))})
        hashed.flush()
    before, there = hashed.timestamp, found(hashed.scan())
    hashed.delete([1, 2])
    engine = hashed._engine
    tablet = engine.tablets[0]
    left = [lambda: overwrite(hashed, data(NEW))]

    def at_step(step: str) -> None:
        if step == "written" and left:
            left.pop()()

    ids = [rowset.id for rowset in tablet.view.rowsets]
    merge_rowsets(tablet, ids, horizon=lambda drop: engine.horizon(drop=drop), at_step=at_step)
    assert not left and len(tablet.view.rowsets) < len(ids)
    hashed.upsert({"k": [4], "v": ["w"]})
    hashed.flush()  # what the old tablets had in memory, too
    assert all(not len(tablet.view.active) for tablet in engine.tablets)
    assert found(hashed.scan(at=before)) == there
    assert found(hashed.scan()) == NEW | {4: "w"}
    hashed.verify()


def test_readers_see_one_or_the_other(hashed: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another handle, which follows log and files alone: before TABLE has it, and before it is applied."""
    old = kc.open_table(hashed.path)
    seen: list[dict[int, str]] = []

    def look() -> None:
        with kc.open_table(hashed.path) as reader:
            reads(reader, None, OLD)
            reader.verify()
        old.refresh()
        seen.append(found(old.scan()))

    when_first(monkeypatch, committing.ingest, "install", look)
    when_first(monkeypatch, walk, "adopt", look)
    when_first(monkeypatch, Log, "applied", look)
    token = old.scan_tokens()
    overwrite(hashed, data(NEW))
    assert seen == [OLD, OLD, OLD]
    assert found(old.scan()) == OLD
    old.refresh()
    assert found(old.scan()) == NEW
    assert {k: v for t in token for k, v in found(old.scan_token(t)).items()} == OLD
    old.close()


@pytest.mark.parametrize("change", ["overwrite", "add_range"])
def test_tokens_of_tablets_that_a_reader_has_not_seen_yet(tmp_path: Path, change: str) -> None:
    """It refreshes before it looks for them."""
    cut = CUT["range"] if change == "overwrite" else [kc.RangePartition("k", [(0, 10)])]
    with kc.create_table(str(tmp_path / "t"), SCHEMA, "k", partition_by=cut, options=MANUAL) as table:
        start = table.insert(data(OLD)).timestamp
        readers = [kc.open_table(table.path) for _ in range(2)]
        if change == "overwrite":
            overwrite(table, data(NEW))
        else:
            table.alter(add_range=(10, 20))
            table.insert(data({12: "new"}))
        told = [t for token in table.change_tokens(start) for t in readers[0].change_token(token).to_pylist()]
        assert len(told) == (9 if change == "overwrite" else 1)
        shares = [found(readers[1].scan_token(token)) for token in table.scan_tokens()]
        assert {k: v for share in shares for k, v in share.items()} == found(table.scan())
        for reader in readers:
            reader.close()


def test_writers_beside_overwrites_lose_nothing(tmp_path: Path, seed: int, long: bool) -> None:
    """Each write has keys of its own: after an overwrite those of the writes since are there, no others."""
    table = kc.create_table(
        str(tmp_path / "t"), SCHEMA, "k", partition_by=CUT["hash"], options={"ingest_threshold_rows": 30}
    )
    written: list[tuple[int, range]] = []
    overwritten: list[tuple[int, range]] = []
    number = iter(range(1, 1 << 30))
    run = Run(20 if long else 0.3, {"row": 30, "rows": 30, "ingest": 5, "overwrite": 6})

    def writer(kind: str, count: int) -> Callable[[], None]:
        def work() -> None:
            while run.goes_on():
                first = next(number) * 100
                keys = range(first, first + count)
                given = [{"k": first, "v": kind}] if count == 1 else data(dict.fromkeys(keys, kind))
                written.append((table.insert(given).timestamp, keys))
                run.did(kind)

        return work

    def overwriter() -> None:
        while run.goes_on():
            first = -100 * next(number)
            keys = range(first, first + 5)
            result = overwrite(table, data(dict.fromkeys(keys, "over")))
            overwritten.append((result.timestamp, keys))
            run.did("overwrite")

    with quick_switches():
        run.all(writer("row", 1), writer("rows", 3), writer("ingest", 40), overwriter, overwriter)
    overwritten.sort()
    assert len({ts for ts, _ in overwritten}) == len(overwritten)

    def wanted(ts: int) -> set[int]:
        since, keys = next(o for o in reversed(overwritten) if o[0] <= ts)
        return {*keys, *(k for at, some in written if since < at <= ts for k in some)}

    def check(handle: kc.Table) -> None:
        rng = random.Random(seed)
        for ts, _ in rng.sample(overwritten, 3):
            assert set(found(handle.scan(at=ts))) == wanted(ts)
            if ts != overwritten[0][0]:
                assert set(found(handle.scan(at=ts - 1))) == wanted(ts - 1)
        assert set(found(handle.scan())) == wanted(1 << 63)

    check(table)
    table.close()
    with kc.open_table(table.path, "rw") as again:
        check(again)
        again.verify()


def test_two_at_once(hashed: kc.Table) -> None:
    """Both happen, one after the other."""
    works = [staged(hashed, data(dict.fromkeys(range(n, n + 4), f"{n}"))) for n in (0, 2)]
    done: dict[int, int] = {}

    def commit(n: int) -> None:
        done[n] = jobs.commit_job(*works[n], hashed).timestamp

    threads = [threading.Thread(target=commit, args=(n,)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows_of = {n: dict.fromkeys(range(2 * n, 2 * n + 4), f"{2 * n}") for n in (0, 1)}
    first, last = sorted(done, key=lambda n: done[n])
    assert found(hashed.scan()) == rows_of[last]
    assert found(hashed.scan(at=done[first])) == found(hashed.scan(at=done[last] - 1)) == rows_of[first]


# ------------------------------------------------------------------------------------- what is left


def test_old_tablets_go_when_nobody_may_read_them(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    options = MANUAL | {"history_retention_s": 0}
    with kc.create_table(path, SCHEMA, "k", partition_by=CUT["hash"], options=options) as table:
        table.insert(data(OLD))
        table.flush()
        first = directories(table)
        before = table.timestamp
        pinned = table.snapshot()
        overwrite(table, data(NEW))
        table.gc()
        assert found(pinned.scan()) == OLD and len(directories(table)) == 4
        pinned.close()
        table.upsert({"k": [4], "v": ["w"]})
        table.gc()
        table.gc()
        assert set(directories(table)).isdisjoint(first) and len(directories(table)) == 2
        with pytest.raises(kc.SnapshotTooOld):
            table.scan(at=before)
        for _ in range(3):
            overwrite(table, data(NEW))
            table.gc()
            table.gc()
            assert len(directories(table)) == 2
        reads(table, None, NEW)
    with kc.open_table(path, "rw") as table:
        reads(table, None, NEW)


def test_one_that_fails_leaves_no_directory_and_its_numbers_to_the_next() -> None:
    """Even where what it made cannot be removed: an ALTER and another overwrite take the numbers."""
    for stuck in (False, True):
        disk = MemoryFileSystem()
        disk.mkdir("/tables")
        disk.sync_all()
        fs = FaultyFileSystem(disk)
        table = kc.create_table(
            "/tables/t", SCHEMA, "k", partition_by=CUT["range"], options=MANUAL | {"scan_threads": 1}, _fs=fs
        )
        table.insert(data(OLD))
        fs.rules = [Rule(ops={"link"}, error=28)]
        if stuck:
            fs.rules.append(Rule(ops={"unlink", "rmtree", "rmdir"}, path_glob="*/tablets/*", error=5))
        with pytest.raises(OSError):
            overwrite(table, data(NEW))
        assert len(disk.listdir("/tables/t/tablets")) == (4 if stuck else 2)
        fs.rules = []
        assert found(table.scan()) == OLD
        table.alter(drop_range=(5, None), add_range=(7, None))
        table.insert({"k": [10], "v": ["x"]})
        overwrite(table, data({1: "a", 9: "b"}))
        assert found(table.scan()) == {1: "a", 9: "b"}
        drop(table)
        disk = disk.crash_clone(0, keep="none")
        with checking(True), kc.open_table("/tables/t", "rw", _fs=disk) as again:
            assert found(again.scan()) == {1: "a", 9: "b"}
            assert len(disk.listdir("/tables/t/tablets")) == len(again._engine.tablets) == 5


@pytest.mark.parametrize("step", ["install", "adopt", "applied"])
@pytest.mark.parametrize("keep", ["none", "all"])
def test_a_record_that_is_all_there_is(monkeypatch: pytest.MonkeyPatch, step: str, keep: Any) -> None:
    """The writer dies after it: before the first manifest has it, before TABLE has it, after both."""
    disk = MemoryFileSystem()
    disk.mkdir("/tables")
    disk.sync_all()
    where = {"path": "/tables/t", "_fs": disk}
    cut = [kc.HashPartition("k", 2), kc.RangePartition("k", [(0, 100)])]
    table = kc.create_table(schema=SCHEMA, primary_key="k", partition_by=cut, options=MANUAL, **where)
    table.insert(data(OLD))

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr({"install": committing.ingest, "adopt": walk, "applied": Log}[step], step, fails)
        with pytest.raises(OSError):
            overwrite(table, data(NEW), txn=("nightly", 1))
    assert found(table.scan()) == OLD
    with pytest.raises((kc.Poisoned, OSError)):
        table.insert(data({50: "x"}))
    drop(table)
    where["_fs"] = disk.crash_clone(0, keep=keep)
    with kc.open_table(mode="r", **where) as reader:
        # It ends before an ingest that some manifest lacks (R2).
        whole = step != "install" and keep == "all"
        assert found(reader.scan()) == (NEW if whole else OLD)
        reader.verify()
    for _ in range(2):
        with checking(True), kc.open_table(mode="rw", **where) as again:
            assert found(again.scan()) == NEW
            assert overwrite(again, data(OLD), txn=("nightly", 1)).deduplicated
            assert len(where["_fs"].listdir("/tables/t/tablets")) == 4
    with kc.open_table(mode="r", **where) as reader:
        assert found(reader.scan()) == NEW


def test_an_overwrite_as_the_table_is_closed(hashed: kc.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is whole, or it says that the table was closed."""
    closing = threading.Thread(target=hashed.close)
    when_first(monkeypatch, walk, "prepare_parts", closing.start)
    done = False
    with suppress(kc.Closed):
        overwrite(hashed, data(NEW))
        done = True
    closing.join()
    with kc.open_table(hashed.path, "rw") as table:
        assert found(table.scan()) == (NEW if done else OLD)
        assert len(directories(table)) == (4 if done else 2)
