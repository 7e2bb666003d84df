"""What a read has made goes when it ends, without the collector: then files may be deleted."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.float64()), ("s", pa.string())])
READS: dict[str, Callable[[kc.Table], Any]] = {
    "scan": lambda t: list(t.scan(batch_rows=100)),
    "scan of some": lambda t: list(t.scan(["v"], where=[("v", ">", 300.0), ("s", "<", "s2")])),
    "in order": lambda t: list(t.scan(order="key", batch_rows=100)),
    "in order, of some": lambda t: list(t.scan(["s"], where=[("v", ">", 300.0)], order="key")),
    "first rows": lambda t: list(t.scan(order="key", limit=20)),
    "begun": lambda t: next(iter(t.scan(order="key", batch_rows=7))),
    "begun in any order": lambda t: next(iter(t.scan(batch_rows=7))),
    "reader": lambda t: t.scan(order="key", batch_rows=7).to_reader().read_next_batch(),
    "limit": lambda t: list(t.scan(limit=3)),
    "count": lambda t: t.count(where=[("v", "<", 10.0)]),
    "get": lambda t: t.get(5),
    "get_many": lambda t: t.get_many([1, 2, 900]),
    "min_max": lambda t: t.scan(["v"]).min_max("v"),
    "changes": lambda t: list(t.changes()),
    "net changes": lambda t: list(t.changes(net=True)),
    "shares": lambda t: [list(t.scan_token(token)) for token in t.scan_tokens(target_rows=100)],
    "snapshot": lambda t: list(t.snapshot().scan()),
    "dataset": lambda t: t.to_dataset().to_table(),
}


@pytest.fixture(scope="module", params=["one", "hashed"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kc.Table]:
    cut = [kc.HashPartition("k", 3)] if request.param == "hashed" else []
    path: Path = tmp_path_factory.mktemp(request.param) / "t"
    with kc.create_table(path, SCHEMA, ["k"], partition_by=cut, options={"maintenance": "manual"}) as made:
        for lower in (0, 300, 600):
            rows = range(lower, lower + 400)
            made.upsert({"k": rows, "v": [float(k) for k in rows], "s": [f"s{k}" for k in rows]})
            made.flush()
        made.update({"k": [1, 500, 900], "v": [0.5, 0.5, 0.5]})
        made.flush()
        made.update({"k": [2, 501], "v": [0.25, 0.25]})
        made.upsert([{"k": 2000 + k, "v": float(k), "s": "memory"} for k in range(50)])
        yield made


@pytest.mark.parametrize("read", READS)
def test_no_cycle_is_left(table: kc.Table, read: str) -> None:
    READS[read](table)  # what is made once stays
    gc.collect()
    gc.disable()
    before = gc.get_debug()
    try:
        READS[read](table)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = sorted(
            {type(o).__qualname__ for o in gc.garbage if type(o).__module__.startswith("kudu_core")}
        )
    finally:
        gc.set_debug(before)
        gc.garbage.clear()
        gc.enable()
    assert not left, f"only the collector would take {left}"
