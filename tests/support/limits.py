"""What the tests of limits share: a store in memory, calls that are refused, and tables that come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.errors import Corruption, InvalidArgument
from tests.support.fs.memory import MemoryFileSystem
from tests.support.inside import engine_of, schema_of

PATH = "/t"
MANUAL: dict[str, Any] = {"maintenance": "manual", "file_grace_s": 0}
Column = kc.Column


def contents(fs: MemoryFileSystem, folder: str = "/") -> dict[str, bytes | None]:
    """Every file below a folder with its bytes, and every folder."""
    found: dict[str, bytes | None] = {}
    for name in fs.listdir(folder):
        path = f"{folder.rstrip('/')}/{name}"
        if fs.is_dir(path):
            found |= {path: None} | contents(fs, path)
        else:
            found[path] = fs.read_bytes(path, 1 << 40)
    return found


def make(fs: MemoryFileSystem, columns: Any = None, key: Any = "k", **more: Any) -> kc.Table:
    columns = [Column("k", "int64"), Column("s", "string")] if columns is None else columns
    more.setdefault("options", MANUAL)
    return kc.create_table(PATH, columns, key, _fs=fs, **more)


def refused(fs: MemoryFileSystem, call: Callable[[], object], match: str, *errors: type[Exception]) -> None:
    """The call says why it does nothing, and does nothing."""
    before = contents(fs)
    with pytest.raises(errors or (InvalidArgument,), match=match):
        call()
    assert contents(fs) == before


def comes_back(fs: MemoryFileSystem, table: kc.Table) -> None:
    """What the table is, it is for whoever opens it."""
    engine = engine_of(table)
    known = engine.schema, engine.partitions, table.scan().to_pylist()
    table.close()
    for mode in ("r", "rw"):
        with kc.open_table(PATH, mode, _fs=fs) as again:
            assert (schema_of(again), engine_of(again).partitions, again.scan().to_pylist()) == known


def unreadable(fs: MemoryFileSystem, match: str) -> None:
    """A file that breaks a limit is damaged, whoever wrote it; nothing is done about it."""
    for mode in ("r", "rw"):
        refused(fs, lambda mode=mode: kc.open_table(PATH, mode, _fs=fs), match, Corruption)
