"""A batch of Arrow that is written, by the compiled walk: 1,000 rows of four columns a call."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import kudu_core as kc
from kudu_core._ext.batch.batch_writes import BatchWrites
from kudu_core._ext.rules.decide import CALL_INSERT
from kudu_core.table.write.one_row import writes_of
from tests.support.inside import engine_of

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("f", pa.float64()), ("w", pa.string())])
ROWS = 1000


def test_write_batch(benchmark: Any, tmp_path: Path) -> None:
    options = {"durability": "none", "maintenance": "manual"}
    with kc.create_table(tmp_path / "t", SCHEMA, "k", options=options) as table:
        writes = writes_of(engine_of(table))
        assert isinstance(writes, BatchWrites)
        calls = itertools.count()

        def rows() -> tuple[tuple[pa.RecordBatch], dict[str, Any]]:
            keys = np.arange(ROWS) + next(calls) * ROWS
            words = pa.array([f"w{k % 1000}" for k in keys])
            return (pa.record_batch([keys, keys * 3, keys * 0.5, words], schema=SCHEMA),), {}

        benchmark.extra_info["rows"] = ROWS
        benchmark.pedantic(
            lambda batch: writes.write_batch(CALL_INSERT, False, batch), setup=rows, rounds=200
        )
        assert table.count() == next(calls) * ROWS
