"""A driver gives up a distributed write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa

import kudu_core as kc
from kudu_core.table.jobs import commit as jobs
from tests.support.inside import engine_of, handle_of
from tests.support.staged import marks, waiting


def test_who_gives_up_a_committed_write_hears_so_and_its_folder_goes(tmp_path: Path) -> None:
    """The commit could not remove its folder; the driver died behind it and comes back."""
    rows = pa.record_batch({"k": list(range(30)), "v": ["job"] * 30})
    options = {"ingest_threshold_rows": 1, "maintenance": "manual"}
    with kc.create_table(tmp_path / "t", rows.schema, "k", options=options) as table:
        job = jobs.begin(handle_of(table), "insert", [("k", "int64"), ("v", "string")])
        stager = jobs.stager(job, "p0-a0", engine_of(table).fs)
        stager.append(rows)
        runs = stager.finish()
        shutil.copytree(job.directory, tmp_path / "kept")
        jobs.commit_job(job, runs, handle_of(table))
        assert waiting(table.path) == []
        shutil.copytree(tmp_path / "kept", job.directory)
        assert waiting(table.path) == [job.id]
        assert jobs.abandon(job)
        assert waiting(table.path) == [] and marks(table.path) == [job.id]
        assert table.count() == 30
