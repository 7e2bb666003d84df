"""``kudu_core.repair``: what exactly is left when a page, a file, an edit or a record is damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.cfile import DeltaFile, RowsFile
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.tablet.store import records
from kudu_core.wal.format import RECORD_HEADER, SEGMENT_HEADER, padded
from tests.support.tables import Make
from tests.table.repair.conftest import (
    INGEST_ROWS,
    PAGE,
    SCHEMA,
    STRINGS,
    Repaired,
    closed,
    file_of,
    flip,
    rows_of,
)

# ---- a page


def test_a_page_of_a_value_column(table: kc.Table, path: Path) -> None:
    """Its rows are put aside with their other cells, but for those whose cell a later change has set."""
    first = STRINGS
    table.update({"k": [first, first + 1, 3], "s": ["one", "two", "three"]})
    table.flush()
    table.update({"k": [first + 2, first + 1], "s": ["in memory", "twice"]})
    table.update({"k": [first + 3], "a": [-1]})
    wanted = closed(table)
    file = file_of(path, "rows")
    with RowsFile(PosixFileSystem(), str(file)) as rows:
        assert 1 << rows.columns[3].page_bits == STRINGS
        at = rows.columns[3].page_offset(1)
    flip(file, at + 500)
    found = Repaired(path)
    page = range(first, 2 * first)
    known = {first, first + 1, first + 2}
    assert found.rows == {k: row for k, row in wanted.items() if k not in page or k in known}
    assert found.aside["lost"] == {k: (wanted[k][0], None) for k in page if k not in known}
    assert (found.report.rows_lost, found.report.rows_doubtful) == (STRINGS - 3, 0)


def test_a_page_of_a_key_column(table: kc.Table, path: Path) -> None:
    wanted = closed(table)
    file = file_of(path, "rows")
    with RowsFile(PosixFileSystem(), str(file)) as rows:
        at = rows.columns[1].page_offset(1)
    flip(file, at + 40)
    found = Repaired(path)
    assert found.rows == {k: row for k, row in wanted.items() if not PAGE <= k < 2 * PAGE}
    assert (found.report.rows_lost, found.report.rows_doubtful) == (PAGE, 0)
    assert len(found.report.tablets[0].findings) == 1


@pytest.mark.parametrize("piece", ["key index", "bloom"])
def test_what_only_leads_to_rows(table: kc.Table, path: Path, piece: str) -> None:
    wanted = closed(table)
    file = file_of(path, "rows")
    with RowsFile(PosixFileSystem(), str(file)) as rows:
        extent = rows.file.footer["key_index" if piece == "key index" else "bloom"]
    flip(file, extent[0] + 30)
    found = Repaired(path)
    assert found.rows == wanted
    assert (found.report.rows_lost, found.report.rows_doubtful) == (0, 0)


# ---- a file of changes


def with_changes(table: kc.Table, rows: int) -> None:
    """A file of REDO, and changes of the same rows that are newer."""
    table.update({"k": list(range(rows)), "s": ["new"] * rows})
    table.flush()
    table.update({"k": [1], "s": ["newer"]})
    table.update({"k": [2], "a": [-2]})
    table.delete({"k": [3]})


def test_a_lost_file_of_changes(table: kc.Table, path: Path) -> None:
    """A row that it may have changed is as it was before, in doubt; but where later changes say all of it."""
    before = rows_of(table.scan().to_table())
    with_changes(table, 2 * INGEST_ROWS)
    wanted = closed(table)
    file_of(path, "delta").unlink()
    found = Repaired(path)
    expected = {**before, 1: wanted[1]}
    del expected[3]
    assert found.rows == expected
    assert found.aside["older"].keys() == expected.keys() - {1}
    assert found.report.changes_aside == 1  # of row 2
    assert found.report.tablets[0].findings[0].changes_lost == 2 * INGEST_ROWS


def test_a_lost_file_of_changes_that_the_log_has_too(table: kc.Table, path: Path) -> None:
    with_changes(table, INGEST_ROWS // 2)
    table.delete({"k": [200, 201]})
    table.flush()
    table.insert({"k": [200], "a": [1], "s": ["again"]})
    wanted = closed(table)
    for file in (path / "tablets" / "00000001").glob("*.delta"):
        file.unlink()
    found = Repaired(path)
    assert found.rows == wanted
    assert (found.report.rows_doubtful, found.report.rows_lost, found.report.changes_aside) == (0, 0, 0)
    assert not found.report.is_sound


def test_a_damaged_value_page_of_changes(table: kc.Table, path: Path) -> None:
    """Which rows it changed is known: the others are in no doubt."""
    before = rows_of(table.scan().to_table())
    with_changes(table, 2 * INGEST_ROWS)
    wanted = closed(table)
    file = file_of(path, "delta")
    with DeltaFile(PosixFileSystem(), str(file)) as delta:
        at = delta._values[3].page_offset(0)
    flip(file, at + 20)
    found = Repaired(path)
    changed = set(range(2 * INGEST_ROWS)) - {1, 3}
    assert found.rows == {k: before[k] if k in changed else row for k, row in wanted.items()}
    assert found.aside["older"].keys() == changed


# ---- records of the log


def offsets(path: Path) -> tuple[Path, list[int]]:
    segment = max((path / "wal").glob("*.log"))
    data, at, found = segment.read_bytes(), SEGMENT_HEADER.size, []
    while at + RECORD_HEADER.size <= len(data) and RECORD_HEADER.unpack_from(data, at)[0]:
        found.append(at)
        at += padded(RECORD_HEADER.unpack_from(data, at)[0])
    return segment, found


def test_a_lost_record(table: kc.Table, path: Path) -> None:
    """What was done after it is done where it says all of a row; a change of some columns is put aside."""
    first = table.update({"k": [1, 2, 3], "a": [10, 20, 30]})
    lost = table.update({"k": [1, 4], "s": ["lost", "lost"]})
    table.update({"k": [1, 2], "a": [11, 21]})
    table.update({"k": [5], "a": [55], "s": ["all"]})
    table.delete({"k": [6]})
    table.insert({"k": [-1], "a": [1], "s": ["new"]})
    wanted = closed(table)
    segment, at = offsets(path)
    flip(segment, at[-5] + RECORD_HEADER.size + 1)
    found = Repaired(path)
    expected = {**wanted, 1: (10, "row 1"), 2: (20, "row 2"), 4: (28, "row 4")}
    assert found.rows == expected
    assert found.aside["older"].keys() == {1, 2}
    report = found.report
    assert (report.records_lost, report.changes_aside) == (1, 2)
    assert report.complete_until is not None and first.timestamp <= report.complete_until < lost.timestamp


def test_a_record_that_cannot_be_taken_apart(
    table: kc.Table, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sound by its checksum, and no payload: it is as good as lost, and the others are not."""
    table.update({"k": [1], "a": [10]})
    monkeypatch.setattr(records, "SECTION", BadSection())
    bad = table.update({"k": [2], "a": [20]})
    monkeypatch.undo()
    table.update({"k": [3], "a": [30]})
    table.insert({"k": [-1], "a": [1], "s": ["new"]})
    wanted = closed(table)
    found = Repaired(path)
    assert found.rows == {**wanted, 2: (14, "row 2"), 3: (21, "row 3")}
    assert found.report.complete_until == bad.timestamp - 1
    assert found.aside["older"].keys() == {3}


class BadSection:
    """Writes an operation that there is not."""

    size = records.SECTION.size

    def pack(self, _op: int, *rest: int) -> bytes:
        return struct.pack("<BBHIII", 77, *rest)


# ---- a file of rows that others stand in for


def test_rows_of_a_lost_file_that_the_log_has(make: Make, path: Path) -> None:
    """They were flushed and the log still has them: kept, in doubt."""
    made = make(schema=SCHEMA)
    made.insert({"k": [1, 2, 3], "a": [1, 2, 3], "s": ["x", "y", "z"]})
    made.delete({"k": [2]})
    made.update({"k": [3], "a": [4]})
    made.flush()
    wanted = closed(made)
    file_of(path, "rows").unlink()
    found = Repaired(path)
    assert found.rows == wanted == {1: (1, "x"), 3: (4, "z")}
    assert found.aside["doubtful"].keys() == {1, 3} and found.report.rows_lost == 3


def test_files_that_changed_names(make: Make, path: Path) -> None:
    """A file is known by what it holds."""
    made = make(schema=SCHEMA)
    for k in range(3):
        made.insert({"k": [k], "a": [k], "s": ["x"]})
        made.flush()
    wanted = closed(made)
    one, two, three = sorted((path / "tablets" / "00000001").glob("*.rows"))
    one.rename(path / "tmp")
    two.rename(one)
    (path / "tmp").rename(two)
    three.rename(path / "tablets" / "00000001" / "000009-00000009.rows")
    found = Repaired(path)
    assert found.rows == wanted and not found.report.rows_doubtful


# ---- the manifest


@pytest.mark.parametrize("copy", [False, True])
def test_a_manifest(table: kc.Table, path: Path, copy: bool) -> None:
    """With its copy nothing is lost; without, rows are kept in doubt."""
    before = rows_of(table.scan().to_table())
    with_changes(table, 2 * INGEST_ROWS)
    wanted = closed(table)
    (path / "tablets" / "00000001" / "MANIFEST").unlink()
    if copy:
        (path / "tablets" / "00000001" / "MANIFEST.copy").unlink()
    found = Repaired(path)
    if not copy:
        assert found.rows == wanted and not found.report.rows_doubtful
        return
    assert found.report.rows_doubtful == len(found.rows)
    for k, row in found.rows.items():
        assert row in (before.get(k), wanted.get(k)), k
    assert found.rows.keys() >= wanted.keys()
