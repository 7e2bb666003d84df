"""The hash of a key is murmur3's, the hash of a row is Spark's."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
import pytest

from kudu_core._ext.keys import hashing
from tests.support.oracles.keys import hashing as oracle
from tests.support.oracles.keys.hashing import BINARY, DECIMAL, SIGNED, UNSIGNED

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
U64 = npt.NDArray[np.uint64]

FIXED = [*((kind, width) for kind in (SIGNED, UNSIGNED) for width in (1, 2, 4, 8)), (DECIMAL, 16)]


def pack(keys: list[bytes], start: int = 0) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    offsets = np.zeros(len(keys) + 1, np.int64)
    np.cumsum([len(key) for key in keys], out=offsets[1:])
    return np.frombuffer(b"\xaa" * start + b"".join(keys), np.uint8), offsets + start


def random_integers(rng: np.random.Generator, kind: int, width: int, n: int) -> list[int]:
    """Of all magnitudes, and the ends of each."""
    made = []
    for _ in range(n):
        bits = int(rng.integers(0, 8 * width + (kind == UNSIGNED)))
        value = int.from_bytes(rng.bytes(17), "big") >> 136 - bits if bits else 0
        value = int(rng.choice([0, 1, 2])) * value if rng.integers(3) == 0 else value
        edge = int(rng.choice([-1, 0, 0, 0, 1])) + value
        made.append(edge if kind == UNSIGNED or rng.integers(2) else ~edge)
    low = 0 if kind == UNSIGNED else -(1 << 8 * width - 1)
    high = low + (1 << 8 * width) - 1
    return [low, high, 0, 1, *(min(max(value, low), high) for value in made)][: n or None] if n else []


def test_murmur3_agrees_with_mmh3() -> None:
    rng = np.random.default_rng(FIRST_SEED)
    keys = [rng.bytes(size) for size in range(70)] + [b"\0" * size for size in range(40)] + [rng.bytes(5_000)]
    data, offsets = pack(keys, 3)
    hashes = hashing.murmur3(data, offsets)
    assert hashes.dtype == np.uint64
    assert hashes.tolist() == [oracle.murmur3(key) for key in keys]
    assert [hashing.murmur3_one(key) for key in keys] == hashes.tolist()
    assert hashing.murmur3(data, offsets[:1]).tolist() == []


def test_murmur3_reads_no_byte_beyond_a_key() -> None:
    """Neighbours do not matter: each length at the very end of its buffer, and before other bytes."""
    rng = np.random.default_rng(FIRST_SEED)
    for size in range(1, 50):
        key = rng.bytes(size)
        alone = hashing.murmur3(np.frombuffer(key, np.uint8), np.array([0, size]))
        within = hashing.murmur3(np.frombuffer(b"xy" + key + b"z", np.uint8), np.array([2, 2 + size]))
        assert alone.tolist() == within.tolist() == [oracle.murmur3(key)]


@pytest.mark.parametrize("kind, width", FIXED)
def test_a_fixed_column_agrees_with_spark(kind: int, width: int, long: bool) -> None:
    rng = np.random.default_rng(FIRST_SEED)
    cells = random_integers(rng, kind, width, 20_000 if long else 500)
    seeds = rng.integers(0, 2**64, len(cells), np.uint64)
    packed = b"".join(cell.to_bytes(width, "little", signed=kind != UNSIGNED) for cell in cells)
    hashes = seeds.copy()
    hashing.xxh64_column(kind, width, np.frombuffer(packed, np.uint8), None, hashes)
    expected = [
        oracle.chain(oracle.spark_bytes(kind, width, c), int(s)) for c, s in zip(cells, seeds, strict=True)
    ]
    assert hashes.tolist() == expected


def test_a_decimal_of_few_digits_agrees_with_spark() -> None:
    """Its low half is hashed as a long."""
    cells = [0, 1, -1, 10**18 - 1, -(10**18) + 1]
    hashes = np.full(len(cells), 42, np.uint64)
    packed = b"".join(cell.to_bytes(16, "little", signed=True) for cell in cells)
    hashing.xxh64_column(SIGNED, 16, np.frombuffer(packed, np.uint8), None, hashes)
    assert hashes.tolist() == [oracle.chain(oracle.spark_bytes(SIGNED, 8, cell), 42) for cell in cells]


def test_a_binary_column_agrees_with_spark() -> None:
    rng = np.random.default_rng(FIRST_SEED)
    cells = [rng.bytes(size) for size in range(140)]
    seeds = rng.integers(0, 2**64, len(cells), np.uint64)
    data, offsets = pack(cells, 5)
    hashes = seeds.copy()
    hashing.xxh64_column(BINARY, 0, data, offsets.astype(np.int32), hashes)
    assert hashes.tolist() == [oracle.chain(cell, int(seed)) for cell, seed in zip(cells, seeds, strict=True)]


# Columns as (kind, width, cell), and what ``SELECT xxhash64(...)`` of Spark 4.3 answered.
SPARK_ANSWERS: list[tuple[list[tuple[int, int, int | bytes]], int]] = [
    ([(SIGNED, 1, -5)], 9201179564109417620),
    ([(SIGNED, 2, -300)], 2895908635257747121),
    ([(SIGNED, 4, 123456)], 8591465006815244696),
    ([(SIGNED, 8, -7)], -1663473129717591079),
    ([(SIGNED, 4, 19782)], 4183429117450946631),  # date'2024-02-29'
    ([(SIGNED, 8, 1709210096789012)], -2021281541725647388),  # timestamp'2024-02-29 12:34:56.789012Z'
    ([(BINARY, 0, b"abcde")], -990457398947679591),
    ([(BINARY, 0, b"")], -7444071767201028348),
    ([(BINARY, 0, b"kudu" * 20)], 7687802929505774253),
    ([(BINARY, 0, b"\x00\xff\x10")], 5415089035989094387),
    ([(SIGNED, 16, -1234567)], -4925976502331901572),  # -12345.67 as decimal(10, 2)
    ([(DECIMAL, 16, -1234567)], 3464341207259805448),  # the same as decimal(38, 2)
    ([(UNSIGNED, 8, 255)], 879945414100663330),  # as decimal(20, 0)
    ([(UNSIGNED, 8, 2**64 - 1)], 1989999231533257595),
    ([(DECIMAL, 16, -128)], -7898411661632158123),
    ([(SIGNED, 8, 5), (BINARY, 0, b"abcde")], 8206610937699034667),
]


@pytest.mark.parametrize("columns, answer", SPARK_ANSWERS)
def test_spark_said_the_same(columns: list[tuple[int, int, int | bytes]], answer: int) -> None:
    hashes = np.full(1, 42, np.uint64)
    for kind, width, cell in columns:
        if isinstance(cell, bytes):
            ends = np.array([0, len(cell)], np.int32)
            hashing.xxh64_column(kind, width, np.frombuffer(cell, np.uint8), ends, hashes)
        else:
            packed = cell.to_bytes(width, "little", signed=kind != UNSIGNED)
            hashing.xxh64_column(kind, width, np.frombuffer(packed, np.uint8), None, hashes)
    assert hashes.view(np.int64).tolist() == [answer]


def test_columns_chain() -> None:
    """The result of a column is the seed of the next."""
    hashes = np.full(1, 42, np.uint64)
    hashing.xxh64_column(SIGNED, 8, np.array([5]).view(np.uint8), None, hashes)
    hashing.xxh64_column(BINARY, 0, np.frombuffer(b"abcde", np.uint8), np.array([0, 5], np.int32), hashes)
    assert hashes.tolist() == [oracle.chain(b"abcde", oracle.chain((5).to_bytes(8, "little"), 42))]


@pytest.mark.parametrize("buckets", [1, 2, 3, 7, 16, 4096, 2**31 - 1])
def test_bucket_is_sparks_pmod(buckets: int) -> None:
    rng = np.random.default_rng(FIRST_SEED)
    edges = np.array([0, 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1], np.uint64)
    hashes = np.concatenate([edges, rng.integers(0, 2**64, 300, np.uint64)])
    chosen = hashing.bucket(hashes, buckets)
    assert chosen.dtype == np.int32
    assert chosen.tolist() == [oracle.bucket(h, buckets) for h in hashes.tolist()]


@pytest.mark.parametrize("buckets", [0, -1, 2**31])
def test_bucket_refuses_no_buckets(buckets: int) -> None:
    with pytest.raises(ValueError):
        hashing.bucket(np.zeros(1, np.uint64), buckets)


@pytest.mark.parametrize("offsets", [[], [-1, 4], [0, 9], [0, 5, 4], [0, 2**62, 4], [5, 0], [9, 9]], ids=str)
def test_offsets_outside_the_data_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ValueError):
        hashing.murmur3(np.zeros(8, np.uint8), np.array(offsets, np.int64))


def test_columns_of_other_lengths_are_refused_and_write_nothing() -> None:
    data = np.zeros(16, np.uint8)

    def ends(*values: int) -> npt.NDArray[np.int32]:
        return np.array(values, np.int32)

    for kind, width, values, offsets in [
        (SIGNED, 8, data[:9], None),
        (SIGNED, 8, data[:8], None),
        (SIGNED, 3, data[:6], None),
        (SIGNED, 0, data[:0], None),
        (UNSIGNED, 16, data, None),
        (DECIMAL, 8, data, None),
        (2, 8, data, None),
        (BINARY, 0, data, None),
        (BINARY, 0, data, ends(0, 1)),
        (BINARY, 0, data, ends(0, 1, 17)),
        (BINARY, 0, data, ends(-1, 1, 2)),
        (BINARY, 0, data, ends(0, 9, 8)),
        (BINARY, 0, data, ends(0, 1, 2, 3)),
    ]:
        hashes: U64 = np.full(2, 42, np.uint64)
        with pytest.raises(ValueError):
            hashing.xxh64_column(kind, width, values, offsets, hashes)
        assert hashes.tolist() == [42, 42]
