"""A table overwritten without Spark: staged and committed in this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import kudu_core as kc
from kudu_core.table.jobs import commit
from kudu_core.table.jobs.job import Job
from kudu_core.table.runs.staged import StagedRun
from tests.support.inside import engine_of, handle_of

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
MANUAL: dict[str, Any] = {"maintenance": "manual", "file_grace_s": 0, "ingest_threshold_rows": 20}
OLD = dict.fromkeys(range(6), "old")
NEW = dict.fromkeys(range(3, 9), "new")
CUT: dict[str, list[Any]] = {
    "whole": [],
    "hash": [kc.HashPartition("k", 2)],
    "range": [kc.RangePartition("k", [(0, 5), (5, None)])],
}


def data(values: dict[int, str]) -> pa.Table:
    return pa.table({"k": list(values), "v": list(values.values())}, schema=SCHEMA)


def with_old_rows(folder: Path, cut: str) -> kc.Table:
    """A table of the rows that are to go."""
    table = kc.create_table(folder / "t", SCHEMA, "k", partition_by=CUT[cut], options=MANUAL)
    table.insert(data(OLD))
    return table


def found(scan: Any) -> dict[int, str]:
    return {row["k"]: row["v"] for row in scan.to_pylist()}


def directories(table: kc.Table) -> list[str]:
    return sorted(os.listdir(f"{table.path}/tablets"))


def reads(table: kc.Table, at: int | None, wanted: dict[int, str]) -> None:
    """By every way to read."""
    assert found(table.scan(at=at)) == wanted
    assert table.count(at=at) == len(wanted)
    many = table.get_many(list(range(12)), at=at).to_pylist()
    assert {row["k"]: row["v"] for row in many if row["_found"]} == wanted
    for k in (1, 4, 8):
        row = table.get(k, at=at)
        assert (row and row["v"]) == wanted.get(k)
    shares = [table.scan_token(token) for token in table.scan_tokens(at=at, target_rows=2)]
    assert {k: v for share in shares for k, v in found(share).items()} == wanted


def staged(table: kc.Table, rows: pa.Table, attempts: int = 1, **options: Any) -> tuple[Job, list[StagedRun]]:
    """A job whose attempts have staged every so manieth row each.  ``table`` may be open for reading."""
    engine = engine_of(table)
    types = [(name, str(engine.schema.column(name).type)) for name in rows.schema.names]
    operation = options.pop("operation", "upsert")
    handle, overwrite = handle_of(table), options.pop("overwrite", True)
    job = commit.begin(handle, operation, types, overwrite=overwrite, **options)
    runs: list[StagedRun] = []
    for number in range(attempts):
        stager = commit.stager(job, f"{number}", engine.fs)
        mine = rows.take(pa.array(range(number, rows.num_rows, attempts), pa.int64()))
        for batch in mine.combine_chunks().to_batches():
            stager.append(batch)
        runs += stager.finish()
    return job, runs


def overwrite(
    table: kc.Table, rows: pa.Table | Sequence[dict[str, Any]], attempts: int = 1, **options: Any
) -> kc.WriteResult:
    """Put rows in the place of all that a table, open for writing, has."""
    if not isinstance(rows, pa.Table):
        rows = pa.Table.from_pylist(list(rows), schema=table.schema)
    job, runs = staged(table, rows, attempts, **options)
    return commit.commit_job(job, runs, handle_of(table))


__all__ = [
    "CUT",
    "MANUAL",
    "NEW",
    "OLD",
    "SCHEMA",
    "data",
    "directories",
    "found",
    "overwrite",
    "reads",
    "staged",
    "with_old_rows",
]
