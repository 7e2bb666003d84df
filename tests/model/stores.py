"""Where rows live: MemRowSet, DeltaMemStore, DiskRowSet, and the view of a tablet.

Timestamps are small integers, an image is a tuple of one integer per column.  Nothing here knows the log,
manifests or what may run beside what.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.model.rules import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.disk import Record

Image = tuple[int, ...]
FOREVER = 1 << 60


class Change(NamedTuple):
    """A REDO change of one row of a rowset."""

    rowid: int
    ts: int
    op: str  # "U": value is {column: new value}; "D"
    value: dict[int, int] | None


class Undo(NamedTuple):
    """How a row was before ``ts``."""

    ts: int
    kind: str  # "update": value is {column: old value}; "absent"; "present": value is the image
    value: Any


class Row(NamedTuple):
    key: int
    insert_ts: int
    image: Image
    undo: tuple[Undo, ...]  # newest first


def updated(image: Image, values: dict[int, int]) -> Image:
    cells = list(image)
    for column, value in values.items():
        cells[column] = value
    return tuple(cells)


@dataclass(slots=True)
class MemRow:
    insert_ts: int
    image: Image
    chain: list[tuple[int, str, Any]] = field(default_factory=list)  # (ts, "U" | "D" | "R", value)

    def at(self, ts: int) -> Image | None:
        if self.insert_ts > ts:
            return None
        image, alive = self.image, True
        for when, op, value in self.chain:
            if when > ts:
                break
            if op == "U":
                image = updated(image, value)
            elif op == "D":
                alive = False
            else:
                image, alive = value, True
        return image if alive else None


@dataclass(slots=True, eq=False)
class MemRowSet:
    rows: dict[int, MemRow] = field(default_factory=dict)
    frozen_at: int | None = None
    keys_at_freeze: int = 0  # for protocol N8

    def at(self, key: int, ts: int) -> Image | None:
        row = self.rows.get(key)
        return None if row is None else row.at(ts)

    @property
    def first_ts(self) -> int:
        return min((row.insert_ts for row in self.rows.values()), default=FOREVER)


@dataclass(slots=True, eq=False)
class DeltaMemStore:
    changes: list[Change] = field(default_factory=list)
    frozen_at: int | None = None


@dataclass(slots=True, eq=False)
class DeltaFile:
    """A REDO file.  ``ts``: the time of all its changes, for a file of an ingest, which holds none itself."""

    file: int
    changes: tuple[Change, ...]
    ts: int | None = None


@dataclass(slots=True, eq=False)
class RowSet:
    """A DiskRowSet.  ``d``: its files hold every change of its rows <= d and none later."""

    id: int
    base: int
    base_ts: int | None
    rows: tuple[Row, ...]
    deltas: list[DeltaFile | DeltaMemStore]
    d: int
    index: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.index = {row.key: i for i, row in enumerate(self.rows)}

    def changes(self, above: int = -1, through: int = FOREVER) -> Iterator[Change]:
        for store in self.deltas:
            for change in store.changes:
                if above < change.ts <= through:
                    yield change

    def at(self, rowid: int, ts: int) -> Image | None:
        _, insert_ts, image, undo = self.rows[rowid]
        if insert_ts > ts:
            return None
        alive = True
        for when, kind, value in undo:
            if when <= ts:
                break
            if kind == "update":
                image = updated(image, value)
            elif kind == "absent":
                alive = False
            else:
                image, alive = value, True
        for store in self.deltas:
            for change in store.changes:
                if change.rowid == rowid and change.ts <= ts:
                    if change.op == "U":
                        image = updated(image, change.value or {})
                    else:
                        alive = False
        return image if alive else None

    def active(self) -> DeltaMemStore:
        """The store that takes changes: the last one, new if that is a file or frozen."""
        last = self.deltas[-1] if self.deltas else None
        if not isinstance(last, DeltaMemStore) or last.frozen_at is not None:
            last = DeltaMemStore()
            self.deltas.append(last)
        return last

    def in_memory(self) -> list[DeltaMemStore]:
        return [store for store in self.deltas if isinstance(store, DeltaMemStore)]

    def leading_files(self) -> int:
        """How many REDO files stand before the first store in memory."""
        for count, store in enumerate(self.deltas):
            if isinstance(store, DeltaMemStore):
                return count
        return len(self.deltas)

    def files(self) -> list[int]:
        return [self.base] + [store.file for store in self.deltas if isinstance(store, DeltaFile)]

    @property
    def first_ts(self) -> int:
        """The oldest change that is only in memory."""
        return min((c.ts for store in self.in_memory() for c in store.changes), default=FOREVER)


@dataclass(slots=True, eq=False)
class FlushJob:
    source: MemRowSet
    rows: tuple[Row, ...]
    deletes: tuple[Change, ...]
    rowids: dict[int, int]  # key -> rowid of the output
    horizon: int


@dataclass(slots=True, eq=False)
class Job:
    """A compaction between the writing of its outputs and its install."""

    kind: str  # "minor" | "major" | "merge"
    inputs: list[RowSet]
    horizon: int
    rows: tuple[Row, ...] = ()
    left: tuple[Change, ...] = ()  # REDO that stays: deletes, updates of other columns
    count: int = 0  # REDO files replaced, of minor and major
    rowids: dict[int, int] = field(default_factory=dict)  # merge: key -> rowid of the output
    caught: list[tuple[Change, ...]] = field(default_factory=list)  # merge: one REDO file per round
    rounds: int = 0
    q: int = 0


@dataclass(slots=True, eq=False)
class Tablet:
    id: int
    partition: int
    created_ts: int = 0
    dropped_ts: int = FOREVER
    active: MemRowSet = field(default_factory=MemRowSet)
    frozen: list[MemRowSet] = field(default_factory=list)  # oldest first
    rowsets: list[RowSet] = field(default_factory=list)
    i: int = 0
    g: int = 0
    h: int = 0
    mark: int = 0
    number: int = 0  # of the last edit
    recorded: dict[int, int] = field(default_factory=dict)  # rowset -> D in the last edit, for protocol N6
    holder: Record | None = None  # who holds the mutex between two steps
    flushing: FlushJob | None = None
    jobs: list[Job] = field(default_factory=list)
    dirty: bool = True  # changed since the oracle last looked

    def memory(self) -> list[MemRowSet]:
        return [self.active, *self.frozen]

    def copies(self, key: int, ts: int) -> list[Image]:
        """The image of ``key`` at ``ts`` in every store that holds it live: protocol N3 wants at most one."""
        found = [store.at(key, ts) for store in self.memory() if key in store.rows]
        found += [r.at(r.index[key], ts) for r in self.rowsets if key in r.index]
        return [image for image in found if image is not None]

    def home(self, key: int, below: int = FOREVER) -> tuple[MemRowSet | RowSet | None, int]:
        """The store where ``key`` is live in its newest state: in memory, or a rowset with D < below."""
        for store in self.memory():
            if store.at(key, FOREVER) is not None:
                return store, -1
        for rowset in self.rowsets:
            if rowset.d < below and key in rowset.index:
                rowid = rowset.index[key]
                if rowset.at(rowid, FOREVER) is not None:
                    return rowset, rowid
        return None, -1

    def insert(self, key: int, ts: int, image: Image, *, into_frozen: bool = False) -> None:
        """Protocol W6: a new entry of the active MemRowSet, or a REINSERT where the key is dead in it."""
        store = self.active
        if into_frozen:
            store = next((frozen for frozen in self.frozen if key in frozen.rows), store)
        if key not in store.rows:
            store.rows[key] = MemRow(ts, image)
        elif store.at(key, FOREVER) is not None:
            raise Violation(f"O5: insert of the live key {key} at {ts}")
        else:
            store.rows[key].chain.append((ts, "R", image))
        self.dirty = True

    def change(
        self, home: tuple[MemRowSet | RowSet | None, int], key: int, ts: int, op: str, value: Any
    ) -> None:
        """Protocol W6: an UPDATE or DELETE goes to the store where the key is live."""
        store, rowid = home
        if store is None:
            raise Violation(f"W6: the change of {key} at {ts} has no home")
        if isinstance(store, MemRowSet):
            store.rows[key].chain.append((ts, op, value))
        else:
            store.active().changes.append(Change(rowid, ts, op, value))
        self.dirty = True

    def claimed(self) -> set[int]:
        return {rowset.id for job in self.jobs for rowset in job.inputs}

    @property
    def first_ts(self) -> int:
        """The oldest entry that is only in memory."""
        return min(
            [store.first_ts for store in self.memory()] + [rowset.first_ts for rowset in self.rowsets],
            default=FOREVER,
        )
