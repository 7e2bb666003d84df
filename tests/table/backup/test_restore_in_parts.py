"""A restore whose rows are staged and resolved by many: the table that a restore on one process makes."""

from __future__ import annotations

import errno
import os
import pickle
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.run.clock import Clock
from kudu_core.fs.posix import PosixFileSystem
from kudu_core.table.backup import backup as module
from kudu_core.table.backup import restore as restoring
from kudu_core.table.backup.backup_place import place_at
from kudu_core.table.backup.restore import restore
from kudu_core.table.jobs import commit, restore_job
from kudu_core.table.jobs.job import Job
from kudu_core.table.jobs.resolve import resolve
from kudu_core.table.jobs.restore_job import RunShare, Staged, filling, stage_shares
from kudu_core.table.lifecycle.locations import location_of
from kudu_core.table.runs.resolution import Resolution
from kudu_core.table.runs.staged import StagedRun
from tests.support.inside import applied_writes_of, handle_of, schema_of
from tests.support.models.history import SCHEMA, History, random_batch
from tests.support.staged import waiting
from tests.support.tables import Make


def stage(job: Job, shares: Sequence[RunShare]) -> list[Staged]:
    """Each share by a task of its own; the answers in another order; and an attempt that failed."""
    found: list[Staged] = []
    for number, share in enumerate(shares):
        sent: RunShare = pickle.loads(pickle.dumps(share))
        stage_shares(job, [sent], f"failed-{number}")
        found = [*stage_shares(job, [sent], f"{number}"), *found]
    return found


def resolve_each(job: Job, runs: Sequence[StagedRun]) -> list[Resolution]:
    with kc.open_table(job.table_path) as table:
        return resolve(handle_of(table), job, commit.form_of(job), runs)


def restore_in_parts(
    folder: Any, path: Any, at: Any = None, stage: restore_job.Stage = stage, **more: Any
) -> kc.Table:
    fill = filling(stage, more.pop("resolve", resolve_each))
    clock = Clock()
    place, target = place_at(folder, None, clock), location_of(path, clock=clock)
    restore(place, PosixFileSystem(), target, at, clock, fill)
    return kc.open_table(path, "rw")


def same(found: kc.Table, wanted: kc.Table) -> None:
    assert found.schema.equals(wanted.schema, check_metadata=True)
    assert schema_of(found) == schema_of(wanted)
    assert found.partitions == wanted.partitions and found.options == wanted.options
    assert found.scan(order="key").to_pylist() == wanted.scan(order="key").to_pylist()
    changes = found.changes().to_pylist()
    assert {(row["_op"]) for row in changes} <= {"insert"} and len(changes) == wanted.count()
    assert len({row["_timestamp"] for row in changes}) <= 1
    assert not applied_writes_of(found) and waiting(found.path) == []
    found.verify()


@pytest.mark.parametrize("ingest_rows", [10**6, 1])
def test_the_table_is_that_of_a_restore(
    tmp_path: Path, seed: int, ingest_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every backup of a chain, through the log and straight to files."""
    monkeypatch.setattr(module, "RUN_BYTES", 500)
    rng, history, folder = random.Random(seed), History(), tmp_path / "backups"
    options = {"maintenance": "manual", "ingest_threshold_rows": ingest_rows}
    by = kc.HashPartition("k", 3, seed=7)
    with kc.create_table(tmp_path / "t", SCHEMA, "k", partition_by=by, options=options) as table:
        made = [table.backup(folder)]  # of no rows
        for step in range(12):
            history.write(table, random_batch(rng, history.model, range(80), 30, whole=step % 2 == 0))
            made.append(table.backup(folder, None if step == 6 else made[-1]))
    for number in (0, 5, 6, 12):
        at = rng.choice((made[number], made[number].timestamp))
        with (
            restore_in_parts(folder, tmp_path / f"p{number}", at) as found,
            kc.restore(folder, tmp_path / f"r{number}", at) as wanted,
        ):
            same(found, wanted)


def test_ranges_that_were_dropped_and_columns_that_came(make: Make, tmp_path: Path) -> None:
    ranges = kc.RangePartition("k", bounds=[(0, 10), (10, 20), (20, 30)])
    columns = [kc.Column("k", pa.int64()), kc.Column("a", pa.int64())]
    table = make(
        columns, partition_by=[kc.HashPartition("k", 2), ranges], durability="sync", ingest_threshold_rows=1
    )
    table.insert({"k": range(30), "a": range(30)})
    folder = tmp_path / "backups"
    made = [table.backup(folder)]
    table.alter(drop_range=(10, 20), add=[kc.Column("n", pa.int32(), nullable=False, default=7)])
    table.update({"k": [1], "n": [8]})
    made.append(table.backup(folder, "last"))
    table.alter(add_range=(10, 15))
    table.insert({"k": [12], "a": [1]})
    made.append(table.backup(folder, "last"))
    for number, at in enumerate([None, *made]):
        with (
            restore_in_parts(folder, tmp_path / f"p{number}", at) as found,
            kc.restore(folder, tmp_path / f"r{number}", at) as wanted,
        ):
            same(found, wanted)


def test_files_of_new_rows_are_taken_as_they_are(make: Make, tmp_path: Path) -> None:
    table = make(durability="sync", ingest_threshold_rows=1)
    table.insert({"k": range(100), "a": range(100)})
    table.backup(tmp_path / "backups")
    staged: list[int] = []

    def seen(job: Job, runs: Sequence[StagedRun]) -> list[Resolution]:
        staged.extend(os.stat(f"{job.directory}/{run.file.name}").st_ino for run in runs)
        return resolve_each(job, runs)

    with restore_in_parts(tmp_path / "backups", tmp_path / "r", resolve=seen) as found:
        files = [p.stat().st_ino for p in Path(found.path).rglob("*.rows")]
    assert files == staged and len(files) == 1


def test_backups_that_do_not_fit_together(make: Make, tmp_path: Path) -> None:
    """Without its middle part a chain deletes and changes rows that are not there."""
    table = make(durability="sync", ingest_threshold_rows=1)
    folder = tmp_path / "backups"
    table.insert({"k": [1], "a": [1]})
    table.backup(folder)
    table.insert({"k": [2], "a": [2]})
    table.backup(folder, "last")
    table.update({"k": [2], "a": [3]})
    table.backup(folder, "last")

    def lossy(job: Job, shares: Sequence[RunShare]) -> list[Staged]:
        return [found for found in stage(job, shares) if found[0] != 1]

    with pytest.raises(kc.Corruption, match="do not fit together"):
        restore_in_parts(folder, tmp_path / "r", stage=lossy)
    with pytest.raises(kc.Corruption, match="its files give 1"):
        restore_in_parts(folder, tmp_path / "r", stage=lambda job, shares: stage(job, shares[:1]))
    assert not [name for name in os.listdir(tmp_path) if name.startswith((".", "r"))]


@pytest.mark.parametrize("step", ["begun", "staged", "resolved", "committed"])
def test_a_driver_that_is_killed_leaves_no_table(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """And the next restore to the path takes away what it has left, whatever its tasks still do there."""
    table = make(durability="sync", ingest_threshold_rows=1)
    table.insert({"k": range(50), "a": range(50)})
    folder, path = tmp_path / "backups", tmp_path / "r"
    table.backup(folder)

    def dies(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    where, name = {
        "begun": (restore_job, "shares_of"),
        "staged": (restore_job, "_is_small"),
        "resolved": (commit, "commit_job"),
        "committed": (restoring, "check_total"),
    }[step]

    def work() -> None:
        monkeypatch.setattr(where, name, dies)
        restore_in_parts(folder, path)

    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not path.exists()
    [left] = [name for name in os.listdir(tmp_path) if name.startswith(".r.")]
    with restore_in_parts(folder, path) as found:
        assert found.count() == 50
    assert left not in os.listdir(tmp_path)


def test_a_task_that_still_writes_where_a_killed_driver_was(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(durability="sync")
    table.insert({"k": [1]})
    table.backup(tmp_path / "backups")
    place = tmp_path / ".r.0123456789abcdef0123456789abcdef.tmp"
    place.mkdir()
    (place / "BUSY").touch()
    usual = PosixFileSystem.rmtree

    def busy(fs: PosixFileSystem, path: str) -> None:
        if path == str(place):
            raise OSError(errno.ENOTEMPTY, "a task has just made a file", path)
        usual(fs, path)

    with monkeypatch.context() as patch:
        patch.setattr(PosixFileSystem, "rmtree", busy)
        kc.restore(tmp_path / "backups", tmp_path / "r").close()
    assert place.exists()
    kc.restore(tmp_path / "backups", tmp_path / "r2").close()
    (tmp_path / "r").rename(tmp_path / "r1")
    kc.restore(tmp_path / "backups", tmp_path / "r").close()
    assert not place.exists()
