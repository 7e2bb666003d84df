"""Bitmaps agree with lists of flags, and what does not exist is refused."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from kudu_core._ext.columns import bitmaps
from tests.support.cases.cfile import u8
from tests.support.oracles.columns import columns as oracle
from tests.support.rounds import rounds


def random_bits(rng: np.random.Generator, rows: int) -> npt.NDArray[np.uint8] | None:
    if rng.random() < 0.2:
        return None
    return rng.integers(0, 256, (rows + 7) // 8 + int(rng.integers(0, 2)), np.uint8)


def random_rows(rng: np.random.Generator, rows: int) -> npt.NDArray[np.int64]:
    count = int(rng.integers(0, 90))
    if rows == 0:
        return np.full(count, -1, np.int64)
    return rng.integers(-1, rows, count)


def test_take_agrees_with_oracle(long: bool) -> None:
    for rng in rounds(long, 60):
        rows = int(rng.integers(0, 70))
        chosen = random_rows(rng, rows)
        bits = random_bits(rng, rows)
        flags = oracle.take(oracle.flags_of_bits(bits, rows), chosen.tolist(), 0)
        got = bitmaps.bits_take(bits, rows, chosen)
        assert (got is None) == all(flags)
        assert got is None or got.tobytes() == oracle.bits_of_flags(flags)


def test_interleave_agrees_with_oracle(long: bool) -> None:
    for rng in rounds(long, 60):
        counts = rng.integers(0, 30, int(rng.integers(1, 6)))
        n = int(rng.integers(0, 100)) if counts.any() else 0
        choices = np.flatnonzero(counts) if counts.any() else np.zeros(1, np.int64)
        source = rng.choice(choices, n).astype(np.int32)
        position = (rng.random(n) * counts[source]).astype(np.int64) if n else np.zeros(0, np.int64)
        position[rng.random(n) < 0.1] = -1
        source[(position == -1) & (rng.random(n) < 0.5)] = -2  # then it is not looked at
        bits = [(random_bits(rng, int(count)), int(count)) for count in counts]
        parts = [oracle.flags_of_bits(*part) for part in bits]
        flags = oracle.interleave(parts, source.tolist(), position.tolist(), 0)
        got = bitmaps.interleave_bits(bits, source, position)
        assert (got is None) == all(flags)
        assert got is None or got.tobytes() == oracle.bits_of_flags(flags)


def test_bitmaps_agree_with_lists_of_flags(long: bool) -> None:
    for rng in rounds(long, 200):
        n = int(rng.integers(0, 300))
        bits = rng.integers(0, 256, (n + 7) // 8 + 1, np.uint8)
        flags = oracle.flags_of_bits(bits, n)
        assert bitmaps.bits_count(bits, n) == sum(flags)
        assert bitmaps.bits_to_bytes(bits, n).tolist() == flags
        wide = np.array(flags, np.uint8) * rng.integers(1, 256, n).astype(np.uint8)
        assert bitmaps.bytes_to_bits(wide).tobytes() == oracle.bits_of_flags(flags)
        lower = int(rng.integers(0, n + 1))
        upper = int(rng.integers(lower, n + 1))
        part = bitmaps.bits_slice(bits, lower, upper - lower)
        assert part.tobytes() == oracle.bits_of_flags(flags[lower:upper])
        parts = [(random_bits(rng, k), k) for k in map(int, rng.integers(0, 150, int(rng.integers(0, 6))))]
        joined = bitmaps.bits_concat(parts)
        all_flags = [flag for p in parts for flag in oracle.flags_of_bits(*p)]
        assert (joined is None) == all(p is None for p, _ in parts)
        assert joined is None or joined.tobytes() == oracle.bits_of_flags(all_flags)
        for value in (False, True):
            assert bitmaps.bits_full(n, value).tobytes() == oracle.bits_of_flags([value] * n)


@pytest.mark.parametrize("row", [-2, 3, 2**62, -(2**62)])
def test_a_row_that_does_not_exist_is_an_index_error(row: int) -> None:
    rows = np.array([0, -1, row], np.int64)
    for bits in (None, u8(b"\xff")):
        with pytest.raises(IndexError, match=f"{row}.*position 2"):
            bitmaps.bits_take(bits, 3, rows)
        with pytest.raises(IndexError, match=f"{row}.*position 2"):
            bitmaps.interleave_bits([(bits, 3)], np.zeros(3, np.int32), rows)


@pytest.mark.parametrize("part", [-1, 1, 2**31 - 1])
def test_a_source_that_does_not_exist_is_an_index_error(part: int) -> None:
    with pytest.raises(IndexError):
        bitmaps.interleave_bits([(None, 1)], np.array([part], np.int32), np.zeros(1, np.int64))


def test_shapes_that_do_not_fit_are_refused() -> None:
    nothing = np.zeros(0, np.int64)
    for call in (
        lambda: bitmaps.bits_count(u8(b"a"), 9),
        lambda: bitmaps.bits_to_bytes(u8(b"a"), 9),
        lambda: bitmaps.bits_take(u8(b"a"), 9, nothing),
        lambda: bitmaps.bits_slice(u8(b"a"), 4, 5),
        lambda: bitmaps.bits_slice(u8(b"a"), -1, 5),
        lambda: bitmaps.bits_concat([(u8(b"a"), 9)]),
        lambda: bitmaps.interleave_bits([(u8(b"a"), 9)], np.zeros(0, np.int32), nothing),
    ):
        with pytest.raises(ValueError):
            call()
