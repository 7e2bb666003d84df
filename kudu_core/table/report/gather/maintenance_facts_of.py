"""Maintenance: what it did, and what it could do, in its own order and with its own reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kudu_core.common.run.clock import micros_of
from kudu_core.page.figures import in_bytes, in_seconds, in_share
from kudu_core.page.report_data import Candidate, MaintenanceFacts, Performed
from kudu_core.tablet.maintain import scoring
from kudu_core.tablet.maintain.compaction_lane import NO_PRESSURE
from kudu_core.tablet.maintain.merge_policy import DEAD, OVERLAP
from kudu_core.tablet.maintain.merge_timing import HIGH, IDLE_S, MERGE_NS_PER_BYTE, is_due
from kudu_core.tablet.maintain.operations import KeptLog, Merges, compaction_operations, flush_operations
from kudu_core.tablet.maintain.scoring import Operation, Pressure

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine

CANDIDATES = 200
"""That are told one by one, of each lane."""
DONE = 200
_GIB = 1 << 30


def operations_of(engine: Engine, horizon: int) -> tuple[list[Operation], list[Operation]]:
    """What the flush lane and the compaction lane could do; of a reader, what its writer's could as far as
    files and the log tell."""
    if engine.maintenance is not None and engine.compactions is not None:
        return engine.maintenance.candidates(), engine.compactions.candidates()
    now_us, now_s = engine.clock.now_us(), engine.clock.monotonic_s()
    flushes: list[Operation] = []
    compactions: list[Operation] = []
    merges = Merges()
    for tablet in engine.tablets:
        flushes += flush_operations(tablet, engine.options, now_us, KeptLog(()))
        compactions += compaction_operations(tablet, engine.options, merges, horizon, now_s, ())
    return flushes, compactions


def maintenance_facts(
    engine: Engine, flushes: Sequence[Operation], compactions: Sequence[Operation]
) -> MaintenanceFacts:
    pressure = engine.memory.pressure(engine.log.replay_bytes) if engine.writer else NO_PRESSURE
    told = [
        *_told(engine, "flush", flushes, pressure),
        *_told(engine, "compaction", compactions, NO_PRESSURE),
    ]
    done = engine.journal.table().to_pylist()[: -DONE - 1 : -1]
    return MaintenanceFacts(
        mode=engine.options.maintenance,
        threads=engine.options.maintenance_threads,
        here=engine.writer,
        candidates=told,
        counts=dict(Counter(op.kind for op in (*flushes, *compactions))),
        done=[_performed(row) for row in done],
    )


def _told(
    engine: Engine, lane: str, operations: Sequence[Operation], pressure: Pressure
) -> list[Candidate]:
    ordered = scoring.in_order(operations, pressure)
    waits = [_waits(engine, why, op) for why, op in ordered]
    first = next((n for n, reason in enumerate(waits) if reason is None), -1)
    kept = range(min(CANDIDATES, len(ordered)))
    if first >= CANDIDATES:
        kept = range(CANDIDATES - 1)
    return [
        _candidate(lane, ordered[n], waits[n], n == first)
        for n in (*kept, *([first] if first >= CANDIDATES else []))
    ]


def _candidate(
    lane: str, ranked: tuple[str, Operation], waits: str | None, is_next: bool
) -> Candidate:
    why, op = ranked
    return Candidate(
        kind=op.name,
        lane=lane,
        tablet=op.tablet_id if op.tablet_id >= 0 else None,
        rowsets=list(op.rowsets),
        reason=reason_of(why, op),
        waits=waits,
        is_next=is_next,
        memory_bytes=op.memory_bytes,
        log_bytes=op.log_bytes,
        freed_bytes=op.freed_bytes,
        cost_bytes=op.cost_bytes,
        due=min(op.due, 1e9),  # that of a flush which has failed is infinite, which JSON has not
        gain=op.gain,
        score=op.gain_per_byte * _GIB,
    )


def reason_of(why: str, op: Operation) -> str:
    """Why an operation is worth something, in words; ``why``: its rank."""
    if why == scoring.FREE:
        return f"it drops {in_bytes(op.log_bytes)} of log that nothing needs any more"
    if why == scoring.MEMORY:
        return f"memory is scarce, and it frees {in_bytes(op.memory_bytes)}"
    if why == scoring.LOG:
        return f"the log is long, and this store's oldest change keeps {in_bytes(op.log_bytes)} of it"
    if why in (scoring.DUE, scoring.IDLE):
        if op.due == float("inf"):
            return "an earlier flush of it did not come to its end"
        return (
            f"it holds {in_bytes(op.memory_bytes)}, and has come to {in_share(op.due)} of the size or age "
            "at which it is flushed"
        )
    if why == scoring.FORGET:
        return f"it forgets {in_bytes(op.freed_bytes)} of history that nobody may read any more"
    if op.merge is not None:
        return _merge_reason(op)
    if op.kind == scoring.MINOR:
        return "many files of changes lie on one rowset: they become one"
    return "so many cells of some columns are changed that writing these anew pays"


def _merge_reason(op: Operation) -> str:
    choice = op.merge
    assert choice is not None
    if choice.reason == OVERLAP:
        return (
            f"{len(choice.rowsets)} rowsets lie over each other: the average height falls from "
            f"{choice.height:.2f} by {choice.gain:.2f}"
        )
    if choice.reason == DEAD:
        return f"rows or cells that nobody can see take a good part of {len(choice.rowsets)} rowsets"
    return f"{len(choice.rowsets)} small rowsets lie side by side"


def _waits(engine: Engine, why: str, op: Operation) -> str | None:
    """Why the background would leave an operation for later."""
    if why == scoring.IDLE:
        return "is not due yet"
    if op.merge is None or engine.options.maintenance == "manual":  # maintain() does all that is worth it
        return None
    if is_due(engine.clock, lambda: engine.visible_ts, op):
        return None
    quiet_s = (engine.clock.now_us() - micros_of(engine.visible_ts)) / 1e6
    spent, taken = op.overlap_ns / 1e9, MERGE_NS_PER_BYTE * op.merge.input_bytes / 1e9
    return (
        f"reads into several rowsets have cost {in_seconds(spent)} since the last merge, this one takes "
        f"about {in_seconds(taken)}; it is done after {IDLE_S:g} s without a write (now {quiet_s:.1f} s), or "
        f"with {HIGH} rowsets over each other"
    )


def _performed(row: dict[str, Any]) -> Performed:
    finished: datetime = row.pop("finished")
    return Performed(finished_us=round(finished.timestamp() * 1e6), **row)


__all__ = ["maintenance_facts", "operations_of", "reason_of"]
