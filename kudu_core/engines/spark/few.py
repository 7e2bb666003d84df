"""Few rows: a frame's come to the driver as they are, by one job of Spark without a Python worker, and a
table's are read where a scan is planned, so that Spark has them without a task that opens the table."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame

from kudu_core.engines.spark.codes import uncoded
from kudu_core.engines.spark.schema import to_spark
from kudu_core.table.opened.handle import Handle
from kudu_core.table.read.tokens import ScanToken, scan_of

WRITTEN_BYTES = 8 << 20
"""By the plan's statistics.  Spark says 8 EiB where it does not know."""
WRITTEN_ROWS = 100_000
"""A plan's bytes are those of files, which may be packed: so many rows are taken from a task, and no more."""
READ_ROWS = 20_000
READ_BYTES = 1 << 20
"""Of the rows; what is planned goes with the plan to every task."""
READ_STORED_BYTES = 16 << 20
"""Of the table: in a larger one a few rows may be a few of large cells."""

_VARIANT = re.compile("[:<,]variant(?=[,>])")


def few_rows(df: DataFrame) -> list[pa.RecordBatch] | None:
    """All rows of a frame that is small, by its plan, and then by a look; None of any other.

    The look costs one job.  A plan whose size is not known is not looked at.
    """
    if getattr(df, "_jdf", None) is None:  # Spark Connect has no plan here
        return None
    if _VARIANT.search(df.schema.simpleString()):  # toArrow fails of one that is NULL
        return None
    # By the number of a row in its partition: a limit would have them shuffled into one.
    some = df.where(f"(monotonically_increasing_id() & {(1 << 33) - 1}L) <= {WRITTEN_ROWS}")
    stats = some._jdf.queryExecution().optimizedPlan().stats()
    if int(str(stats.sizeInBytes())) > WRITTEN_BYTES:
        return None
    with uncoded():
        table = some.toArrow()
    return table.to_batches() if table.num_rows <= WRITTEN_ROWS else None


def few_scanned(
    handle: Handle, tokens: Sequence[ScanToken], wanted: pa.Schema, target_rows: int, limit: int | None
) -> list[pa.RecordBatch] | None:
    """All rows of the shares of one snapshot, at most ``limit``, as Spark wants them; None where they are not
    few, or more than a task is to have."""
    rows = sum(token.rows for token in tokens)
    if limit is not None:
        rows = min(rows, limit)
    if rows > min(READ_ROWS, target_rows) or _stored_bytes(handle) > READ_STORED_BYTES:
        return None
    found: list[pa.RecordBatch] = []
    left, left_bytes = limit, READ_BYTES
    for token in tokens:
        for batch in scan_of(handle, token):
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            left_bytes -= batch.nbytes
            if left_bytes < 0:
                return None
            found.append(to_spark(batch, wanted))
            if left == 0:
                return found
    return found


def _stored_bytes(handle: Handle) -> int:
    return sum(
        tablet.memory_bytes + sum(rowset.meta.size_bytes for rowset in tablet.view.rowsets)
        for tablet in handle.opened().tablets
    )


__all__ = ["few_rows", "few_scanned"]
