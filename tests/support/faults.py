"""Short stories of a table, played over a file system that fails at a chosen call.

A ``Story`` is prepared once on a sound file system; each run of it gets a copy of that disk, opens the
table and plays the steps with one rule set.  Maintenance is manual and scans have one thread, so that the
n-th call is the same in every run.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import kudu_core as kc
from kudu_core.common.format.names import parse_lost
from kudu_core.fs.base import is_temporary
from kudu_core.table.lifecycle import open_writer as opening
from kudu_core.table.opened import debug
from kudu_core.table.stored.table_state import read_state, tablet_directory
from kudu_core.tablet.ingest.install import named_files
from kudu_core.tablet.replay import invariants
from kudu_core.tablet.store import records
from kudu_core.tablet.store.manifest import read_manifest
from kudu_core.wal import RECORD_KIND_INGEST, LogOptions, read_log
from tests.support.bulk import small_runs
from tests.support.clock import ManualClock
from tests.support.fs.faulty import FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of, forget, oldest_ts_of, poison_of
from tests.support.models.changes import check_changes
from tests.support.models.deciding import Decide
from tests.support.models.history import SCHEMA, History, random_batch, random_rows

ROOT = "/tables/t"
INGEST_ROWS = 30
KEYS = range(40)
WRITES = frozenset({"create", "append", "pwrite", "mkdir", "link", "rename"})
SYNCS = frozenset({"sync", "sync_dir"})
READS = frozenset({"open_read", "pread", "preadv", "open_write"})
SMALL = {"segment_bytes": 16 << 10, "first_fill_bytes": 1 << 10, "fill_bytes": 2 << 10}
TINY = {"segment_bytes": 1 << 10, "first_fill_bytes": 256, "fill_bytes": 512}


@contextmanager
def checking(on: bool) -> Iterator[None]:
    """The engine's debug switch, for tables opened meanwhile."""
    before = os.environ.get(debug.SWITCH)
    os.environ[debug.SWITCH] = "1" if on else "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[debug.SWITCH]
        else:
            os.environ[debug.SWITCH] = before


@contextmanager
def segments_of(sizes: dict[str, int]) -> Iterator[None]:
    """Log segments of another size."""
    real = opening.log_options

    def smaller(options: kc.Options) -> LogOptions:
        usual = real(options)
        return LogOptions(
            durability=usual.durability,
            group_interval_s=usual.group_interval_s,
            file_grace_s=usual.file_grace_s,
            **sizes,
        )

    opening.log_options = smaller
    try:
        yield
    finally:
        opening.log_options = real


def drop(table: kc.Table | None) -> None:
    """Forget a handle as the death of its process does."""
    if table is not None:
        forget(table)
        engine_of(table).pool.close()


class Stage:
    """One run: a disk, a table, what was acknowledged, and the randomness of the steps."""

    def __init__(self, fs: Any, history: History, seed: int, clock: ManualClock) -> None:
        self.fs = fs
        self.history = history
        self.rng = random.Random(seed)
        self.clock = clock
        self.table: kc.Table | None = None

    @property
    def opened(self) -> kc.Table:
        assert self.table is not None
        return self.table

    def create(self, buckets: int = 2, **options: Any) -> None:
        given = {
            "maintenance": "manual",
            "ingest_threshold_rows": INGEST_ROWS,
            "scan_threads": 1,
            "file_grace_s": 0,
            **options,
        }
        self.table = kc.create_table(
            ROOT,
            SCHEMA,
            "k",
            partition_by=[kc.HashPartition(["k"], buckets)] if buckets > 1 else [],
            options=given,
            _fs=self.fs,
            _clock=self.clock,
        )

    def open(self, mode: str = "rw") -> kc.Table:
        self.table = kc.open_table(ROOT, mode, _fs=self.fs, _clock=self.clock)
        return self.table

    def write(self, rows: int = 8, keys: range = KEYS) -> None:
        self.clock.advance(us=7)
        self.history.write(self.opened, random_batch(self.rng, self.history.model, keys, rows))

    def load(self, keys: range = KEYS, rows: int = 40) -> None:
        """One call in several batches."""
        self.clock.advance(us=7)
        batch = random_batch(self.rng, self.history.model, keys, rows, whole=True)
        self.history.write(self.opened, batch, batch_rows=7)

    def ingest(self, keys: range = KEYS) -> None:
        self.write(INGEST_ROWS + 8, keys)

    def decide(self, way: Decide, keys: range = KEYS, rows: int = 12) -> None:
        """A write that looks at the rows that are there."""
        self.clock.advance(us=7)
        way(self.opened, self.history, self.rng, keys, rows)

    def overwrite(self, keys: range = KEYS, rows: int = 15, attempts: int = 2) -> None:
        self.clock.advance(us=7)
        self.history.overwrite(self.opened, random_rows(self.rng, keys, rows), attempts)

    def flush(self) -> None:
        self.clock.advance(us=7)
        self.opened.flush()

    def flush_memrowsets(self) -> None:
        """Only these; changes of rowsets stay in memory."""
        engine = engine_of(self.opened)
        assert engine.maintenance is not None
        for tablet in engine.tablets:
            engine.maintenance.flush(tablet)


Steps = list[Callable[[Stage], None]]


@dataclass(frozen=True)
class Story:
    """``prepare`` on a sound disk, then a new process opens the table and plays ``steps``."""

    name: str
    prepare: Callable[[Stage], None]
    steps: Callable[[], Steps]
    segments: dict[str, int]
    faults_in_open: bool = False
    spilled: bool = False
    """Calls of several batches are spilled, and written in many ranges."""
    tried: int = 2
    """Calls that the short run tries: of each kind of fault so many."""

    @contextmanager
    def sizes(self) -> Iterator[None]:
        """Small log segments, and small runs if it is about these."""
        with segments_of(self.segments), ExitStack() as stack:
            if self.spilled:
                stack.enter_context(small_runs(spill=True, run_rows=12, range_bytes=400))
            yield


class Play:
    """A story made ready once, to be run over and over."""

    def __init__(self, story: Story, seed: int) -> None:
        self.story = story
        self.seed = seed
        disk = MemoryFileSystem()
        disk.mkdir("/tables")
        stage = Stage(disk, History(), seed, ManualClock())
        with story.sizes(), checking(True):
            story.prepare(stage)
        drop(stage.table)
        self._disk = disk
        self._history = stage.history
        self._now_us = stage.clock.now_us() + 1000

    def run(self, rule: Rule | None, on_error: Callable[[Stage, Exception], None] | None = None) -> Stage:
        """Play once.  ``stage.failed`` is what stopped it, or None; without ``on_error`` it is raised,
        with it the step is tried again after the call."""
        inner = self._disk.crash_clone(0, keep="all")
        fs = FaultyFileSystem(inner, seed=self.seed)
        stage = Stage(fs, self._history.copy(), self.seed + 1, ManualClock(self._now_us))
        steps = self.story.steps()
        if self.story.faults_in_open:
            steps.insert(0, lambda s: void(s.open()))
            fs.rules = [rule] if rule else []
        elif self._history.writes:
            stage.open()
            fs.rules = [rule] if rule else []
        fs.calls = 0
        try:
            for step in steps:
                try:
                    step(stage)
                except SimulatedCrash:
                    raise
                except Exception as error:
                    if on_error is None:
                        raise
                    on_error(stage, error)
                    if stage.table is None or poison_of(stage.table) is None:
                        step(stage)  # nothing has happened, so it may be done again
                    else:
                        break
        except SimulatedCrash:
            pass
        return stage

    def calls(self) -> list[str]:
        """The operations of a run without faults, which must end well; the n-th is call n + 1."""
        with self.story.sizes(), checking(True):
            stage = self.run(None)
            table = stage.opened
            try:
                engine_of(table).check_open()
            except kc.Closed:
                table = stage.open()
            stage.history.settle(table)
            stage.history.check(table, random.Random(0))
            drop(table)
        with self.story.sizes(), checking(False):
            log: list[str] = []
            original = FaultyFileSystem._enter

            def entered(fs: FaultyFileSystem, op: str, path: str) -> Any:
                log.append(op)
                return original(fs, op, path)

            FaultyFileSystem._enter = entered  # type: ignore[method-assign, assignment]
            try:
                stage = self.run(None)
            finally:
                FaultyFileSystem._enter = original  # type: ignore[method-assign]
            drop(stage.table)
        assert isinstance(stage.fs, FaultyFileSystem)
        return log[len(log) - stage.fs.calls :]


def void(_: object) -> None:
    """So that a lambda returns nothing."""


# ---- after a crash ----


def check_disk(fs: MemoryFileSystem) -> None:
    """Protocol N1, N9, N11: log, manifests and files belong together before anybody has repaired anything."""
    state = read_state(fs, f"{ROOT}/TABLE")
    tail = read_log(fs, f"{ROOT}/wal", state.uuid, clean_end=state.clean_end)
    try:
        states = {}
        for entry in state.tablets:
            directory = tablet_directory(ROOT, entry.id)
            with suppress(FileNotFoundError):
                states[entry.id] = read_manifest(fs, f"{directory}/MANIFEST", state.uuid, entry.id)[0]
                invariants.check_files(fs, directory, states[entry.id])
                tail.check_mark(states[entry.id].mark)
        invariants.check_records(
            list(tail.records()), states, through=tail.through, fs=fs, root=f"{ROOT}/tablets"
        )
    finally:
        tail.close()


def check_no_litter(fs: MemoryFileSystem) -> None:
    """Just after an open for writing: every file is one that something names."""
    state = read_state(fs, f"{ROOT}/TABLE")
    # Jobs that have not come to their record keep their grace.
    jobs = {name for name in fs.listdir(f"{ROOT}/staging") if name.startswith("job-")}
    assert set(fs.listdir(f"{ROOT}/staging")) == jobs
    tablets = {tablet_directory("", entry.id).rpartition("/")[2] for entry in state.tablets}
    assert set(fs.listdir(f"{ROOT}/tablets")) == tablets
    ours = ("LOCK", "TABLE", "TABLE.copy", "lost", "staging", "tablets", "wal")
    root = [name for name in fs.listdir(ROOT) if name not in ours]
    assert root == [], f"left behind: {root}"
    kept = fs.listdir(f"{ROOT}/lost") if fs.exists(f"{ROOT}/lost") else []
    assert all(map(parse_lost, kept)), f"in lost/ without saying whose it was: {kept}"
    assert not [name for name in fs.listdir(f"{ROOT}/wal") if is_temporary(name)]
    tail = read_log(fs, f"{ROOT}/wal", state.uuid)
    named: dict[int, set[str]] = {}
    for record in tail.records():
        if record.kind == RECORD_KIND_INGEST:
            payload = records.decode(memoryview(record.payload), "log", 0)
            assert payload.extra.get("job") not in jobs, "a job is committed, and its staging is there"
            for tablet_id, part in payload.extra["parts"].items():
                named.setdefault(int(tablet_id), set()).update(named_files(part))
    tail.close()
    for entry in state.tablets:
        directory = tablet_directory(ROOT, entry.id)
        manifest = read_manifest(fs, f"{directory}/MANIFEST", state.uuid, entry.id)[0]
        own = {"MANIFEST", "MANIFEST.copy"}
        extra = set(fs.listdir(directory)) - manifest.files - named.get(entry.id, set()) - own
        assert not extra, f"tablet {entry.id} keeps {sorted(extra)}"


def check_survivor(fs: MemoryFileSystem, history: History, rng: random.Random, clock: ManualClock) -> None:
    """What a power cut left: it opens, it holds the acknowledged, and it is a table to go on with."""
    check_disk(fs)
    before = history.model.state()
    stage = Stage(fs, history, rng.randrange(1 << 30), clock)
    reader = stage.open("r")
    seen = history.copy()
    seen.settle(reader)
    seen.check(reader, rng, past=1)
    reader.close()
    with checking(True):
        table = stage.open()
    check_no_litter(fs)
    history.settle(table)
    oldest = oldest_ts_of(table)
    legal = [time for time in history.writes if time >= oldest]
    for since in rng.sample(legal[:-1], min(2, len(legal[:-1]))):
        check_changes(table, history, since, legal[-1])
    # A reader ends before an ingest that is not installed yet (protocol R2); what it saw is never taken back.
    assert seen.model.state() in (before, history.model.state())
    history.check(table, rng, past=len(history.writes))
    stage.write(5)
    if rng.random() < 0.5:
        stage.flush()
    stage.ingest() if rng.random() < 0.3 else stage.write(5)
    if rng.random() < 0.5:
        table.close()
        after = fs
    else:
        drop(table)
        after = fs.crash_clone(rng)
        check_disk(after)
    again = Stage(after, history, 0, clock)
    with checking(True):
        table = again.open()
    history.settle(table)
    history.check(table, rng, past=1)
    table.close()


# ---- the stories ----


def error_for(op: str, rng: random.Random) -> Any:
    """A fault that a disk may report for this operation."""
    if op in ("append", "pwrite"):
        return rng.choice((errno.ENOSPC, errno.EIO, "short write", "torn-error"))
    if op in WRITES:
        return rng.choice((errno.ENOSPC, errno.EIO))
    return errno.EIO


__all__ = [
    "KEYS",
    "READS",
    "ROOT",
    "SMALL",
    "SYNCS",
    "TINY",
    "WRITES",
    "Play",
    "Rule",
    "SimulatedCrash",
    "Stage",
    "Story",
    "check_disk",
    "check_no_litter",
    "check_survivor",
    "checking",
    "drop",
    "error_for",
    "segments_of",
]
