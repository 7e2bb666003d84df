"""Ugly columns for the page kernels, and small helpers to look at what they return."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]

FIRST_SEED = int(os.environ.get("KUDU_CORE_SEED", "0"))
COUNTS = (0, 1, 7, 1023, 1024, 1025, 16384)


def generator(offset: int = 0) -> np.random.Generator:
    print(f"KUDU_CORE_SEED={FIRST_SEED}")
    return np.random.default_rng(FIRST_SEED + offset)


def raw(values: npt.NDArray[Any]) -> U8:
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1)


def bits_of(flags: npt.NDArray[np.bool_]) -> U8:
    return np.packbits(flags, bitorder="little")


def flags_of(bits: U8 | None, n: int) -> npt.NDArray[np.bool_]:
    if bits is None:
        return np.ones(n, bool)
    return np.unpackbits(bits, bitorder="little", count=n).astype(bool)


def cells_of(values: U8, width: int) -> list[bytes]:
    data = values.tobytes()
    return [data[i : i + width] for i in range(0, len(data), width)]


def cells_of_var(offsets: npt.NDArray[np.int32], data: U8) -> list[bytes]:
    text, ends = data.tobytes(), offsets.tolist()
    return [text[lower:upper] for lower, upper in itertools.pairwise(ends)]


def var_of(cells: Sequence[bytes]) -> tuple[npt.NDArray[np.int32], U8]:
    offsets = np.cumsum([0, *map(len, cells)]).astype(np.int32)
    return offsets, np.frombuffer(b"".join(cells), np.uint8)


def validities(rng: np.random.Generator, n: int) -> list[U8 | None]:
    """No nulls, a few, in stretches, all."""
    stretches = np.repeat(rng.random(n // 300 + 1) < 0.5, 300)[:n]
    return [None, bits_of(rng.random(n) >= 0.1), bits_of(stretches), bits_of(np.zeros(n, bool))]


def integers(rng: np.random.Generator, n: int, dtype: str) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    info = np.iinfo(dtype)
    row = np.arange(n)
    any_ = rng.integers(info.min, info.max, n, dtype, endpoint=True)
    yield "any", any_
    yield "sorted", np.sort(any_)
    yield "all least", np.full(n, info.min, dtype)
    yield "all greatest", np.full(n, info.max, dtype)
    yield "extremes", np.where(row % 2, info.max, info.min).astype(dtype)
    yield "ascending", row.astype(dtype)
    yield "descending", (-row).astype(dtype)
    yield "few", rng.integers(0, 9, n).astype(dtype)
    yield "runs", np.repeat(rng.integers(0, 100, n // 50 + 1), 50)[:n].astype(dtype)
    yield "one rare", np.where(rng.random(n) < 0.01, info.max, 5).astype(dtype)
    rare = np.where(rng.random(n) < 0.5, info.min, info.max)
    yield "rare ends", np.where(rng.random(n) < 0.03, rare, rng.integers(40, 60, n)).astype(dtype)
    yield "walk", np.cumsum(rng.integers(-3, 4, n)).astype(dtype)
    yield "saw", (row % 512 * 3).astype(dtype)
    bits = int(rng.integers(1, 8 * info.dtype.itemsize))
    yield (
        f"{bits} bits",
        (int(info.min) + rng.integers(0, 1 << bits, n, np.uint64).astype(object)).astype(dtype),
    )


def floats(rng: np.random.Generator, n: int, dtype: str) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    words = "u8" if dtype == "f8" else "u4"
    wide = rng.integers(0, np.iinfo(words).max, n, words, endpoint=True)
    two = np.round(rng.random(n) * 100, 2)
    quiet_nan = np.float64(np.nan).astype(dtype)
    with np.errstate(all="ignore"):
        yield "any bits", wide.view(dtype)
        yield "NaN payloads", (wide | quiet_nan.view(words)).view(dtype)
        yield "denormals", (wide >> np.array(12 if dtype == "f8" else 9, words)).view(dtype)
        yield "two decimals", two.astype(dtype)
        yield "walk", np.round(50 + np.cumsum(rng.normal(0, 0.05, n)), 2).astype(dtype)
        yield "nine decimals", np.round(rng.random(n), 9).astype(dtype)
        yield "scales change", np.where(np.arange(n) < 3000, two, np.round(two / 1000, 5)).astype(dtype)
        special = rng.choice([np.nan, -0.0, np.inf, -np.inf, 5e-324, 1e300, -1e-9], n)
        yield "specials among decimals", np.where(rng.random(n) < 0.1, special, two).astype(dtype)
        yield "specials", special.astype(dtype)
        yield "large integers", rng.integers(-(2**53) - 3, 2**53 + 3, n, endpoint=True).astype(dtype)
        yield "steps", np.repeat(np.round(rng.normal(0, 9, n // 90 + 1), 1), 90)[:n].astype(dtype)
        yield "infinite", np.full(n, -np.inf, dtype)
        yield "minus zero", np.full(n, -0.0, dtype)
        yield "normal", rng.normal(0, 1, n).astype(dtype)
        yield "near 10", (10 + rng.random(n)).astype(dtype)
        yield "few", rng.normal(0, 1, 7)[rng.integers(0, 7, n)].astype(dtype)


def decimals(rng: np.random.Generator, n: int) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """16-byte integers as pairs of 8-byte words."""

    def wide(low: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.stack([low, low >> 63], axis=1) if n else np.empty((0, 2), np.int64)

    yield "small", wide(rng.integers(-1000, 1000, n))
    yield "any int64", wide(rng.integers(-(2**63), 2**63 - 1, n, endpoint=True))
    yield "ascending", wide(np.cumsum(rng.integers(0, 99, n)))
    yield "any", rng.integers(-(2**63), 2**63 - 1, (n, 2), endpoint=True)
    yield "wide runs", np.repeat(rng.integers(-(2**63), 2**63 - 1, (n // 60 + 1, 2)), 60, axis=0)[:n]
    mixed = wide(rng.integers(-1000, 1000, n))
    mixed[n // 2 :: 7] += 1
    yield "some wide", mixed


def string_columns(rng: np.random.Generator, n: int) -> Iterator[tuple[str, list[bytes]]]:
    yield "random", [rng.bytes(int(k)) for k in rng.integers(0, 30, n)]
    yield "empty", [b""] * n
    yield "equal", [b"warning"] * n
    yield "equal lengths", [b"%06d" % k for k in rng.integers(0, 10**6, n)]
    yield "hosts", sorted(b"host-%05d\0\0%d" % (rng.integers(0, 30), k) for k in range(n))
    yield "rare long", [rng.bytes(700) if rng.random() < 0.01 else b"x" for _ in range(n)]
    yield "prefixes", [b"a" * (k % 40) for k in range(n)]
    yield "zeros", [bytes(int(k)) for k in rng.integers(0, 5, n)]
