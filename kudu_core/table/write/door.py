"""The door of all writes of more than one row: batches are collected while they fit into memory.

Batches of a call that come to more than a quarter of ``memory_limit_bytes`` are sorted and spilled to
``staging/`` while they arrive, and the bulk ingest reads them from there.  So the memory that a call needs
does not grow with its rows.

If the caller passes an Arrow table that already has the table's types, in batches that are not small, it is
sorted where it lies.  Spilling it would not free memory, because the caller still holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kudu_core.common.idempotence.fingerprint import Fingerprint, total
from kudu_core.common.idempotence.writers import Txn
from kudu_core.common.run.locks import NOTHING
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.types import TYPE_BOOL
from kudu_core.table.calls.decision import Call, fitted
from kudu_core.table.calls.result import WriteResult
from kudu_core.table.ingest import ingest
from kudu_core.table.ingest.build import MAX_BYTES, SortedRows
from kudu_core.table.ingest.commit import Committing
from kudu_core.table.runs import sorted as sorted_runs
from kudu_core.table.runs.sorted import Piece, pieces, sort_run
from kudu_core.table.runs.spilled import OpenRuns, SpilledRun, spill_run
from kudu_core.table.write.log_walk import write_calls
from kudu_core.table.write.repetition import (
    already_applied,
    answered,
    fingerprint_of,
    fingerprint_of_rows,
    known_before,
)

if TYPE_CHECKING:
    from kudu_core.table.opened.engine import Engine

KEPT_DIVISOR = 4
"""The memory limit divided by this: what a call may keep in memory before it is spilled."""
RUN_DIVISOR = 8
"""The memory limit divided by this: what the runs that are sorted and spilled at one time take before
encoding."""
SPILLED_ROWS = 1 << 22
"""Rows of a spilled run, however small they are."""


def is_resident(schema: Schema, data: Any) -> bool:
    """Whether the rows can be sorted where they lie: then to spill them would free nothing.

    They lie in memory, in the table's types, and not in many small batches.
    """
    if isinstance(data, pa.Table):
        chunks = max((column.num_chunks for column in data.columns), default=0)
        if data.num_rows < chunks * (sorted_runs.RUN_ROWS // sorted_runs.WHOLE_DIVISOR):
            return False
    elif not isinstance(data, pa.RecordBatch):
        return False
    for field in data.schema:
        column = schema.by_name.get(field.name)
        if column is None or column.type.arrow != field.type or column.type.kind == TYPE_BOOL:
            return False
    return True


def write_parts(
    engine: Engine,
    parts: Iterator[Call],
    *,
    given: Any = None,
    on_error: str = "raise",
    txn: Txn | None = None,
    job: Committing | None = None,
) -> WriteResult:
    """Apply the rows of one call, given batch by batch, as one record, all or nothing.

    ``given``: what the caller gave, of which the parts are made; a call that ``is_resident`` is not spilled.
    An exception out of ``parts`` passes through, and nothing was applied.
    """
    limit = engine.options.memory_limit_bytes // KEPT_DIVISOR
    kept: list[Call] = []
    nbytes = 0
    for part in parts:
        nbytes += part.block.nbytes
        if nbytes > limit and kept and not is_resident(engine.schema, given):
            return _write_spilled(engine, chain(_drained(kept), (part,), parts), on_error, txn, job)
        kept.append(part)
    if not kept and txn is None:
        return WriteResult(engine.visible_ts)
    return write_calls(engine, kept, on_error=on_error, txn=txn, job=job)


def _drained(calls: list[Call]) -> Iterator[Call]:
    """The calls, let go of one by one."""
    calls.reverse()
    while calls:
        yield calls.pop()


def _write_spilled(
    engine: Engine, parts: Iterator[Call], on_error: str, txn: Txn | None, job: Committing | None
) -> WriteResult:
    schema, partitions, fs = engine.schema, engine.partitions, engine.fs
    parts = (part for given in parts for part in fitted(schema, [given]))
    run_bytes = engine.options.memory_limit_bytes // (RUN_DIVISOR * engine.pool.threads)
    with NOTHING if txn is None else engine.writers.lock_of(txn.app_id):
        if txn is not None:
            known = known_before(engine, txn)
            if known is None:
                repeated = already_applied(engine, txn)
            else:
                given = total(fingerprint_of([part], engine.pool) for part in parts)
                repeated = answered(engine, txn.of(given), known)
                assert repeated is not None, "of a version that is known, rows are the same or refused"
            if repeated is not None:
                return repeated
        engine.memory.admit()
        with ingest.staging_of(engine) as staging, closing(OpenRuns(fs)) as files:
            shares: list[Fingerprint] = []

            def spill(numbered: tuple[int, Piece]) -> SpilledRun:
                number, piece = numbered
                if txn is not None and txn.rows is None:
                    shares.append(fingerprint_of_rows(piece.source, piece.lower, piece.upper))
                run = sort_run(schema, partitions, piece)
                return spill_run(fs, schema, run, f"{staging}/run-{number}.rows", files)

            cut = pieces(parts, SPILLED_ROWS, min(run_bytes, MAX_BYTES))
            runs = list(engine.pool.map(spill, enumerate(cut), window=engine.pool.threads))
            if txn is not None and txn.rows is None:
                txn = txn.of(total(shares))
            rows = SortedRows(schema, partitions, list(runs), np.zeros(1, np.int64), job=job)
            return ingest.ingest_sorted(engine, rows, on_error=on_error, txn=txn, staging=staging)
