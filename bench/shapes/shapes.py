"""The shapes that tables have: narrow and wide, thin and fat, few rows and many, many tablets, many rowsets.

Every shape begins with the same four columns, so that every operation means the same in all of them: the key
``k``, a number ``n`` that is NULL once in a hundred rows, a float ``f`` that updates change, and a word ``w``
of a thousand.  What makes the shape comes after them: columns ``p0``, ``p1``, ...  A shape is data; nothing
here knows an engine.  It has two sizes: the full one of the benchmarks, and a small one of the tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import numpy as np
import pyarrow as pa

HEAD = ("k", "n", "f", "w")
STEP = 7
"""Between keys, so that what lies between two of them can be asked for."""
WORDS = 1000
SCALE = float(os.environ.get("KUDU_CORE_BENCH_SCALE", "1"))
"""Of the rows of a full shape."""
CACHE_BYTES = 512 << 20
"""The page cache of shapes that lie in it as a whole."""


@dataclass(frozen=True)
class Shape:
    """What a table looks like."""

    name: str
    rows: int
    small_rows: int
    columns: int = 0
    """Columns beside the first four."""
    cells: str = "numbers"
    """What lies in these columns: one of ``CELLS``."""
    cell_bytes: int = 8
    tablets: int = 1
    rowsets: int = 1
    """In which the rows come to lie, one beside the other: each has keys from all over."""
    cache_part: int = 0
    """So many times the page cache is the table; 0: it lies in the cache."""

    @property
    def names(self) -> list[str]:
        return [*HEAD, *(f"p{i}" for i in range(self.columns))]

    @property
    def data_bytes(self) -> int:
        """About, before anything is packed."""
        return self.rows * (32 + self.columns * self.cell_bytes)

    @property
    def cache_bytes(self) -> int:
        """Of the page cache."""
        return self.data_bytes // self.cache_part if self.cache_part else CACHE_BYTES

    def scaled(self, scale: float) -> Shape:
        return replace(self, rows=max(20, int(self.rows * scale)))

    def small(self) -> Shape:
        """As tests have it: as wide and as fat, with few rows, tablets and rowsets."""
        tablets, rowsets = min(self.tablets, 64), min(self.rowsets, 20)
        return replace(self, rows=self.small_rows, tablets=tablets, rowsets=rowsets)


@cache
def _text(size: int = 16 << 20) -> bytes:
    """Text of a vocabulary of 4,096 words: a codec makes a quarter of it."""
    rng = np.random.default_rng(41)
    words = rng.integers(97, 123, (4096, 8), np.uint8)
    words[:, -1] = ord(" ")
    return words[rng.integers(0, len(words), size // 8)].tobytes()


def _numbers(rng: np.random.Generator, rows: int, _: int) -> pa.Array:
    return pa.array(rng.integers(0, 1 << 20, rows))


def _texts(rng: np.random.Generator, rows: int, size: int) -> pa.Array:
    text = _text()
    starts = rng.integers(0, len(text) - size, rows)
    return pa.array([text[i : i + size] for i in starts.tolist()], pa.binary()).cast(pa.string())


def _blobs(rng: np.random.Generator, rows: int, size: int) -> pa.Array:
    return pa.array([rng.bytes(size) for _ in range(rows)], pa.binary())


def _of_few(rng: np.random.Generator, rows: int, size: int) -> pa.Array:
    few = pa.array([f"value {i:02d} ".ljust(size, "x") for i in range(50)])
    return few.take(pa.array(rng.integers(0, len(few), rows)))


CELLS: dict[str, Callable[[np.random.Generator, int, int], pa.Array]] = {
    "numbers": _numbers,
    "text": _texts,
    "bytes": _blobs,
    "of few": _of_few,
}


@lru_cache(2)
def rows_of(shape: Shape) -> pa.Table:
    """All rows in the order of their keys: the model that every answer is compared with."""
    rng, count = np.random.default_rng(17), shape.rows
    words = pa.array([f"w{i:03d}" for i in range(WORDS)])
    made: dict[str, pa.Array] = {
        "k": pa.array(np.arange(count, dtype=np.int64) * STEP),
        "n": pa.array(rng.integers(0, 1 << 40, count), mask=rng.random(count) < 0.01),
        "f": pa.array(np.round(rng.normal(50, 10, count), 2)),
        "w": words.take(pa.array(rng.integers(0, WORDS, count))),
    }
    for name in shape.names[len(HEAD) :]:
        made[name] = CELLS[shape.cells](rng, count, shape.cell_bytes)
    return pa.table(made)


def parts_of(shape: Shape) -> Iterator[pa.Table]:
    """The same rows in no order, a part for each rowset."""
    order = np.random.default_rng(18).permutation(shape.rows)
    for first in range(shape.rowsets):
        yield rows_of(shape).take(pa.array(order[first :: shape.rowsets])).combine_chunks()


_FAT = (
    Shape("10 x 100 B", 60_000, 300, 10, "text", 100),
    Shape("cells of 1 KB", 60_000, 60, 1, "text", 1_000),
    Shape("cells of 10 KB", 6_000, 30, 1, "text", 10_000),
    Shape("cells of 100 KB", 600, 20, 1, "bytes", 100_000),
    Shape("cells of 1 MB", 100, 8, 1, "bytes", 1_000_000),
)
PLAIN = (
    Shape("narrow", 1_000_000, 2_000),
    *_FAT,
    Shape("100 columns", 60_000, 200, 96),
    Shape("500 columns", 20_000, 60, 496),
    Shape("2,000 columns", 8_000, 25, 1996),
    Shape("few values", 300_000, 500, 10, "of few", 12),
    Shape("few rows", 100, 20, 6),
)
"""One tablet, one load, all in the cache."""
SPREAD = (
    *(Shape(f"{n} tablets", 500_000, 1_000, tablets=n) for n in (16, 64, 256)),
    *(Shape(f"{n} rowsets", 200_000, 1_000, rowsets=n) for n in (20, 200)),
)
"""Narrow rows in many places."""
BEYOND = tuple(
    replace(shape, name=f"{shape.name}, {times} x cache", cache_part=times)
    for shape in (_FAT[0], _FAT[1], _FAT[2], _FAT[4])
    for times in (2, 10)
)
"""Tables that are larger than the page cache."""
SHAPES = {shape.name: shape for shape in (*PLAIN, *SPREAD, *BEYOND)}


def sized(name: str, timed: bool) -> Shape:
    """A shape as a benchmark has it, or as a test has it."""
    return SHAPES[name].scaled(SCALE) if timed else SHAPES[name].small()
