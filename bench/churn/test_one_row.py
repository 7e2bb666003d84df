"""The versions of one row, and its changes, among 5,000,000 rows and as many changes; beside DuckDB.

Rows are updated in calls of a fiftieth of them, picked at random, so that each has one change on the average
and some have five.  Every call of 100,000 makes a file of changes: ``history_of`` and ``changes(key=...)``
with 50 of them a rowset, and after a compaction has made one UNDO file of all.  DuckDB has all changes as one
table, in the order of their times, and likewise with an index of the key.  Each round asks for another row;
warm.  ``KUDU_CORE_BENCH_CHANGE_ROWS`` sets the size: 5,000,000 for the published figures, 100,000 as tests.

    KUDU_CORE_BENCH_CHANGE_ROWS=5000000 ci/bench.sh bench/churn/test_one_row.py
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc

ROWS = int(os.environ.get("KUDU_CORE_BENCH_CHANGE_ROWS", "100000"))
CALLS = 50
KEYS = np.random.default_rng(5).integers(0, ROWS, 200).tolist()
SCHEMA = pa.schema(
    [("id", pa.int64()), ("load", pa.float64()), ("temp", pa.float64()), ("host", pa.string())]
)
Read = Callable[[int], pa.Table]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kc.Table]:
    path: Path = tmp_path_factory.mktemp("one") / "t"
    rng = np.random.default_rng(0)
    options = {"durability": "group", "maintenance": "manual", "ingest_threshold_rows": 1000}
    with kc.create_table(path, SCHEMA, ["id"], options=options) as made:
        load = np.round(rng.normal(50, 10, ROWS), 2)
        hosts = pa.array([f"host-{i:04}" for i in range(1_000)]).take(pa.array(np.arange(ROWS) % 1_000))
        made.insert(pa.table({"id": np.arange(ROWS), "load": load, "temp": load, "host": hosts}))
        for _ in range(CALLS):
            picked = rng.choice(ROWS, ROWS // CALLS, replace=False)
            made.update(pa.table({"id": picked, "load": np.round(rng.normal(1000, 10, len(picked)), 2)}))
        made.flush()
        yield made


@pytest.fixture(scope="module")
def versions(table: kc.Table) -> Counter[int]:
    """How many versions there are of each row that is asked for."""
    told = table.changes(columns=["id"]).to_table()["id"].to_numpy()
    return Counter(told[np.isin(told, KEYS)].tolist())


@pytest.fixture(scope="module", params=["in files", "compacted"])
def state(request: Any, table: kc.Table) -> tuple[str, kc.Table]:
    if request.param == "compacted":
        table.compact(full=True)
    return request.param, table


def measured(benchmark: Any, read: Read, versions: Counter[int]) -> None:
    keys = itertools.cycle(KEYS)
    for key in KEYS:
        assert read(key).num_rows == versions[key]
    found = benchmark.pedantic(lambda: read(next(keys)), rounds=len(KEYS), iterations=1)
    assert found.num_rows >= 1


@pytest.mark.parametrize("call", ["history_of", "changes"])
def test_a_row_of_ours(
    benchmark: Any, state: tuple[str, kc.Table], versions: Counter[int], call: str
) -> None:
    name, table = state
    benchmark.group = f"the history of one row, {name}"
    read: Read = table.history_of if call == "history_of" else lambda key: table.changes(key=key).to_table()
    measured(benchmark, read, versions)


@pytest.mark.parametrize("index", [False, True], ids=["", "index"])
def test_a_row_of_duckdb(benchmark: Any, table: kc.Table, versions: Counter[int], index: bool) -> None:
    benchmark.group = "the history of one row, DuckDB"
    told = table.changes().to_reader()
    asked = "SELECT * FROM told WHERE id = ? ORDER BY _timestamp"
    with duckdb.connect() as db:
        db.register("every", told)
        db.execute("CREATE TABLE told AS SELECT * FROM every")
        if index:
            db.execute("CREATE INDEX by_id ON told (id)")
        measured(benchmark, lambda key: db.sql(asked, params=[key]).to_arrow_table(), versions)
