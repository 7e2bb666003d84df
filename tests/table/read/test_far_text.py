"""Rows of many text columns got one by one, whose pages the cache has, or had, and nobody holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc

ROWS, COLUMNS = 3000, 20


def rows_of(seed: int) -> pa.Table:
    """Random text, words of few values, cells of no bytes and of some KB, NULLs; a number between them."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {"k": np.arange(ROWS)}
    for number in range(COLUMNS):
        size = int(rng.choice([0, 1, 20, 100, 3000], p=[0.1, 0.2, 0.3, 0.3, 0.1]))
        few = rng.random() < 0.3
        words = [rng.integers(97, 123, size).astype(np.uint8).tobytes().decode() for _ in range(40)]
        cells: list[Any] = []
        for row in range(ROWS):
            nothing = rng.random() < 0.1
            cells.append(None if nothing else words[row % 40] if few else f"{words[row % 40]}{row}")
        columns[f"s{number:02}"] = pa.array(cells, pa.string())
        if number == COLUMNS // 2:
            columns["n"] = rng.integers(0, 1000, ROWS)
    return pa.table(columns)


@pytest.mark.parametrize("share", [0.05, 0.5, 4.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_row_is_what_was_written(tmp_path: Path, seed: int, share: float) -> None:
    rows = rows_of(seed)
    path = str(tmp_path / "t")
    kc.create_table(path, rows.schema, "k", options={"maintenance": "manual"}).close()
    with kc.open_table(path, "rw") as table:
        table.insert(rows)
        table.flush()
    wanted = rows.to_pylist()
    rng = np.random.default_rng(seed)
    options = {"page_cache_bytes": int(share * rows.nbytes), "memory_limit_bytes": 256 << 20}
    with kc.open_table(path, options=options) as table:
        for turn in range(3):
            if turn < 2:
                assert table.scan().count() == table.scan().to_table().num_rows == ROWS
            for key in rng.choice(ROWS, 400).tolist():
                assert table.get(key) == wanted[key], key
            names = rng.choice(rows.column_names[1:], 5, replace=False).tolist()
            for key in rng.choice(ROWS, 50).tolist():
                assert table.get(key, names) == {name: wanted[key][name] for name in names}
