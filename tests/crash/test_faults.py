"""A crash and an I/O error at every call of the file system, for every walk of the engine.

Each failure names the story, the call and the seed.  By default a share of the calls is tried, another
one with every ``--seed``; ``--long`` tries all of them, with more power cuts each.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.rows.conform import conform
from kudu_core.errors import KuduError, Poisoned, TableNotFound
from tests.support.clock import ManualClock
from tests.support.fault_stories import STORIES
from tests.support.faults import (
    ROOT,
    SMALL,
    TINY,
    Play,
    Stage,
    Story,
    check_no_litter,
    check_survivor,
    checking,
    drop,
    error_for,
    segments_of,
)
from tests.support.fs.faulty import FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem
from tests.support.fs.powercut import Keep
from tests.support.inside import engine_of, poison_of
from tests.support.models.history import History, random_batch

pytestmark = pytest.mark.timeout(7200)  # --long takes its time

NONE_ALL: tuple[Keep, ...] = ("none", "all")
NONE_RANDOM: tuple[Keep, ...] = ("none", "random")


def shares(total: int, count: int, seed: int, long: bool) -> list[int]:
    """Numbers of calls to hit, from 1."""
    if long or total <= count:
        return list(range(1, total + 1))
    return sorted(random.Random(seed).sample(range(1, total + 1), count))


@contextmanager
def telling(what: str, seed: int) -> Iterator[None]:
    """A failure says what to run again."""
    try:
        yield
    except Exception as error:
        error.add_note(f"{what}; run again with --seed={seed} (--long for every call)")
        raise


def cuts(stage: Stage, rng: random.Random, long: bool) -> Iterator[tuple[str, MemoryFileSystem]]:
    """File systems that power cuts may leave."""
    assert isinstance(stage.fs, FaultyFileSystem) and isinstance(stage.fs.inner, MemoryFileSystem)
    disk = stage.fs.inner
    kinds: list[Keep]
    kinds = ["none", "all", "random"] if long else [rng.choice(NONE_ALL), "random"]
    for kind in kinds:
        yield kind, disk.crash_clone(rng, keep=kind)


@pytest.fixture(params=list(STORIES))
def story(request: pytest.FixtureRequest) -> Story:
    return STORIES[request.param]


def test_crash_at_every_call(story: Story, seed: int, long: bool) -> None:
    with telling(story.name, seed):
        play = Play(story, seed)
        operations = play.calls()
    for number in shares(len(operations), story.tried, seed, long):
        rng = random.Random(seed * 1_000_003 + number)
        operation = operations[number - 1]
        torn = operation in ("append", "pwrite") and rng.random() < 0.6
        what = f"{story.name}: crash at call {number}, {operation}{' (torn)' if torn else ''}"
        with telling(what, seed), story.sizes(), checking(False):
            stage = play.run(Rule(nth=number, error="torn" if torn else "crash"))
            assert stage.fs.crashed
            drop(stage.table)
            for kind, survivor in cuts(stage, rng, long):
                with telling(f"power cut {kind!r}", seed):
                    check_survivor(survivor, stage.history.copy(), rng, stage.clock)


def test_error_at_every_call(story: Story, seed: int, long: bool) -> None:
    """ENOSPC and EIO once: an ``OSError`` or a poisoned table, nothing lost, and a sound table after."""
    with telling(story.name, seed):
        play = Play(story, seed)
        operations = play.calls()
    for number in shares(len(operations), story.tried, seed + 1, long):
        rng = random.Random(seed * 1_000_033 + number)
        operation = operations[number - 1]
        fault = error_for(operation, rng)
        what = f"{story.name}: {fault} at call {number}, {operation}"
        with telling(what, seed), story.sizes(), checking(False):
            _one_error(play, Rule(nth=number, error=fault), rng, long, seed)


def _one_error(play: Play, rule: Rule, rng: random.Random, long: bool, seed: int) -> None:
    def look(stage: Stage, error: Exception) -> None:
        assert isinstance(error, OSError | KuduError), f"{error!r} is no error that a caller expects"
        if stage.table is None:
            return  # the open failed; its lease must be free, or the next try fails
        poisoned = poison_of(stage.table) is not None
        if not poisoned:
            # Not poisoned: nothing of the call was applied.
            assert isinstance(error, OSError), f"{error!r} without poison"
            stage.history.in_flight = None
        history = stage.history.copy()
        with suppress(kc.Closed):  # a close that failed has closed all the same
            history.settle(stage.table)
            history.check(stage.table, rng, past=1)
        if poisoned:
            with pytest.raises((Poisoned, OSError, kc.Closed)):
                stage.table.upsert({"k": [1], "a": [1]})

    stage = play.run(rule, look)
    assert rule.fired, "the fault was never met"
    disk = stage.fs.inner
    if stage.table is not None and rng.random() < 0.5:
        with suppress(OSError, Poisoned):
            stage.table.close()
    drop(stage.table)
    for kind, survivor in cuts(stage, rng, long):
        with telling(f"power cut {kind!r}", seed):
            check_survivor(survivor, stage.history.copy(), rng, stage.clock)
    # The machine goes on: what a failed fsync left in the page cache is seen, and is not on the disk.
    disk.kill()
    with telling("same machine", seed):
        check_survivor(disk, stage.history.copy(), rng, stage.clock)
        drop(stage.table)
        check_after_power_cut(disk, stage.history, stage.clock)


def check_after_power_cut(disk: MemoryFileSystem, history: History, clock: ManualClock) -> None:
    """``check_survivor`` has written more and closed; all of that is durable."""
    kept: list[dict[str, object]] = []
    for keep in NONE_ALL:
        with checking(True):
            table = kc.open_table(ROOT, "rw", _fs=disk.crash_clone(0, keep=keep), _clock=clock)
        kept.append({row["k"]: row for row in table.scan().to_pylist()})
        table.close()
    assert kept[0] == kept[1], "what was acknowledged after a failed fsync was not durable"


def test_crash_in_create(seed: int, long: bool) -> None:
    def attempt(fs: FaultyFileSystem) -> Stage:
        stage = Stage(fs, History(), seed, ManualClock())
        with suppress(SimulatedCrash):
            stage.create()
            stage.write(5)
        return stage

    def disk() -> MemoryFileSystem:
        made = MemoryFileSystem()
        made.mkdir("/tables")
        made.sync_all()
        return made

    with segments_of(SMALL), checking(False):
        sound = FaultyFileSystem(disk())
        drop(attempt(sound).table)
        for number in shares(sound.calls, 16, seed, long):
            rng = random.Random(seed * 1_000_003 + number)
            with telling(f"create: crash at call {number}", seed):
                stage = attempt(FaultyFileSystem(disk(), [Rule(nth=number, error="crash")], seed=seed))
                drop(stage.table)
                for kind, survivor in cuts(stage, rng, long):
                    with telling(f"power cut {kind!r}", seed):
                        history = stage.history.copy()
                        try:
                            kc.open_table(ROOT, _fs=survivor, _clock=stage.clock).close()
                        except TableNotFound:
                            assert not history.writes, "an acknowledged batch is lost"
                            again = Stage(survivor, history, seed, stage.clock)
                            history.in_flight = None
                            again.create()
                            check_no_litter(survivor)
                            again.opened.close()
                        check_survivor(survivor, history, rng, stage.clock)


def test_error_in_create(seed: int, long: bool) -> None:
    """The call raises, and may be repeated."""
    with segments_of(SMALL), checking(False):
        sound = FaultyFileSystem(MemoryFileSystem(), keep_log=True)
        sound.inner.mkdir("/tables")
        stage = Stage(sound, History(), seed, ManualClock())
        stage.create()
        calls = list(sound.log)
        drop(stage.table)
        chosen = random.Random(seed).sample(calls, len(calls) if long else 12)
        for call in {c.number: c for c in calls if c in chosen or c.op == "sync_dir"}.values():
            rng = random.Random(seed * 1_000_003 + call.number)
            rule = Rule(nth=call.number, error=error_for(call.op, rng))
            with telling(f"create: {rule.error} at call {call.number}, {call.op} {call.path}", seed):
                inner = MemoryFileSystem()
                inner.mkdir("/tables")
                inner.sync_all()
                stage = Stage(FaultyFileSystem(inner, [rule], seed=seed), History(), seed, ManualClock())
                try:
                    stage.create()
                except (OSError, KuduError):
                    with suppress(kc.TableExists):
                        stage.create()
                    if stage.table is None:
                        stage.open()
                stage.write(5)
                stage.opened.close()
                check_survivor(inner, stage.history, rng, stage.clock)


@pytest.mark.parametrize("target", ["*/MANIFEST", "*/wal/*", "*/tablets/*", "*/TABLE*", "*.rows", "*.delta"])
def test_failed_fsync_then_the_same_machine(target: str, seed: int, long: bool) -> None:
    """The page cache shows what the disk has not got: nothing may be built on it (protocol W8)."""
    for run in range(30 if long else 2):
        case = seed * 100_000 + run
        rng = random.Random(case)
        with telling(f"fsync of {target}, case {case}", seed), segments_of(TINY), checking(False):
            disk = MemoryFileSystem()
            disk.mkdir("/tables")
            stage = Stage(disk, History(), case, ManualClock())
            stage.create()
            stage.write(20)
            stage.flush()
            stage.opened.close()
            disk.sync_all()
            fs = FaultyFileSystem(disk, seed=case)
            stage.fs = fs
            stage.open()
            rule = Rule(ops={"sync", "sync_dir"}, path_glob=target, nth=rng.randrange(1, 4))
            fs.rules = [rule]
            try:
                for _ in range(8):
                    rng.choice((stage.write, stage.write, stage.ingest, stage.flush))()
                    stage.flush()
            except (OSError, Poisoned):
                pass
            if rng.random() < 0.5:
                with suppress(OSError, Poisoned):
                    stage.opened.close()
            drop(stage.table)
            fs.rules = []
            disk.kill()
            again = Stage(disk, stage.history, case + 1, stage.clock)
            table = again.open()
            again.history.settle(table)
            for _ in range(3):
                again.write(6)  # segments fill and are dropped, which trusts the manifests
                again.flush()
            drop(table)
            for keep in NONE_RANDOM:
                survivor = disk.crash_clone(rng, keep=keep)
                check_survivor(survivor, again.history.copy(), rng, again.clock)


def test_an_edit_that_only_the_page_cache_has(seed: int) -> None:
    """Replay drops log segments on the word of manifests: they must be durable first, not only readable."""
    with segments_of(TINY), checking(True):
        disk = MemoryFileSystem()
        disk.mkdir("/tables")
        stage = Stage(disk, History(), seed, ManualClock())
        stage.create()
        stage.write(10)
        stage.flush()
        stage.opened.close()
        disk.sync_all()
        stage.fs = FaultyFileSystem(disk)
        engine = engine_of(stage.open())
        first, second = engine.tablets
        assert engine.maintenance is not None
        engine.maintenance.flush(first)
        stage.write(20, range(100, 200))
        engine.maintenance.flush(first)  # its manifest is of this epoch
        stage.write(20, range(200, 300))
        stage.fs.rules = [Rule(ops={"sync"}, path_glob=f"{first.directory}/MANIFEST")]
        with pytest.raises((OSError, Poisoned)):
            engine.maintenance.flush(first)
        drop(stage.table)
        disk.kill()
        stage.fs = disk
        table = stage.open()
        stage.history.settle(table)
        engine = engine_of(table)
        first, second = engine.tablets
        assert engine.maintenance is not None
        for _ in range(5):
            route = engine.partitions.route
            batch = random_batch(stage.rng, stage.history.model, range(1000, 2000), 20, whole=True)
            keys = [row["k"] for _, rows in batch for row in rows]
            block = conform(
                engine.schema, pa.RecordBatch.from_pydict({"k": pa.array(keys, pa.int64())})
            ).block
            at = dict(zip(keys, route(block).tolist(), strict=True))
            mine = [(op, [r for r in rows if at[r["k"]] == second.partition.ordinal]) for op, rows in batch]
            stage.history.write(table, [(op, rows) for op, rows in mine if rows])
            engine.maintenance.flush(second)
            for rowset in second.view.rowsets:
                engine.maintenance.flush_rowset(second, rowset.id)
            engine.maintenance.truncate_log()
        assert engine.log.segments[0].seq > 5, "the log was not shortened"
        drop(table)
        for keep in (*NONE_ALL, *NONE_RANDOM):
            survivor = disk.crash_clone(seed, keep=keep)
            check_survivor(survivor, stage.history.copy(), random.Random(seed), stage.clock)
