"""Encoded keys order as their columns do and come back as they went."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kudu_core._ext.base.status import PageError
from kudu_core._ext.keys import keys
from tests.support.oracles.keys import keys as oracle
from tests.support.oracles.keys.keys import BINARY, DECIMAL, SIGNED, UNSIGNED, Cell, Type
from tests.support.oracles.keys.packed import SIZES, U8, pack, unpack

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))

I32 = npt.NDArray[np.int32]
Column = tuple[int, int, U8, I32 | None]


def column(type_: Type, cells: list[Cell], start: int = 0) -> Column:
    kind, width = type_
    if kind == BINARY:
        strings = [cell for cell in cells if isinstance(cell, bytes)]
        data, offsets = pack(strings, start)
        return kind, width, data, offsets.astype(np.int32)
    signed = kind != UNSIGNED
    numbers = [cell for cell in cells if isinstance(cell, int)]
    packed = b"".join(number.to_bytes(width, "little", signed=signed) for number in numbers)
    return kind, width, np.frombuffer(packed, np.uint8), None


def random_type(rng: np.random.Generator) -> Type:
    kind = int(rng.choice([UNSIGNED, SIGNED, BINARY, BINARY, DECIMAL]))
    return kind, 0 if kind == BINARY else 16 if kind == DECIMAL else int(rng.choice([1, 2, 4, 8]))


def random_cell(rng: np.random.Generator, type_: Type) -> Cell:
    kind, width = type_
    if kind == BINARY:
        size = int(rng.choice([0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 40]))
        return bytes(rng.choice(np.array([0, 0, 1, 2, 97, 255], np.uint8), size))
    low = 0 if kind == UNSIGNED else -(1 << 8 * width - 1)
    high = low + (1 << 8 * width) - 1
    if rng.integers(3) == 0:
        return int(rng.choice([0, 1, 2]) if kind == UNSIGNED else rng.choice([-1, 0, 1]))
    if rng.integers(4) == 0:
        return low if rng.integers(2) else high
    return low + int.from_bytes(rng.bytes(width), "big")


@pytest.mark.parametrize(
    "types, row, encoded",
    [
        ([(SIGNED, 1)], (-128,), "00"),
        ([(SIGNED, 1)], (-1,), "7f"),
        ([(SIGNED, 1)], (127,), "ff"),
        ([(SIGNED, 4)], (1,), "80000001"),
        ([(UNSIGNED, 4)], (1,), "00000001"),
        ([(BINARY, 0), (SIGNED, 4)], (b"a\0b", 5), "61000162000080000005"),
        ([(BINARY, 0), (SIGNED, 1)], (b"", 0), "000080"),
        ([(SIGNED, 1), (BINARY, 0)], (0, b"\0\0"), "800000"),
        ([(DECIMAL, 16)], (-1,), "7f" + "ff" * 15),
    ],
)
def test_known_encodings(types: list[Type], row: tuple[Cell, ...], encoded: str) -> None:
    data, offsets = keys.encode([column(t, [cell]) for t, cell in zip(types, row, strict=True)], 1)
    assert data.tobytes().hex() == encoded
    assert offsets.tolist() == [0, len(encoded) // 2]
    assert oracle.encode(types, row).hex() == encoded


def test_encode_and_decode_agree_with_oracle(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (20_000 if long else 400)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        types = [random_type(rng) for _ in range(int(rng.integers(1, 5)))]
        rows = [[random_cell(rng, t) for t in types] for _ in range(int(rng.choice(SIZES[:8])))]
        parts = [column(t, [row[i] for row in rows], int(rng.integers(0, 3))) for i, t in enumerate(types)]
        data, offsets = keys.encode(parts, len(rows))
        assert data.dtype == np.uint8
        assert offsets.dtype == np.int64
        encoded = unpack(data, offsets)
        assert offsets[0] == 0
        assert offsets[-1] == len(data)
        assert encoded == [oracle.encode(types, row) for row in rows]

        shifted, places = pack(encoded, int(rng.integers(0, 5)))
        decoded = keys.decode(shifted, places, types)
        for i, ((kind, width), (values, ends)) in enumerate(zip(types, decoded, strict=True)):
            assert values.dtype == np.uint8
            cells = [row[i] for row in rows]
            if kind == BINARY:
                assert ends is not None
                assert ends.dtype == np.int32
                assert unpack(values, ends.astype(np.int64)) == cells
            else:
                assert ends is None
                assert values.tobytes() == column((kind, width), cells)[2].tobytes()


def test_order_of_bytes_is_order_of_columns(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (5_000 if long else 100)):
        print(f"seed {seed}")
        rng = np.random.default_rng(seed)
        types = [random_type(rng) for _ in range(int(rng.integers(1, 4)))]
        rows = [tuple(random_cell(rng, t) for t in types) for _ in range(40)]
        data, offsets = keys.encode([column(t, [r[i] for r in rows]) for i, t in enumerate(types)], len(rows))
        by_key = [rows[i] for i in keys.sort(data, offsets)]
        assert by_key == sorted(rows)


def test_bytes_that_are_no_keys_are_refused_where_they_are(long: bool) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (50_000 if long else 1_500)):
        rng = np.random.default_rng(seed)
        types = [random_type(rng) for _ in range(int(rng.integers(1, 4)))]
        keep = [oracle.encode(types, [random_cell(rng, t) for t in types]) for _ in range(2)]
        bad = bytearray(oracle.encode(types, [random_cell(rng, t) for t in types]))
        for _ in range(int(rng.integers(1, 3))):
            change = int(rng.integers(3))
            if change == 0:
                del bad[int(rng.integers(0, len(bad) + 1)) :]
            elif change == 1:
                bad += rng.bytes(int(rng.integers(1, 4)))
            elif len(bad):
                bad[int(rng.integers(len(bad)))] = int(rng.choice([0, 1, 2, 255]))
        start = int(rng.integers(0, 3))
        data, offsets = pack([*keep, bytes(bad)], start)
        try:
            row, _ = oracle.decode(types, bytes(bad))
        except ValueError:
            with pytest.raises(PageError) as caught:
                keys.decode(data, offsets, types)
            assert offsets[2] <= caught.value.offset <= offsets[3], f"seed {seed}"
        else:
            decoded = keys.decode(data, offsets, types)
            again = keys.encode([(*t, *cells) for t, cells in zip(types, decoded, strict=True)], 3)
            assert unpack(*again) == [*keep, bytes(bad)], f"seed {seed}"
            assert oracle.encode(types, row) == bytes(bad)


def test_encode_refuses_buffers_of_other_lengths() -> None:
    data = np.zeros(16, np.uint8)

    def ends(*values: int) -> I32:
        return np.array(values, np.int32)

    refused: list[tuple[list[Any], int]] = [
        ([], 0),
        ([(SIGNED, 8, data, None)], 1),
        ([(SIGNED, 8, data, None)], 3),
        ([(SIGNED, 8, data, None)], -1),
        ([(SIGNED, 3, data[:3], None)], 1),
        ([(SIGNED, 0, data[:0], None)], 0),
        ([(BINARY, 0, data, None)], 1),
        ([(BINARY, 0, data, ends(0, 1))], 2),
        ([(BINARY, 0, data, ends(0, 1, 2))], 1),
        ([(BINARY, 0, data, ends(0, 17))], 1),
        ([(BINARY, 0, data, ends(-1, 1))], 1),
        ([(BINARY, 0, data, ends(0, 9, 8))], 2),
        ([(BINARY, 0, data, ends(0, 99, 8))], 2),
        ([(BINARY, 0, data, ends(0, 17)), (SIGNED, 8, data[:8], None)], 1),
    ]
    for columns, n in refused:
        with pytest.raises(ValueError):
            keys.encode(columns, n)
    with pytest.raises(ValueError):
        keys.decode(data, np.array([0, 16], np.int64), [(SIGNED, 7)])
