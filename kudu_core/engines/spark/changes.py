"""Changes of a table as a DataFrame: shares planned on the driver, read by tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from kudu_core.common.schema.column_names import OP_COLUMN
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types.types import ColumnType
from kudu_core.engines.spark.cache import handle_for
from kudu_core.engines.spark.codes import coded
from kudu_core.engines.spark.handles import PathOrTable, StorageOptions, reading
from kudu_core.engines.spark.scan import frame_of, parallelism, shared_out
from kudu_core.engines.spark.schema import arrow_schema, spark_schema, spark_type, to_spark
from kudu_core.errors import ChangesLost, InvalidArgument, SchemaMismatch, SnapshotTooOld
from kudu_core.table.changes.change_tokens import ChangeToken, change_tokens, changes_of
from kudu_core.table.changes.changes import BEFORE_NAME, TIMESTAMP_NAME, open_changes
from kudu_core.table.changes.changes_plan import ChangesRequest
from kudu_core.table.changes.row_history import FROM_NAME, TO_NAME
from kudu_core.table.changes.row_history import history_of as versions_of_row
from kudu_core.table.opened.handle import Handle
from kudu_core.table.read.plan import ScanRequest
from kudu_core.table.read.tokens import DEFAULT_TARGET_ROWS, ScanToken, scan_of, scan_tokens

Share = ScanToken | ChangeToken
"""Rows of a state, which are told as inserts at its time, or changes."""
_HEAD = (OP_COLUMN, TIMESTAMP_NAME)
_TIMESTAMP = spark_type(ColumnType.from_arrow(pa.uint64()))
"""As of any uint64: Spark's long ends in 2041."""


def changes(
    spark: SparkSession,
    path: PathOrTable,
    since: Any = None,
    until: Any = None,
    columns: Sequence[str] | None = None,
    where: Any = None,
    *,
    images: str = "after",
    net: bool = False,
    key: Any = None,
    target_rows_per_task: int = DEFAULT_TARGET_ROWS,
    storage_options: StorageOptions = None,
) -> DataFrame:
    """A DataFrame of what changed in ``(since, until]``: ``_op``, ``_timestamp`` and the row after it.

    The rows are in no order: ``orderBy("_timestamp")`` puts them into that of their writes.  Both ends
    are fixed here, so the DataFrame stays the same, as long as history reaches back to ``since``.

    >>> ks.changes(spark, stock, columns=["id"]).count()
    3

    Parameters
    ----------
    path
        Where the table is, on a file system that every executor sees or in an object store; or an open
        ``Table``.
    since, until, columns, where, images, net
        As ``Table.changes``.  ``since=None``: first the oldest state that history still has, as inserts.
    key
        As ``Table.changes``: of one key alone, or of several.  They are looked up here and now, by no task.
    target_rows_per_task
        A tablet with more changes is cut by time.
    storage_options
        As of ``scan``.

    Raises
    ------
    ChangesLost
        History no longer reaches back to ``since``.
    TableNotFound, InvalidArgument, SnapshotInFuture
        Before any task runs.
    """
    with reading(path, storage_options) as handle:
        schema = changes_schema(handle.engine.schema, columns, images)
        request = ChangesRequest(columns, where, images, net, key)
        if key is not None:
            wanted = arrow_schema(schema)
            found = [to_spark(batch, wanted) for batch in open_changes(handle, request, since, until)]
            # Of no batch PySpark cannot tell what a struct column holds.
            return spark.createDataFrame(pa.Table.from_batches(found, wanted) if found else [], schema)
        shares = plan_changes(handle, request, since, until, target_rows_per_task)
    tasks = shared_out(shares, target_rows_per_task, parallelism(spark))
    return frame_of(spark, tasks, schema, read_changes)


def history_of(
    spark: SparkSession,
    path: PathOrTable,
    key: Any,
    columns: Sequence[str] | None = None,
    since: Any = None,
    until: Any = None,
    *,
    storage_options: StorageOptions = None,
) -> DataFrame:
    """A DataFrame of the versions of one row, as ``Table.history_of``: looked up here and now, by no task.

    >>> ks.history_of(spark, stock, 2, ["name"]).select("_op", "name").first()
    Row(_op='insert', name='ink')

    Parameters
    ----------
    path, storage_options
        As of ``changes``.
    key, columns, since, until
        As ``Table.history_of``.

    Raises
    ------
    ChangesLost, TableNotFound, InvalidArgument, SnapshotInFuture
        As there.
    """
    with reading(path, storage_options) as handle:
        found = versions_of_row(handle, key, columns, since, until)
        rows = spark_schema(handle.engine.schema, found.schema.names[3:])
    head = [StructField(FROM_NAME, _TIMESTAMP), StructField(TO_NAME, _TIMESTAMP)]
    schema = StructType([*head, StructField(OP_COLUMN, StringType()), *rows.fields])
    wanted = arrow_schema(schema)
    batches = [to_spark(batch, wanted) for batch in found.to_batches() if batch.num_rows]
    # Of no batch PySpark cannot tell what a struct column holds.
    return spark.createDataFrame(pa.Table.from_batches(batches, wanted) if batches else [], schema)


def plan_changes(
    handle: Handle, request: ChangesRequest, since: Any, until: Any, target_rows: int
) -> list[Share]:
    """Shares of ``Table.changes``."""
    shares: list[Share] = []
    if since is None and not request.net:
        begun = open_changes(handle, ChangesRequest(columns=[]), None, until)  # keeps its first state
        since, until = begun.since, begun.until
        state = ScanRequest(request.columns, request.where, expired=True)  # as ``Changes`` begins
        shares += scan_tokens(handle, state, since, target_rows)
    shares += change_tokens(handle, request, since, until, target_rows)
    return shares


def changes_schema(stored: Schema, columns: Sequence[str] | None, images: str) -> StructType:
    """The Spark schema of the changes of these columns."""
    rows = spark_schema(stored, columns)
    keys = set(stored.key_names)
    head = [StructField(OP_COLUMN, StringType(), False), StructField(TIMESTAMP_NAME, _TIMESTAMP, False)]
    fields = [StructField(f.name, f.dataType, f.name not in keys) for f in rows.fields]
    if images == "both":
        fields.append(StructField(BEFORE_NAME, rows, True))
    return StructType([*head, *fields])


def changed_columns(stored: Schema, wanted: StructType, images: str) -> list[str]:
    """Names of the table's columns in a schema of changes that the user gave, which must be ours."""
    names = [f.name for f in wanted.fields if f.name not in (*_HEAD, BEFORE_NAME)]
    have = changes_schema(stored, names, images)
    if wanted.simpleString() != have.simpleString():
        raise SchemaMismatch(
            f"changes are read as {have.simpleString()}, not {wanted.simpleString()}; leave .schema() out, "
            "name the columns by the option columns, and cast afterwards"
        )
    return names


def read_changes(shares: Sequence[Share], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A task's shares, in a worker process, as Spark wants them."""
    with coded(), lost():
        for share in shares:
            handle = handle_for(share)
            if isinstance(share, ChangeToken):
                for batch in changes_of(handle, share):
                    yield to_spark(batch, wanted)
            else:
                for batch in scan_of(handle, share):
                    yield _as_inserts(batch, share.timestamp, wanted)


def read_rows(shares: Sequence[Share], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows after each change alone; there must be no deletion among them."""
    with coded(), lost():
        for share in shares:
            handle = handle_for(share)
            if isinstance(share, ChangeToken):
                for batch in changes_of(handle, share):
                    if "delete" in batch.column(0).unique().to_pylist():
                        raise InvalidArgument(
                            f"rows of {share.table_path} were deleted, and a stream of rows cannot tell it: "
                            'set .option("readChanges", "true") and act on the column _op'
                        )
                    rows = batch.drop_columns(list(_HEAD))
                    yield to_spark(rows, wanted)
            else:
                for batch in scan_of(handle, share):
                    yield to_spark(batch, wanted)


def _as_inserts(batch: pa.RecordBatch, timestamp: int, wanted: pa.Schema) -> pa.RecordBatch:
    rows = batch.num_rows
    arrays = [pa.repeat("insert", rows), pa.repeat(pa.scalar(timestamp, pa.uint64()), rows), *batch.columns]
    if len(arrays) < len(wanted):
        arrays.append(pa.nulls(rows, wanted.field(BEFORE_NAME).type))
    names = [*_HEAD, *batch.schema.names, BEFORE_NAME][: len(arrays)]
    return to_spark(pa.RecordBatch.from_arrays(arrays, names=names), wanted)


@contextmanager
def lost() -> Iterator[None]:
    """Where the state that changes begin with is read: to have lost it is to have lost them."""
    try:
        yield
    except ChangesLost:
        raise
    except SnapshotTooOld as exc:
        raise ChangesLost(f"the state that changes begin with is gone: {exc}") from exc
