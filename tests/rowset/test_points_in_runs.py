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


@pytest.mark.parametrize("dtype", ["int64", "uint32", "int8"])
def test_regular_steps_that_begin_again_and_skip(tmp_path: Path, dtype: str, seed: int) -> None:
    """A mini-block whose deltas are equal but for a few: a bound is computed, piece by piece."""
    rng = random.Random(seed)
    schema = pa.schema([("host", pa.string()), ("time", pa.type_for_alias(dtype)), ("v", pa.int32())])
    keys: list[tuple[str, int]] = []
    for host in ("a", "bb", "c"):
        time = rng.randrange(-120, -60) if dtype.startswith("i") else rng.randrange(100)
        for _ in range(rng.randrange(30, 60) if dtype == "int8" else rng.randrange(200, 900)):
            keys.append((host, time))
            time += 3 * rng.randrange(2, 9) if rng.random() < 0.004 else 3
    if dtype == "int8":
        keys = [key for key in keys if key[1] < 128]
    data = pa.table(
        {"host": [k[0] for k in keys], "time": [k[1] for k in keys], "v": range(len(keys))}, schema=schema
    )
    options = {"ingest_threshold_rows": 1, "maintenance": "manual"}
    with kc.create_table(tmp_path / "t", schema, ["host", "time"], options=options) as table:
        table.insert(data)
        number = {key: k for k, key in enumerate(keys)}
        tops = {"int64": 2**63 - 1, "uint32": 2**32 - 1, "int8": 127}
        asked = [(host, time + near) for host, time in keys for near in (-1, 0, 1) if 0 <= time + near < 127]
        asked += [(host, top) for host in ("a", "bb", "c") for top in (tops[dtype], 0)] + keys
        found = table.get_many(asked)
        assert found["v"].to_pylist() == [number.get(key) for key in asked]
        for (host, time), key in zip(asked[:300], asked[:300], strict=True):
            row = table.get((host, time))
            assert (None if row is None else row["v"]) == number.get(key)
        for host in ("a", "bb", "c"):
            for lower, upper in ((-50, 90), (0, 1), (7, 400), (33, 34)):
                if dtype == "uint32" and lower < 0:
                    continue
                where = [("host", "=", host), ("time", ">=", lower), ("time", "<=", min(upper, tops[dtype]))]
                want = sorted(k for (h, t), k in number.items() if h == host and lower <= t <= upper)
                assert sorted(table.scan(where=where).to_table()["v"].to_pylist()) == want
