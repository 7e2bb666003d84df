"""The writing process: log, write path, flushes, truncation, deletion.  A method is one critical section.

A step does whatever is possible at that moment and nothing otherwise; the simulation picks steps at random.
Compaction, ingest and recovery are in files of their own.  The rule numbers are those of the protocol.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.model import answers, history
from tests.model.disk import Disk, Edit, Entry, Header, IngestPart, Manifest, Record, Segment, TabletEntry
from tests.model.rules import APPS, Environment, Fenced, Rules, Violation
from tests.model.stores import (
    FOREVER,
    Change,
    DeltaFile,
    DeltaMemStore,
    FlushJob,
    MemRowSet,
    RowSet,
    Tablet,
)

if TYPE_CHECKING:
    import random

    from tests.model.oracle import Oracle


class Writer:
    """One process that has the table open for writing, or a stale one that still believes so."""

    def __init__(
        self, disk: Disk, rules: Rules, environment: Environment, rng: random.Random, oracle: Oracle
    ) -> None:
        self.disk, self.rules, self.environment, self.rng, self.oracle = disk, rules, environment, rng, oracle
        self.table = disk.table  # the inode that this writer installed
        self.tablets: dict[int, Tablet] = {}
        self.manifests = dict(disk.manifests)  # the inodes that this writer has open
        self.segment: Segment | None = None
        self.segment_end = 0  # records in it
        self.names: list[tuple[int, int]] = []  # of the segments of its log, in order
        self.next_lsn = self.synced_lsn = 0
        self.last_ts = 0  # never issue a timestamp at or below it
        self.record_ts = 0  # of the last record
        self.durable_ts = 0
        self.pending: list[Record] = []  # not synced yet
        self.retained: list[Record] = []
        self.in_flight: dict[int, set[int]] = {}  # ts -> tablets that have not applied it
        self.tokens: dict[int, tuple[int, int]] = {}
        self.through = self.floor = self.epoch = 0
        self.pins: list[int] = []
        self.deletable: list[tuple[int, int, list[int]]] = []  # (tablet, edit number, files)
        self.unread: list[tuple[int, int, list[int]]] = []  # of these, asked for when no reader was there
        self.resting: list[tuple[int, int]] = []  # segments at or below the last CHECKPOINT
        self.asked: list[int] = []  # reads in (V, now] that wait
        self.answered = 0  # the largest S of those that were answered
        self.tickets: list[int] = []  # calls without an answer yet: the times of what they rest on
        self.replaying = self.stale = False
        self.stale_lsn = 0  # the other writer has read what lies below it
        self.unchecked = 0  # actions whose check of TABLE came before another writer took over
        self.trace: list[tuple[Any, ...]] = []

    def note(self, *what: Any) -> None:
        self.trace.append(what)

    # -- watermarks ----------------------------------------------------------------------------------------

    @property
    def applied_ts(self) -> int:
        """A: every record <= it is applied."""
        return min(self.in_flight) - 1 if self.in_flight else self.record_ts

    @property
    def committed_ts(self) -> int:
        """W."""
        return min(self.applied_ts, self.durable_ts)

    def cut(self) -> int:
        """The cut of a tablet whose mutex is held."""
        raised = self.rules.cut == "last_ts" and not self.replaying
        return self.last_ts if raised else self.record_ts

    def durable_through(self, ts: int) -> bool:
        """Protocol E1."""
        return not self.rules.edit_waits_for_log or not self.pending or self.pending[0].ts > ts

    def horizon(self) -> int:
        """Protocol H2: the h of an operation that drops history; 0 where it may drop nothing."""
        if self.replaying:
            return self.floor
        now = self.committed_ts if self.rules.horizon_at_most_w else self.record_ts
        h = min([now, *self.pins, now - self.rng.choice((0, 2, 6, 20))])
        if not self.rules.horizon_persisted:
            return max(h, 0)
        self.floor = max(self.floor, h)
        return self.floor

    def horizon_of(self, tablet: Tablet) -> int:
        if self.rng.random() < 0.5:
            return tablet.h if self.rules.horizon_persisted else 0
        return self.horizon()

    def lowest_read(self) -> int:
        """The lowest S that this process answers."""
        return self.floor if self.rules.horizon_persisted else max(0, self.committed_ts - 6)

    # -- fencing -------------------------------------------------------------------------------------------

    def check_fence(self, *, racing: bool = False) -> None:
        """Protocol P2.  ``racing``: the check may have been made just before the other writer came."""
        if racing and self.unchecked:
            self.unchecked -= 1
        elif self.rules.fencing and self.disk.table is not self.table:
            raise Fenced

    def replace_table(self, **changes: Any) -> None:
        self.check_fence()
        self.table = self.disk.table = replace(self.table, **changes)

    # -- log -----------------------------------------------------------------------------------------------

    def append(self, kind: str, **fields: Any) -> Record:
        """Protocol W5: the next timestamp and the write of the record."""
        if self.segment is None or self.segment_end == len(self.segment.slots):
            self.next_segment()
        assert self.segment is not None and self.segment.header is not None
        self.last_ts = max(self.last_ts + 1, self.record_ts + self.rng.choice((1, 1, 3)))
        if not self.rules.read_ahead_raises:
            self.last_ts = self.record_ts + 1
        header = self.segment.header
        record = Record(
            header.epoch, header.seq, self.next_lsn, self.last_ts, kind, self.synced_lsn, **fields
        )
        if record.ts <= self.record_ts:
            raise Violation(f"N1: record at {record.ts} after one at {self.record_ts}")
        if record.ts <= self.answered:
            raise Violation(f"H1: a record at {record.ts} after a read at {self.answered}")
        self.segment.put(self.segment_end, record)
        self.segment_end += 1
        self.next_lsn += 1
        self.record_ts = record.ts
        self.pending.append(record)
        self.retained.append(record)
        if not self.stale and kind != "CHECKPOINT":
            self.oracle.append(record)
        return record

    def next_segment(self) -> None:
        """Protocol L2; of a spare where there is one (protocol T2).  A new name asks for protocol P2 too."""
        self.sync_log()
        if self.rules.fence_before_segment:
            self.check_fence()
        seq = self.segment.header.seq + 1 if self.segment and self.segment.header else 1
        header = Header(self.epoch, seq, self.next_lsn, self.record_ts)
        if self.disk.spare and not self.stale:
            segment = self.disk.spare.pop()
            segment.header_before, segment.header = segment.header, header
            segment.header_synced = False
        else:
            segment = Segment(header, [None] * self.environment.segment_records)
        self.disk.segments[self.epoch, seq] = segment
        self.names.append((self.epoch, seq))
        self.disk.sync_wal_directory()
        self.segment, self.segment_end = segment, 0

    def sync_log(self) -> None:
        if self.segment is None:
            return
        self.segment.sync()
        if not self.rules.fence_before_committed:
            self.disk.committed.append((self.record_ts, self.next_lsn))
        self.check_fence()
        if any(record.kind != "CHECKPOINT" and record.lsn >= self.stale_lsn for record in self.pending):
            if self.stale:
                raise Violation("P2: a stale writer acknowledged a write")
        self.pending.clear()
        self.durable_ts, self.synced_lsn = self.record_ts, self.next_lsn
        if not self.stale:
            self.oracle.promise(self.durable_ts)
        self.disk.committed.append((min(self.applied_ts, self.record_ts), self.next_lsn))

    # -- manifests -----------------------------------------------------------------------------------------

    def entry(self, rowset: RowSet) -> Entry:
        files = tuple((s.file, s.ts) for s in rowset.deltas if isinstance(s, DeltaFile))
        return Entry(rowset.id, rowset.base, rowset.base_ts, files, rowset.d)

    def edit(self, tablet: Tablet, put: list[RowSet], **fields: Any) -> None:
        """Append an edit; the caller has changed the view and holds the mutex (protocol E2)."""
        self.check_fence(racing=True)
        tablet.number += 1
        edit = Edit(tablet.number, self.epoch, put=tuple(self.entry(rowset) for rowset in put), **fields)
        if not self.rules.horizon_persisted:
            edit.h = 0
        for entry in edit.put:
            if self.environment.invariants and entry.d < tablet.recorded.get(entry.id, 0):
                raise Violation(f"N6: D of rowset {entry.id} goes back to {entry.d}")
            tablet.recorded[entry.id] = entry.d
        tablet.h = max(tablet.h, edit.h)
        tablet.i, tablet.g = max(tablet.i, edit.i), max(tablet.g, edit.g)
        tablet.mark = max([tablet.mark, edit.mark, edit.i, edit.g, *(entry.d for entry in edit.put)])
        tablet.dirty = True
        manifest = self.manifests[tablet.id]
        if manifest.edits[-1].epoch < self.epoch and not self.stale:
            self.rewrite_manifest(tablet)
        else:
            manifest.edits.append(edit)

    def rewrite_manifest(self, tablet: Tablet) -> None:
        """Under a new inode, synced and renamed: one edit with everything."""
        put = tuple(self.entry(rowset) for rowset in tablet.rowsets)
        h = tablet.h if self.rules.horizon_persisted else 0
        whole = Edit(tablet.number, self.epoch, put=put, i=tablet.i, g=tablet.g, h=h, mark=tablet.mark)
        self.manifests[tablet.id] = self.disk.manifests[tablet.id] = Manifest([whole], 1)

    def sync_manifest(self, tablet_id: int | None = None) -> None:
        """Protocol E3: the fsync of an edit, in a later step than its install."""
        if tablet_id is None:
            waiting = [i for i, m in self.manifests.items() if m.synced < len(m.edits)]
            if not waiting:
                return
            tablet_id = self.rng.choice(waiting)
        manifest = self.manifests[tablet_id]
        manifest.synced = len(manifest.edits)

    def edits_durable(self) -> bool:
        return all(manifest.synced == len(manifest.edits) for manifest in self.manifests.values())

    # -- writes --------------------------------------------------------------------------------------------

    def tablet_of(self, key: int) -> Tablet:
        partition = key % self.environment.partitions
        return next(t for t in self.tablets.values() if t.partition == partition and t.dropped_ts == FOREVER)

    def free_tablets(self) -> list[Tablet]:
        """Those whose mutex is free."""
        return [tablet for tablet in self.tablets.values() if tablet.holder is None]

    def write(self) -> None:
        """Protocol W1 to W7.  Sometimes another step comes between the record and its application."""
        count = min(self.environment.keys, self.rng.choice((1, 1, 2, 3)))
        keys = self.rng.sample(range(self.environment.keys), count)
        homes = {key: self.tablet_of(key) for key in keys}
        if any(tablet.holder for tablet in homes.values()):
            return
        token = self.choose_token()
        if token and self.tokens.get(token[0], (0, 0))[0] >= token[1]:
            answers.rest(self, self.tokens[token[0]][1])  # applied already: the stored result
            return
        parts: dict[int, dict[int, tuple[str, Any]]] = {}
        for key, tablet in homes.items():
            change = self.decide(tablet, key)
            if change is not None:
                parts.setdefault(tablet.id, {})[key] = change
        if not parts:
            answers.refuse(self, homes.values())
            return
        record = self.append("WRITE", parts=parts, token=token)
        self.note("write", record.ts, parts)
        self.tickets.append(record.ts)
        self.in_flight[record.ts] = set(parts)
        for tablet_id in parts:
            self.tablets[tablet_id].holder = record
        if token:
            self.tokens[token[0]] = (token[1], record.ts)
        if self.rng.random() < 0.8:
            for tablet_id in parts:
                self.apply_held(self.tablets[tablet_id])

    def choose_token(self) -> tuple[int, int] | None:
        """Mostly none; else the next version of an application, or one that a client tries again."""
        if self.rng.random() < 0.75:
            return None
        app = self.rng.randrange(APPS)
        return app, max(1, self.oracle.version(app) + self.rng.choice((1, 1, 0)))

    def decide(self, tablet: Tablet, key: int) -> tuple[str, Any] | None:
        """Protocol W3: one net change of a key, against the newest state."""
        store, _ = tablet.home(key)
        value = self.oracle.next_value()
        columns = range(self.environment.columns)
        if store is None:
            return None if self.rng.random() < 0.3 else ("I", (value,) * len(columns))
        if self.rng.random() < 0.7:
            chosen = self.rng.choice(((0,), (1,), (0, 1)))
            return "U", dict.fromkeys(chosen, value)
        if self.rng.random() < (0.6 if self.environment.delete_insert else 0.3):
            return "U", dict.fromkeys(columns, value)  # a delete and an insert of one batch
        return "D", None

    def apply_held(self, tablet: Tablet) -> None:
        """Protocol W6, W7 for one tablet of a WRITE."""
        record = tablet.holder
        assert record is not None
        for key, (op, value) in record.parts[tablet.id].items():
            if op == "I":
                tablet.insert(key, record.ts, value, into_frozen=self.rules.reinsert_into_frozen)
            else:
                tablet.change(tablet.home(key), key, record.ts, op, value)
        self.let_go(tablet)

    def let_go(self, tablet: Tablet) -> None:
        assert tablet.holder is not None
        waiting = self.in_flight[tablet.holder.ts]
        waiting.discard(tablet.id)
        if not waiting:
            del self.in_flight[tablet.holder.ts]
        tablet.holder = None

    def go_on(self) -> None:
        """A write or ALTER that stands between its record and its application goes on."""
        held = [t for t in self.tablets.values() if t.holder and t.holder.kind != "INGEST"]
        if held:
            tablet = self.rng.choice(held)
            assert tablet.holder is not None
            if tablet.holder.kind == "WRITE":
                self.apply_held(tablet)
            elif not self.pending:
                self.finish_alter(tablet.holder)

    # -- flush of a MemRowSet ------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Protocol F1."""
        candidates = [t for t in self.free_tablets() if len(t.frozen) < 2 and t.active.rows]
        if not candidates:
            return
        tablet = self.rng.choice(candidates)
        tablet.active.frozen_at = self.cut()
        tablet.active.keys_at_freeze = len(tablet.active.rows)
        tablet.frozen.append(tablet.active)
        tablet.active = MemRowSet()
        self.note("freeze", tablet.id, self.cut())

    def flush(self) -> None:
        """Protocol F2, then protocol F3."""
        candidates = [t for t in self.free_tablets() if t.frozen]
        if not candidates:
            return
        tablet = self.rng.choice(candidates)
        if tablet.flushing:
            self.install_flush(tablet)
        else:
            source = tablet.frozen[0] if self.rules.flush_in_order else self.rng.choice(tablet.frozen)
            assert source.frozen_at is not None
            horizon = self.horizon_of(tablet)
            histories = [
                (key, history.of_memory(source.rows[key], source.frozen_at)) for key in sorted(source.rows)
            ]
            tablet.flushing = FlushJob(source, *history.build(histories, horizon), horizon)
            self.note("flush: written", tablet.id, source.frozen_at, "horizon", horizon)

    def install_flush(self, tablet: Tablet) -> None:
        job = tablet.flushing
        assert job is not None and job.source.frozen_at is not None
        through = job.source.frozen_at
        if not self.durable_through(through):
            return
        if self.environment.invariants and len(job.source.rows) != job.source.keys_at_freeze:
            raise Violation("N8: the keys of a frozen MemRowSet have changed")
        tablet.flushing = None
        added = []
        if job.rows:
            deltas: list[DeltaFile | DeltaMemStore] = []
            if job.deletes:
                deltas.append(DeltaFile(self.disk.new_file(job.deletes), job.deletes))
            base = self.disk.new_file(job.rows)
            added.append(RowSet(self.disk.new_id(), base, None, job.rows, deltas, through))
        later = [
            (change[0], key, change)
            for key, row in job.source.rows.items()
            for change in row.chain
            if change[0] > through
        ]
        for _, key, change in sorted(later, key=lambda item: item[0]):
            added[0].active().changes.append(Change(job.rowids[key], *change))
        tablet.frozen.remove(job.source)
        tablet.rowsets += added
        self.note("flush: install", tablet.id, through, [rowset.id for rowset in added])
        self.edit(tablet, added, i=through, h=job.horizon)

    # -- delta flush ---------------------------------------------------------------------------------------

    def flush_deltas(self) -> None:
        """Protocol D1, then protocol D2 and D3."""
        candidates = [(t, r) for t in self.free_tablets() for r in t.rowsets if r.in_memory()]
        if not candidates:
            return
        tablet, rowset = self.rng.choice(candidates)
        if self.rules.merge_stops_flushes and any(job.rounds and rowset in job.inputs for job in tablet.jobs):
            return
        store = rowset.in_memory()[0]
        if store.frozen_at is None:
            store.frozen_at = self.cut()
            self.note("delta freeze", tablet.id, rowset.id, self.cut())
        elif self.durable_through(store.frozen_at):
            changes = tuple(store.changes)
            rowset.deltas[rowset.deltas.index(store)] = DeltaFile(self.disk.new_file(changes), changes)
            rowset.d = store.frozen_at
            self.note("delta flush", tablet.id, rowset.id, rowset.d)
            self.edit(tablet, [rowset])

    # -- truncation, deletion ------------------------------------------------------------------------------

    def write_table(self) -> None:
        """TABLE takes the tokens of the records through W."""
        newest = self.committed_ts if self.rules.table_at_most_w else self.applied_ts
        applied = min(newest, self.record_ts)
        tokens = dict(self.table.tokens)
        for record in self.retained:
            if record.token and self.table.applied_ts < record.ts <= applied:
                tokens[record.token[0]] = (record.token[1], record.ts)
        self.replace_table(applied_ts=max(applied, self.table.applied_ts), tokens=tokens)

    def truncate(self) -> None:
        """Protocol T1, T2: first the CHECKPOINT, in a later step what it makes superfluous."""
        if self.resting:
            self.drop_segments()
            return
        if self.rules.truncation_waits_for_edits and not self.edits_durable():
            return
        waiting = [t.holder.ts - 1 for t in self.tablets.values() if t.holder]
        waiting += [tablet.first_ts - 1 for tablet in self.tablets.values()]
        x = min([self.committed_ts, self.record_ts, *waiting])
        if self.rules.table_before_truncation and self.table.applied_ts < x:
            self.write_table()
            x = min(x, self.table.applied_ts)
        if x <= self.through:
            return
        numbers = {tablet_id: m.edits[m.synced - 1].number for tablet_id, m in self.manifests.items()}
        self.append("CHECKPOINT", through=x, numbers=numbers)
        self.sync_log()
        self.note("checkpoint", x)
        self.through = x
        for name, following in pairwise(self.names):
            header = self.disk.segments[following].header if following in self.disk.segments else None
            if header is not None and header.prev_ts <= x:
                self.resting.append(name)

    def drop_segments(self) -> None:
        self.check_fence(racing=True)
        names, self.resting = self.resting, []
        for name in names:
            if name in self.disk.segments:
                segment = self.disk.unlink_segment(name)
                if self.rng.random() < 0.7:
                    self.disk.spare.append(segment)
            self.names.remove(name)
        first = min((s.header.first_lsn for s in self.disk.segments.values() if s.header), default=0)
        self.retained = [record for record in self.retained if record.lsn >= first]
        self.note("segments dropped", names)

    def drop_later(self, tablet: Tablet, files: list[int]) -> None:
        self.deletable.append((tablet.id, tablet.number, files))

    def delete_files(self) -> None:
        """Protocol E4: at once what no reader saw named; of the rest some, as when their time has come."""
        unread, self.unread = self.unread, []
        for item in list(self.deletable):
            manifest = self.manifests.get(item[0])
            durable = manifest is None or manifest.edits[manifest.synced - 1].number >= item[1]
            if not durable and self.rules.deletion_waits_for_edit:
                continue
            if item not in unread and self.disk.readers == 0:
                self.unread.append(item)  # the answer; a reader may come before the deletion
            elif item in unread or item[1] % 2 == 0:
                self.check_fence(racing=True)
                self.deletable.remove(item)
                self.disk.delete(item[2], at_once=item in unread)

    # -- reads ---------------------------------------------------------------------------------------------

    def pin(self) -> None:
        """Protocol H1, and the end of an older pin."""
        if self.pins and self.rng.random() < 0.5:
            self.pins.pop(self.rng.randrange(len(self.pins)))
        elif self.lowest_read() <= self.committed_ts:
            self.pins.append(self.rng.randint(self.lowest_read(), self.committed_ts))

    def ask_ahead(self) -> None:
        """Protocol H1: a read at S in (V, wall clock]; answered once V covers every record <= S."""
        s = self.last_ts + self.rng.choice((1, 2, 4))
        if self.rules.read_ahead_raises:
            self.last_ts = s
        self.asked.append(s)
        self.note("read ahead", s)

    def answer_ahead(self) -> None:
        if self.asked and not self.pending and not self.in_flight:
            self.answered = max([self.answered, *self.asked])
            self.asked.clear()

    # -- schema and partitions -----------------------------------------------------------------------------

    def alter(self) -> None:
        """Protocol A1 and A3 for one case: a range is dropped and the same range added again."""
        if any(t.holder for t in self.tablets.values()):
            return
        if len(self.tablets) >= self.environment.partitions + 2:
            return
        old = self.tablet_of(self.rng.randrange(self.environment.keys))
        record = self.append("ALTER", replaced=(old.id, self.disk.new_id()))
        self.note("alter", record.ts, record.replaced)
        self.in_flight[record.ts] = set(self.tablets)
        for tablet in self.tablets.values():
            tablet.holder = record

    def finish_alter(self, record: Record) -> None:
        """The part of protocol A1 behind the record; replay repeats it."""
        old, new = record.replaced
        known = dict(self.table.tablets)
        if self.table.altered_ts < record.ts:
            self.disk.manifests[new] = self.manifests[new] = Manifest([Edit(1, self.epoch)], 1)
            known[old] = known[old]._replace(dropped_ts=record.ts)
            known[new] = TabletEntry(known[old].partition, record.ts, FOREVER)
            if not self.replaying:
                tokens, applied = dict(self.tokens), record.ts
            else:
                tokens, applied = self.table.tokens, self.table.applied_ts
            self.replace_table(tablets=known, altered_ts=record.ts, tokens=tokens, applied_ts=applied)
            self.tablets[old].dropped_ts = record.ts
            self.tablets[new] = Tablet(new, known[new].partition, record.ts, number=1)
        for tablet in self.tablets.values():
            if tablet.holder is record:
                self.let_go(tablet)
            tablet.dirty = True

    def purge(self) -> None:
        """Protocol H3."""
        for tablet in list(self.tablets.values()):
            if tablet.dropped_ts <= self.lowest_read() and tablet.holder is None:
                known = {
                    tablet_id: entry
                    for tablet_id, entry in self.table.tablets.items()
                    if tablet_id != tablet.id
                }
                floor = self.floor if self.rules.purge_persists_floor else self.table.floor
                self.replace_table(tablets=known, floor=max(floor, self.table.floor))
                gone = [file for rowset in tablet.rowsets for file in rowset.files()]
                del self.tablets[tablet.id], self.manifests[tablet.id]
                del self.disk.manifests[tablet.id]
                for other in self.tablets.values():
                    other.dirty = True
                for file in gone:
                    self.disk.files.pop(file, None)
                self.note("purge", tablet.id)


def names_of(part: IngestPart) -> set[int]:
    """The files that an INGEST record names in one tablet."""
    return set(part.deltas.values()) | ({part.base} if part.base is not None else set())
