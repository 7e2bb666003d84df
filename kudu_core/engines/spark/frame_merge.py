"""Merges of a DataFrame: tasks make its rows, the process that has the table open for writing decides them.

Rows come as Arrow, a partition after the other, and wait in a file of the table where they are many.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame

from kudu_core.engines.spark.codes import uncoded
from kudu_core.engines.spark.few import few_rows
from kudu_core.engines.spark.handles import PathOrTable, StorageOptions, given_handle, reading
from kudu_core.engines.spark.schema import binary_cells, unsigned
from kudu_core.engines.spark.staging import packed, unpacked
from kudu_core.table.lifecycle.handles import open_handle
from kudu_core.table.merge.merge_rows import Asked, MergeResult, executed
from kudu_core.table.merge.merge_source import key_names
from kudu_core.table.merge.put_together import MergeClauses, check_duplicates
from kudu_core.table.opened.handle import Handle

if TYPE_CHECKING:
    from kudu_core.table.calls.arguments import OnDuplicate


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
        rows = (self._of_table(batch) for batch in fetched(self._df))
        asked = Asked(rows, self._on, self.clauses, last_by=self._last_by)
        with self._writing() as handle:
            return executed(handle.for_writing(), asked, "raise", txn, on_repeat)

    def _of_table(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch in types that the table's columns take."""
        mine = {theirs: key for key, theirs in self._on.items()}
        names = batch.schema.names
        known = [self._schema.by_name.get(mine.get(name, name)) for name in names]
        arrays = [
            array if column is None else unsigned(array, column.type, name)
            for array, column, name in zip(batch.columns, known, names, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=names)

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

    Spark computes the rows; they are decided and written by this process, which has the table open for
    writing meanwhile.  What can be said without looking at rows that are there is faster by ``write``, whose
    tasks make the table's files.

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


def fetched(df: DataFrame) -> Iterator[pa.RecordBatch]:
    """The rows of a frame, one partition after the other, so that no more than two are here at once."""
    few = few_rows(df)
    if few is not None:
        yield from few
        return
    with uncoded():
        for row in df.mapInArrow(_packed, "rows binary").toLocalIterator(prefetchPartitions=True):
            yield from unpacked([bytes(row.rows)])


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([binary_cells([packed([batch])])], ["rows"])


__all__ = ["FrameMerge", "merge"]
