"""Random changes of columns and ranges between writes, flushes, compactions and reopens, against a model."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from tests.support.faults import checking
from tests.support.models.altering import Altering

OPTIONS = {
    "maintenance": "manual",
    "scan_threads": 1,
    "history_retention_s": None,
    "file_grace_s": 0,
    "rowset_target_bytes": 65_536,
    "ingest_threshold_rows": 5,
}


@pytest.mark.parametrize("number", range(4))
def test_a_table_that_is_altered_over_and_over(number: int, tmp_path: Path, seed: int, long: bool) -> None:
    case = seed * 1000 + number
    print(f"case {case}; run again with --seed={seed}")
    rng = random.Random(case)
    with checking(number % 2 == 0):
        path = str(tmp_path / "t")
        model, table = Altering.begin(path, hashed=rng.random() < 0.5, options=OPTIONS)
        scans: list[Any] = []  # of before, and what they have to give
        for step in range(600 if long else 40):
            kind = rng.random()
            if kind < 0.45:
                model.write(rng, table, rng.choice((1, 3, 12)))
            elif kind < 0.75:
                scans.append((table.scan(), model.now.columns, model.now.state(model.now.columns)))
                model.alter(rng, table, most=4)
                for scan, columns, state in rng.sample(scans, min(2, len(scans))):
                    assert model.found(scan, columns) == state, "a scan keeps its columns"
            elif kind < 0.85:
                table.flush()
            elif kind < 0.9:
                table.compact(full=rng.random() < 0.5)
                table.gc()
            elif kind < 0.95:
                with kc.open_table(path) as reader:
                    model.check(rng, reader)
            else:
                scans.clear()
                table.close()
                table = kc.open_table(path, "rw")
            if step % 5 == 0:
                model.check(rng, table)
        table.close()
        with kc.open_table(path, "rw") as table:
            model.check(rng, table, looks=20)
