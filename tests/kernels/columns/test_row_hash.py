"""The hash of a row is XXH64 chained over its cells, and sums of hashes know no order."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kudu_core._ext.columns import row_hash
from tests.support.oracles.columns import row_hash as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
WIDTHS = [1, 2, 4, 8, 16, 0]


def drawn(rng: np.random.Generator, width: int, rows: int, nulls: bool) -> tuple[Any, list[bytes | None]]:
    """(arguments of the kernel after the width, the cells that they stand for)."""
    sizes = [width or int(rng.choice([0, 1, 3, 4, 7, 8, 31, 32, 100])) for _ in range(rows)]
    cells: list[bytes | None] = [rng.bytes(size) for size in sizes]
    offsets = None
    lead = b""
    if not width:
        lead = rng.bytes(int(rng.integers(4)))
        offsets = (len(lead) + np.concatenate([[0], np.cumsum(sizes)])).astype(np.int32)
    joined = b"".join(map(bytes, cells))  # type: ignore[arg-type]
    values = np.frombuffer(lead + joined + rng.bytes(3), np.uint8)
    validity = None
    if nulls:
        valid = rng.integers(0, 2, rows).astype(bool)
        validity = np.packbits(valid, bitorder="little")
        cells = [cell if there else None for cell, there in zip(cells, valid, strict=True)]
    return (values, offsets, validity), cells


@pytest.mark.parametrize("nulls", [False, True], ids=["none", "nulls"])
@pytest.mark.parametrize("width", WIDTHS)
def test_cells_are_chained(width: int, nulls: bool) -> None:
    rng = np.random.default_rng(FIRST_SEED)
    for rows in (0, 1, 7, 8, 9, 100):
        arguments, cells = drawn(rng, width, rows, nulls)
        seeds = rng.integers(0, 1 << 64, rows, np.uint64)
        column_id = int(rng.choice([0, 1, 77, (1 << 32) - 1]))
        hashes = seeds.copy()
        row_hash.chain_column(column_id, width, *arguments, hashes)
        wanted = [oracle.cell_hash(int(s), column_id, c) for s, c in zip(seeds, cells, strict=True)]
        assert hashes.tolist() == wanted


def test_sums() -> None:
    hashes = np.random.default_rng(FIRST_SEED).integers(0, 1 << 64, 1000, np.uint64)
    told = hashes.tolist()
    wanted = sum(told) & oracle.WORD, sum(map(oracle.mixed, told)) & oracle.WORD
    assert row_hash.sums(hashes) == row_hash.sums(hashes[::-1].copy()) == wanted
    assert row_hash.sums(hashes[:0]) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((-1, 1, b"ab", None, None), "column id"),
        ((1 << 32, 1, b"ab", None, None), "column id"),
        ((1, 3, b"abcdef", None, None), "width 3"),
        ((1, 2, b"abc", None, None), "3 bytes are not 2 cells"),
        ((1, 1, b"ab", [0, 1, 2], None), "offsets of cells"),
        ((1, 1, b"ab", None, b""), "0 bytes of validity"),
        ((1, 0, b"ab", None, None), "needs 3 offsets"),
        ((1, 0, b"ab", [0, 2], None), "needs 3 offsets"),
        ((1, 0, b"ab", [0, 2, 1], None), "row 1 descend"),
        ((1, 0, b"ab", [-1, 1, 2], None), "row 0 descend"),
        ((1, 0, b"ab", [0, 1, 3], None), "row 1 descend or leave the 2 bytes"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: tuple[Any, ...], told: str) -> None:
    column_id, width, values, offsets, validity = arguments
    hashes: npt.NDArray[np.uint64] = np.zeros(2, np.uint64)
    with pytest.raises(ValueError, match=told):
        row_hash.chain_column(
            column_id,
            width,
            np.frombuffer(values, np.uint8),
            None if offsets is None else np.array(offsets, np.int32),
            None if validity is None else np.frombuffer(validity, np.uint8),
            hashes,
        )
