"""What the tests of streams share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int32()), ("u", pa.uint16())])


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table of two tablets: 600 rows flushed, then 400 more, 100 updates and 2 deletions."""
    path = str(tmp_path / "table")
    with kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition("k", 2)) as table:
        table.insert({"k": range(600), "v": range(600), "u": [1] * 600})
        table.flush()
        table.insert({"k": range(600, 1000), "v": [0] * 400})
        table.update({"k": range(100), "v": [7] * 100})
        table.delete([3, 4])
    return path


def state(path: str) -> dict[int, Any]:
    with kc.open_table(path) as table:
        return {row["k"]: (row["v"], row["u"]) for row in table.scan().to_table().to_pylist()}
