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
from kudu_core.engines.spark.few import few_scanned
from kudu_core.engines.spark.options import LATEST, ReadOptions, WriteOptions
from kudu_core.engines.spark.scan import alone, read_tokens, shared_out, tokens_for
from kudu_core.engines.spark.schema import arrow_schema, spark_schema, staged_columns
from kudu_core.engines.spark.staging import Attempted, commit_attempts, packed, stage, unpacked
from kudu_core.engines.spark.versions.plans import PLANS_ONCE
from kudu_core.errors import InvalidArgument
from kudu_core.table.changes.changes_plan import ChangesRequest
from kudu_core.table.jobs import commit as jobs
from kudu_core.table.jobs.job import Job
from kudu_core.table.jobs.job_table import JobTable
from kudu_core.table.lifecycle.handles import open_handle
from kudu_core.table.opened.handle import Handle
from kudu_core.table.read.plan import ScanRequest
from kudu_core.table.read.tokens import ScanToken


def schema(options: Mapping[str, str]) -> StructType:
    """The columns that a read with these options has."""
    with coded():
        parsed = ReadOptions.parse(options)
        stored = JobTable.at(parsed.path, parsed.storage).schema
        if parsed.changes:
            return changes_schema(stored, parsed.names(stored), parsed.images)
        return spark_schema(stored, parsed.names(stored))


def newest(options: Mapping[str, str]) -> int | None:
    """Up to when a DataFrame that is made now is to read, where Spark plans it anew for each action, so that
    all of them, and both sides of a join with itself, see one state; None where it is planned once."""
    if PLANS_ONCE:
        return None
    with coded():
        parsed = ReadOptions.parse(options)
        with open_handle(parsed.path, storage_options=parsed.storage) as handle:
            return handle.opened().visible_ts


class KuduPartition(InputPartition):
    """The shares of one task, or few rows that were read when it was planned."""

    def __init__(self, shares: tuple[Share, ...], rows: bytes | None = None) -> None:
        super().__init__(shares)
        self.shares = shares
        self.rows = rows


class KuduReader(DataSourceReader):
    """Plans scan tokens once for each DataFrame, so that a DataFrame is one snapshot."""

    def __init__(self, options: Mapping[str, str], schema: StructType, until: int | None = None) -> None:
        with coded():
            self._options = ReadOptions.parse(options, until)
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
        # No session here to ask for the cluster's cores; the driver's own are the least there are.
        cores = available_cores()
        with coded(), open_handle(options.path, storage_options=options.storage) as handle:
            if options.changes:
                shares = self._changes(handle)
            else:
                tokens = self._tokens(handle, cores if options.limit is None else 1)
                wanted = arrow_schema(self._schema)
                few = few_scanned(handle, tokens, wanted, options.target_rows, options.limit)
                if few is not None:
                    return [KuduPartition((), packed(few))] if few else []
                if options.limit is not None:
                    return [KuduPartition(task) for task in alone(tokens, options.limit)]
                shares = [*tokens]
        return [KuduPartition(task) for task in shared_out(shares, options.target_rows, cores)]

    def _changes(self, handle: Handle) -> list[Share]:
        options, stored = self._options, handle.engine.schema
        columns = changed_columns(stored, self._schema, options.images)
        request = ChangesRequest(columns, options.filter(stored), options.images, options.net)
        return plan_changes(handle, request, options.since, options.until, options.target_rows)

    def _tokens(self, handle: Handle, cores: int) -> list[ScanToken]:
        options, stored = self._options, handle.engine.schema
        request = ScanRequest(options.names(stored, self._schema), options.filter(stored))
        return tokens_for(handle, request, options.at, options.target_rows, cores)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Spark asks for one partition, None, when there are none.
        if not isinstance(partition, KuduPartition):
            return
        if partition.rows is not None:
            yield from unpacked([partition.rows])
            return
        wanted = arrow_schema(self._schema)
        if self._options.changes:
            yield from read_changes(partition.shares, wanted)
        else:
            tokens = [share for share in partition.shares if isinstance(share, ScanToken)]
            yield from read_tokens(tokens, wanted, self._options.limit)


@dataclass
class Staged(WriterCommitMessage):
    """What a task tells the commit."""

    told: Attempted


class KuduWriter(DataSourceArrowWriter):
    """Made once for a job; a copy of it stages in each task, another one commits."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        with coded():
            parsed = WriteOptions.parse(options, overwrite=overwrite)
            table = JobTable.at(parsed.path, parsed.storage)
            columns = staged_columns(schema, table.schema, parsed.operation, parsed.sequence_by)
            self._job: Job | None = None
            """None: the token was applied before, so there is nothing to do."""
            if parsed.txn is not None:
                with open_handle(parsed.path, storage_options=parsed.storage) as handle:
                    if jobs.applied(handle, parsed.txn) is not None:
                        return
            self._job = jobs.begin(
                table,
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
                return Staged(Attempted([]))
            return Staged(stage(self._job, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._job is not None:
            with coded():
                commit_attempts(self._job, [m.told for m in messages if isinstance(m, Staged)])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # Messages of late and failed tasks are None here, hence the whole directory.
        if self._job is not None:
            jobs.abandon(self._job)
