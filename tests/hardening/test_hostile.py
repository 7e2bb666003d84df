"""A table from elsewhere, whose files and folders are links or none: whatever is done with it, the world
outside stays as it was, byte for byte."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table import jobs

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
OPTIONS = {"maintenance": "manual", "file_grace_s": 0, "staging_grace_s": 0.0}
KINDS = ("link", "twin", "hard link", "pipe", "other")
"""What stands in the place of a file or a folder; "twin": a link to what it was, which now lies outside;
"other": a folder for a file, a file for a folder."""


def world(root: Path) -> list[Any]:
    """Names, kinds, bytes and times of what is outside."""
    found: list[Any] = []
    for entry in (root, *sorted(root.rglob("*"))):
        stat = entry.lstat()
        found.append((str(entry), stat.st_mode, stat.st_mtime_ns, stat.st_ino))
        if entry.is_file() and not entry.is_symlink():
            found.append(entry.read_bytes())
    return found


def make(path: Path) -> str:
    """A table with data files, rows in the log, and a job that waits; the job's id."""
    with kc.create_table(path, SCHEMA, "k", options=OPTIONS) as table:
        for first in (0, 10):
            table.upsert({"k": list(range(first, first + 10)), "v": ["x"] * 10})
            table.flush()
        table.update({"k": [3], "v": ["y"]})
        job = jobs.begin(table, "upsert", [("k", "int64"), ("v", "string")])
        stager = jobs.stager(job, "p0-a0")
        stager.append(pa.record_batch({"k": pa.array([50], pa.int64()), "v": ["job"]}, SCHEMA))
        runs = stager.finish()
        Path(job.directory, "JOB").write_bytes(jobs.sealed(job, runs))
    return job.id


def use(path: Path, job: str, backups: Path) -> int:
    """Every public call; how many were refused, each by an error of ours or of the system's."""
    refused = 0
    for mode in ("r", "rw"):
        try:
            table = kc.open_table(path, mode)
        except (kc.KuduError, OSError):
            refused += 1
            continue
        engine = table._engine
        engine.swept_s = -1e9
        calls = [
            lambda t: t.scan().to_table(),
            lambda t: t.get(3),
            lambda t: t.verify(),
            lambda t: t.backup(backups),
            lambda t: t.upsert({"k": [1], "v": ["z"]}),
            lambda t: t.upsert({"k": [60], "v": ["z"]}),
            lambda t: t.flush(),
            lambda t: t.compact(full=True),
            lambda t: t.maintain(),
            lambda t: t.gc(),
            lambda t: jobs.resume(str(path), job, t),
            lambda t: t.close(),
        ]
        for call in calls:
            try:
                call(table)
            except (kc.KuduError, OSError):
                refused += 1
        try:
            table.close()
        except (kc.KuduError, OSError):
            refused += 1
    return refused


def replace(entry: Path, kind: str, outside: Path) -> bool:
    """Put something else in the place of a file or folder; False where there is no such thing."""
    folder = entry.is_dir()
    if kind == "hard link" and folder:
        return False
    if kind == "twin":
        shutil.move(entry, outside / "twin")
        entry.symlink_to(outside / "twin")
        return True
    shutil.rmtree(entry) if folder else entry.unlink()
    if kind == "link":
        entry.symlink_to(outside if folder else outside / "letter")
    elif kind == "hard link":
        os.link(outside / "letter", entry)
    elif kind == "pipe":
        os.mkfifo(entry)
    elif folder:
        entry.write_text("x")
    else:
        entry.mkdir()
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_the_world_outside_stays_as_it_was(tmp_path: Path, kind: str) -> None:
    sound = tmp_path / "sound"
    job = make(sound)
    entries = sorted(str(entry.relative_to(sound)) for entry in sound.rglob("*"))
    assert len(entries) > 12
    for number, name in enumerate(entries):
        place = tmp_path / f"{number}"
        outside = place / "home"
        (outside / "thesis").mkdir(parents=True)
        (outside / "thesis" / "chapter").write_text("x")
        (outside / "letter").write_bytes(b"dear reader" * 100)
        (outside / "00000001").mkdir()
        (outside / "00000001" / "000001-00000001.rows").write_text("x")
        shutil.copytree(sound, place / "t")
        if not replace(place / "t" / name, kind, outside):
            continue
        for old in ("thesis/chapter", "thesis", "00000001", "letter", "."):
            os.utime(outside / old, (0, 0))
        before = world(outside)
        use(place / "t", job, place / "backups")
        assert world(outside) == before, f"{name} as a {kind}"
        assert set(os.listdir(place)) <= {"home", "t", "backups"}, name


@pytest.mark.parametrize("job_id", ["../../home", "/", "..", f"job-{1:032x}", 5, None])
def test_the_id_of_a_job_is_its_folders_name(tmp_path: Path, job_id: object) -> None:
    job = make(tmp_path / "t")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("x")
    file = tmp_path / "t" / "staging" / job / "JOB"
    file.write_text(json.dumps({**json.loads(file.read_text()), "id": job_id}))
    before = world(tmp_path / "home")
    with pytest.raises(kc.Corruption, match="JOB"):
        jobs.resume(str(tmp_path / "t"), job)
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
            table._engine.swept_s = -1e9
            table.compact(full=True)
            table.gc()
    assert world(inner) == before
    with kc.open_table(inner, "rw") as table:
        assert table.count() == 20
