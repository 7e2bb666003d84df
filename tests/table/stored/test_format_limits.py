"""Files and stores that are filled to the last byte or row that their format allows, and by one more.

``test_stored_limits.py`` has the numbers that are stored in JSON and headers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core._ext.base.crc32c import crc32c
from kudu_core._ext.columns import growing as append_column
from kudu_core._ext.keys import hashing
from kudu_core.cfile import RowsFile
from kudu_core.cfile.columns import pages as column_pages
from kudu_core.cfile.columns import specs
from kudu_core.cfile.columns import writer as column_writer
from kudu_core.cfile.columns.column_list import ColumnList, column_list, pack_entries
from kudu_core.cfile.columns.pages import ColumnPages
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.columns.statistics import StatisticsBlock, StatisticsRef
from kudu_core.cfile.columns.writer import write_column
from kudu_core.cfile.files import rows_writer
from kudu_core.cfile.files.delta_codes import REDO_UPDATE
from kudu_core.cfile.pages import container, container_writer
from kudu_core.cfile.pages import page as pages
from kudu_core.cfile.pages.container import Extent
from kudu_core.common.format import names
from kudu_core.common.format.members import LIMIT
from kudu_core.common.idempotence.writers import AppliedWrite
from kudu_core.common.rows import rowblock
from kudu_core.common.rows.keys import encode_keys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema.declare import Column, declare
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import ColumnTooLarge, Corruption, NotSupported
from kudu_core.rowset.memory import growing
from kudu_core.rowset.memory.changelog import Change, ChangeLog
from kudu_core.rowset.memory.growing import StoreFull
from kudu_core.rowset.memory.memrowset import MemRowSet
from kudu_core.table.ingest import accept
from kudu_core.table.jobs import job as jobs
from kudu_core.table.lifecycle import staging_folders as staging
from kudu_core.table.opened import job_marks
from kudu_core.table.stored import table_state
from kudu_core.tablet.store import records
from kudu_core.tablet.store import salvage as manifests
from kudu_core.wal import format as wal
from kudu_core.wal import salvage
from tests.support.cases.cfile import BytesFileSystem, make_case
from tests.support.faults import drop
from tests.support.fs.memory import MemoryFileSystem
from tests.support.hostile.damage import put
from tests.support.hostile.forge import log_records, with_record
from tests.support.inside import engine_of, table_file_of, tablet_of
from tests.support.limits import MANUAL, PATH, comes_back, make
from tests.support.models.overwriting import staged as staged_job

# ---- stores in memory


@pytest.fixture
def column_limit() -> Iterator[Callable[[int], int]]:
    """Sets how many bytes a column in memory takes."""
    usual = append_column.data_limit()
    yield append_column.limit_data
    append_column.limit_data(usual)


def block_of(cells: list[bytes]) -> RowBlock:
    keys = ColumnBuffers(8, len(cells), np.arange(len(cells)).view(np.uint8))
    ends = np.cumsum([0, *map(len, cells)]).astype(np.int32)
    return RowBlock(
        {1: keys, 2: ColumnBuffers(0, len(cells), np.frombuffer(b"".join(cells), np.uint8), ends)}, len(cells)
    )


def change_of(size: int) -> Change:
    return Change(REDO_UPDATE, np.zeros(1, np.uint32), {2: block_of([b"c" * size]).columns[2]})


MEMORY = declare([Column("k", "int64"), Column("s", "binary")], "k")


def test_a_column_in_memory_is_filled_to_the_last_byte(column_limit: Callable[[int], int]) -> None:
    """Rows and their changes together, for a flush reads both at once."""
    column_limit(1000)
    for rows, changes in ((1000, 0), (600, 400), (1, 999)):
        MemRowSet(MEMORY).reserve(block_of([b"r" * rows]), 8, [change_of(changes)] if changes else [])
        with pytest.raises(StoreFull, match="column 2: 0 bytes and 1001 more") as full:
            MemRowSet(MEMORY).reserve(block_of([b"r" * rows]), 8, [change_of(changes + 1)])
        assert full.value.empty
    with pytest.raises(StoreFull, match="column 2: 0 bytes and 1001 more"):
        MemRowSet(MEMORY).reserve(block_of([b"r" * 1001]), 8, [])


def test_what_a_column_in_memory_holds_already_counts(column_limit: Callable[[int], int]) -> None:
    column_limit(1000)
    memory, block = MemRowSet(MEMORY), block_of([b"r" * 600])
    keys = encode_keys(MEMORY, block)
    memory.reserve(block, keys.data_bytes, [])
    memory.insert(1, block, keys, hashing.murmur3(keys.data, keys.offsets))
    memory.reserve(None, 0, [change_of(300)])
    memory.change(2, change_of(300))
    for rows, changes in ((100, 0), (0, 100)):
        for more in (0, 1):
            given = block_of([b"r" * (rows + more)]) if rows else None
            change = [change_of(changes + more)] if changes else []
            if not more:
                memory.reserve(given, 8, change)
                continue
            with pytest.raises(StoreFull, match="column 2: 900 bytes and 101 more") as full:
                memory.reserve(given, 8, change)
            assert not full.value.empty


def test_a_store_numbers_so_many_rows_and_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing, "MAX_ROWS", 3)
    MemRowSet(MEMORY).reserve(block_of([b""] * 3), 24, [])
    with pytest.raises(StoreFull, match="0 rows and 4 more"):
        MemRowSet(MEMORY).reserve(block_of([b""] * 4), 32, [])
    ChangeLog().reserve([change_of(1)] * 3)
    with pytest.raises(StoreFull, match="0 changes and 4 more"):
        ChangeLog().reserve([change_of(1)] * 4)


@pytest.mark.parametrize("more", [0, 1])
def test_changes_by_key_of_one_record_come_to_the_last_byte(
    monkeypatch: pytest.MonkeyPatch, column_limit: Callable[[int], int], more: int
) -> None:
    """Of several tablets each part is small; together they are as large as one store, or one byte more."""
    fs, taken = MemoryFileSystem(), []
    columns = [Column("k", "int64"), Column("s", "string")]
    options = MANUAL | {"ingest_threshold_rows": 40}
    with make(fs, columns, partition_by=kc.HashPartition("k", 4), options=options) as table:
        for first in (0, 30):
            table.insert([{"k": k, "s": "a"} for k in range(first, first + 30)])
        engine = engine_of(table)
        usual = engine.memory.count
        monkeypatch.setattr(
            engine.memory, "count", lambda made, size: (taken.append(size), usual(made, size))
        )
        table.update(pa.table({"k": range(60), "s": ["b" * 1000] * 60}))
        assert len(taken) == 1 and any(len(tablet.view.active) for tablet in engine.tablets)
        column_limit(taken[0] - more)
        table.update(pa.table({"k": range(60), "s": ["c" * 1000] * 60}))
        in_memory = any(len(tablet.view.active) for tablet in engine.tablets)
        assert in_memory == (not more), "flushed before, where one record would not hold them"
        assert {row["s"] for row in table.scan().to_pylist()} == {"c" * 1000}
        comes_back(fs, table)


# ---- the log, read back


def forged_log(ts: int) -> tuple[MemoryFileSystem, str, bytes]:
    """A table that was not closed, whose last record says that it is of ``ts``; its segment, and its salt."""
    fs = MemoryFileSystem()
    table = make(fs, options=MANUAL | {"durability": "sync"})
    table.insert({"k": [1]})
    table.insert({"k": [2]})
    copied = fs.crash_clone(keep="all")
    drop(table)
    [name] = [n for n in copied.listdir(f"{PATH}/wal") if n.endswith(".log")]
    path = f"{PATH}/wal/{name}"
    data = copied.read_bytes(path, 1 << 30)
    at, length = log_records(data)[-1]
    body = data[at + wal.RECORD_HEADER.size : at + length]
    put(copied, path, with_record(data, at, body, ts=ts))
    header = wal.unpack_segment_header(data[:64])
    assert header is not None
    return copied, path, header.salt()


def test_the_last_time_that_a_record_may_have() -> None:
    fs, path, salt = forged_log(LIMIT - 1)
    with closing(fs.open_read(path)) as file:
        span = salvage._span(file, salt, wal.SEGMENT_HEADER.size, 1)
        assert span is not None and (span.last_lsn, span.last_ts) == (2, LIMIT - 1)
    table = kc.open_table(PATH, "rw", _fs=fs)
    assert table.count() == 2 and table.scan().timestamp == LIMIT - 1
    with pytest.raises(NotSupported, match="timestamps end before"):
        table.insert({"k": [3]})
    drop(table)


def test_a_record_of_a_later_time_is_damage() -> None:
    fs, path, salt = forged_log(LIMIT)
    with closing(fs.open_read(path)) as file:
        span = salvage._span(file, salt, wal.SEGMENT_HEADER.size, 1)
        assert span is not None and span.last_lsn == 1, "the record before it can be told"
    with pytest.raises(Corruption, match="too large"):
        kc.open_table(PATH, "rw", _fs=fs)


# ---- data files


class Told(Exception):
    """What a reader calls damage."""


class Reader:
    """As much of a ``FileReader`` as tells of damage."""

    path = "file"

    def damaged(self, offset: int, reason: str) -> None:
        raise Told(reason)


def test_cells_that_offsets_can_address() -> None:
    rowblock.check_size(1, (1 << 31) - 1)
    with pytest.raises(ColumnTooLarge, match="2,147,483,648 bytes exceed 2,147,483,647"):
        rowblock.check_size(1, 1 << 31)


def test_a_footer_to_the_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    fs, case = BytesFileSystem(), make_case(np.random.default_rng(1), 3000)
    case.write(fs, "a")
    with RowsFile(fs, "a") as file:
        size = file.file.footer_extent.length - container.SECTION_FRAME.size
    for module in (container, container_writer):
        monkeypatch.setattr(module, "FOOTER_LIMIT_BYTES", size)
    case.write(fs, "b")
    RowsFile(fs, "b").close()
    for module in (container, container_writer):
        monkeypatch.setattr(module, "FOOTER_LIMIT_BYTES", size - 1)
    with pytest.raises(NotSupported, match=f"a footer of {size:,} bytes; it has at most {size - 1:,}"):
        case.write(fs, "c")
    with pytest.raises(Corruption, match="a footer of"):
        RowsFile(fs, "b")


def test_a_page_to_the_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "RAW_LIMIT_BYTES", 1000)
    reader: Any = Reader()
    for codec in ("lz4", "zstd"):
        number, packed = pages.compress(bytes(1000), codec)
        assert pages.decompress(reader, 0, number, packed, 1000) == bytes(1000)
        with pytest.raises(Told, match="1001 bytes after decompression exceed 1000"):
            pages.decompress(reader, 0, number, packed, 1001)


def test_what_a_footer_says_of_a_column() -> None:
    fs, case = BytesFileSystem(), make_case(np.random.default_rng(1), 3000)
    case.write(fs, "a")
    with RowsFile(fs, "a") as file:
        string = next(entry for entry in column_list(file.file) if entry.type == "string")
        words = specs.DICTIONARY_WORDS
        worded = replace(string, dictionary=Extent(40, 0), words=words)
        ColumnPages(file.file, worded)
        with pytest.raises(Corruption, match=f"a dictionary of {words + 1} words"):
            ColumnPages(file.file, replace(worded, words=words + 1))
        ColumnPages(file.file, replace(string, id=-16))
        with pytest.raises(Corruption, match="column id is -17"):
            ColumnPages(file.file, replace(string, id=-17))
        most = replace(string, rows=specs.MAX_ROWS, zone=replace(string.zone, rows=specs.MAX_ROWS))
        assert list(ColumnList(pack_entries([most]))) == [most]
        with pytest.raises(struct.error):
            pack_entries([replace(most, rows=specs.MAX_ROWS + 1)])


def test_the_bounds_of_strings_in_a_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are cut at 32 bytes; a longer one than that is damage."""
    fs, case = BytesFileSystem(), make_case(np.random.default_rng(1), 100, types=["int64", "binary"])
    [id_] = [id_ for id_, spec in case.specs.items() if spec.type.name == "binary"]
    for size, length in ((31, 31), (32, 32), (33, 32)):
        cells = ColumnBuffers(
            0, 100, np.full(100 * size, 97, np.uint8), np.arange(101, dtype=np.int32) * size
        )
        case.columns[id_] = cells
        case.specs[id_] = ColumnSpec(id_, case.specs[id_].type, True, encoding="plain")
        case.write(fs, f"a{size}")
        with RowsFile(fs, f"a{size}") as file:
            [zone] = file.columns[id_].zones()
            assert zone.minimum == b"a" * length
    monkeypatch.setattr(column_pages, "STRING_ZONE_BYTES", 31)
    with RowsFile(fs, "a32") as file, pytest.raises(Corruption, match="a bound is too long"):
        file.columns[id_].zones()
    with RowsFile(fs, "a31") as file:
        assert file.columns[id_].zones()


@pytest.mark.parametrize("more", [0, 1])
def test_a_dictionary_is_no_larger_than_its_limit(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    monkeypatch.setattr(column_writer, "DICTIONARY_LIMIT_BYTES", 2000 - more)
    spec = ColumnSpec(1, ColumnType.parse("binary"), True, encoding="dictionary")
    words = b"".join(b"%020d" % n for n in range(100))
    ends = np.arange(101, dtype=np.int32) * 20
    writer = container_writer.FileWriter(MemoryFileSystem(), "/f", container.CONTAINER_ROWS)
    entry = write_column(writer, spec, ColumnBuffers(0, 100, np.frombuffer(words, np.uint8), ends))
    writer.abort()
    assert entry.words == (None if more else 100)


def test_statistics_that_stand_in_a_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Larger ones stand in their file."""
    fs, case = BytesFileSystem(), make_case(np.random.default_rng(1), 3000)
    inline = case.write(fs, "a").statistics
    assert isinstance(inline, StatisticsBlock)
    size = len(inline.data)
    monkeypatch.setattr(rows_writer, "INLINE_BYTES", size)
    assert isinstance(case.write(fs, "b").statistics, StatisticsBlock)
    monkeypatch.setattr(rows_writer, "INLINE_BYTES", size - 1)
    assert isinstance(case.write(fs, "c").statistics, StatisticsRef)


# ---- whole files


def test_a_table_file_to_the_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    with make(fs) as table:
        known = table_file_of(table)
    data = fs.read_bytes(f"{PATH}/TABLE", 1 << 30)
    read = table_state.read_state(fs, f"{PATH}/TABLE")
    monkeypatch.setattr(table_state, "MAX_BYTES", len(data))
    assert read.to_bytes() == data and read.uuid == known.uuid
    assert table_state.read_state(fs, f"{PATH}/TABLE") == read
    monkeypatch.setattr(table_state, "MAX_BYTES", len(data) - 1)
    with pytest.raises(NotSupported, match=f"TABLE would have {len(data):,} bytes"):
        read.to_bytes()
    with pytest.raises(Corruption, match="longer than"):
        table_state.read_state(fs, f"{PATH}/TABLE")


def test_what_a_distributed_write_leaves_is_read_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    with make(fs) as table:
        job, runs = staged_job(table, pa.table({"k": range(30), "s": ["x"] * 30}), 3, overwrite=False)
        data = jobs.sealed(job, runs)
        directory = job_marks.job_directory(PATH, job.id)
        put(fs, f"{directory}/{staging.SEALED}", data)
        monkeypatch.setattr(jobs, "MAX_SEALED_BYTES", len(data))
        assert jobs.unsealed(fs, PATH, job.id)[0].id == job.id
        monkeypatch.setattr(jobs, "MAX_SEALED_BYTES", len(data) - 1)
        with pytest.raises(Corruption, match="longer than"):
            jobs.unsealed(fs, PATH, job.id)
        mark = f"{PATH}/staging/{names.mark_of_job(job.id)}"
        most = json.dumps([5, 1, 2, 3, 4]).encode()
        put(fs, mark, most + b" " * (job_marks.MAX_MARK_BYTES - len(most)))
        assert job_marks.read_mark(fs, PATH, job.id) == AppliedWrite(0, 5, (1, 2, 3, 4))
        put(fs, mark, most + b" " * (job_marks.MAX_MARK_BYTES - len(most) + 1))
        with pytest.raises(Corruption, match="longer than"):
            job_marks.read_mark(fs, PATH, job.id)
        fs.unlink(mark)


def test_changes_of_a_resolution_are_read_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    with make(fs) as table:
        data = b"".join(bytes(piece) for piece in records.encode(records.Payload((1,), [], {})))
        put(fs, f"{PATH}/by-key", data)
        file = ("by-key", len(data), crc32c(data))
        monkeypatch.setattr(accept, "MAX_BY_KEY_BYTES", len(data))
        assert accept._read_by_key(engine_of(table), PATH, file) == []
        monkeypatch.setattr(accept, "MAX_BY_KEY_BYTES", len(data) - 1)
        with pytest.raises(Corruption, match="longer than"):
            accept._read_by_key(engine_of(table), PATH, file)
        fs.unlink(f"{PATH}/by-key")


def test_a_repair_reads_a_manifest_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = MemoryFileSystem()
    with make(fs) as table:
        table.insert({"k": [1]})
        table.flush()
        uuid, directory = table_file_of(table).uuid, tablet_of(table).directory
    size = fs.stat(f"{directory}/MANIFEST").size
    monkeypatch.setattr(manifests, "MAX_BYTES", size)
    found = manifests.salvage_manifest(fs, directory, uuid, 1, known=0, closed=True)
    assert not found.damage and len(found.state.rowsets) == 1
    monkeypatch.setattr(manifests, "MAX_BYTES", size - 1)
    found = manifests.salvage_manifest(fs, directory, uuid, 1, known=0, closed=True)
    assert any("longer than" in reason for _, reason in found.damage)
