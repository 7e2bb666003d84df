"""Short stories of a table, played over a file system that fails at a chosen call.

A ``Story`` is prepared once on a sound file system; each run of it gets a copy of that disk, opens the
table and plays the steps with one rule set.  Maintenance is manual and scans have one thread, so that the
n-th call is the same in every run.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import kudu_core as kc
from kudu_core.common.format.names import parse_lost
from kudu_core.fs.base import is_temporary
from kudu_core.table.lifecycle import open_writer as opening
from kudu_core.table.opened import debug
from kudu_core.table.stored.table_file import read_state, tablet_directory
from kudu_core.tablet.compact.merge import merge_rowsets
from kudu_core.tablet.ingest.part import named_files
from kudu_core.tablet.maintain.delta_policy import MAJOR, MINOR
from kudu_core.tablet.replay import invariants
from kudu_core.tablet.store import records
from kudu_core.tablet.store.manifest import read_manifest
from kudu_core.wal import RECORD_KIND_INGEST, LogOptions, read_log
from tests.support.bulk import MEMORY_LIMIT_BYTES, small_runs
from tests.support.clock import ManualClock
from tests.support.fs.faulty import FaultyFileSystem, Rule, SimulatedCrash
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of, forget, oldest_ts_of, poison_of, tablets_of
from tests.support.models.changes import check_changes
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
    real = opening._log_options

    def smaller(options: kc.Options) -> LogOptions:
        usual = real(options)
        return LogOptions(
            durability=usual.durability,
            group_interval_s=usual.group_interval_s,
            file_grace_s=usual.file_grace_s,
            **sizes,
        )

    opening._log_options = smaller
    try:
        yield
    finally:
        opening._log_options = real


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
    tried: int = 5
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


def _mixed(stage: Stage) -> None:
    """Rowsets with REDO and UNDO, an ingested one, changes in memory, rows in memory."""
    stage.create()
    stage.write(20)
    stage.write(20)
    stage.flush()
    stage.write(10)
    stage.flush()
    stage.write(10)


def _with_ingest(stage: Stage) -> None:
    stage.create()
    stage.write(15, range(20))
    stage.write(15, range(20))
    stage.flush()
    stage.write(10, range(20))
    stage.write(12, range(20, 30))


def _before_load(stage: Stage) -> None:
    """Rows in memory and in rowsets, in each key range of the loads to come."""
    stage.create(memory_limit_bytes=MEMORY_LIMIT_BYTES)
    stage.write(25)
    stage.flush()
    stage.write(10, range(20, 60))


def _one_tablet(stage: Stage) -> None:
    """What the path of single rows takes."""
    stage.create(buckets=1)
    stage.write(20)
    stage.flush()
    stage.write(10)


def _empty(stage: Stage) -> None:
    stage.create()
    stage.write(4)


def write_steps() -> Steps:
    return [lambda s: s.write(12), lambda s: s.write(3), lambda s: s.write(12)]


def row_steps() -> Steps:
    return [*[lambda s: s.write(1)] * 8, lambda s: s.flush(), *[lambda s: s.write(1)] * 6]


def flush_steps() -> Steps:
    """Updates, deletes and reinsertions before the flush and, by way of a frozen MemRowSet, during it."""

    def half_way(stage: Stage) -> None:
        from kudu_core.tablet.store.tablet import freeze_memrowset

        for tablet in tablets_of(stage.opened):
            if not tablet.view.frozen:
                freeze_memrowset(tablet)

    return [
        lambda s: s.write(20),
        lambda s: s.write(10),
        half_way,
        lambda s: s.write(12),
        lambda s: s.write(6),
        lambda s: s.flush_memrowsets(),
        lambda s: s.write(6),
        lambda s: s.flush(),
    ]


def delta_steps() -> Steps:
    return [lambda s: s.write(10), lambda s: s.flush(), lambda s: s.write(10), lambda s: s.flush()]


def ingest_steps() -> Steps:
    return [lambda s: s.ingest(), lambda s: s.write(6), lambda s: s.ingest(range(10, 60))]


def overwrite_steps() -> Steps:
    """Over rows on disk and in memory, over rows of an overwrite, and by nothing."""
    return [
        lambda s: s.overwrite(),
        lambda s: s.write(6),
        lambda s: s.overwrite(range(10, 60), attempts=1),
        lambda s: s.flush(),
        lambda s: s.write(6),
        lambda s: s.overwrite(rows=0),
        lambda s: s.write(6),
    ]


def load_steps() -> Steps:
    return [lambda s: s.load(), lambda s: s.write(6), lambda s: s.load(range(10, 90))]


def _compact(kind: str, columns: Sequence[str] | None = None) -> Callable[[Stage], None]:
    """One compaction of every rowset that has something to compact."""

    def step(stage: Stage) -> None:
        engine = engine_of(stage.opened)
        assert engine.compactions is not None
        stage.clock.advance(us=7)
        ids = None if columns is None else [engine.schema.by_name[name].id for name in columns]
        for tablet in engine.tablets:
            for rowset in tablet.view.rowsets:
                if rowset.meta.redo:
                    engine.compactions.compact(tablet, rowset.id, kind, ids)

    return step


def _collect(stage: Stage) -> None:
    stage.clock.advance(us=7)
    stage.opened.gc()


def _several_redo_files(stage: Stage) -> None:
    """Rowsets with REDO files of several flushes, also of deletions, and changes in memory."""
    _mixed(stage)
    stage.flush()
    stage.write(10)
    stage.flush()
    stage.write(10)
    stage.flush()
    stage.write(6)


def _short_history(stage: Stage) -> None:
    """The same, and nothing keeps what was."""
    stage.create(history_retention_s=0)
    for _ in range(4):
        stage.write(20)
        stage.flush()
    stage.write(6)


def compaction_steps() -> Steps:
    """Minor and major ones beside changes in memory, and again over what they left."""
    return [
        _compact(MINOR),
        lambda s: s.write(6),
        _compact(MAJOR, ["a"]),
        lambda s: s.flush(),
        lambda s: s.write(8),
        lambda s: s.flush(),
        _compact(MAJOR, ["b", "c"]),
        _compact(MINOR),
        lambda s: s.write(4),
    ]


def _retired(stage: Stage) -> None:
    """Compacted and collected, and the files that nothing names any more still lie there."""
    stage.create(file_grace_s=60, history_retention_s=0)
    for _ in range(3):
        stage.write(20)
        stage.flush()
    stage.opened.compact(full=True)
    stage.clock.advance(us=7)
    stage.opened.gc()
    stage.write(8)
    stage.flush()
    stage.write(6)


def history_steps() -> Steps:
    """UNDO files that are dropped, rowsets of dead rows, files that are deleted."""
    return [
        lambda s: s.opened.compact(full=True),
        _collect,
        lambda s: s.write(8),
        lambda s: s.flush(),
        lambda s: s.opened.compact(full=True),
        _collect,
        lambda s: s.write(4),
    ]


def log_steps() -> Steps:
    """Several segments, dropped and recycled; at rest the one that takes records goes too, and spares."""

    def rest(stage: Stage) -> None:
        engine = engine_of(stage.opened)
        assert engine.maintenance is not None
        engine.log.drop_spares()
        engine.log.roll()
        engine.maintenance.truncate_log()

    return [
        *[lambda s: s.write(6)] * 5,
        lambda s: s.flush(),
        *[lambda s: s.write(6)] * 4,
        lambda s: s.flush(),
        rest,
        lambda s: s.write(4),
        lambda s: s.flush(),
        rest,
    ]


def _overlapping(stage: Stage) -> None:
    """Rowsets that overlap, with copies of keys and a past in memory and in files."""
    stage.create()
    for _ in range(3):
        stage.write(16)
        stage.flush_memrowsets()
        stage.write(6)
    stage.ingest()
    stage.flush()
    stage.write(10)


def merge_steps() -> Steps:
    """All of each tablet, with writes and a flush between the rounds; then what came of it, and writes."""

    def merge(stage: Stage) -> None:
        engine = engine_of(stage.opened)
        for tablet in engine.tablets:
            ids = [rowset.id for rowset in tablet.view.rowsets]
            meanwhile = {
                "written": lambda: stage.write(6),
                "round": lambda: stage.write(4),
                "ready": lambda: stage.write(4),
            }

            def at_step(step: str, left: dict[str, Callable[[], None]] = meanwhile) -> None:
                left.pop(step, lambda: None)()

            if ids:
                merge_rowsets(
                    tablet, ids, horizon=lambda drop: engine.horizon(drop=drop), at_step=at_step
                )

    return [
        merge,
        lambda s: s.write(8),
        lambda s: s.flush(),
        lambda s: s.opened.compact(full=True),
        lambda s: s.write(4),
    ]


def reopen_steps() -> Steps:
    def close(stage: Stage) -> None:
        stage.opened.close()

    return [lambda s: s.write(4), lambda s: s.flush(), close]


def _long_log(stage: Stage) -> None:
    """A log with writes, an ingest and a half-written last segment to replay."""
    stage.create()
    stage.write(15)
    stage.flush()
    stage.write(10)
    stage.ingest()
    stage.write(10)
    stage.write(10)


def _overwritten(stage: Stage) -> None:
    """A log with writes before and after an overwrite, of which no manifest knows, and after a second one."""
    stage.create()
    stage.write(15)
    stage.flush()
    stage.write(10)
    stage.overwrite()
    stage.write(10)
    stage.overwrite(range(10, 60))
    stage.write(10)


STORIES = {
    story.name: story
    for story in (
        Story("write", _mixed, write_steps, SMALL),
        Story("rows", _one_tablet, row_steps, SMALL),
        Story("flush", _empty, flush_steps, SMALL),
        Story("delta flush", _mixed, delta_steps, SMALL),
        Story("ingest", _with_ingest, ingest_steps, SMALL),
        Story("overwrite", _mixed, overwrite_steps, SMALL, tried=3),
        Story("load", _before_load, load_steps, SMALL, spilled=True),
        Story("merge", _overlapping, merge_steps, SMALL),
        Story("log", _empty, log_steps, TINY),
        Story("delta compaction", _several_redo_files, compaction_steps, SMALL),
        Story("history", _short_history, history_steps, SMALL),
        Story("reopen", _long_log, reopen_steps, TINY, faults_in_open=True),
        Story("reopen after overwrites", _overwritten, reopen_steps, TINY, faults_in_open=True, tried=2),
        Story("reopen after compactions", _retired, reopen_steps, TINY, faults_in_open=True),
    )
}


def error_for(op: str, rng: random.Random) -> Any:
    """A fault that a disk may report for this operation."""
    if op in ("append", "pwrite"):
        return rng.choice((errno.ENOSPC, errno.EIO, "short", "torn-error"))
    if op in WRITES:
        return rng.choice((errno.ENOSPC, errno.EIO))
    return errno.EIO


__all__ = [
    "KEYS",
    "READS",
    "ROOT",
    "SMALL",
    "STORIES",
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
