"""The data set of the speed table: readings of 1,000 hosts, in the order in which they were taken.

Key (host, time); two doubles of two decimals, an int64 of 36 bits, a status of 8 words, a note that
is NULL nine times in ten.  ``KUDU_CORE_BENCH_ROWS`` sets the size: 5,000,000 for the published
figures, 50,000 when the benchmarks run as tests.
"""

from __future__ import annotations

import os
from functools import cache

import numpy as np
import pyarrow as pa

ROWS = int(os.environ.get("KUDU_CORE_BENCH_ROWS", "50000"))
HOSTS = 1000
STEP = 1000
KEY = ["host", "ts"]
STATUSES = ("ok", "warn", "error", "starting", "stopping", "idle", "busy", "lost")
SEED = 20131


def hosts() -> np.ndarray:
    return np.array([f"host-{i:05d}" for i in range(HOSTS)])


@cache
def readings() -> pa.Table:
    """All rows, by time and host."""
    rng = np.random.default_rng(SEED)
    ticks = -(-ROWS // HOSTS)
    host = np.tile(np.arange(HOSTS), ticks)[:ROWS]
    ts = np.repeat(np.arange(ticks, dtype=np.int64), HOSTS)[:ROWS] * STEP
    notes = pa.array([f"note {i:02d}" for i in range(50)])
    picked = pa.array(rng.integers(0, 50, ROWS), mask=rng.random(ROWS) >= 0.1)
    return pa.table(
        {
            "host": pa.array(hosts()).take(pa.array(host)),
            "ts": ts,
            "load": np.round(rng.normal(50, 10, ROWS), 2),
            "temp": np.round(rng.random(ROWS) * 100, 2),
            "bytes": rng.integers(0, 1 << 36, ROWS),
            "status": pa.array(STATUSES).take(pa.array(rng.integers(0, 8, ROWS))),
            "note": notes.take(picked),
        }
    )


@cache
def ordered() -> pa.Table:
    """The same rows in key order."""
    return readings().sort_by([(name, "ascending") for name in KEY]).combine_chunks()


def later(count: int, batch: int, first: int = 0) -> list[pa.Table]:
    """Batches of rows that are newer than all of ``readings``."""
    rng = np.random.default_rng(SEED + 1 + first)
    start = (ROWS // HOSTS + 10 + first) * STEP
    out = []
    for i in range(count):
        row = np.arange(i * batch, (i + 1) * batch)
        picked = readings().take(pa.array(rng.integers(0, ROWS, batch)))
        out.append(
            picked.set_column(0, "host", pa.array(hosts()[row % HOSTS])).set_column(
                1, "ts", pa.array(start + row // HOSTS * STEP)
            )
        )
    return out


def known(count: int, batch: int, salt: int) -> list[pa.Table]:
    """Batches of rows whose keys are in ``readings``, no key twice in a batch."""
    rng = np.random.default_rng(SEED + salt)
    return [
        readings().take(pa.array(rng.choice(ROWS, min(batch, ROWS), replace=False))) for _ in range(count)
    ]


def keys(count: int, salt: int = 99) -> list[tuple[str, int]]:
    rng = np.random.default_rng(SEED + salt)
    rows = readings().select(KEY).take(pa.array(rng.integers(0, ROWS, count)))
    return list(zip(rows["host"].to_pylist(), rows["ts"].to_pylist(), strict=True))


def time_range(share: float) -> tuple[int, int]:
    """A range of times in the middle that has about this share of the rows."""
    ticks = max(1, ROWS // HOSTS)
    lower = int(ticks * 0.5)
    return lower * STEP, (lower + max(1, int(ticks * share))) * STEP
