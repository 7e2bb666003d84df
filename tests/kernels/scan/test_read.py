"""Columns of chosen rows come back cell by cell as they were stored, in every form; and survive any bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core._ext.changes.patch import Patch
from kudu_core._ext.changes.replay import Updates
from kudu_core._ext.scan.read import TooLarge, read
from kudu_core._ext.scan.selection import Selection
from tests.kernels.scan.test_selection import damaged
from tests.support.cases import blocks as cases
from tests.support.cases import scans as scan_cases
from tests.support.cases.scans import Stored
from tests.support.oracles.scan import read as oracle
from tests.support.oracles.scan import selection as rows_oracle

PAGE = 16_384
CELLS, BITS, CODES = range(3)
GUARD = 40


class Pool:
    """Buffers whose last bytes must stay as they are."""

    def __init__(self) -> None:
        self.made: list[tuple[np.ndarray, int]] = []

    def __call__(self, size: int) -> np.ndarray:
        room = np.full(size + GUARD, 0xA5, np.uint8)
        self.made.append((room, size))
        return room

    def check(self) -> None:
        assert all((room[size:] == 0xA5).all() for room, size in self.made)


def choose(rng: np.random.Generator, stored: Stored) -> tuple[Selection, list[int]]:
    """Some rows: all of some ranges, many of them, or few."""
    rows = len(stored.cells)
    ranges = scan_cases.ranges(rng, rows)
    wanted = rows_oracle.rows(ranges.tolist())
    selection = Selection(ranges, rows)
    share = float(rng.choice([1.0, 0.9, 0.12, 0.01]))
    if share < 1:
        passed = (rng.random(len(wanted)) < share).astype(np.uint8)
        selection.keep(passed)
        wanted = [row for row, ok in zip(wanted, passed.tolist(), strict=True) if ok]
    return selection, wanted


def cells_of(found: tuple[Any, Any, Any, int], width: int, rows: int) -> list[bytes | None]:
    values, offsets, validity, nulls = found
    if offsets is None:
        cells: list[bytes | None] = list(cases.cells_of(values[: rows * width], width))
    else:
        ends = offsets[: 4 * (rows + 1)].view(np.int32)
        assert ends[0] == 0 and (np.diff(ends) >= 0).all()
        cells = list(cases.cells_of_var(ends, values))
    if validity is None:
        assert nulls == 0
        return cells
    flags = cases.flags_of(validity[: (rows + 7) // 8], rows)
    assert int((~flags).sum()) == nulls > 0
    empty = b"" if offsets is not None else bytes(width)
    assert all(cell == empty for cell, ok in zip(cells, flags.tolist(), strict=True) if not ok)
    return [cell if ok else None for cell, ok in zip(cells, flags.tolist(), strict=True)]


def check(rng: np.random.Generator, stored: Stored) -> None:
    column = stored.column()
    for _ in range(5):
        selection, wanted = choose(rng, stored)
        pool = Pool()
        (found,) = read(selection, [column], bytes([CELLS]), pool)
        pool.check()
        if stored.name == "prefixed" and wanted:
            assert found is None, "left to the general path"
            continue
        assert found is not None
        assert cells_of(found, stored.width, len(wanted)) == oracle.read(stored.cells, wanted), stored.name
        if stored.words is None:
            continue
        (coded,) = read(selection, [column], bytes([CODES]), pool)
        pool.check()
        assert coded is not None
        numbers = cells_of(coded, 4, len(wanted))
        named = [None if c is None else stored.words[int.from_bytes(c, "little")] for c in numbers]
        assert named == oracle.read(stored.cells, wanted)


@pytest.mark.parametrize("rows", [1, 700, 2048, PAGE + 1100])
def test_numbers_of_every_form(rows: int, long: bool) -> None:
    for part in range(20 if long else 1):
        rng = cases.generator(50 + rows + part)
        for stored in scan_cases.numbers(rng, rows):
            check(rng, stored)


@pytest.mark.parametrize("rows", [1, 700, 2048, PAGE + 1100])
def test_strings_and_words(rows: int, long: bool) -> None:
    for part in range(10 if long else 1):
        rng = cases.generator(50 + rows + part)
        for stored in scan_cases.texts(rng, rows):
            check(rng, stored)


def test_bools_become_bits() -> None:
    rng = cases.generator(1)
    for share in (0.0, 0.5, 1.0):
        values = (rng.random(3000) < share).astype(np.uint8)
        valid = rng.random(3000) < 0.8
        stored = scan_cases.fixed("bool", scan_cases.NUMBER, values, valid)
        for _ in range(6):
            selection, wanted = choose(rng, stored)
            pool = Pool()
            (found,) = read(selection, [stored.column()], bytes([BITS]), pool)
            pool.check()
            assert found is not None
            bits, _, validity, _ = found
            n = len(wanted)
            flags = cases.flags_of(bits[: (n + 7) // 8], n)
            present = cases.flags_of(None if validity is None else validity[: (n + 7) // 8], n)
            assert present.tolist() == valid[wanted].tolist()
            assert flags[present].tolist() == (values[wanted][present] != 0).tolist()


def patch_of(rng: np.random.Generator, width: int, rows: int, share: float) -> tuple[Patch, dict[int, Any]]:
    """Changes of some rows, some of them to null, and by row what is there afterwards."""
    changed = np.flatnonzero(rng.random(rows) < share).astype(np.uint32)
    n = len(changed)
    values = rng.integers(0, 2 if width == 1 else 256, n * width).astype(np.uint8)
    bits = None if rng.random() < 0.5 else rng.integers(0, 256, n // 8 + 1, np.uint8)
    flags = cases.flags_of(bits, n)
    cells = [values[k * width : (k + 1) * width].tobytes() if flags[k] else None for k in range(n)]
    made = Patch([Updates(changed, values, width, bits, ascending=True)], width, rows)
    return made, dict(zip(changed.tolist(), cells, strict=True))


@pytest.mark.parametrize("rows", [1, 700, 2048, PAGE + 1100])
def test_patches_are_laid_over_what_is_read(rows: int) -> None:
    rng = cases.generator(70 + rows)
    bools = scan_cases.fixed(
        "bool", scan_cases.NUMBER, rng.integers(0, 2, rows, np.uint8), rng.random(rows) < 0.9
    )
    for stored in [*scan_cases.numbers(rng, rows), bools]:
        for share in (0.0, 0.01, 0.3, 1.0):
            patch, new = patch_of(rng, stored.width, rows, share)
            selection, wanted = choose(rng, stored)
            for form in (CELLS, BITS) if stored is bools else (CELLS,):
                pool = Pool()
                (found,) = read(selection, [stored.column()], bytes([form]), pool, patches=[patch])
                pool.check()
                assert found is not None
                n = len(wanted)
                flags = cases.flags_of(None if found[2] is None else found[2][: (n + 7) // 8], n)
                expected = [new[row] if row in new else stored.cells[row] for row in wanted]
                assert flags.tolist() == [cell is not None for cell in expected], stored.name
                cells = list(cases.cells_of(found[0][: n * stored.width], stored.width))
                if form == BITS:
                    cells = [bytes([int(bit)]) for bit in cases.flags_of(found[0][: (n + 7) // 8], n)]
                assert [c for c in expected if c is not None] == [
                    cell for cell, ok in zip(cells, flags.tolist(), strict=True) if ok
                ], (stored.name, share)


def test_patches_of_something_else_are_refused() -> None:
    rng = cases.generator(3)
    number = scan_cases.fixed("f", 2, rng.normal(0, 1, 100), np.ones(100, bool))
    words = scan_cases.worded("h", [b"a", b"b"] * 50, np.ones(100, bool))
    selection = Selection(np.array([[0, 100]]), 100)
    for stored, patch in (
        (number, Patch([], 8, 99)),
        (number, Patch([], 4, 100)),
        (words, Patch([], 1, 100)),
    ):
        with pytest.raises(ValueError, match="a patch of"):
            read(selection, [stored.column()], bytes([CELLS]), Pool(), patches=[patch])
    with pytest.raises(ValueError, match="forms of 1"):
        read(selection, [number.column()], bytes([CELLS]), Pool(), patches=[])


def test_all_columns_of_many_small_ranges_at_once() -> None:
    rng = cases.generator(2)
    rows = 5 * PAGE
    columns = [
        scan_cases.worded("h", [b"host-%03d" % (k // 4096) for k in range(rows)], np.ones(rows, bool)),
        scan_cases.fixed("t", 1, np.arange(rows) % 4096 * 1000, np.ones(rows, bool)),
        scan_cases.fixed("f", 2, np.round(rng.normal(50, 10, rows), 2), rng.random(rows) < 0.9),
        scan_cases.strings("s", [b"%d" % k for k in range(rows)], rng.random(rows) < 0.5),
    ]
    lower = np.arange(0, rows - 60, 800, dtype=np.int64)
    selection = Selection(np.stack([lower, lower + 50], axis=1), rows)
    wanted = selection.rowids().tolist()
    pool = Pool()
    found = read(selection, [c.column() for c in columns], bytes(4), pool)
    pool.check()
    for stored, one in zip(columns, found, strict=True):
        assert one is not None
        assert cells_of(one, stored.width, len(wanted)) == oracle.read(stored.cells, wanted)


def test_pages_without_a_chosen_row_are_not_read() -> None:
    stored = scan_cases.fixed("v", 0, np.arange(4 * PAGE, dtype="u4"), np.ones(4 * PAGE, bool))
    selection = Selection(np.array([[5, 3 * PAGE]]), 4 * PAGE)
    passed = np.zeros(3 * PAGE - 5, np.uint8)
    passed[PAGE] = 1
    selection.keep(passed)
    (found,) = read(selection, [stored.column()], bytes(1), Pool())
    assert found is not None and stored.loaded == 1


def test_strings_that_are_too_large() -> None:
    stored = scan_cases.strings("s", [b"x" * 100] * 20, np.ones(20, bool))
    column = stored.column()
    with pytest.raises(TooLarge):
        read(Selection(np.array([[0, 20]]), 20), [column], bytes(1), Pool(), 1999)
    assert read(Selection(np.array([[0, 20]]), 20), [column], bytes(1), Pool(), 2000)[0] is not None
    one = read(Selection(np.array([[3, 4]]), 20), [column], bytes(1), Pool(), 10)[0]
    assert one is not None, "a single row is as large as it is"


def test_what_is_refused() -> None:
    stored = scan_cases.fixed("v", 0, np.arange(10, dtype="u4"), np.ones(10, bool))
    selection = Selection(np.array([[0, 10]]), 10)
    for columns, forms in (([stored.column()], b""), ([stored.column()], b"\1"), ([stored.column()], b"\2")):
        with pytest.raises(ValueError, match="form"):
            read(selection, columns, forms, Pool())
    with pytest.raises(ValueError, match="rows"):
        read(Selection(np.array([[0, 9]]), 9), [stored.column()], b"\0", Pool())
    with pytest.raises(ValueError, match="allocated"):
        read(selection, [stored.column()], b"\0", lambda size: bytearray(size - 1))
    with pytest.raises(BufferError):
        read(selection, [stored.column()], b"\0", bytes)
    assert read(selection, [], b"", Pool()) == []


@pytest.mark.parametrize("part", range(3))
def test_damaged_pages(part: int, long: bool) -> None:
    """Nothing is written outside the buffers; strings lie inside their data."""
    rng = cases.generator(500 + part)
    columns = [s for n in (40, 1100) for make in (scan_cases.numbers, scan_cases.texts) for s in make(rng, n)]
    refused = 0
    for _ in range(20_000 if long else 600):
        broken = damaged(rng, columns[int(rng.integers(0, len(columns)))])
        selection, wanted = choose(rng, broken)
        pool = Pool()
        (found,) = read(selection, [broken.column()], bytes(1), pool)
        pool.check()
        refused += found is None
        if found is not None and found[1] is not None:
            ends = found[1][: 4 * (len(wanted) + 1)].view(np.int32)
            assert ends[0] == 0 and (np.diff(ends) >= 0).all() and ends[-1] <= len(found[0]) - GUARD
    assert refused > 100
