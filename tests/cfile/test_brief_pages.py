"""Pages of text beyond the cache: read for single cells as long as they are new to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core._ext.base.crc32c import crc32c
from kudu_core._ext.base.status import NeedsGeneralPath, PageError
from kudu_core._ext.row.shape import RowShape
from kudu_core.cfile import PageCache, RowsFile, RowsFileSpec, write_rows_file
from kudu_core.cfile.pages.container import CRC_PLACE, SECTION_PAGE
from kudu_core.cfile.pages.page import PAGE_FRAME
from kudu_core.errors import Corruption
from kudu_core.fs.posix import PosixFileSystem
from tests.kernels.row.test_file import TAGS
from tests.support.cases.cfile import column
from tests.support.cases.texts import spec_of, text

ROWS = 4000
SHAPE = RowShape("a", [0], [TAGS["text"]], [bytes], [None])
SMALL = 80 << 10
"""Of a cache: less than the file, and more than its dictionary."""
MEETINGS = 4
"""Of a page, until the cache has it."""


def cells(kind: str) -> list[str | None]:
    if kind == "noise":
        return [f"{k:05d}" * 30 if k % 2 else np.random.default_rng(k).bytes(60).hex() for k in range(ROWS)]
    if kind == "alike":
        return [cell[:100].ljust(100) for cell in text(1, 120, ROWS)]
    return [None if kind == "nulls" and k % 5 == 0 else cell for k, cell in enumerate(text(1, 120, ROWS))]


def written(folder: Path, values: list[str | None], compression: str = "lz4") -> str:
    path = str(folder / "f.rows")
    spec = RowsFileSpec([(spec_of(compression), column(values, "string"))])
    write_rows_file(PosixFileSystem(), path, spec)
    return path


def full(path: str, limit: int = SMALL) -> tuple[RowsFile, PageCache]:
    """A file whose cache is full of the pages at its end."""
    cache = PageCache(limit)
    file = RowsFile(PosixFileSystem(), path, cache)
    file.read(0, 0, ROWS)
    return file, cache


def cell(file: RowsFile, row: int) -> Any:
    return file.points.row(row, SHAPE)["a"]


@pytest.mark.parametrize("kind", ["text", "nulls", "alike", "noise"])
@pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
@pytest.mark.parametrize("limit", [0, 1000, SMALL])
def test_every_cell(kind: str, compression: str, limit: int, seed: int, tmp_path: Path) -> None:
    values = cells(kind)
    file, cache = full(written(tmp_path, values, compression), limit)
    rows = np.random.default_rng(seed).permutation(ROWS)
    with file:
        for row in [*rows[:1500].tolist(), *([7] * 2 * MEETINGS), ROWS - 1, 0]:
            try:
                assert cell(file, row) == values[row]
            except NeedsGeneralPath:
                assert limit < SMALL, "nothing may be held"
    assert cache.statistics().bytes <= limit


def test_a_page_that_is_asked_for_again_comes_in(tmp_path: Path) -> None:
    """Until then nothing goes for it, and it is read each time anew; from then on it is not read."""
    values = cells("text")
    file, cache = full(written(tmp_path, values))
    with file:
        read = file.columns[0]
        assert read.page_count > 30
        before = cache.statistics()
        for k in range(MEETINGS - 1):
            assert cell(file, 5 + k) == values[5 + k]
            now = cache.statistics()
            assert (now.evicted, now.pages) == (before.evicted, before.pages)
            assert cache.get(file.file.reader.token, read.page_offset(0)) is None  # type: ignore[union-attr]
            assert file.points.pages == 0
        assert cell(file, 5) == values[5]
        assert cache.statistics().evicted > before.evicted
        assert file.points.pages == 1
        before = cache.statistics()
        assert [cell(file, row) for row in range(4)] == values[:4]
        assert cache.statistics().misses == before.misses


def test_pages_that_are_asked_for_once_push_out_none(tmp_path: Path) -> None:
    values = cells("text")
    file, cache = full(written(tmp_path, values))
    with file:
        there = cache.statistics()
        step = 1 << file.columns[0].page_bits
        for row in range(0, ROWS // 2, step):
            assert cell(file, row) == values[row]
        assert cache.statistics().evicted == there.evicted


def test_a_cache_with_room_takes_a_page_at_once(tmp_path: Path) -> None:
    values = cells("text")
    cache = PageCache(1 << 20)
    with RowsFile(PosixFileSystem(), written(tmp_path, values), cache) as file:
        assert cell(file, 9) == values[9]
        assert file.points.pages == 1


def test_while_there_is_room_a_page_comes_when_it_is_met_again(tmp_path: Path) -> None:
    """Of files that will not all fit, taken for twice their bytes; where they fit it comes at once."""
    values = cells("text")
    path = written(tmp_path, values)
    size = Path(path).stat().st_size
    cache = PageCache(2 * size - 1)
    with RowsFile(PosixFileSystem(), path, cache) as file:
        step, pages = 1 << file.columns[0].page_bits, file.columns[0].page_count
        for row in range(0, ROWS, step):
            assert cell(file, row) == values[row]
        assert file.points.pages == 0
        names = [state for *_, state, _ in cache.contents()].count("gone")
        assert pages * 3 // 4 < names <= pages, "names of pages that would find room"
        for row in range(ROWS - 5 * step, ROWS, step):
            assert cell(file, row) == values[row]
        assert file.points.pages == 5
        with RowsFile(PosixFileSystem(), path, cache) as again:
            assert cell(again, ROWS - 9 * step) == values[ROWS - 9 * step]
            assert again.points.pages == 1, "one file, however many read it"
    (tmp_path / "other").mkdir()
    with RowsFile(PosixFileSystem(), written(tmp_path / "other", values[:3000]), cache) as file:
        assert cell(file, 9) == values[9]
        assert file.points.pages == 1, "what nobody reads any more does not count"


def test_names_are_no_more_than_pages_that_find_room(tmp_path: Path) -> None:
    values = cells("text")
    cache = PageCache(SMALL)
    with RowsFile(PosixFileSystem(), written(tmp_path, values), cache) as file:
        read, most = file.columns[0], 0
        for number in range(read.page_count):
            assert cell(file, number << read.page_bits) == values[number << read.page_bits]
            most = max(most, [state for *_, state, _ in cache.contents()].count("gone"))
        size = 2 * int(np.median(read.index()["size"])) + 256
        assert 4 < most <= SMALL // size + 2 < read.page_count // 2


def test_a_page_of_one_cell_comes_while_there_is_room(tmp_path: Path) -> None:
    values = text(1, 10_000, 60)
    path = written(tmp_path, values)
    cache = PageCache(Path(path).stat().st_size)
    with RowsFile(PosixFileSystem(), path, cache) as file:
        assert file.columns[0].page_bits == 0
        assert cell(file, 9) == values[9]
        assert file.points.pages == 1


def test_a_cached_page_is_held_when_it_is_met_again(tmp_path: Path) -> None:
    values = cells("text")
    file, cache = full(written(tmp_path, values), 1 << 20)
    with file:
        misses = cache.statistics().misses
        assert cell(file, 9) == values[9]
        assert file.points.pages == 0
        assert cell(file, 10) == values[10]
        assert file.points.pages == 1
        assert cache.statistics().misses == misses


def forge(path: str, number: int, stored: bytes, raw: int, codec: int, flags: int = 0) -> bool:
    """Another content of a page, with the CRC that it needs; False where it does not fit."""
    data = bytearray(Path(path).read_bytes())
    with RowsFile(PosixFileSystem(), path) as file:
        read = file.columns[0]
        read.index()
        offset, size = read.page_offset(number), int(read.index()["size"][number])
        if len(stored) != size - PAGE_FRAME.size:
            return False
        rest = PAGE_FRAME.pack(0, len(stored), raw, 0, codec, flags)[4:]
        crc = crc32c(CRC_PLACE.pack(offset, SECTION_PAGE), crc32c(file.file.file_id, 0))
    page = crc32c(stored, crc32c(rest, crc)).to_bytes(4, "little") + rest + stored
    data[offset : offset + size] = page
    Path(path).write_bytes(data)
    return True


@pytest.mark.parametrize("packed", [True, False])
def test_forged_pages(packed: bool, seed: int, long: bool, tmp_path: Path) -> None:
    """Whatever a page says, a cell of it is what the general path says, or what was written, or an error."""
    rng = np.random.default_rng(seed)
    values = cells("nulls" if seed % 2 else "text")
    path = written(tmp_path, values, "lz4" if packed else "none")
    whole = Path(path).read_bytes()
    with RowsFile(PosixFileSystem(), path) as file:
        read = file.columns[0]
        read.index()
        offset, size, rows = read.page_offset(1), int(read.index()["size"][1]), 1 << read.page_bits
        _, _, raw, _, codec, _ = PAGE_FRAME.unpack_from(whole, offset)
        stored = whole[offset + PAGE_FRAME.size : offset + size]
    outcomes = {"right": 0, "error": 0, "other": 0}
    for _ in range(2000 if long else 150):
        forged = bytearray(stored)
        for at in rng.integers(0, min(len(forged), rng.choice([40, 200, 10_000])), 2).tolist():
            forged[at] = int(rng.integers(0, 256))
        assert forge(path, 1, bytes(forged), raw, codec)
        file, _ = full_of_other_pages(path)
        with file:
            for row in rng.integers(rows, 2 * rows, 6).tolist():
                try:
                    found = cell(file, row)
                except (PageError, NeedsGeneralPath, Corruption, UnicodeDecodeError):
                    outcomes["error"] += 1
                    continue
                outcomes["right" if found == values[row] else "other"] += 1
    assert outcomes["error"] and outcomes["right"], outcomes


def full_of_other_pages(path: str) -> tuple[RowsFile, PageCache]:
    cache = PageCache(SMALL)
    file = RowsFile(PosixFileSystem(), path, cache)
    file.read(0, 2000, ROWS)
    return file, cache


def test_a_flipped_byte_is_found_before_it_is_unpacked(tmp_path: Path) -> None:
    values = cells("text")
    path = written(tmp_path, values)
    whole = Path(path).read_bytes()
    file, _ = full_of_other_pages(path)
    with file:
        offset, size = file.columns[0].page_offset(2), int(file.columns[0].index()["size"][2])
        row = (2 << file.columns[0].page_bits) + 1
        for at in range(offset, offset + size, 7):
            Path(path).write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            with pytest.raises(Corruption, match=str(offset)):
                cell(file, row)
        Path(path).write_bytes(whole)
        assert cell(file, row) == values[row]


def test_many_keys_beyond_the_cache(seed: int, tmp_path: Path) -> None:
    """All cells are right, of keys that are there and of others, however many pages they lie in."""
    rng = np.random.default_rng(seed)
    rows = pa.table(
        {
            "k": pa.array(np.arange(ROWS)),
            "a": pa.array(cells("nulls")),
            "b": pa.array(cells("alike")),
            "c": pa.array(cells("noise")),
        }
    )
    options = {"page_cache_bytes": SMALL, "durability": "none", "maintenance": "manual"}
    with kc.create_table(tmp_path / "t", rows.schema, ["k"], options=options) as table:
        table.insert(rows)
        table.flush()
    with kc.open_table(tmp_path / "t", options=options) as table:
        table.scan().to_table()
        for count in (1, 3, 50, 1000, ROWS):
            for _ in range(MEETINGS + 2):
                keys = rng.choice(ROWS + 50, count, replace=False)
                found = table.get_many(keys.tolist())
                there = keys < ROWS
                assert found["_found"].to_numpy().tolist() == there.tolist()
                wanted = rows.take(pa.array(np.where(there, keys, 0), mask=~there))
                for name in ("a", "b", "c"):
                    assert found[name].combine_chunks() == wanted[name].combine_chunks(), name
        table.verify()
