"""Rows inserted in random order of their keys: ``python -m bench.random_inserts --rows 20000000``.

Int64 keys and two value columns, in batches of 10,000 with uniqueness checked; maintenance in the
background or, with ``--manual``, nothing but flushes.  Prints for every million rows the speed, the latency
of a batch and the average height; at the end write amplification, the speed of a scan beside that of the
same rows bulk loaded in order, point reads, and the peak RSS.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import kudu_core as kc
from kudu_core.tablet.maintain.merge_policy import RowSetLayout
from kudu_core.tablet.maintain.operations import rowset_stats
from tests.support.cases.layouts import average_height
from tests.support.inside import compaction_lane_of, tablets_of

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.float64()), ("b", pa.int64())])
BATCH = 10_000
MILLION = 1_000_000


def height(table: kc.Table) -> float:
    """In how many rowsets on disk a key lies, averaged over the data."""
    metas = [m for tablet in tablets_of(table) for m in tablet.rowset_metas]
    return average_height(RowSetLayout.of([rowset_stats(m, 0, 1 << 25, 1) for m in metas])) if metas else 0.0


def scan_s(table: kc.Table) -> float:
    """Seconds of the best of five scans of everything."""
    took = []
    for _ in range(5):
        started = time.perf_counter()
        for _batch in table.scan():
            pass
        took.append(time.perf_counter() - started)
    return min(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2 * MILLION)
    parser.add_argument("--memory", type=int, default=1 << 30, help="memory_limit_bytes")
    parser.add_argument("--flush", type=int, default=64 << 20, help="flush_threshold_bytes")
    parser.add_argument("--manual", action="store_true", help="no maintenance but flushes")
    parser.add_argument("--dir", default=None)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="kudu-random-", dir=arguments.dir))
    try:
        run(root, arguments.rows, arguments.memory, arguments.flush, arguments.manual)
    finally:
        shutil.rmtree(root)


def run(root: Path, rows: int, memory: int, flush: int, manual: bool) -> None:
    rng = np.random.default_rng(0)
    keys = rng.permutation(rows)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    options = {"memory_limit_bytes": memory, "flush_threshold_bytes": flush, "durability": "group"}
    with kc.create_table(root / "t", SCHEMA, "k", options=options) as table:
        if manual:
            compaction_lane_of(table).close()
        for first in range(0, rows, MILLION):
            took = []
            for at in range(first, min(first + MILLION, rows), BATCH):
                some = keys[at : at + BATCH]
                values = {"k": some, "a": some / 7, "b": rng.integers(0, 1 << 40, len(some))}
                started = time.perf_counter()
                table.insert(values)
                took.append(time.perf_counter() - started)
            count = min(MILLION, rows - first)
            print(
                f"{(first + count) / MILLION:6.1f} M  {count / sum(took) / 1e3:7.0f} k rows/s  "
                f"p50 {np.quantile(took, 0.5) * 1e3:6.1f} ms  p99 {np.quantile(took, 0.99) * 1e3:6.1f} ms  "
                f"max {max(took) * 1e3:6.0f} ms  height {height(table):5.2f}  "
                f"rowsets {table.stats()['rowsets'][0].as_py()}",
                flush=True,
            )
        started = time.perf_counter()
        table.flush()
        if not manual:
            table.maintain()
        settled_s = time.perf_counter() - started
        metrics = table.metrics()
        written = sum(metrics.get(f"{n}_output_bytes", 0) for n in ("flush", "merge", "minor", "major"))
        disk = table.stats()["disk_bytes"][0].as_py()
        print(
            f"settled in {settled_s:.1f} s: height {height(table):.2f}, {disk >> 20:,} MiB, written "
            f"{written / disk:.1f} times; {metrics.get('merge_count', 0):.0f} merges of "
            f"{metrics.get('merge_elapsed_s', 0):.1f} s; writers waited {metrics['throttled_s']:.1f} s"
        )
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10) - base
        print(f"peak RSS {peak:,} MiB beside {base:,}; limit {memory >> 20:,} MiB")
        mine = scan_s(table)
        some = rng.choice(rows, 20_000, replace=False).tolist()
        started = time.perf_counter()
        for key in some:
            table.get(key)
        print(f"point reads {(time.perf_counter() - started) / len(some) * 1e6:.1f} us")
    with kc.create_table(root / "bulk", SCHEMA, "k") as table:
        order = np.arange(rows)
        table.insert(pa.table({"k": order, "a": order / 7, "b": rng.integers(0, 1 << 40, rows)}))
        bulk = scan_s(table)
        print(f"scan {mine * 1e3:.1f} ms, of the rows bulk loaded {bulk * 1e3:.1f}: {mine / bulk:.2f} times")


if __name__ == "__main__":
    main()
