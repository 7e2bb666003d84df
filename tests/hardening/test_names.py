"""Names are data: of a table, a column, a token or a key none ever becomes part of a path."""

from __future__ import annotations

import os
import stat
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.errors import Corruption
from kudu_core.rowset.meta import FileRef
from tests.engine.conftest import Make

NAMES = [
    "a/b",
    "../../../etc/passwd",
    "..",
    ".",
    "/",
    "TABLE",
    "MANIFEST",
    "*.rows",
    "a b\tc\nd",
    "'; drop table t; --",
    "%s{0}$HOME`id`",
    "\\",
    "é" * 100,
    unicodedata.normalize("NFC", "café"),
    unicodedata.normalize("NFD", "café"),
    "\u202eabc",
    "🦀",
    "n" * 256,
]


def below(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*"))


def test_any_column_name_is_data(make: Make, tmp_path: Path, path: Path) -> None:
    schema = pa.schema([(name, pa.int64()) for name in NAMES])
    table = make(schema, (NAMES[0],), partition_by=kc.HashPartition(NAMES[0], 2), ingest_threshold_rows=50)
    wanted = {name: i for i, name in enumerate(NAMES)}
    table.insert([wanted])
    table.insert({name: list(range(100, 200)) for name in NAMES})
    table.flush()
    table.update({NAMES[0]: [0], NAMES[1]: [-1]})
    table.flush()
    table.close()
    with kc.open_table(path) as reader:
        assert reader.schema.names == NAMES, "no name was normalised, cut or merged with another"
        assert reader.get(0) == {**wanted, NAMES[1]: -1}
        assert reader.count(where=[(NAMES[2], "=", 2)]) == 1
    assert os.listdir(tmp_path) == ["t"]
    allowed = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-./")
    assert all(set(name) <= allowed for name in below(path)), below(path)


@pytest.mark.parametrize("name", ["", "a\0b", "n" * 257, "\ud800", "_op", "_timestamp_x", "_before"])
def test_column_names_that_are_refused(path: Path, name: str) -> None:
    with pytest.raises(kc.InvalidArgument, match="name"):
        kc.create_table(path, [kc.Column("k", pa.int64()), kc.Column(name, pa.int64())], "k")
    assert not path.exists()


@pytest.mark.parametrize("name", ["a b", "ü", "new\nline", "%s", "-rf", "...", "n" * 255])
def test_any_folder_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with kc.create_table(path, pa.schema([("k", pa.int64())]), "k") as table:
        table.insert({"k": [1]})
        table.flush()
    with kc.open_table(path) as reader:
        assert reader.count() == 1
    assert os.listdir(tmp_path) == [name]


def test_a_folder_name_that_the_system_refuses(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        kc.create_table(tmp_path / ("n" * 256), pa.schema([("k", pa.int64())]), "k")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("app", ["../../x", "a/b", "é", "a\nb", "x" * 1_000])
def test_tokens_are_data(make: Make, path: Path, app: str) -> None:
    table = make()
    before = below(path)
    table.insert({"k": [1]}, txn=(app, 1))
    table.close()
    assert below(path) == before
    with kc.open_table(path, "rw") as again:
        assert again.upsert({"k": [1]}, txn=(app, 1)).inserted == 1, "the stored answer"


def test_keys_are_data(make: Make, path: Path) -> None:
    table = make(pa.schema([("k", pa.string()), ("v", pa.int64())]))
    keys = [*NAMES, "", "a\0b", "x" * 10_000]
    table.insert({"k": keys, "v": list(range(len(keys)))})
    table.flush()
    assert [table.get(key)["v"] for key in keys] == list(range(len(keys)))  # type: ignore[index]
    assert len(below(path)) < 15


@pytest.mark.parametrize("name", ["../TABLE", "a/b", "", ".", "..", ".x", "a\0b", "\ud800", None, 5])
def test_file_names_in_a_manifest_are_checked(name: object) -> None:
    with pytest.raises(ValueError, match=r"file name|text|surrogates"):
        FileRef.from_json([name, 1, 1])


def test_links_are_not_followed(make: Make, tmp_path: Path, path: Path) -> None:
    """A file of a table that became a link to another file is refused, and that file is left alone."""
    table = make()
    table.insert({"k": [1]})
    table.flush()
    table.insert({"k": [2]})
    table.close()
    for file in [p for p in path.rglob("*") if p.is_file()]:
        outside = tmp_path / "outside"
        content = file.read_bytes()
        outside.write_bytes(content)
        file.unlink()
        file.symlink_to(outside)
        with pytest.raises((OSError, Corruption)), kc.open_table(path, "rw") as opened:
            opened.scan().to_table()
        assert outside.read_bytes() == content
        file.unlink()
        file.write_bytes(content)


def test_only_the_owner_has_rights(make: Make, path: Path) -> None:
    old = os.umask(0)
    try:
        table = make(ingest_threshold_rows=5)
        table.insert({"k": list(range(10))})
        table.insert({"k": [100]})
        table.flush()
        table.close()
    finally:
        os.umask(old)
    for entry in (path, *path.rglob("*")):
        mode = stat.S_IMODE(entry.lstat().st_mode)
        assert mode == (0o700 if entry.is_dir() else 0o600), f"{entry}: {mode:o}"
