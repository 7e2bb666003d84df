"""Strings that are packed with a dictionary of their column: which are, and who reads them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kudu_core.cfile import (
    REDO,
    DeltaFile,
    PageCache,
    RowsFile,
    RowsFileSpec,
    write_delta_file,
    write_rows_file,
)
from kudu_core.cfile.columns import codec_choice, writer
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.pages import page
from kudu_core.cfile.pages.codec_dictionary import (
    CODEC_DICTIONARY_LIMIT_BYTES,
    CodecDictionary,
    ColumnDictionary,
)
from kudu_core.cfile.pages.container import FileReader
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import Corruption
from kudu_core.fs.posix import PosixFileSystem
from tests.support.cases.cfile import BytesFileSystem, column, same
from tests.support.cases.texts import CODECS, ROWS, codecs, file_of, spec_of, text

# ---- which columns have one


@pytest.mark.parametrize("compression", CODECS)
def test_text_has_one_and_takes_less_room(compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = text(1, 120)
    fs = file_of(values, spec_of(compression))
    with RowsFile(fs, "f") as file:
        read = file.columns[0]
        assert read.codec_dictionary is not None
        assert codecs(file, fs.files["f"]) == {CODECS[compression]}
        dictionary = read.dictionary_extent
        assert dictionary is not None
        assert dictionary.end == read.extent.offset
        assert read.page_rows(0) <= 64, "a few KB"
    monkeypatch.setattr(writer, "codec_with_dictionary", lambda column, spec: None)
    assert len(fs.files["f"]) < 0.8 * len(file_of(values, spec_of("lz4")).files["f"])
    without = file_of(values, spec_of(compression))
    assert len(fs.files["f"]) < 1.3 * len(without.files["f"])
    with RowsFile(without, "f") as file:
        assert file.columns[0].page_rows(0) >= 128


def none_of(asked: str) -> Iterator[tuple[str, list[Any], ColumnSpec]]:
    rng = np.random.default_rng(2)
    long, short = text(3, 120), [f"{x:x} {x % 7}" for x in rng.integers(0, 1 << 40, 20_000).tolist()]
    binary = replace(spec_of(asked), type=ColumnType.parse("binary"))
    yield "random bytes", [rng.bytes(100) for _ in range(ROWS)], binary
    yield "few bytes", long[:1500], spec_of(asked)
    yield "short strings", short, spec_of(asked, encoding="plain")
    yield "few words", [f"word {k % 20} " * 10 for k in range(ROWS)], spec_of(asked)
    yield "no cells", [None] * ROWS, spec_of(asked)
    yield "no rows", [], spec_of(asked)
    yield "no codec", long, spec_of("none")
    yield "shared prefixes", long, spec_of(asked, encoding="prefix")
    yield "large cells", ["".join(long[k : k + 900]) for k in range(40)], spec_of(asked)
    yield "a key", sorted(set(long)), spec_of(asked, role="key")


@pytest.mark.parametrize(
    ("values", "spec"),
    [pytest.param(*found[1:], id=f"{asked}-{found[0]}") for asked in CODECS for found in none_of(asked)],
)
def test_what_has_none(values: list[Any], spec: ColumnSpec) -> None:
    fs = file_of(values, spec)
    with RowsFile(fs, "f") as file:
        assert file.columns[0].codec_dictionary is None
        assert not codecs(file, fs.files["f"]) & set(CODECS.values())
        found = file.read(0, 0, len(values)).to_arrow(spec.type)
        assert same(found, pa.array(values, spec.type.arrow))


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_page_that_does_not_get_smaller_is_stored_as_it_is(compression: str) -> None:
    """Text, and among it random bytes."""
    rng = np.random.default_rng(4)
    values: list[Any] = [cell.encode() for cell in text(4, 120)]
    values[1024:1280] = [rng.bytes(120) for _ in range(256)]
    spec = replace(spec_of(compression), type=ColumnType.parse("binary"))
    fs = file_of(values, spec)
    with RowsFile(fs, "f") as file:
        assert codecs(file, fs.files["f"]) == {page.CODEC_NONE, CODECS[compression]}
        assert same(file.read(0, 0, ROWS).to_arrow(spec.type), pa.array(values, pa.binary()))
        file.verify()


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_the_dictionary_is_bounded(compression: str) -> None:
    for rows in (5000, 8000, 40_000):
        values = text(5, 120, rows)
        total = sum(map(len, values))
        codec = codec_choice.codec_with_dictionary(column(values, "string"), spec_of(compression))
        assert codec is not None
        size = len(codec.data)
        assert 0 < size <= min(total // codec_choice.SHARE, CODEC_DICTIONARY_LIMIT_BYTES)
    assert size == (CODEC_DICTIONARY_LIMIT_BYTES if compression == "zstd" else 56 << 10)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_it_is_chosen_from_the_cells_of_the_column_alone(compression: str) -> None:
    """A slice of a larger buffer has others before and behind."""
    whole = column(["#" * 100] * ROWS + text(6, 120) + ["#" * 100] * ROWS, "string")
    assert whole.offsets is not None
    part = ColumnBuffers(0, ROWS, whole.values, whole.offsets[ROWS : 2 * ROWS + 1], None)
    codec = codec_choice.codec_with_dictionary(part, spec_of(compression))
    assert codec is not None
    assert b"#" not in codec.data


# ---- every reader


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("size", [70, 120, 1000, 30_000])
def test_every_reader_reads_it(compression: str, size: int, seed: int) -> None:
    rng = np.random.default_rng((seed, size))
    rows = max(50, min(ROWS, 1_500_000 // size))
    values: list[Any] = text(seed, size, rows)
    for k in rng.integers(0, rows, rows // 9).tolist():
        values[k] = None
    wanted = pa.array(values, pa.string())
    fs = file_of(values, spec_of(compression))
    for cache in (None, PageCache(0), PageCache(200_000), PageCache(64 << 20)):
        with RowsFile(fs, "f", cache) as file:
            read = file.columns[0]
            assert read.codec_dictionary is not None
            for _ in range(2):
                lower, upper = sorted(rng.integers(0, rows + 1, 2).tolist())
                assert same(file.read(0, lower, upper).to_arrow(read.spec.type), wanted[lower:upper])
                picked = rng.integers(0, rows, 30)
                found = file.cells([0], picked)[0].to_arrow(read.spec.type)
                assert same(found, wanted.take(picked))
                found = read.uncached().cells(picked).to_arrow(read.spec.type)
                assert same(found, wanted.take(picked))
            assert read.layout()["bytes_decompressed"] > read.extent.length
            file.verify()


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_changes_have_one(compression: str) -> None:
    """Cells of a delta file are packed as those of a file of rows are."""
    values = text(8, 200)
    fs = BytesFileSystem()
    rowids = np.arange(ROWS, dtype=np.uint32)
    cells = column(values, "string")
    write_delta_file(
        fs, "d", REDO, rowids, None, np.ones(ROWS, np.uint8), {0: (spec_of(compression), rowids, cells)}
    )
    with DeltaFile(fs, "d", PageCache(1 << 20)) as file:
        found = file.updates(0)[2].to_arrow(ColumnType.parse("string"))
        assert same(found, pa.array(values))
        file.verify()


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_many_threads_unpack_at_once(compression: str) -> None:
    values = text(9, 1000, 600)
    fs = file_of(values, spec_of(compression))
    start = threading.Barrier(8)

    def found(file: RowsFile, number: int) -> list[tuple[int, Any]]:
        picked = np.random.default_rng(number).integers(0, 600, 30)
        start.wait()
        type_ = ColumnType.parse("string")
        return [(k, file.cells([0], np.array([k]))[0].to_arrow(type_)[0].as_py()) for k in picked.tolist()]

    for cache in (PageCache(0), PageCache(300_000)):
        with RowsFile(fs, "f", cache) as file, ThreadPoolExecutor(8) as pool:
            for one in [pool.submit(found, file, number) for number in range(8)]:
                assert all(cell == values[k] for k, cell in one.result())


# ---- reads and memory


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_cold_cell_is_one_read_of_a_few_kb(
    compression: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the dictionary, which is read once."""
    values = text(10, 120)
    path = str(tmp_path / "f")
    write_rows_file(PosixFileSystem(), path, RowsFileSpec([(spec_of(compression), column(values, "string"))]))
    cache = PageCache(1 << 20)
    with RowsFile(PosixFileSystem(), path, cache) as file:
        read = file.columns[0]
        read.index()
        assert read.dictionary_extent is not None
        sections: list[int] = []
        usual = FileReader.read_at

        def read_at(file: FileReader, offset: int, length: int) -> bytes:
            sections.append(length)
            return usual(file, offset, length)

        monkeypatch.setattr(FileReader, "read_at", read_at)
        for row in (5, 700, 1500, 2999):
            missed = cache.statistics().misses
            assert file.cells([0], np.array([row]))[0].to_arrow(read.spec.type).to_pylist() == [values[row]]
            # First the dictionary, which compiled code asks for before others do.
            first = 2 if compression == "zstd" else 3
            assert cache.statistics().misses - missed == (first if row == 5 else 1)
            number = row >> read.page_bits
            assert read.page_offset(number + 1) - read.page_offset(number) < 8 << 10
        assert sections == [read.dictionary_extent.length], "pages come by one compiled call each"


def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The columns whose dictionaries are read, as they are."""
    found: list[int] = []
    usual = ColumnDictionary.load

    def load(self: ColumnDictionary) -> CodecDictionary | bytes:
        found.append(self._column_id)
        return usual(self)

    monkeypatch.setattr(ColumnDictionary, "load", load)
    return found


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_the_cache_counts_and_drops_it(compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = file_of(text(11, 120), spec_of(compression))
    read = loads(monkeypatch)
    cache = PageCache(1 << 20)
    with RowsFile(fs, "f", cache) as file:
        one = np.array([0])
        file.cells([0], one)
        dictionary = file.file.cached_page(-file.columns[0].dictionary_extent.offset)
        assert isinstance(dictionary, CodecDictionary if compression == "zstd" else bytes)
        assert cache.statistics().bytes > len(dictionary) > 4096
        file.cells([0], np.array([1000]))
        assert read == [0]
        cache.set_limit(0)
        assert cache.statistics().bytes == 0
        assert file.file.last_dictionary is None
        cache.set_limit(1 << 20)
        file.cells([0], np.array([2000]))
        assert read == [0, 0]
    assert cache.statistics().bytes == 0


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("cache", [None, PageCache(0)])
def test_without_a_cache_a_file_holds_one(
    compression: str, cache: PageCache | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = BytesFileSystem()
    columns = [(replace(spec_of(compression), id=k), column(text(k, 120), "string")) for k in range(3)]
    write_rows_file(fs, "f", RowsFileSpec(columns))
    read = loads(monkeypatch)
    with RowsFile(fs, "f", cache) as file:
        for k in (0, 1, 2):
            for row in (1, 1000, 2000):
                file.cells([k], np.array([row]))
        assert read == [0, 1, 2]
        assert file.file.last_dictionary is not None
        assert file.file.last_dictionary[0] == -file.columns[2].dictionary_extent.offset


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_verification_reads_it_from_the_file(compression: str) -> None:
    fs = file_of(text(12, 120), spec_of(compression))
    with RowsFile(fs, "f", PageCache(1 << 20)) as file:
        file.verify()
        file.read(0, 0, ROWS)
        extent = file.columns[0].dictionary_extent
        assert extent is not None
        fs.files["f"][extent.offset + 100] ^= 4
        file.read(0, 0, ROWS)
        with pytest.raises(Corruption) as caught:
            file.verify()
        assert caught.value.offset == extent.offset
