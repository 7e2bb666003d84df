"""The data source "kudu_core": ``spark.read.format`` and ``df.write.format``.

Deliberately without ``pushFilters``: Spark 4.3 keeps a pushed filter for every later query of the
same DataFrame and so returns wrong rows.  Columns, predicate and snapshot are options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kudu_core.common.run.pool import available_cores
from kudu_core.engines.spark.changes import (
    Share,
    changed_columns,
    changes_schema,
    plan_changes,
    read_changes,
)
from kudu_core.engines.spark.codes import coded
from kudu_core.engines.spark.options import LATEST, ReadOptions, WriteOptions
from kudu_core.engines.spark.scan import alone, read_tokens, shared_out
from kudu_core.engines.spark.schema import arrow_schema, spark_schema, staged_columns
from kudu_core.engines.spark.staging import stage
from kudu_core.errors import InvalidArgument
from kudu_core.table.changes.changes_plan import ChangesRequest
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.job import Job
from kudu_core.table.lifecycle.handles import open_handle
from kudu_core.table.opened.handle import Handle
from kudu_core.table.read.plan import ScanRequest
from kudu_core.table.read.tokens import ScanToken, scan_tokens
from kudu_core.table.runs.staged import StagedRun


def schema(options: Mapping[str, str]) -> StructType:
    """The columns that a read with these options has."""
    with coded():
        parsed = ReadOptions.parse(options)
        with open_handle(parsed.path) as handle:
            stored = handle.engine.schema
            if parsed.changes:
                return changes_schema(stored, parsed.names(stored), parsed.images)
            return spark_schema(stored, parsed.names(stored))


class KuduPartition(InputPartition):
    """The shares of one task."""

    def __init__(self, shares: tuple[Share, ...]) -> None:
        super().__init__(shares)
        self.shares = shares


class KuduReader(DataSourceReader):
    """Plans scan tokens once for each DataFrame, so that a DataFrame is one snapshot."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        with coded():
            self._options = ReadOptions.parse(options)
            for name, given in (
                ("maxRowsPerTrigger", self._options.max_rows is not None),
                ("since=latest", self._options.since == LATEST),
            ):
                if given:
                    raise InvalidArgument(f"{name} is for spark.readStream")
            if self._options.since is not None and not self._options.changes:
                raise InvalidArgument("since is for changes: set readChanges to true as well")
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with coded(), open_handle(options.path) as handle:
            shares = self._shares(handle)
        if options.limit is not None:
            return [KuduPartition(task) for task in alone(shares, options.limit)]
        # No session here to ask for the cluster's cores; the driver's own are the least there are.
        tasks = shared_out(shares, options.target_rows, available_cores())
        return [KuduPartition(task) for task in tasks]

    def _shares(self, handle: Handle) -> list[Share]:
        options, stored = self._options, handle.engine.schema
        where, target = options.filter(stored), options.target_rows
        if options.changes:
            columns = changed_columns(stored, self._schema, options.images)
            request = ChangesRequest(columns, where, options.images, options.net)
            return plan_changes(handle, request, options.since, options.until, target)
        names = options.names(stored, self._schema)
        return list(scan_tokens(handle, ScanRequest(names, where), options.at, target))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Spark asks for one partition, None, when there are none.
        if isinstance(partition, KuduPartition):
            wanted = arrow_schema(self._schema)
            if self._options.changes:
                yield from read_changes(partition.shares, wanted)
            else:
                tokens = [share for share in partition.shares if isinstance(share, ScanToken)]
                yield from read_tokens(tokens, wanted, self._options.limit)


@dataclass
class Staged(WriterCommitMessage):
    """What a task tells the commit."""

    runs: list[StagedRun]


class KuduWriter(DataSourceArrowWriter):
    """Made once for a job; a copy of it stages in each task, another one commits."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        with coded():
            parsed = WriteOptions.parse(options, overwrite=overwrite)
            with open_handle(parsed.path) as handle:
                columns = staged_columns(
                    schema, handle.engine.schema, parsed.operation, parsed.sequence_by
                )
                self._job: Job | None = None
                """None: the token was applied before, so there is nothing to do."""
                if jobs.applied(handle, parsed.txn) is None:
                    self._job = jobs.begin(
                        handle,
                        parsed.operation,
                        columns,
                        txn=parsed.txn,
                        on_duplicate=parsed.on_duplicate,
                        sequence_by=parsed.sequence_by,
                        ignore_null=parsed.ignore_null,
                        lock_timeout_s=parsed.lock_timeout_s,
                        overwrite=overwrite,
                    )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        with coded():
            if self._job is None:
                for _ in iterator:
                    pass
                return Staged([])
            return Staged(stage(self._job, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._job is None:
            return
        runs = [run for m in messages if isinstance(m, Staged) for run in m.runs]
        with coded():
            jobs.commit_job(self._job, runs)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # Messages of late and failed tasks are None here, hence the whole directory.
        if self._job is not None:
            jobs.abandon(self._job)
