"""What a report says of a table: plain values, which become JSON as they are.

Sizes are bytes, durations seconds.  A timestamp is a hybrid time (an integer, see README.md, "History"); None
stands for what is not known, and ``ReportData.unknown`` says why in words.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSetFacts:
    """One rowset on disk."""

    id: int
    rows: int
    low: float
    high: float
    """The shares of the tablet's data below its first and its last key, 0 to 1, as the policy of merges sees
    them: data, not keys, and inside of a rowset its bytes lie evenly."""
    lane: int
    """Rowsets with one number overlap nowhere; from 0."""
    first_key: str
    last_key: str
    """For people: cut where they are long."""
    bytes: int
    """Of all its files."""
    base_bytes: int
    redo_files: int
    redo_bytes: int
    redo_entries: int
    undo_files: int
    undo_bytes: int
    undo_entries: int
    memory_changes: int
    memory_bytes: int
    """Of its DeltaMemStores."""
    durable_ts: int
    newest_insert_ts: int
    droppable_rows: int
    """Rows whose deletion every readable snapshot sees, about."""
    stale_bytes: int
    """Of cells that stand anew elsewhere, or of dropped columns, about."""
    busy: bool
    """Whether a compaction of this process works on it."""
    chosen: bool
    """Whether the merge that the policy has chosen takes it."""

    @property
    def changed_share(self) -> float:
        """Changes newer than the base, for each row: 1 is one each."""
        return (self.redo_entries + self.memory_changes) / max(1, self.rows)

    @property
    def undo_share(self) -> float:
        """What older states take of its bytes."""
        return self.undo_bytes / max(1, self.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemRowSetFacts:
    """One MemRowSet that holds something."""

    rows: int
    changes: int
    bytes: int
    frozen_ts: int | None
    """None: it takes rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTablet:
    """One tablet.  Its numbers are those of ``Table.stats("tablet")``."""

    id: int
    partition: int
    place: int
    """Among all tablets, by the lower bound of its range, then by its hash buckets; from 0."""
    partition_text: str
    rowsets: list[RowSetFacts]
    """In the order of their first keys."""
    memrowsets: list[MemRowSetFacts]
    rows_stored: int
    memory_rows: int
    memory_bytes: int
    disk_bytes: int
    height: float
    """In how many rowsets a key has to be looked for, averaged over the data: Kudu's average height."""
    most_height: int
    """The most rowsets over one key."""
    redo_bytes: int
    undo_bytes: int
    changes: int
    """REDO entries in files, and changes in DeltaMemStores."""
    first_key: str | None
    last_key: str | None
    """Of what is in files."""
    created_ts: int
    dropped_ts: int | None

    @property
    def delta_share(self) -> float:
        """What delta files take of the bytes on disk."""
        return (self.redo_bytes + self.undo_bytes) / max(1, self.disk_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """One column; its bytes and nulls are those of ``Table.stats("column")``."""

    name: str
    type: str
    key: int | None
    """Its place in the key, from 1."""
    nullable: bool
    default: str | None
    encoding: str
    compression: str
    """As they were declared."""
    comment: str
    bytes: int
    nulls: int
    plain_bytes: int | None
    """What its cells would take side by side, in base files; of strings by the sampled pages."""
    plain_sampled: bool
    blocks: dict[str, int]
    """Mini-blocks by how they are encoded, of the sampled pages."""
    words: int | None
    """The most words of a dictionary in the sampled files; None: no dictionary there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBin:
    """What became of rows in a stretch of time."""

    start_us: int
    """Microseconds of UTC since 1970."""
    exact: int
    """Inserts and changes whose time is known."""
    spread: float
    """The share of files that say from when to when their changes are, taken to lie evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityFacts:
    """Inserts, updates and deletions over time, as far as what is stored tells."""

    bin_s: float
    bins: list[TimeBin]
    """Of equal length, the oldest first."""
    older: int
    """Changes from before the first of them, and from before the oldest readable state: merges leave no time
    of these."""
    unplaced_rows: int
    """Rows of which only is known that they are not newer than ``unplaced_until_ts``."""
    unplaced_until_ts: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryBin:
    """What older and newer states than the bases hold of a stretch of time."""

    start_us: int
    undo_entries: float
    redo_entries: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFacts:
    """Which past can be read, and what it takes."""

    now_us: int
    newest_ts: int
    oldest_ts: int
    """The oldest readable snapshot: Kudu's ancient history mark."""
    horizon_ts: int
    """How far back history may be dropped now: a collection moves ``oldest_ts`` there."""
    retention_s: float | None
    """None: for ever."""
    tags: dict[str, int]
    snapshots_pinned: int
    oldest_pin_ts: int | None
    """Of snapshots of this process, and of tags."""
    undo_bytes: int
    undo_entries: int
    redo_bytes: int
    redo_entries: int
    collectable_bytes: int
    """Of files that a collection of history would drop now."""
    bin_s: float
    bins: list[HistoryBin]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something that maintenance could do."""

    kind: str
    lane: str
    """"flush" or "compaction"."""
    tablet: int | None
    rowsets: list[int]
    reason: str
    """Why it is worth something, in words."""
    waits: str | None
    """Why the background does not do it now, in words; None: nothing keeps it."""
    is_next: bool
    """Whether its lane would take it first."""
    memory_bytes: int
    log_bytes: int
    freed_bytes: int
    cost_bytes: int
    due: float
    gain: float
    score: float
    """Gain for each GiB that is read and written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Performed:
    """Something that maintenance did: a row of ``Table.history()``."""

    finished_us: int
    operation: str
    tablet: int | None
    elapsed_s: float
    rows: int | None
    rowsets_read: int | None
    rowsets_written: int | None
    input_bytes: int | None
    output_bytes: int | None
    freed_bytes: int | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceFacts:
    """What maintenance did, and would do."""

    mode: str
    """The option: "background" or "manual"."""
    threads: int
    here: bool
    """Whether this handle does it; a reader only says what its writer could do, as far as files tell."""
    candidates: list[Candidate]
    """In the order in which each lane takes them; the first ones of many."""
    counts: dict[str, int]
    """All candidates by kind."""
    done: list[Performed]
    """The newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """Memory of this process for the table."""

    limit_bytes: int
    store_limit_bytes: int
    """What memory stores may take of it."""
    slow_bytes: int
    """From there on writers are slowed."""
    memrowset_bytes: int
    deltamemstore_bytes: int
    work_bytes: int
    """That flushes and merges under way hold."""
    cache_bytes: int
    cache_limit_bytes: int
    cache_pages: int
    cache_hits: int
    cache_misses: int
    throttled_count: int
    throttled_s: float
    flush_threshold_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """One file of the log."""

    name: str
    bytes: int
    """Of its records; of a reader, of the file."""
    newest_ts: int | None
    held_by: list[int]
    """Tablets whose oldest change in memory is in it; the first ones of many."""
    held_by_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """The log."""

    durability: str
    bytes: int | None
    """What a replay would read."""
    segments: list[SegmentFacts] | None
    committed_ts: int
    retained_since_ts: int | None
    """The oldest change that only memory and the log hold; None: there is none."""
    reader_lag_s: float | None
    """Of a reader: the age of its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """All that a report shows of a table, at one moment: see ``kudu_core.report``.

    >>> data = stock.report().data
    >>> data.tablets[0].rows_stored, [column.name for column in data.columns]
    (3, ['id', 'name', 'price'])
    """

    path: str
    uuid: str
    epoch: int
    """Of the writer: each one that opens the table begins the next."""
    mode: str
    """"rw" or "r"."""
    in_store: bool
    version: str
    """Of the package."""
    made_us: int
    """When: microseconds of UTC since 1970."""
    primary_key: list[str]
    schema_version: int
    partitioning: str
    options: dict[str, Any]
    """In force for the handle, numbers where None follows the machine."""
    options_changed: list[str]
    """Names of those that are not the package's default."""
    unreplayed: str | None
    columns: list[ColumnFacts]
    tablets: list[ReportedTablet]
    """Those that are there and those that have ended, in the order of their ids."""
    history: HistoryFacts
    activity: ActivityFacts
    maintenance: MaintenanceFacts
    memory: MemoryFacts
    log: LogFacts
    lost_files: int
    lost_bytes: int
    tokens: int
    metrics: dict[str, float]
    """``Table.metrics()``."""
    unknown: list[str] = field(default_factory=list)
    """What could not be known, and why."""

    def to_json(self) -> dict[str, Any]:
        """Dicts, lists, text and numbers, for ``json.dumps``.  Timestamps take more than 53 bits.

        >>> stock.report().data.to_json()["primary_key"]
        ['id']
        """
        return asdict(self)


__all__ = [
    "ActivityFacts",
    "Candidate",
    "ColumnFacts",
    "HistoryBin",
    "HistoryFacts",
    "LogFacts",
    "MaintenanceFacts",
    "MemRowSetFacts",
    "MemoryFacts",
    "Performed",
    "ReportData",
    "ReportedTablet",
    "RowSetFacts",
    "SegmentFacts",
    "TimeBin",
]
