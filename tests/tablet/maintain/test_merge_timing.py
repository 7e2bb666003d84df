"""When a merge that is worth it is done in the background: for whoever looks into several rowsets, or when
nobody writes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.tablet.maintain import lane, merge_timing
from kudu_core.tablet.maintain.merge_policy import DEAD, OVERLAP, SMALL, MergeChoice
from kudu_core.tablet.maintain.merge_timing import HIGH, IDLE_S, MERGE_NS_PER_BYTE, pays_now
from kudu_core.tablet.view.view import BEGIN_NS, ORDERED_ROW_NS
from tests.support.inside import compaction_lane_of, metas_of, run_one_due, tablet_of
from tests.support.tables import Make
from tests.tablet.maintain.test_maintaining import random_rows
from tests.tablet.maintain.test_maintenance import eventually

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
MB = 1_000_000


def choice(reason: str = OVERLAP, rowsets: int = 4, gain: float = 3.0, height: float = 4.0) -> MergeChoice:
    return MergeChoice(tuple(range(rowsets)), reason, gain, MB, height)


COST_NS = MERGE_NS_PER_BYTE * MB


def test_a_merge_is_due_when_looks_have_taken_as_long_as_it_takes() -> None:
    assert pays_now(choice(), COST_NS, 0)
    assert not pays_now(choice(), COST_NS - 1, 0)
    # A third of the looks would be left.
    assert not pays_now(choice(gain=2.0), COST_NS, 0)
    assert pays_now(choice(gain=2.0), int(1.5 * COST_NS) + 1, 0)


def test_what_frees_rows_waits_for_nobody() -> None:
    assert pays_now(choice(DEAD), 0, 0)


def test_small_rowsets_wait_until_there_are_many() -> None:
    assert not pays_now(choice(SMALL, HIGH - 1, height=1.0), 100 * COST_NS, 0)
    assert pays_now(choice(SMALL, HIGH, height=1.0), 0, 0)


@pytest.mark.parametrize("reason", [OVERLAP, SMALL])
def test_all_of_them_are_done_when_nobody_writes(reason: str) -> None:
    assert not pays_now(choice(reason), 0, IDLE_S - 0.001)
    assert pays_now(choice(reason), 0, IDLE_S)


def test_a_high_tablet_is_merged_whoever_reads_it() -> None:
    assert not pays_now(choice(height=HIGH - 0.1), 0, 0)
    assert pays_now(choice(height=HIGH), 0, 0)


# ---- what looks are counted


def overlap_ns(table: kc.Table) -> int:
    return tablet_of(table).view.tree.bounds.overlap_ns


def test_looks_into_several_rowsets_are_counted(make: Make) -> None:
    with make(SCHEMA, "k") as table:
        random_rows(table, 30_000, 1)
        before = overlap_ns(table)
        table.get(7)
        table.get_many({"k": np.arange(5000)})
        table.upsert({"k": np.arange(5000), "v": np.arange(5000)})
        list(table.scan(order="key"))
        assert overlap_ns(table) == before == 0
        table.upsert({"k": np.arange(-1, 30_000, 3), "v": np.arange(10_001)})
        table.insert({"k": [-5, 40_000], "v": [1, 1]})
        table.flush()
        assert len(metas_of(table)) == 2
        seen = [overlap_ns(table)]
        for read in (
            lambda: table.get(7),
            lambda: table.get_many({"k": np.arange(5000)}),
            lambda: table.get_many({"k": np.arange(20_000)}),
            lambda: table.upsert({"k": np.arange(5000), "v": np.arange(5000)}),
            lambda: list(table.scan(order="key")),
            lambda: table.scan(order="key", limit=10).to_table(),
        ):
            read()
            seen.append(overlap_ns(table))
        assert all(more > less for less, more in pairwise(seen)), seen
        table.get_many({"k": [50_000, 60_000]})  # in no rowset
        list(table.scan())
        table.get(50_000)
        assert overlap_ns(table) == seen[-1]


def test_rows_in_order_are_counted_up_to_the_limit(make: Make) -> None:
    """And no rowset is asked how many it has, where each needs to have but one."""
    with make(SCHEMA, "k") as table:
        for first, rows in enumerate((5, 7, 9)):
            keys = np.arange(rows) * 3 + first
            table.insert({"k": keys, "v": keys})
            table.flush()
        view = tablet_of(table).view
        assert sorted(r.meta.rows for r in view.rowsets) == [5, 7, 9]
        for places in ([0], [0, 2], [0, 1, 2]):
            rows = sum(view.rowsets[place].meta.rows for place in places)
            for limit in (None, 0, 1, 2, 3, 4, 6, 12, 20, 21, 22, 100):
                before = overlap_ns(table)
                view.note_ordered(places, limit)
                ordered = rows if limit is None else min(rows, limit)
                assert overlap_ns(table) - before == BEGIN_NS * (len(places) - 1) + ORDERED_ROW_NS * ordered
        empty = replace(view, rowsets=())
        empty.note_ordered(range(3), 3)
        with pytest.raises(IndexError):
            empty.note_ordered(range(3), 4)


def test_they_are_kept_over_flushes_and_forgotten_by_merges(make: Make) -> None:
    with make(SCHEMA, "k") as table:
        random_rows(table, 3000, 3)
        table.get_many({"k": np.arange(3000)})
        counted = overlap_ns(table)
        assert counted > 0
        table.upsert({"k": [7], "v": [1]})
        table.insert({"k": [5000], "v": [1]})
        table.flush()
        assert overlap_ns(table) >= counted
        table.maintain()
        assert len(metas_of(table)) == 2
        assert overlap_ns(table) == 0


# ---- the background


def test_the_background_merges_for_readers_alone_while_somebody_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load in several calls keeps its rowsets; ``maintain`` asks nobody."""
    monkeypatch.setattr(lane, "POLL_S", 0.01)
    monkeypatch.setattr(merge_timing, "IDLE_S", 1e9)
    options = {"maintenance": "background", "rowset_target_bytes": 1 << 20}
    with kc.create_table(path, SCHEMA, "k", options=options) as table:
        random_rows(table, 6000, 3)
        assert not run_one_due(compaction_lane_of(table))
        assert len(metas_of(table)) == 3
        tablet_of(table).view.tree.bounds.overlap_ns = 1 << 62
        assert eventually(lambda: len(metas_of(table)) == 1, 30)


def test_the_background_merges_when_nobody_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "POLL_S", 0.01)
    monkeypatch.setattr(merge_timing, "IDLE_S", 0.2)
    with kc.create_table(path, SCHEMA, "k", options={"maintenance": "background"}) as table:
        random_rows(table, 6000, 3)
        assert eventually(lambda: len(metas_of(table)) == 1, 30)
