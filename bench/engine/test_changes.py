"""``changes`` over updates of a quarter of a table's rows (500,000 of 2,000,000), in calls of 10,000.

In memory, in files, and after a compaction has made UNDO of them; beside it, in the same run, a scan of as
many rows of the same table.  ``KUDU_CORE_BENCH_CHANGE_ROWS`` sets the size (2,000,000).

pytest bench/engine/test_changes.py
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.inside import wait_durable

ROWS = int(os.environ.get("KUDU_CORE_BENCH_CHANGE_ROWS", "2000000"))
CHANGED = min(500_000, ROWS // 4)
CALL = 10_000
SCHEMA = pa.schema(
    [("id", pa.int64()), ("load", pa.float64()), ("temp", pa.float64()), ("host", pa.string())]
)
STATES: dict[str, Callable[[kc.Table], object]] = {
    "in memory": lambda table: None,
    "in files": lambda table: table.flush(),
    "compacted": lambda table: table.compact(full=True),
}
"""Each follows the one before."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kc.Table]:
    path: Path = tmp_path_factory.mktemp("changes") / "t"
    rng = np.random.default_rng(0)
    options = {"durability": "group", "maintenance": "manual"}
    with kc.create_table(path, SCHEMA, ["id"], options=options) as made:
        load = np.round(rng.normal(50, 10, ROWS), 2)
        hosts = pa.array([f"host-{i:04}" for i in range(1_000)]).take(pa.array(np.arange(ROWS) % 1_000))
        made.insert(pa.table({"id": np.arange(ROWS), "load": load, "temp": load, "host": hosts}))
        yield made


@pytest.fixture(scope="module", params=STATES)
def state(request: Any, table: kc.Table) -> tuple[str, kc.Table, int]:
    since = getattr(request.module, "since", None)
    if since is None:
        since = request.module.since = table.timestamp
        picked = np.random.default_rng(1).choice(ROWS, CHANGED, replace=False)
        new = np.round(np.random.default_rng(2).normal(1000, 10, CHANGED), 2)  # none is what it was
        for at in range(0, CHANGED, CALL):
            table.update(pa.table({"id": picked[at : at + CALL], "load": new[at : at + CALL]}))
        wait_durable(table)
    STATES[request.param](table)
    return request.param, table, since


KINDS: dict[str, dict[str, Any]] = {
    "all columns": {},
    "key and the updated column": {"columns": ["id", "load"]},
    "images before and after": {"images": "both"},
    "net": {"net": True},
    "where": {"where": [("load", ">", 1000)]},
}


@pytest.mark.parametrize("kind", KINDS)
def test_changes(benchmark: Any, state: tuple[str, kc.Table, int], kind: str) -> None:
    name, table, since = state
    benchmark.group = f"changes, {name}"

    def read() -> int:
        return sum(batch.num_rows for batch in table.changes(since, **KINDS[kind]))

    found = benchmark.pedantic(read, rounds=5, warmup_rounds=1)
    assert found == CHANGED or kind == "where"
    if benchmark.enabled:
        benchmark.extra_info["changes_per_s"] = round(CHANGED / benchmark.stats.stats.min)


def test_a_scan_of_as_many_rows(benchmark: Any, table: kc.Table) -> None:
    """The peer: every fourth row by a predicate on the key."""
    benchmark.group = "scan of as many rows"
    scan = table.scan(where=[("id", "<", CHANGED)])
    assert benchmark.pedantic(lambda: scan.to_table().num_rows, rounds=5, warmup_rounds=1) == CHANGED
