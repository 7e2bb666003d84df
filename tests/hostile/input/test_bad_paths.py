"""Paths that hold something else, or that nobody may touch, and files of newer versions: refused."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core._ext.base.crc32c import crc32c
from tests.support.processes import NOBODY, in_child
from tests.support.tables import Make


def files(path: Path) -> dict[str, tuple[int, int]]:
    """Every file below a path: size and time of the last change."""
    return {
        str(p.relative_to(path)): (p.stat().st_size, p.stat().st_mtime_ns)
        for p in sorted(path.rglob("*"))
        if p.is_file()
    }


# ---- paths


def test_a_path_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a table")
    with pytest.raises(kc.TableExists, match="is a file"):
        kc.create_table(file, pa.schema([("k", pa.int64())]), "k")
    with pytest.raises(kc.TableNotFound, match="is a file"):
        kc.open_table(file)
    with pytest.raises(kc.TableNotFound):
        kc.open_table(file, "rw")
    assert file.read_text() == "not a table"
    assert os.listdir(tmp_path) == ["file"]


def test_a_path_with_nothing_or_something_else(tmp_path: Path) -> None:
    for mode in ("r", "rw"):
        with pytest.raises(kc.TableNotFound, match="create_table"):
            kc.open_table(tmp_path / "nothing", mode)
        with pytest.raises(kc.TableNotFound):
            kc.open_table(tmp_path, mode)
    assert os.listdir(tmp_path) == []
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(kc.TableExists, match=r"notes\.txt"):
        kc.create_table(tmp_path, pa.schema([("k", pa.int64())]), "k")
    with pytest.raises(FileNotFoundError, match=r"make it first.*no'"):
        kc.create_table(tmp_path / "no" / "parent", pa.schema([("k", pa.int64())]), "k")
    assert os.listdir(tmp_path) == ["notes.txt"]
    for path in ("", "a\0b", b"bytes"):
        with pytest.raises(kc.InvalidArgument):
            kc.open_table(path)  # type: ignore[arg-type]


@pytest.mark.parametrize("exist_ok", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_create_over_a_table_that_has_lost_its_TABLE(
    make: Make, path: Path, flushed: bool, exist_ok: bool
) -> None:
    """As ``open_table`` finds none there, a caller may try to make one: the rows stay for a repair."""
    table = make()
    table.insert({"k": [1, 2]})
    schema = table.schema
    if flushed:
        table.flush()
    table.close()
    for name in ("TABLE", "TABLE.copy"):
        (path / name).unlink()
        before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
        with pytest.raises(kc.TableExists, match="repair"):
            kc.create_table(path, schema, "k", exist_ok=exist_ok)
        assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before


def test_create_over_a_table(table: kc.Table, path: Path) -> None:
    table.insert({"k": [1]})
    with pytest.raises(kc.TableExists, match="open_table"):
        kc.create_table(path, table.schema, "k")
    table.close()
    from tests.support.tables import SCHEMA

    with kc.create_table(path, SCHEMA, "k", exist_ok=True) as again:
        assert again.count() == 1
    with pytest.raises(kc.TableExists, match="another schema"):
        kc.create_table(path, pa.schema([("k", pa.int64())]), "k", exist_ok=True)
    with pytest.raises(kc.TableExists, match="another schema"):
        kc.create_table(path, SCHEMA, "k", partition_by=kc.HashPartition("k", 2), exist_ok=True)
    with kc.open_table(path, "rw") as again:
        assert again.count() == 1


def test_a_directory_without_rights(others: Path) -> None:
    """Nobody's business: the system's own error, and nothing is left behind."""
    schema = pa.schema([("k", pa.int64())])
    closed = others / "closed"
    closed.mkdir(mode=0o755)
    user = NOBODY if os.geteuid() == 0 else None
    if user is None:
        closed.chmod(0o500)
    made = in_child(lambda: kc.create_table(closed / "t", schema, "k"), user=user)
    assert made.startswith("PermissionError")
    assert list(closed.iterdir()) == []
    closed.chmod(0)
    for mode in ("r", "rw"):
        opened = in_child(lambda m=mode: kc.open_table(closed / "t", m), user=user)  # type: ignore[misc]
        assert opened.startswith("PermissionError")
    closed.chmod(0o700)


def test_rights_that_are_missing_pass_through(table: kc.Table, path: Path) -> None:
    """As any user: the file system says no at the first change."""
    import errno

    from kudu_core.fs.posix import PosixFileSystem
    from tests.support.fs.faulty import FaultyFileSystem, Rule

    table.insert({"k": [1]})
    table.close()
    for op in ("create", "open_write", "lease"):
        fs = FaultyFileSystem(PosixFileSystem(), [Rule({op}, error=errno.EACCES, sticky=True)])
        with pytest.raises(PermissionError):
            kc.open_table(path, "rw", _fs=fs)
    with kc.open_table(path, "rw") as again:
        assert again.count() == 1


@pytest.mark.parametrize("file", ["TABLE", "MANIFEST", "log"])
def test_a_newer_format_version(table: kc.Table, path: Path, file: str) -> None:
    """Told from damage, and left as it is."""
    table.insert({"k": [1]})
    table.flush()
    table.insert({"k": [2]})
    table.close()
    # Where the version is and its struct code, where the checksum is, and what it covers.
    target, version, code, crc, covered = {
        "TABLE": (path / "TABLE", 8, "<H", 16, None),
        "MANIFEST": (next((path / "tablets").rglob("MANIFEST")), 8, "<H", 32, 32),
        "log": (sorted((path / "wal").glob("*.log"))[-1], 8, "<I", 12, 64),
    }[file]
    data = bytearray(target.read_bytes())
    struct.pack_into(code, data, version, 2)
    struct.pack_into("<I", data, crc, 0)
    struct.pack_into("<I", data, crc, crc32c(bytes(data[:covered])))
    target.write_bytes(data)
    before = files(path)
    for mode in ("r", "rw"):
        with pytest.raises(kc.NotSupported, match="version"):
            kc.open_table(path, mode)
    after = files(path)
    del before["LOCK"], after["LOCK"]
    assert after == before
