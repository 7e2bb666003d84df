"""``drop_table``: what goes, what stays, who is refused, and what a create finds after half of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.common.format.names import DROPPED
from kudu_core.objects.api import Requests
from kudu_core.table.lifecycle.manage import drop_table as module
from tests.support.objects.memory import MemoryObjectStore
from tests.support.objects.tables import URL, created, end_lease, opened, rows_of
from tests.support.tables import Make

ROWS = {"k": [1, 2, 3], "a": [10, 20, 30]}


def used(make: Make) -> None:
    """A table with rows in files, in delta files and in the log, closed."""
    table = make()
    table.insert(ROWS)
    table.flush()
    table.upsert({"k": [1], "a": [11]})
    table.flush()
    table.delete([2])
    table.close()


def test_all_of_it_goes(make: Make, path: Path) -> None:
    used(make)
    (path / "staging" / f"ingest-{0:032x}").mkdir()
    (path / "lost").mkdir()
    (path / "lost" / "1700000000-00000001-000001-00000001.rows").write_bytes(b"x")
    assert kc.drop_table(path) == ()
    assert not path.exists()
    with pytest.raises(kc.TableNotFound):
        kc.open_table(path)
    with pytest.raises(kc.TableNotFound):
        kc.drop_table(path)
    make().insert(ROWS)


def test_what_is_not_the_tables_stays(make: Make, path: Path) -> None:
    used(make)
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("mine")
    (path / "notes.txt").write_text("mine")
    (path / "wal" / "notes.txt").write_text("mine")
    (path / "tablets" / "mine").mkdir()
    (path / "tablets" / "00000001" / "000009-00000001.rows").mkdir()
    (path / "staging" / "link").symlink_to(elsewhere)
    foreign = (
        "notes.txt", "staging/link", "tablets/00000001/000009-00000001.rows", "tablets/mine", "wal/notes.txt"
    )  # fmt: skip
    assert kc.drop_table(path) == foreign
    found = sorted(str(p.relative_to(path)) for p in path.rglob("*"))
    assert found == sorted([*foreign, "staging", "tablets", "tablets/00000001", "wal"])
    assert (elsewhere / "kept").read_text() == "mine"
    with pytest.raises(kc.TableExists, match="not empty"):
        make()


def test_links_in_the_place_of_folders_are_not_followed(make: Make, path: Path) -> None:
    used(make)
    elsewhere = path.parent / "elsewhere"
    os.rename(path / "wal", elsewhere)
    (path / "wal").symlink_to(elsewhere)
    assert kc.drop_table(path) == ("wal",)
    assert list(elsewhere.iterdir()) != []


def test_a_writer_keeps_it(make: Make, path: Path) -> None:
    table = make()
    table.insert(ROWS)
    with pytest.raises(kc.Locked):
        kc.drop_table(path)
    assert table.count() == 3


def test_what_is_no_table_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "wal").mkdir()
    for place in (tmp_path, tmp_path / "nothing", tmp_path / "file"):
        if place.name == "file":
            place.write_text("x")
        with pytest.raises(kc.TableNotFound):
            kc.drop_table(place)
    (tmp_path / "TABLE").write_text("a text of somebody")
    with pytest.raises(kc.Corruption, match="TABLE"):
        kc.drop_table(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["TABLE", "file", "wal"]


def test_a_reader_reads_on(make: Make, path: Path) -> None:
    used(make)
    with kc.open_table(path) as reader:
        rows = iter(reader.scan(batch_rows=1))
        first = next(rows)
        kc.drop_table(path)
        assert sorted(first["k"].to_pylist() + [k for b in rows for k in b["k"].to_pylist()]) == [1, 3]
        with pytest.raises(kc.TableNotFound):
            reader.refresh()


@pytest.mark.parametrize("then", ["drop", "create"])
def test_a_drop_that_was_cut_short(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    used(make)
    (path / "notes.txt").write_text("mine")

    def killed(*_: object) -> list[str]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "remove_own", killed)
        kc.drop_table(path)
    assert (path / DROPPED).exists() and (path / "tablets").exists()
    with pytest.raises(kc.TableNotFound):
        kc.open_table(path)
    if then == "drop":
        assert kc.drop_table(path) == ("notes.txt",)
        assert [p.name for p in path.iterdir()] == ["notes.txt"]
        return
    with pytest.raises(kc.TableExists, match=r"notes\.txt"):
        make()
    assert sorted(p.name for p in path.iterdir()) == ["LOCK", "notes.txt"], "and no rows of before"
    (path / "notes.txt").unlink()
    table = make()
    assert table.count() == 0 and table.verify().foreign == ()


# ---- in an object store ----


def test_in_a_store() -> None:
    store = MemoryObjectStore()
    table = created(store, tablets=2)
    table.insert({"k": list(range(100)), "v": list(range(100))})
    table.flush()
    with pytest.raises(kc.Locked):
        kc.drop_table(URL, _requests=store)
    table.close()
    store.store("notes.txt", b"mine")
    assert kc.drop_table(URL, _requests=store) == ("notes.txt",)
    left = {name for name in store.objects if not name.startswith("log/")}
    assert left == {DROPPED, "LEASE", "notes.txt"}
    assert all(len(store.objects[name].data) == 96 for name in store.objects.keys() - left), "fences"
    with pytest.raises(kc.TableNotFound):
        opened(store)
    with pytest.raises(kc.TableExists, match="was dropped"):
        created(store)
    assert kc.drop_table(URL, _requests=store) == ("notes.txt",), "again, and nothing is left to do"
    with pytest.raises(kc.TableNotFound):
        kc.drop_table(URL, _requests=MemoryObjectStore())


def test_a_writer_in_a_store_that_has_lost_its_lease_is_fenced() -> None:
    """Nothing that it writes after the drop is acknowledged."""
    store = MemoryObjectStore()
    table = created(store)
    table.insert({"k": [1], "v": [1]})
    end_lease(store)
    kc.drop_table(URL, _requests=store)
    with pytest.raises(kc.KuduError) as told:
        table.insert({"k": [2], "v": [2]})
    assert isinstance(told.value, kc.Fenced)


def test_a_drop_in_a_store_that_was_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    from kudu_core.table.lifecycle.in_store import drop_in_store

    class Killed(Exception):
        pass

    def killed(*_: object) -> tuple[str, ...]:
        raise Killed

    store: Requests = MemoryObjectStore()
    with created(store) as table:
        table.insert({"k": [1], "v": [1]})
        assert rows_of(table) == {1: 1}
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(drop_in_store, "_clear", killed)
        kc.drop_table(URL, _requests=store)
    with pytest.raises(kc.TableNotFound):
        opened(store)
    assert kc.drop_table(URL, _requests=store) == ()
