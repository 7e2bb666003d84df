"""Tables and backups from elsewhere: links and other things in the place of files and folders, and the world
outside, which has to stay as it was, byte for byte."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

import kudu_core as kc
from kudu_core.table.jobs import commit
from tests.support.inside import engine_of, handle_of

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
        job = commit.begin(handle_of(table), "upsert", [("k", "int64"), ("v", "string")])
        stager = commit.stager(job, "p0-a0")
        stager.append(pa.record_batch({"k": pa.array([50], pa.int64()), "v": ["job"]}, SCHEMA))
        runs = stager.finish()
        Path(job.directory, "JOB").write_bytes(commit.sealed(job, runs))
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
        engine = engine_of(table)
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
            lambda t: commit.resume(str(path), job, handle_of(t)),
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


def home(place: Path) -> Path:
    """A folder of somebody's, beside which a hostile one lies; what is in it is as old as can be."""
    outside = place / "house"
    (outside / "thesis").mkdir(parents=True)
    (outside / "thesis" / "chapter").write_text("x")
    (outside / "letter").write_bytes(b"dear reader" * 100)
    (outside / "00000001").mkdir()
    (outside / "00000001" / "000001-00000001.rows").write_text("x")
    (outside / "table").mkdir()
    (outside / "table" / "TABLE").write_text("x")
    (outside / "BUSY").write_text("pid 1\nhost x\n")
    return outside


def aged(outside: Path) -> list[Any]:
    """``world`` of a folder all of whose entries, links in it left alone, were made old before."""
    for entry in (*outside.rglob("*"), outside):
        if not entry.is_symlink():
            os.utime(entry, (0, 0))
    return world(outside)
