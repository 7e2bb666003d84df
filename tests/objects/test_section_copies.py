"""Copies of sections before the footer: with them a file in a store is opened by one request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kudu_core.cfile import DeltaFile, RowsFile
from kudu_core.cfile.columns.specs import ColumnSpec
from kudu_core.cfile.files.delta_format import REDO
from kudu_core.cfile.files.delta_writer import write_delta_file
from kudu_core.cfile.pages import section_copies
from kudu_core.cfile.pages.container import HEADER, SECTION_FRAME, FileReader
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import Corruption
from tests.support.cases.cfile import BytesFileSystem, Case, column, make_case, same

ROWS = 40_000
Written = tuple[BytesFileSystem, Case, Any]


@pytest.fixture(scope="module")
def written() -> Written:
    case = make_case(np.random.default_rng(3), ROWS)
    fs = BytesFileSystem(remote=True)
    return fs, case, case.write(fs, "a")


def opened(fs: BytesFileSystem, meta: Any, tail: int | None = None) -> RowsFile:
    tail = meta.tail if tail is None else tail
    return RowsFile(fs, "a", size=meta.size, footer_crc=meta.footer_crc, tail=tail)


def test_only_pages_and_the_bloom_are_read_beside_the_tail(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, case, meta = written
    reads: list[tuple[int, int]] = []
    read_at = FileReader.read_at

    def noted(file: FileReader, at: int, length: int) -> bytes:
        reads.append((at, length))
        return read_at(file, at, length)

    monkeypatch.setattr(FileReader, "read_at", noted)
    with opened(fs, meta) as file:
        assert reads == [(meta.size - meta.tail, meta.tail)]
        assert file.meta == meta
        file.key_index()
        for id_, reader in file.columns.items():
            reader.zones()
            if reader.words is not None:
                file.dictionary(id_)
        assert len(reads) == 1, "indexes and dictionaries came with it"
        for id_, spec in case.specs.items():
            assert same(file.read(id_, 0, ROWS).to_arrow(spec.type), case.arrow(id_)), spec
        file.may_contain(np.arange(3, dtype=np.uint64))
        file.verify()


def test_who_knows_no_tail_reads_the_same(written: Written) -> None:
    fs, case, meta = written
    with opened(fs, meta, 0) as file:
        assert file.meta == meta and meta.tail > 0
        for id_, spec in case.specs.items():
            assert same(file.read(id_, 0, ROWS).to_arrow(spec.type), case.arrow(id_)), spec
        file.verify()


def test_a_file_of_this_machine_has_none(written: Written) -> None:
    case = written[1]
    fs = BytesFileSystem()
    assert case.write(fs, "a").tail == 0
    assert written[2].size - len(fs.files["a"]) > 1000


def test_a_small_file_has_none() -> None:
    fs = BytesFileSystem(remote=True)
    assert make_case(np.random.default_rng(3), 500, types=["int64"]).write(fs, "a").tail == 0


@pytest.mark.parametrize("off", [-1000, -1, 1, 16, 1000, "all"])
def test_another_tail_than_the_file_has_is_damage(written: Written, off: int | str) -> None:
    fs, _, meta = written
    tail = meta.size if off == "all" else meta.tail + off
    with pytest.raises(Corruption):
        opened(fs, meta, tail)


@pytest.mark.parametrize("where", ["header", "index"])
def test_a_copy_that_is_another_is_found(
    written: Written, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its section is sound: whoever wrote it copied something else."""
    payload = section_copies.SectionCopies.payload

    def other(self: section_copies.SectionCopies, header: bytes, file_bytes: int) -> bytes | None:
        made = bytearray(payload(self, header, file_bytes) or b"")
        made[20 if where == "header" else -1] ^= 1
        return bytes(made)

    monkeypatch.setattr(section_copies.SectionCopies, "payload", other)
    fs = BytesFileSystem(remote=True)
    meta = written[1].write(fs, "a")
    with opened(fs, meta, 0) as file, pytest.raises(Corruption, match="the copy of the"):
        file.verify()
    with pytest.raises(Corruption), opened(fs, meta) as file:
        for reader in file.columns.values():
            reader.zones()
            if reader.words is not None:
                reader.dictionary()
        file.key_index()


def test_large_sections_are_left_out(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest first, as long as they come to little of the file."""
    monkeypatch.setattr(section_copies, "MOST_OF_SMALL", 1500)
    monkeypatch.setattr(section_copies, "FILE_PARTS", 1 << 40)
    fs = BytesFileSystem(remote=True)
    meta = written[1].write(fs, "a")
    with opened(fs, meta) as file:
        extent = file.file.copies_extent
        most = 1500 + SECTION_FRAME.size + section_copies.COPIES_HEAD.size
        assert extent is not None and 1000 < extent.length <= most
        file.verify()
    monkeypatch.setattr(section_copies, "MOST_OF_SMALL", 1 << 30)
    monkeypatch.setattr(section_copies, "MOST_BYTES", 1500)
    gathered = section_copies.SectionCopies()
    for offset, length in enumerate((400, 1600, 300, 900, 200, 1500)):
        gathered.add(offset, [bytes(length)])
    payload = gathered.payload(bytes(40), 1 << 30)
    assert payload is not None
    found = section_copies.sections_in(memoryview(payload))
    assert {offset: len(data) for offset, data in found.items()} == {0: 400, 2: 300, 4: 200}
    monkeypatch.undo()
    monkeypatch.setattr(section_copies, "FILE_PARTS", 1 << 40)
    monkeypatch.setattr(section_copies, "MOST_OF_SMALL", 10)
    assert written[1].write(BytesFileSystem(remote=True), "b").tail == 0
    assert section_copies.COPIES_HEAD.size >= HEADER.size


def test_files_of_changes_have_them_too() -> None:
    fs = BytesFileSystem(remote=True)
    rows = np.arange(ROWS, dtype=np.uint32)
    spec = ColumnSpec(4, ColumnType.parse("int64"), True)
    values = column(np.random.default_rng(1).integers(0, 1 << 60, ROWS), "int64")
    columns = {4: (spec, rows, values)}
    meta = write_delta_file(fs, "a", REDO, rows, None, np.ones(ROWS, np.uint8), columns)
    assert meta.tail > 0
    with DeltaFile(fs, "a", size=meta.size, footer_crc=meta.footer_crc, tail=meta.tail) as file:
        assert file.meta == meta
        assert (file.updates(4)[2].values == values.values).all()
        file.verify()
