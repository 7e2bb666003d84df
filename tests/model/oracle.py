"""What must be true: the state at every time by folding the records, and the invariants."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.model.rules import APPS, Environment, Violation
from tests.model.stores import FOREVER, DeltaFile, Image, RowSet, Tablet, updated

if TYPE_CHECKING:
    from tests.model.disk import LogTail, Record
    from tests.model.protocol import Writer

State = tuple[Image | None, ...]  # by key


class Oracle:
    """Knows every record that counts, also those that the log no longer holds."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.partitions = {p: p for p in range(environment.partitions)}  # tablet -> partition
        self.records: list[Record] = []
        self.times = [0]
        self.states: list[State] = [(None,) * environment.keys]
        self.promised = 0  # acknowledged: no crash may take it back
        self.seen = 0  # shown to a reader in another process: no crash may take it back
        self.value = 0

    def next_value(self) -> int:
        self.value += 1
        return self.value

    # -- the log -------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        state = list(self.states[-1])
        if record.kind == "ALTER":
            old = record.replaced[0]
            for key in range(self.environment.keys):
                if key % self.environment.partitions == self.partitions[old]:
                    state[key] = None
            self.partitions[record.replaced[1]] = self.partitions[old]
        for part in record.parts.values():
            for key, (op, value) in (part if record.kind == "WRITE" else part.all_keys).items():
                before = state[key]
                if op == "U":
                    assert before is not None
                    state[key] = updated(before, value)
                else:
                    state[key] = value
        self.records.append(record)
        self.times.append(record.ts)
        self.states.append(tuple(state))

    def promise(self, ts: int) -> None:
        self.promised = max(self.promised, ts)

    def version(self, app: int) -> int:
        """The largest version of an application that a surviving record carries."""
        return max((r.token[1] for r in self.records if r.token and r.token[0] == app), default=0)

    def recovered(self, tail: LogTail) -> None:
        """What an open has read must be what was written, through the last acknowledged record."""
        if tail.last_ts < self.promised:
            raise Violation(f"N17: acknowledged through {self.promised}, opened through {tail.last_ts}")
        if tail.last_ts < self.seen:
            raise Violation(f"L3: another process has read at {self.seen}, opened through {tail.last_ts}")
        times = [record.ts for record in tail.records]
        if any(a >= b for a, b in pairwise(times)):
            raise Violation(f"N1: the log's times do not increase: {times}")
        count = bisect_right(self.times, tail.last_ts)
        del self.records[count - 1 :], self.times[count:], self.states[count:]
        read = [record for record in tail.records if record.kind != "CHECKPOINT"]
        written = self.records[bisect_right(self.times, tail.prev_ts) - 1 :]
        if [(r.ts, id(r.parts)) for r in read] != [(r.ts, id(r.parts)) for r in written]:
            raise Violation(f"N1: the log holds {[r.ts for r in read]}, not {[r.ts for r in written]}")

    # -- states --------------------------------------------------------------------------------------------

    def verify(self, tablets: dict[int, Tablet], low: int, high: int, who: str) -> None:
        """Every state in [low, high]: protocol N3, N12, N13.  Only partitions changed since the last look."""
        if low > high:
            return
        first = bisect_right(self.times, low) - 1
        last = bisect_right(self.times, high)
        for partition in range(self.environment.partitions):
            mine = [tablet for tablet in tablets.values() if tablet.partition == partition]
            if not any(tablet.dirty for tablet in mine):
                continue
            for n in range(first, last):
                ts = max(self.times[n], low)
                tablet = next((t for t in mine if t.created_ts <= ts < t.dropped_ts), None)
                for key in range(partition, self.environment.keys, self.environment.partitions):
                    found = tablet.copies(key, ts) if tablet else []
                    if len(found) > 1:
                        raise Violation(f"N3: {who} finds {found} for {key} at {ts}")
                    if (found[0] if found else None) != self.states[n][key]:
                        at = f"at {ts} of [{low}, {high}]"
                        raise Violation(f"N3: {who} finds {found} for {key} {at}, not {self.states[n][key]}")

    def check(self, writer: Writer) -> None:
        """After every step of a writer that is not stale."""
        self.verify(writer.tablets, writer.lowest_read(), writer.applied_ts, "the writer")
        for app in range(APPS):
            known = writer.tokens.get(app, (0, 0))[0]
            if known != self.version(app):
                raise Violation(f"W1: token of {app} is {known}, not {self.version(app)}")
        if self.environment.invariants:
            check_watermarks(writer)
            for tablet in writer.tablets.values():
                if tablet.dirty:
                    for rowset in tablet.rowsets:
                        check_rowset(writer, rowset)
                if tablet.first_ts <= writer.through:
                    raise Violation(f"N4: memory holds {tablet.first_ts}, the log begins at {writer.through}")
        for tablet in writer.tablets.values():
            tablet.dirty = False


def check_watermarks(writer: Writer) -> None:
    if writer.committed_ts > writer.applied_ts:
        raise Violation("N10: W > A")
    if writer.floor > writer.committed_ts:
        raise Violation(f"N10: floor {writer.floor} > W {writer.committed_ts}")
    if any(pin < writer.floor for pin in writer.pins):
        raise Violation(f"N10: floor {writer.floor} above a pin")
    for tablet in writer.tablets.values():
        if tablet.mark > writer.durable_ts:
            raise Violation(f"N5: an edit names {tablet.mark}, the log is durable to {writer.durable_ts}")


def check_rowset(writer: Writer, rowset: RowSet) -> None:
    files = [store for store in rowset.deltas if isinstance(store, DeltaFile)]
    newest = max([c.ts for store in files for c in store.changes] + [row.insert_ts for row in rowset.rows])
    if newest > rowset.d:
        raise Violation(f"N2: a file of rowset {rowset.id} holds {newest}, D is {rowset.d}")
    if rowset.first_ts <= rowset.d:
        raise Violation(f"N2: only memory holds {rowset.first_ts} of rowset {rowset.id}, D is {rowset.d}")
    last: dict[int, int] = {}
    for change in rowset.changes():
        if change.ts <= last.get(change.rowid, -1):
            raise Violation(f"N7: REDO of rowset {rowset.id} is out of order at {change.ts}")
        last[change.rowid] = change.ts
    for row in rowset.rows:
        # Per column: two major compactions may fold two columns of one update one after the other.
        below: dict[int, int] = {}
        for undo in row.undo:
            for column in undo.value if undo.kind == "update" else range(writer.environment.columns):
                if undo.ts >= below.get(column, FOREVER):
                    raise Violation(f"N7: UNDO of rowset {rowset.id} is out of order at {undo.ts}")
                below[column] = undo.ts
    for file in rowset.files():
        if file not in writer.disk.files:
            raise Violation(f"N11: file {file} of rowset {rowset.id} is gone")
