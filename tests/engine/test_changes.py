"""``table.changes``: every change in order of time, and net changes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.table import changes as module
from tests.support.changes import check_changes, check_pairs
from tests.support.history import SCHEMA, History, random_batch


@pytest.mark.parametrize("slice_events", [1 << 20, 64])
@pytest.mark.parametrize("ingest_rows", [10**6, 40])
def test_a_state_and_its_changes_give_every_later_state(
    tmp_path: Path,
    seed: int,
    long: bool,
    slice_events: int,
    ingest_rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SLICE_EVENTS", slice_events)
    for run in range(40 if long else 2):
        rng = random.Random(f"{seed}-{run}")
        history = History()
        path = tmp_path / f"t{run}"
        table = kc.create_table(
            path,
            SCHEMA,
            "k",
            partition_by=[kc.HashPartition(["k"], 2)] if run % 2 else [],
            options={"maintenance": "manual", "ingest_threshold_rows": ingest_rows, "durability": "none"},
        )
        for step in range(40 if long else 26):
            history.write(
                table,
                random_batch(rng, history.model, range(60), rng.choice((1, 4, 50)), whole=rng.random() < 0.5),
            )
            draw = rng.random()
            if draw < 0.2:
                table.flush()
            elif draw < 0.25:
                table.close()
                table = kc.open_table(path, "rw")
            if step % 13 == 12:
                table._engine.log.wait_durable(table._engine.log.cut())
                check_pairs(table, history, rng, 6)
        table._engine.log.wait_durable(table._engine.log.cut())
        assert check_changes(table, history, 0, history.writes[-1]) > 100
        check_pairs(table, history, rng, 10)
        with kc.open_table(path) as reader:
            check_pairs(reader, history, rng, 2)
        table.close()


def test_a_rowset_without_changes_in_the_window_is_not_opened(tmp_path: Path) -> None:
    options = {"maintenance": "manual"}
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        for first in (0, 100):
            table.insert([{"k": first + i, "a": i} for i in range(50)])
            table.flush()
        since = table.update([{"k": 3, "a": 7}, {"k": 4, "a": 7}]).timestamp - 1
        table.flush()
    with kc.open_table(tmp_path / "t") as table:
        rows = table.changes(since, columns=["k", "a"]).to_pylist()
        assert [(r["_op"], r["k"], r["a"]) for r in rows] == [("update", 3, 7), ("update", 4, 7)]
        opened = [r.base._file is not None for r in table._engine.tablets[0].view.rowsets]
        assert opened == [True, False]
        assert table.changes(table.timestamp).to_table().num_rows == 0


def test_wrong_windows_say_what_is_wrong(tmp_path: Path) -> None:
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options={"maintenance": "manual"}) as table:
        first = table.insert([{"k": 1}]).timestamp
        last = table.delete([1]).timestamp
        with pytest.raises(kc.InvalidArgument, match="after until"):
            table.changes(last, first)
        with pytest.raises(kc.InvalidArgument, match="images"):
            table.changes(images="before")
        with pytest.raises(kc.SnapshotInFuture):
            table.changes(first, 2**63)
        with pytest.raises(kc.InvalidArgument, match="nope"):
            table.changes(columns=["nope"])
        changes = table.changes(first)
        assert (changes.since, changes.until) == (first, last)
        assert (
            [r["_op"] for r in changes.to_pylist()] == ["delete"] == [r["_op"] for r in changes.to_pylist()]
        )
