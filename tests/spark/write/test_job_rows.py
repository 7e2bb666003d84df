"""Distributed writes without Spark: several rows of a key, cells that say nothing, changes meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.jobs import commit
from kudu_core.table.runs.staged import StagedRun
from tests.spark.write.test_jobs import COLUMNS, FILES, SCHEMA, begin, resolved, rows_of
from tests.support.inside import handle_of, set_options
from tests.support.staged import waiting

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
        job = commit.begin(handle_of(table), operation, [(f.name, str(f.type)) for f in batch.schema], **more)
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
    kc.create_table(path, SCHEMA, "k").close()
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
        columns = [*COLUMNS, ("f", "float64")]
        commit.begin(handle_of(table), "upsert", columns, on_duplicate="last", sequence_by="f")
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
