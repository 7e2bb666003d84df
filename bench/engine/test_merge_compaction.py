"""Merging compaction: rows a second, beside the bulk load of the same rows.

Four rowsets, whose keys lie between each other's, of the rows of ``bench/compare`` in random order;
``KUDU_CORE_BENCH_ROWS=2000000 ci/bench.sh bench/engine/test_merge_compaction.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from bench.compare import data
from kudu_core.tablet.compact.merge import Merged, merge_rowsets
from tests.support.inside import engine_of, tablets_of

ROUNDS = 1 if data.ROWS < 1_000_000 else 3
RUNS = 4


def shuffled() -> pa.Table:
    rows = data.readings()
    return rows.take(pa.array(np.random.default_rng(data.SEED).permutation(len(rows))))


def plain(table: kc.Table, rows: pa.Table) -> None:
    """Rowsets of rows without a past."""


def changed(table: kc.Table, rows: pa.Table) -> None:
    """One row in ten was updated, one in fifty deleted."""
    picked = rows.take(pa.array(np.arange(0, len(rows), 10)))
    table.update(picked.select([*data.KEY, "load"]))
    table.delete(rows.take(pa.array(np.arange(1, len(rows), 50))).select(data.KEY))
    table.flush()


def copied(table: kc.Table, rows: pa.Table) -> None:
    """One row in ten was deleted and inserted anew: its key has two copies."""
    picked = rows.take(pa.array(np.arange(0, len(rows), 10)))
    table.delete(picked.select(data.KEY))
    table.insert(picked)
    table.flush()


def measure(benchmark: Any, make: Callable[[], kc.Table], work: Callable[[kc.Table], Any]) -> kc.Table:
    made: list[kc.Table] = []

    def fresh() -> None:
        while made:
            made.pop().close()
        made.append(make())

    benchmark.group = "merge of four rowsets"
    benchmark.extra_info |= {"rows": data.ROWS}
    benchmark.pedantic(lambda: work(made[0]), setup=fresh, rounds=ROUNDS, iterations=1)
    return made.pop()


@pytest.mark.parametrize("threads", [1, 2])
def test_bulk_load(benchmark: Any, tmp_path: Path, threads: int) -> None:
    rows, number = shuffled(), itertools.count()
    options = {"maintenance": "manual", "scan_threads": threads}

    def make() -> kc.Table:
        return kc.create_table(tmp_path / str(next(number)), rows.schema, data.KEY, options=options)

    measure(benchmark, make, lambda table: table.insert(rows)).close()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("past", [plain, changed, copied], ids=lambda past: past.__name__)
def test_merge(benchmark: Any, tmp_path: Path, past: Callable[..., None], threads: int) -> None:
    rows, number = shuffled(), itertools.count()
    # Also the few rows of a test go straight to files, so that there are rowsets to merge.
    options = {"maintenance": "manual", "scan_threads": threads, "ingest_threshold_rows": 1000}

    def make() -> kc.Table:
        table = kc.create_table(tmp_path / str(next(number)), rows.schema, data.KEY, options=options)
        for run in range(RUNS):
            table.insert(rows.slice(run * len(rows) // RUNS, len(rows) // RUNS))
        past(table, rows)
        return table

    def merge(table: kc.Table) -> Merged | None:
        engine = engine_of(table)
        [tablet] = engine.tablets
        ids = [rowset.id for rowset in tablet.view.rowsets]
        return merge_rowsets(tablet, ids, horizon=lambda drop: engine.horizon(drop=drop), threads=threads)

    with measure(benchmark, make, merge) as table:
        [tablet] = tablets_of(table)
        bounds = [(r.meta.min_key, r.meta.max_key) for r in tablet.view.rowsets]
        assert all(a[1] < b[0] for a, b in itertools.pairwise(bounds))
        expected = len(rows) - (len(range(1, len(rows), 50)) if past is changed else 0)
        assert table.count() == expected
