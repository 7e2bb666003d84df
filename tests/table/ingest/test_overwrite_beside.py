"""All rows replaced at once (protocol G7) beside writers, readers and maintenance, and what is left of it."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import kudu_core as kc
from kudu_core.table.ingest import commit_parts as committing
from kudu_core.table.ingest import ingest
from kudu_core.table.ingest import overwrite as walk
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.opened.store_memory import StoreMemory
from kudu_core.table.write import found_walk, log_walk
from kudu_core.tablet.compact.merge import merge_rowsets
from kudu_core.wal import Log
from tests.support.faults import checking, drop
from tests.support.fs.faulty import FaultyFileSystem, Rule
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of, handle_of, tablets_of
from tests.support.models.overwriting import (
    CUT,
    MANUAL,
    NEW,
    OLD,
    SCHEMA,
    data,
    directories,
    found,
    overwrite,
    reads,
    staged,
)
from tests.support.threads import Run, quick_switches

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
    "row": (StoreMemory, "admit", lambda t: t.upsert([{"k": 4, "v": "w"}]), NEW | {4: "w"}),
    "rows": (
        log_walk,
        "_touched",
        lambda t: t.upsert({"k": [4, 30], "v": ["w", "w"]}),
        NEW | {4: "w", 30: "w"},
    ),
    "old row": (log_walk, "_touched", lambda t: t.update({"k": [1, 4], "v": ["w"] * 2}, on_missing="ignore"),
                NEW | {4: "w"}),
    "where": (found_walk, "HeldLocks",
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
    engine_of(table).memory.slow_bytes = -1  # so that a write of one row asks whether it is admitted
    over: list[int] = []
    when_first(monkeypatch, owner, function, lambda: over.append(overwrite(table, data(NEW)).timestamp))
    assert act(table).timestamp > over[0]
    assert found(table.scan()) == wanted
    assert found(table.scan(at=over[0])) == NEW and found(table.scan(at=over[0] - 1)) == OLD
    path = table.path
    table.close()
    with kc.open_table(path, "rw") as again:
        assert found(again.scan()) == wanted


def test_a_where_write_holds_the_mutexes_of_the_tablets_of_today(
    table: kc.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of tablets is read, an overwrite exchanges them, and then the mutexes are taken."""
    when_first(monkeypatch, found_walk, "HeldLocks", lambda: overwrite(table, data(NEW)))
    real = found_walk._write_locked
    held: list[tuple[list[int], list[int]]] = []

    def locked(engine: Any, tablets: Any, *rest: Any) -> Any:
        held.append(([tablet.id for tablet in tablets], [tablet.id for tablet in engine.tablets]))
        return real(engine, tablets, *rest)

    monkeypatch.setattr(found_walk, "_write_locked", locked)
    table.update(where=pc.field("k") < 5, set={"v": "w"})
    [(taken, of_today)] = held
    assert taken == of_today


def test_an_overwrite_in_the_midst_of_a_flush_and_of_a_merge(hashed: kc.Table) -> None:
    for k in range(3):
        hashed.upsert({"k": list(range(k, 40, 2)), "v": ["more"] * len(range(k, 40, 2))})
        hashed.flush()
    before, there = hashed.timestamp, found(hashed.scan())
    hashed.delete([1, 2])
    engine = engine_of(hashed)
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

    when_first(monkeypatch, committing.install, "install", look)
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
        done[n] = jobs.commit_job(*works[n], handle_of(hashed)).timestamp

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
            assert len(disk.listdir("/tables/t/tablets")) == len(tablets_of(again)) == 5


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
        patch.setattr({"install": committing.install, "adopt": walk, "applied": Log}[step], step, fails)
        with pytest.raises(OSError):
            overwrite(table, data(NEW), txn=("nightly", 1))
    assert found(table.scan()) == OLD
    with pytest.raises((kc.Poisoned, OSError)):
        table.insert(data({50: "x"}))
    drop(table)
    where["_fs"] = disk.crash_clone(0, keep=keep)
    with kc.open_table(mode="r", **where) as reader:
        # It ends before an ingest that some manifest lacks (protocol R2).
        whole = step != "install" and keep == "all"
        assert found(reader.scan()) == (NEW if whole else OLD)
        reader.verify()
    for _ in range(2):
        with checking(True), kc.open_table(mode="rw", **where) as again:
            assert found(again.scan()) == NEW
            assert overwrite(again, data(NEW), txn=("nightly", 1)).deduplicated
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
