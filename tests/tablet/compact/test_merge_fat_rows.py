"""Rows so large that few of them fill an output: a merge and a bulk load cut between any two of them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kudu_core.rowset.history import merging
from kudu_core.table.ingest import build
from tests.support.inside import tablet_of
from tests.support.tables import Make

CELL_BYTES = 400_000
ROWS = 60
LIMIT_BYTES = 16 << 20
SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("p", pa.binary())])


def cells(rng: random.Random, count: int) -> pa.Array:
    return pa.array([rng.randbytes(CELL_BYTES) for _ in range(count)], pa.binary())


def test_ranges_of_a_merge_are_bounded_in_bytes(
    make: Make, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few rows that is: 1,024 of them would be 400 MB."""
    rng = random.Random(seed)
    table = make(SCHEMA, memory_limit_bytes=LIMIT_BYTES, scan_threads=1)
    wanted: dict[int, bytes] = {}
    for first in (0, 1):
        keys = list(range(first, ROWS, 2))
        for lower in range(0, len(keys), 5):
            part = keys[lower : lower + 5]
            rows = pa.table({"k": part, "p": cells(rng, len(part))}, schema=SCHEMA)
            table.insert(rows)
            wanted |= dict(zip(part, rows["p"].to_pylist(), strict=True))
        table.flush()
    ranges: list[tuple[np.ndarray, Any]] = []
    plan = merging.plan

    def noted(sources: Any, sizes: Any, limits: Any) -> np.ndarray:
        ranges.append((plan(sources, sizes, limits), limits))
        return ranges[-1][0]

    monkeypatch.setattr("kudu_core.tablet.compact.merge.plan", noted)
    table.compact(full=True)
    assert ranges, "nothing was merged"
    for edges, limits in ranges:
        rows_of_range = np.diff(edges, axis=0).sum(axis=1)
        assert rows_of_range.sum() > 5
        assert rows_of_range.max() * CELL_BYTES <= 1.5 * max(limits.memory_bytes, CELL_BYTES)
    found = table.scan(order="key").to_table()
    assert dict(zip(found["k"].to_pylist(), found["p"].to_pylist(), strict=True)) == wanted
    assert len(tablet_of(table).view.rowsets) > 1


def test_ranges_of_a_load_are_bounded_in_bytes(
    make: Make, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    table = make(SCHEMA, memory_limit_bytes=LIMIT_BYTES)
    keys = list(range(ROWS))
    rng.shuffle(keys)
    made: list[int] = []
    decide = build.decide_range

    def noted(schema: Any, partitions: Any, view: Any, cut: Any, range_: Any, rules: Any) -> Any:
        made.append(sum(upper - lower for _, lower, upper in range_.spans))
        return decide(schema, partitions, view, cut, range_, rules)

    monkeypatch.setattr(build, "decide_range", noted)
    written: dict[int, bytes] = {}

    def batches() -> Any:
        for first in range(0, ROWS, 4):
            part = keys[first : first + 4]
            batch = pa.record_batch([pa.array(part), cells(rng, len(part))], schema=SCHEMA)
            written.update(zip(part, batch.column(1).to_pylist(), strict=True))
            yield batch

    assert table.insert(batches()).inserted == ROWS
    assert sum(made) == ROWS
    assert max(made) * CELL_BYTES <= build.LARGE_FACTOR * LIMIT_BYTES // build.MEMORY_DIVISOR
    found = table.scan().to_table()
    assert dict(zip(found["k"].to_pylist(), found["p"].to_pylist(), strict=True)) == written
