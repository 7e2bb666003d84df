"""What is on disk, and what a power cut may take of it: TABLE, log segments, COMMITTED, manifests, files.

Every object says what of it is synced.  A kill loses nothing; a power cut loses any part of what is not
synced, each object for itself.  A file of rows or changes is synced before anything names it, so files are
only ever complete.  Nothing here knows when a writer syncs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.model.rules import Corruption, Rules, Violation

if TYPE_CHECKING:
    import random

Token = tuple[int, int]  # (app_id, version)


@dataclass(slots=True, eq=False)
class Record:
    """One log record.  ``epoch``, ``seq`` and ``lsn`` are under its CRC."""

    epoch: int
    seq: int
    lsn: int
    ts: int
    kind: str  # WRITE, INGEST, ALTER, CHECKPOINT
    synced_lsn: int  # lsns below it were durable when this record was written
    parts: dict[int, Any] = field(default_factory=dict)  # tablet -> {key: (op, value)} or IngestPart
    token: Token | None = None
    through: int = 0  # CHECKPOINT
    numbers: dict[int, int] = field(default_factory=dict)  # CHECKPOINT: last durable edit per tablet
    replaced: tuple[int, int] = (-1, -1)  # ALTER: this tablet is dropped, that one is added in its place


@dataclass(slots=True, eq=False)
class IngestPart:
    """What an INGEST record says of one tablet.  The files carry no times: the record's is theirs."""

    rowset: int | None
    base: int | None
    deltas: dict[int, int]  # rowset -> file
    by_key: dict[int, tuple[str, Any]]
    all_keys: dict[int, tuple[str, Any]]  # for the oracle


class Header(NamedTuple):
    epoch: int
    seq: int
    first_lsn: int
    prev_ts: int


@dataclass(slots=True, eq=False)
class Segment:
    """``before`` holds, for what is not synced, what a power cut may bring back."""

    header: Header | None
    slots: list[Record | None]
    before: dict[int, Record | None] = field(default_factory=dict)
    header_before: Header | None = None
    header_synced: bool = False

    def put(self, slot: int, record: Record) -> None:
        self.before.setdefault(slot, self.slots[slot])
        self.slots[slot] = record

    def sync(self) -> None:
        self.before.clear()
        self.header_synced = True

    def power_cut(self, rng: random.Random) -> None:
        """Sectors reach the disk in any order: the un-synced records survive as a prefix or with holes."""
        holes = rng.random() < 0.5
        kept = rng.randint(0, len(self.before))
        for i, slot in enumerate(sorted(self.before)):
            if rng.random() < 0.5 if holes else i >= kept:
                self.slots[slot] = self.before[slot]
        self.before.clear()
        if not self.header_synced and rng.random() < 0.5:
            self.header = self.header_before
        self.header_synced = True

    def valid(self, slot: int, rules: Rules) -> Record | None:
        """The record in ``slot`` if its CRC is right and it belongs to this life of the segment."""
        record = self.slots[slot]
        if record is None or self.header is None:
            return None
        mine = (self.header.epoch, self.header.seq, self.header.first_lsn + slot)
        if rules.segment_under_crc and (record.epoch, record.seq, record.lsn) != mine:
            return None
        return record


class Entry(NamedTuple):
    """A rowset as an edit names it.  A time beside a file is that of an ingest."""

    id: int
    base: int
    base_ts: int | None
    deltas: tuple[tuple[int, int | None], ...]
    d: int


@dataclass(slots=True, eq=False)
class Edit:
    number: int
    epoch: int
    remove: tuple[int, ...] = ()
    put: tuple[Entry, ...] = ()  # added, or known ones with other files
    i: int = 0
    g: int = 0
    h: int = 0
    mark: int = 0


@dataclass(slots=True, eq=False)
class ManifestState:
    """The fold of a manifest's edits."""

    rowsets: dict[int, Entry] = field(default_factory=dict)
    i: int = 0
    g: int = 0
    h: int = 0
    mark: int = 0
    number: int = 0
    epoch: int = 0

    def add(self, edit: Edit) -> None:
        if edit.epoch < self.epoch:
            return  # protocol O2: a stale writer's
        if edit.number != self.number + 1 and self.number:
            raise Violation(f"O2: edit {edit.number} follows {self.number}")
        for removed in edit.remove:
            del self.rowsets[removed]
        for entry in edit.put:
            self.rowsets[entry.id] = entry
        self.i, self.g, self.h = max(self.i, edit.i), max(self.g, edit.g), max(self.h, edit.h)
        self.mark = max([self.mark, edit.mark, self.i, self.g, *(entry.d for entry in edit.put)])
        self.number, self.epoch = edit.number, edit.epoch

    def files(self) -> set[int]:
        return {f for e in self.rowsets.values() for f in (e.base, *(d[0] for d in e.deltas))}


@dataclass(slots=True, eq=False)
class Manifest:
    """One inode: rewriting makes a new one, so a stale writer edits a file that nobody reads."""

    edits: list[Edit]
    synced: int

    def state(self) -> ManifestState:
        state = ManifestState()
        for edit in self.edits:
            state.add(edit)
        return state

    def power_cut(self, rng: random.Random) -> None:
        del self.edits[rng.randint(self.synced, len(self.edits)) :]
        self.synced = len(self.edits)


class TabletEntry(NamedTuple):
    partition: int
    created_ts: int
    dropped_ts: int


@dataclass(frozen=True, slots=True, eq=False)
class TableFile:
    """TABLE.  Replaced whole and synced, so every object is one inode."""

    epoch: int
    tablets: dict[int, TabletEntry]
    tokens: dict[int, tuple[int, int]]  # app_id -> (version, ts)
    applied_ts: int = 0
    altered_ts: int = 0  # the last ALTER in it
    clean_end: int = 0
    floor: int = 0  # decision 0001


@dataclass(slots=True, eq=False)
class Disk:
    table: TableFile
    segments: dict[tuple[int, int], Segment] = field(default_factory=dict)  # name: (epoch, seq)
    unlinked: dict[tuple[int, int], Segment] = field(default_factory=dict)  # a power cut may undo it
    spare: list[Segment] = field(default_factory=list)  # to be recycled
    committed: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])  # (W, lsn); never synced
    manifests: dict[int, Manifest] = field(default_factory=dict)
    files: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    next_file: int = 0  # stands for (epoch, n): never used twice
    locked: bool = False  # whether somebody holds the lease
    readers: int = 0  # how many hold a shared lock on LOCK (protocol R1)
    deleted_at_once: set[int] = field(default_factory=set)  # as nobody held one (protocol E4)

    def new_id(self) -> int:
        self.next_file += 1
        return self.next_file

    def new_file(self, content: tuple[Any, ...]) -> int:
        name = self.new_id()
        self.files[name] = content
        return name

    def delete(self, files: list[int], at_once: bool) -> None:
        for file in files:
            self.files.pop(file, None)
        self.deleted_at_once.update(files if at_once else ())

    def unlink_segment(self, name: tuple[int, int]) -> Segment:
        self.unlinked[name] = segment = self.segments.pop(name)
        return segment

    def sync_wal_directory(self) -> None:
        self.unlinked.clear()

    def power_cut(self, rng: random.Random) -> None:
        for name, segment in self.unlinked.items():
            if name not in self.segments and rng.random() < 0.5:
                self.segments[name] = segment
        self.unlinked.clear()
        self.spare.clear()
        for segment in self.segments.values():
            segment.power_cut(rng)
        for manifest in self.manifests.values():
            manifest.power_cut(rng)
        self.committed = [rng.choice(self.committed[-3:])]
        self.readers = 0

    def copy(self) -> Disk:
        """For trying what an open would say of damage: its segments and manifests may be changed."""
        return replace(
            self,
            segments={name: replace(s, slots=list(s.slots)) for name, s in self.segments.items()},
            manifests={tablet: replace(m, edits=list(m.edits)) for tablet, m in self.manifests.items()},
            committed=list(self.committed),
        )


@dataclass(slots=True, eq=False)
class LogTail:
    """What an open finds in the log."""

    records: list[Record]
    through: int
    numbers: dict[int, int]
    prev_ts: int  # of the last record before the first segment
    last_ts: int
    next_lsn: int
    chain: list[tuple[int, int]]  # names of the segments that hold it, the last one last


def read_log(disk: Disk, rules: Rules, *, trust_committed: bool = True) -> LogTail:
    """Protocol O3.  Raises Corruption where something is missing that was durable."""
    chain = _chain(disk, rules)
    records: list[Record] = []
    evidence = max(disk.table.clean_end, disk.committed[-1][1] if trust_committed else 0)
    next_lsn = bad = 0
    for name in chain:
        segment = disk.segments[name]
        header = segment.header
        assert header is not None
        bad = next_lsn = header.first_lsn
        later: list[Record] = []
        ended = False
        for slot in range(len(segment.slots)):
            record = segment.valid(slot, rules)
            if record is None:
                ended = True
            elif ended:
                later.append(record)
            else:
                records.append(record)
                bad = next_lsn = header.first_lsn + slot + 1
        if ended and name != chain[-1]:
            raise Corruption(f"a bad record at {bad}, before the last segment")
        if later and rules.torn_tail == "any_valid_after":
            raise Corruption(f"a valid record after the bad one at {bad}")
        evidence = max([evidence, *(record.synced_lsn for record in later)])
    if evidence > next_lsn:
        raise Corruption(f"the log ends at {next_lsn}, but was durable through {evidence}")
    through, numbers = 0, {}
    for record in records:
        if record.kind == "CHECKPOINT":
            through, numbers = record.through, record.numbers
    prev = disk.segments[chain[0]].header if chain else None
    prev_ts = prev.prev_ts if prev else 0
    if prev_ts > through:
        raise Corruption(f"records in ({through}, {prev_ts}] are missing")
    last_ts = records[-1].ts if records else prev_ts
    return LogTail(records, through, numbers, prev_ts, last_ts, next_lsn, chain)


def _chain(disk: Disk, rules: Rules) -> list[tuple[int, int]]:
    """The names of the contiguous segments that end with the last one.

    A name whose header says another life does not count.  Of one seq, the larger epoch is the copy that an
    open has finished; a segment of a smaller epoch behind a larger one is a stale writer's.  Segments before
    the chain are leftovers whose removal a power cut has undone; that nothing between is missing is seen
    by the first one's prev_ts.
    """
    by_seq: dict[int, tuple[int, int]] = {}
    for name, segment in sorted(disk.segments.items(), reverse=not rules.larger_epoch_wins):
        if segment.header is not None and segment.header[:2] == name:
            by_seq[name[1]] = name
    names: list[tuple[int, int]] = []
    for seq in sorted(by_seq):
        if not names or by_seq[seq][0] >= names[-1][0]:
            names.append(by_seq[seq])
    chain = names[-1:]
    for name in reversed(names[:-1]):
        segment, following = disk.segments[name], disk.segments[chain[0]]
        assert segment.header is not None and following.header is not None
        contiguous = name[1] + 1 == chain[0][1]
        if not contiguous or segment.header.first_lsn + len(segment.slots) != following.header.first_lsn:
            break
        chain.insert(0, name)
    return chain
