"""A table from elsewhere, whose files and folders are links or none: whatever is done with it, the world
outside stays as it was, byte for byte."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import kudu_core as kc
from kudu_core.table.jobs import commit
from tests.support.hostile.links import KINDS, OPTIONS, SCHEMA, aged, home, make, replace, use, world
from tests.support.inside import sweep_soon


def repair(path: Path, name: str) -> None:
    """A table is made beside it of what can be read, and nothing of it changes."""
    before = world(path)
    try:
        report = kc.repair(path, dry_run=False)
    except kc.KuduError as error:
        assert name == "tablets" or isinstance(error, kc.InvalidArgument), f"{name}: {error!r}"
    else:
        with kc.open_table(f"{path}.repaired") as made:
            made.verify()
            assert made.count() == report.rows_kept
            lost = made.count() < 20
        assert not lost or report.rows_lost or not report.is_sound, f"{name}: {report}"
    assert world(path) == before, f"{name}: a repair has changed the table"


@pytest.mark.parametrize("kind", KINDS)
def test_the_world_outside_stays_as_it_was(tmp_path: Path, kind: str) -> None:
    sound = tmp_path / "sound"
    job = make(sound)
    entries = sorted(str(entry.relative_to(sound)) for entry in sound.rglob("*"))
    assert len(entries) > 12
    for number, name in enumerate(entries):
        place = tmp_path / f"{number}"
        outside = home(place)
        shutil.copytree(sound, place / "t")
        if not replace(place / "t" / name, kind, outside):
            continue
        before = aged(outside)
        repair(place / "t", name)
        assert world(outside) == before, f"{name} as a {kind}, repaired"
        use(place / "t", job, place / "backups")
        assert world(outside) == before, f"{name} as a {kind}"
        assert set(os.listdir(place)) <= {"house", "t", "t.repaired", "backups"}, name


@pytest.mark.parametrize("job_id", ["../../home", "/", "..", f"job-{1:032x}", 5, None])
def test_the_id_of_a_job_is_its_folders_name(tmp_path: Path, job_id: object) -> None:
    job = make(tmp_path / "t")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("x")
    file = tmp_path / "t" / "staging" / job / "JOB"
    file.write_text(json.dumps({**json.loads(file.read_text()), "id": job_id}))
    before = world(tmp_path / "home")
    with pytest.raises(kc.Corruption, match="JOB"):
        commit.resume(str(tmp_path / "t"), job)
    assert world(tmp_path / "home") == before


def test_a_process_may_change_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with kc.create_table("t", SCHEMA, "k", options=OPTIONS) as table:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        table.upsert({"k": [1], "v": ["x"]})
        table.flush()
        table.compact(full=True)
        assert table.count() == 1
    assert os.listdir(tmp_path / "elsewhere") == []


def test_one_folder_by_two_paths_is_one_table(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with kc.create_table(tmp_path / "real", SCHEMA, "k") as table:
        table.upsert({"k": [1], "v": ["x"]})
        with pytest.raises(kc.Locked):
            kc.open_table(tmp_path / "link", "rw")
        with kc.open_table(tmp_path / "link") as reader:
            assert reader.count() == 1
    with kc.open_table(tmp_path / "link", "rw") as table:
        table.upsert({"k": [2], "v": ["x"]})
        table.flush()
        assert table.count() == 2


@pytest.mark.parametrize("where", ["", "staging/", "tablets/", "tablets/00000001/", "wal/"])
def test_a_table_inside_another_is_left_alone(tmp_path: Path, where: str) -> None:
    make(tmp_path / "t")
    inner = tmp_path / "t" / f"{where}inner"
    make(inner)
    for entry in (inner, *inner.rglob("*")):
        os.utime(entry, (0, 0))
    before = world(inner)
    for _ in range(2):
        with kc.open_table(tmp_path / "t", "rw") as table:
            sweep_soon(table)
            table.compact(full=True)
            table.gc()
    assert world(inner) == before
    with kc.open_table(inner, "rw") as table:
        assert table.count() == 20
