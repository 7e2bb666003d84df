"""Random runs: steps in any order, crashes of every kind, readers, stale writers, damage."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.model import answers, compaction, ingest
from tests.model.disk import Disk, Edit, Manifest, TableFile, TabletEntry, read_log
from tests.model.oracle import Oracle
from tests.model.protocol import Writer
from tests.model.reader import Reader
from tests.model.recovery import check_manifests, open_table, read_manifests
from tests.model.rules import AS_SPECIFIED, Corruption, Environment, Fenced, Rules, Violation
from tests.model.stores import FOREVER

#: Steps by weight.
STEPS = {
    "write": 30,
    "go_on": 16,
    "freeze": 7,
    "flush": 18,
    "flush_deltas": 18,
    "compact": 26,
    "ingest": 6,
    "install_ingest": 16,
    "sync_log": 20,
    "sync_manifest": 14,
    "delete_files": 10,
    "truncate": 8,
    "write_table": 2,
    "pin": 2,
    "ask_ahead": 1,
    "answer_ahead": 2,
    "alter": 1,
    "purge": 2,
    "read": 14,
    "stale": 6,
    "crash": 2,
}
STALE_STEPS = (
    "write",
    "freeze",
    "flush",
    "flush_deltas",
    "sync_log",
    "sync_manifest",
    "delete_files",
    "truncate",
)
NAMES = list(STEPS)
CONTESTED = {"crash": 8, "stale": 40}


class Simulation:
    """One table from its creation; equal seeds give equal runs."""

    def __init__(
        self, seed: int, rules: Rules = AS_SPECIFIED, environment: Environment | None = None
    ) -> None:
        self.rules, self.environment = rules, environment or Environment()
        self.rng = random.Random(seed)
        steps = STEPS | CONTESTED if self.environment.contested else STEPS
        self.weights = list(steps.values())
        self.oracle = Oracle(self.environment)
        tablets = {p: TabletEntry(p, 0, FOREVER) for p in range(self.environment.partitions)}
        self.disk = Disk(TableFile(0, tablets, {}), next_file=self.environment.partitions)
        self.disk.manifests = {tablet: Manifest([Edit(1, 0)], 1) for tablet in tablets}
        self.trace: list[tuple[Any, ...]] = []
        self.counts: Counter[str] = Counter()
        self.builds: list[ingest.Build] = []
        self.reader: Reader | None = None
        self.stale: Writer | None = None
        self.writer = self.open()

    def run(self) -> None:
        """Raises Violation."""
        for _ in range(self.environment.steps):
            name = self.rng.choices(NAMES, self.weights)[0]
            self.take(name)
            answers.ask(self.writer)
            self.oracle.check(self.writer)
        self.crash()
        self.oracle.check(self.writer)

    def take(self, name: str) -> None:
        if name == "crash":
            self.crash()
        elif name == "read":
            self.read()
        elif name == "stale":
            self.stale_step()
        elif name == "compact":
            compaction.step(self.writer)
        elif name == "ingest":
            ingest.step(self.writer, self.builds)
        elif name == "install_ingest":
            ingest.install(self.writer)
        else:
            getattr(self.writer, name)()

    # -- crashes -------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The writer ends in one of the ways it can, then the table is opened again."""
        kind = self.rng.choice(("kill", "power", "power", "close", "takeover"))
        if self.environment.contested and self.rng.random() < 0.5:
            kind = "takeover"
        self.counts[kind] += 1
        self.trace.append((kind,))
        self.stale = None
        if kind == "close":
            self.close()
        elif kind == "takeover":
            self.stale = self.writer
            self.stale.stale, self.stale.stale_lsn = True, self.writer.next_lsn
            self.stale.unchecked = self.rng.randint(0, 1)
        if kind == "power":
            self.power_cut()
        elif kind != "takeover":
            self.disk.locked = False
            self.damage()
            if self.rng.random() < 0.3:
                self.read_alone()
            if self.rng.random() < 0.3:
                self.power_cut()
        self.builds.clear()
        self.writer = self.open()

    def power_cut(self) -> None:
        self.trace.append(("power cut",))
        self.disk.locked = False
        self.reader = self.stale = None
        self.disk.power_cut(self.rng)

    def close(self) -> None:
        """A clean end; what is in flight is a record without an answer, as after a kill."""
        self.writer.sync_log()
        for tablet in self.writer.manifests:
            self.writer.sync_manifest(tablet)
        answers.ask(self.writer)
        if any(ts <= self.writer.applied_ts for ts in self.writer.tickets):
            raise Violation("W9: a ticket is without an answer after a clean close")
        self.writer.replace_table(clean_end=self.writer.next_lsn)

    def open(self) -> Writer:
        while True:
            try:
                writer = open_table(self.disk, self.rules, self.environment, self.rng, self.oracle)
            except Corruption as corruption:
                raise Violation(f"N17: a legal crash is refused: {corruption}") from corruption
            if writer is not None:
                writer.trace = self.trace
                self.trace.append(("open", writer.record_ts))
                if writer.floor > writer.committed_ts:
                    raise Violation(f"N10: floor {writer.floor} above W {writer.committed_ts} after open")
                return writer
            self.counts["died in replay"] += 1
            self.disk.locked = False
            if self.rng.random() < 0.5:
                self.power_cut()

    # -- damage --------------------------------------------------------------------------------------------

    def damage(self) -> None:
        """Protocol N17, on a copy of what a kill left: without something that was synced it must not open.

        COMMITTED has survived here.  After a power cut that took it, nothing on disk can tell a damaged
        last record from one that was never synced.
        """
        disk = self.disk.copy()
        tail = read_log(disk, self.rules)
        what = self.rng.choice(("record", "manifest", "end"))
        trust = True
        if what == "record":
            synced = [r for r in tail.records if r.lsn < disk.committed[-1][1]]
            if not synced:
                return
            victim = self.rng.choice(synced)
            segment = disk.segments[victim.epoch, victim.seq]
            segment.slots[segment.slots.index(victim)] = None
        elif what == "manifest":
            if not tail.numbers:
                return
            tablet = self.rng.choice(list(tail.numbers))
            if tablet not in disk.table.tablets:
                return
            manifest = disk.manifests[tablet]
            manifest.edits = [edit for edit in manifest.edits if edit.number < tail.numbers[tablet]]
        else:
            mark = max(state.mark for state in read_manifests(disk).values())
            victims = [r for r in tail.records if r.ts >= mark and r.lsn < disk.committed[-1][1]]
            if not victims or victims[0].ts > mark or mark <= tail.through:
                return
            trust = False
            for record in [r for r in tail.records if r.ts >= mark]:
                segment = disk.segments[record.epoch, record.seq]
                segment.slots[segment.slots.index(record)] = None
        try:
            again = read_log(disk, self.rules, trust_committed=trust)
            check_manifests(read_manifests(disk), again, self.rules)
        except Corruption:
            self.counts[f"refused without {what}"] += 1
            return
        raise Violation(f"N17: opens without a synced {what}")

    # -- others --------------------------------------------------------------------------------------------

    def read(self) -> None:
        if self.reader is None:
            self.reader = Reader(self.disk, self.rules, self.rng, self.oracle)
        self.reader.step()
        if self.reader.outcome:
            self.counts[f"reader {self.reader.outcome}"] += 1
            self.reader = None

    def read_alone(self) -> None:
        """A whole read while nobody holds the lease."""
        reader = Reader(self.disk, self.rules, self.rng, self.oracle)
        while not reader.outcome:
            reader.step()
        self.counts[f"reader alone {reader.outcome}"] += 1

    def stale_step(self) -> None:
        """A writer that has lost its lease and does not know."""
        if self.stale is None:
            return
        try:
            name = self.rng.choice((*STALE_STEPS, "compact", "compact"))
            if name == "compact":
                compaction.step(self.stale)
            else:
                getattr(self.stale, name)()
        except Fenced:
            self.counts["fenced"] += 1
            self.stale = None


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    violation: str  # empty: none
    trace: list[tuple[Any, ...]]
    counts: Counter[str]


#: A shortcut may also lead a run where the model's own code stumbles: that, too, is caught.
STUMBLES = (KeyError, IndexError, TypeError, ValueError, AssertionError, StopIteration)


def run(seed: int, rules: Rules = AS_SPECIFIED, environment: Environment | None = None) -> Outcome:
    """One run from its seed."""
    simulation: Simulation | None = None
    violation = ""
    try:
        simulation = Simulation(seed, rules, environment)
        simulation.run()
    except (Violation, Corruption) as error:
        violation = str(error)
    except STUMBLES as error:
        if rules == AS_SPECIFIED:
            raise
        violation = f"{type(error).__name__}: {error}"
    if simulation is None:
        return Outcome(seed, violation, [], Counter())
    return Outcome(seed, violation, simulation.trace, simulation.counts)
