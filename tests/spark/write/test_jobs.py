"""Distributed writes without Spark: what the commit checks and adopts, and what may go wrong around it."""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.common.idempotence.writers import check_txn
from kudu_core.errors import TokenMismatch
from kudu_core.rowset.rows.meta import FileRef
from kudu_core.table.jobs import commit
from kudu_core.table.jobs import stager as staging
from kudu_core.table.jobs.commit import Job
from kudu_core.table.jobs.resolve import Resolution, resolve
from kudu_core.table.runs.staged import StagedRun
from tests.support.inside import set_options, tablets_of
from tests.support.staged import waiting

COLUMNS = [("k", "int64"), ("v", "string")]
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
FILES = {"ingest_threshold_rows": 1, "maintenance": "manual"}
"""Every job goes through files, however small."""


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    kc.create_table(path, SCHEMA, "k").close()
    return path


def make(path: str, **options: Any) -> None:
    kc.create_table(path, SCHEMA, "k", options=FILES | options, partition_by=kc.HashPartition("k", 2)).close()


def begin(path: str, operation: str = "insert", **options: object) -> Job:
    with kc.open_table(path) as table:
        return commit.begin(table, operation, COLUMNS, **options)  # type: ignore[arg-type]


def stage(job: Job, name: str, keys: Sequence[int], parts: int = 1, v: str = "") -> list[StagedRun]:
    stager = commit.stager(job, name)
    for part in range(parts):
        mine = keys[part::parts]
        values = [v or f"{k}" for k in mine]
        stager.append(pa.record_batch({"k": pa.array(mine, pa.int64()), "v": values}, SCHEMA))
    runs = stager.finish()
    assert [StagedRun.from_json(run.to_json()) for run in runs] == pickle.loads(pickle.dumps(runs)) == runs
    return runs


def resolved(job: Job, runs: Sequence[StagedRun]) -> list[Resolution]:
    with kc.open_table(job.table_path) as table:
        found = resolve(table, job, commit.form_of(job), runs)
    assert [Resolution.from_bytes(one.to_bytes()) for one in found] == found
    return found


def rows_of(path: str) -> dict[int, str]:
    with kc.open_table(path) as table:
        table.verify()
        return {row["k"]: row["v"] for row in table.scan(order="key").to_pylist()}


def keys_of(path: str) -> list[int]:
    return list(rows_of(path))


def files_of(path: str) -> dict[int, str]:
    """Names of the base files of all rowsets, by inode."""
    with kc.open_table(path) as table:
        return {
            os.stat(f"{tablet.directory}/{rowset.meta.base.name}").st_ino: rowset.meta.base.name
            for tablet in tablets_of(table)
            for rowset in tablet.view.rowsets
        }


# ---- what counts ----


def test_only_the_runs_that_the_commit_is_told_of_count(path: str) -> None:
    """Protocol J1: the files of an attempt that lost stay out."""
    job = begin(path)
    runs = [*stage(job, "a", [1, 3, 2], parts=2), *stage(job, "b", [7])]
    stage(job, "zombie", [100])
    assert commit.commit_job(pickle.loads(pickle.dumps(job)), runs).inserted == 4
    assert keys_of(path) == [1, 2, 3, 7]
    assert waiting(path) == []


@pytest.mark.parametrize("small", [True, False])
def test_a_run_that_is_not_what_was_staged_is_refused(path: str, tmp_path: Path, small: bool) -> None:
    if not small:
        path = str(tmp_path / "files")
        make(path)
    for damage in ("footer", "cut", "lost"):
        job = begin(path)
        runs = stage(job, "a", [1, 2, 3])
        file = Path(job.directory, runs[0].file.name)
        data = bytearray(file.read_bytes())
        if damage == "footer":
            data[-20] ^= 1
            file.write_bytes(data)
        elif damage == "cut":
            file.write_bytes(data[:-1])
        else:
            file.unlink()
        with pytest.raises(kc.Corruption):
            commit.commit_job(job, runs)
    job = begin(path)
    [run, *_] = stage(job, "a", [1, 2, 3])
    other = dataclasses.replace(run, file=FileRef(run.file.name, run.file.size, run.file.footer_crc ^ 1))
    with pytest.raises(kc.Corruption, match="footer"):
        commit.commit_job(job, [other])
    with pytest.raises(ValueError, match="no file name"):
        StagedRun.from_json({**run.to_json(), "file": ["../a", 1, 1]})
    assert keys_of(path) == []
    assert waiting(path) == []


def test_a_job_of_another_table_is_refused(path: str, tmp_path: Path) -> None:
    job = begin(path)
    runs = stage(job, "a", [1])
    os.rename(path, tmp_path / "old")
    kc.create_table(path, SCHEMA, "k").close()
    os.rename(tmp_path / "old" / "staging" / job.id, job.directory)
    with pytest.raises(kc.InvalidArgument, match="another one than when the job began"):
        resolved(job, runs)
    with pytest.raises(kc.InvalidArgument, match="another one than when the job began"):
        commit.commit_job(job, runs)
    assert keys_of(path) == []


def test_abandon_removes_a_job_until_its_commit_begins(path: str) -> None:
    job = begin(path)
    stage(job, "a", [1])
    assert not commit.abandon(job)
    assert not os.path.exists(job.directory)
    assert not commit.abandon(job)
    with pytest.raises(FileNotFoundError):
        stage(job, "late", [1])  # an attempt that outlives its job has nowhere to write
    locked = begin(path, lock_timeout_s=0.0)
    runs = stage(locked, "a", [1])
    with kc.open_table(path, "rw"), pytest.raises(kc.Locked):
        commit.commit_job(locked, runs)
    assert not commit.abandon(locked)
    assert commit.resume(path, locked.id).inserted == 1
    with pytest.raises(kc.InvalidArgument):
        commit.resume(path, "../" + locked.id)


def test_a_long_attempt_renews_the_time_of_its_directory(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "HEARTBEAT_S", -1.0)
    job = begin(path)
    stager = commit.stager(job, "a")
    os.utime(job.directory, (0, 0))
    stager.append(pa.record_batch({"k": pa.array([1], pa.int64()), "v": ["1"]}, SCHEMA))
    assert os.stat(job.directory).st_mtime > 0
    assert commit.commit_job(job, stager.finish()).inserted == 1


def test_a_token_holds_for_a_job_without_rows(path: str) -> None:
    for expected in (False, True):
        assert commit.commit_job(begin(path, txn=("a", 3)), []).deduplicated is expected
    with kc.open_table(path) as table:
        assert commit.applied(table, check_txn(("a", 3), "skip")) is not None
        assert commit.applied(table, check_txn(("a", 4), "skip")) is None
        assert commit.applied(table, check_txn(("a", 3))) is None, "its rows are compared at the commit"
        with pytest.raises(TokenMismatch, match="cannot be told"):
            commit.applied(table, check_txn(("a", 2)))


# ---- resolved before the commit ----


@pytest.mark.parametrize("early", [True, False], ids=["tasks", "commit"])
def test_runs_of_new_keys_are_taken_in_as_they_are(tmp_path: Path, early: bool) -> None:
    path = str(tmp_path / "files")
    make(path)
    job = begin(path, "upsert")
    runs = [*stage(job, "a", range(100)), *stage(job, "b", range(1000, 1100))]
    inodes = {os.stat(f"{job.directory}/{run.file.name}").st_ino for run in runs}
    assert len(inodes) == 4
    resolutions = resolved(job, runs) if early else []
    assert commit.commit_job(job, runs, resolutions=resolutions).counts == (200, 0, 0, 0)
    assert set(files_of(path)) == inodes
    # Once more beside them: between and after keys that are there.
    job = begin(path, "insert")
    runs = [*stage(job, "a", range(200, 900)), *stage(job, "b", range(2000, 2100))]
    inodes |= {os.stat(f"{job.directory}/{run.file.name}").st_ino for run in runs}
    assert commit.commit_job(job, runs, resolutions=resolved(job, runs) if early else []).inserted == 800
    assert set(files_of(path)) == inodes
    # Runs that overlap each other become one rowset for each tablet.
    job = begin(path, "insert")
    runs = [*stage(job, "a", range(3000, 4000, 2)), *stage(job, "b", range(3001, 4000, 2))]
    assert commit.commit_job(job, runs, resolutions=resolved(job, runs) if early else []).inserted == 1000
    assert len(files_of(path)) == len(inodes) + 2
    there = [*range(100), *range(200, 900), *range(1000, 1100), *range(2000, 2100), *range(3000, 4000)]
    assert keys_of(path) == there
    assert waiting(path) == []


def test_what_tasks_resolved_is_not_resolved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "files")
    make(path)
    with kc.open_table(path, "rw") as table:
        table.upsert({"k": list(range(50)), "v": ["disk"] * 50})
        set_options(table, ingest_threshold_rows=1 << 20)
        table.upsert({"k": list(range(50, 100)), "v": ["memory"] * 50})
    built: list[int] = []
    real = commit.ingest_sorted.__globals__["_build"]

    def build(engine: Any, rows: Any, tablets: Any, *args: Any, **more: Any) -> Any:
        built.append(len(tablets))
        return real(engine, rows, tablets, *args, **more)

    monkeypatch.setattr("kudu_core.table.ingest.ingest._build", build)
    job = begin(path, "upsert")
    runs = stage(job, "a", range(25, 125), v="new")
    resolutions = resolved(job, runs)
    assert {sum(counts) for counts in zip(*(r.counts for r in resolutions), strict=True)} == {25, 75, 0}
    assert commit.commit_job(job, runs, resolutions=resolutions).counts == (25, 75, 0, 0)
    assert built == [0]
    assert rows_of(path) == {k: "disk" if k < 25 else "new" for k in range(125)}
    for gone in ([30], [60], [124]):  # on disk, in memory before, inserted by a job
        with kc.open_table(path, "rw") as table:
            table.delete(gone)
        job = begin(path, "delete_ignore")
        stager = commit.stager(dataclasses.replace(job, columns=(("k", "int64"),)), "a")
        stager.append(pa.record_batch({"k": pa.array([*gone, 1 + gone[0] % 2], pa.int64())}))
        runs = stager.finish()
        resolutions = resolved(job, runs)
        result = commit.commit_job(job, runs, resolutions=resolutions)
        assert (result.deleted, result.ignored) in {(1, 1), (0, 2)}


@pytest.mark.parametrize("small", [True, False])
def test_each_row_with_an_operation_of_its_own(tmp_path: Path, small: bool) -> None:
    path = str(tmp_path / "files")
    make(path, ingest_threshold_rows=100 if small else 1)
    with kc.open_table(path, "rw") as table:
        table.insert({"k": list(range(10)), "v": ["before"] * 10})
    job = begin(path, "apply")
    stager = commit.stager(job, "a")
    operations = ["delete", "update", "upsert", "insert", "insert_ignore", "delete_ignore"]
    keys = [1, 2, 30, 31, 3, 32]
    stager.append(pa.RecordBatch.from_pydict({"_op": operations, "k": keys, "v": ["job"] * 6}))
    runs = stager.finish()
    result = commit.commit_job(job, runs, resolutions=resolved(job, runs))
    assert result.counts == (2, 1, 1, 2)
    expected = {k: "before" for k in range(10) if k != 1} | {2: "job", 30: "job", 31: "job"}
    assert rows_of(path) == expected


# ---- several rows of a key, cells that say nothing ----

WIDE = pa.schema([("k", pa.int64()), ("v", pa.string()), ("n", pa.int32()), pa.field("m", pa.int8(), False)])


def wide(path: str, small: bool) -> None:
    columns = [*(kc.Column(f.name, f.type, f.nullable) for f in WIDE), kc.Column("d", "int32", default=7)]
    options = FILES | ({"ingest_threshold_rows": 1000} if small else {})
    with kc.create_table(path, columns, "k", options=options) as table:
        table.insert({"k": [1, 2], "v": ["a", "b"], "n": [10, 20], "m": [1, 2], "d": [3, 3]})


def write(path: str, rows: dict[str, Any], operation: str = "upsert", *, runs: int = 1, **more: Any) -> Any:
    """The rows staged in turn by so many attempts, resolved and committed."""
    batch = pa.RecordBatch.from_pydict(rows)
    with kc.open_table(path) as table:
        job = commit.begin(table, operation, [(f.name, str(f.type)) for f in batch.schema], **more)
    staged: list[StagedRun] = []
    for number in range(runs):
        stager = commit.stager(job, f"{number}")
        stager.append(batch.take(pa.array(range(number, batch.num_rows, runs))))
        staged += stager.finish()
    return commit.commit_job(job, staged, resolutions=resolved(job, staged))


def cells(path: str, *names: str) -> dict[int, tuple[Any, ...]]:
    with kc.open_table(path) as table:
        table.verify()
        return {row["k"]: tuple(row[n] for n in names) for row in table.scan().to_pylist()}


@pytest.mark.parametrize("runs", [1, 2, 3])
@pytest.mark.parametrize("small", [True, False])
def test_of_several_rows_of_a_key_the_last_counts(tmp_path: Path, small: bool, runs: int) -> None:
    path = str(tmp_path / "wide")
    wide(path, small)
    rows = {
        "k": [1, 1, 5, 1, 6, 5, 6],
        "n": pa.array([1, 3, None, 2, 9, 8, 4], pa.int32()),
        "m": pa.array([1, 3, 0, 2, 9, 8, 4], pa.int8()),
        "seq": pa.array(["b", "d", None, "c", "z", "a", "y"]),
    }
    assert write(path, rows, runs=runs, on_duplicate="last", sequence_by="seq").counts == (2, 1, 0, 0)
    assert cells(path, "n", "v") == {1: (3, "a"), 2: (20, "b"), 5: (8, None), 6: (9, None)}
    # A column of the table says it, and is stored.
    rows = {"k": [1, 2, 1], "n": pa.array([5, None, 6], pa.int32())}
    assert write(path, rows, "update", runs=runs, on_duplicate="last", sequence_by="n").updated == 2
    assert cells(path, "n")[1] == (6,)
    tie = {"k": [1, 1, 1, 2, 2], "n": pa.array([7, 7, 6, 1, 1], pa.int32()), "seq": [2, 2, 1, None, None]}
    with pytest.raises(kc.RowErrors, match="2 duplicate_in_batch"):
        write(path, tie, "update", runs=runs, on_duplicate="last", sequence_by="seq")
    assert cells(path, "n") == {1: (6,), 2: (None,), 5: (8,), 6: (9,)}
    mixed = {"k": [1, 1, 7, 7], "_op": ["upsert", "delete", "delete_ignore", "upsert"],
             "m": pa.array([1, None, None, 5], pa.int8()), "seq": [1, 2, 1, 2]}  # fmt: skip
    result = write(path, mixed, "apply", runs=runs, on_duplicate="last", sequence_by="seq")
    assert result.counts == (1, 0, 1, 0) and sorted(cells(path)) == [2, 5, 6, 7]
    assert waiting(path) == []


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("small", [True, False])
def test_a_null_that_says_nothing(tmp_path: Path, small: bool, runs: int) -> None:
    path = str(tmp_path / "wide")
    wide(path, small)
    rows = {
        "k": [1, 2, 5, 6],
        "v": pa.array([None, "new", None, "x"]),
        "n": pa.array([11, None, None, 61], pa.int32()),
        "m": pa.array([None, 22, 5, 6], pa.int8()),
        "d": pa.array([None, 4, None, 5], pa.int32()),
    }
    assert write(path, rows, runs=runs, ignore_null=True).counts == (2, 2, 0, 0)
    after = {1: ("a", 11, 1, 3), 2: ("new", 20, 22, 4), 5: (None, None, 5, 7), 6: ("x", 61, 6, 5)}
    assert cells(path, "v", "n", "m", "d") == after
    nothing = {"k": [1, 2], "v": pa.array([None, None], pa.string())}
    write(path, nothing, "update", runs=runs, ignore_null=True)
    assert cells(path, "v", "n", "m", "d") == after
    lacking = {"k": [1, 8, 9], "m": pa.array([None, None, 3], pa.int8())}
    with pytest.raises(kc.RowErrors, match=r"^1 rows were refused \(1 null_in_required\).*'k': 8"):
        write(path, lacking, runs=runs, ignore_null=True)
    with pytest.raises(kc.RowErrors, match="2 null_in_required"):
        write(path, lacking, runs=runs)
    assert write(path, lacking, "update_ignore", runs=runs, ignore_null=True).ignored == 2
    keyless = {"k": pa.array([None, 3], pa.int64()), "m": pa.array([None, 3], pa.int8())}
    with pytest.raises(kc.RowErrors, match="1 null_in_required"):
        write(path, keyless, runs=runs, ignore_null=True)
    assert cells(path, "v", "n", "m", "d") == after
    both = {"k": [1, 1], "v": [None, "late"], "n": pa.array([1, None], pa.int32()), "seq": [1, 2]}
    write(path, both, runs=runs, ignore_null=True, on_duplicate="last", sequence_by="seq")
    assert cells(path, "v", "n")[1] == ("late", 11)


def test_what_makes_no_sense_together_is_refused(path: str) -> None:
    for more, message in [
        ({"on_duplicate": "last"}, "sequence_by"),
        ({"sequence_by": "v"}, "go together"),
        ({"ignore_null": True, "on_duplicate": "any"}, "ignore_null needs"),
        ({"ignore_null": 1}, "True or False"),
        ({"on_duplicate": "first"}, "on_duplicate"),
        ({"on_duplicate": "last", "sequence_by": "x"}, "'x', which sequence_by names"),
    ]:
        with pytest.raises(kc.InvalidArgument, match=message):
            begin(path, **more)  # type: ignore[arg-type]
    with kc.open_table(path) as table, pytest.raises(kc.SchemaMismatch, match="no order"):
        commit.begin(table, "upsert", [*COLUMNS, ("f", "float64")], on_duplicate="last", sequence_by="f")
    assert waiting(path) == []


SINCE = {
    "inserted": lambda t: t.insert({"k": [200], "v": ["since"]}),
    "updated on disk": lambda t: t.update({"k": [10], "v": ["since"]}),
    "updated in memory": lambda t: t.update({"k": [60], "v": ["since"]}),
    "deleted on disk": lambda t: t.delete([10]),
    "deleted in memory": lambda t: t.delete([60]),
    "another key": lambda t: t.upsert({"k": [900], "v": ["since"]}),
    "nothing": lambda t: None,
}
THEN = {
    "": lambda t: None,
    "flushed": lambda t: t.flush(),
    "merged": lambda t: (t.flush(), t.compact(full=True)),
    "ingested": lambda t: None,
    "forgotten": lambda t: (t.flush(), t.gc(), t.compact(full=True), t.gc()),
}


CASES = [
    (operation, since)
    for operation in ("upsert", "insert_ignore", "update_ignore", "delete_ignore")
    for since in SINCE
]


@pytest.mark.parametrize("case", range(len(CASES)), ids=[" ".join(case) for case in CASES])
def test_what_changed_since_the_resolution_is_decided_again(tmp_path: Path, case: int, long: bool) -> None:
    """Protocol J4: the outcome is that of the same call made at the time of the commit."""
    for number, then in enumerate(THEN):
        if long or case % len(THEN) == number:
            decided_again(str(tmp_path / f"{number}"), *CASES[case], then)


def decided_again(path: str, operation: str, since: str, then: str) -> None:
    options = FILES | {"history_retention_s": 0.0 if then == "forgotten" else 3600.0}
    with kc.create_table(path, SCHEMA, "k", options=options) as table:
        table.upsert({"k": list(range(50)), "v": ["disk"] * 50})
        set_options(table, ingest_threshold_rows=1 << 20)
        table.upsert({"k": list(range(50, 100)), "v": ["memory"] * 50})
    job = begin(path, operation)
    keys = [10, 60, 200]
    data = {"k": pa.array(keys, pa.int64())}
    if not operation.startswith("delete"):
        data["v"] = pa.array(["job"] * len(keys))
    stager = commit.stager(job, "a")
    stager.append(pa.RecordBatch.from_pydict(data))
    runs = stager.finish()
    resolutions = resolved(job, runs)
    assert len(resolutions) == 1
    threshold = 1 if then == "ingested" else 1 << 20
    with kc.open_table(path, "rw", options={"ingest_threshold_rows": threshold}) as table:
        SINCE[since](table)
        THEN[then](table)
        before = {row["k"]: row["v"] for row in table.scan().to_pylist()}
    result = commit.commit_job(job, runs, resolutions=resolutions)
    there = [k for k in keys if k in before]
    counts = {
        "upsert": (3 - len(there), len(there), 0, 0),
        "insert_ignore": (3 - len(there), 0, 0, len(there)),
        "update_ignore": (0, len(there), 0, 3 - len(there)),
        "delete_ignore": (0, 0, len(there), 3 - len(there)),
    }
    changed = {"upsert": keys, "insert_ignore": set(keys) - set(there), "update_ignore": there}
    after = before | dict.fromkeys(changed.get(operation, ()), "job")
    if operation == "delete_ignore":
        after = {k: v for k, v in before.items() if k not in keys}
    assert result.counts == counts[operation]
    assert rows_of(path) == after
    assert waiting(path) == []
