"""Cells of rows of several files come as one column, whatever each file stores them as."""

from __future__ import annotations

import os
import random
from typing import Any

import numpy as np
import pytest

from kudu_core._ext.base.status import NeedsGeneralPath
from kudu_core._ext.row.column import PointColumn
from kudu_core._ext.row.file import PointFile
from kudu_core._ext.row.scattered import gather
from tests.kernels.row.test_file import SIZES, fixed, series, strings, worded
from tests.support.oracles.row import scattered as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
WIDTHS = {1: np.int8, 2: np.uint16, 4: np.int32, 8: np.int64}


def column_of(r: random.Random, width: int, n: int) -> tuple[PointColumn, list[bytes | None]]:
    valid = np.array([r.random() < 0.9 for _ in range(n)]) if r.random() < 0.5 else np.ones(n, bool)
    if width:
        values = series(r, n, WIDTHS[width])
        cells = [value.tobytes() for value in values]
        column = fixed(values, valid, int(values.dtype.kind == "i"), 0, page_bits=r.choice([10, 14]))
    else:
        cells = [r.choice(["", "a", "word", f"{r.randrange(50)}" * 9]).encode() for _ in range(n)]
        if r.random() < 0.5 or not valid.any():
            column = strings(cells, valid, 0, page_bits=r.choice([0, 3, 9, 10, 14]))
        else:
            column = worded(cells, valid, 0)
    return column, [cell if v else None for cell, v in zip(cells, valid.tolist(), strict=True)]


def cells_of(found: Any, width: int, n: int) -> list[bytes | None]:
    values, ends, validity = found
    raw = values.tobytes()
    at = [width * i for i in range(n + 1)] if ends is None else ends.tolist()
    assert (ends is None) == bool(width) and len(raw) == at[n]
    nulls = [validity is not None and not validity[i >> 3] >> (i & 7) & 1 for i in range(n)]
    assert validity is None or (any(nulls) and len(validity) == (n + 7) // 8)
    return [None if nulls[i] else raw[at[i] : at[i + 1]] for i in range(n)]


@pytest.mark.parametrize("width", [0, *WIDTHS])
def test_cells_of_many_files(width: int, long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (200 if long else 12)):
        print(f"seed {seed}")
        r = random.Random(seed)
        sizes = [r.choice(SIZES) for _ in range(r.choice([1, 2, 5]))]
        made = [column_of(r, width, n) for n in sizes]
        files = [PointFile(n, {7: c}, None, None, None, None) for n, (c, _) in zip(sizes, made, strict=True)]
        for count in (0, 1, 9, 300):
            sources = [r.randrange(len(files)) for _ in range(count)]
            if r.random() < 0.5:
                sources.sort()
            rows = [r.randrange(sizes[s]) for s in sources]
            found = gather(files, np.array(sources, np.int32), np.array(rows, np.int64), 7, width)
            expected = oracle.gather([cells for _, cells in made], sources, rows)
            assert cells_of(found, width, count) == expected


def test_what_it_leaves_to_others() -> None:
    column, _ = column_of(random.Random(1), 4, 10)
    file = PointFile(10, {7: column}, None, None, None, None)
    other = PointFile(10, {8: column}, None, None, None, None)
    none, rows = np.zeros(1, np.int32), np.zeros(1, np.int64)
    with pytest.raises(NeedsGeneralPath):
        gather([other], none, rows, 7, 4)
    for wrong, error in (
        (([file], none, rows, 7, 8), ValueError),
        (([file], none, rows, 7, 3), ValueError),
        (([file], none, np.zeros(2, np.int64), 7, 4), ValueError),
        (([file], none + 1, rows, 7, 4), IndexError),
        (([file], none - 1, rows, 7, 4), IndexError),
        (([file], none, rows + 10, 7, 4), IndexError),
        (([file], none, rows - 1, 7, 4), IndexError),
        (([None], none, rows, 7, 4), TypeError),
    ):
        with pytest.raises(error):
            gather(*wrong)  # type: ignore[arg-type]
    prefixed = strings([b"a", b"b"], np.ones(2, bool), 0, prefix=True)
    with pytest.raises(NeedsGeneralPath):
        gather([PointFile(2, {7: prefixed}, None, None, None, None)], none, rows, 7, 0)
    file.close()
    with pytest.raises(NeedsGeneralPath):
        gather([file], none, rows, 7, 4)


@pytest.mark.parametrize("width", [0, 4])
def test_a_file_that_is_closed_while_room_is_made(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pages have gone with it: not one more cell is read of them."""
    n = 9
    valid = np.arange(n) != 2
    column = fixed(np.arange(n, dtype=np.int32), valid, 1, 0) if width else strings([b"cell"] * n, valid, 0)
    file = PointFile(n, {7: column}, None, None, None, None)
    made = np.full

    def full(*given: Any) -> np.ndarray:
        file.close()
        return made(*given)

    monkeypatch.setattr("kudu_core._ext.row.scattered.np.full", full)
    with pytest.raises(NeedsGeneralPath):
        gather([file], np.zeros(n, np.int32), np.arange(n), 7, width)
