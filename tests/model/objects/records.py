"""What objects hold, and the state of a table that follows from TABLE, snapshots and the log (protocol B7).

A row is (ts, id).  The rows of a file that a task or an ingest has written have no times of their own: theirs
is that of the record, which a reference to the file carries as its stamp.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.model.objects.rules import Corruption, Rules
from tests.model.objects.store import Name

TABLE: Name = ("TABLE",)
Row = tuple[int, int]  #: (ts, id)
Reference = tuple[Name, int | None]  #: a file, and the time of its rows where they have none


class Snapshot(NamedTuple):
    files: tuple[Reference, ...]
    edit: int  # the number of the last edit in it
    through: int  # inserted rows at or below are in files


class Table(NamedTuple):
    """TABLE, format version 2."""

    epoch: int
    log_first: int
    through: int  # the last record's time: none to come is at or below
    log_prev: int  # put id of the object before log_first
    snapshots: tuple[Name | None, ...]  # of each tablet; None: empty
    tokens: tuple[tuple[int, int], ...]  # (application, version)
    version: int  # of the schema
    clean_end: int  # where the log ends after a clean close, else 0
    put_id: int


class LogObject(NamedTuple):
    n: int
    epoch: int
    put_id: int
    prev_id: int  # put id of the object before
    records: tuple[Any, ...]  # none: a fence


class Write(NamedTuple):
    ts: int
    tablet: int
    id: int
    token: tuple[int, int] | None


class Edit(NamedTuple):
    tablet: int
    number: int
    removed: tuple[Name, ...]
    added: tuple[Reference, ...]
    through: int


class Ingest(NamedTuple):
    ts: int
    job: int | None
    parts: tuple[tuple[int, int, Name, tuple[int, ...]], ...]  # tablet, edit number, file, ids


class Alter(NamedTuple):
    version: int


class GiveUp(NamedTuple):
    job: int


class Tablet:
    """Files and memory of one tablet; ``rows`` of memory carry the number of their log object."""

    __slots__ = ("edit", "files", "memory", "through")

    def __init__(self, snapshot: Snapshot | None) -> None:
        self.files, self.edit, self.through = snapshot or Snapshot((), 0, 0)
        self.memory: list[tuple[int, int, int]] = []  # ts, id, number of the log object

    def snapshot(self) -> Snapshot:
        return Snapshot(self.files, self.edit, self.through)


class State:
    """A table as an opener, a reader or a follower knows it."""

    def __init__(self, table: Table, snapshots: Iterable[Snapshot | None], rules: Rules) -> None:
        self.table, self.rules = table, rules
        self.tablets = [Tablet(snapshot) for snapshot in snapshots]
        self.tokens = dict(table.tokens)
        self.version = table.version
        self.next = table.log_first
        self.last_id = table.log_prev
        self.last_ts = table.through
        self.epoch = 0
        self.jobs: dict[int, tuple[str, int]] = {}  # of the log: verdict, number of the object
        self.ids = {table.log_first - 1: table.log_prev}
        self.fences: set[int] = set()
        self._log_ts = 0

    def named(self) -> set[Name]:
        return {name for tablet in self.tablets for name, _ in tablet.files}

    def apply(self, item: LogObject, gap: bool = False) -> list[Row]:
        """The next object of the log; its rows.  Raises Corruption.

        ``gap``: a shortcut leaves numbers out.
        """
        if not gap and self.rules.chained and item.prev_id != self.last_id:
            raise Corruption(f"B9: object {item.n} does not follow the one before it")
        if item.epoch < self.epoch:
            raise Corruption("B4: an object of an earlier epoch after one of a later")
        self.epoch, self.next, self.last_id = item.epoch, item.n + 1, item.put_id
        self.ids[item.n] = item.put_id
        if not item.records:
            self.fences.add(item.n)
        rows: list[Row] = []
        for record in item.records:
            if isinstance(record, Write):
                self._write(record, item.n)
                rows.append((record.ts, record.id))
            elif isinstance(record, Edit):
                self._edit(record)
            elif isinstance(record, Ingest):
                self._ingest(record, item.n)
                rows += [(record.ts, key) for part in record.parts for key in part[3]]
            elif isinstance(record, Alter):
                self._alter(record)
            else:
                self.jobs[record.job] = "given up", item.n
        return rows

    def _time(self, ts: int) -> None:
        if ts <= self._log_ts:
            raise Corruption("L1: times do not increase along the log")
        self._log_ts = ts
        self.last_ts = max(self.last_ts, ts)

    def _write(self, record: Write, n: int) -> None:
        self._time(record.ts)
        tablet = self.tablets[record.tablet]
        if record.ts > tablet.through:
            tablet.memory.append((record.ts, record.id, n))
        if record.token is not None:
            application, version = record.token
            self.tokens[application] = max(version, self.tokens.get(application, 0))

    def _edit(self, record: Edit) -> None:
        tablet = self.tablets[record.tablet]
        if not self._is_next(tablet, record.number):
            return
        tablet.files = (*(f for f in tablet.files if f[0] not in record.removed), *record.added)
        tablet.through = max(tablet.through, record.through)
        tablet.memory = [row for row in tablet.memory if row[0] > tablet.through]

    def _ingest(self, record: Ingest, n: int) -> None:
        self._time(record.ts)
        if record.job is not None:
            self.jobs[record.job] = "applied", n
        for number, edit, name, _ in record.parts:
            tablet = self.tablets[number]
            if self._is_next(tablet, edit):
                tablet.files = (*tablet.files, (name, record.ts))

    def _alter(self, record: Alter) -> None:
        if record.version > self.version:
            self.version = record.version
            self.tablets.append(Tablet(None))

    def _is_next(self, tablet: Tablet, number: int) -> bool:
        """Whether an edit is not in the snapshot (protocol B7)."""
        if self.rules.numbered_edits and number <= tablet.edit:
            return False
        if self.rules.numbered_edits and number != tablet.edit + 1:
            raise Corruption("O2: an edit is missing")
        tablet.edit = max(tablet.edit, number)
        return True


def rows_of(value: tuple[Any, ...], stamp: int | None) -> list[Row]:
    """The rows of a file's value."""
    return list(value) if stamp is None else [(stamp, key) for key in value]
