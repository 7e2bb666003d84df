"""How much memory one bulk load takes.

    python -m bench.load_memory [--rows N] [--given batches|table] [--memory-limit-mib N] [--repeats]

Prints the peak of the process before the call and after it.  ``batches``: rows come from a generator that
keeps none; ``table``: they lie in memory as one Arrow table; ``--repeats``: one row in a hundred has the
key of an earlier one, and the call is an upsert.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import kudu_core as kc
from bench.compare import data

BATCH = 100_000


def batches(rows: int, repeats: bool) -> Iterator[pa.RecordBatch]:
    """Readings in the order of time, as ``bench.compare.data`` has them, made while they are asked for."""
    rng = np.random.default_rng(data.SEED)
    hosts, statuses = pa.array(data.hosts()), pa.array(data.STATUSES)
    notes = pa.array([f"note {i:02d}" for i in range(50)])
    for first in range(0, rows, BATCH):
        count = min(BATCH, rows - first)
        number = np.arange(first, first + count)
        if repeats:
            number = np.where(rng.random(count) < 0.01, rng.integers(0, first + 1, count), number)
        noted = pa.array(rng.integers(0, len(notes), count), mask=rng.random(count) >= 0.1)
        yield pa.record_batch(
            {
                "host": hosts.take(pa.array(number % data.HOSTS)),
                "ts": number // data.HOSTS * data.STEP,
                "load": np.round(rng.normal(50, 10, count), 2),
                "temp": np.round(rng.random(count) * 100, 2),
                "bytes": rng.integers(0, 1 << 36, count),
                "status": statuses.take(pa.array(rng.integers(0, len(statuses), count))),
                "note": notes.take(noted),
            }
        )


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--given", choices=("batches", "table"), default="batches")
    parser.add_argument("--memory-limit-mib", type=int, default=1024)
    parser.add_argument("--repeats", action="store_true")
    given = parser.parse_args()
    source = batches(given.rows, given.repeats)
    rows = pa.Table.from_batches(source) if given.given == "table" else source
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        limit = given.memory_limit_mib << 20
        schema = next(batches(1, False)).schema
        with kc.create_table(path, schema, data.KEY, options={"memory_limit_bytes": limit}) as table:
            before, started = peak_mib(), time.perf_counter()
            result = table.upsert(rows) if given.repeats else table.insert(rows)
            seconds = time.perf_counter() - started
            after = peak_mib()
            assert table.count() == result.inserted
            size = sum(f.stat().st_size for f in (path / "tablets").rglob("*") if f.is_file())
    what = f"{given.rows:,} rows as {given.given}{' with repeats' * given.repeats}"
    speed = f"{given.rows / seconds / 1e6:.2f} M rows/s, the making of batches included"
    print(
        f"{what}, limit {limit >> 20} MiB: peak {before:.0f} MiB before, {after:.0f} MiB after; "
        f"{speed}; {size / 1e6:.1f} MB on disk"
    )


if __name__ == "__main__":
    main()
