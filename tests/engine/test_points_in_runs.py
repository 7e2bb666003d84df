"""Keys whose middle column lies in runs that ascend only under one value of the column before."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc


@pytest.mark.parametrize("rows", [5, 47, 700])
def test_every_key_is_found_and_refused_again(tmp_path: Path, rows: int, seed: int) -> None:
    rng = random.Random(seed)
    schema = pa.schema([("a", pa.string()), ("b", pa.uint16()), ("c", pa.uint64()), ("v", pa.int32())])
    last = (0, 1, 127, 255, 256, 65535, 2**63 - 1, *range(1000, 1000 + rows // 4))
    keys = sorted(
        {
            (rng.choice(["", "a", "0", "z"]), rng.choice([0, 2, 127, 255, 65534]), rng.choice(last))
            for _ in range(rows)
        }
    )
    data = pa.table(
        {
            "a": [k[0] for k in keys],
            "b": [k[1] for k in keys],
            "c": [k[2] for k in keys],
            "v": [1] * len(keys),
        },
        schema=schema,
    )
    options = {"ingest_threshold_rows": 1, "maintenance": "manual"}
    with kc.create_table(tmp_path / "t", schema, ["a", "b", "c"], options=options) as table:
        table.insert(data)
        assert [key for key in keys if table.get(key) is None] == []
        assert all(table.get_many(keys)["_found"].to_pylist())
        assert table.insert(data, on_conflict="ignore").ignored == len(keys)
        for a, b, c in keys[:20]:
            assert table.get((a, b + 1, c)) is None or (a, b + 1, c) in keys
