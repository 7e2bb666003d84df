"""Stored columns of every kind and form for the scan kernels, with the cells that they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kudu_core._ext.pages import blocks
from kudu_core._ext.pages.holder import PageHolder
from kudu_core._ext.scan.column import ScanColumn
from tests.support.cases import blocks as cases

MOST_BITS = 14
FIXED_BITS, STRING_BITS = (10, 11, 14), (0, 2, 5, 9, 10, 13, 14)
"""Powers of two of a page's rows."""
NUMBER, SIGNED, FLOAT, CODE = range(4)
_BLOCK_KINDS = {NUMBER: 0, SIGNED: 1, FLOAT: 2, CODE: 0}


@dataclass
class Stored:
    name: str
    kind: int
    width: int
    cells: list[bytes | None]
    pages: list[bytes]
    words: list[bytes] | None = None
    loaded: int = 0
    page_bits: int = MOST_BITS

    def column(self, file: PageHolder | None = None, kept: bool = True) -> ScanColumn:
        def load(numbers: list[int]) -> list[tuple[Any, Any]]:
            self.loaded += len(numbers)
            return [(self.pages[n], (self.name, n) if kept else None) for n in numbers]

        words = None
        if self.words is not None:
            offsets, data = cases.var_of(self.words)
            words = (offsets, np.frombuffer(bytes(data), np.uint8))
        rows = len(self.cells)
        return ScanColumn(file or PageHolder(), load, rows, self.width, words, page_bits=self.page_bits)


def _bits(valid: np.ndarray, first: int, rows: int) -> np.ndarray | None:
    own = valid[first : first + rows]
    return None if own.all() else cases.bits_of(own)


def _nulled(cells: Sequence[bytes], valid: np.ndarray) -> list[bytes | None]:
    return [cell if ok else None for cell, ok in zip(cells, valid.tolist(), strict=True)]


def _valids(rng: np.random.Generator, n: int) -> Iterator[tuple[str, np.ndarray]]:
    yield "", np.ones(n, bool)
    share = rng.random()
    blocks_ = np.repeat(rng.random(n // 1024 + 1) < 0.5, 1024)[:n]
    yield ", nulls", rng.random(n) < share
    yield ", stretches of nulls", blocks_ | (rng.random(n) < 0.02)


def fixed(
    name: str, kind: int, values: np.ndarray, valid: np.ndarray, *, page_bits: int = MOST_BITS, **options: Any
) -> Stored:
    page = 1 << page_bits
    width = 16 if values.ndim == 2 else values.itemsize
    raw = cases.raw(values)
    pages = [
        blocks.encode_fixed(
            raw[i * width : (i + page) * width],
            width,
            4 if width == 16 else _BLOCK_KINDS[kind],
            _bits(valid, i, page),
            **options,
        )
        for i in range(0, len(values), page)
    ]
    cells = _nulled(cases.cells_of(raw, width), valid)
    return Stored(name, kind, width, cells, pages, page_bits=page_bits)


def strings(
    name: str, cells: list[bytes], valid: np.ndarray, prefix: bool = False, page_bits: int = MOST_BITS
) -> Stored:
    page = 1 << page_bits
    pages = [
        blocks.encode_binary(*cases.var_of(cells[i : i + page]), _bits(valid, i, page), prefix)
        for i in range(0, len(cells), page)
    ]
    return Stored(name, NUMBER, 0, _nulled(cells, valid), pages, page_bits=page_bits)


def worded(name: str, cells: list[bytes], valid: np.ndarray, page_bits: int = MOST_BITS) -> Stored:
    words = sorted({c for c, ok in zip(cells, valid.tolist(), strict=True) if ok}) or [b""]
    code = {word: k for k, word in enumerate(words)}
    codes = np.array([code.get(c, 0) for c in cells], np.uint8 if len(words) <= 256 else np.uint16)
    stored = fixed(name, CODE, codes, valid, page_bits=page_bits)
    stored.cells = _nulled(cells, valid)
    stored.words = words
    return stored


def numbers(rng: np.random.Generator, n: int) -> Iterator[Stored]:
    """Fixed columns of every width, kind and encoding, some with nulls."""
    made: list[tuple[str, int, np.ndarray]] = []
    for dtype in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"):
        kind = SIGNED if dtype[0] == "i" else NUMBER
        made += [(f"{dtype} {name}", kind, values) for name, values in cases.integers(rng, n, dtype)]
    for dtype in ("f4", "f8"):
        made += [(f"{dtype} {name}", FLOAT, values) for name, values in cases.floats(rng, n, dtype)]
    made += [(f"decimal {name}", SIGNED, values) for name, values in cases.decimals(rng, n)]
    for name, kind, values in made:
        more, valid = list(_valids(rng, n))[int(rng.integers(0, 3))]
        width = 16 if values.ndim == 2 else values.itemsize
        forms = ["plain", "rle", *["delta"] * (kind != FLOAT), *["bitshuffle"] * (width in (4, 8))]
        form = "auto" if rng.random() < 0.8 else str(rng.choice(forms))
        bits = int(rng.choice(FIXED_BITS))
        yield fixed(name + more, kind, values, valid, page_bits=bits, form=form)


def texts(rng: np.random.Generator, n: int) -> Iterator[Stored]:
    """Columns of strings: plain in pages of one row and of many, with shared prefixes, as codes."""
    for name, cells in cases.string_columns(rng, n):
        more, valid = list(_valids(rng, n))[int(rng.integers(0, 3))]
        yield strings(f"plain {name}{more}", cells, valid, page_bits=int(rng.choice(STRING_BITS)))
    yield strings("prefixed", [b"%09d" % k for k in range(n)], np.ones(n, bool), prefix=True)
    for count, size in ((1, 5), (8, 9), (300, 12), (900, 40)):
        pool = [rng.bytes(int(k)) for k in rng.integers(0, size, count)]
        for more, valid in _valids(rng, n):
            picked = rng.integers(0, count, n)
            if rng.random() < 0.5:
                picked = np.sort(picked)
            bits = int(rng.choice(FIXED_BITS))
            yield worded(f"{count} words{more}", [pool[k] for k in picked.tolist()], valid, bits)


def ranges(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Ranges of rows: all, a few long ones, or many small ones."""
    what = rng.integers(0, 4)
    if what == 0:
        return np.array([[0, rows]], np.int64)
    count = int(rng.choice([1, 3, 40]))
    edges = np.sort(rng.integers(0, rows + 1, 2 * count))
    found = edges.reshape(-1, 2).astype(np.int64)
    if what == 3:
        found[:, 1] = np.minimum(found[:, 1], found[:, 0] + rng.integers(0, 60))
    return np.ascontiguousarray(found)
