"""A table that takes rounds of upserts, a clean copy of it, and DuckDB with the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from bench.compare.engines import DuckDB, Ours

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        ("a", pa.float64()),
        ("b", pa.float64()),
        ("n", pa.int64()),
        ("s", pa.string()),
    ]
)
WORDS = np.array([f"state {number:02}" for number in range(12)])
WRITES = ("ingest", "flush", "delta flush", "minor", "major", "merge")
"""Operations of ``Table.history`` that write files."""


@dataclass(frozen=True)
class Size:
    """How much is done."""

    rows: int
    changed: int
    """Rows of each round."""
    rounds: int

    @staticmethod
    def of(timed: bool, scale: float = 1.0) -> Size:
        rows = int(2_000_000 * scale) if timed else 4_000
        return Size(rows, rows // 20, 20 if timed else 6)


def rows_of(keys: np.ndarray, seed: int) -> pa.Table:
    """Rows of these keys: doubles of two decimals, an integer of 30 bits, a word."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "k": keys,
            "a": np.round(rng.normal(50, 10, len(keys)), 2),
            "b": np.round(rng.normal(500, 90, len(keys)), 2),
            "n": rng.integers(0, 1 << 30, len(keys)),
            "s": WORDS[rng.integers(0, len(WORDS), len(keys))],
        },
        schema=SCHEMA,
    )


def some_of(size: Size, number: int) -> np.ndarray:
    """The keys of a round: any, in any order."""
    return np.random.default_rng(1000 + number).choice(size.rows, size.changed, replace=False)


def spent(act: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of all threads, and what came out."""
    started = time.process_time()
    answer = act()
    return time.process_time() - started, answer


def in_turns(acts: dict[str, Callable[[], Any]], times: int) -> dict[str, list[float]]:
    """Each of the acts so often, one after the other; what came out first is dropped."""
    found: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(times):
        for name, act in acts.items():
            found[name].append(spent(act)[0])
    return found


@dataclass
class Times:
    """Seconds of each kind of work."""

    of: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        self.of.setdefault(name, []).append(seconds)

    def median(self, name: str) -> float:
        return median(self.of[name])


class Churned(Ours):
    """Ours, which compacts when it is told to and keeps all of its past."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, durability="none", schema=SCHEMA, scan_threads=2, **options)

    def now(self) -> int:
        with self.table.snapshot() as snapshot:
            return snapshot.timestamp

    def past(self, columns: list[str] | None, at: int) -> pa.Table:
        return self.table.scan(columns, at=at).to_table()

    def written_bytes(self) -> dict[str, int]:
        """By operation: of all files that were written since the table was opened."""
        sums = self.table.metrics()
        names = {name: f"{name.replace(' ', '_')}_output_bytes" for name in WRITES}
        return {name: int(sums[key]) for name, key in names.items() if key in sums}


def clean_copy(path: Path, rows: pa.Table) -> Churned:
    made = Churned(path, maintenance="manual")
    made.load(rows)
    made.settle()
    return made


def churned(path: Path, size: Size, **options: Any) -> tuple[Churned, pa.Table]:
    rows = rows_of(np.arange(size.rows), 0)
    made = Churned(path, **options)
    made.load(rows)
    made.settle()
    return made, rows


def duck(path: Path, rows: pa.Table) -> DuckDB:
    made = DuckDB(path, durability="none", schema=SCHEMA)
    made.load(rows)
    made.settle()
    return made


def state_after(rows: pa.Table, rounds: list[pa.Table]) -> pa.Table:
    """What is there after rounds of upserts, in the order of keys 0, 1, 2, ..."""
    columns = {name: rows[name].to_numpy().copy() for name in rows.column_names}
    for changed in rounds:
        at = changed["k"].to_numpy()
        for name, values in columns.items():
            values[at] = changed[name].to_numpy()
    return pa.table(columns, schema=rows.schema)


__all__ = [
    "Churned",
    "Size",
    "Times",
    "churned",
    "clean_copy",
    "duck",
    "in_turns",
    "rows_of",
    "some_of",
    "spent",
    "state_after",
]
