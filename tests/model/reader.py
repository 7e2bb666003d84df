"""A process that reads while another one writes, or nobody does (protocol R1 to R3).  It changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model import recovery
from tests.model.disk import Disk, Header, ManifestState, Record, Segment, TableFile
from tests.model.rules import Rules, Violation
from tests.model.stores import Tablet

if TYPE_CHECKING:
    import random

    from tests.model.oracle import Oracle


class Reader:
    """An open in steps; whatever happens meanwhile, what it accepts is the writer's state (protocol N13)."""

    def __init__(self, disk: Disk, rules: Rules, rng: random.Random, oracle: Oracle) -> None:
        self.disk, self.rules, self.rng, self.oracle = disk, rules, rng, oracle
        self.handles: list[tuple[Header, Segment]] | None = None
        self.before = disk.table
        self.table: TableFile | None = None
        self.states: dict[int, ManifestState] = {}
        self.tablets: dict[int, Tablet] = {}
        self.locked = False
        self.outcome = ""  # "accepted" or "again" once it is over

    def step(self) -> None:
        if self.rules.reader_locks_first:
            self.lock()
        if self.handles is None and self.rules.reader_log_first:
            self.before = self.disk.table
            self.handles = self.open_segments(-1)
        elif self.table is None:
            self.table = self.disk.table
            if self.rules.reader_table_before_log and self.table is not self.before:
                self.outcome = "again"
        elif len(self.states) < len(self.table.tablets):
            self.read_manifest(self.table)
        elif len(self.tablets) < len(self.table.tablets):
            self.lock()
            self.open_files(self.table)
        elif self.disk.table is not self.table and self.rules.reader_log_first:
            self.outcome = "again"
        else:
            self.finish(self.table)
        if self.outcome and self.locked:
            self.disk.readers = max(0, self.disk.readers - 1)

    def lock(self) -> None:
        """A shared lock, which goes with the reader."""
        if not self.locked:
            self.locked = True
            self.disk.readers += 1

    def open_segments(self, after: int) -> list[tuple[Header, Segment]]:
        """Every segment behind seq ``after`` that the directory lists and whose header is its name's."""
        found = {}
        for name, segment in sorted(self.disk.segments.items()):
            if name[1] > after and segment.header is not None and segment.header[:2] == name:
                found[name[1]] = (segment.header, segment)
        return [found[seq] for seq in sorted(found)]

    def read_manifest(self, table: TableFile) -> None:
        unread = [tablet_id for tablet_id in table.tablets if tablet_id not in self.states]
        tablet_id = self.rng.choice(unread)
        if tablet_id not in self.disk.manifests:
            self.outcome = "again"
            return
        self.states[tablet_id] = self.disk.manifests[tablet_id].state()

    def open_files(self, table: TableFile) -> None:
        """Those of a tablet.  What is missing went by an open (protocol O7), or when its time had passed."""
        tablet_id = next(tablet_id for tablet_id in table.tablets if tablet_id not in self.tablets)
        state = self.states[tablet_id]
        gone = state.files() & self.disk.deleted_at_once
        if gone:
            raise Violation(f"E4: deleted at once while a reader needs them: {sorted(gone)}")
        try:
            self.tablets[tablet_id] = recovery.load(self.disk, tablet_id, table.tablets[tablet_id], state)
        except recovery.Missing:
            self.outcome = "again"

    def finish(self, table: TableFile) -> None:
        """The log to its end, W_r, replay."""
        handles = self.handles or []
        handles += self.open_segments(handles[-1][0].seq if handles else -1)
        if not self.disk.locked and handles and self.rules.offline_reader_syncs:
            handles[-1][1].sync()  # fsync needs no right to write
        records, first_prev_ts = self.read_records(handles)
        through = max((record.through for record in records), default=0)
        recycled = any(segment.header != header for header, segment in handles)
        if recycled or (first_prev_ts > through and self.rules.reader_log_first):
            self.outcome = "again"
            return
        w = records[-1].ts if records else first_prev_ts
        if self.disk.locked:
            w = min(w, self.disk.committed[-1][0])
        for record in records:
            if record.kind == "INGEST":
                parts = [self.tablets.get(tablet_id) for tablet_id in record.parts]
                if any(tablet is not None and record.ts > tablet.g for tablet in parts):
                    w = min(w, record.ts - 1)
                    break
            elif record.kind == "ALTER" and record.ts > table.altered_ts:
                old, new = record.replaced
                self.tablets[old].dropped_ts = record.ts
                self.tablets[new] = Tablet(new, self.tablets[old].partition, record.ts)
        horizon = max([table.floor, *(tablet.h for tablet in self.tablets.values())])
        if w < horizon:
            self.outcome = "again"
            return
        # All of them: a CHECKPOINT that was read after the manifests says nothing about those manifests.
        above = through if self.rules.reader_skips_through else 0
        for record in records:
            if above < record.ts <= w:
                self.replay(record)
        self.outcome = "accepted"
        self.oracle.verify(self.tablets, horizon, w, "N13: another process")
        self.oracle.seen = max(self.oracle.seen, w)

    def replay(self, record: Record) -> None:
        if record.kind == "WRITE":
            recovery.replay_write(self.tablets, record, self.rules)
        elif record.kind == "INGEST":
            for tablet_id in record.parts:
                if tablet_id in self.tablets:
                    recovery.replay_by_key(self.tablets[tablet_id], record, self.rules)

    def read_records(self, handles: list[tuple[Header, Segment]]) -> tuple[list[Record], int]:
        """The records through the last contiguous one, and the time before the first."""
        records: list[Record] = []
        expected = handles[0][0].first_lsn if handles else 0
        for header, segment in handles:
            if header.first_lsn != expected:
                break
            for slot in range(len(segment.slots)):
                record = segment.valid(slot, self.rules)
                if record is None:
                    return records, handles[0][0].prev_ts
                records.append(record)
                expected = record.lsn + 1
        return records, handles[0][0].prev_ts if handles else 0
