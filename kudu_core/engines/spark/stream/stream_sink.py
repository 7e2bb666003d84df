"""Streams into a table, each batch once: ``writeStream.format("kudu_core")`` and ``foreach_batch``.

A batch is one write with the token (application, number of the batch), so one that Spark repeats
after a crash is not applied again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from kudu_core.common.idempotence.writers import CHECK, SKIP, check_txn
from kudu_core.engines.spark.codes import coded
from kudu_core.engines.spark.handles import PathOrTable, StorageOptions
from kudu_core.engines.spark.options import WriteOptions
from kudu_core.engines.spark.schema import staged_columns
from kudu_core.engines.spark.staging import Attempted, commit_attempts, stage
from kudu_core.engines.spark.versions.streaming import DataSourceStreamArrowWriter
from kudu_core.engines.spark.write import write
from kudu_core.errors import InvalidArgument, NotSupported
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.job import Job
from kudu_core.table.jobs.job_table import JobTable

STREAM_OPTIONS = ("checkpointlocation",)
"""What Spark hands over of a query's own options, in lower case."""


@dataclass
class StagedBatch(WriterCommitMessage):
    """What a task tells the commit, which Spark does not tell whose query it is."""

    job: Job
    told: Attempted


class KuduStreamWriter(DataSourceStreamArrowWriter):
    """Made for each batch, once for its tasks, which get copies, and anew for its commit."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        with coded():
            given = {name: value for name, value in options.items() if name.lower() not in STREAM_OPTIONS}
            if any(name.lower() == "txnversion" for name in given):
                raise InvalidArgument("a stream counts its batches itself; leave txnVersion out")
            self._app_id = next((v for name, v in given.items() if name.lower() == "txnappid"), None)
            on_repeat = next((v for name, v in given.items() if name.lower() == "onrepeat"), CHECK)
            # The token of a batch is known where its rows are staged.
            self._first = check_txn((self._app_id or "query", 0), on_repeat)
            given = {n: value for n, value in given.items() if n.lower() not in ("txnappid", "onrepeat")}
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
            with coded():
                table = JobTable.at(options.path, options.storage)
                self._job = jobs.begin(
                    table,
                    options.operation,
                    staged_columns(self._schema, table.schema, options.operation, options.sequence_by),
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
            query = context.getLocalProperty("sql.streaming.queryId")
            batch = context.getLocalProperty("streaming.sql.batchId")
            assert query is not None and batch is not None, "Spark sets them for every batch"
            assert self._first is not None
            txn = replace(self._first, app_id=self._app_id or query, version=int(batch), source=query)
            job = replace(self._job, txn=txn)
            return StagedBatch(job, stage(job, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = [m for m in messages if isinstance(m, StagedBatch)]
        if not staged:
            return
        job = staged[0].job
        with coded():
            commit_attempts(job, [m.told for m in staged])

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # Where no task has told of the job its files go after ``staging_grace_s``.
        for message in messages:
            if isinstance(message, StagedBatch):
                jobs.abandon(message.job)
                return


def foreach_batch(
    path: PathOrTable,
    app_id: str,
    operation: str = "upsert",
    *,
    on_repeat: str = "check",
    on_duplicate: str = "error",
    sequence_by: str | None = None,
    ignore_null: bool = False,
    repartition: str = "tablet",
    lock_timeout_s: float | None = None,
    storage_options: StorageOptions = None,
) -> Callable[[DataFrame, int], None]:
    """What ``writeStream.foreachBatch`` takes to write each batch to a table, once however often it is
    repeated.

        query = stream.writeStream.foreachBatch(ks.foreach_batch("/tables/t", "orders")) \\
            .option("checkpointLocation", "/checkpoints/orders").start()

    Against ``writeStream.format("kudu_core")`` it brings the rows of a tablet together, works with
    every output mode, and writes through a ``Table`` that the driver has open.

    >>> ks.foreach_batch(stock, "orders")(df, 0)
    >>> ks.count(spark, stock)
    4

    Parameters
    ----------
    path
        As ``table`` of ``write``.
    app_id
        The name of this query in this table.  It belongs to the query's checkpoint: with a new
        checkpoint, whose batches are counted from 0 again, goes a new name.
    on_repeat
        "check": a batch whose number was applied must have the same rows, or it is refused.  "skip": it is
        left out whatever its rows, for queries whose batches differ when they are repeated.
    operation, on_duplicate, sequence_by, ignore_null, repartition, lock_timeout_s, storage_options
        As ``write``.

    Raises
    ------
    TokenMismatch
        In the query: the batch was applied with other rows, the query is another one than that which
        ``app_id`` belongs to, or so many batches came after this one that nobody can tell.
    """
    jobs.check_job(operation, (app_id, 0), on_duplicate, sequence_by, ignore_null, on_repeat=on_repeat)

    def write_batch(df: DataFrame, batch_id: int) -> None:
        source = query_of(df)
        result = write(
            df,
            path,
            operation,
            txn=(app_id, batch_id) if source is None else (app_id, batch_id, source),
            on_repeat=on_repeat,
            on_duplicate=on_duplicate,
            sequence_by=sequence_by,
            ignore_null=ignore_null,
            repartition=repartition,
            lock_timeout_s=lock_timeout_s,
            storage_options=storage_options,
        )
        if result.deduplicated and on_repeat == SKIP:
            # Spark counts the states that a batch with aggregates has stored, so it must be run all the
            # same; one whose rows are compared was.
            df.write.format("noop").mode("overwrite").save()

    return write_batch


def query_of(df: DataFrame) -> str | None:
    """The id, kept by its checkpoint, of the query whose batch a function of ``foreachBatch`` is given.

    None where it runs outside of a query, and where nobody says: batches are then known by their rows alone.
    """
    try:
        found: str | None = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    except PySparkException:  # Spark Connect has no context here
        return None
    return found


__all__ = ["KuduStreamWriter", "StagedBatch", "foreach_batch", "query_of"]
