"""Loaders with workers, forked and spawned, as PyTorch has them, over a table that the parent has opened."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.travel.loader import RowsByIndex, loaded

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float32())])
ROWS = 300


@pytest.fixture
def filled(path: Path) -> Path:
    """A table with rows in files, in the log, and changed ones."""
    with kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition("k", 2)) as table:
        table.insert({"k": list(range(200)), "x": [0.5] * 200})
        table.flush()
        table.insert({"k": list(range(200, ROWS)), "x": [1.5] * 100})
        table.update({"k": [7], "x": [7.0]})
    return path


WANTED = {k: 7.0 if k == 7 else 0.5 if k < 200 else 1.5 for k in range(ROWS)}


@pytest.mark.parametrize(("method", "workers"), [("fork", 3), ("spawn", 2), ("forkserver", 1)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork beside threads, from Python 3.12 on
def test_workers_read_what_the_parent_has_opened(filled: Path, method: str, workers: int) -> None:
    """The parent has read before: its pool has threads, and its caches are warm."""
    with kc.open_table(filled) as table:
        assert table.scan().to_table().num_rows == len(RowsByIndex(table, range(ROWS)))
        dataset = RowsByIndex(table, range(ROWS))
        context = multiprocessing.get_context(method)
        rows = list(loaded(dataset, context, workers=workers, batch=16))
        assert len(rows) == ROWS and {row["k"]: row["x"] for row in rows} == WANTED
        assert dataset[7] == {"k": 7, "x": 7.0}, "the parent's handle is as it was"


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_all_workers_of_a_snapshot_read_one_state(filled: Path, method: str) -> None:
    """Also while a writer goes on, and whenever a worker opens the table.  The parent of workers that are
    spawned may be the writer itself."""
    with kc.open_table(filled, "rw") as writer:
        opened = writer if method == "spawn" else kc.open_table(filled)
        with opened, opened.snapshot() as now:
            writer.update(where=[("k", ">=", 0)], set={"x": -1.0})
            writer.flush()
            context = multiprocessing.get_context(method)
            rows = list(loaded(RowsByIndex(now, range(ROWS)), context, workers=1, batch=64))
            assert {row["k"]: row["x"] for row in rows} == WANTED
