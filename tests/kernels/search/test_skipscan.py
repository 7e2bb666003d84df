"""Rows found in intervals of key columns are the rows that looking at each of them finds."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pytest

from kudu_core._ext.base.status import PageError
from kudu_core._ext.pages import blocks
from kudu_core._ext.search.skipscan import KeyOrder
from tests.support.oracles.search import skipscan as oracle

PAGE, BLOCK = 16_384, 1024
Spans = list[list[tuple[int, int]] | None]


class File:
    """Key columns in order, encoded in pages."""

    def __init__(self, columns: list[np.ndarray], *, delta: bool = True) -> None:
        order = np.lexsort(columns[::-1])
        self.columns = [np.ascontiguousarray(column[order]) for column in columns]
        self.flips = [1 << 8 * c.dtype.itemsize - 1 if c.dtype.kind == "i" else 0 for c in columns]
        self.widths = [c.dtype.itemsize for c in columns]
        self.numbers = [
            c.view(f"u{w}").astype(np.uint64) ^ np.uint64(flip)
            for c, w, flip in zip(self.columns, self.widths, self.flips, strict=True)
        ]
        self.size = len(self.columns[0])
        self.pages = [
            [
                blocks.encode_fixed(c[i : i + PAGE].view(np.uint8), w, kind, allow_delta=delta)
                for i in range(0, self.size, PAGE)
            ]
            for c, w, kind in zip(self.columns, self.widths, [f > 0 for f in self.flips], strict=True)
        ]
        self.loaded: list[tuple[int, int]] = []

    def rows(self) -> list[oracle.Row]:
        return list(zip(*(n.tolist() for n in self.numbers), strict=True))

    def order(self) -> KeyOrder:
        firsts = [np.ascontiguousarray(n[::BLOCK]) for n in self.numbers]
        return KeyOrder(self.size, list(zip(self.widths, self.flips, firsts, strict=True)))

    def load(self, column: int, first: int, last: int) -> list[bytes]:
        self.loaded += [(column, page) for page in range(first, last)]
        return self.pages[column][first:last]

    def ranges(self, lower: int, upper: int, spans: Spans, least: int = 0) -> tuple[list[Any], int | None]:
        found, stop = self.order().ranges(lower, upper, arrays(spans), self.load, least)
        return [tuple(pair) for pair in found.tolist()], stop


def arrays(spans: Spans) -> list[np.ndarray | None]:
    return [None if s is None else np.array(s, np.uint64).reshape(-1, 2) for s in spans]


def some_spans(rng: np.random.Generator, numbers: np.ndarray, width: int) -> list[tuple[int, int]] | None:
    """Intervals round values that there are, and some that there are not."""
    kind = rng.integers(0, 5)
    if kind == 0:
        return None
    if kind == 1:
        return []
    most = (1 << 8 * width) - 1
    count = 1 if kind == 2 else int(rng.integers(1, 6))
    picked = rng.choice(numbers, 2 * count).tolist()
    moved = {min(max(int(p) + int(rng.integers(-1, 2)), 0), most) for p in picked}
    ends = sorted(moved)
    if kind == 3:
        return [(end, end) for end in ends]
    pairs = list(zip(ends[::2], ends[1::2], strict=False)) or [(ends[0], ends[0])]
    return [(0, pairs[0][1]), *pairs[1:]] if rng.random() < 0.2 else pairs


DTYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("delta", [False, True])
def test_ranges_agree_with_oracle(dtype: str, delta: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(dtype[1])
    limits = np.iinfo(dtype)
    for rows, values in ((1, 3), (1024, 2), (2500, 40), (2049, 100_000)):
        spread = min(values, int(limits.max) - 1)
        columns = [
            (rng.integers(0, 3, rows) * 7).astype("u2"),
            (rng.integers(-min(spread, 100), spread, rows)).clip(limits.min, limits.max).astype(dtype),
            (rng.integers(0, values, rows) * 1000).astype("i8"),
        ]
        file = File(columns, delta=delta)
        all_rows = file.rows()
        for _ in range(12):
            spans: Spans = [some_spans(rng, n, w) for n, w in zip(file.numbers, (2, size, 8), strict=True)][
                : rng.integers(1, 4)
            ]
            if all(s is None for s in spans):
                spans[-1] = [(0, 5)]
            lower, upper = sorted(rng.integers(0, rows + 1, 2).tolist())
            found, stop = file.ranges(lower, upper, spans)
            assert stop is None
            assert found == oracle.ranges(all_rows, lower, upper, spans), (spans, lower, upper)


def test_a_walk_that_does_not_pay_leaves_columns_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    many = File([np.sort(rng.integers(0, 2000, 6000)).astype("u2"), rng.integers(0, 50, 6000).astype("i8")])
    rows = many.rows()
    base = 1 << 63
    for spans in ([None, [(base, base + 9)]], [[(0, 500), (900, 1500)], [(base + 3, base + 4)]]):
        exact = oracle.ranges(rows, 0, 6000, spans)
        found, stop = many.ranges(0, 6000, spans, least=100)
        assert stop is not None
        inside = np.zeros(6000, bool)
        for lower, upper in found:
            inside[lower:upper] = True
        wanted = np.zeros(6000, bool)
        for lower, upper in exact:
            wanted[lower:upper] = True
        assert (inside[:stop] == wanted[:stop]).all(), "exact as far as it says"
        loose = oracle.ranges(rows, stop, 6000, spans[:1])
        assert [(a, b) for a, b in found if a >= stop] == loose, "from there on by the first column"
        assert many.ranges(0, 6000, spans, least=1) == (exact, None)


def test_seek_agrees_with_oracle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    file = File([rng.integers(0, 5, 3000).astype("u1"), rng.integers(-40, 40, 3000).astype("i4")])
    order, rows = file.order(), file.rows()
    for count in (0, 1, 2):
        for _ in range(40):
            cells = (int(rng.integers(0, 7)), int(rng.integers(-45, 45)) + (1 << 31))[:count]
            for beyond in (False, True):
                found = order.seek(np.array(cells, np.uint64), beyond, file.load)
                assert found == (0 if not count else oracle.seek(rows, cells, beyond=beyond))


def test_only_the_pages_of_the_ends_are_asked_for() -> None:
    host = np.repeat(np.arange(100), 1000)
    ts = np.tile(np.arange(1000), 100)
    file = File([host.astype("u2"), ts.astype("i8")])
    base = 1 << 63
    assert file.ranges(0, 100_000, [[(40, 40)]]) == ([(40_000, 41_000)], None)
    assert file.loaded == [(0, 40_000 // PAGE)]
    file.loaded.clear()
    assert file.ranges(0, 100_000, [[(40, 40)], [(base + 3, base + 7)]]) == ([(40_003, 40_008)], None)
    assert file.loaded == [(0, 2), (1, 2)]
    file.loaded.clear()
    found, _ = file.ranges(0, 100_000, [None, [(base + 3, base + 7)]])
    assert found == [(1000 * i + 3, 1000 * i + 8) for i in range(100)]
    assert sorted(file.loaded) == [(c, p) for c in (0, 1) for p in range(7)], "each page once"


def test_arguments_are_checked() -> None:
    file = File([np.arange(10, dtype="u2")])
    order = file.order()
    one = np.array([[1, 2]], np.uint64)
    for lower, upper, spans in (
        (-1, 5, [one]),
        (0, 11, [one]),
        (5, 4, [one]),
        (0, 10, []),
        (0, 10, [None]),
        (0, 10, [one, one]),
        (0, 10, [np.array([[2, 1]], np.uint64)]),
        (0, 10, [np.array([[1, 2], [2, 3]], np.uint64)]),
        (0, 10, [np.array([[1, 2, 3]], np.uint64)]),
    ):
        with pytest.raises(ValueError):
            order.ranges(lower, upper, spans, file.load)
    with pytest.raises(ValueError):
        order.ranges(0, 10, [one], lambda column, first, last: [])
    with pytest.raises(ValueError):
        order.seek(np.zeros(2, np.uint64), False, file.load)
    with pytest.raises(ValueError):
        KeyOrder(10, [(3, 0, np.zeros(1, np.uint64))])
    with pytest.raises(ValueError):
        KeyOrder(1025, [(2, 0, np.zeros(1, np.uint64))])


def broken(rng: np.random.Generator, page: bytes) -> bytes:
    """A page with some bytes changed, or cut off."""
    raw = bytearray(page)
    for _ in range(int(rng.integers(1, 4))):
        raw[int(rng.integers(0, len(raw)))] = int(rng.integers(0, 256))
    return bytes(raw[: int(rng.integers(0, len(raw) + 1))]) if rng.random() < 0.2 else bytes(raw)


def pages_between(pages: list[list[bytes]], column: int, first: int, last: int) -> list[bytes]:
    return pages[column][first:last]


@pytest.mark.parametrize("delta", [False, True])
def test_any_bytes_end_in_ranges_or_a_page_error(delta: bool, seed: int) -> None:
    """Whatever pages and first keys say, a search ends, and what it finds lies in the rows asked for."""
    rng = np.random.default_rng(seed)
    host = np.sort(rng.integers(0, 30, 20_000)).astype("u2")
    file = File([host, rng.integers(0, 1 << 40, 20_000).astype("i8")], delta=delta)
    for _ in range(60):
        pages = [[broken(rng, p) if rng.random() < 0.6 else p for p in column] for column in file.pages]
        load = partial(pages_between, pages)
        firsts = [n[::BLOCK].copy() for n in file.numbers]
        if rng.random() < 0.3:
            rng.shuffle(firsts[int(rng.integers(0, 2))])
        order = KeyOrder(20_000, list(zip(file.widths, file.flips, firsts, strict=True)))
        spans = arrays([some_spans(rng, n, w) for n, w in zip(file.numbers, (2, 8), strict=True)])
        if all(s is None for s in spans):
            continue
        lower, upper = sorted(rng.integers(0, 20_001, 2).tolist())
        with suppress(PageError):
            found, _ = order.ranges(lower, upper, spans, load, 8)
            if len(found):
                assert lower <= found[0, 0] and found[-1, 1] <= upper
                assert (np.diff(found.reshape(-1)) > 0).all()
        with suppress(PageError):
            assert 0 <= order.seek(np.array([5, 1 << 63], np.uint64), False, load) <= 20_000
