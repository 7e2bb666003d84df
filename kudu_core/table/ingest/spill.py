"""Calls that do not fit into memory: sorted and spilled to ``staging/`` while they arrive, then ingested.

Only the runs that are being sorted are in memory; the ingest reads the spilled ones by ranges of keys.
Layout of the files: docs/format-table.md, "staging/".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from kudu_core.common.idempotence.fingerprint import Fingerprint, total
from kudu_core.common.run.measure.work import load_of
from kudu_core.table.calls.call import Call, fitted
from kudu_core.table.calls.fingerprints import fingerprint_of, fingerprint_of_rows
from kudu_core.table.ingest.build import MAX_BYTES, SortedRows
from kudu_core.table.ingest.ingest import ingest_made, ingest_sorted, sort_calls, staging_of
from kudu_core.table.opened.record import once
from kudu_core.table.runs.sorted import RunPiece, pieces, sort_run
from kudu_core.table.runs.spilled import OpenRuns, SpilledRun, spill_run

if TYPE_CHECKING:
    from kudu_core.common.idempotence.writers import Txn
    from kudu_core.common.partition.partitions import PartitionSchema
    from kudu_core.common.schema.schema import Schema
    from kudu_core.table.calls.result import WriteResult
    from kudu_core.table.opened.engine import Engine

RUN_DIVISOR = 8
"""The memory limit divided by this: what the runs that are sorted and spilled at one time take before
encoding."""
SPILLED_ROWS = 1 << 22
"""Rows of a spilled run, however small they are."""


def ingest_spilled(
    engine: Engine, parts: Iterator[Call], *, on_error: str, txn: Txn | None, job: str | None
) -> WriteResult:
    """Apply the rows of one call, given batch by batch, by bulk ingest.

    ``txn`` may be without the fingerprint of the rows; it is made while they are sorted.
    """
    schema, partitions = engine.schema, engine.partitions
    parts = (part for given in parts for part in fitted(schema, [given]))

    def rows_of() -> Fingerprint:
        return total(fingerprint_of([part], engine.pool) for part in parts)

    def write() -> WriteResult:
        engine.memory.admit()
        loading = load_of(engine.tell)
        with loading as work, staging_of(engine) as staging, closing(OpenRuns(engine.fs.local)) as files:
            counted: Iterator[Call] = parts  # by who has begun the work
            if loading.is_new:
                work.begin("reading")
                counted = work.over(parts, lambda part: part.rows)
            shares: list[Fingerprint] | None = None if txn is None or txn.rows is not None else []
            runs = _spilled(engine, schema, partitions, counted, staging, files, shares)
            token = txn if txn is None or shares is None else txn.of(total(shares))
            rows = SortedRows(schema, partitions, runs, np.zeros(1, np.int64), job=job)
            return ingest_sorted(engine, rows, on_error=on_error, txn=token, staging=staging)

    return once(engine, txn, write, rows_of)


def sorted_or_spilled(
    engine: Engine,
    parts: Iterator[Call],
    staging: str,
    files: OpenRuns,
    most_bytes: int,
    partitions: PartitionSchema | None = None,
) -> SortedRows:
    """The rows of calls in order: in memory, or where they take more than ``most_bytes``, in ``staging``.

    ``partitions``: others than those of today.
    """
    schema, partitions = engine.schema, partitions or engine.partitions
    kept: list[Call] = []
    nbytes = 0
    for part in parts:
        kept.append(part)
        nbytes += part.block.nbytes
        if nbytes > most_bytes:
            whole = chain(kept, parts)
            runs = _spilled(engine, schema, partitions, whole, staging, files, None)
            return SortedRows(schema, partitions, runs, np.zeros(1, np.int64))
    return sort_calls(engine, kept, partitions)


def ingest_collected_spilled(
    engine: Engine, collect: Callable[[], Iterator[Call]], *, on_error: str, txn: Txn | None
) -> WriteResult:
    """``ingest_collected`` of calls that are made one by one and do not fit into memory: one call in parts.

    The token's lock is the caller's.
    """
    with closing(OpenRuns(engine.fs.local)) as files:

        def made(staging: str) -> SortedRows:
            return sorted_or_spilled(engine, collect(), staging, files, 0)

        return ingest_made(engine, made, on_error=on_error, txn=txn)


def _spilled(
    engine: Engine,
    schema: Schema,
    partitions: PartitionSchema,
    parts: Iterator[Call],
    staging: str,
    files: OpenRuns,
    shares: list[Fingerprint] | None,
) -> list[SpilledRun]:
    """The rows as runs in files; ``shares`` takes the fingerprint of each run."""

    def spill(numbered: tuple[int, RunPiece]) -> SpilledRun:
        number, piece = numbered
        if shares is not None:
            shares.append(fingerprint_of_rows(piece.source, piece.lower, piece.upper))
        run = sort_run(schema, partitions, piece)
        return spill_run(engine.fs.local, schema, run, f"{staging}/run-{number}.rows", files)

    run_bytes = engine.options.memory_bytes // (RUN_DIVISOR * engine.pool.threads)
    cut = pieces(parts, SPILLED_ROWS, min(run_bytes, MAX_BYTES))
    return list(engine.pool.map(spill, enumerate(cut), window=engine.pool.threads))


__all__ = ["RUN_DIVISOR", "SPILLED_ROWS", "ingest_collected_spilled", "ingest_spilled", "sorted_or_spilled"]
