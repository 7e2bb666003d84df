"""Opening for writing (protocol O1 to O7), and the replay of one record, which a reader shares."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.model import ingest
from tests.model.disk import Disk, LogTail, ManifestState, Record, Segment, TabletEntry, read_log
from tests.model.protocol import Writer, names_of
from tests.model.rules import Corruption, Rules, Violation
from tests.model.stores import DeltaFile, MemRowSet, RowSet, Tablet

if TYPE_CHECKING:
    import random

    from tests.model.oracle import Oracle
    from tests.model.rules import Environment


class Missing(Exception):
    """A manifest names a file that is not there."""


def open_table(
    disk: Disk, rules: Rules, environment: Environment, rng: random.Random, oracle: Oracle
) -> Writer | None:
    """A writer, or None when the process has died inside replay.  Raises Corruption."""
    disk.locked = True
    disk.table = replace(disk.table, epoch=disk.table.epoch + 1)  # protocol O1
    states = read_manifests(disk)
    if rules.orphans == "before_log":
        named = {file for state in states.values() for file in state.files()}
        disk.files = {file: content for file, content in disk.files.items() if file in named}
    tail = read_log(disk, rules)
    check_manifests(states, tail, rules)
    oracle.recovered(tail)
    writer = Writer(disk, rules, environment, rng, oracle)
    writer.epoch = disk.table.epoch
    adopt(writer, tail)
    for tablet_id, entry in disk.table.tablets.items():
        try:
            writer.tablets[tablet_id] = load(disk, tablet_id, entry, states[tablet_id])
        except Missing as missing:
            raise Violation(f"N11: {missing}") from missing
    check_n9(writer, tail)
    if rules.manifests_at_open == "rewritten":
        for tablet in writer.tablets.values():
            writer.rewrite_manifest(tablet)
    if rules.horizon_persisted:
        writer.floor = max([disk.table.floor, *(state.h for state in states.values())])
    writer.last_ts = max([tail.last_ts, *(state.mark for state in states.values())])  # protocol O4
    if not replay_all(writer, tail):
        return None
    # Protocol O7.
    keep = {file for t in writer.tablets.values() for rowset in t.rowsets for file in rowset.files()}
    for record in tail.records:
        if record.kind == "INGEST" and record.ts > tail.through:
            keep |= {file for part in record.parts.values() for file in names_of(part)}
    disk.files = {file: content for file, content in disk.files.items() if file in keep}
    return writer


def read_manifests(disk: Disk) -> dict[int, ManifestState]:
    """Protocol O2.  A tablet without a MANIFEST is empty (protocol A1)."""
    return {
        tablet_id: disk.manifests[tablet_id].state() if tablet_id in disk.manifests else ManifestState()
        for tablet_id in disk.table.tablets
    }


def check_manifests(states: dict[int, ManifestState], tail: LogTail, rules: Rules) -> None:
    """What manifests and log must say of one another (protocol O2, O3)."""
    if rules.edit_numbers:
        for tablet_id, number in tail.numbers.items():
            if tablet_id in states and states[tablet_id].number < number:
                raise Corruption(
                    f"the MANIFEST of {tablet_id} ends at {states[tablet_id].number}, below edit {number}"
                )
    mark = max((state.mark for state in states.values()), default=0)
    if rules.mark_checked and mark > max(tail.last_ts, tail.through):
        raise Corruption(f"the log ends at {tail.last_ts}, below the mark {mark}")


def check_n9(writer: Writer, tail: LogTail) -> None:
    if not writer.environment.invariants:
        return
    for record in tail.records:
        for tablet_id in record.parts if record.kind == "INGEST" else ():
            tablet = writer.tablets.get(tablet_id)
            if tablet and record.ts > tablet.g:
                if max([tablet.i, *(rowset.d for rowset in tablet.rowsets)]) >= record.ts:
                    raise Violation(f"N9: a watermark has passed the missing ingest at {record.ts}")


def load(disk: Disk, tablet_id: int, entry: TabletEntry, state: ManifestState) -> Tablet:
    """A tablet as its manifest tells it.  Raises Missing."""
    tablet = Tablet(tablet_id, *entry, i=state.i, g=state.g, h=state.h, mark=state.mark, number=state.number)
    for known in state.rowsets.values():
        for file in (known.base, *(file for file, _ in known.deltas)):
            if file not in disk.files:
                raise Missing(f"file {file}, named by the manifest of {tablet_id}, is gone")
        rows = disk.files[known.base]
        if known.base_ts is not None:
            rows = tuple(row._replace(insert_ts=known.base_ts) for row in rows)
        deltas: list[DeltaFile] = [
            DeltaFile(file, disk.files[file]) if ts is None else ingest.dated(file, disk.files[file], ts)
            for file, ts in known.deltas
        ]
        tablet.rowsets.append(RowSet(known.id, known.base, known.base_ts, rows, [*deltas], known.d))
        tablet.recorded[known.id] = known.d
    return tablet


def adopt(writer: Writer, tail: LogTail) -> None:
    """The end of protocol O3: the writer goes on in a segment of its own epoch, a copy of the last one.

    The copy gets its name when it is complete and synced; only then the old one goes.
    """
    disk = writer.disk
    disk.spare.clear()
    writer.retained = tail.records
    writer.next_lsn = writer.synced_lsn = tail.next_lsn
    writer.durable_ts, writer.through = tail.last_ts, tail.through
    for name in [name for name in disk.segments if name not in tail.chain]:
        disk.unlink_segment(name)
    if not tail.chain:
        return
    name = tail.chain[-1]
    writer.names = list(tail.chain)
    segment = disk.segments[name]
    assert segment.header is not None
    writer.segment_end = tail.next_lsn - segment.header.first_lsn
    if not writer.rules.tail_copied:
        segment.sync()
        writer.segment = segment
        return
    header = segment.header._replace(epoch=writer.epoch)
    slots: list[Record | None] = [None] * len(segment.slots)
    for slot in range(writer.segment_end):
        record = segment.slots[slot]
        assert record is not None
        slots[slot] = replace(record, epoch=writer.epoch)
    writer.segment = Segment(header, slots, header_synced=True)
    disk.segments[writer.epoch, header.seq] = writer.segment
    writer.names[-1] = (writer.epoch, header.seq)
    disk.sync_wal_directory()
    disk.unlink_segment(name)


def replay_all(writer: Writer, tail: LogTail) -> bool:
    """Protocol O5, with flushes and crashes between two records.  False: the process has died."""
    rng = writer.rng
    writer.replaying = True
    writer.tokens = dict(writer.table.tokens)
    writer.record_ts = tail.through
    for record in tail.records:
        if record.token and record.ts > writer.table.applied_ts:
            writer.tokens[record.token[0]] = (record.token[1], record.ts)
        if record.ts <= tail.through:
            continue
        writer.record_ts = record.ts
        if record.kind == "ALTER":
            writer.finish_alter(record)
        elif record.kind == "WRITE":
            replay_write(writer.tablets, record, writer.rules)
        elif record.kind == "INGEST":
            for tablet_id in record.parts:
                if tablet_id in writer.tablets:
                    tablet = writer.tablets[tablet_id]
                    if record.ts > tablet.g:
                        ingest.install_part(writer, tablet, record)
                    replay_by_key(tablet, record, writer.rules)
        if writer.environment.flush_in_replay:
            steps = (writer.freeze, writer.flush, writer.flush, writer.flush_deltas, writer.flush_deltas)
            while rng.random() < 0.25:
                rng.choice((*steps, writer.sync_manifest))()
        if rng.random() < 0.04:
            return False
    writer.record_ts = tail.last_ts
    writer.replaying = False
    return True


def replay_write(tablets: dict[int, Tablet], record: Record, rules: Rules) -> None:
    for tablet_id, part in record.parts.items():
        tablet = tablets.get(tablet_id)
        if tablet is None:
            continue  # purged
        for key, (op, value) in part.items():
            if op != "I":
                replay_change(tablet, key, record.ts, op, value, rules)
            elif record.ts > tablet.i:
                tablet.insert(key, record.ts, value, into_frozen=rules.reinsert_into_frozen)


def replay_by_key(tablet: Tablet, record: Record, rules: Rules) -> None:
    """The changes by key of an INGEST."""
    for key, (op, value) in record.parts[tablet.id].by_key.items():
        replay_change(tablet, key, record.ts, op, value, rules)


def replay_change(tablet: Tablet, key: int, ts: int, op: str, value: object, rules: Rules) -> None:
    home: tuple[MemRowSet | RowSet | None, int]
    if rules.replay_home == "newest_state_below_d":
        home = tablet.home(key, below=ts)
    elif rules.replay_home == "memory_first":
        home = memory_first(tablet, key, ts)
    else:
        home = tablet.home(key) if rules.replay_home == "any_live" else latest_inserted(tablet, key, ts)
        if isinstance(home[0], RowSet) and ts <= home[0].d:
            return
    if home[0] is not None:
        tablet.change(home, key, ts, op, value)
    elif ts > tablet.mark:
        raise Violation(f"N16: the change of {key} at {ts} has no home, mark {tablet.mark}")


def memory_first(tablet: Tablet, key: int, ts: int) -> tuple[MemRowSet | RowSet | None, int]:
    """A shortcut for protocol O5's rule."""
    if key in tablet.active.rows:
        return tablet.active, -1
    for rowset in tablet.rowsets:
        if key in rowset.index and ts > rowset.d:
            return rowset, rowset.index[key]
    return None, -1


def latest_inserted(tablet: Tablet, key: int, ts: int) -> tuple[MemRowSet | RowSet | None, int]:
    """A shortcut for protocol O5's rule."""
    found: list[tuple[int, MemRowSet | RowSet, int]] = []
    for rowset in tablet.rowsets:
        if key in rowset.index:
            rowid = rowset.index[key]
            found.append((rowset.rows[rowid].insert_ts, rowset, rowid))
    found += [(store.rows[key].insert_ts, store, -1) for store in tablet.memory() if key in store.rows]
    found = [item for item in found if item[0] <= ts]
    if not found:
        return None, -1
    _, store, rowid = max(found, key=lambda item: item[0])
    return store, rowid
