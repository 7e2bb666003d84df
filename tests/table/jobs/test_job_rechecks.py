"""What was written since the cut that a resolution rests on is decided again when its job commits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kudu_core as kc
from kudu_core.table.jobs import apply_job
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.job import Job
from tests.support.inside import (
    handle_of,
    set_options,
    tablet_of,
)
from tests.table.jobs.test_job_commits import FILES, SCHEMA, resolved, rows_of, stage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t"


def test_a_token_is_asked_again_under_its_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs of one token, the second one applied while the first one looks at its files."""
    with kc.create_table(path, SCHEMA, "k", options=FILES) as table:
        slow, slow_runs = stage(table, [1], "upsert", txn=("app", 1))
        fast, fast_runs = stage(table, [1], "upsert", txn=("app", 1))
        real = apply_job.check_files

        def meanwhile(engine: Any, job: Job, *rest: Any) -> None:
            if job.id == slow.id:
                assert not jobs.commit_job(fast, fast_runs, handle_of(table)).deduplicated
            real(engine, job, *rest)

        monkeypatch.setattr(apply_job, "check_files", meanwhile)
        assert jobs.commit_job(slow, slow_runs, handle_of(table)).deduplicated
        assert rows_of(table) == {1: "job"}


def test_what_was_deleted_and_forgotten_since_the_cut_is_inserted(path: Path) -> None:
    """insert_ignore leaves out a row that is there; it is deleted, and every trace of it collected, before
    the commit: what a resolution rests on may be history, and that may be gone."""
    options = {**FILES, "history_retention_s": 0.0}
    with kc.create_table(path, SCHEMA, "k", options=options) as table:
        table.upsert({"k": list(range(10)), "v": ["before"] * 10})
        job, runs = stage(table, [5, 50], "insert_ignore")
        found = resolved(path, job, runs)
        table.delete([5])
        table.flush()
        table.compact(full=True)
        table.maintain()
        assert tablet_of(table).state.horizon > found[0].cut, "nothing was forgotten"
        assert jobs.commit_job(job, runs, handle_of(table), found).counts == (2, 0, 0, 0)
        assert rows_of(table) == {**dict.fromkeys(range(10), "before"), 5: "job", 50: "job"}


Act = Callable[[kc.Table], object]
IN_MEMORY: dict[str, tuple[str, Act, Act, dict[int, str]]] = {
    "deleted": (
        "upsert",
        lambda table: table.upsert({"k": [1, 7], "v": ["before"] * 2}),
        lambda table: table.delete([7]),
        {1: "before", 7: "job", 8: "job"},
    ),
    "inserted again": (
        "upsert",
        lambda table: [table.upsert({"k": [1, 7], "v": ["before"] * 2}), table.delete([7])],
        lambda table: table.upsert({"k": [7], "v": ["meanwhile"]}),
        {1: "before", 7: "job", 8: "job"},
    ),
    "inserted again, ignored": (
        "insert_ignore",
        lambda table: [table.upsert({"k": [1, 7], "v": ["before"] * 2}), table.delete([7])],
        lambda table: table.upsert({"k": [7], "v": ["meanwhile"]}),
        {1: "before", 7: "meanwhile", 8: "job"},
    ),
    "deleted, ignored": (
        "insert_ignore",
        lambda table: table.upsert({"k": [1, 7], "v": ["before"] * 2}),
        lambda table: table.delete([7]),
        {1: "before", 7: "job", 8: "job"},
    ),
}


@pytest.mark.parametrize("case", IN_MEMORY)
def test_changes_in_memory_since_the_cut_are_decided_again(path: Path, case: str) -> None:
    operation, before, meanwhile, expected = IN_MEMORY[case]
    with kc.create_table(path, SCHEMA, "k", options={**FILES, "ingest_threshold_rows": 1 << 20}) as table:
        before(table)
        set_options(table, ingest_threshold_rows=1)
        job, runs = stage(table, [7, 8], operation)
        found = resolved(path, job, runs)
        set_options(table, ingest_threshold_rows=1 << 20)
        meanwhile(table)
        set_options(table, ingest_threshold_rows=1)
        jobs.commit_job(job, runs, handle_of(table), found)
        assert rows_of(table) == expected
        table.verify()
    with kc.open_table(path) as reader:
        assert rows_of(reader) == expected


def test_a_row_without_a_key_repeats_none(path: Path) -> None:
    """Its NULL is encoded as 0 is, and 0 is a key."""
    with kc.create_table(path, SCHEMA, "k", options=FILES) as table:
        handle = handle_of(table)
        job = jobs.begin(handle, "insert", [("k", "int64"), ("v", "string")])
        attempt = jobs.stager(job, "a", handle.engine.fs)
        attempt.append(pa.record_batch({"k": pa.array([0, None, 1], pa.int64()), "v": ["a", "b", "c"]}))
        with pytest.raises(kc.RowErrors) as told:
            jobs.commit_job(job, attempt.finish(), handle)
        assert told.value.errors["code"].to_pylist() == ["null_in_required"]
