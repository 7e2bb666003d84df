"""Foreign buffers: offsets, UTF-8 and digits, cell by cell, against plain Python."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from kudu_core._ext.columns import foreign as kernel
from tests.support.oracles.columns import foreign as oracle

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
WORDS = (
    b"",
    b"a",
    b"plain text of some length",
    "\xe9".encode(),
    "\u0436\u0443\u043a".encode(),
    "\u6f22\u5b57".encode(),
    "\U0001f41e".encode(),
)


@pytest.fixture(params=[True, False], ids=["sixteen bytes", "one byte"], autouse=True)
def body(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both bodies of the kernel, where the machine can run both."""
    if kernel._choose(request.param) != request.param:
        pytest.skip("this machine has no SSSE3")
    yield
    kernel._choose(True)


def bits(valid: list[bool] | None) -> np.ndarray | None:
    return None if valid is None else np.packbits(valid, bitorder="little")


def check(data: bytes, offsets: list[int], valid: list[bool] | None, text: bool) -> tuple[int, int] | None:
    got = kernel.variable(data, np.array(offsets, np.int32), bits(valid), text)
    assert got == oracle.variable(data, offsets, valid, text), (data[:100], offsets[:100], valid, text)
    return got


def sequences() -> Iterator[bytes]:
    """Every one and two bytes; the third and the fourth at the borders of the syntax."""
    heads = (
        0x41,
        0x80,
        0xC1,
        0xC2,
        0xDF,
        0xE0,
        0xE1,
        0xEC,
        0xED,
        0xEE,
        0xEF,
        0xF0,
        0xF1,
        0xF3,
        0xF4,
        0xF5,
        0xFF,
    )
    edges = (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0)
    for first in range(256):
        yield bytes([first])
        yield from (bytes([first, second]) for second in range(256))
    for head in product(heads, edges, edges):
        yield bytes(head)
        yield from (bytes([*head, fourth]) for fourth in edges)


@pytest.mark.parametrize("before", [0, 13, 16, 30])
def test_every_sequence_of_bytes(before: int) -> None:
    for raw in sequences():
        whole = b"x" * before + raw
        got = kernel.variable(whole, np.array([0, len(whole)], np.int32), None, True)
        assert (got is None) == oracle.is_text(whole), whole


@pytest.mark.parametrize("rows", [1, 3])
def test_a_fault_anywhere_in_a_long_text(rows: int) -> None:
    """In whatever part of sixteen bytes it begins and ends."""
    word = "a\xe9\u6f22\U0001f41e".encode()
    for size in (30, 31, 32, 100):
        whole = (word * size)[: size - size % len(word)]
        offsets = [len(whole) // len(word) * row // rows * len(word) for row in range(rows + 1)]
        assert check(whole, offsets, None, True) is None
        for at in range(len(whole)):
            for byte in (0x80, 0xC2, 0xFF, 0x41):
                changed = bytearray(whole)
                changed[at] = byte
                check(bytes(changed), offsets, None, True)


def test_bytes_that_are_no_text_are_fine_where_none_is_asked_for() -> None:
    assert check(b"\xff\xfe", [0, 1, 2], None, False) is None
    assert check(b"\xff\xfe", [0, 1, 2], None, True) == (0, kernel.TEXT)


def test_a_null_cell_may_hold_anything_between_good_offsets() -> None:
    assert check(b"a\xffb", [0, 1, 2, 3], [True, False, True], True) is None
    assert check(b"a\xffb", [0, 1, 2, 3], [True, True, False], True) == (1, kernel.TEXT)
    assert check(b"abc", [0, 3, 1], [True, False], True) == (1, kernel.OFFSETS)


@pytest.mark.parametrize(
    ("offsets", "row"),
    [
        ([-1, 2], 0),
        ([0, 4], 0),
        ([0, 3, 1], 1),
        ([0, 100, 3], 0),
        ([0, -100, 3], 0),
        ([2, 1], 0),
        ([0, 1, 2**31 - 1], 1),
    ],
)
def test_offsets_that_descend_or_leave_the_data(offsets: list[int], row: int) -> None:
    assert check(b"abc", offsets, None, True) == (row, kernel.OFFSETS)
    assert check(b"abc", offsets, None, False) == (row, kernel.OFFSETS)


def test_a_character_cut_by_an_offset() -> None:
    """The text is UTF-8 as a whole, and no cell of it is."""
    raw = "\xe9".encode()
    assert check(raw, [0, 1, 2], None, True) == (0, kernel.TEXT)
    assert check(raw * 3000, [0, 2 * 2999 + 1, 6000], None, True) == (0, kernel.TEXT)


@pytest.mark.parametrize("rows", [4095, 4096, 4097, 8192, 8193])
@pytest.mark.parametrize("what", ["offsets", "text", "cut"])
def test_the_last_row_of_a_block_and_the_first_of_the_next(rows: int, what: str) -> None:
    for bad in (0, 4094, 4095, 4096, rows - 1):
        if bad >= rows:
            continue
        data, offsets = bytearray("\xe9".encode() * rows), list(range(0, 2 * rows + 1, 2))
        if what == "offsets":
            offsets[bad + 1] = offsets[bad] - 1
        elif what == "text":
            data[2 * bad + 1] = 0x41
        elif bad + 1 < rows:
            offsets[bad + 1] += 1
        else:
            continue
        assert check(bytes(data), offsets, None, True) is not None


def test_random_columns(seed: int, long: bool) -> None:
    rng = random.Random(seed)
    found = 0
    for _ in range(20_000 if long else 1_000):
        cells = [rng.choice(WORDS) * rng.randrange(4) for _ in range(rng.choice((1, 3, 20, 300)))]
        before = rng.choice((b"", b"xx", b"\xff"))
        data = bytearray(before + b"".join(cells) + rng.choice((b"", b"\xff")))
        offsets = np.cumsum([len(before), *map(len, cells)]).tolist()
        valid = None if rng.random() < 0.5 else [rng.random() < 0.8 for _ in cells]
        if rng.random() < 0.5 and data:
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.2:
            offsets[rng.randrange(len(offsets))] += rng.choice((-1, 1, 7, -(2**20), 2**20))
        found += check(bytes(data), offsets, valid, True) is not None
        check(bytes(data), offsets, valid, False)
    assert found


def test_no_rows() -> None:
    nothing = np.empty(0, np.uint8)
    assert kernel.variable(nothing, np.empty(0, np.int32), None, True) is None
    assert kernel.variable(nothing, np.zeros(1, np.int32), None, True) is None
    assert kernel.variable(nothing, np.zeros(3, np.int32), None, True) is None
    assert kernel.digits(nothing, 5, None) == -1


def test_a_bitmap_that_is_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="a bitmap of 1 bytes has no 9 bits"):
        kernel.variable(b"", np.zeros(10, np.int32), b"\0", True)
    with pytest.raises(ValueError, match="a bitmap of 1 bytes has no 9 bits"):
        kernel.digits(bytes(9 * 16), 5, b"\0")


# ---- views


def view(size: int, begin: bytes, part: int, at: int) -> bytes:
    return struct.pack("<i4sii", size, begin, part, at)


PARTS = (b"the first of the parts", b"", b"the third of the parts is longer")


@pytest.mark.parametrize(
    "cell",
    [
        view(13, PARTS[0][:4], 0, 0),
        view(22, PARTS[0][:4], 0, 0),
        view(23, PARTS[0][:4], 0, 0),
        view(13, PARTS[0][9:13], 0, 9),
        view(13, PARTS[0][10:14], 0, 10),
        view(13, PARTS[2][:4], 2, 0),
        view(13, b"else", 2, 0),
        view(13, PARTS[2][:4], 3, 0),
        view(13, PARTS[2][:4], -1, 0),
        view(13, PARTS[2][:4], 2, -1),
        view(13, PARTS[2][:4], 1, 0),
        view(-1, PARTS[2][:4], 2, 0),
        view(-(2**31), PARTS[2][:4], 2, 0),
        view(2**31 - 1, PARTS[2][:4], 2, 2**31 - 1),
        view(12, b"else", 77, 77),
        view(0, b"else", -1, -1),
    ],
)
def test_a_view_and_its_part(cell: bytes) -> None:
    good = view(13, PARTS[0][:4], 0, 0)
    cells = good + cell + good
    found = kernel.views(cells, PARTS, None)
    assert found == oracle.views(cells, PARTS, None)
    assert found in (-1, 1)
    assert kernel.views(cells, PARTS, bits([True, False, True])) == -1
    assert kernel.views(cells[16:], PARTS, bits([True, True])) == (found if found < 0 else 0)
    assert kernel.views(view(5, b"", 0, 0), (), None) == -1


def test_random_views(seed: int) -> None:
    rng = random.Random(seed)
    found = 0
    for _ in range(500):
        cells = []
        for _ in range(rng.randrange(1, 20)):
            part = rng.choice((0, 2))
            at = rng.randrange(0, 9)
            size = rng.choice((0, 12, 13, len(PARTS[part]) - at))
            made = bytearray(view(size, PARTS[part][at : at + 4], part, at))
            if rng.random() < 0.1:
                made[rng.randrange(16)] ^= 1 << rng.randrange(8)
            cells.append(bytes(made))
        valid = None if rng.random() < 0.5 else [rng.random() < 0.8 for _ in cells]
        got = kernel.views(b"".join(cells), PARTS, bits(valid))
        assert got == oracle.views(b"".join(cells), PARTS, valid)
        found += got >= 0
    assert found


def test_sizes_that_are_no_views_are_refused() -> None:
    with pytest.raises(ValueError, match="17 bytes"):
        kernel.views(bytes(17), (), None)
    with pytest.raises(ValueError, match="a bitmap of 1 bytes has no 9 bits"):
        kernel.views(bytes(16 * 9), (), b"\0")
    assert kernel.views(b"", (), None) == -1


# ---- digits


def packed(values: list[int]) -> bytes:
    return b"".join(value.to_bytes(16, "little", signed=True) for value in values)


@pytest.mark.parametrize("precision", [1, 5, 18, 19, 20, 37, 38])
def test_digits_at_the_ends(precision: int) -> None:
    limit = 10**precision
    inside = [0, 1, -1, limit - 1, 1 - limit]
    assert kernel.digits(packed(inside), precision, None) == -1
    for value in (limit, -limit, limit + 1, 2**127 - 1, -(2**127)):
        values = [*inside, value, 0, value]
        assert kernel.digits(packed(values), precision, None) == 5 == oracle.digits(values, precision, None)
        valid = [True] * 5 + [False, True, True]
        assert kernel.digits(packed(values), precision, bits(valid)) == 7
        assert kernel.digits(packed(values), precision, bits([False] * 8)) == -1


def test_random_digits(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(500):
        precision = rng.randrange(1, 39)
        most = min(10 ** (precision + rng.randrange(2)), 2**127 - 1)
        values = [rng.randrange(-most, most + 1) for _ in range(rng.randrange(1, 20))]
        valid = None if rng.random() < 0.5 else [rng.random() < 0.7 for _ in values]
        got = kernel.digits(packed(values), precision, bits(valid))
        assert got == oracle.digits(values, precision, valid)


def test_sizes_that_are_no_decimals_are_refused() -> None:
    with pytest.raises(ValueError, match="17 bytes"):
        kernel.digits(bytes(17), 5, None)
    for precision in (0, 39):
        with pytest.raises(ValueError, match="precision"):
            kernel.digits(bytes(16), precision, None)
