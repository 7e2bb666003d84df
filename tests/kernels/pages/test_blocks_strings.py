"""Pages of strings, dictionaries and zones agree with lists of cells."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kudu_core._ext.base.status import PageError
from kudu_core._ext.pages import blocks
from tests.support.cases import blocks as cases
from tests.support.oracles.pages import blocks as oracle

if TYPE_CHECKING:
    from kudu_core._ext.pages.strings import Cells

STRING_PREFIX = 7


def check(rng: np.random.Generator, payload: bytes, want: list[bytes | None]) -> None:
    n = len(want)
    values = [cell or b"" for cell in want]
    flags = np.array([cell is not None for cell in want], bool)

    def same(result: Cells, rows: list[int]) -> None:
        offsets, data, validity = result
        assert offsets[0] == 0
        assert cases.cells_of_var(offsets, data) == [values[row] for row in rows]
        np.testing.assert_array_equal(cases.flags_of(validity, len(rows)), flags[rows])

    same(blocks.decode_binary(payload, 0, n), list(range(n)))
    for _ in range(4):
        first = int(rng.integers(0, n + 1))
        count = int(rng.integers(0, n - first + 1))
        same(blocks.decode_binary(payload, first, count), list(range(first, first + count)))
    rows = rng.integers(0, n, 60 if n else 0)
    same(blocks.cells_binary(payload, rows), rows.tolist())


@pytest.mark.parametrize("n", [*cases.COUNTS, 16, 17])
@pytest.mark.parametrize("prefix", [False, True])
def test_strings_come_back(n: int, prefix: bool) -> None:
    rng = cases.generator(n)
    for name, cells in cases.string_columns(rng, n):
        print(name)
        start = int(rng.integers(0, 4))
        offsets, data = cases.var_of([bytes(start), *cells, b"tail"])
        for validity in cases.validities(rng, n):
            flags = cases.flags_of(validity, n)
            payload = blocks.encode_binary(offsets[1:-1], data, validity, prefix)
            check(rng, payload, [c if f else None for c, f in zip(cells, flags, strict=True)])


def test_oracle_and_kernel_read_each_other(long: bool) -> None:
    rng = cases.generator(1)
    for n in (0, 5, 1023, 1024, 2100) if long else (5, 1100):
        for name, cells in cases.string_columns(rng, n):
            for validity in cases.validities(rng, n)[:2]:
                print(name, n)
                flags = cases.flags_of(validity, n)
                want = [c if f else None for c, f in zip(cells, flags, strict=True)]
                offsets, data = cases.var_of(cells)
                for prefix, form in ((False, oracle.strings), (True, oracle.prefixed)):
                    payload = blocks.encode_binary(offsets, data, validity, prefix=prefix)
                    assert oracle.decode(payload) == want
                    mine = oracle.encode(want, 0, form)
                    assert mine == payload
                wide = oracle.encode(want, 0, lambda held: oracle.strings(held, 32))
                check(rng, wide, want)


def test_prefix_leaves_out_what_is_shared() -> None:
    cells = sorted(b"host-%05d\0\0%08d" % (k % 16, k) for k in range(16384))
    offsets, data = cases.var_of(cells)
    payload = blocks.encode_binary(offsets, data, None, True)
    assert len(payload) < 0.4 * len(blocks.encode_binary(offsets, data))
    assert {block[0] for block in blocks.describe(payload)} == {STRING_PREFIX}


def test_equal_lengths_need_no_ends() -> None:
    offsets, data = cases.var_of([b"%016d" % k for k in range(16384)])
    assert len(blocks.encode_binary(offsets, data)) < len(data) + 400


def test_the_data_come_from_the_callers_pool() -> None:
    pool = np.zeros(100, np.uint8)
    offsets, data = cases.var_of([b"abc", b"", b"de"])
    payload = blocks.encode_binary(offsets, data)
    _, found, _ = blocks.decode_binary(payload, 0, 3, lambda size: pool[:size])
    assert found.base is not None
    assert pool[:5].tobytes() == b"abcde"
    codes, word_offsets, word_data = blocks.dictionary_build(offsets, data, None, 10) or pytest.fail(
        "too large"
    )
    blocks.dictionary_expand(
        codes.view(np.uint8), 1, word_offsets, word_data, None, lambda size: pool[10 : 10 + size]
    )
    assert pool[10:15].tobytes() == b"abcde"


def test_callers_faults_are_refused() -> None:
    data = np.zeros(10, np.uint8)
    for bad in ([0, 11], [3, 2], [-1, 2], [11]):
        with pytest.raises(ValueError, match="offsets"):
            blocks.encode_binary(np.array(bad, np.int32), data)
    for bad in ([0, 11], [3, 2], [-1, 2]):
        with pytest.raises(ValueError, match="offsets"):
            blocks.zone_binary(np.array(bad, np.int32), data)
    with pytest.raises(ValueError, match="bounds of -1 bytes"):
        blocks.zone_binary(np.array([0, 1], np.int32), data, most_bytes=-1)
    for bad in ([0, 11], [3, 2], [-1, 2]):
        with pytest.raises(ValueError, match="offsets"):
            blocks.dictionary_build(np.array(bad, np.int32), data, None, 10)
    with pytest.raises(ValueError, match="rows"):
        blocks.encode_binary(np.zeros(16386, np.int32), data)
    with pytest.raises(ValueError, match="bitmap"):
        blocks.encode_binary(np.zeros(10, np.int32), data, bytes(1))
    payload = blocks.encode_binary(np.zeros(10, np.int32), data)
    for first, count in ((0, 10), (-1, 1), (10, 0), (0, -1)):
        with pytest.raises(IndexError):
            blocks.decode_binary(payload, first, count)
    for row in (-1, 9):
        with pytest.raises(IndexError):
            blocks.cells_binary(payload, np.array([row]))


@pytest.mark.parametrize("n", [0, 1, 1000, 30000])
def test_dictionaries_are_sorted_and_keep_order(n: int) -> None:
    rng = cases.generator(n)
    for name, cells in cases.string_columns(rng, n):
        print(name)
        offsets, data = cases.var_of([b"head", *cells])
        offsets = offsets[1:]
        for validity in cases.validities(rng, n):
            flags = cases.flags_of(validity, n)
            words = sorted({cell for cell, flag in zip(cells, flags, strict=True) if flag})
            built = blocks.dictionary_build(offsets, data, validity, 1 << 20)
            assert built is not None
            codes, word_offsets, word_data = built
            assert cases.cells_of_var(word_offsets, word_data) == words
            assert codes.itemsize == (1 if len(words) <= 256 else 2 if len(words) <= 65536 else 4)
            number = {word: code for code, word in enumerate(words)}
            assert codes.tolist() == [number[c] if f else 0 for c, f in zip(cells, flags, strict=True)]
            for width in (1, 2, 4):
                if width >= codes.itemsize:
                    raw = codes.astype(f"u{width}").view(np.uint8)
                    found = blocks.dictionary_expand(raw, width, word_offsets, word_data, validity)
                    assert cases.cells_of_var(*found) == [
                        c if f else b"" for c, f in zip(cells, flags, strict=True)
                    ]
            size = sum(map(len, words))
            if words:
                assert blocks.dictionary_build(offsets, data, validity, len(words) - 1) is None
                assert blocks.dictionary_build(offsets, data, validity, len(words), size) is not None
            if size:
                assert blocks.dictionary_build(offsets, data, validity, len(words), size - 1) is None


def test_codes_beyond_the_words_are_refused() -> None:
    word_offsets, word_data = cases.var_of([b"a", b"bb"])
    for width in (1, 2, 4):
        codes = np.array([0, 1, 2], f"u{width}").view(np.uint8)
        with pytest.raises(PageError) as caught:
            blocks.dictionary_expand(codes, width, word_offsets, word_data)
        assert caught.value.offset == 2 * width
        offsets, _ = blocks.dictionary_expand(codes, width, word_offsets, word_data, bytes([0b011]))
        assert offsets.tolist() == [0, 1, 3, 3]
    for bad in ([0, 2, 1], [0, 4], [-1, 2], []):
        with pytest.raises(ValueError, match="offsets"):
            blocks.dictionary_expand(bytes(1), 1, np.array(bad, np.int32), word_data)


@pytest.mark.parametrize("n", [0, 1, 1000])
def test_zones_hold_the_bounds(n: int) -> None:
    rng = cases.generator(6)
    for dtype in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"):
        for name, values in cases.integers(rng, n, dtype):
            for validity in cases.validities(rng, n):
                print(dtype, name)
                held = values[cases.flags_of(validity, n)]
                want = (held.min().tobytes(), held.max().tobytes()) if len(held) else (None, None)
                kind = 1 if dtype[0] == "i" else 0
                found = blocks.zone_fixed(cases.raw(values), values.itemsize, kind, validity)
                assert found == (*want, n - len(held), 0)
    for name, values in cases.decimals(rng, n):
        for validity in cases.validities(rng, n):
            print(name)
            cells = cases.cells_of(cases.raw(values), 16)
            numbers = [
                int.from_bytes(c, "little", signed=True)
                for c, f in zip(cells, cases.flags_of(validity, n), strict=True)
                if f
            ]
            bounds = (
                [x.to_bytes(16, "little", signed=True) for x in (min(numbers), max(numbers))]
                if numbers
                else [None, None]
            )
            assert blocks.zone_fixed(cases.raw(values), 16, 4, validity) == (*bounds, n - len(numbers), 0)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_zones_of_floats_leave_out_nan(dtype: str) -> None:
    rng = cases.generator(7)
    code = "<f" if dtype == "f4" else "<d"
    for n in (0, 1, 1000):
        for name, values in cases.floats(rng, n, dtype):
            for validity in cases.validities(rng, n):
                print(name)
                held = values[cases.flags_of(validity, n)]
                numbers = held[~np.isnan(held)]
                low, high, nulls, nans = blocks.zone_fixed(cases.raw(values), values.itemsize, 2, validity)
                assert (nulls, nans) == (n - len(held), len(held) - len(numbers))
                if len(numbers) == 0:
                    assert (low, high) == (None, None)
                else:
                    assert low is not None
                    assert high is not None
                    assert struct.unpack(code, low)[0] == numbers.min()
                    assert struct.unpack(code, high)[0] == numbers.max()


def test_zones_of_strings() -> None:
    rng = cases.generator(8)
    for n in (0, 1, 1000):
        for name, cells in cases.string_columns(rng, n):
            offsets, data = cases.var_of([b"head", *cells])
            for validity in cases.validities(rng, n):
                print(name)
                held = [c for c, f in zip(cells, cases.flags_of(validity, n), strict=True) if f]
                want = (min(held), max(held)) if held else (None, None)
                assert blocks.zone_binary(offsets[1:], data, validity) == (*want, n - len(held))
