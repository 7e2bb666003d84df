"""A row that was updated 10,000 times, beside one that never was: reading it is a search, not a walk.

The updates lie in memory, then in one delta file, then folded into the base (with the history in UNDO).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc

ROWS, UPDATES, READS = 200_000, 10_000, 200
SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.float64()), ("b", pa.int64()), ("s", pa.string())])
HOT, COLD = 5, 100_005
PLACES = ("memory", "delta file", "compacted")


@pytest.fixture(scope="module", params=PLACES)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = {"maintenance": "manual", "durability": "none"}
    path = tmp_path_factory.mktemp("hot") / "t"
    with kc.create_table(path, SCHEMA, "k", options=options) as made:
        k = list(range(ROWS))
        made.insert({"k": k, "a": [0.5] * ROWS, "b": k, "s": ["word"] * ROWS})
        made.flush()
        for i in range(UPDATES):
            made.update([{"k": HOT, "a": float(i)}])
        made.update([{"k": COLD + 1, "a": 1.0}])  # the same stores are asked for the cold row too
        if request.param != "memory":
            made.flush()
        if request.param == "compacted":
            made.compact(full=True)
        yield request.param, made


@pytest.mark.parametrize("row", ["cold", "hot"])
@pytest.mark.parametrize("how", ["get", "get_many", "scan"])
def test_reading(benchmark: Any, table: tuple[str, kc.Table], how: str, row: str) -> None:
    place, made = table
    key = HOT if row == "hot" else COLD
    reads: dict[str, Callable[[], Any]] = {
        "get": lambda: [made.get(key) for _ in range(READS)][-1],
        "get_many": lambda: made.get_many([key]).to_pylist()[0],
        "scan": lambda: made.scan(where=[("k", "=", key)]).to_table().to_pylist()[0],
    }
    benchmark.group = f"{how}, {place}"
    found = benchmark(reads[how])
    assert found["a"] == (UPDATES - 1 if row == "hot" else 0.5)
