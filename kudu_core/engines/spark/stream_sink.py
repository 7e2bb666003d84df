"""Streams into a table, each batch once: ``writeStream.format("kudu_core")`` and ``foreach_batch``.

A batch is one write with the token (application, number of the batch), so one that Spark repeats
after a crash is not applied again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kudu_core.engines.spark.codes import coded
from kudu_core.engines.spark.options import WriteOptions
from kudu_core.engines.spark.schema import staged_columns
from kudu_core.engines.spark.staging import stage
from kudu_core.engines.spark.write import write
from kudu_core.errors import InvalidArgument, NotSupported
from kudu_core.table import jobs
from kudu_core.table.job_runs import JobRun
from kudu_core.table.jobs import Job
from kudu_core.table.table import Table, open_table
from kudu_core.table.write import Txn

STREAM_OPTIONS = ("checkpointlocation",)
"""What Spark hands over of a query's own options, in lower case."""


@dataclass
class StagedBatch(WriterCommitMessage):
    """What a task tells the commit, which Spark does not tell whose query it is."""

    job: Job
    runs: list[JobRun]


class KuduStreamWriter(DataSourceStreamArrowWriter):
    """Made for each batch, once for its tasks, which get copies, and anew for its commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        with coded():
            given = {name: value for name, value in options.items() if name.lower() not in STREAM_OPTIONS}
            if any(name.lower() == "txnversion" for name in given):
                raise InvalidArgument("a stream counts its batches itself; leave txnVersion out")
            self._app_id = next((v for name, v in given.items() if name.lower() == "txnappid"), None)
            given = {name: value for name, value in given.items() if name.lower() != "txnappid"}
            self._options = WriteOptions.parse(given)
            if overwrite:
                raise NotSupported(
                    'outputMode("complete") would replace the table by every batch: use outputMode("update") '
                    "with kudu_core.spark.foreach_batch, which upserts what changed"
                )
        self._schema = schema
        self._job: Job | None = None

    def __getstate__(self) -> dict[str, object]:
        # Only the writer of the tasks is pickled.  All copies share one job, which a commit does not begin.
        if self._job is None:
            options = self._options
            with coded(), open_table(options.path) as table:
                self._job = jobs.begin(
                    table,
                    options.operation,
                    staged_columns(
                        self._schema, table._engine.schema, options.operation, options.sequence_by
                    ),
                    on_duplicate=options.on_duplicate,
                    sequence_by=options.sequence_by,
                    ignore_null=options.ignore_null,
                    lock_timeout_s=options.lock_timeout_s,
                )
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedBatch:
        with coded():
            context = TaskContext.get()
            assert self._job is not None and context is not None, "runs in a task of a stream"
            query = self._app_id or context.getLocalProperty("sql.streaming.queryId")
            batch = context.getLocalProperty("streaming.sql.batchId")
            assert query is not None and batch is not None, "Spark sets them for every batch"
            return StagedBatch(replace(self._job, txn=(query, int(batch))), stage(self._job, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = [m for m in messages if isinstance(m, StagedBatch)]
        if not staged:
            return
        job = staged[0].job
        with coded():
            with open_table(job.table_path) as table:
                check_order(table, job.txn)
            jobs.commit_job(job, [run for m in staged for run in m.runs])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # Where no task has told of the job its files go after ``staging_grace_s``.
        for message in messages:
            if isinstance(message, StagedBatch):
                jobs.abandon(message.job)
                return


def foreach_batch(
    path: str | os.PathLike[str] | Table,
    app_id: str,
    operation: str = "upsert",
    *,
    on_duplicate: str = "error",
    sequence_by: str | None = None,
    ignore_null: bool = False,
    repartition: str = "tablet",
    lock_timeout_s: float | None = None,
) -> Callable[[DataFrame, int], None]:
    """What ``writeStream.foreachBatch`` takes to write each batch to a table, once however often it is
    repeated.

        query = stream.writeStream.foreachBatch(ks.foreach_batch("/tables/t", "orders")) \\
            .option("checkpointLocation", "/checkpoints/orders").start()

    Against ``writeStream.format("kudu_core")`` it brings the rows of a tablet together, works with
    every output mode, and writes through a ``Table`` that the driver has open.

    Parameters
    ----------
    path
        As ``table`` of ``write``.
    app_id
        The name of this query in this table.  It belongs to the query's checkpoint: with a new
        checkpoint, whose batches are counted from 0 again, goes a new name.
    operation, on_duplicate, sequence_by, ignore_null, repartition, lock_timeout_s
        As ``write``.

    Raises
    ------
    InvalidArgument
        In the query: a later batch of ``app_id`` was applied before this one.
    """
    jobs.check_job(operation, (app_id, 0), on_duplicate, sequence_by, ignore_null)

    def write_batch(df: DataFrame, batch_id: int) -> None:
        token = (app_id, batch_id)
        if isinstance(path, Table):
            check_order(path, token)
        else:
            with open_table(path) as table:
                check_order(table, token)
        result = write(
            df,
            path,
            operation,
            txn=token,
            on_duplicate=on_duplicate,
            sequence_by=sequence_by,
            ignore_null=ignore_null,
            repartition=repartition,
            lock_timeout_s=lock_timeout_s,
        )
        if result.deduplicated:
            # Spark counts the states that a batch with aggregates has stored, so it must be run all the same.
            df.write.format("noop").mode("overwrite").save()

    return write_batch


def check_order(table: Table, txn: Txn | None) -> None:
    """Spark repeats the last batch at most; an earlier one is another query's, and would be lost."""
    known = None if txn is None else table._engine.tokens.get(txn[0])
    if txn is not None and known is not None and txn[1] < known.version:
        raise InvalidArgument(
            f"batch {txn[1]} of {txn[0]!r} comes after batch {known.version} was applied to {table.path}: "
            "the checkpoint is a new one or an older one; give the query a name of its own (app_id, txnAppId)"
        )


__all__ = ["KuduStreamWriter", "StagedBatch", "check_order", "foreach_batch"]
