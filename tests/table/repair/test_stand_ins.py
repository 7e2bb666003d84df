"""``kudu_core.repair``: what stands in for rows, records and files that are lost."""

from __future__ import annotations

from pathlib import Path

import kudu_core as kc
from kudu_core.cfile import RowsFile
from kudu_core.fs.posix import PosixFileSystem
from tests.support.tables import Make
from tests.table.repair.conftest import (
    INGEST_ROWS,
    PAGE,
    ROWS,
    SCHEMA,
    Repaired,
    closed,
    file_of,
    flip,
    rows_of,
)


def test_a_page_of_keys_whose_rows_the_log_has(make: Make, path: Path) -> None:
    """Kept as the log tells of them, in doubt: the page may have held something newer."""
    made = make(schema=SCHEMA, ingest_threshold_rows=10 * ROWS)
    made.insert({"k": list(range(ROWS)), "a": [0] * ROWS, "s": [f"row {k}" for k in range(ROWS)]})
    made.flush()
    made.update({"k": [PAGE], "a": [1]})
    wanted = closed(made)
    file = file_of(path, "rows")
    with RowsFile(PosixFileSystem(), str(file)) as rows:
        at = rows.columns[1].page_offset(1)
    flip(file, at + 40)
    found = Repaired(path)
    assert found.rows == wanted
    assert found.aside["doubtful"].keys() == set(range(PAGE, 2 * PAGE))


def test_an_insert_that_an_ingest_has_changed_since(make: Make, path: Path) -> None:
    """The log has the insert and a later update; what the ingest did between is in a file of lost rows."""
    made = make(schema=SCHEMA, ingest_threshold_rows=INGEST_ROWS)
    few = INGEST_ROWS // 2
    for first in (0, few):
        keys = list(range(first, first + few))
        made.insert({"k": keys, "a": [0] * few, "s": ["inserted"] * few})
    made.flush()
    made.update({"k": list(range(2 * few)), "s": ["ingested"] * 2 * few})
    made.update({"k": [1], "a": [1]})
    wanted = closed(made)
    file_of(path, "rows").unlink()
    found = Repaired(path)
    assert found.rows == dict.fromkeys(wanted, (0, "inserted"))
    assert found.aside["doubtful"].keys() == wanted.keys()


def test_ingests_whose_files_were_merged_since(make: Make, path: Path) -> None:
    """The log still names files that are gone for good: nothing is missing."""
    made = make(schema=SCHEMA, ingest_threshold_rows=INGEST_ROWS, file_grace_s=0)
    for part in range(3):
        keys = list(range(part, 3 * INGEST_ROWS, 3))
        made.insert({"k": keys, "a": keys, "s": ["x"] * len(keys)})
    made.delete({"k": list(range(INGEST_ROWS // 4))})
    made.compact(full=True)
    made.gc()
    made.close()
    again = kc.open_table(path, "rw")  # the manifest begins anew, and forgets what was merged
    again.update({"k": [2 * INGEST_ROWS], "a": [-1]})
    again.flush()
    wanted = closed(again)
    found = Repaired(path)
    assert found.rows == wanted
    assert found.report.is_sound and not found.report.rows_doubtful, found.report.text()


def test_a_file_in_lost(table: kc.Table, path: Path) -> None:
    """A file that an open has moved there is used where something names it."""
    wanted = closed(table)
    (path / "lost").mkdir(exist_ok=True)
    file = file_of(path, "rows")
    moved = path / "lost" / f"{1_700_000_000:010d}-{1:08d}-{file.name}"
    file.rename(moved)
    found = Repaired(path)
    assert found.rows == wanted and str(moved) in found.report.files_used
    assert not found.report.rows_doubtful and not found.report.rows_lost


def test_a_file_in_lost_that_nothing_names(table: kc.Table, path: Path) -> None:
    wanted = closed(table)
    (path / "lost").mkdir(exist_ok=True)
    file = file_of(path, "rows")
    file.rename(path / "lost" / f"{1_700_000_000:010d}-{1:08d}-{file.name}")
    for name in ("MANIFEST", "MANIFEST.copy"):
        (path / "tablets" / "00000001" / name).unlink()
    found = Repaired(path)
    assert found.rows == wanted and found.aside["doubtful"].keys() == wanted.keys()


def test_a_manifest_of_a_closed_table_that_is_too_long(table: kc.Table, path: Path) -> None:
    """TABLE says which edit was the last: what follows it is nothing that is missing."""
    wanted = closed(table)
    file = path / "tablets" / "00000001" / "MANIFEST"
    file.write_bytes(file.read_bytes() + b"x" * 100)
    found = Repaired(path)
    assert found.rows == wanted and not found.report.rows_doubtful
    assert not found.report.is_sound


def test_a_lost_file_of_deletions(table: kc.Table, path: Path) -> None:
    """Any row may be among them, but for one that is changed later."""
    before = rows_of(table.scan().to_table())
    gone = list(range(2 * INGEST_ROWS))
    table.delete({"k": gone})
    table.flush()
    table.update({"k": [ROWS - 1], "a": [-1]})
    wanted = closed(table)
    file_of(path, "delta").unlink()
    found = Repaired(path)
    assert found.rows == {**before, ROWS - 1: wanted[ROWS - 1]}
    assert found.aside["doubtful"].keys() | found.aside["older"].keys() == before.keys() - {ROWS - 1}


def test_an_insert_that_is_gone_for_good(make: Make, path: Path) -> None:
    """The log still has the insert; the deletion was an ingest's, and a merge has dropped both."""
    made = make(schema=SCHEMA, ingest_threshold_rows=INGEST_ROWS, history_retention_s=0, file_grace_s=0)
    few = INGEST_ROWS // 2
    for first in range(0, 4 * few, few):
        made.insert({"k": list(range(first, first + few)), "a": [0] * few, "s": ["x"] * few})
    made.flush()
    made.delete({"k": list(range(2 * few))})
    made.compact(full=True)
    made.gc()
    wanted = closed(made)
    found = Repaired(path)
    assert found.rows == wanted and len(wanted) == 2 * few
    assert found.report.is_sound, found.report.text()
