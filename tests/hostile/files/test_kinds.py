"""A file where a folder belongs, and a folder where a file does: in every place of a table's folder, and
under every name that the library gives to something that comes and goes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kudu_core as kc
from kudu_core.common.format import names
from kudu_core.fs.copies import copy_of
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.stored.table_state import read_state
from tests.support.hostile.links import OPTIONS, SCHEMA, make, replace, world
from tests.support.inside import engine_of

NUMBER = f"{1:032x}"
STRAY = (
    ".TABLE.ab.tmp",
    f".{copy_of('TABLE')}.ab.tmp",
    f"lost/1700000000-00000001-{names.TABLET}",
    f"lost/1700000000-00000001-{names.LOG}-00000001-0000000001.log",
    "lost/1700000000-00000001-000001-00000009.rows",
    f"staging/{names.INGEST}{NUMBER}",
    f"staging/{names.JOB}{NUMBER}",
    f"staging/{names.JOB}{NUMBER}{names.MARK}",
    f"staging/{names.MERGE}{NUMBER}",
    "tablets/00000001/.MANIFEST.ab.tmp",
    f"tablets/00000001/.{copy_of('MANIFEST')}.ab.tmp",
    "tablets/00000001/000001-00000099.delta",
    "tablets/00000001/000001-00000099.rows",
    "tablets/00000002",
    "tablets/00000099",
    "wal/.00000002-0000000001.log.ab.tmp",
    "wal/.COMMITTED.ab.tmp",
)
"""What nothing names, or names no longer."""
KINDS = ("file", "folder", "full folder")


def put(entry: Path, kind: str) -> None:
    """Something of that kind, as old as can be."""
    entry.parent.mkdir(exist_ok=True)
    if kind == "file":
        entry.write_text("x")
    else:
        entry.mkdir()
        if kind == "full folder":
            (entry / "inner").write_text("x")
    os.utime(entry, (0, 0))


def contents(path: Path) -> dict[str, bytes]:
    """Of all files but LOCK, in which whoever tries to open a table leaves word."""
    return {str(f): f.read_bytes() for f in path.rglob("*") if f.is_file() and f.name != "LOCK"}


def refused(call: Callable[[], Any]) -> kc.KuduError | None:
    """The library's own error, if there is one; one of the system passes through."""
    try:
        call()
    except kc.KuduError as error:
        return error
    return None


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kinds") / "sound"
    make(path)
    put(path / "lost" / "1700000000-00000001-000001-00000009.rows", "file")
    return path


def places(sound: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    for number, entry in enumerate(sorted(sound.rglob("*"))):
        copy = tmp_path / f"{number}" / "t"
        shutil.copytree(sound, copy)
        name = str(entry.relative_to(sound))
        assert replace(copy / name, "other", tmp_path)
        yield name, copy


def use(path: Path, name: str) -> None:
    """Read, verified, repaired or opened for writing, a table works, or the library says what is wrong; and
    where it cannot be opened for writing, it is as it was."""
    before = world(path)
    refused(lambda: kc.repair(path))
    refused(lambda: kc.repair(path, dry_run=False))
    refused(lambda: kc.open_table(path).close())
    refused(lambda: kc.open_table(path).verify())
    refused(lambda: kc.create_table(path, SCHEMA, "k", options=OPTIONS))
    assert world(path) == before, name
    was = contents(path)
    error = refused(lambda: kc.open_table(path, "rw").close())
    if error is not None and not name.endswith(".rows"):  # those are opened when they are needed
        assert contents(path) == was, f"{name}: {error!r}"
    if name in ("lost", "tablets", "tablets/00000001", "wal"):
        assert isinstance(error, kc.Corruption) and error.path == str(path / name), f"{name}: {error!r}"


def test_what_stands_in_the_wrong_place_is_named(tmp_path: Path, sound: Path) -> None:
    tried = set()
    for name, path in places(sound, tmp_path):
        use(path, name)
        tried.add(name.split("/")[0])
    assert tried >= {"LOCK", "TABLE", "lost", "staging", "tablets", "wal"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_nothing_names_may_be_a_file_or_a_folder(tmp_path: Path, sound: Path, kind: str) -> None:
    """A table is opened, looks after itself and is closed, whatever lies under such a name."""
    options = {"lost_grace_s": 0.0, "staging_grace_s": 0.0}
    for number, name in enumerate(STRAY):
        path = tmp_path / f"{number}" / "t"
        shutil.copytree(sound, path)
        shutil.rmtree(path / "lost")
        put(path / name, kind)
        with kc.open_table(path, "rw", options=options) as table:
            engine_of(table).swept_s = engine_of(table).lost_swept_s = -1e9
            table.maintain()
            table.gc()
            assert table.count() == 20, name
        with kc.open_table(path, "rw") as table:
            table.verify()


@pytest.mark.parametrize("kind", KINDS)
def test_under_the_number_of_a_purged_tablet(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    options = {**OPTIONS, "history_retention_s": 0}
    cut = kc.RangePartition("k", [(0, 10), (10, 20)])
    with kc.create_table(path, SCHEMA, "k", partition_by=cut, options=options) as table:
        table.upsert({"k": list(range(20)), "v": ["x"] * 20})
        table.flush()
        table.alter(drop_range=(0, 10))
        table.upsert({"k": [15], "v": ["y"]})
        table.gc()
        table.gc()
    assert [entry.name for entry in (path / "tablets").iterdir()] == ["00000002"]
    state = read_state(PosixFileSystem(), str(path / "TABLE"))
    assert state.horizon and state.next_tablet == 3
    put(path / "tablets" / "00000001", kind)
    with kc.open_table(path, "rw") as table:
        assert table.count() == 10
    assert [entry.name for entry in (path / "tablets").iterdir()] == ["00000002"]
    lost = [entry.name.split("-", 1)[1] for entry in (path / "lost").iterdir()] if kind == "file" else []
    assert lost == ["00000001-tablet"] * (kind == "file")
