"""The numbers of a report are those of ``stats``, ``history`` and ``metrics``, and what is known of a table
that was made for it."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.table.report.gather.maintenance_facts_of import maintenance_facts
from kudu_core.table.report.gather.tablet_facts_of import lanes_of
from kudu_core.tablet.maintain.merge_policy import RowSetLayout, RowSetStats
from kudu_core.tablet.maintain.scoring import FLUSH, Operation
from tests.support.clock import ManualClock
from tests.support.inside import engine_of
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created, opened
from tests.support.page.reported import HOSTILE, ROWSETS, SPOOFING, TAG, table_of_everything
from tests.support.tables import Make


@pytest.fixture
def known(make: Make) -> kc.Table:
    return table_of_everything(make)


def test_tablets_and_rowsets_are_those_of_stats(known: kc.Table) -> None:
    data = known.report().data
    [tablet], [stats] = data.tablets, known.stats("tablet").to_pylist()
    told = {"tablet": tablet.id, "rowsets": len(tablet.rowsets)}
    same = stats.keys() - told.keys()
    assert len(same) == 7 and stats == {**told, **{name: getattr(tablet, name) for name in same}}
    rowsets = {row["rowset"]: row for row in known.stats("rowset").to_pylist()}
    assert len(rowsets) == ROWSETS and tablet.rows_stored == 403
    names = ("rows", "base_bytes", "redo_files", "redo_bytes", "undo_files", "undo_bytes", "memory_changes")
    for rowset in tablet.rowsets:
        row = rowsets.pop(rowset.id)
        assert {name: getattr(rowset, name) for name in names} == {name: row[name] for name in names}
        assert rowset.durable_ts == row["durable_ts"]
    assert not rowsets


def test_what_lies_beside_the_bases_is_counted(known: kc.Table) -> None:
    [tablet] = known.report().data.tablets
    assert sorted(r.redo_entries for r in tablet.rowsets) == [0, 0, 0, 4]
    assert sorted(r.undo_entries for r in tablet.rowsets) == [0, 0, 0, 10]
    assert sorted(r.memory_changes for r in tablet.rowsets) == [0, 0, 1, 1]
    assert tablet.changes == 6
    assert [(m.rows, m.changes) for m in tablet.memrowsets] == [(3, 0)]
    assert (tablet.first_key, tablet.last_key) == ("0", "399")


def test_rowsets_that_lie_over_each_other_stand_in_lanes(known: kc.Table) -> None:
    [tablet] = known.report().data.tablets
    assert sorted(r.lane for r in tablet.rowsets) == list(range(ROWSETS)) and tablet.most_height == ROWSETS
    assert 3.9 < tablet.height <= ROWSETS
    assert tablet.height == pytest.approx(sum(r.high - r.low for r in tablet.rowsets))
    known.compact(full=True)
    [tablet] = known.report().data.tablets
    assert (tablet.most_height, tablet.height, len(tablet.rowsets)) == (1, 1.0, 1)


def test_rowsets_side_by_side_share_a_lane_and_the_data(make: Make) -> None:
    table = make()
    for start in (0, 1000, 2000, 3000):
        table.insert({"k": list(range(start, start + 1000))})
        table.flush()
    [tablet] = table.report().data.tablets
    assert [r.lane for r in tablet.rowsets] == [0, 0, 0, 0]
    bounds = [(round(r.low, 2), round(r.high, 2)) for r in tablet.rowsets]
    assert bounds[0][0] == 0 and bounds[-1][1] == 1 and tablet.most_height == 1
    assert all(before[1] <= after[0] + 0.01 for before, after in pairwise(bounds))
    assert all(high - low == pytest.approx(0.25, abs=0.1) for low, high in bounds)


def test_columns_are_those_of_stats(known: kc.Table) -> None:
    data = known.report().data
    stats = known.stats("column").to_pylist()
    assert [(c.name, c.type, c.bytes, c.nulls) for c in data.columns] == [
        (row["column"], row["type"], row["bytes"], row["nulls"]) for row in stats
    ]
    k, text, number = data.columns
    assert (k.key, text.key, text.default, number.comment) == (1, None, "'</td>'", f"</td>{HOSTILE}")
    assert k.plain_bytes == number.plain_bytes == 400 * 8
    assert text.plain_bytes == 400 * (len(HOSTILE) + 4) and text.plain_sampled and text.words == 1
    assert sum(k.blocks.values()) == ROWSETS
    assert (number.name, number.nulls) == (SPOOFING, 1)


def test_time_says_what_can_be_read(known: kc.Table) -> None:
    history = known.report().data.history
    assert history.newest_ts == known.timestamp and history.oldest_ts == 0
    assert history.tags == known.tags() and history.oldest_pin_ts == known.tags()[TAG]
    assert (history.undo_entries, history.redo_entries) == (10, 4)
    assert sum(b.undo_entries for b in history.bins) == pytest.approx(10)
    assert sum(b.redo_entries for b in history.bins) == pytest.approx(4)
    with known.snapshot():
        assert known.report().data.history.snapshots_pinned == 1
    assert history.horizon_ts < history.oldest_pin_ts < history.newest_ts


def test_every_change_is_in_the_chart_or_said_to_be_missing(known: kc.Table) -> None:
    activity = known.report().data.activity
    # Inserts of 400 and 3 rows; 10 older states; 4 and 2 changes.
    charted = sum(b.exact + b.spread for b in activity.bins)
    assert charted + activity.older == pytest.approx(419)
    assert (activity.unplaced_rows, activity.unplaced_until_ts) == (0, None)


def test_memory_and_log_are_those_of_metrics(known: kc.Table) -> None:
    data = known.report().data
    metrics = known.metrics()
    assert data.memory.memrowset_bytes + data.memory.deltamemstore_bytes == metrics["memory_store_bytes"]
    assert data.memory.limit_bytes == metrics["memory_limit_bytes"]
    assert data.memory.cache_limit_bytes == metrics["page_cache_limit_bytes"]
    assert data.log.bytes == metrics["log_bytes"] == sum(s.bytes for s in data.log.segments or ())
    assert data.metrics.keys() == metrics.keys()
    assert [s.held_by for s in data.log.segments or ()][-1] == [1]
    known.flush()
    flushed = known.report().data.log
    assert flushed.retained_since_ts is None and not any(s.held_by for s in flushed.segments or ())


def test_what_was_done_is_history_and_what_comes_next_is_done_next(known: kc.Table) -> None:
    known.flush()
    maintenance = known.report().data.maintenance
    done = known.history().to_pylist()
    expected = [(row["operation"], row["rows"]) for row in done[::-1]]
    assert [(d.operation, d.rows) for d in maintenance.done] == expected
    [merge] = [c for c in maintenance.candidates if c.is_next]
    assert (merge.kind, merge.lane, merge.tablet, merge.waits) == ("merge compaction", "compaction", 1, None)
    [tablet] = known.report().data.tablets
    assert sorted(merge.rowsets) == sorted(r.id for r in tablet.rowsets if r.chosen)
    assert known.maintain() >= 1
    assert known.history().column("operation").to_pylist()[len(done)] == "merge"
    assert not [c for c in known.report().data.maintenance.candidates if c.is_next]


def test_a_reader_beside_the_writer_says_what_it_cannot_know(make: Make, path: Path) -> None:
    known = table_of_everything(make, durability="sync")
    mine = known.report().data
    with kc.open_table(path) as reader:
        data = reader.report().data
    assert data.mode == "r" and data.log.bytes is None and data.log.reader_lag_s is not None
    assert any("only the writer knows" in told for told in data.unknown)
    names = [s.name for s in mine.log.segments or ()]
    assert [s.name for s in data.log.segments or ()] == names
    [tablet], [same] = data.tablets, mine.tablets
    assert (tablet.rows_stored, tablet.changes) == (same.rows_stored, same.changes) == (403, 6)
    assert tablet.height == same.height
    assert not data.maintenance.here and data.history.horizon_ts == pytest.approx(mine.history.horizon_ts)
    by_path = kc.report(path).data
    assert by_path.tablets[0].rows_stored == same.rows_stored


def test_a_report_is_json(known: kc.Table) -> None:
    data = known.report().data
    told = json.loads(json.dumps(data.to_json(), allow_nan=False))
    assert told["tablets"][0]["rowsets"][0]["rows"] == data.tablets[0].rowsets[0].rows
    assert told["history"]["newest_ts"] == known.timestamp


def test_an_empty_table_and_dropped_tablets_have_a_report(make: Make) -> None:
    table = make(partition_by=[kc.RangePartition(["k"], bounds=[(100, None), (0, 100)])])
    data = table.report().data
    assert [t.height for t in data.tablets] == [0.0, 0.0] and data.tablets[0].first_key is None
    assert [t.partition_text for t in sorted(data.tablets, key=lambda t: t.place)] == [
        "range(k) = [(0), (100))", "range(k) = [(100), open)",
    ]  # fmt: skip
    table.insert({"k": [1, 150]})
    table.flush()
    table.alter(drop_range=(0, 100))
    dropped = [t.dropped_ts is not None for t in table.report().data.tablets]
    assert sorted(dropped) == [False, True]


def test_keys_that_are_long_or_cut_are_told(make: Make) -> None:
    table = make([kc.Column("a", "string"), kc.Column("b", "int64")], ("a", "b"))
    table.insert({"a": ["x" * 5000, "<y>"], "b": [1, 2]})
    table.flush()
    [rowset] = table.report().data.tablets[0].rowsets
    assert rowset.first_key == "'<y>', 2"
    assert "xxxx" in rowset.last_key and len(rowset.last_key) < 100


def test_times_up_to_the_oldest_readable_state_are_not_told(path: Path) -> None:
    """A merge forgets them; what it leaves would look like a day's changes in one moment."""
    clock = ManualClock()
    options = {"maintenance": "manual", "durability": "none", "history_retention_s": 3600}
    with kc.create_table(path, {"k": "int64"}, "k", options=options, _clock=clock) as table:
        for start in range(8):
            table.insert({"k": list(range(start, 800, 8))})
            table.flush()
            clock.advance(1800)
        table.gc()
        table.compact(full=True)
        data = table.report().data
        charted = sum(b.exact + b.spread for b in data.activity.bins)
        assert data.history.oldest_ts > 0 and 100 <= charted <= 200
        assert data.activity.older == 800 - charted


def test_a_table_in_an_object_store_has_a_report() -> None:
    store = MemoryObjectStore()
    with created(store, tablets=2) as table:
        table.insert({"k": list(range(100)), "v": list(range(100))})
        table.flush()
        table.update({"k": [1], "v": [7]})
        mine = table.report().data
        assert mine.in_store and mine.log.segments and sum(t.rows_stored for t in mine.tablets) == 100
        with opened(store) as reader:
            data = reader.report().data
    assert data.log.segments is None and any("objects of the log" in told for told in data.unknown)
    found, expected = ([(t.disk_bytes, t.changes) for t in seen.tablets] for seen in (data, mine))
    assert found == expected
    assert "not listed for a reader" in kc.Report(data).html


def test_a_rowset_of_one_time_is_told_while_that_can_be_read(path: Path) -> None:
    clock = ManualClock()
    options = {"maintenance": "manual", "history_retention_s": 60, "ingest_threshold_rows": 10}
    schema = {"k": "int64", "v": "int64"}
    with kc.create_table(path, schema, "k", options=options, _clock=clock) as table:
        table.insert({"k": list(range(50)), "v": [1] * 50})
        table.insert({"k": [100]})
        table.update({"k": [100], "v": [2]})
        table.flush()  # its older state is what the collection finds
        assert sum(b.exact for b in table.report().data.activity.bins) == 50 + 1 + 1
        clock.advance(120)
        table.gc()
        activity = table.report().data.activity
        assert (sum(b.exact + b.spread for b in activity.bins), activity.older) == (0, 51)


def test_lanes_go_by_keys_and_one_key_is_enough() -> None:
    def rowset(number: int, low: bytes, high: bytes) -> RowSetStats:
        return RowSetStats(number, low, high, 100)

    bounds = [(b"a", b"f"), (b"b", b"c"), (b"c", b"d"), (b"d1", b"e"), (b"f", b"g"), (b"f1", b"h")]
    layout = RowSetLayout.of([rowset(n, low, high) for n, (low, high) in enumerate(bounds)])
    assert lanes_of(layout) == [0, 1, 2, 1, 1, 0]


def test_a_flush_that_has_failed_is_due_at_once(known: kc.Table) -> None:
    facts = maintenance_facts(engine_of(known), [Operation(FLUSH, 1, due=float("inf"))], [])
    [told] = facts.candidates
    assert told.is_next and told.due > 1e6 and "did not come to its end" in told.reason
    json.dumps(dataclasses.asdict(facts), allow_nan=False)
