"""Which operation maintenance does next: a pure function from what is known of each to one of them.

Each thing that can be done is an ``Operation`` with what it would free and what it would gain.  What is
scarce comes first (log segments that cost nothing to drop, memory, the length of the log), then what is due
by size or age, then files that only have to be forgotten, then the best gain for what is read and written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kudu_core.tablet.maintain.merge_policy import DEAD, MergeChoice

FLUSH = "flush"
DELTA_FLUSH = "delta flush"
LOG_GC = "log gc"
MINOR = "minor"
MAJOR = "major"
MERGE = "merge"
HISTORY_GC = "history gc"

RANKS = FREE, MEMORY, LOG, DUE, FORGET, GAIN, IDLE = (
    "log that nothing needs", "memory", "log", "due", "files to forget", "gain", "nothing yet",
)  # fmt: skip
"""Why an operation is chosen, what comes first, first."""

MEMORY_FRACTION = 0.5
"""Of what memory stores may take: from there on the largest is flushed, due or not.  Writers are slowed
from there too, so that they stop for nothing."""

LOG_TARGET_BYTES = 256 << 20
"""Of log that a replay would read: from there on whatever keeps most of it is flushed."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Something that can be done to a tablet, and what for."""

    kind: str
    tablet_id: int
    rowsets: tuple[int, ...] = ()
    memory_bytes: int = 0
    """That it frees."""
    log_bytes: int = 0
    """Of log from its oldest change on, which cannot go before; of ``LOG_GC``: that it frees."""
    freed_bytes: int = 0
    """On disk, without reading any."""
    due: float = 0.0
    """Size or age by the option that limits it: 1 is due."""
    gain: float = 0.0
    """Work of reads that it saves, in rowsets: 1 is one rowset less over every key."""
    cost_bytes: int = 0
    """That it reads and writes."""
    merge: MergeChoice | None = None
    """What the policy has chosen, of a merge."""
    overlap_ns: int = 0
    """What looks into more than one rowset of the tablet have taken since its last merge, about."""

    @property
    def name(self) -> str:
        """What it is called where it is told that it failed."""
        if self.kind in (MINOR, MAJOR):
            return f"{self.kind} delta compaction"
        return f"{self.kind} compaction" if self.kind == MERGE else self.kind

    @property
    def frees_rows(self) -> bool:
        """A merge for the sake of rows and cells that nobody can see."""
        return self.merge is not None and self.merge.reason == DEAD

    @property
    def gain_per_byte(self) -> float:
        return self.gain / max(1, self.cost_bytes)


@dataclass(frozen=True, slots=True)
class Pressure:
    """What is scarce."""

    memory_bytes: int
    """Of memory stores, of what works on them, and of what a flush of them would hold."""
    memory_limit_bytes: int
    log_bytes: int
    """That a replay would read."""

    @property
    def on_memory(self) -> bool:
        return self.memory_bytes >= MEMORY_FRACTION * self.memory_limit_bytes

    @property
    def on_log(self) -> bool:
        return self.log_bytes >= LOG_TARGET_BYTES


def unless_merged(operations: Sequence[Operation]) -> list[Operation]:
    """Without the delta compactions of rowsets that a merge among the operations takes.

    For who does all of them: the merge writes these rowsets anew with their changes, so what a delta
    compaction wrote before would be read once.
    """
    taken = {(op.tablet_id, rowset) for op in operations if op.kind == MERGE for rowset in op.rowsets}
    return [
        op
        for op in operations
        if op.kind not in (MINOR, MAJOR) or taken.isdisjoint((op.tablet_id, rowset) for rowset in op.rowsets)
    ]


def choose(operations: Sequence[Operation], pressure: Pressure) -> Operation | None:
    """What to do next; None: nothing is worth it.  Of equals, the first."""
    free = [op for op in operations if op.kind == LOG_GC and op.log_bytes]
    if free:
        return free[0]
    if pressure.on_memory:
        holding = [op for op in operations if op.memory_bytes]
        if holding:
            return max(holding, key=lambda op: (op.memory_bytes, op.log_bytes))
    if pressure.on_log:
        keeping = [op for op in operations if op.log_bytes]
        if keeping:
            return max(keeping, key=lambda op: (op.log_bytes, op.memory_bytes))
    due = [op for op in operations if op.due >= 1]
    if due:
        return max(due, key=lambda op: op.due)
    forgotten = [op for op in operations if op.freed_bytes]
    if forgotten:
        return max(forgotten, key=lambda op: op.freed_bytes)
    gaining = [op for op in operations if op.gain > 0]
    return max(gaining, key=lambda op: op.gain_per_byte, default=None)


def rank(op: Operation, pressure: Pressure) -> tuple[str, float, float]:
    """Why ``choose`` would take an operation, one of ``RANKS``, and by what it is compared with others."""
    if op.kind == LOG_GC:
        return (FREE if op.log_bytes else IDLE), 0, 0
    if pressure.on_memory and op.memory_bytes:
        return MEMORY, op.memory_bytes, op.log_bytes
    if pressure.on_log and op.log_bytes:
        return LOG, op.log_bytes, op.memory_bytes
    if op.due >= 1:
        return DUE, op.due, 0
    if op.freed_bytes:
        return FORGET, op.freed_bytes, 0
    return (GAIN, op.gain_per_byte, 0) if op.gain > 0 else (IDLE, op.due, 0)


def in_order(operations: Sequence[Operation], pressure: Pressure) -> list[tuple[str, Operation]]:
    """All operations with their ranks, the one first that ``choose`` would take; those of ``IDLE`` it would
    not."""

    def place(ranked: tuple[tuple[str, float, float], Operation]) -> tuple[int, float, float]:
        (why, first, second), _ = ranked
        return RANKS.index(why), -first, -second

    found = sorted(((rank(op, pressure), op) for op in operations), key=place)
    return [(why, op) for (why, _, _), op in found]


__all__ = [
    "DELTA_FLUSH",
    "DUE",
    "FLUSH",
    "FORGET",
    "FREE",
    "GAIN",
    "HISTORY_GC",
    "IDLE",
    "LOG",
    "LOG_GC",
    "MAJOR",
    "MEMORY",
    "MERGE",
    "MINOR",
    "RANKS",
    "Operation",
    "Pressure",
    "choose",
    "in_order",
    "rank",
    "unless_merged",
]
