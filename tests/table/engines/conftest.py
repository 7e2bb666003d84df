"""What the tests of engines share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc

PAGE = 16_384
ROWS = 40 * PAGE
SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in "kvw"),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("p", pa.decimal128(21, 2)),
    ]
)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tablets, cut at half of the keys, each one rowset of 20 pages or more of each column; all columns
    but w ascend."""
    path = tmp_path_factory.mktemp("engines") / "t"
    keys = np.arange(ROWS)
    halves = kc.RangePartition(["k"], bounds=[(None, ROWS // 2), (ROWS // 2, None)])
    options = {"maintenance": "manual", "ingest_threshold_rows": 1000}
    with kc.create_table(path, SCHEMA, "k", partition_by=halves, options=options) as table:
        text = np.char.mod("row %07d", keys)
        days = pa.array((keys // 1000).astype(np.int32)).cast(pa.date32())
        prices = pa.array(keys).cast(SCHEMA.field("p").type)
        table.insert({"k": keys, "v": keys * 2, "w": keys % 1000, "s": text, "d": days, "p": prices})
    return path


@pytest.fixture
def reader(folder: Path) -> Iterator[kc.Table]:
    with kc.open_table(folder) as table:
        yield table


@pytest.fixture
def read_by(folder: Path) -> Callable[[Callable[[kc.Table], Any]], tuple[Any, int]]:
    """(What a query answers, of a table that nothing was read of; how many pages it read)."""

    def read(query: Callable[[kc.Table], Any]) -> tuple[Any, int]:
        with kc.open_table(folder) as table:
            answer = query(table)
            return answer, int(table.metrics()["page_cache_misses"])

    return read
