"""Gathers, interleaves and bitmaps: 65,536 rows, in cache, output allocated by the call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.columns import bitmaps, columns

ROWS = 65_536
RNG = np.random.default_rng(4)
ANY_ROWS = RNG.integers(0, ROWS, ROWS)
OFFSETS = np.concatenate([[0], np.cumsum(RNG.integers(4, 16, ROWS))]).astype(np.int32)
DATA = RNG.integers(0, 256, int(OFFSETS[-1]), np.uint8)
BITS = RNG.integers(0, 256, ROWS // 8, np.uint8)
SOURCE = RNG.integers(0, 4, ROWS).astype(np.int32)
POSITION = np.arange(ROWS, dtype=np.int64)


@pytest.mark.benchmark(group="kernel: take fixed")
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_take_fixed(benchmark: Any, width: int) -> None:
    values = RNG.integers(0, 256, ROWS * width, np.uint8)
    benchmark.extra_info |= {"rows": ROWS}
    got = benchmark(columns.take_fixed, values, width, ANY_ROWS)
    assert np.array_equal(got.reshape(ROWS, width), values.reshape(ROWS, width)[ANY_ROWS])


@pytest.mark.benchmark(group="kernel: take var")
@pytest.mark.parametrize("order", ["any", "ascending"])
def test_take_var(benchmark: Any, order: str) -> None:
    rows = ANY_ROWS if order == "any" else np.arange(ROWS)
    benchmark.extra_info |= {"rows": ROWS, "bytes": len(DATA)}
    offsets, _ = benchmark(columns.take_var, DATA, OFFSETS, rows)
    assert np.array_equal(np.diff(offsets), np.diff(OFFSETS)[rows])


@pytest.mark.benchmark(group="kernel: interleave")
@pytest.mark.parametrize("kind", ["fixed", "var", "bits"])
def test_interleave(benchmark: Any, kind: str) -> None:
    benchmark.extra_info |= {"rows": ROWS}
    if kind == "fixed":
        values = RNG.integers(0, 256, 8 * ROWS, np.uint8)
        got = benchmark(columns.interleave_fixed, [values] * 4, 8, SOURCE, POSITION)
        assert np.array_equal(got, values)
    elif kind == "var":
        _, data = benchmark(columns.interleave_var, [(OFFSETS, DATA)] * 4, SOURCE, POSITION)
        assert np.array_equal(data, DATA)
    else:
        got = benchmark(bitmaps.interleave_bits, [(BITS, ROWS)] * 4, SOURCE, POSITION)
        assert np.array_equal(got, BITS)


@pytest.mark.benchmark(group="kernel: bitmaps")
def test_bits_take(benchmark: Any) -> None:
    benchmark.extra_info |= {"rows": ROWS}
    got = benchmark(bitmaps.bits_take, BITS, ROWS, POSITION)
    assert np.array_equal(got, BITS)


@pytest.mark.benchmark(group="kernel: bitmaps")
def test_bits_to_bytes(benchmark: Any) -> None:
    benchmark.extra_info |= {"rows": ROWS}
    got = benchmark(bitmaps.bits_to_bytes, BITS, ROWS)
    assert np.array_equal(got, np.unpackbits(BITS, bitorder="little"))


@pytest.mark.benchmark(group="kernel: bitmaps")
def test_bytes_to_bits(benchmark: Any) -> None:
    benchmark.extra_info |= {"rows": ROWS}
    got = benchmark(bitmaps.bytes_to_bits, bitmaps.bits_to_bytes(BITS, ROWS))
    assert np.array_equal(got, BITS)
