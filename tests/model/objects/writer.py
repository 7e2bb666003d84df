"""A writing process: commits, flushes, merges, ingests, alterations.  It knows nothing of any other."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tests.model.objects import checkpoint, opening, sweep
from tests.model.objects.client import Client, Steps, Unknown
from tests.model.objects.records import (
    TABLE,
    Alter,
    Edit,
    Ingest,
    LogObject,
    State,
    Table,
    Write,
    rows_of,
)
from tests.model.objects.rules import PROOF, Corruption, Fenced, Poisoned
from tests.model.objects.store import Missing, Name

if TYPE_CHECKING:
    from tests.model.objects.sim import World

WEIGHTS = {
    "write": 38,
    "write_once": 10,
    "flush": 16,
    "merge": 8,
    "ingest": 6,
    "alter": 2,
    "checkpoint": 12,
    "delete_due": 8,
    "sweep_jobs": 6,
}
UPKEEP = WEIGHTS | {"write": 12, "checkpoint": 30, "delete_due": 14, "sweep_jobs": 12}
NAMES = list(WEIGHTS)
SUMS = {False: list(accumulate(WEIGHTS.values())), True: list(accumulate(UPKEEP.values()))}
MOST_TABLETS = 3


class Writer(Client):
    state: State

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.epoch = 0
        self.table: Table | None = None  # as this writer has put it
        self.proof = 0  # when this process was known to be the writer
        self.snapshot_edits: dict[Name | None, int] = {}  # which edits a snapshot has
        self.retired: list[tuple[int, Name]] = []  # when it may be deleted, what

    def put_id(self) -> int:
        return self.world.number() if self.rules.unique_table else 0

    def run(self, operations: int) -> Steps:
        yield from self.guarded(self._life(operations))

    def guarded(self, steps: Steps) -> Steps:
        """However a writer ends, the table must stand it."""
        try:
            try:
                yield from steps
            except Missing as error:
                yield from self.refuse(error, self.table)
        except Fenced:
            self.world.count("fenced")
        except Poisoned:
            self.world.count("poisoned")

    def _life(self, operations: int) -> Steps:
        yield from opening.open_table(self)
        yield from sweep.find_orphans(self)
        sums = SUMS[self.world.environment.upkeep]
        for _ in range(operations):
            name = self.world.choices(NAMES, cum_weights=sums)[0]
            yield from self.take(name)
        if self.world.random() < 0.4:
            yield from self.close()

    def close(self) -> Steps:
        yield from checkpoint.checkpoint(self, clean_end=True)
        self.world.count("closed")

    def take(self, name: str) -> Steps:
        """One operation, from its name."""
        if name == "checkpoint":
            yield from checkpoint.checkpoint(self)
        elif name == "delete_due":
            yield from checkpoint.delete_due(self)
        elif name == "sweep_jobs":
            yield from sweep.sweep_jobs(self)
        else:
            yield from getattr(self, name)()

    # -- the log -------------------------------------------------------------------------------------------

    def stamp(self) -> int:
        """The time of a record, larger than that of all others."""
        self.state.last_ts = max(self.store.now, self.state.last_ts + 1)
        return self.state.last_ts

    def item(self, n: int, prev_id: int, records: tuple[Any, ...]) -> LogObject:
        return LogObject(n, self.epoch, self.world.number(), prev_id, records)

    def commit(self, *records: Any) -> Steps:
        """The records are in the log and installed (protocol B2).  Raises Fenced and Poisoned."""
        while True:
            item = self.item(self.state.next, self.state.last_id, records)
            sent = self.store.now
            try:
                have = yield from self.put_log(item)
            except Unknown:
                self.state.next += 1
                continue
            break
        if have is not None:
            raise Fenced("another's log object")
        yield from self.prove(sent)
        self.state.apply(item)

    def prove(self, sent: int) -> Steps:
        """Protocol B5: after a long sleep the success of a put proves nothing."""
        if self.rules.proof_ages and self.store.now - self.proof > PROOF:
            sent = self.store.now
            if (yield from self.get(*TABLE)).epoch != self.epoch:
                raise Fenced("a later epoch after a long sleep")
            self.world.count("proved")
        self.proof = sent

    # -- rows ----------------------------------------------------------------------------------------------

    def rows(self, count: int) -> tuple[Write, ...]:
        tablets = len(self.state.tablets)
        return tuple(
            Write(self.stamp(), int(self.world.random() * tablets), self.world.number(), None)
            for _ in range(count)
        )

    def acknowledge(self, *ids: int) -> None:
        self.world.oracle.acknowledge(ids)
        self.say("acknowledged", *ids)

    def write(self) -> Steps:
        records = self.rows(1 + int(self.world.random() * 2))
        ids = [record.id for record in records]
        if not self.rules.one_in_flight and self.world.random() < 0.5:
            yield from self._write_two(records)
        elif not self.rules.ack_after_put:
            self.world.promised.extend(ids)
            yield from self.commit(*records)
        else:
            yield from self.commit(*records)
            self.acknowledge(*ids)

    def _write_two(self, records: tuple[Write, ...]) -> Steps:
        """The shortcut: of two requests under way the second may be the first to succeed."""
        later = self.rows(1)
        n = self.state.next
        first = self.item(n, self.state.last_id, records)
        second = self.item(n + 1, first.put_id, later)
        if (yield from self.put_log(second)) is not None:
            raise Fenced("another's log object")
        self.world.promised.extend(record.id for record in later)
        if (yield from self.put_log(first)) is not None:
            raise Fenced("another's log object")
        self.state.apply(first)
        self.state.apply(second)

    def write_once(self) -> Steps:
        """An application repeats its write with a token, here and elsewhere, until it is told."""
        application = self.world.application
        version, key = application.version, application.id
        if self.state.tokens.get(0, 0) < version:
            yield from self.commit(Write(self.stamp(), 0, key, (0, version)))
        self.acknowledge(key)
        application.answered(version, self.world.number())

    # -- files ---------------------------------------------------------------------------------------------

    def file_name(self, tablet: int) -> Name:
        if self.rules.epoch_in_names:
            return "tablets", tablet, self.epoch, self.world.number()
        return "tablets", tablet, 0, self.state.tablets[tablet].edit + 1

    def flush(self) -> Steps:
        number = int(self.world.random() * len(self.state.tablets))
        tablet = self.state.tablets[number]
        if not tablet.memory:
            return
        rows = tuple((ts, key) for ts, key, _ in tablet.memory)
        name = self.file_name(number)
        edit = Edit(number, tablet.edit + 1, (), ((name, None),), rows[-1][0])
        if not self.rules.file_before_edit:
            yield from self.commit(edit)
        yield from self.ask(self.store.put, name, rows)
        if self.world.random() < 0.3:
            yield from self.write()
        if self.rules.file_before_edit:
            yield from self.commit(edit)
        self.world.count("flush")

    def merge(self) -> Steps:
        numbers = [n for n, tablet in enumerate(self.state.tablets) if len(tablet.files) > 1]
        if not numbers:
            return
        number = numbers[int(self.world.random() * len(numbers))]
        tablet = self.state.tablets[number]
        rows = []
        for name, stamp in tablet.files:
            rows += rows_of((yield from self.get(*name)), stamp)
        old = tuple(name for name, _ in tablet.files)
        name = self.file_name(number)
        yield from self.ask(self.store.put, name, tuple(sorted(rows)))
        if not self.rules.retire_after_edit:
            for gone in old:
                yield from self.ask(self.store.delete, gone)
        yield from self.commit(Edit(number, tablet.edit + 1, old, ((name, None),), tablet.through))
        checkpoint.retire(self, *old)
        self.world.count("merge")

    def ingest(self) -> Steps:
        """Files of several tablets, one record."""
        parts = []
        for number, tablet in enumerate(self.state.tablets[:2]):
            name, ids = self.file_name(number), (self.world.number(),)
            yield from self.ask(self.store.put, name, ids)
            parts.append((number, tablet.edit + 1, name, ids))
        yield from self.commit(Ingest(self.stamp(), None, tuple(parts)))
        self.acknowledge(*(key for part in parts for key in part[3]))
        self.world.count("ingest")

    def alter(self) -> Steps:
        if len(self.state.tablets) < MOST_TABLETS:
            yield from self.commit(Alter(self.state.version + 1))
            self.world.count("alter")


def never_missing(writer: Writer) -> Steps:
    """All rows of the table as its newest opener finds them.  Raises Corruption."""
    rows = []
    for tablet in writer.state.tablets:
        for name, stamp in tablet.files:
            value = yield from writer.find(*name)
            if value is None:
                raise Corruption(f"a file that a tablet names is missing: {name}")
            rows += rows_of(value, stamp)
        rows += [(ts, key) for ts, key, _ in tablet.memory]
    return sorted(rows)
