"""Tests on stored values choose exactly the rows whose cells belong, in every form; and survive any bytes."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest

from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.pages.holder import PageHolder
from kudu_core._ext.scan.cell_set import CellSet
from kudu_core._ext.scan.column import ScanColumn
from kudu_core._ext.scan.selection import Selection
from tests.kernels.pages.test_blocks_hostile import damage
from tests.support.cases import blocks as cases
from tests.support.cases import scans as scan_cases
from tests.support.cases.scans import CODE, Stored
from tests.support.oracles.scan import selection as oracle

PAGE = 16_384


def apart(ends: list[int]) -> list[tuple[int, int]]:
    """Closed intervals from ascending numbers, none of which touch."""
    ends = sorted(set(ends))
    return list(zip(ends[::2], ends[1::2], strict=False))


def intervals_for(rng: np.random.Generator, stored: Stored) -> list[tuple[int, int]]:
    """Ends at cells, next to them, and at the ends of the line."""
    most = (1 << 8 * stored.width) - 1
    present = [c for c in stored.cells if c is not None] or [bytes(stored.width)]
    picked = [present[int(i)] for i in rng.integers(0, len(present), 12)]
    if stored.words is not None:
        most = len(stored.words) - 1
        places = [int(i) for i in rng.integers(0, most + 1, 12)]
    else:
        places = [oracle.place(cell, stored.kind) for cell in picked]
    near = [p + int(d) for p, d in zip(places, rng.integers(-1, 2, len(places)), strict=True)]
    ends = [0, most, *places, *near] if rng.random() < 0.3 else near
    ends = [p for p in ends if 0 <= p <= most]
    count = int(rng.choice([0, 2, 2, 2, 4, 24]))
    single = [(p, p) for p in sorted(set(places))][:count]
    if rng.random() < 0.3:
        return [i for i in single if 0 <= i[0] <= most]
    return apart([int(p) for p in rng.permutation(np.array(ends, object))[:count]])


def number_test(stored: Stored, intervals: list[tuple[int, int]], nulls: bool) -> CellSet:
    words = 2 if stored.width == 16 else 1

    def ends(which: int) -> np.ndarray:
        raw = b"".join(i[which].to_bytes(8 * words, "little") for i in intervals)
        return np.frombuffer(raw, np.uint64).reshape(-1, words).copy()

    count = 0 if stored.words is None else len(stored.words)
    return CellSet(stored.kind, stored.width, ends(0), ends(1), nulls, count)


def code_intervals(stored: Stored, intervals: list[tuple[int, int]]) -> list[tuple[bytes, bytes | None]]:
    assert stored.words is not None
    return [(stored.words[low], stored.words[high] + b"\0") for low, high in intervals]


def string_test(intervals: list[tuple[bytes, bytes | None]], nulls: bool) -> CellSet:
    ends = [end or b"" for interval in intervals for end in interval]
    offsets = np.cumsum([0, *map(len, ends)], dtype=np.int64)
    open_end = bool(intervals) and intervals[-1][1] is None
    return CellSet.of_strings(b"".join(ends), offsets, open_end, nulls)


def string_intervals(rng: np.random.Generator, stored: Stored) -> list[tuple[bytes, bytes | None]]:
    present = sorted({c for c in stored.cells if c is not None} | {b"", b"h", b"\xff\xff"})
    picked = [present[int(i)] for i in rng.integers(0, len(present), 6)]
    ends = sorted({cell + bytes(int(rng.integers(0, 2))) for cell in picked})
    found: list[tuple[bytes, bytes | None]] = list(zip(ends[::2], ends[1::2], strict=False))
    if rng.random() < 0.3:
        found.append((ends[-1] + b"\1", None))
    return found


def random_test(rng: np.random.Generator, stored: Stored) -> tuple[CellSet, list[bool]]:
    """A set of values, and which cells of the column belong to it."""
    nulls = bool(rng.random() < 0.5)
    if stored.width == 0:
        intervals = string_intervals(rng, stored)
        found = {c: oracle.string_belongs(c, intervals, nulls) for c in set(stored.cells)}
        return string_test(intervals, nulls), [found[c] for c in stored.cells]
    numbers = intervals_for(rng, stored)
    if stored.kind == CODE:
        named = code_intervals(stored, numbers)
        found = {c: oracle.string_belongs(c, named, nulls) for c in set(stored.cells)}
    else:
        found = {c: oracle.belongs(c, stored.kind, numbers, nulls) for c in set(stored.cells)}
    return number_test(stored, numbers, nulls), [found[c] for c in stored.cells]


def check(rng: np.random.Generator, stored: Stored) -> None:
    column = stored.column()
    rows = len(stored.cells)
    for _ in range(4):
        ranges = scan_cases.ranges(rng, rows)
        wanted = oracle.rows(ranges.tolist())
        live = None
        if rng.random() < 0.3:
            live = (rng.random(len(wanted)) < 0.9).astype(np.uint8)
            wanted = [row for row, ok in zip(wanted, live.tolist(), strict=True) if ok]
        selection = Selection(ranges, rows, live)
        for _ in range(int(rng.integers(1, 3))):
            test, belong = random_test(rng, stored)
            selection.test(column, test)
            wanted = [row for row in wanted if belong[row]]
            assert selection.rowids().tolist() == wanted, stored.name
            assert selection.chosen == len(wanted)
        passed = (rng.random(len(wanted)) < 0.5).astype(np.uint8) * 3
        selection.keep(passed)
        wanted = [row for row, ok in zip(wanted, passed.tolist(), strict=True) if ok]
        assert selection.rowids().tolist() == wanted


def some(rng: np.random.Generator, made: Iterable[Stored], long: bool) -> list[Stored]:
    """In the short run a third of the columns of many rows: the oracle goes through each cell."""
    columns = list(made)
    return columns if long or len(columns[0].cells) <= PAGE else columns[int(rng.integers(3)) :: 3]


@pytest.mark.parametrize("rows", [1, 700, 2048, PAGE + 1100])
def test_numbers_of_every_form(rows: int, long: bool) -> None:
    for part in range(20 if long else 1):
        rng = cases.generator(rows + part)
        for stored in some(rng, scan_cases.numbers(rng, rows), long):
            check(rng, stored)


@pytest.mark.parametrize("rows", [1, 700, 2048, PAGE + 1100])
def test_strings_and_words(rows: int, long: bool) -> None:
    for part in range(10 if long else 1):
        rng = cases.generator(rows + part)
        for stored in scan_cases.texts(rng, rows):
            if stored.name == "prefixed":
                test, _ = random_test(rng, stored)
                with pytest.raises(NeedsGeneralPath):
                    Selection(np.array([[0, rows]]), rows).test(stored.column(), test)
                continue
            check(rng, stored)


def test_decimals_at_their_borders() -> None:
    """Doubles that are stored as integers are compared as integers: every end beside a cell is right."""
    rng = cases.generator(3)
    for scale in (0, 1, 2, 5, 9):
        values = np.round(rng.integers(-3000, 3000, 1024) / 10**scale, scale)
        stored = scan_cases.fixed(f"scale {scale}", scan_cases.FLOAT, values, np.ones(1024, bool))
        column = stored.column()
        places = sorted({oracle.place(cell, 2) for cell in stored.cells if cell is not None})
        for _ in range(60):
            a, b = sorted(int(i) for i in rng.integers(0, len(places), 2))
            low, high = places[a] + int(rng.integers(-1, 2)), places[b] + int(rng.integers(-1, 2))
            if low > high:
                continue
            selection = Selection(np.array([[0, 1024]]), 1024)
            selection.test(column, number_test(stored, [(low, high)], False))
            wanted = [i for i, c in enumerate(stored.cells) if oracle.belongs(c, 2, [(low, high)], False)]
            assert selection.rowids().tolist() == wanted


# ---- lists of many values, which have a filter


def many_numbers(rng: np.random.Generator, stored: Stored) -> list[tuple[int, int]]:
    """Single cells, some beside a cell, some runs of two and three, in random number."""
    most = (1 << 8 * stored.width) - 1 if stored.words is None else len(stored.words) - 1
    if stored.words is None:
        places = sorted({oracle.place(cell, stored.kind) for cell in stored.cells if cell is not None})
    else:
        places = list(range(len(stored.words)))
    found: list[tuple[int, int]] = []
    for place in places:
        low = place + int(rng.integers(-1, 2))
        high = low + int(rng.choice([0, 0, 0, 0, 1, 2]))
        if rng.random() < 0.4 and low >= 0 and high <= most and (not found or found[-1][1] < low):
            found.append((low, high))
    return found


def many_strings(rng: np.random.Generator, stored: Stored) -> list[tuple[bytes, bytes | None]]:
    """Single strings: of the column, and such as differ in one byte at either end."""
    present = {c for c in stored.cells if c is not None}
    near = {c[:-1] + b"~" for c in present} | {b"~" + c[1:] for c in present} | {b"", b"\0", b"\0\0"}
    picked = sorted(c for c in present | near if rng.random() < 0.4)
    return [(c, c + b"\0") for at, c in enumerate(picked) if not at or picked[at - 1] + b"\0" < c]


def place_in(stored: Stored, cell: bytes) -> int:
    """Where a cell lies on the line of its column."""
    return oracle.place(cell, stored.kind) if stored.words is None else stored.words.index(cell)


@pytest.mark.parametrize("rows", [700, PAGE + 1100])
def test_lists_of_many_values(rows: int, long: bool) -> None:
    filtered = 0
    for part in range(10 if long else 1):
        rng = cases.generator(rows + part)
        for stored in some(rng, [*scan_cases.numbers(rng, rows), *scan_cases.texts(rng, rows)], long):
            nulls = bool(rng.random() < 0.5)
            if stored.name == "prefixed":
                continue
            if stored.width == 0:
                strings = many_strings(rng, stored)
                test, count = string_test(strings, nulls), len(strings)
                held: set[Any] = {low for low, _ in strings}
                place: Callable[[bytes], Any] = bytes
            else:
                numbers = many_numbers(rng, stored)
                test, count = number_test(stored, numbers, nulls), len(numbers)
                held = {number for low, high in numbers for number in range(low, high + 1)}
                place = partial(place_in, stored)
            belong = {c: nulls if c is None else place(c) in held for c in set(stored.cells)}
            filtered += count >= 8
            selection = Selection(np.array([[0, rows]]), rows)
            selection.test(stored.column(), test)
            assert selection.rowids().tolist() == [r for r, c in enumerate(stored.cells) if belong[c]], (
                stored.name
            )
    assert filtered > (10 if long else 3)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
def test_lists_that_reach_the_ends_of_the_line(dtype: str) -> None:
    """The hash table of a list is filled up with a number that is not in it, wherever that lies."""
    most = int(np.iinfo(dtype).max)
    for values in (
        range(9),
        range(most - 8, most + 1),
        [*range(5), *range(most - 4, most + 1)],
        [*range(0, 40, 2), most],
        [n << 64 - 8 >> 64 - 8 * np.dtype(dtype).itemsize for n in range(1, 255, 3)],
    ):
        cells = np.array([0, 1, 2, most, most - 1, *values, *(v ^ 1 for v in values)], dtype)
        stored = scan_cases.fixed("n", scan_cases.NUMBER, np.resize(cells, 900), np.arange(900) % 9 != 4)
        selection = Selection(np.array([[0, 900]]), 900)
        selection.test(stored.column(), number_test(stored, [(v, v) for v in values], False))
        wanted = {v.to_bytes(stored.width, "little") for v in values}
        assert selection.rowids().tolist() == [r for r, c in enumerate(stored.cells) if c in wanted]


# ---- what is read at all


def ascending(rows: int) -> Stored:
    return scan_cases.fixed("k", scan_cases.NUMBER, np.arange(rows, dtype="u4"), np.ones(rows, bool))


def test_states_of_pages_decide_without_reading() -> None:
    stored = ascending(4 * PAGE)
    column = stored.column()
    selection = Selection(np.array([[0, 4 * PAGE]]), 4 * PAGE)
    test = number_test(stored, [(PAGE + 5, 3 * PAGE - 1)], False)
    selection.test(column, test, np.array([0, 2, 1, 0], np.uint8))
    assert selection.rowids().tolist() == list(range(PAGE + 5, 3 * PAGE))
    assert stored.loaded == 1
    selection.test(column, test)
    assert stored.loaded == 2, "pages without a row that is left are not read"


def test_pages_are_held_as_long_as_the_cache_keeps_them() -> None:
    stored, file = ascending(2 * PAGE), PageHolder()
    column = stored.column(file)
    test = number_test(stored, [(0, 9)], False)

    def use() -> None:
        Selection(np.array([[0, 2 * PAGE]]), 2 * PAGE).test(column, test)

    use()
    assert file.pages == 2 and stored.loaded == 2
    assert file.forget(("k", 0)), "read once, as any scan does"
    use()
    use()
    assert stored.loaded == 3
    assert not file.forget(("k", 1)), "used since"
    assert file.forget(("k", 1)) and file.forget(("k", 7)) and file.pages == 1
    file.close()
    use()
    use()
    assert file.pages == 0 and stored.loaded == 7
    loose = ascending(10)
    column = loose.column(kept=False)
    for _ in range(3):
        Selection(np.array([[0, 10]]), 10).test(column, number_test(loose, [(0, 1)], False))
    assert loose.loaded == 3


# ---- what is refused


def test_what_is_no_selection() -> None:
    for ranges in ([[5, 4]], [[0, 11]], [[-1, 2]], [[0, 5], [4, 6]]):
        with pytest.raises(ValueError, match="ranges"):
            Selection(np.array(ranges, np.int64), 10)
    with pytest.raises(ValueError, match="flags"):
        Selection(np.array([[0, 5]]), 10, np.ones(4, np.uint8))
    with pytest.raises(ValueError, match=r"\(m, 2\)"):
        Selection(np.array([[0, 5, 6]]), 10)
    selection = Selection(np.array([[0, 5]]), 10)
    with pytest.raises(ValueError, match="flags"):
        selection.keep(np.ones(4, np.uint8))
    assert Selection(np.empty((0, 2), np.int64), 10).rowids().tolist() == []


def test_what_is_no_test() -> None:
    one = np.array([1], np.uint64)
    for arguments in (
        (9, 4, one, one, False),
        (0, 3, one, one, False),
        (2, 2, one, one, False),
        (0, 16, np.zeros((1, 2), np.uint64), np.zeros((1, 2), np.uint64), False),
        (0, 4, one, one - 1, False),
        (0, 4, np.array([1, 1], np.uint64), np.array([1, 2], np.uint64), False),
        (0, 1, one, one * 300, False),
        (0, 4, one, np.array([1, 2], np.uint64), False),
        (3, 1, one, one, False, 0),
        (3, 4, one, one, False, 5),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            CellSet(*arguments)
    with pytest.raises(ValueError, match="leave"):
        CellSet.of_strings(b"", np.array([0, 1, 1], np.int64), False, False)
    with pytest.raises(ValueError, match="descend"):
        CellSet.of_strings(b"abc", np.array([0, 2, 1], np.int64), False, False)
    stored = ascending(10)
    selection = Selection(np.array([[0, 10]]), 10)
    with pytest.raises(ValueError, match="other cells"):
        selection.test(stored.column(), string_test([], False))
    with pytest.raises(ValueError, match="states"):
        selection.test(stored.column(), number_test(stored, [], False), np.zeros(2, np.uint8))
    with pytest.raises(ValueError, match="rows"):
        selection.test(ascending(11).column(), number_test(stored, [], False))
    with pytest.raises(ValueError, match="descend"):
        ScanColumn(PageHolder(), lambda _: [], 1, 1, (np.array([0, 2, 1], np.int32), np.zeros(2, np.uint8)))
    for width, page_bits in ((8, 9), (8, 15), (0, -1), (0, 15)):
        with pytest.raises(ValueError, match="pages of"):
            ScanColumn(PageHolder(), lambda _: [], 1, width, page_bits=page_bits)
    with pytest.raises(ValueError, match="leave"):
        ScanColumn(PageHolder(), lambda _: [], 1, 1, (np.array([0, 2], np.int32), np.zeros(1, np.uint8)))


def damaged(rng: np.random.Generator, stored: Stored) -> Stored:
    pages = [np.frombuffer(damage(rng, page), np.uint8).copy() for page in stored.pages]
    held: list[Any] = pages
    return Stored(stored.name, stored.kind, stored.width, stored.cells, held, stored.words)


@pytest.mark.parametrize("part", range(3))
def test_damaged_pages(part: int, long: bool) -> None:
    """An error, or rows that were asked for: no crash, no row from elsewhere."""
    rng = cases.generator(400 + part)
    columns = [s for n in (40, 1100) for make in (scan_cases.numbers, scan_cases.texts) for s in make(rng, n)]
    refused = 0
    for _ in range(20_000 if long else 600):
        stored = columns[int(rng.integers(0, len(columns)))]
        broken = damaged(rng, stored)
        test, _ = random_test(rng, stored)
        ranges = scan_cases.ranges(rng, len(stored.cells))
        selection = Selection(ranges, len(stored.cells))
        try:
            selection.test(broken.column(), test)
        except (PageError, NeedsGeneralPath):
            refused += 1
        found = selection.rowids().tolist()
        assert found == sorted(set(found)) and set(found) <= set(oracle.rows(ranges.tolist()))
    assert refused > 100


def test_intervals_are_searched_like_a_list() -> None:
    """Many points in one test."""
    rng = cases.generator(8)
    values = rng.integers(0, 5000, 3000).astype("u2")
    stored = scan_cases.fixed("u2", scan_cases.NUMBER, values, np.ones(3000, bool))
    points = sorted({int(p) for p in rng.integers(0, 5000, 700)})
    selection = Selection(np.array([[0, 3000]]), 3000)
    merged = [(p, p) for p in points]
    selection.test(stored.column(), number_test(stored, merged, False))
    wanted = [
        i
        for i, v in enumerate(values.tolist())
        if (at := bisect.bisect_left(points, v)) < len(points) and points[at] == v
    ]
    assert selection.rowids().tolist() == wanted
