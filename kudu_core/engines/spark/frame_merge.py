"""Merges of a DataFrame: tasks decide its rows, the process that has the table open for writing applies them.

That process decides them itself where they are few, where a clause is of rows for which none is given, in an
object store, and where somebody has written to the table since the tasks looked at it.  Then they come to it
as Arrow, a partition after the other, and wait in a file of the table where they are many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame

from kudu_core.common.idempotence.writers import Txn, check_txn
from kudu_core.common.schema.schema import Schema
from kudu_core.engines.spark.cache import newest_handle
from kudu_core.engines.spark.codes import coded, uncoded
from kudu_core.engines.spark.few import few_rows
from kudu_core.engines.spark.handles import PathOrTable, StorageOptions, given_handle, reading
from kudu_core.engines.spark.scan import collected
from kudu_core.engines.spark.schema import binary_cells, unsigned
from kudu_core.engines.spark.staging import attempt_name, packed, unpacked
from kudu_core.engines.spark.write import Task, routed
from kudu_core.table.jobs.merge_shares import (
    DecidedShare,
    ShareOrder,
    SharesOvertaken,
    decide_share,
    shared_merge,
)
from kudu_core.table.lifecycle.handles import open_handle
from kudu_core.table.merge.merge_rows import Asked, MergeResult, executed
from kudu_core.table.merge.merge_source import key_names
from kudu_core.table.merge.put_together import MergeClauses, check_duplicates
from kudu_core.table.opened.handle import Handle

if TYPE_CHECKING:
    from kudu_core.table.calls.arguments import OnDuplicate
    from kudu_core.table.opened.engine import Engine


class FrameMerge(MergeClauses):
    """A merge of a DataFrame's rows that is put together, as ``kudu_core.Merge`` is.

    >>> ks.merge(df, stock).when_not_matched_insert(where=pc.field("id") > 100).execute().ignored
    1
    """

    def __init__(
        self,
        df: DataFrame,
        table: PathOrTable,
        on: Any,
        on_duplicate: str,
        sequence_by: str | None,
        lock_timeout_s: float | None,
        storage_options: StorageOptions,
    ) -> None:
        check_duplicates(on_duplicate, sequence_by)
        with reading(table, storage_options) as handle:
            schema, options = handle.opened().schema, handle.opened().asked_options
        super().__init__(schema)
        self._df, self._table, self._storage_options = df, table, storage_options
        self._on = key_names(schema, on)
        self._last_by = sequence_by
        self._timeout_s = options.lock_timeout_s if lock_timeout_s is None else lock_timeout_s

    def execute(
        self, *, txn: tuple[str, int] | tuple[str, int, str] | None = None, on_repeat: str = "check"
    ) -> MergeResult:
        """Decide and apply it as one write, all or nothing, as ``Merge.execute``, whose errors these are.

        ``txn`` in ``foreachBatch``: ``(name of the query, number of the batch)``.
        """
        clauses, token = self.clauses, check_txn(txn, on_repeat)
        with self._writing() as handle:
            engine = handle.for_writing()
            few = few_rows(self._df)
            if few is None and self._is_for_tasks(engine):
                try:
                    return self._by_tasks(engine, token)
                except SharesOvertaken:
                    pass  # as if no task had looked
            given = fetched(self._df) if few is None else iter(few)
            rows = (of_table(self._schema, self._on, batch) for batch in given)
            asked = Asked(rows, self._on, clauses, last_by=self._last_by)
            return executed(engine, asked, "raise", txn, on_repeat)

    def _is_for_tasks(self, engine: Engine) -> bool:
        """Whether tasks can decide the rows."""
        if engine.in_store or any(clause.of == "by_source" for clause in self.clauses):
            return False
        names = self._df.columns
        return all(
            theirs in names and (mine == theirs or mine not in names) for mine, theirs in self._on.items()
        )

    def _by_tasks(self, engine: Engine, token: Txn | None) -> MergeResult:
        """Rows brought together by tablet, decided by tasks, applied here."""
        df = self._df
        for mine, theirs in self._on.items():
            if mine != theirs:
                df = df.withColumnRenamed(theirs, mine)
        schema, partitions = engine.schema, engine.tablets.partitions
        on = {name: name for name in schema.key_names}
        if self._last_by is not None or len(partitions.partitions) > 1:  # rows of a key come together
            df = routed(df, schema, partitions)
        with shared_merge(
            engine, on, self.clauses, self._renamed(self._last_by), is_named=token is not None
        ) as merge:
            answers = collected(df.mapInArrow(deciding_function(merge.order), "told binary"))
            shares = [DecidedShare.from_bytes(bytes(row.told)) if row.told else None for row in answers]
            return merge.applied(shares, "raise", token)

    def _renamed(self, name: str | None) -> str | None:
        return next((mine for mine, theirs in self._on.items() if theirs == name), name)

    def _writing(self) -> AbstractContextManager[Handle]:
        """The table, open for writing: given so, or opened for this merge."""
        given = given_handle(self._table, self._storage_options)
        if given is not None:
            return nullcontext(given)
        return open_handle(
            str(self._table), "rw", timeout_s=self._timeout_s, storage_options=self._storage_options
        )


def merge(
    df: DataFrame,
    table: PathOrTable,
    on: Any = None,
    *,
    on_duplicate: OnDuplicate = "error",
    sequence_by: str | None = None,
    lock_timeout_s: float | None = None,
    storage_options: StorageOptions = None,
) -> FrameMerge:
    """Begin a merge of a DataFrame's rows into a table, as ``kudu_core.Table.merge`` does.

    Tasks compute the rows, decide them and make files of what they come to; this process, which has the table
    open for writing meanwhile, applies them as one change.  It decides the rows itself where they are few,
    with ``when_not_matched_by_source``, in an object store, and where another thread of it has written to
    their tablets meanwhile.

    >>> ks.merge(df, stock).when_matched().when_not_matched_insert().execute().clauses
    (0, 1)

    Parameters
    ----------
    table, lock_timeout_s, storage_options
        As of ``write``.
    on, on_duplicate, sequence_by
        As of ``kudu_core.Table.merge``.
    """
    return FrameMerge(df, table, on, on_duplicate, sequence_by, lock_timeout_s, storage_options)


def of_table(schema: Schema, on: Mapping[str, str], batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of Spark's in types that the table's columns take."""
    mine = {theirs: key for key, theirs in on.items()}
    names = batch.schema.names
    known = [schema.by_name.get(mine.get(name, name)) for name in names]
    arrays = [
        array if column is None else unsigned(array, column.type, name)
        for array, column, name in zip(batch.columns, known, names, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def deciding_function(order: ShareOrder) -> Task:
    """For ``mapInArrow``: takes rows, gives back what they have come to, in one row; NULL: nobody knows."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with coded():

            def find() -> Handle:
                return newest_handle(order.table_path)

            def rows() -> Iterator[pa.RecordBatch]:
                schema = None
                for batch in batches:
                    schema = find().opened().schema if schema is None else schema
                    yield of_table(schema, order.on, batch)

            share = decide_share(find, order, rows(), attempt_name())
        told = pa.nulls(1, pa.binary()) if share is None else binary_cells([share.to_bytes()])
        yield pa.RecordBatch.from_arrays([told], ["told"])

    return run


def fetched(df: DataFrame) -> Iterator[pa.RecordBatch]:
    """The rows of a frame, one partition after the other, so that no more than two are here at once."""
    with uncoded():
        for row in df.mapInArrow(_packed, "rows binary").toLocalIterator(prefetchPartitions=True):
            yield from unpacked([bytes(row.rows)])


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([binary_cells([packed([batch])])], ["rows"])


__all__ = ["FrameMerge", "merge"]
