"""Pages are bounded in bytes: how many rows each has, what a cell reads, and that all readers agree on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kudu_core._ext.scan.read import read
from kudu_core._ext.scan.selection import Selection
from kudu_core.cfile import PAGE_ROWS, PageCache, RowsFile
from kudu_core.cfile.columns import page_size
from kudu_core.cfile.columns.column_list import ColumnList, pack_entries
from kudu_core.cfile.columns.page_size import (
    LARGE_PAGE_BYTES,
    LEAST_BYTES,
    PAGE_BYTES,
    SHORT_BYTES,
    choose_page_bits,
    least_page_bits,
)
from kudu_core.cfile.columns.reader import ColumnReader
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.pages.container import FileReader
from kudu_core.cfile.pages.page import PAGE_FRAME
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where.analysis import Term, passing_all
from kudu_core.errors import Corruption
from tests.support.cases.cfile import BytesFileSystem, Case, column, make_case, same

FRAME = PAGE_FRAME.size + 64  # and the heads of payload and mini-block


def sized(sizes: Sequence[int] | np.ndarray) -> ColumnBuffers:
    """Strings of these sizes, of which only the ends are looked at."""
    ends = np.cumsum([0, *sizes]).astype(np.int32)
    return ColumnBuffers(0, len(sizes), np.empty(0, np.uint8), ends, None)


# ---- the choice


@pytest.mark.parametrize(
    ("size", "rows", "page_rows", "key_rows"),
    [
        (0, 50_000, PAGE_ROWS, PAGE_ROWS),
        (3, 50_000, PAGE_ROWS, PAGE_ROWS),
        (8, 50_000, 8192, 8192),
        (63, 50_000, 1024, 1024),
        (64, 50_000, 512, 1024),
        (100, 20_000, 256, 1024),
        (10_000, 500, 4, 1024),
        (20_000, 50, 2, 1024),
        (40_000, 50, 1, 1024),
        (100_000, 50, 1, 1024),
        (1_000_000, 20, 1, 1024),
        (10, 3, PAGE_ROWS, PAGE_ROWS),
    ],
)
def test_rows_a_page(size: int, rows: int, page_rows: int, key_rows: int) -> None:
    assert 1 << choose_page_bits(sized([size] * rows), "value") == page_rows
    assert 1 << choose_page_bits(sized([size] * rows), "key") == key_rows


def test_zstd_has_pages_of_twice_as_many_bytes() -> None:
    for size in (64, 100, 5000):
        cells = sized([size] * 20_000)
        for other in ("auto", "none", "lz4"):
            assert choose_page_bits(cells, "value", other) == choose_page_bits(cells, "value")
        assert choose_page_bits(cells, "value", "zstd") == choose_page_bits(cells, "value") + 1


@pytest.mark.parametrize(("size", "page_rows"), [(64, 128), (100, 64), (1000, 8), (10_000, 1), (100_000, 1)])
def test_a_codec_with_a_dictionary_has_pages_of_a_few_kb(size: int, page_rows: int) -> None:
    cells = sized([size] * 5000)
    assert 1 << choose_page_bits(cells, "value", "zstd", with_dictionary=True) == page_rows


def test_numbers_and_codes_have_as_many_rows_as_a_page_may_have() -> None:
    for width in (1, 2, 4, 8, 16):
        cells = ColumnBuffers(width, 3, np.zeros(3 * width, np.uint8), None, None)
        for role in ("key", "value", "rowid"):
            assert 1 << choose_page_bits(cells, role) == PAGE_ROWS


def test_one_large_cell_does_not_make_pages_of_nothing() -> None:
    small = [10] * 100_000
    assert choose_page_bits(sized([*small, 5_000_000, *small]), "value") >= 10
    blobs = np.zeros(100_000, np.int64)
    blobs[::1000] = 1_000_000
    rows = 1 << choose_page_bits(sized(blobs), "value")
    assert 64 <= rows <= 1024, "about a blob a page, and not a page for each empty cell"


def test_the_choice_is_bounded_for_cells_of_any_sizes(seed: int, long: bool) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(300 if long else 40):
        rows = int(rng.integers(1, 30_000))
        sizes = rng.exponential(10 ** rng.uniform(0, 3.5), rows).astype(np.int64)
        sizes[rng.random(rows) < rng.choice([0, 0.01])] = int(10 ** rng.uniform(3, 6))
        sizes[rng.random(rows) < rng.choice([0, 0.9])] = 0
        if int(sizes.sum()) >= 1 << 31:
            continue
        bits = choose_page_bits(sized(sizes), "value")
        pages = np.add.reduceat(sizes, np.arange(0, rows, 1 << bits)).astype(float)
        total, cells = pages.sum(), sizes.astype(float)
        if not total:
            continue
        # A byte reads what lies in its page: on average its own cell and so many bytes, or pages are small.
        beside = (pages @ pages - cells @ cells) / total
        most = PAGE_BYTES if total >= SHORT_BYTES * rows else LARGE_PAGE_BYTES
        assert beside <= most or total * (1 << bits) < 2 * LEAST_BYTES * rows, (bits, rows)


# ---- files


def wide(rng: np.random.Generator, rows: int, size: int) -> Case:
    """An int key, a number, and strings of about so many bytes, some null."""
    case = make_case(rng, rows, "int", types=["int64", "string", "binary"])
    case.insert_times = None
    repeats = rng.integers(0, 2 * size // 6 + 2, rows).tolist()
    text = [None if rng.random() < 0.2 else f"{k:06d}" * n for k, n in enumerate(repeats)]
    for id_, values in ((2, text), (3, [rng.bytes(int(n)) for n in rng.integers(0, 2 * size, rows)])):
        case.columns[id_] = column(values, case.specs[id_].type.name)
        case.specs[id_] = ColumnSpec(id_, case.specs[id_].type, True, encoding="plain")
    return case


@pytest.mark.parametrize(("size", "rows"), [(8, 17_000), (100, 9000), (3000, 700), (30_000, 60)])
def test_every_reader_reads_pages_of_any_rows(size: int, rows: int, seed: int) -> None:
    rng = np.random.default_rng((seed, size))
    case = wide(rng, rows, size)
    fs = BytesFileSystem()
    case.write(fs, "a")
    with RowsFile(fs, "a", PageCache(64 << 20)) as file:
        assert (file.columns[2].page_bits < 14) == (size > 3)
        for id_, spec in case.specs.items():
            whole = case.arrow(id_)
            for lower, upper in [(0, rows), *pairwise(sorted(rng.integers(0, rows, 8).tolist()))]:
                found = file.read(id_, lower, upper).to_arrow(spec.type)
                assert same(found, whole.slice(lower, upper - lower))
            picked = rng.integers(0, rows, 50)
            wanted = whole.take(picked)
            assert same(file.cells([id_], picked)[0].to_arrow(spec.type), wanted)
            assert same(file.columns[id_].cells(picked).to_arrow(spec.type), wanted)
            picked = np.unique(picked)
            ranges = np.stack([picked, picked + 1], axis=1)
            assert same(scanned(file, id_, ranges, spec.type), whole.take(picked))
            assert same(scanned(file, id_, np.array([[1, rows - 1]]), spec.type), whole.slice(1, rows - 2))
        file.verify()
        assert file.layout()[2]["page_rows"] == 1 << file.columns[2].page_bits


def scanned(file: RowsFile, id_: int, ranges: np.ndarray, type_: ColumnType) -> Any:
    selection = Selection(np.ascontiguousarray(ranges, np.int64), file.rows)
    (found,) = read(selection, [file.scans.column(id_)], bytes([0]), lambda size: np.empty(size, np.uint8))
    values, offsets, validity, _ = found
    rows = selection.chosen
    ends = None if offsets is None else offsets[: 4 * (rows + 1)].view(np.int32)
    values = values[: rows * type_.width] if ends is None else values
    return ColumnBuffers(type_.width, rows, values, ends, validity).to_arrow(type_)


def test_zones_and_conditions_of_pages_of_few_rows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pages that zone maps rule out nothing is read; of the others the rows are found."""
    monkeypatch.setattr(page_size, "PAGE_BYTES", 300)
    monkeypatch.setattr(page_size, "LARGE_PAGE_BYTES", 300)
    monkeypatch.setattr(page_size, "LEAST_BYTES", 1)
    case = make_case(np.random.default_rng(seed), 3000, "int", types=["string"])
    texts = [None if k % 7 == 0 else f"{k:06d}" + "x" * 50 for k in range(3000)]
    case.columns[1], type_ = column(texts, "string"), case.specs[1].type
    case.specs[1] = ColumnSpec(1, type_, True, encoding="plain")
    fs = BytesFileSystem()
    case.write(fs, "a")
    with RowsFile(fs, "a", PageCache(1 << 20)) as file:
        assert 1 << file.columns[1].page_bits == 4
        passing = passing_all([Term(1, "ge", "001200", type_), Term(1, "lt", "001210", type_)])
        assert passing is not None
        test, _ = file.scans.compile(1, passing)
        pages = file.zone_table(1).may_hold(passing)
        assert np.flatnonzero(pages).tolist() == [300, 301, 302]
        for live in (None, (np.arange(3000) % 2).astype(np.uint8)):
            selection = Selection(np.array([[0, 3000]], np.int64), 3000, live)
            selection.test(file.scans.column(1), test, np.where(pages, 2, 0).astype(np.uint8))
            wanted = [k for k in range(1200, 1210) if k % 7 and (live is None or live[k])]
            assert selection.rowids().tolist() == wanted
        assert file.scans.pages == 3


@pytest.mark.parametrize("nulls", [0, 3])
def test_a_condition_on_large_strings_has_few_of_them_in_memory(
    nulls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of 400 KB, of which a mini-block has 100: they are pinned some at a time, about 16 MiB."""
    rng = np.random.default_rng(nulls)
    case = make_case(rng, 130, "int", types=["binary"])
    texts = [None if nulls and k % nulls == 0 else bytes([k]) + rng.bytes(400_000) for k in range(130)]
    case.columns[1], type_ = column(texts, "binary"), ColumnType.parse("binary")
    case.specs[1] = ColumnSpec(1, type_, True, encoding="plain")
    fs = BytesFileSystem()
    case.write(fs, "a")
    read_at_once: list[int] = []
    usual = ColumnReader.found

    def found(self: ColumnReader, numbers: Sequence[int]) -> Any:
        answer = usual(self, numbers)
        read_at_once.append(sum(map(len, answer[0])))
        return answer

    with RowsFile(fs, "a", PageCache(8 << 20)) as file:
        assert file.columns[1].page_count == 130
        passing = passing_all([Term(1, "ge", b"\x14", type_), Term(1, "lt", b"\x78", type_)])
        assert passing is not None
        test, states = file.scans.compile(1, passing)
        monkeypatch.setattr(ColumnReader, "found", found)
        for live in (None, (np.arange(130) % 2).astype(np.uint8)):
            for known in (None, states, np.where(np.arange(130) < 40, 0, 2).astype(np.uint8)):
                read_at_once.clear()
                selection = Selection(np.array([[0, 50], [55, 130]], np.int64), 130, live_of(live))
                selection.test(file.scans.column(1), test, known)
                assert selection.rowids().tolist() == [
                    k
                    for k in range(130)
                    if texts[k] is not None
                    and 20 <= k < 120
                    and not 50 <= k < 55
                    and (live is None or live[k])
                    and (known is None or known[k])
                ]
                assert max(read_at_once) < 18 << 20
                assert len(read_at_once) >= (2 if live is None else 1)


def live_of(live: np.ndarray | None) -> np.ndarray | None:
    """Of the rows of two ranges, without the five between them."""
    return None if live is None else np.concatenate([live[:50], live[55:]])


# ---- what a cell reads


class Reads:
    """What is read of files, as (offset, bytes)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all: list[tuple[int, int]] = []
        one, run = FileReader.read_at, FileReader.read_adjacent

        def read_at(file: FileReader, offset: int, length: int) -> bytes:
            self.all.append((offset, length))
            return one(file, offset, length)

        def read_adjacent(file: FileReader, sizes: Sequence[int], offset: int) -> list[bytes]:
            if len(sizes) > 1:
                self.all.append((offset, sum(sizes)))
            return run(file, sizes, offset)

        monkeypatch.setattr(FileReader, "read_at", read_at)
        monkeypatch.setattr(FileReader, "read_adjacent", read_adjacent)


@pytest.mark.parametrize(("size", "rows"), [(8, 17_000), (100, 9000), (10_000, 300), (1_000_000, 12)])
def test_a_cell_costs_one_read_of_a_page(size: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(size)
    case = make_case(rng, rows, "int", types=["binary"])
    case.columns[1] = column([rng.bytes(size) for _ in range(rows)], "binary")
    case.specs[1] = ColumnSpec(1, ColumnType.parse("binary"), True, encoding="plain")
    fs = BytesFileSystem()
    case.write(fs, "a")
    with RowsFile(fs, "a", PageCache(64 << 20)) as file:
        file.columns[1].index()
        assert file.points.pages == 0, "the indexes and the bloom are read"
        reads = Reads(monkeypatch)
        for row in (rows // 2, rows - 1, rows // 2):
            (found,) = file.cells([1], np.array([row]))
            assert found.cell(0) == case.columns[1].cell(row)
        assert len(reads.all) == (1 if file.columns[1].page_count == 1 else 2), "the third from the cache"
        beside = LARGE_PAGE_BYTES if size < SHORT_BYTES else PAGE_BYTES
        most = size + beside + 4 * (beside // size) + FRAME  # an end for each cell
        assert max(length for _, length in reads.all) <= most


# ---- hostile


def with_page_bits(number: int, page_bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are opened as if their footers, which have checksums, said that of a column."""
    real = FileReader.__init__

    def init(self: FileReader, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        entries = list(ColumnList(self.footer_rest))
        entries[number] = replace(entries[number], page_bits=page_bits)
        self.footer_rest = memoryview(pack_entries(entries))

    monkeypatch.setattr(FileReader, "__init__", init)


@pytest.mark.parametrize("page_bits", [0, 9, 15, 255])
@pytest.mark.parametrize("number", [0, 1])
def test_a_power_of_two_that_no_column_has_is_damage(
    number: int, page_bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the key, a string, and of the value, a number."""
    case = make_case(np.random.default_rng(1), 2000, "string", types=["int64"])
    fs = BytesFileSystem()
    case.write(fs, "a")
    with_page_bits(number, page_bits, monkeypatch)
    with pytest.raises(Corruption, match="page_bits of a column"):
        RowsFile(fs, "a").columns[number]


def test_footer_and_index_agree_on_the_rows_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case(np.random.default_rng(1), 9, "int", types=["int64"])
    fs = BytesFileSystem()
    case.write(fs, "a")
    with_page_bits(1, 10, monkeypatch)
    with RowsFile(fs, "a") as file, pytest.raises(Corruption, match="an index of 1 pages of 1 << 14 rows"):
        file.zones(1)


def test_the_least_rows_of_a_page() -> None:
    assert [least_page_bits(role, width) for role in ("value", "key", "keys") for width in (0, 8)] == [
        0, 10, 10, 14, 10, 14,
    ]  # fmt: skip
