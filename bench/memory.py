"""Peak memory of bulk loads and of a scan: ``python -m bench.memory --rows 20000000``.

The rows come from a generator, batch by batch, in the order of time, so that the keys come in no order; the
load is one call, and the scan is of all columns.  Then once more as an upsert in which one row in a hundred
has the key of an earlier one, and once from an Arrow table that lies in memory.  Each runs in a process of
its own and prints its peak RSS beside what importing the library takes.  The data set is that of the speed
table.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import kudu_core as kc

HOSTS = 1000
BATCH = 200_000
SCHEMA = pa.schema(
    [
        ("host", pa.string()),
        ("ts", pa.int64()),
        ("load", pa.float64()),
        ("temp", pa.float64()),
        ("bytes", pa.int64()),
        ("status", pa.string()),
        ("note", pa.string()),
    ]
)


def batches(rows: int, *, repeats: bool = False) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(1)
    hosts = pa.array([f"host-{i:05d}" for i in range(HOSTS)])
    words = pa.array(["ok", "warn", "error", "starting", "stopping", "idle", "busy", "lost"])
    notes = pa.array([f"note {i:02d}" for i in range(50)])
    for first in range(0, rows, BATCH):
        at = np.arange(first, min(first + BATCH, rows))
        count = len(at)
        if repeats:
            at = np.where(rng.random(count) < 0.01, rng.integers(0, first + 1, count), at)
        yield pa.record_batch(
            [
                hosts.take(pa.array(at % HOSTS)),
                pa.array(at // HOSTS * 1000),
                pa.array(np.round(rng.normal(50, 10, count), 2)),
                pa.array(np.round(rng.random(count) * 100, 2)),
                pa.array(rng.integers(0, 1 << 36, count)),
                words.take(pa.array(rng.integers(0, 8, count))),
                notes.take(pa.array(rng.integers(0, 50, count), mask=rng.random(count) >= 0.1)),
            ],
            schema=SCHEMA,
        )


def load(path: str, rows: int) -> int:
    with kc.create_table(path, SCHEMA, ["host", "ts"]) as table:
        return table.insert(batches(rows)).inserted


def load_repeats(path: str, rows: int) -> int:
    with kc.create_table(path, SCHEMA, ["host", "ts"]) as table:
        return sum(table.upsert(batches(rows, repeats=True)).counts)


def load_table(path: str, rows: int) -> int:
    held = pa.Table.from_batches(batches(rows))
    with kc.create_table(path, SCHEMA, ["host", "ts"]) as table:
        print(f"an Arrow table of {held.nbytes >> 20:,} MiB:")
        return table.insert(held).inserted


def scan(path: str, rows: int) -> int:
    with kc.open_table(path) as table:
        return sum(batch.num_rows for batch in table.scan())


def _measured(work: Callable[[str, int], int], path: str, rows: int, answer: Any) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    found = work(path, rows)
    took = time.perf_counter() - started
    answer.put((found, took, before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    rows = parser.parse_args().rows
    folder = Path(tempfile.mkdtemp(prefix="kudu-core-memory-"))
    context = multiprocessing.get_context("spawn")
    try:
        for work in (load, scan, load_repeats, load_table):
            if work is not scan:
                shutil.rmtree(folder / "t", ignore_errors=True)
            answer = context.Queue()
            process = context.Process(target=_measured, args=(work, str(folder / "t"), rows, answer))
            process.start()
            found, took, before, peak = answer.get()
            process.join()
            assert found == rows, f"{work.__name__}: {found} rows, not {rows}"
            print(
                f"{work.__name__:12} {rows:,} rows in {took:.1f} s, {rows / took:,.0f} rows/s; "
                f"peak RSS {peak >> 10:,} MiB ({before >> 10} MiB at the start)"
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
