"""Each limit of a file, a record and a job, exactly reached, is taken and comes back; one more is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.cfile.columns import specs
from kudu_core.cfile.columns.column_list import ColumnList, pack_entries
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.columns.writer import write_column
from kudu_core.cfile.columns.zone import STRING_ZONE_BYTES
from kudu_core.cfile.pages import container, container_writer
from kudu_core.cfile.pages import page as pages
from kudu_core.cfile.pages.container import FileReader
from kudu_core.cfile.pages.container_writer import FileWriter
from kudu_core.common.format.members import LIMIT
from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.common.schema import schema
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import Corruption, InvalidArgument, NotSupported
from kudu_core.table.backup import backup
from kudu_core.table.backup import backup_manifest as backup_format
from kudu_core.table.jobs import commit, resolve
from kudu_core.table.jobs import job as job_module
from kudu_core.table.opened import job_marks
from kudu_core.wal import appending
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import handle_of, log_of, poison_of, rowsets_of, tablet_of
from tests.support.limits import MANUAL, PATH, Column, comes_back, make, refused
from tests.support.models.overwriting import staged as staged_job

# ---- data files


def test_the_widest_footer_is_smaller_than_a_footer_may_be() -> None:
    """Of a delta file that changes every column of as many as a table may have."""
    fs = MemoryFileSystem()
    writer = FileWriter(fs, "/f", container.CONTAINER_DELTA)
    column = ColumnBuffers(0, 1, np.frombuffer(b"\xfe" * 64, np.uint8), np.array([0, 64], np.int32))
    entry = write_column(writer, ColumnSpec(1, ColumnType.parse("binary"), True), column)
    writer.abort()
    assert entry.zone.minimum is not None and entry.zone.maximum is not None
    assert len(entry.zone.minimum) == len(entry.zone.maximum) == STRING_ZONE_BYTES
    size = len(pack_entries([entry, entry])) - len(pack_entries([entry]))
    assert 2 * size * schema.MAX_COLUMNS < container.FOOTER_LIMIT_BYTES // 2


def test_a_footer_that_no_reader_takes_is_not_written(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(fs)
    table.insert({"k": [1, 2], "s": ["a", "b"]})
    monkeypatch.setattr(container_writer, "FOOTER_LIMIT_BYTES", 100)
    with pytest.raises(NotSupported, match=r"a footer of .* bytes; it has at most 100"):
        table.flush()
    assert table.count() == 2
    monkeypatch.undo()
    table.flush()
    comes_back(fs, table)
    monkeypatch.setattr(container, "FOOTER_LIMIT_BYTES", 100)
    with kc.open_table(PATH, _fs=fs) as reader, pytest.raises(Corruption, match="footer"):
        reader.scan().to_table()


@pytest.mark.parametrize("what", ["rows", "entries"])
def test_rows_of_a_file(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    def limit(rows: int) -> None:
        monkeypatch.setattr(specs, "MAX_ROWS", rows)
        from kudu_core.cfile.files import delta_file, rows_file

        for module in (delta_file, rows_file):
            monkeypatch.setattr(module, "MAX_ROWS", rows)

    table = make(fs)
    table.insert({"k": range(9), "s": ["a"] * 9})
    if what == "entries":
        table.flush()
        table.update({"k": range(9), "s": ["b"] * 9})
    limit(8)
    with pytest.raises(NotSupported, match="9 rows in one file; it has at most 8"):
        table.flush()
    limit(9)
    table.flush()
    comes_back(fs, table)
    limit(8)
    with kc.open_table(PATH, _fs=fs) as reader, pytest.raises(Corruption, match="is 9"):
        reader.scan().to_table()


# ---- the log


def test_a_record(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(fs, options=MANUAL | {"durability": "none"}) as table:
        table.insert({"k": [0], "s": ["a"]})

        def size_of(call: Callable[[], object]) -> int:
            before = log_of(table).bytes_appended
            call()
            return log_of(table).bytes_appended - before

        writes: list[Callable[[int], object]] = [
            lambda k: table.insert([{"k": k, "s": "x" * 50_000}]),
            lambda k: table.insert({"k": [k, k + 1], "s": ["x" * 30_000] * 2}),
            lambda k: table.insert({"k": [k], "s": ["x" * 50_000]}, txn=("me", k)),
            lambda k: table.alter(add=[Column("other", "string", default="x" * 30_000)]),
        ]
        for number, write in enumerate(writes):
            first, again = 10 * number + 10, 10 * number + 15
            altering = write is writes[-1]
            size = 30_000 if altering else size_of(lambda first=first, write=write: write(first))
            rows = table.scan(order="key").to_pylist()
            monkeypatch.setattr(appending, "MAX_RECORD", size - 1)
            with pytest.raises(InvalidArgument, match=f"a log record holds at most {size - 1} bytes"):
                write(again)
            assert table.scan(order="key").to_pylist() == rows and poison_of(table) is None
            monkeypatch.setattr(appending, "MAX_RECORD", 100_000 if altering else size)
            write(again)
            monkeypatch.undo()
        comes_back(fs, table)


# ---- distributed writes, backups

ROWS = pa.table({"k": pa.array(range(30), pa.int64()), "s": ["x"] * 30})


def test_what_describes_a_job(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(fs) as table:
        table.insert({"k": [100]})
        job, runs = staged_job(table, ROWS, 3, overwrite=False)
        size = len(job_module.sealed(job, runs))
        monkeypatch.setattr(job_module, "MAX_SEALED_BYTES", size - 1)
        told = f"3 staged files is {size:,} bytes"
        refused(fs, lambda: commit.commit_job(job, runs, handle_of(table)), told, NotSupported)
        assert table.count() == 1
        monkeypatch.setattr(job_module, "MAX_SEALED_BYTES", size)
        assert commit.commit_job(job, runs, handle_of(table)).inserted == 30
        comes_back(fs, table)


def test_a_list_of_changes_that_no_commit_reads_is_not_written(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the commit decides the rows itself."""
    monkeypatch.setattr(resolve, "MAX_BY_KEY_BYTES", 100)
    with make(fs, options=MANUAL | {"ingest_threshold_rows": 10}) as table:
        table.insert({"k": range(9), "s": ["a"] * 9})  # rows in memory, whose changes are such a list
        job, runs = staged_job(table, ROWS, overwrite=False)
        form = commit.form_of(job)
        assert resolve.resolve(handle_of(table), job, form, runs) == []
        monkeypatch.undo()
        [found] = resolve.resolve(handle_of(table), job, form, runs)
        assert found.by_key is not None
        monkeypatch.setattr(resolve, "MAX_BY_KEY_BYTES", found.by_key[1])
        [found] = resolve.resolve(handle_of(table), job, form, runs)
        result = commit.commit_job(job, runs, handle_of(table), [found])
        assert (result.inserted, result.updated) == (21, 9)
        comes_back(fs, table)


def test_what_says_of_a_job_that_it_is_committed() -> None:
    assert len(json.dumps([LIMIT] * 5)) < job_marks.MAX_MARK_BYTES


def test_the_manifest_of_a_backup(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(fs) as table:
        table.insert({"k": [1]})
        full = table.backup("/saved")
        size = fs.stat("/saved/00000001/BACKUP").size
        monkeypatch.setattr(backup_format, "MAX_BYTES", size - 1)
        with pytest.raises(NotSupported, match=f"1 files: its manifest would have {size:,} bytes"):
            table.backup("/other")
        assert fs.listdir("/other") == ["LOCK"]
        with pytest.raises(Corruption, match="longer than"):
            table.backup("/saved", since=full)
        monkeypatch.setattr(backup_format, "MAX_BYTES", size)
        table.backup("/other")
    with closing(kc.restore("/other", "/back", _fs=fs)) as back:
        assert back.count() == 1


def test_backups_of_a_folder(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "MAX_NUMBER", 2)
    with make(fs) as table:
        for k in range(2):
            table.insert({"k": [k]})
            table.backup("/saved")
        refused(fs, lambda: table.backup("/saved"), "holds backup 2, the last one; begin another folder")
    assert backup_format.backup_of_folder(f"{backup_format.MAX_NUMBER:08d}") == backup_format.MAX_NUMBER
    assert backup_format.backup_of_folder(f"{backup_format.MAX_NUMBER + 1:08d}") is None


# ---- pages and dictionaries


def test_a_page_that_is_stored_with_a_codec(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger one is stored without: a reader takes no codec's word for more."""
    monkeypatch.setattr(pages, "RAW_LIMIT_BYTES", 1000)
    assert pages.compress(bytes(1000), "zstd")[0] == pages.CODEC_ZSTD
    assert pages.compress(bytes(1001), "zstd") == (pages.CODEC_NONE, bytes(1001))
    columns = [Column("k", "int64"), Column("s", "string", encoding="plain", compression="zstd")]

    def stored(cell: str) -> int:
        """The codec of the page that holds the cell."""
        with make(fs, columns, exist_ok=True) as table:
            table.insert({"k": [len(cell)], "s": [cell]})
            table.flush()
            [rowset] = [r for r in rowsets_of(table) if r.meta.min_key == key(len(cell))]
            path = f"{tablet_of(table).directory}/{rowset.meta.base.name}"
            rest = FileReader(fs, path, container.CONTAINER_ROWS).footer_rest
            entry = next(column for column in ColumnList(rest) if column.id == 2)
            comes_back(fs, table)
        frame = fs.read_bytes(path, 1 << 20)[entry.pages.offset :]
        return int(pages.PAGE_FRAME.unpack_from(frame)[4])

    found = {size: stored("x" * size) for size in (900, *range(960, 1001, 4), 1001)}
    largest = max(size for size, codec in found.items() if codec == pages.CODEC_ZSTD)
    assert all((codec == pages.CODEC_ZSTD) == (size <= largest) for size, codec in found.items())
    assert 900 < largest < 1000, "what is counted is the page, not its cells"
    monkeypatch.setattr(pages, "RAW_LIMIT_BYTES", 900)
    with (
        kc.open_table(PATH, _fs=fs) as reader,
        pytest.raises(Corruption, match="after decompression exceed 900"),
    ):
        reader.scan().to_table()


def key(number: int) -> bytes:
    return (number + (1 << 63)).to_bytes(8, "big")


@pytest.mark.parametrize("more", [0, 1])
def test_words_of_a_dictionary(fs: MemoryFileSystem, more: int) -> None:
    count = specs.DICTIONARY_WORDS + more
    columns = [Column("k", "int64"), Column("s", "string", encoding="dictionary")]
    words = [f"{i:06d}" for i in range(count)]
    with make(fs, columns, options=MANUAL | {"ingest_threshold_rows": 10}) as table:
        table.insert(pa.table({"k": pa.array(range(count), pa.int64()), "s": words}))
        [rowset] = rowsets_of(table)
        path = f"{tablet_of(table).directory}/{rowset.meta.base.name}"
        rest = FileReader(fs, path, container.CONTAINER_ROWS).footer_rest
        entry = next(column for column in ColumnList(rest) if column.id == 2)
        assert entry.words == (None if more else specs.DICTIONARY_WORDS)
        comes_back(fs, table)
