"""The rights of a table's files: what the umask leaves, as for every program, in tables and in backups."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc
from tests.support.processes import NOBODY, in_child

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


@contextmanager
def umask(mask: int) -> Iterator[None]:
    old = os.umask(mask)
    try:
        yield
    finally:
        os.umask(old)


def filled(folder: Path) -> Path:
    """A table with files of every kind, a backup of it, and a table of that; its path."""
    path = folder / "t"
    options = {"maintenance": "manual", "ingest_threshold_rows": 5}
    with kc.create_table(path, SCHEMA, "k", options=options) as table:
        table.insert({"k": list(range(10)), "s": ["a"] * 10})  # files, by staging/
        table.insert({"k": [100], "s": ["b"]})
        table.flush()
        table.update({"k": [3], "s": ["c"]})
        table.flush()
        table.compact(full=True)
        table.backup(folder / "b")
        table.insert({"k": [101], "s": ["d"]})
    kc.restore(folder / "b", folder / "r").close()
    return path


def modes(folder: Path) -> dict[str, set[int]]:
    """The modes of the folders, and of the files, below a folder."""
    found: dict[str, set[int]] = {"folders": set(), "files": set()}
    for entry in folder.rglob("*"):
        kind = "folders" if entry.is_dir() else "files"
        found[kind].add(stat.S_IMODE(entry.lstat().st_mode))
    return found


@pytest.mark.parametrize(("mask", "folders", "files"), [(0o022, 0o755, 0o644), (0o077, 0o700, 0o600)])
def test_files_of_tables_and_backups_follow_the_umask(
    tmp_path: Path, mask: int, folders: int, files: int
) -> None:
    with umask(mask):
        filled(tmp_path)
    assert modes(tmp_path) == {"folders": {folders}, "files": {files}}


def test_a_writer_of_another_umask_changes_no_file_that_is_there(tmp_path: Path) -> None:
    """A file has the rights with which it was made; what replaces it has those of its own writer."""
    with umask(0o022):
        path = filled(tmp_path)
    kept = {file: file.stat().st_mode for file in path.rglob("*.rows")}
    assert kept
    with umask(0o077), kc.open_table(path, "rw") as table:
        table.insert({"k": [200], "s": ["e"]})
        table.flush()
    now = {file: file.stat().st_mode for file in path.rglob("*.rows")}
    assert {file: now[file] for file in kept} == kept
    assert {stat.S_IMODE(now[file]) for file in now.keys() - kept.keys()} == {0o600}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root may work as another user")
def test_another_user_reads_where_the_umask_lets_them(others: Path) -> None:
    """A service account beside a writer that has the usual umask; and none where it lets nobody."""
    with umask(0o022):
        path = filled(others)

    def look() -> int:
        with kc.open_table(path) as reader:
            return reader.count() + len(reader.scan().to_table())

    assert in_child(look, user=NOBODY) == "24"
    with kc.open_table(path, "rw") as writer:  # beside it, too: the reader's lock asks for no right to write
        assert in_child(look, user=NOBODY) == "24"
        assert writer.count() == 12
    assert in_child(lambda: kc.open_table(path, "rw"), user=NOBODY).startswith("PermissionError")
    closed = others / "closed"
    with umask(0o077):
        closed.mkdir(mode=0o755)
        closed.chmod(0o755)
        path = filled(closed)
    assert in_child(look, user=NOBODY).startswith("PermissionError")
