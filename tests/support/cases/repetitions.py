"""Rows in many forms, equal and other ones, and the doors by which a named write comes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import kudu_core as kc
from kudu_core.common.idempotence.writers import check_txn
from kudu_core.table.jobs import commit
from tests.support.bulk import MEMORY_LIMIT_BYTES, small_runs
from tests.support.inside import handle_of

SCHEMA = pa.schema([("k", pa.int64()), ("a", pa.int32()), ("s", pa.string())])
ROWS = 40
KEYS = list(range(ROWS))
TXN = ("app", 1)


def rows(keys: list[int] = KEYS) -> pa.Table:
    """Of a key the same cells, always; some are NULL."""
    cells = {
        "k": keys,
        "a": [None if k % 5 == 0 else 7 * k for k in keys],
        "s": [None if k % 7 == 0 else f"s{k}" for k in keys],
    }
    return pa.table(cells, schema=SCHEMA)


# ---- how the rows are given ----

EQUAL: dict[str, Callable[[], pa.Table]] = {
    "equal": rows,
    "permuted": lambda: rows(random.Random(1).sample(KEYS, ROWS)),
    "other batches": lambda: pa.concat_tables([rows(KEYS[:1]), rows(KEYS[1:17]), rows(KEYS[17:])]),
    "large strings": lambda: rows().set_column(2, "s", rows()["s"].cast(pa.large_string())),
    "a dictionary": lambda: rows().set_column(2, "s", rows()["s"].dictionary_encode()),
    "other types": lambda: rows().set_column(1, "a", rows()["a"].cast(pa.int64())),
    "other columns first": lambda: rows().select(["s", "k", "a"]),
    "a slice": lambda: pa.concat_tables([rows([99, 98]), rows(), rows([97])]).combine_chunks().slice(2, ROWS),
}


def changed(column: int, row: int, value: Any) -> pa.Table:
    cells = rows().column(column).to_pylist()
    cells[row] = value
    return rows().set_column(column, SCHEMA.field(column).name, pa.array(cells, SCHEMA.field(column).type))


def moved() -> pa.Table:
    """The same cells in each column, of other rows."""
    strings = rows()["s"].to_pylist()
    strings[1], strings[2] = strings[2], strings[1]
    return rows().set_column(2, "s", pa.array(strings, pa.string()))


OTHER: dict[str, Callable[[], pa.Table]] = {
    "one cell": lambda: changed(1, 3, -1),
    "one string": lambda: changed(2, 3, "s3 "),
    "one key": lambda: changed(0, 3, 1000),
    "a value for NULL": lambda: changed(1, 5, 0),
    "NULL for a value": lambda: changed(2, 1, None),
    "an empty string for NULL": lambda: changed(2, 7, ""),
    "cells that changed places": moved,
    "a row more": lambda: rows([*KEYS, ROWS]),
    "a row less": lambda: rows(KEYS[:-1]),
    "a row twice": lambda: rows([*KEYS, 3]),
    "another row twice": lambda: rows([*KEYS[:-1], 3]),
    "none": lambda: rows([]),
}


# ---- the doors ----


def by_call(table: kc.Table, data: pa.Table, **txn: Any) -> Any:
    return table.upsert(data, **txn)


def by_one_batch(table: kc.Table, data: pa.Table, **txn: Any) -> Any:
    """A batch of many calls, also of single rows."""
    with table.batch(**txn) as batch:
        for part in data.to_batches(max_chunksize=7):
            if part.num_rows < 7:
                batch.upsert(part)
            else:
                batch.upsert(part.slice(0, 3))
                batch.upsert(part.slice(3))
    return batch.result


def by_operations(table: kc.Table, data: pa.Table, **txn: Any) -> Any:
    ops = pa.array(["upsert" if k % 2 else "insert_ignore" for k in data["k"].to_pylist()], pa.string())
    return table.apply(data.append_column("_op", ops), **txn)


def by_key(table: kc.Table, data: pa.Table, **txn: Any) -> Any:
    return table.update(data, on_missing="ignore", **txn)


def spilled(table: kc.Table, data: pa.Table, **txn: Any) -> Any:
    with small_runs(spill=True):
        return table.upsert(data.to_reader(max_chunksize=5), **txn)


def job_of(**fixed: Any) -> Callable[..., Any]:
    """A distributed write whose rows come through several attempts."""

    def write(table: kc.Table, data: pa.Table, *, txn: Any, on_repeat: str = "check") -> Any:
        columns = [(f.name, str(f.type)) for f in SCHEMA]
        operation = fixed.get("operation", "upsert")
        if operation == "apply":
            columns.append(("_op", "string"))
            names = ["upsert" if k % 2 else "insert_ignore" for k in data["k"].to_pylist()]
            ops = pa.array(names, pa.string())
            data = data.append_column("_op", ops)
        job = commit.begin(
            handle_of(table), operation, columns, txn=check_txn(txn, on_repeat), on_duplicate="any",
            **{k: v for k, v in fixed.items() if k != "operation"},
        )  # fmt: skip
        runs = []
        types = {name: pa.type_for_alias(type_) for name, type_ in columns}
        for number, batch in enumerate(data.to_batches(max_chunksize=11)):
            # As attempts are given them: in the job's columns and types.
            arrays = [batch.column(name).cast(type_) for name, type_ in types.items()]
            stager = commit.stager(job, f"p{number}")
            stager.append(pa.RecordBatch.from_arrays(arrays, list(types)))
            runs += stager.finish()
        return commit.commit_job(job, runs, handle_of(table))

    return write


LOG = {"ingest_threshold_rows": 100_000}
FILES = {"ingest_threshold_rows": 1}
SMALL = FILES | {"memory_limit_bytes": MEMORY_LIMIT_BYTES}
DOORS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "call": (by_call, LOG),
    "call to files": (by_call, FILES),
    "batch": (by_one_batch, LOG),
    "batch to files": (by_one_batch, FILES),
    "operations": (by_operations, LOG),
    "update": (by_key, LOG),
    "spilled": (spilled, SMALL),
    "job": (job_of(), LOG),
    "job to files": (job_of(), FILES),
    "job of operations": (job_of(operation="apply"), FILES),
    "overwrite": (job_of(overwrite=True), FILES),
}


def create(path: Path, **options: Any) -> kc.Table:
    return kc.create_table(
        path / "t", SCHEMA, "k", partition_by=kc.HashPartition("k", 3),
        options={"maintenance": "manual"} | options,
    )  # fmt: skip


def state(table: kc.Table) -> list[dict[str, Any]]:
    return table.scan(order="key").to_pylist()
