"""``get_many`` of numbers packed in every way: of each width and number of bits, with what is packed
otherwise beside it, for keys that lie close together and far apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc

ROWS = 3 * 1024 + 100
"""Whole mini-blocks, and one that is not."""
WIDTHS = {1: pa.uint8(), 2: pa.int16(), 4: pa.uint32(), 8: pa.int64()}


def columns() -> dict[str, pa.Array]:
    """Of each width each number of bits; sparse nulls, exceptions and doubles of decimals besides."""
    rng = np.random.default_rng(5)
    made = {"k": pa.array(np.arange(ROWS) * 3)}
    for width, kind in WIDTHS.items():
        for bits in range(1, 8 * width + 1):
            numbers = rng.integers(0, (1 << bits) - 1, ROWS, np.uint64, endpoint=True)
            made[f"{width}x{bits}"] = pa.array(numbers.astype(f"<u{width}").view(f"<{_letter(kind)}{width}"))
    far = rng.integers(0, 500, ROWS)
    far[::97] = 1 << 40
    made["far"] = pa.array(far)
    made["null"] = pa.array(rng.integers(0, 500, ROWS), mask=rng.random(ROWS) < 0.1)
    made["decimal"] = pa.array(np.round(rng.normal(50, 10, ROWS), 2))
    made["decimal32"] = pa.array(np.round(rng.normal(50, 10, ROWS), 1).astype(np.float32))
    return made


def _letter(kind: pa.DataType) -> str:
    return "u" if str(kind).startswith("u") else "i"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kc.Table]:
    path: Path = tmp_path_factory.mktemp("packed") / "t"
    rows = pa.table(columns())
    with kc.create_table(path, rows.schema, "k", options={"maintenance": "manual"}) as made:
        made.insert(rows)
        made.flush()
        yield made


@pytest.mark.parametrize("step", [1, 7, 400])
def test_cells_are_those_of_the_scan(table: kc.Table, step: int) -> None:
    """First in the order of the rows, then in none, with keys between that have no row."""
    rows = table.scan(order="key").to_table()
    places = np.arange(0, ROWS, step)
    for order in (places, np.random.default_rng(step).permutation(places)):
        for _ in range(2):  # the first opens mini-blocks, which the second finds open
            found = table.get_many((order * 3).tolist())
            assert found.drop_columns("_found").cast(rows.schema).equals(rows.take(pa.array(order)))
    keys = np.sort(np.concatenate([places * 3, places * 3 + 1]))
    found = table.get_many(keys.tolist())
    assert found["_found"].to_pylist() == (keys % 3 == 0).tolist()
    there = found.filter(found["_found"]).drop_columns("_found")
    assert there.cast(rows.schema).equals(rows.take(pa.array(places)))
