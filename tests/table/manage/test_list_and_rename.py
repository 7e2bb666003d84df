"""``list_tables`` and ``rename_table``."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from tests.support.fs.faulty import FaultyFileSystem, Rule
from tests.support.fs.memory import MemoryFileSystem
from tests.support.fs.slow import SCHEMA, rows
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import created
from tests.support.tables import Make

PLACE = "s3://bucket/tables"


class Below:
    """The objects of a store that lie below a folder of it, as a store of their own."""

    def __init__(self, inner: MemoryObjectStore, folder: str) -> None:
        self._inner, self._folder = inner, folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, path: str, limit: int | None) -> Any:
        return self._inner.get(f"{self._folder}/{path}", limit)

    def get_ranges(self, path: str, ranges: Any) -> Any:
        return self._inner.get_ranges(f"{self._folder}/{path}", ranges)

    def put(self, path: str, data: bytes, condition: Any) -> Any:
        return self._inner.put(f"{self._folder}/{path}", data, condition)

    def delete(self, paths: Any) -> None:
        self._inner.delete([f"{self._folder}/{path}" for path in paths])

    def list(self, prefix: str) -> Any:
        cut = len(self._folder) + 1
        whole = f"{self._folder}/{prefix}".rstrip("/")
        return [entry._replace(name=entry.name[cut:]) for entry in self._inner.list(whole)]


def test_tables_of_a_folder(make: Make, tmp_path: Path) -> None:
    assert kc.list_tables(tmp_path) == []
    with make(at=tmp_path / "b") as b, make(at=tmp_path / "a") as a:
        a.alter(add=[kc.Column("more", "int64")])
        (tmp_path / "text").write_text("x")
        (tmp_path / "folder").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "b")
        found = kc.list_tables(tmp_path)
        assert [(t.name, t.path, t.schema_version, t.problem) for t in found] == [
            ("a", a.path, 2, None), ("b", b.path, 1, None), ("link", str(tmp_path / "link"), 1, None),
        ]  # fmt: skip
        assert found[1].uuid == found[2].uuid != found[0].uuid
        assert len(found[0].uuid or "") == 32
    (tmp_path / "a" / "TABLE").write_bytes(b"KUDUTBL\x01 and then nothing that fits")
    damaged = kc.list_tables(str(tmp_path))[0]
    assert damaged.name == "a" and damaged.uuid is None and "checksum" in (damaged.problem or "")
    with pytest.raises(FileNotFoundError):
        kc.list_tables(tmp_path / "nowhere")


def test_tables_of_a_store() -> None:
    store = MemoryObjectStore()
    assert kc.list_tables(PLACE, _requests=store) == []
    for name in ("b", "a", "c"):
        with created(Below(store, name)) as table:
            table.insert({"k": [1], "v": [1]})
    store.store("d/deeper/TABLE", store.objects["a/TABLE"].data)
    store.store("c/TABLE", b"something else")
    found = kc.list_tables(PLACE, _requests=store)
    assert [(t.name, t.path, t.schema_version) for t in found] == [
        ("a", f"{PLACE}/a", 1), ("b", f"{PLACE}/b", 1), ("c", f"{PLACE}/c", None)
    ]  # fmt: skip
    assert "not a TABLE" in (found[2].problem or "")
    kc.drop_table(f"{PLACE}/a", _requests=Below(store, "a"))
    assert [t.name for t in kc.list_tables(PLACE, _requests=store)] == ["b", "c"]


def test_a_table_gets_another_path(make: Make, path: Path, tmp_path: Path) -> None:
    table = make()
    table.insert({"k": [1, 2]})
    with pytest.raises(kc.Locked):
        kc.rename_table(path, tmp_path / "new")
    table.close()
    (path / "notes.txt").write_text("mine")
    (tmp_path / "deep").mkdir()
    kc.rename_table(path, str(tmp_path / "deep" / "new"))
    assert not path.exists()
    with kc.open_table(tmp_path / "deep" / "new", "rw") as renamed:
        renamed.insert({"k": [3]})
        assert renamed.count() == 3 and renamed.verify().foreign == ("notes.txt",)


def test_what_is_refused(make: Make, path: Path, tmp_path: Path) -> None:
    make().close()
    make(at=tmp_path / "other").close()
    with pytest.raises(kc.TableNotFound):
        kc.rename_table(tmp_path / "nothing", tmp_path / "new")
    for taken in (tmp_path / "other", tmp_path):
        with pytest.raises(kc.TableExists):
            kc.rename_table(path, taken)
    for inside in (path, path / "in"):
        with pytest.raises(kc.InvalidArgument):
            kc.rename_table(path, inside)
    with pytest.raises(FileNotFoundError, match="does not exist; make it first"):
        kc.rename_table(path, tmp_path / "nowhere" / "t")
    for pair in ((path, "s3://bucket/t"), ("s3://bucket/t", path), ("s3://bucket/t", "s3://bucket/u")):
        with pytest.raises(kc.NotSupported, match="drop_table"):
            kc.rename_table(*pair)
    assert [table.name for table in kc.list_tables(tmp_path)] == ["other", "t"]


def test_a_name_that_may_not_reach_the_disk_is_taken_back() -> None:
    memory = MemoryFileSystem()
    for folder in ("/d", "/e"):
        memory.mkdir(folder)
    memory.sync_all()
    kc.create_table("/d/t", SCHEMA, "k", _fs=memory).close()
    fs = FaultyFileSystem(memory, [Rule(ops={"sync_dir"}, path_glob="/e", error=errno.EIO)])
    with pytest.raises(OSError, match="Input/output"):
        kc.rename_table("/d/t", "/e/t", _fs=fs)
    assert not memory.exists("/e/t")
    with kc.open_table("/d/t", "rw", _fs=memory) as table:
        table.insert(rows(0, 2))
