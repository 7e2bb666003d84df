"""Which operation comes first: what is scarce, then what is due, then the best gain for its cost."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.run.clock import hybrid
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.rowset.rows.meta import DeltaRef, FileRef, RowSetMeta
from kudu_core.tablet.maintain.operations import (
    KeptLog,
    droppable_deletions,
    fixed_row_bytes,
    flush_operations,
    rowset_stats,
)
from kudu_core.tablet.maintain.scoring import (
    DELTA_FLUSH,
    FLUSH,
    HISTORY_GC,
    LOG_GC,
    LOG_TARGET_BYTES,
    MAJOR,
    MEMORY_FRACTION,
    MERGE,
    MINOR,
    Operation,
    Pressure,
    choose,
    in_order,
    unless_merged,
)
from kudu_core.wal.format import Segment
from tests.support.inside import compaction_lane_of, engine_of, log_of, schema_of, tablet_of
from tests.support.tables import Make

CALM = Pressure(0, 1000, 0)
SMALL_FLUSH = Operation(FLUSH, 1, memory_bytes=10, log_bytes=500, due=0.5)
LARGE_FLUSH = Operation(DELTA_FLUSH, 1, (7,), memory_bytes=300, log_bytes=20, due=0.7)
MERGE_WIDE = Operation(MERGE, 1, (1, 2), gain=2.0, cost_bytes=400)
MERGE_CHEAP = Operation(MERGE, 2, (3, 4), gain=0.5, cost_bytes=50)
FORGET = Operation(HISTORY_GC, 1, freed_bytes=5)
SHORTEN = Operation(LOG_GC, -1, log_bytes=1)
ALL = [SMALL_FLUSH, LARGE_FLUSH, MERGE_WIDE, MERGE_CHEAP, FORGET, SHORTEN]


def test_what_a_merge_takes_is_not_compacted_before() -> None:
    """Of the same tablet alone; flushes, and the merges themselves, stay."""
    taken = [Operation(MAJOR, 1, (1,), gain=9.0), Operation(MINOR, 1, (2,), gain=9.0)]
    kept = [Operation(MAJOR, 1, (3,), gain=9.0), Operation(MINOR, 2, (1,), gain=9.0), *ALL]
    assert unless_merged([*taken, *kept]) == kept
    assert unless_merged(taken) == taken


@pytest.mark.parametrize("pressure", [CALM, Pressure(500, 1000, LOG_TARGET_BYTES), Pressure(0, 1, 1 << 40)])
def test_the_order_in_which_all_are_told_is_that_in_which_they_are_chosen(pressure: Pressure) -> None:
    """Again and again without what was chosen; at the end stands what is not worth it yet."""
    due = replace(SMALL_FLUSH, tablet_id=3, due=2.0)
    idle = Operation(LOG_GC, -1)
    left = [idle, due, replace(due, tablet_id=4, due=3.0), *ALL]
    told, chosen = in_order(left, pressure), []
    while (best := choose(left, pressure)) is not None:
        chosen.append(best)
        left.remove(best)
    assert [op for _, op in told[: len(chosen)]] == chosen and len(chosen) >= 5
    assert [why for why, _ in told[len(chosen) :]] == ["nothing yet"] * len(left)


def test_the_order_of_reasons() -> None:
    """Each reason as long as there is one; whatever the order in which operations are told."""
    full = Pressure(500, 1000, LOG_TARGET_BYTES)
    long = Pressure(0, 1000, LOG_TARGET_BYTES)
    due = replace(SMALL_FLUSH, due=1.0)
    steps: list[tuple[Pressure, list[Operation], Operation | None]] = [
        (full, ALL, SHORTEN),
        (full, ALL[:-1], LARGE_FLUSH),  # memory before log
        (long, ALL[:-1], SMALL_FLUSH),
        (CALM, [*ALL[1:-1], due], due),
        (CALM, ALL[:-1], FORGET),
        (CALM, ALL[:-2], MERGE_CHEAP),  # 0.5 for 50 before 2 for 400
        (CALM, [MERGE_WIDE, SMALL_FLUSH, LARGE_FLUSH], MERGE_WIDE),
        (CALM, [SMALL_FLUSH, LARGE_FLUSH], None),
        (full, [MERGE_WIDE], MERGE_WIDE),  # no flush can help
        (full, [], None),
    ]
    for pressure, operations, wanted in steps:
        for some in permutations(operations):
            assert choose(some, pressure) == wanted


def test_pressure_begins_at_its_thresholds() -> None:
    assert not Pressure(int(MEMORY_FRACTION * 1000) - 1, 1000, 0).on_memory
    assert Pressure(int(MEMORY_FRACTION * 1000), 1000, 0).on_memory
    assert not Pressure(0, 1000, LOG_TARGET_BYTES - 1).on_log
    assert Pressure(0, 1000, LOG_TARGET_BYTES).on_log


def test_the_most_overdue_comes_first() -> None:
    older = Operation(FLUSH, 2, memory_bytes=1, due=3.0)
    assert choose([replace(LARGE_FLUSH, due=1.5), older, MERGE_CHEAP], CALM) == older
    failed = replace(SMALL_FLUSH, due=float("inf"))
    assert choose([older, failed], CALM) == failed


def test_nothing_is_done_for_nothing() -> None:
    assert choose([Operation(MINOR, 1, (1,)), Operation(MAJOR, 1, (1,), cost_bytes=5)], CALM) is None


# ---- what is known of operations


def deletions(first: int, last: int, count: int) -> DeltaRef:
    return DeltaRef(FileRef("1-1.delta", 100, 0), count, first, last, None, count, {})


def test_deletions_become_droppable_with_time() -> None:
    ref = deletions(100, 200, 1000)
    assert [droppable_deletions(ref, h) for h in (0, 100, 150, 199, 200, 999)] == [0, 0, 500, 990, 1000, 1000]
    assert droppable_deletions(deletions(5, 5, 3), 5) == 3
    assert droppable_deletions(deletions(5, 5, 3), 4) == 0


def test_rowsets_as_large_as_they_get_are_full() -> None:
    """By what rows take decoded: a column that encodes to nothing makes no rowset small."""
    meta = RowSetMeta(
        1, FileRef("1-1.rows", 1000, 0), 1000, b"a", b"b", 5, 5, 5, redo=(deletions(1, 9, 2000),)
    )
    stats = rowset_stats(meta, 5, target_bytes=10_000, row_bytes=29)
    assert not stats.full
    assert stats.droppable_rows == 1000, "no more than there are"
    assert rowset_stats(meta, 5, target_bytes=10_000, row_bytes=30).full
    settled = rowset_stats(meta, 5, target_bytes=10**9, row_bytes=1, settled=True)
    assert settled.full and settled.droppable_rows == 0


def test_rows_count_their_fixed_columns(make: Make) -> None:
    schema = schema_of(make(pa.schema([("k", pa.int64()), ("a", pa.int32()), ("s", pa.string())])))
    assert fixed_row_bytes(schema) == 8 + 4 + 4 + 8


def test_what_the_log_costs_from_a_time_on() -> None:
    def segment(last_ts: int, end: int, request_bytes: int = 0) -> Segment:
        return Segment("s", 1, 1, end, 10 * end, last_ts, 0, request_bytes)

    log = KeptLog([segment(10, 1), segment(20, 2, 1000), segment(20, 4), segment(30, 8)])
    costs = {None: 0, 1: 1015, 10: 1015, 11: 1014, 20: 1014, 21: 8, 30: 8, 31: 0}
    assert {ts: log.since(ts) for ts in costs} == costs
    assert KeptLog([]).since(5) == 0


def test_what_a_flush_would_free(make: Make) -> None:
    table = make(flush_age_s=100, flush_threshold_bytes=1 << 20)
    tablet = tablet_of(table)

    def found(now_us: int) -> list[Operation]:
        return list(flush_operations(tablet, table.options, now_us, KeptLog(log_of(table).segments)))

    now = engine_of(table).clock.now_us()
    assert found(now) == []
    table.insert({"k": range(100)})
    table.flush()
    table.insert({"k": range(100, 150)})
    table.update({"k": [3], "a": [1]})
    first_ts = tablet.view.active.first_ts
    assert first_ts is not None
    memory, deltas = found(now)
    assert (memory.kind, memory.rowsets) == (FLUSH, ())
    assert (deltas.kind, deltas.rowsets) == (DELTA_FLUSH, (tablet.view.rowsets[0].id,))
    assert memory.memory_bytes == tablet.view.active.nbytes
    assert memory.log_bytes == log_of(table).bytes_retained
    assert memory.due == memory.memory_bytes / (1 << 20) < 1
    half, twice = ((first_ts // hybrid(1)) + s * 1_000_000 for s in (50, 200))
    assert found(half)[0].due == pytest.approx(0.5)
    assert found(twice)[0].due == pytest.approx(2)
    tablet.view.active.frozen_at = table.timestamp  # a flush that has failed
    active = MemRowSet(schema_of(table))
    tablet.view = replace(tablet.view, active=active, frozen=(tablet.view.active,))
    assert found(now)[0].due == float("inf")


def test_operations_are_told_of_no_table_without_changes(make: Make) -> None:
    table = make()
    table.insert({"k": range(10)})
    table.flush()
    assert compaction_lane_of(table)._operations() == []
    assert isinstance(table, kc.Table)
