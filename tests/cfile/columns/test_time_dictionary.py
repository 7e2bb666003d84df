"""Columns of times that are few: stored as codes, read as times, and nothing that a file says is believed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core.cfile import REDO, DeltaFile, RowsFile, RowsFileSpec, write_rows_file
from kudu_core.cfile.columns import time_dictionary, writer
from kudu_core.cfile.columns.column_list import ColumnEntry, column_list
from kudu_core.cfile.columns.specs import DICTIONARY_WORDS, ColumnSpec
from kudu_core.cfile.files.delta_writer import write_delta_file
from kudu_core.cfile.files.rows_format import INSERT_TIME_ID
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import Corruption
from tests.support.cases.cfile import BytesFileSystem, column

U64 = ColumnType.parse("uint64")
ROWS = 40_000


def of_calls(rng: np.random.Generator, calls: int, rows: int = ROWS) -> np.ndarray:
    """A time for each row, each of one of so many calls within some hours, in no order."""
    moments = np.unique(rng.integers(1 << 62, (1 << 62) + (1 << 34), calls).astype(np.uint64))
    return moments[rng.integers(0, len(moments), rows)]


def file_of(times: np.ndarray) -> Any:
    """A file system with a rows file of one column, whose rows were inserted at those times."""
    fs = BytesFileSystem()
    numbers = column(list(range(len(times))), "int64")
    spec = ColumnSpec(0, ColumnType.parse("int64"), False)
    write_rows_file(fs, "f", RowsFileSpec([(spec, numbers)], insert_times=times, file_id=bytes(16)))
    return fs


def entry_of(file: RowsFile | DeltaFile, role: str) -> ColumnEntry:
    return next(entry for entry in column_list(file.file) if entry.role == role)


@pytest.mark.parametrize(
    ("calls", "bytes_each"), [(2, 0.2), (20, 0.7), (256, 1.15), (257, 1.3), (3000, 2.6)]
)
def test_few_times_take_the_bits_of_their_codes(calls: int, bytes_each: float, seed: int) -> None:
    rng = np.random.default_rng((seed, calls))
    times = of_calls(rng, calls)
    with RowsFile(file_of(times), "f") as file:
        entry = entry_of(file, "insert_time")
        assert entry.words == len(np.unique(times))
        assert entry.stored_bytes <= bytes_each * ROWS
        assert (entry.zone.minimum, entry.zone.maximum) == (times.min().tobytes(), times.max().tobytes())
        np.testing.assert_array_equal(file.insert_times(0, ROWS), times)
        for lower, upper in np.sort(rng.integers(0, ROWS, (20, 2))).tolist():
            np.testing.assert_array_equal(file.insert_times(lower, upper), times[lower:upper])
        rows = rng.integers(0, ROWS, 300)
        np.testing.assert_array_equal(file.insert_times_of(rows), times[rows])
        assert len(file.insert_times(5, 5)) == 0 and file.insert_times(5, 5).dtype == np.uint64
        pages = file.columns[INSERT_TIME_ID].zones()
        assert [page.minimum for page in pages] == [
            times[at : at + (1 << 14)].min().tobytes() for at in range(0, ROWS, 1 << 14)
        ]
        file.verify()


@pytest.mark.parametrize(
    "times",
    [
        pytest.param(np.arange(ROWS, dtype=np.uint64) * 12_345, id="all differ"),
        pytest.param(np.full(ROWS, 1 << 62, np.uint64), id="all the same"),
        pytest.param(np.repeat(np.arange(8, dtype=np.uint64) << 40, 5 << 10), id="one call after another"),
        pytest.param(np.array([1 << 62, 5, 1 << 62], np.uint64), id="few rows"),
        pytest.param(np.arange(ROWS, dtype=np.uint64) % 7 + 100, id="close together"),
        pytest.param(np.repeat(np.arange(70_000, dtype=np.uint64), 2)[::-1] * (1 << 40), id="too many"),
    ],
)
def test_other_times_have_no_dictionary(times: np.ndarray) -> None:
    with RowsFile(file_of(times), "f") as file:
        assert entry_of(file, "insert_time").words is None
        np.testing.assert_array_equal(file.insert_times(0, len(times)), times)


def test_as_many_words_as_there_may_be(seed: int) -> None:
    moments = np.arange(DICTIONARY_WORDS + 1, dtype=np.uint64) * (1 << 40)
    for words, expected in ((DICTIONARY_WORDS, DICTIONARY_WORDS), (DICTIONARY_WORDS + 1, None)):
        times = np.random.default_rng(seed).permutation(np.tile(moments[:words], 4))
        with RowsFile(file_of(times), "f") as file:
            assert entry_of(file, "insert_time").words == expected
            np.testing.assert_array_equal(file.insert_times(0, len(times)), times)


def test_times_of_changes(seed: int) -> None:
    """Those of a delta file, of less than one mini-block; and no column of the table."""
    times = of_calls(np.random.default_rng(seed), 50, 900)
    values = ColumnBuffers(8, len(times), times.view(np.uint8), None, None)
    every = np.arange(len(times), dtype=np.uint32)
    fs = BytesFileSystem()
    columns = {4: (ColumnSpec(4, U64, False), every, values)}
    meta = write_delta_file(fs, "d", REDO, every, times, np.ones(len(times), np.uint8), columns)
    with DeltaFile(fs, "d", size=meta.size, footer_crc=meta.footer_crc) as file:
        assert entry_of(file, "timestamp").words == len(np.unique(times))
        assert entry_of(file, "value").words is None
        assert (file.min_ts, file.max_ts) == (times.min(), times.max()) == (meta.min_ts, meta.max_ts)
        np.testing.assert_array_equal(file.entries(0, 1 << 32)[1], times)
        file.verify()


def _falling(codes: ColumnBuffers, words: ColumnBuffers) -> tuple[ColumnBuffers, ColumnBuffers]:
    times = np.ascontiguousarray(words.values.view("<u8")[::-1])
    return codes, ColumnBuffers(0, words.length, times.view(np.uint8), words.offsets, None)


def _twice(codes: ColumnBuffers, words: ColumnBuffers) -> tuple[ColumnBuffers, ColumnBuffers]:
    times = words.values.view("<u8").copy()
    times[1] = times[0]
    return codes, ColumnBuffers(0, words.length, times.view(np.uint8), words.offsets, None)


def _short(codes: ColumnBuffers, words: ColumnBuffers) -> tuple[ColumnBuffers, ColumnBuffers]:
    """One word of seven bytes and one of nine, as many bytes as before."""
    assert words.offsets is not None
    offsets = words.offsets.copy()
    offsets[2] -= 1
    return codes, ColumnBuffers(0, words.length, words.values, offsets, None)


def _beyond(codes: ColumnBuffers, words: ColumnBuffers) -> tuple[ColumnBuffers, ColumnBuffers]:
    values = codes.values.copy()
    values[-1] = words.length
    return ColumnBuffers(codes.width, codes.length, values, None, None), words


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (_falling, "not times that rise"),
        (_twice, "not times that rise"),
        (_short, "not times that rise"),
        (_beyond, "a code beyond the dictionary"),
    ],
)
def test_a_forged_dictionary_is_refused(
    monkeypatch: pytest.MonkeyPatch, forge: Any, reason: str, seed: int
) -> None:
    times = of_calls(np.random.default_rng(seed), 20)

    def forged(*arguments: Any) -> Any:
        built = time_dictionary.build_time_dictionary(*arguments)
        return built and forge(*built)

    monkeypatch.setattr(writer, "build_time_dictionary", forged)
    monkeypatch.setattr(writer, "_page_zone", _sound_zone)
    fs = file_of(times)
    with RowsFile(fs, "f") as file:
        for read in (
            lambda: file.insert_times(0, ROWS),
            lambda: file.insert_times_of(np.array([0, ROWS - 1])),
            file.verify,
        ):
            with pytest.raises(Corruption, match=reason):
                read()


_page_zone = writer._page_zone


def _sound_zone(low: bytes, high: bytes, *rest: Any) -> Any:
    """The zone of a page whose codes were forged: of the first word."""
    return _page_zone(bytes(len(low)), bytes(len(high)), *rest)


def test_a_column_of_the_table_has_no_dictionary_of_times(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(time_dictionary, "_ROLES", ("value",))
    times = of_calls(np.random.default_rng(seed), 20)
    values = ColumnBuffers(8, len(times), times.view(np.uint8), None, None)
    fs = BytesFileSystem()
    write_rows_file(fs, "f", RowsFileSpec([(ColumnSpec(0, U64, False), values)], file_id=bytes(16)))
    monkeypatch.undo()
    with RowsFile(fs, "f") as file, pytest.raises(Corruption, match="a dictionary of 20 words of a column"):
        file.read(0, 0, 1)
