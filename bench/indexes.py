"""Ten rows of many by the value of a column that is not the key: by an index, by a scan, and by DuckDB's ART.

``python -m bench.indexes [rows]``.  Medians in milliseconds; the answers are compared.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import kudu_core as kc

SAME = 10
"""Rows of each value."""


def timed(work: Callable[[int], Any], times: int) -> float:
    took = []
    for number in range(times):
        start = time.perf_counter()
        work(number)
        took.append(time.perf_counter() - start)
    return 1e3 * statistics.median(took)


def upserts(table: kc.Table, rows: int, rng: np.random.Generator) -> float:
    """Rows upserted in a second, 1,000 a call, with a lookup after each twentieth."""
    calls = [
        pa.table({"k": rng.integers(0, rows, 1000), "v": rng.integers(0, rows // SAME, 1000)})
        for _ in range(200)
    ]
    start = time.perf_counter()
    for number, call in enumerate(calls):
        table.upsert(call)
        if number % 20 == 19:
            table.scan(where=[("v", "==", number)]).to_table()
    return len(calls) * 1000 / (time.perf_counter() - start)


def one_by_one(table: kc.Table, rows: int, rng: np.random.Generator) -> float:
    """Rows upserted in a second, one a call."""
    given = [
        {"k": int(k), "v": int(v)}
        for k, v in zip(rng.integers(0, rows, 20_000), rng.integers(0, rows // SAME, 20_000), strict=True)
    ]
    start = time.perf_counter()
    for row in given:
        table.upsert([row])
    return len(given) / (time.perf_counter() - start)


def main(rows: int) -> None:
    rng = np.random.default_rng(7)
    v = rng.permutation(rows) // SAME
    text = pa.array(np.char.add("user-", np.char.zfill(v.astype(str), 9)))
    data = pa.table({"k": np.arange(rows), "v": v, "s": text, "x": rng.random(rows)})
    asked = rng.integers(0, rows // SAME, 1000).tolist()
    with tempfile.TemporaryDirectory() as folder:
        options = {"durability": "none", "history_retention_s": 0}
        table = kc.create_table(f"{folder}/t", data.schema, "k", options=options)
        table.insert(data)
        peer = duckdb.connect(f"{folder}/duck.db")
        peer.execute("create table t as select * from data")

        def ours(n: int) -> pa.Table:
            return table.scan(where=[("v", "==", asked[n])]).to_table()

        def ours_text(n: int) -> pa.Table:
            return table.scan(where=[("s", "==", f"user-{asked[n]:09}")]).to_table()

        def theirs(n: int) -> pa.Table:
            return peer.execute("select * from t where v = ?", [asked[n]]).to_arrow_table()

        def theirs_text(n: int) -> pa.Table:
            return peer.execute("select * from t where s = ?", [f"user-{asked[n]:09}"]).to_arrow_table()

        ways = [("scan, int64", ours), ("scan, string", ours_text)]
        ways += [("DuckDB scan, int64", theirs), ("DuckDB scan, string", theirs_text)]
        for name, work in ways:
            print(f"{name:24} {timed(work, 15):9.3f} ms")
        table.create_index("by_v", "v")
        table.create_index("by_s", "s")
        print(f"{'first, int64':24} {timed(ours, 1):9.3f} ms")
        print(f"{'first, string':24} {timed(ours_text, 1):9.3f} ms")
        for column in ("v", "s"):
            start = time.perf_counter()
            peer.execute(f"create index by_{column} on t({column})")
            print(f"{'DuckDB index of ' + column:24} {1e3 * (time.perf_counter() - start):9.3f} ms")
        ways = [("index, int64", ours), ("index, string", ours_text)]
        ways += [("DuckDB ART, int64", theirs), ("DuckDB ART, string", theirs_text)]
        for name, work in ways:
            print(f"{name:24} {timed(work, 400):9.3f} ms")
        for n in range(20):
            found = ours(n).sort_by("k")
            assert found.num_rows == SAME and found == ours_text(n).sort_by("k")
            assert found.to_pylist() == theirs(n).sort_by("k").to_pylist()
        print(f"{'cache':24} {table.metrics()['page_cache_bytes'] / 1e6:9.1f} MB")
        with_index = upserts(table, rows, rng), one_by_one(table, rows, rng)
        table.drop_index("by_v")
        table.drop_index("by_s")
        without = upserts(table, rows, rng), one_by_one(table, rows, rng)
        for name, one, other in zip(("batches of 1,000", "single rows"), with_index, without, strict=True):
            print(f"{name:24} {one:,.0f} rows/s with indexes, {other:,.0f} without")
        table.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000)
