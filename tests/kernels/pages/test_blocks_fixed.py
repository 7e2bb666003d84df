"""Pages of fixed width come back bit for bit, whole, in part and cell by cell."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kudu_core._ext.base.status import PageError
from kudu_core._ext.pages import blocks
from tests.support.cases import blocks as cases
from tests.support.oracles.pages import blocks as oracle

SIGNED, UNSIGNED, FLOAT, DECIMAL, BOOL = 1, 0, 2, 4, 5
PLAIN, CONSTANT, FOR, DELTA, RLE, BITSHUFFLE = range(6)

Column = tuple[str, int, int, npt.NDArray[Any]]


def columns(rng: np.random.Generator, n: int) -> Iterator[Column]:
    """(name, width, kind, values)"""
    for dtype in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"):
        for name, values in cases.integers(rng, n, dtype):
            yield f"{dtype} {name}", values.itemsize, SIGNED if dtype[0] == "i" else UNSIGNED, values
    for dtype in ("f4", "f8"):
        for name, values in cases.floats(rng, n, dtype):
            yield f"{dtype} {name}", values.itemsize, FLOAT, values
    for name, values in cases.decimals(rng, n):
        yield f"decimal {name}", 16, DECIMAL, values
    yield "bool", 1, BOOL, rng.integers(0, 2, n, np.uint8)


def decode(payload: bytes, width: int, first: int, count: int) -> tuple[cases.U8, cases.U8, int]:
    out = np.full(count * width, 0xA5, np.uint8)
    validity = np.full((count + 7) // 8, 0xA5, np.uint8)
    nulls = blocks.decode_fixed(payload, width, out, validity, first, count)
    return out, validity, nulls


def expected(values: npt.NDArray[Any], width: int, validity: cases.U8 | None) -> cases.U8:
    cells = cases.raw(values).reshape(-1, width).copy()
    cells[~cases.flags_of(validity, len(cells))] = 0
    return cells.reshape(-1)


def check(
    rng: np.random.Generator, payload: bytes, width: int, want: cases.U8, flags: npt.NDArray[np.bool_]
) -> None:
    n = len(flags)
    out, validity, nulls = decode(payload, width, 0, n)
    assert nulls == n - flags.sum()
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(cases.flags_of(validity, n), flags)
    first = int(rng.integers(0, n + 1))
    count = int(rng.integers(0, n - first + 1))
    out, validity, nulls = decode(payload, width, first, count)
    np.testing.assert_array_equal(out, want[first * width : (first + count) * width])
    np.testing.assert_array_equal(cases.flags_of(validity, count), flags[first : first + count])
    rows = rng.integers(0, n, 40 if n else 0)
    cells = np.full(len(rows) * width, 0xA5, np.uint8)
    bits = np.full((len(rows) + 7) // 8 + 1, 0xA5, np.uint8)
    blocks.cells_fixed(payload, width, rows, cells, bits, 3)
    np.testing.assert_array_equal(cells.reshape(-1, width), want.reshape(-1, width)[rows])
    np.testing.assert_array_equal(cases.flags_of(bits, len(rows) + 3)[3:], flags[rows])


@pytest.mark.parametrize("n", cases.COUNTS)
def test_every_width_and_kind_comes_back(n: int) -> None:
    rng = cases.generator(n)
    for name, width, kind, values in columns(rng, n):
        for validity in cases.validities(rng, n):
            want, flags = expected(values, width, validity), cases.flags_of(validity, n)
            for settings in ({}, {"allow_delta": False}, {"form": "plain"}):
                print(name, settings)
                payload = blocks.encode_fixed(cases.raw(values), width, kind, validity, **settings)
                check(rng, payload, width, want, flags)
                kinds = {block[0] for block in blocks.describe(payload)}
                assert "allow_delta" not in settings or DELTA not in kinds
                assert len(payload) % 8 == 0
                assert len(payload) <= len(want) + n // 8 + 24 + 80 * ((n + 1023) // 1024)


def test_oracle_reads_what_the_kernel_writes(long: bool) -> None:
    rng = cases.generator(1)
    for n in (0, 3, 1023, 1024, 2100) if long else (3, 1100):
        for name, width, kind, values in columns(rng, n):
            for validity in cases.validities(rng, n)[: None if long else 2]:
                print(name)
                payload = blocks.encode_fixed(cases.raw(values), width, kind, validity)
                flags = cases.flags_of(validity, n)
                cells = cases.cells_of(cases.raw(values), width)
                assert oracle.decode(payload) == [c if f else None for c, f in zip(cells, flags, strict=True)]


def forms(rng: np.random.Generator, width: int) -> Iterator[Callable[[Sequence[bytes]], bytes]]:
    """Mini-blocks that the kernel's encoder need not choose."""
    base, bits = int(rng.integers(0, 1 << 60)), int(rng.integers(1, 8 * min(width, 8) + 1))
    if width == 16:
        yield lambda cells: oracle.narrow_frame(cells, base, bits)
        yield lambda cells: oracle.narrow_frame(cells, 0, 0)
    else:
        yield lambda cells: oracle.frame(cells, width, base, bits)
        yield lambda cells: oracle.frame(cells, width, base)
        yield lambda cells: oracle.deltas(cells, width, base, bits)
        yield lambda cells: oracle.deltas(cells, width, 0, 8 * width)
        yield lambda cells: oracle.deltas(cells, width, 1)
    if width in (4, 8):
        yield lambda cells: oracle.planes(cells, width)
        for scale in range(10 if width == 8 else 6):
            yield functools.partial(oracle.decimals, width=width, scale=scale, base=0, bits=8 + scale)
    yield lambda cells: oracle.plain(cells, width)
    yield lambda cells: oracle.runs(cells, width)
    yield lambda cells: oracle.runs(cells, width, 3)


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_kernel_reads_every_form_that_the_oracle_writes(width: int, long: bool) -> None:
    rng = cases.generator(2)
    for n in (5, 1024, 1500):
        small = rng.integers(0, 200, n).astype(f"u{min(width, 8)}")
        sources = [small, np.cumsum(small).astype(small.dtype), np.repeat(small, 9)[:n]]
        if width in (4, 8):
            sources.append(np.round(rng.random(n) * 100, 2).astype(f"f{width}"))
        for values in sources if long else sources[-1:]:
            if width == 16:
                values = np.stack([values, np.zeros(n, np.uint64)], axis=1)
            for form in forms(rng, width):
                flags = rng.random(n) >= rng.choice([0, 0.2])
                cells = cases.cells_of(cases.raw(values), width)
                payload = oracle.encode(
                    [c if f else None for c, f in zip(cells, flags, strict=True)], width, form
                )
                print(n, blocks.describe(payload))
                check(rng, payload, width, expected(values, width, cases.bits_of(flags)), flags)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("n", [1000, 1024])
def test_every_number_of_bits(width: int, n: int) -> None:
    rng = cases.generator(3)
    for bits in range(1, 8 * width + 1):
        values = rng.integers(0, (1 << bits) - 1, n, np.uint64, endpoint=True)
        values[:2] = 0, (1 << bits) - 1
        values = (values + np.uint64(77)).astype(f"u{width}")  # wraps: bases need not be the least value
        payload = blocks.encode_fixed(cases.raw(values), width, UNSIGNED, allow_delta=False)
        check(rng, payload, width, cases.raw(values), np.ones(n, bool))
        frame = functools.partial(oracle.frame, width=width, base=77, bits=bits)
        form = oracle.encode(cases.cells_of(cases.raw(values), width), width, frame)
        check(rng, form, width, cases.raw(values), np.ones(n, bool))


def test_several_pages_are_as_one_after_the_other() -> None:
    rng = cases.generator(10)
    payloads, values, flags, firsts, counts = [], [], [], [], []
    for n in (16384, 0, 5000, 1, 16384, 1500):
        column = np.cumsum(rng.integers(0, 99, n)).astype(np.int32)
        valid = rng.random(n) >= rng.choice([0, 0.3])
        payloads.append(blocks.encode_fixed(cases.raw(column), 4, SIGNED, cases.bits_of(valid)))
        firsts.append(int(rng.integers(0, n + 1)))
        counts.append(int(rng.integers(0, n - firsts[-1] + 1)))
        part = slice(firsts[-1], firsts[-1] + counts[-1])
        values.append(np.where(valid, column, 0)[part])
        flags.append(valid[part])
    total = sum(counts)
    out, validity = np.zeros(4 * total, np.uint8), np.zeros((total + 7) // 8, np.uint8)
    nulls = blocks.decode_pages(payloads, 4, out, validity, np.array(firsts), np.array(counts))
    assert nulls == total - np.concatenate(flags).sum()
    np.testing.assert_array_equal(out.view(np.int32), np.concatenate(values))
    np.testing.assert_array_equal(cases.flags_of(validity, total), np.concatenate(flags))
    with pytest.raises(ValueError, match="do not fit"):
        blocks.decode_pages(payloads, 4, out[4:], None, np.array(firsts), np.array(counts))
    with pytest.raises(ValueError, match="bits"):
        blocks.decode_pages(payloads, 4, out, validity[:-1], np.array(firsts), np.array(counts))
    with pytest.raises(ValueError, match="pages"):
        blocks.decode_pages(payloads[1:], 4, out, None, np.array(firsts), np.array(counts))
    with pytest.raises(IndexError):
        blocks.decode_pages(payloads, 4, out, None, np.array(firsts), np.array(counts) + 16384)
    with pytest.raises(PageError):
        blocks.decode_pages(
            [*payloads[:-1], payloads[-1][:-8]], 4, out, None, np.array(firsts), np.array(counts)
        )


def test_decoding_writes_only_its_rows_and_bits() -> None:
    rng = cases.generator(4)
    values = rng.integers(0, 1000, 3000)
    payload = blocks.encode_fixed(cases.raw(values), 8, SIGNED, cases.bits_of(rng.random(3000) < 0.5))
    out = np.full(8 * 100 + 16, 0xA5, np.uint8)
    validity = np.full(20, 0xA5, np.uint8)
    blocks.decode_fixed(payload, 8, out, validity, 1000, 100, 13)
    assert (out[800:] == 0xA5).all()
    kept = np.ones(160, bool)
    kept[13:113] = False
    np.testing.assert_array_equal(
        cases.flags_of(validity, 160)[kept], np.tile(cases.flags_of(np.array([0xA5], np.uint8), 8), 20)[kept]
    )


def test_callers_faults_are_refused() -> None:
    payload = blocks.encode_fixed(bytes(80), 8, SIGNED)
    out = np.zeros(80, np.uint8)
    for first, count in ((0, 11), (-1, 1), (11, 0), (3, -1), (5, 6)):
        with pytest.raises(IndexError):
            blocks.decode_fixed(payload, 8, out, None, first, count)
    with pytest.raises(ValueError, match="do not fit"):
        blocks.decode_fixed(payload, 8, out[:72], None, 0, 10)
    for bit in (-1, 7):
        with pytest.raises(ValueError, match="bits"):
            blocks.decode_fixed(payload, 8, out, np.zeros(2, np.uint8), 0, 10, bit)
    for row in (-1, 10):
        with pytest.raises(IndexError):
            blocks.cells_fixed(payload, 8, np.array([0, row]), out)
    for width, kind in ((3, 1), (8, 3), (2, FLOAT)):
        with pytest.raises(ValueError, match=r"width|kind|floats"):
            blocks.encode_fixed(bytes(48), width, kind)
    with pytest.raises(ValueError, match="rows"):
        blocks.encode_fixed(bytes(16385), 1, 0)
    with pytest.raises(ValueError, match="bitmap"):
        blocks.encode_fixed(bytes(9), 1, 0, bytes(1))
    with pytest.raises(ValueError, match="whole number"):
        blocks.encode_fixed(bytes(9), 2, 0)


def bits_a_value(values: npt.NDArray[Any], kind: int, allow_delta: bool = True) -> float:
    payload = blocks.encode_fixed(cases.raw(values), values.itemsize, kind, allow_delta=allow_delta)
    return 8 * len(payload) / len(values)


def test_sizes_stay_near_what_was_measured() -> None:
    """Bits per value, heads and directory included (0.16), of the series encodings were chosen by."""
    rng = cases.generator(5)
    n = 16384
    start, second = 1_700_000_000_000_000, 1_000_000
    assert bits_a_value(start + np.arange(n) * second, SIGNED) < 0.3
    assert bits_a_value(start + np.arange(n) * second + rng.integers(0, 1000, n), SIGNED) < 12.3
    assert bits_a_value(np.tile(start + np.arange(512) * second, n // 512), SIGNED) < 0.5
    jumps = np.where(rng.random(n) < 0.01, 1 << 29, rng.integers(0, 32, n))
    assert bits_a_value(np.cumsum(jumps), SIGNED) < 6.6
    assert bits_a_value(rng.integers(0, 1 << 36, n), SIGNED) < 36.3
    walk = np.round(50 + np.cumsum(rng.normal(0, 0.05, n)), 2)
    assert bits_a_value(walk, FLOAT) < 9.5
    assert bits_a_value(walk.astype("f4"), FLOAT) < 9.5
    assert bits_a_value(np.round(rng.random(n) * 100, 2), FLOAT) < 14.3
    holes = np.where(rng.random(n) < 0.01, np.nan, np.round(rng.random(n) * 100, 2))
    assert bits_a_value(holes, FLOAT) < 15.3
    assert bits_a_value(rng.integers(0, 8, n, np.uint8), UNSIGNED) < 3.3
    assert bits_a_value(rng.integers(0, 2, n, np.uint8), BOOL) < 1.3
    assert bits_a_value(np.repeat(rng.integers(0, 9, n // 512), 512), SIGNED, allow_delta=False) < 0.5
    lognormal = np.exp(rng.normal(10, 1.2, n)).astype(np.int64)
    assert bits_a_value(lognormal, SIGNED) < 20
    assert (
        bits_a_value(np.stack([rng.integers(0, 100, n), np.zeros(n, np.int64)], 1).view("V16")[:, 0], DECIMAL)
        < 7.3
    )


def test_zeros_and_payloads_of_nan_survive_among_decimals() -> None:
    values = np.full(1024, 1.25)
    values[5], values[6], values[7] = -0.0, np.nan, np.inf
    values.view(np.uint64)[8] = 0xFFF8_0000_0000_BEEF
    payload = blocks.encode_fixed(cases.raw(values), 8, FLOAT)
    ((kind, _, scale, count, exceptions, _),) = blocks.describe(payload)
    assert (kind, scale, count, exceptions) == (CONSTANT, 2, 1024, 4)
    assert decode(payload, 8, 0, 1024)[0].tobytes() == values.tobytes()


@pytest.mark.parametrize("scale", range(10))
def test_decimals_are_quotients_to_the_last_bit(scale: int) -> None:
    """However a kernel divides: integers of all sizes come back as the doubles that a division gives."""
    rng = cases.generator(scale)
    scaled = 0
    for bits in range(4, 50, 3):
        integers = rng.integers(-(2**bits), 2**bits, 4096)
        values = integers / 10.0**scale
        payload = blocks.encode_fixed(cases.raw(values), 8, FLOAT)
        scaled += sum(block[:1] + block[2:3] == (FOR, scale) for block in blocks.describe(payload))
        out = np.zeros(8 * 4096, np.uint8)
        blocks.decode_fixed(payload, 8, out, None, 0, 4096)
        assert out.tobytes() == values.tobytes()
    assert scaled > 16


@pytest.mark.parametrize("form", ["plain", "rle", "delta", "bitshuffle"])
def test_forms_that_are_asked_for(form: str) -> None:
    """They come back, are taken where they need less than plain bytes, and never take more."""
    wanted = {"plain": PLAIN, "rle": RLE, "delta": DELTA, "bitshuffle": BITSHUFFLE}[form]
    rng = cases.generator(31)
    taken = 0
    for n in (0, 1, 2, 63, 1024, 2500):
        for name, width, kind, values in columns(rng, n):
            for validity in cases.validities(rng, n)[:3]:
                if (form == "delta" and kind == FLOAT) or (form == "bitshuffle" and width not in (4, 8)):
                    with pytest.raises(ValueError):
                        blocks.encode_fixed(cases.raw(values), width, kind, validity, form=form)
                    continue
                payload = blocks.encode_fixed(cases.raw(values), width, kind, validity, form=form)
                flags = cases.flags_of(validity, n)
                check(rng, payload, width, expected(values, width, validity), flags)
                plain = blocks.encode_fixed(cases.raw(values), width, kind, validity, form="plain")
                assert form == "bitshuffle" or len(payload) <= len(plain), name
                for block, beside in zip(blocks.describe(payload), blocks.describe(plain), strict=True):
                    if block[3]:
                        assert block[0] in (wanted, PLAIN)
                        assert form == "bitshuffle" or block[0] == PLAIN or block[5] < beside[5]
                        taken += block[0] == wanted
                if name.endswith("runs") and form == "rle" and n == 1024 and width > 1:
                    assert all(block[0] == RLE for block in blocks.describe(payload) if block[3])
    assert taken > 100


def test_forms_that_do_not_fit_are_refused() -> None:
    for form, width, kind, more in (
        ("zip", 8, SIGNED, {}),
        ("delta", 8, FLOAT, {}),
        ("delta", 8, SIGNED, {"allow_delta": False}),
        ("bitshuffle", 2, SIGNED, {}),
        ("bitshuffle", 16, DECIMAL, {}),
    ):
        with pytest.raises(ValueError, match=r"form|deltas|planes"):
            blocks.encode_fixed(bytes(32), width, kind, form=form, **more)
