"""Damaged payloads give PageError or some values, and never touch memory that is not theirs."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from kudu_core._ext.base.status import PageError
from kudu_core._ext.pages import blocks
from tests.support.cases import blocks as cases
from tests.support.oracles.pages import blocks as oracle

GUARD = 64


def fixed_payloads(rng: np.random.Generator) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for n in (3, 1024, 1100):
        columns = [
            (1, values) for dtype in ("i1", "i2", "i4", "i8") for _, values in cases.integers(rng, n, dtype)
        ]
        columns += [(2, values) for dtype in ("f4", "f8") for _, values in cases.floats(rng, n, dtype)]
        columns += [(4, values) for _, values in cases.decimals(rng, n)]
        for kind, values in columns:
            width = 16 if kind == 4 else values.itemsize
            validity = cases.bits_of(rng.random(n) < 0.8) if rng.random() < 0.4 else None
            found.append((width, blocks.encode_fixed(cases.raw(values), width, kind, validity)))
        cells = cases.cells_of(cases.raw(rng.normal(0, 1, n)), 8)
        found.append((8, oracle.encode(cells, 8, lambda held: oracle.planes(held, 8))))
    return found


def string_payloads(rng: np.random.Generator) -> list[bytes]:
    found = []
    for n in (3, 40, 1024, 1100):
        for _, cells in cases.string_columns(rng, n):
            validity = cases.bits_of(rng.random(n) < 0.8) if rng.random() < 0.4 else None
            for prefix in (False, True):
                found.append(blocks.encode_binary(*cases.var_of(cells), validity, prefix))
    return found


def damage(rng: np.random.Generator, payload: bytes) -> bytes:
    """Heads, directories and counts are hit more often than values."""
    broken = bytearray(payload)
    for _ in range(int(rng.integers(1, 4))):
        if not broken:
            break
        near = int(rng.choice([8, 64, 200, len(broken)]))
        at = int(rng.integers(0, min(near, len(broken))))
        what = rng.integers(0, 5)
        if what == 0:
            broken[at] ^= 1 << int(rng.integers(0, 8))
        elif what == 1:
            broken[at] = int(rng.choice([0, 1, 127, 128, 255]))
        elif what == 2:
            broken[at : at + 4] = int(rng.integers(0, 2**32)).to_bytes(4, "little")
        elif what == 3:
            del broken[at:]
        else:
            broken[at:at] = rng.bytes(int(rng.integers(1, 9)))
    if rng.random() < 0.5 and len(broken) >= 8:
        # The last entry of the directory tells a cut payload at once: mend it, to get further.
        rows, nulls, count = int.from_bytes(broken[:4], "little"), broken[6] & 1, broken[7]
        at = 8 + ((rows + 7) // 8 + 7) // 8 * 8 * nulls + 4 * count
        if at + 4 <= len(broken):
            broken[at : at + 4] = len(broken).to_bytes(4, "little")
    return bytes(broken)


@pytest.mark.parametrize("part", range(4))
def test_damaged_fixed_pages(part: int, long: bool) -> None:
    rng = cases.generator(100 + part)
    payloads = fixed_payloads(rng)
    refused = 0
    for _ in range(50_000 if long else 500):
        width, payload = payloads[int(rng.integers(0, len(payloads)))]
        broken = damage(rng, payload)
        rows = min(int.from_bytes(broken[:4], "little"), 16384)
        room = np.full(rows * width + GUARD, 0xA5, np.uint8)
        bits = np.full((rows + 7) // 8 + GUARD, 0xA5, np.uint8)
        exact = np.frombuffer(broken, np.uint8).copy()
        first = int(rng.integers(0, rows + 1)) if rng.random() < 0.5 else 0
        try:
            blocks.decode_fixed(exact, width, room, bits, first, rows - first)
        except PageError as error:
            refused += 1
            assert 0 <= error.offset <= len(broken) + 64
        assert (room[(rows - first) * width :] == 0xA5).all()
        assert (bits[(rows - first + 7) // 8 :] == 0xA5).all()
        try:
            picked = rng.integers(0, max(rows, 1), 20)
            blocks.cells_fixed(
                exact, width, picked, room[: 20 * width + GUARD] if rows > 20 else np.zeros(320, np.uint8)
            )
        except (PageError, IndexError):
            pass
        with contextlib.suppress(PageError):
            blocks.describe(exact)
    assert refused > 50


@pytest.mark.parametrize("part", range(4))
def test_damaged_string_pages(part: int, long: bool) -> None:
    rng = cases.generator(200 + part)
    payloads = string_payloads(rng)
    refused = 0
    for _ in range(50_000 if long else 500):
        broken = damage(rng, payloads[int(rng.integers(0, len(payloads)))])
        rows = min(int.from_bytes(broken[:4], "little"), 16384)
        exact = np.frombuffer(broken, np.uint8).copy()
        first = int(rng.integers(0, rows + 1)) if rng.random() < 0.5 else 0
        try:
            offsets, data, _ = blocks.decode_binary(exact, first, rows - first)
            assert offsets[-1] == len(data)
            assert (np.diff(offsets) >= 0).all()
        except PageError as error:
            refused += 1
            assert 0 <= error.offset <= len(broken) + 64
        try:
            offsets, data, _ = blocks.cells_binary(exact, rng.integers(0, max(rows, 1), 20))
            assert offsets[-1] == len(data)
            assert (np.diff(offsets) >= 0).all()
        except (PageError, IndexError):
            pass
    assert refused > 50


def test_every_truncation_is_refused() -> None:
    rng = cases.generator(9)
    fixed = blocks.encode_fixed(
        cases.raw(rng.integers(0, 99, 1100)), 8, 1, cases.bits_of(rng.random(1100) < 0.9)
    )
    text = blocks.encode_binary(*cases.var_of([b"%d" % k for k in range(1100)]), None, True)
    out = np.zeros(8800, np.uint8)
    for size in range(len(fixed)):
        with pytest.raises(PageError):
            blocks.decode_fixed(fixed[:size], 8, out, None, 0, 1)
    for size in range(0, len(text), 7):
        with pytest.raises(PageError):
            blocks.decode_binary(text[:size], 0, 1)


def test_class_and_width_must_match() -> None:
    fixed = blocks.encode_fixed(bytes(80), 8, 1)
    text = blocks.encode_binary(*cases.var_of([b"a"] * 10))
    out = np.zeros(160, np.uint8)
    for payload, width in ((fixed, 4), (fixed, 16), (text, 8)):
        with pytest.raises(PageError):
            blocks.decode_fixed(payload, width, out, None, 0, 10)
        with pytest.raises(PageError):
            blocks.cells_fixed(payload, width, np.arange(10), out)
    with pytest.raises(PageError):
        blocks.decode_binary(fixed, 0, 10)
    with pytest.raises(PageError):
        blocks.cells_binary(fixed, np.arange(10))
