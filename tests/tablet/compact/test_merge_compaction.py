"""Merging compaction: one row for each key, with the history of all its copies; readers see no change."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.tablet.compact.merge import Merged, merge_rowsets
from kudu_core.tablet.store.tablet import Tablet
from tests.support.faults import checking
from tests.support.inside import (
    compaction_lane_of,
    engine_of,
    flush_lane_of,
    oldest_ts_of,
    tablets_of,
    wait_durable,
)
from tests.support.models.changes import check_changes, check_pairs
from tests.support.models.history import SCHEMA, History, random_batch
from tests.support.models.merging import random_compaction
from tests.support.processes import python
from tests.support.threads import Run

OPTIONS = {"maintenance": "manual", "durability": "none", "file_grace_s": 0, "ingest_threshold_rows": 60}


def merge(tablet: Tablet, table: kc.Table, ids: list[int] | None = None, **more: object) -> Merged:
    """Merge some rowsets of a tablet, or all."""
    engine = engine_of(table)
    ids = [r.id for r in tablet.view.rowsets] if ids is None else ids

    def horizon(drop: bool) -> int:
        return engine.horizon(drop=drop)

    done = merge_rowsets(tablet, ids, horizon=horizon, **more)  # type: ignore[arg-type]
    assert done is not None
    return done


def check_all(table: kc.Table, history: History) -> None:
    """Every readable state, and the changes between every two of a few."""
    wait_durable(table)
    oldest = oldest_ts_of(table)
    times = [t for t in history.writes if t >= oldest]
    for at in times:
        found = {(row["k"],): (row["a"], row["b"], row["c"]) for row in table.scan(at=at).to_pylist()}
        assert found == history.past.at(at), f"the state at {at}"
    for since in times[:: max(1, len(times) // 4)]:
        check_changes(table, history, since, times[-1])


def test_every_state_and_every_change_stay(tmp_path: Path, seed: int, long: bool) -> None:
    for run in range(40 if long else 2):
        rng = random.Random(f"{seed}-{run}")
        history = History()
        path = tmp_path / f"t{run}"
        by = [kc.HashPartition(["k"], 2)] if run % 2 else []
        merged = dropped = 0
        print(f"run {run}")
        table = kc.create_table(path, SCHEMA, "k", partition_by=by, options=OPTIONS)
        for step in range(60 if long else 40):
            rows, whole = rng.choice((1, 4, 70)), rng.random() < 0.5
            history.write(table, random_batch(rng, history.model, range(40), rows, whole=whole))
            draw = rng.random()
            if draw < 0.5:
                for tablet in tablets_of(table):
                    flush_lane_of(table).flush(tablet)
            elif draw < 0.7:
                table.flush()
            elif draw < 0.75:
                table.close()
                table = kc.open_table(path, "rw")
            tablet = rng.choice(tablets_of(table))
            ids = [r.id for r in tablet.view.rowsets]
            if ids and rng.random() < 0.3:
                done = merge(tablet, table, rng.sample(ids, rng.randint(1, min(4, len(ids)))))
                merged, dropped = merged + done.rowsets, dropped + done.rows_dropped
            if step % 12 == 11:
                wait_durable(table)
                history.check(table, rng)
                check_pairs(table, history, rng, 4)
        check_all(table, history)
        table.flush()
        table.compact(full=True)
        check_all(table, history)
        check_pairs(table, history, rng, 6)
        for tablet in tablets_of(table):
            assert len(tablet.view.rowsets) <= 1
        table.verify()
        table.close()
        assert merged > 3 and dropped
        with kc.open_table(path) as reader:
            history.check(reader, rng, past=8)
            check_pairs(reader, history, rng, 2)


def test_history_goes_and_pins_hold_what_they_see(tmp_path: Path, seed: int, long: bool) -> None:
    """Nothing but pins holds history: every merge drops what lies below the oldest one."""
    gone = 0
    for run in range(40 if long else 2):
        rng = random.Random(f"{seed}-{run}")
        history = History()
        options = {**OPTIONS, "history_retention_s": 0}
        print(f"run {run}")
        with kc.create_table(tmp_path / f"t{run}", SCHEMA, "k", options=options) as table:
            engine = engine_of(table)
            [tablet] = engine.tablets
            pins: list[kc.Snapshot] = []
            for _ in range(80 if long else 50):
                rows = rng.choice((1, 4, 70))
                history.write(table, random_batch(rng, history.model, range(30), rows, whole=rows > 4))
                engine.log.wait_durable(engine.log.cut())
                if rng.random() < 0.5:
                    assert engine.maintenance is not None
                    engine.maintenance.flush(tablet)
                if rng.random() < 0.2:
                    table.flush()
                if rng.random() < 0.2:
                    random_compaction(table, rng)
                if rng.random() < 0.2:
                    pins.append(table.snapshot())
                if pins and rng.random() < 0.25:
                    pins.pop(rng.randrange(len(pins))).close()
                ids = [r.id for r in tablet.view.rowsets]
                if ids and rng.random() < 0.4:
                    some = rng.sample(ids, rng.randint(1, min(4, len(ids))))
                    gone += merge(tablet, table, some).rows_dropped
                    check_all(table, history)
                    for pin in pins:
                        rows_at = {(r["k"],): (r["a"], r["b"], r["c"]) for r in pin.scan().to_pylist()}
                        assert rows_at == history.past.at(pin.timestamp)
            for pin in pins:
                pin.close()
            table.flush()
            table.compact(full=True)
            table.gc()
            assert sum(r.meta.rows for r in tablet.view.rowsets) == len(history.model.state())
            assert not any(r.meta.undo or r.meta.redo for r in tablet.view.rowsets)
            table.verify()
    assert gone


def flush_on(table: kc.Table, run: Run, rng: random.Random) -> None:
    lane = flush_lane_of(table)
    while run.goes_on():
        tablet = rng.choice(tablets_of(table))
        lane.flush(tablet)
        for rowset in tablet.view.rowsets:
            if rowset.memory_stores and rng.random() < 0.3:
                lane.flush_rowset(tablet, rowset.id)
        lane.truncate_log()
        run.did("flushes")
        time.sleep(0.005)  # leaves the others the interpreter


def merge_on(table: kc.Table, run: Run, rng: random.Random) -> None:
    while run.goes_on():
        tablet = rng.choice(tablets_of(table))
        ids = [r.id for r in tablet.view.rowsets]
        if len(ids) > 2:
            done = compaction_lane_of(table).merge(tablet, rng.sample(ids, rng.randint(1, min(5, len(ids)))))
            if done is not None:
                run.did("merges")
                run.counts["changes"] = run.counts.get("changes", 0) + done.changes


def compact_on(table: kc.Table, run: Run, rng: random.Random) -> None:
    lane = compaction_lane_of(table)
    while run.goes_on():
        random_compaction(table, rng)
        lane.collect_history()
        lane.collect_garbage()
        run.did("compactions")
        time.sleep(0.005)


def test_merges_beside_writers_and_readers(tmp_path: Path, seed: int, long: bool) -> None:
    """One writer that knows the history; flushes, compactions of all kinds, GC; readers of past states."""
    history = History()
    options = {**OPTIONS, "durability": "group", "rowset_target_bytes": 65_536, "history_retention_s": 3600}
    table = kc.create_table(
        tmp_path / "t", SCHEMA, "k", partition_by=[kc.HashPartition(["k"], 2)], options=options
    )
    run = Run(30 if long else 2.5, {"writes": 10, "merges": 3, "reads": 5, "flushes": 2, "changes": 1})

    def write() -> None:
        rng = random.Random(seed)
        while run.goes_on():
            rows, whole = rng.choice((1, 5, 70)), rng.random() < 0.5
            history.write(table, random_batch(rng, history.model, range(80), rows, whole=whole))
            run.did("writes")

    def read() -> None:
        rng = random.Random(seed + 4)
        while run.goes_on():
            times = history.writes
            if times:
                at = times[-1] if rng.random() < 0.3 else rng.choice(times)
                wanted = history.past.at(at)
                order = rng.choice(("any", "key"))
                rows = table.scan(at=at, order=order).to_pylist()
                assert {(r["k"],): (r["a"], r["b"], r["c"]) for r in rows} == wanted, f"the state at {at}"
                key = rng.randrange(80)
                row = table.get(key, at=at)
                assert (None if row is None else (row["a"], row["b"], row["c"])) == wanted.get((key,))
                run.did("reads")

    run.all(
        write,
        lambda: flush_on(table, run, random.Random(seed + 1)),
        lambda: merge_on(table, run, random.Random(seed + 2)),
        lambda: merge_on(table, run, random.Random(seed + 2)),
        lambda: compact_on(table, run, random.Random(seed + 3)),
        read,
        read,
    )
    check_pairs(table, history, random.Random(seed), 10)
    check_all(table, history)
    table.compact(full=True)
    check_pairs(table, history, random.Random(seed), 5)
    table.verify()
    table.close()
    with kc.open_table(tmp_path / "t") as reader:
        history.check(reader, random.Random(seed), past=20)


MEASURE = """
    import sys
    import kudu_core as kc
    from kudu_core.tablet.compact.merge import merge_rowsets
    from tests.support.inside import tablets_of

    def peak():
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    options = {"memory_limit_bytes": int(sys.argv[2]), "page_cache_bytes": 0, "maintenance": "manual"}
    with kc.open_table(sys.argv[1], "rw", options=options) as table:
        [tablet] = tablets_of(table)
        with open("/proc/self/clear_refs", "w") as marks:
            marks.write("5")  # the peak begins anew
        before = peak()
        done = merge_rowsets(tablet, [r.id for r in tablet.view.rowsets], horizon=lambda drop: 0)
        print(peak() - before, done.rows, done.rowsets_added)
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="no way to measure a peak")
def test_memory_does_not_grow_with_the_inputs(tmp_path: Path) -> None:
    """Of 800,000 rows in four rowsets, with changes: a range at a time is in memory."""
    rows = 800_000
    keys = np.random.default_rng(0).permutation(rows)
    path = tmp_path / "t"
    with checking(False):
        schema = pa.schema([("k", pa.int64()), ("a", pa.int64()), ("b", pa.string())])
        with kc.create_table(path, schema, "k", options={"maintenance": "manual"}) as table:
            words = pa.array([f"value {i}" for i in range(1000)])
            for part in np.array_split(keys, 4):
                table.insert({"k": part, "a": part * 7, "b": words.take(pa.array(part % 1000))})
            table.update({"k": keys[::8], "a": keys[::8]})
            table.delete({"k": keys[1::8]})
            table.flush()
            table.insert({"k": keys[1::16], "a": keys[1::16]})
            table.flush()
        grown = {}
        for limit in (1 << 30, 16 << 20):
            copy = tmp_path / f"of {limit}"
            shutil.copytree(path, copy)
            answer = python(MEASURE, copy, limit)
            assert not answer.stderr
            grown[limit], merged, added = map(int, answer.stdout.split())
            assert merged == rows + len(keys[1::16])
            assert added > 1 or limit == 1 << 30
    assert grown[16 << 20] < 32 << 10, "KiB"
    assert grown[1 << 30] > 2 * grown[16 << 20], "else nothing is measured"
