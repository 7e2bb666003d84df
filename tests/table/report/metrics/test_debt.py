"""What reads pay until maintenance has done its work, as numbers that fall when it has."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

import kudu_core as kc
from kudu_core.common.run.clock import Clock
from tests.support.clock import ManualClock
from tests.support.tables import Make

SCHEMA = [("k", "int64"), ("v", "int64")]


def insert(table: kc.Table, keys: Iterable[int]) -> None:
    keys = np.array(list(keys))
    table.insert({"k": keys, "v": keys})
    table.flush()


def test_rowsets_over_each_other(make: Make) -> None:
    table = make(SCHEMA)
    assert (table.metrics()["height"], table.metrics()["height_most"]) == (0, 0)
    insert(table, range(0, 30_000, 3))
    found = table.metrics()
    assert (found["height"], found["height_most"], found["merge_debt_bytes"]) == (1, 1, 0)
    insert(table, range(30_000, 60_000, 3))
    found = table.metrics()
    assert (found["height"], found["height_most"], found["merge_debt_bytes"]) == (1, 1, 0)
    insert(table, range(1, 30_000, 3))
    insert(table, range(2, 30_000, 3))
    found = table.metrics()
    assert found["height_most"] == 3
    assert 2 < found["height"] < 2.7, "three over the most of it, one over the rest"
    rowsets = table.stats("rowset").to_pylist()
    assert found["merge_debt_bytes"] == sum(r["base_bytes"] for r in rowsets) - rowsets[1]["base_bytes"]
    table.compact(full=True)
    found = table.metrics()
    assert (found["height"], found["height_most"], found["merge_debt_bytes"]) == (1, 1, 0)


@pytest.mark.parametrize("rows", [1, 2])
def test_rowsets_of_few_rows(make: Make, rows: int) -> None:
    """Of which the policy's shares of the data say little."""
    table = make(SCHEMA)
    insert(table, [0, 9][:rows])
    insert(table, [5])
    assert table.metrics()["height_most"] == rows
    assert 1 <= table.metrics()["height"] <= 2


def test_changes_and_history(make: Make) -> None:
    table = make(SCHEMA)
    insert(table, range(1000))
    before = table.metrics()
    assert before["delta_bytes"] == before["delta_share"] == 0
    table.update({"k": np.arange(500), "v": np.zeros(500, int)})
    table.flush()
    found = table.metrics()
    [rowset] = table.stats("rowset").to_pylist()
    assert found["delta_bytes"] == rowset["redo_bytes"] > 0
    assert found["delta_share"] == pytest.approx(rowset["redo_bytes"] / found["disk_bytes"])
    assert found["disk_bytes"] == rowset["redo_bytes"] + rowset["undo_bytes"] + rowset["base_bytes"]
    table.compact(full=True)
    found = table.metrics()
    assert found["delta_bytes"] == 0
    assert found["history_bytes"] > before["history_bytes"]


def test_how_far_back_history_reaches(path: Path) -> None:
    clock = ManualClock(Clock().now_us())
    options = {"maintenance": "manual", "history_retention_s": 60}
    with kc.create_table(path, SCHEMA, "k", options=options, _clock=clock) as table:
        assert table.metrics()["history_s"] == 0
        insert(table, range(10))
        clock.advance(500)
        assert table.metrics()["history_s"] == pytest.approx(500, abs=1)
        table.update({"k": [1], "v": [7]})
        table.flush()
        clock.advance(100)
        table.update({"k": [1], "v": [8]})
        table.compact(full=True)
        table.gc()
        assert table.metrics()["history_s"] == pytest.approx(60, abs=1)
