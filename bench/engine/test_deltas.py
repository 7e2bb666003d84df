"""Scans over changes that no compaction has folded in: one updated column, all columns, a count.

A tenth of the rows updated in one double column, in batches of random keys: in a DeltaMemStore, in one REDO
file, in ten, and after a major compaction, beside the same table without a change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from bench.compare import data

LAYOUTS = ("clean", "DeltaMemStore", "one REDO file", "ten REDO files", "compacted")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, kc.Table] = {}
    rows = data.readings()
    options = {"maintenance": "manual", "flush_threshold_bytes": 1 << 30, "ingest_threshold_rows": 1 << 30}

    def get(layout: str) -> kc.Table:
        if layout in made:
            return made[layout]
        path = tmp_path_factory.mktemp("deltas") / "t"
        table = made[layout] = kc.create_table(path, rows.schema, data.KEY, options=options)
        table.insert(rows)
        table.flush()
        if layout == "clean":
            return table
        changed = np.random.default_rng(3).permutation(data.ROWS)[: data.ROWS // 10]
        for number, part in enumerate(np.array_split(changed, 20)):
            table.update(rows.take(pa.array(part)).select([*data.KEY, "load"]))
            if layout == "ten REDO files" and number % 2:
                table.flush()
        if layout in ("one REDO file", "compacted"):
            table.flush()
        if layout == "compacted":
            table.compact(full=True)
        return table

    yield get
    for table in made.values():
        table.close()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("what", ["the column", "all columns", "count"])
def test_scan(benchmark: Any, tables: Any, layout: str, what: str) -> None:
    table = tables(layout)
    benchmark.group = f"a tenth of the rows updated: {what}"
    benchmark.extra_info["rows"] = data.ROWS

    def run() -> int:
        if what == "count":
            return int(table.count())
        return int(table.scan(["load"] if what == "the column" else None).to_table().num_rows)

    assert benchmark.pedantic(run, rounds=5, warmup_rounds=1) == data.ROWS
