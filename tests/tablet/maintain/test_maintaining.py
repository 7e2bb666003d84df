"""A table that looks after itself: what is merged, when, who waits for it, and what is told of it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core import events
from kudu_core.fs.machine import memory_bytes
from kudu_core.tablet.maintain import compaction_lane, lane, merge_timing
from kudu_core.tablet.maintain.merge_policy import RowSetLayout
from kudu_core.tablet.maintain.operations import fixed_row_bytes, rowset_stats
from kudu_core.tablet.maintain.scoring import MERGE, Operation
from tests.support.cases.layouts import average_height
from tests.support.clock import Clock, ManualClock
from tests.support.inside import (
    compaction_lane_of,
    engine_of,
    leave_alone,
    left_alone_by,
    look_for_work,
    metas_of,
    schema_of,
    tablet_of,
    tablets_apart_of,
)
from tests.support.tables import Make
from tests.tablet.maintain.test_maintenance import eventually, stat

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def height(table: kc.Table) -> float:
    width = fixed_row_bytes(schema_of(table))
    metas = metas_of(table)
    if not metas:
        return 0.0
    return average_height(RowSetLayout.of([rowset_stats(m, 0, 1 << 20, width) for m in metas]))


def random_rows(table: kc.Table, count: int, flushes: int, seed: int = 0) -> np.ndarray:
    """Keys in random order, in so many rowsets that all overlap."""
    keys = np.random.default_rng(seed).permutation(count)
    for some in np.array_split(keys, flushes):
        table.insert({"k": some, "v": some * 2})
        table.flush()
    return keys


def operations(table: kc.Table) -> list[str]:
    found: list[str] = table.history()["operation"].to_pylist()
    return found


# ---- by itself, and when asked


def test_manual_tables_do_nothing_by_themselves(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "POLL_S", 0.01)
    table = make(SCHEMA, flush_threshold_bytes=1 << 16, flush_age_s=0)
    random_rows(table, 3000, 6)
    table.insert({"k": np.arange(10_000, 20_000)})
    time.sleep(0.2)
    assert set(operations(table)) == {"flush"}
    assert stat(table, "memory_rows") == 10_000
    assert not [t for t in threading.enumerate() if t.name.startswith("kudu-core-compact")]


def test_maintain_merges_what_overlaps(make: Make) -> None:
    table = make(SCHEMA, file_grace_s=0)
    random_rows(table, 6000, 12)
    assert height(table) > 11
    done = table.maintain()
    assert done > 0
    assert height(table) <= 1.01
    assert "merge" in operations(table)
    assert table.maintain() == 0, "and then nothing is worth it"
    rows = table.scan(order="key").to_table()
    assert rows["k"].to_pylist() == [*range(6000)]
    assert rows["v"].to_pylist() == [*range(0, 12_000, 2)]
    metrics = table.metrics()
    assert metrics["merge_count"] == operations(table).count("merge")
    assert metrics["merge_rows"] == 6000
    assert metrics["file_gc_freed_bytes"] > 0


def test_maintain_keeps_to_its_budget(make: Make) -> None:
    table = make(SCHEMA)
    random_rows(table, 2000, 5)
    assert table.maintain(budget_s=0) == 0
    assert operations(table) == ["flush"] * 5
    for wrong in (-1, "1", True, float("nan")):
        with pytest.raises(kc.InvalidArgument, match="budget_s"):
            table.maintain(wrong)  # type: ignore[arg-type]
    assert table.maintain(budget_s=60) > 0


def test_maintain_is_for_writers(make: Make, path: Path) -> None:
    make(SCHEMA).close()
    with kc.open_table(path) as reader:
        with pytest.raises(kc.ReadOnly):
            reader.maintain()
        assert reader.history().num_rows == 0
        assert reader.metrics()["rowsets"] == 0


def test_the_background_merges(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random inserts on two threads, with nobody tending the table."""
    monkeypatch.setattr(lane, "POLL_S", 0.02)
    monkeypatch.setattr(merge_timing, "IDLE_S", 0.2)
    options = {"durability": "none", "flush_threshold_bytes": 1 << 16, "file_grace_s": 0}
    with kc.create_table(path, SCHEMA, "k", options=options) as table:
        keys = np.random.default_rng(1).permutation(40_000)

        def insert(mine: np.ndarray) -> None:
            for some in np.array_split(mine, 20):
                table.insert({"k": some, "v": some})

        threads = [threading.Thread(target=insert, args=(part,)) for part in np.array_split(keys, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        table.flush()
        assert eventually(lambda: height(table) <= 1.01 and "merge" in operations(table), 60)
        rows = table.scan(order="key").to_table()
        assert rows["k"].to_pylist() == [*range(40_000)]
    with kc.open_table(path) as reader:
        assert reader.count() == 40_000


def test_a_full_compaction_waits_for_the_background(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the background has claimed is not left out."""
    monkeypatch.setattr(lane, "POLL_S", 0.01)
    monkeypatch.setattr(merge_timing, "IDLE_S", 0.0)
    began, go_on = threading.Event(), threading.Event()
    usual = compaction_lane.merge_rowsets

    def slow(*arguments: Any, **more: Any) -> Any:
        if threading.current_thread().name.startswith("kudu-core-compact"):
            began.set()
            assert go_on.wait(20)
        return usual(*arguments, **more)

    monkeypatch.setattr(compaction_lane, "merge_rowsets", slow)
    with kc.create_table(path, SCHEMA, "k", options={"durability": "none", "flush_age_s": 3600}) as table:
        random_rows(table, 2000, 4)
        assert began.wait(20)
        threading.Timer(0.2, go_on.set).start()
        table.compact(full=True)
        assert height(table) <= 1.01


def test_dead_rows_go_by_themselves(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without history to keep, deleting 90% of the rows at random gives their room back."""
    monkeypatch.setattr(lane, "POLL_S", 0.02)
    options = {
        "durability": "none", "history_retention_s": 0, "file_grace_s": 0, "flush_age_s": 0.05,
        "ingest_threshold_rows": 1000,
    }  # fmt: skip
    with kc.create_table(path, SCHEMA, "k", options=options) as table:
        rng = np.random.default_rng(3)
        table.insert({"k": np.arange(60_000), "v": rng.integers(0, 1 << 60, 60_000)})
        before = stat(table, "disk_bytes")
        dead = rng.permutation(60_000)[:54_000]
        for some in np.array_split(dead, 20):
            table.delete({"k": some})
        assert eventually(lambda: stat(table, "disk_bytes") < 0.15 * before, 60)
        folder = path / "tablets/00000001"

        def stored() -> int:
            try:
                return sum(p.stat().st_size for p in folder.glob("*-*"))
            except FileNotFoundError:  # it went between the list and the look
                return int(before)

        assert eventually(lambda: stored() < 0.15 * before, 60)
        assert table.count() == 6000


def test_small_rowsets_of_ascending_inserts_become_full_ones(make: Make) -> None:
    table = make(SCHEMA)
    for part in range(12):
        table.insert({"k": np.arange(part * 500, part * 500 + 500)})
        table.flush()
    assert stat(table, "rowsets") == 12
    table.maintain()
    assert stat(table, "rowsets") == 1
    assert table.count() == 6000


def test_what_was_known_of_a_layout_keeps_no_file(make: Make, path: Path) -> None:
    """After maintain() something else replaces the rowsets: their files go with the next collection."""
    table = make(SCHEMA, file_grace_s=0)
    table.insert({"k": np.arange(1000)})
    table.flush()
    table.update({"k": [1, 2], "v": [1, 2]})
    table.flush()
    assert table.maintain() == 0
    before = {p.name for p in (path / "tablets/00000001").glob("*-*")}
    table.compact(full=True)
    table.gc()
    after = {p.name for p in (path / "tablets/00000001").glob("*-*")}
    named = {f.name for m in metas_of(table) for f in m.files}
    assert after == named
    assert before - after


def test_a_merge_that_does_nothing_is_not_repeated(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs smaller than the policy expects: at most one merge of each more."""
    table = make(SCHEMA, ingest_threshold_rows=10)
    for part in range(6):
        table.insert({"k": np.arange(part * 100, part * 100 + 100)})
    engine = engine_of(table)
    assert engine.compactions is not None
    merges = []

    def copies(tablet: Any, rowset_ids: Any, **more: Any) -> Any:
        merges.append(tuple(rowset_ids))
        done = usual(tablet, rowset_ids, **{**more, "threads": 1})
        return done and type(done)(**{**{n: getattr(done, n) for n in done.__slots__}, "rowsets_added": 99})

    usual = compaction_lane.merge_rowsets
    monkeypatch.setattr(compaction_lane, "merge_rowsets", copies)
    table.maintain()
    assert len(merges) == 1
    tablet = engine.tablets[0]
    assert engine.compactions._merges._settled[tablet.id] == set(tablet.view.tree.ids)
    assert table.maintain() == 0


def test_a_tablet_that_is_done_while_it_is_looked_at_is_looked_at_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several threads: what was seen of it was half done, and another merge would not be the best."""
    table = make(SCHEMA, ingest_threshold_rows=10)
    random_rows(table, 400, 4)
    compactions, tablet = compaction_lane_of(table), tablet_of(table)
    apart, real = tablets_apart_of(compactions), compactions._operations
    apart.add(tablet.id)

    def ends_meanwhile(*tablets: Any) -> Any:
        found = real(*tablets)
        apart.discard(tablet.id)
        return found

    monkeypatch.setattr(compactions, "_operations", ends_meanwhile)
    assert not compactions.run_one(patient=False, apart=True)
    assert compactions.run_one(patient=False, apart=True)


# ---- failures


def test_an_operation_that_fails_is_told_and_left_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(Clock().now_us())
    told: list[events.Event] = []
    options = {"maintenance": "manual", "durability": "none"}
    kc.create_table(path, SCHEMA, "k", options=options, _clock=clock).close()
    with kc.open_table(path, "rw", listener=told.append, _clock=clock) as table:
        random_rows(table, 1000, 3)
        usual = compaction_lane.merge_rowsets

        def fails(*_: Any, **__: Any) -> Any:
            raise OSError(28, "no room")

        monkeypatch.setattr(compaction_lane, "merge_rowsets", fails)
        with pytest.raises(OSError, match="no room"):
            table.maintain()
        assert table.maintain() == 0, "left alone for a while"
        failed = [e for e in told if isinstance(e, events.MaintenanceError)]
        assert [(e.operation, e.tablet_id) for e in failed] == [("merge compaction", "1")]
        assert table.history()["error"].to_pylist()[-1] == "OSError(28, 'no room')"
        assert table.metrics()["maintenance_errors"] == 1
        monkeypatch.setattr(compaction_lane, "merge_rowsets", usual)
        clock.advance(lane.RETRY_S + 1)
        assert table.maintain() > 0
        assert height(table) <= 1.01


def test_threads_note_failures_beside_each_other(path: Path) -> None:
    """What one has noted is not lost when another forgets what is over, and nobody stumbles."""
    clock = ManualClock(Clock().now_us())
    with kc.create_table(path, SCHEMA, "k", options={"maintenance": "manual"}, _clock=clock) as table:
        compactions = compaction_lane_of(table)
        noted = [Operation(MERGE, 1, rowsets=(number,)) for number in range(3000)]
        failures: list[BaseException] = []
        note = partial(leave_alone, compactions)

        def work(call: Callable[[Operation], object], some: list[Operation]) -> None:
            try:
                for op in some:
                    call(op)
            except BaseException as error:  # noqa: BLE001  told below
                failures.append(error)

        threads = [
            threading.Thread(target=work, args=(note, noted[::2])),
            threading.Thread(target=work, args=(note, noted[1::2])),
            threading.Thread(target=work, args=(lambda op: look_for_work(compactions), noted)),
        ]
        usual = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(usual)
        assert not failures, failures
        assert left_alone_by(compactions, tablet_of(table)) == set(range(3000))
        clock.advance(lane.RETRY_S + 1)
        look_for_work(compactions)
        assert not left_alone_by(compactions, tablet_of(table))


# ---- what is told


def test_every_operation_is_told(make: Make, path: Path) -> None:
    """To the listener, in the history and in the metrics, with the same numbers."""
    make(SCHEMA, history_retention_s=0, file_grace_s=0, ingest_threshold_rows=5000).close()
    told: list[events.Event] = []
    with kc.open_table(path, "rw", listener=told.append) as table:
        table.insert({"k": np.arange(10_000, 20_000)})  # an ingest
        random_rows(table, 2000, 2)
        for value in range(6):
            table.update({"k": np.arange(0, 2000, 40), "v": np.full(50, value)})
            table.flush()
        table.delete({"k": np.arange(0, 2000, 2)})
        table.flush()
        table.maintain()
        table.gc()
        table.maintain()
        history = table.history()
        names = set(operations(table))
        assert {"ingest", "flush", "delta flush", "merge", "file gc"} <= names
        assert names <= {
            "ingest", "flush", "delta flush", "minor", "major", "merge", "history gc", "file gc", "log gc",
        }  # fmt: skip
        others = (events.TableOpened, events.WorkEvent)
        assert history.num_rows == sum(not isinstance(e, others) for e in told)
        assert history["error"].null_count == history.num_rows
        assert all(s >= 0 for s in history["elapsed_s"].to_pylist())
        assert history["finished"].to_pylist() == sorted(history["finished"].to_pylist())
        merges = [e for e in told if isinstance(e, events.MergeEnd)]
        metrics = table.metrics()
        assert metrics["merge_count"] == len(merges)
        assert metrics["merge_output_bytes"] == sum(e.output_bytes for e in merges)
        assert metrics["merge_elapsed_s"] == pytest.approx(sum(e.elapsed_s for e in merges))
        row = history.filter(pa.compute.equal(history["operation"], "merge")).to_pylist()[0]
        assert row["tablet"] == 1
        assert row["rowsets_read"] == merges[0].rowsets
        assert row["rowsets_written"] == merges[0].rowsets_added
        assert row["input_bytes"] == merges[0].input_bytes
        assert metrics["page_cache_hits"] >= 0
        assert table.options.memory_limit_bytes is None
        assert metrics["memory_limit_bytes"] == table.options.in_force(memory_bytes()).memory_limit_bytes
        assert all(isinstance(value, int | float) for value in metrics.values())
    with kc.open_table(path, "rw") as again:
        assert again.history().num_rows == 0, "of this handle"


def test_the_history_is_bounded(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(SCHEMA)
    for _ in range(1500):
        engine_of(table).journal.note(events.LogTruncated(through=1, segments=1, freed_bytes=2))
    assert table.history().num_rows == 1000
    assert table.metrics()["log_gc_count"] == 1500
    assert table.metrics()["log_gc_freed_bytes"] == 3000


@pytest.mark.parametrize("by", ["table", "tablet", "rowset", "column"])
def test_stats_and_layout(make: Make, by: str) -> None:
    table = make(SCHEMA, partition_by=kc.HashPartition("k", 2))
    empty = table.stats(by)
    table.insert({"k": np.arange(100)})
    table.flush()
    table.update({"k": [1], "v": [2]})
    found = table.stats(by)
    assert found.schema.names == empty.schema.names
    assert found.num_rows == {"table": 1, "tablet": 2, "rowset": 2, "column": 2}[by]
    if by != "column":
        name = "rows" if by == "rowset" else "rows_stored"
        assert sum(found[name].to_pylist()) == 100
    text = table.layout()
    assert text.count("rowset ") == 2 and "dms  1 changes" in text
