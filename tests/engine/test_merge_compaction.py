"""Merging compaction: one row for each key, with the history of all its copies; readers see no change."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.tablet.merge_compaction import Merged, merge_rowsets
from kudu_core.tablet.tablet import Tablet
from tests.support.changes import check_changes, check_pairs
from tests.support.faults import checking
from tests.support.history import SCHEMA, History, random_batch

OPTIONS = {"maintenance": "manual", "durability": "none", "file_grace_s": 0, "ingest_threshold_rows": 60}


@pytest.fixture(autouse=True)
def checked() -> Iterator[None]:
    """The invariants of PROTOCOL after every install."""
    with checking(True):
        yield


def merge(tablet: Tablet, table: kc.Table, ids: list[int] | None = None, **more: object) -> Merged:
    """Merge some rowsets of a tablet, or all."""
    engine = table._engine
    ids = [r.id for r in tablet.view.rowsets] if ids is None else ids
    done = merge_rowsets(tablet, ids, horizon=lambda drop: engine.horizon(drop=drop), **more)  # type: ignore[arg-type]
    assert done is not None
    return done


def check_all(table: kc.Table, history: History) -> None:
    """Every readable state, and the changes between every two of a few."""
    table._engine.log.wait_durable(table._engine.log.cut())
    oldest = table._engine.oldest_ts
    times = [t for t in history.writes if t >= oldest]
    for time in times:
        found = {(row["k"],): (row["a"], row["b"], row["c"]) for row in table.scan(at=time).to_pylist()}
        assert found == history.past.at(time), f"the state at {time}"
    for since in times[:: max(1, len(times) // 4)]:
        check_changes(table, history, since, times[-1])


def test_every_state_and_every_change_stay(tmp_path: Path, seed: int, long: bool) -> None:
    for run in range(40 if long else 4):
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
                for tablet in table._engine.tablets:
                    table._engine.maintenance.flush(tablet)  # type: ignore[union-attr]
            elif draw < 0.7:
                table.flush()
            elif draw < 0.75:
                table.close()
                table = kc.open_table(path, "rw")
            tablet = rng.choice(table._engine.tablets)
            ids = [r.id for r in tablet.view.rowsets]
            if ids and rng.random() < 0.3:
                done = merge(tablet, table, rng.sample(ids, rng.randint(1, min(4, len(ids)))))
                merged, dropped = merged + done.rowsets, dropped + done.rows_dropped
            if step % 12 == 11:
                table._engine.log.wait_durable(table._engine.log.cut())
                history.check(table, rng)
                check_pairs(table, history, rng, 4)
        check_all(table, history)
        table.flush()
        table.compact(full=True)
        check_all(table, history)
        check_pairs(table, history, rng, 6)
        for tablet in table._engine.tablets:
            assert len(tablet.view.rowsets) <= 1
        table.verify()
        table.close()
        assert merged > 3 and dropped
        with kc.open_table(path) as reader:
            history.check(reader, rng, past=8)
            check_pairs(reader, history, rng, 2)
