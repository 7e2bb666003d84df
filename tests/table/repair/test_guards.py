"""``kudu_core.repair``: rules of which each keeps a row from being invented, lost or taken for the newest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.cfile import RowsFile
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.tablet.compact.delta_compaction import compact_major
from tests.support.inside import rowsets_of, tablets_of
from tests.support.tables import Make, make, path, small_segments
from tests.table.repair.conftest import SCHEMA, Repaired, closed, flip, rows_of

__all__ = ["make", "path", "small_segments"]

ROWS = 2_000
INGEST_ROWS = 500
"""Calls of so many rows are in files alone: the log does not have them."""


def fill(table: kc.Table, rows: int = ROWS) -> None:
    keys = range(rows)
    table.insert({"k": list(keys), "a": [7 * k for k in keys], "s": [f"row {k}" for k in keys]})
    table.flush()


def files_of(path: Path, suffix: str, tablet: int = 1) -> list[Path]:
    return sorted((path / "tablets" / f"{tablet:08d}").glob(f"*.{suffix}"))


def forget_the_log(table: kc.Table, path: Path) -> None:
    """Write and flush elsewhere until the log begins after what was done so far."""
    first = min((path / "wal").glob("*.log"))
    for k in range(200):
        table.upsert({"k": [10_000 + k % 20], "a": [k], "s": ["x" * 1000]})
        if k % 20 == 19:
            table.flush()
            table.gc()
        if not first.exists():
            return
    raise AssertionError("the log keeps everything")


def without_manifest(path: Path, tablet: int = 1) -> None:
    for name in ("MANIFEST", "MANIFEST.copy"):
        (path / "tablets" / f"{tablet:08d}" / name).unlink()


# ---- times


def test_files_hold_what_the_log_has_dropped(make: Make, path: Path, small_segments: None) -> None:
    """A rowset that was not changed for long is as new as the CHECKPOINT says: a change of it in a log that
    begins far later is laid over its row without a doubt."""
    table = make(schema=SCHEMA)
    fill(table, 100)
    forget_the_log(table, path)
    table.update({"k": [3], "a": [-3]})
    wanted = closed(table)
    found = Repaired(path)
    assert found.rows == wanted and found.rows[3] == (-3, "row 3")
    assert found.report.is_sound and not found.report.rows_doubtful, found.report.text()


def test_a_file_of_long_ago_and_a_change_of_now(make: Make, path: Path, small_segments: None) -> None:
    """Of a merged rowset the keys cannot be read, and one that went into it is still there.  What was done
    between it and the beginning of the log nobody knows: a change of now makes no row of two times."""
    table = make(schema=SCHEMA)
    fill(table, 100)
    table.update({"k": [3], "a": [-3]})
    table.flush()
    table.insert({"k": [100], "a": [700], "s": ["row 100"]})
    table.flush()
    with kc.open_table(path):  # as long as somebody reads, what was merged stays
        table.compact(full=True)
        (rowset,) = rowsets_of(table)
        merged = path / "tablets" / "00000001" / rowset.meta.base.name
        table.update({"k": [3, 4], "a": [-33, -44]})
        table.flush()
        forget_the_log(table, path)
        table.update({"k": [3, 5], "s": ["now", "now"]})
        wanted = closed(table)
    with RowsFile(PosixFileSystem(), str(merged)) as rows:
        at = rows.columns[1].page_offset(0)
    flip(merged, at + 20)
    found = Repaired(path)
    old = {k: (7 * k, f"row {k}") for k in range(101)} | {3: (-3, "row 3")}
    assert {k: row for k, row in found.rows.items() if k < 1000} == old
    assert found.aside["doubtful"].keys() == old.keys() - {3, 5}
    assert found.aside["older"].keys() == {3, 5} and found.report.changes_aside == 2
    assert wanted[3] == (-33, "now")


def test_a_lost_file_of_changes_that_the_log_has_dropped(
    make: Make, path: Path, small_segments: None
) -> None:
    """Each row that it may have changed is in doubt, though no later change is in the log."""
    table = make(schema=SCHEMA)
    fill(table, 100)
    before = rows_of(table.scan().to_table())
    table.update({"k": [3], "a": [-3]})
    table.flush()
    (lost,) = [file for file in files_of(path, "delta") if file.exists()]
    forget_the_log(table, path)
    closed(table)
    lost.unlink()
    found = Repaired(path)
    assert {k: row for k, row in found.rows.items() if k < 100} == before
    assert found.aside["older"].keys() == before.keys()


# ---- doubts


def test_a_row_that_a_file_of_changes_changes_later_is_there(make: Make, path: Path) -> None:
    """A file of deletions is lost; another one, that came after it, updates some of the rows that it may have
    held: those live."""
    table = make(schema=SCHEMA, ingest_threshold_rows=INGEST_ROWS)
    fill(table)
    before = rows_of(table.scan().to_table())
    gone, changed = list(range(INGEST_ROWS)), list(range(INGEST_ROWS, 2 * INGEST_ROWS))
    table.delete({"k": gone})
    (lost,) = files_of(path, "delta")
    table.update({"k": changed, "s": ["later"] * len(changed)})
    table.flush()
    wanted = closed(table)
    lost.unlink()
    found = Repaired(path)
    assert found.rows == {**before, **wanted}
    assert found.aside["doubtful"].keys() == before.keys() - set(changed)


# ---- what stands in


def test_rows_with_a_lost_cell_whose_inserts_the_log_has(make: Make, path: Path) -> None:
    """The log tells of them as they were inserted, from which a later change is kept apart."""
    table = make(schema=SCHEMA, ingest_threshold_rows=10 * ROWS)
    fill(table)
    table.update({"k": [5], "a": [1]})
    wanted = closed(table)
    (file,) = files_of(path, "rows")
    with RowsFile(PosixFileSystem(), str(file)) as rows:
        at = rows.columns[3].page_offset(0)
    flip(file, at + 40)
    found = Repaired(path)
    assert found.rows == {**wanted, 5: (35, "row 5")}
    assert found.aside["older"].keys() == wanted.keys() and found.report.rows_lost == 0
    assert found.report.changes_aside == 1


def test_columns_that_are_newer_than_what_is_lost(make: Make, path: Path) -> None:
    """A column was written anew with changes that came after those of a lost file: beside the cells of before
    that file it would make a row that never was."""
    table = make(schema=SCHEMA, ingest_threshold_rows=INGEST_ROWS)
    fill(table)
    keys = list(range(INGEST_ROWS))
    table.update({"k": keys, "s": ["first"] * INGEST_ROWS})
    table.update({"k": keys, "a": [-1] * INGEST_ROWS})
    table.flush()
    (tablet,) = tablets_of(table)
    compact_major(tablet, tablet.view.rowsets[0].id, [2])
    (rowset,) = tablet.view.rowsets
    assert [columns.column_ids for columns in rowset.meta.replaced] == [(2,)]
    (redo,) = rowset.meta.redo
    wanted = closed(table)
    (path / "tablets" / "00000001" / redo.file.name).unlink()
    found = Repaired(path)
    assert found.rows == {}, "each row may be among those that the lost file changes"
    assert found.aside["lost"] == {k: (row[0], None) for k, row in wanted.items()}
    assert wanted[0] == (-1, "first")


# ---- tablets


@pytest.mark.parametrize("damaged", [False, True])
def test_a_row_in_the_wrong_tablet(make: Make, path: Path, damaged: bool) -> None:
    """A file that came from another tablet's folder brings that tablet's rows into no other: neither among
    those that are kept nor among those that are lost."""
    table = make(
        schema=SCHEMA,
        partition_by=kc.RangePartition("k", [(0, ROWS), (ROWS, 2 * ROWS)]),
        ingest_threshold_rows=1,
    )
    fill(table, 2 * ROWS)
    wanted = closed(table)
    (file,) = files_of(path, "rows", tablet=2)
    copy = path / "tablets" / "00000001" / "000009-00000009.rows"
    shutil.copy(file, copy)
    if damaged:
        with RowsFile(PosixFileSystem(), str(file)) as rows:
            at = rows.columns[3].page_offset(0)
        flip(copy, at + 40)
    without_manifest(path)
    report = kc.repair(path, dry_run=False)
    with kc.open_table(f"{path}.repaired") as made:
        assert rows_of(made.scan().to_table()) == wanted
    one, two = report.tablets
    assert (one.rows_kept, two.rows_kept) == (ROWS, ROWS)
    assert (one.rows_lost, one.rows_maybe, two.rows_lost, two.rows_doubtful) == (0, ROWS, 0, 0)
