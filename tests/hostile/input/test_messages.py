"""What usually goes wrong, and whether the error says what it is and what to do."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core._ext.base.crc32c import crc32c
from tests.support.processes import NOBODY, in_child
from tests.support.tables import Make

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def told(call: Callable[[], Any], kind: type[BaseException], *words: str) -> None:
    with pytest.raises(kind) as error:
        call()
    for word in words:
        assert word in str(error.value), f"{error.value!s} lacks {word!r}"
    assert error.type.__module__.startswith(("kudu_core", "builtins"))


def test_a_wrong_path(tmp_path: Path) -> None:
    path = tmp_path / "nothing"
    told(lambda: kc.open_table(path), kc.TableNotFound, str(path), "create_table")
    told(lambda: kc.open_table(path, "rw"), kc.TableNotFound, str(path), "create_table")
    told(lambda: kc.create_table(path / "deeper", SCHEMA, "k"), FileNotFoundError, str(path))


def test_a_path_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    path.write_text("PAR1")
    told(lambda: kc.open_table(path), kc.TableNotFound, str(path), "is a file", "directory")
    told(lambda: kc.create_table(path, SCHEMA, "k"), kc.TableExists, str(path), "is a file")


def test_a_folder_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    told(lambda: kc.open_table(tmp_path), kc.TableNotFound, str(tmp_path), "no table")
    told(lambda: kc.create_table(tmp_path, SCHEMA, "k"), kc.TableExists, "notes.txt", "not empty")
    other = tmp_path / "other"
    other.mkdir()
    (other / "TABLE").write_text("this is not ours")
    told(lambda: kc.open_table(other), kc.Corruption, str(other / "TABLE"), "byte 0", "not a TABLE file")


def test_no_rights(make: Make, others: Path) -> None:
    path = others / "t"
    make(at=path).close()
    user = NOBODY if os.geteuid() == 0 else None
    (path / "TABLE").chmod(0)
    said = in_child(lambda: kc.open_table(path), user=user)
    assert said.startswith("PermissionError") and str(path) in said
    (path / "TABLE").chmod(0o600)


def test_a_newer_format(make: Make, path: Path) -> None:
    make().close()
    data = bytearray((path / "TABLE").read_bytes())
    struct.pack_into("<H", data, 8, 99)
    struct.pack_into("<I", data, 16, 0)
    struct.pack_into("<I", data, 16, crc32c(bytes(data)))
    (path / "TABLE").write_bytes(data)
    for mode in ("r", "rw"):
        told(
            lambda m=mode: kc.open_table(path, m),  # type: ignore[misc]
            kc.NotSupported,
            str(path / "TABLE"),
            "version 99",
            "reads up to 1",
        )


def test_wrong_types(make: Make) -> None:
    table = make(SCHEMA)
    told(lambda: table.insert({"k": ["x"], "v": ["y"]}), kc.SchemaMismatch, "'k'", "int64", "string")
    told(lambda: table.insert({"k": [1], "v": [1]}), kc.SchemaMismatch, "'v'", "string", "int64")
    told(lambda: table.insert({"k": [1.5]}), kc.SchemaMismatch, "'k'", "int64")
    told(lambda: table.insert({"k": [1], "w": [1]}), kc.SchemaMismatch, "'w'", "k", "v")
    told(lambda: table.insert(5), kc.InvalidArgument, "int")
    told(lambda: table.get("x"), kc.InvalidArgument, "'k'")
    told(lambda: table.scan(["nope"]), kc.InvalidArgument, "'nope'", "k, v")
    told(lambda: table.scan(where=[("nope", "=", 1)]), kc.InvalidArgument, "nope")
    told(lambda: table.scan(order="up"), kc.InvalidArgument, "order", '"key"', "'up'")


def test_wrong_handles(make: Make, path: Path) -> None:
    table = make(SCHEMA, durability="sync")
    told(lambda: kc.open_table(path, "rw"), kc.Locked, str(path), str(os.getpid()), "timeout_s")
    told(lambda: kc.open_table(path, "w"), kc.InvalidArgument, '"rw"')
    with kc.open_table(path) as reader:
        told(lambda: reader.insert({"k": [1]}), kc.ReadOnly, str(path), 'mode="rw"')
        told(lambda: reader.scan(at=1 << 63), kc.SnapshotInFuture, str(1 << 63))
    told(lambda: kc.create_table(path, SCHEMA, "k"), kc.TableExists, str(path), "open_table", "exist_ok")
    table.close()
    told(lambda: table.get(1), kc.Closed, str(path), "closed")


def test_a_full_disk_and_a_broken_one(make: Make, path: Path) -> None:
    import errno

    from kudu_core.fs.posix import PosixFileSystem
    from tests.support.fs.faulty import FaultyFileSystem, Rule

    make(SCHEMA, durability="sync").close()
    fs = FaultyFileSystem(PosixFileSystem())
    with kc.open_table(path, "rw", _fs=fs) as table:
        fs.rules = [Rule({"pwrite"}, error=errno.ENOSPC, sticky=True)]
        told(lambda: table.insert({"k": [1]}), OSError, "No space left", str(path))
        fs.rules = []
        table.insert({"k": [1]})
        fs.rules = [Rule({"sync"}, error=errno.EIO)]
        told(lambda: table.insert({"k": [2]}), kc.Poisoned, "Input/output error", "reopen")
        told(lambda: table.insert({"k": [3]}), kc.Poisoned, "Input/output error", "reopen")
        assert table.count() == 1
    with kc.open_table(path, "rw") as again:
        again.insert({"k": [3]})
        assert again.count() in (2, 3)
