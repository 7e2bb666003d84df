"""Sorted rows of a call that an ALTER has overtaken (protocol G3): without the columns that were dropped
since, with the fields that were added to structs, and by the partitions of today.  Runs stay as they lie;
only the order in which they are read changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kudu_core.common.partition.partitions import PartitionSchema
from kudu_core.common.rows.keys import encode_keys
from kudu_core.common.rows.rowblock import ColumnBuffers, RowBlock
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.table.calls.refit import Refit
from kudu_core.table.runs.sorted import Run, TabletSpan, tablet_spans


@dataclass(slots=True, eq=False)
class RefittedRun:
    """A run with other columns, or in the order of other tablets."""

    base: Run
    column_ids: Sequence[int]
    spans: dict[int, TabletSpan]
    order: np.ndarray | None
    """(n,) int64 places of ``base``; None: the same ones."""
    refit: Refit
    added: Mapping[int, StoredColumn]
    """By their ids: columns that the base has not, with the same in all rows."""

    @property
    def call(self) -> int:
        return self.base.call

    @property
    def unique(self) -> bool:
        return self.base.unique

    @property
    def alone(self) -> bool:
        return self.base.alone

    @property
    def op(self) -> int | None:
        return self.base.op

    @property
    def nbytes(self) -> int:
        return self.base.nbytes

    @property
    def suspect(self) -> bool:
        return self.base.suspect or not self.refit.required.isdisjoint(self.column_ids)

    def _places(self, lower: int, upper: int) -> tuple[int, int, np.ndarray | None]:
        """(first, last): places of the base among which the rows are; and which of those, None: all."""
        if self.order is None or lower == upper:
            return lower, upper, None
        rows = self.order[lower:upper]
        first, last = int(rows.min()), int(rows.max()) + 1
        return first, last, rows - first

    def column(self, column_id: int, lower: int, upper: int) -> ColumnBuffers:
        if column_id in self.added:
            column = self.added[column_id]
            return ColumnBuffers.constant(column.type, column.read_default, upper - lower)
        first, last, rows = self._places(lower, upper)
        read = self.refit.cells(column_id, self.base.column(column_id, first, last))
        return read if rows is None else read.take(rows)

    def numbers(self, lower: int, upper: int) -> np.ndarray:
        first, last, rows = self._places(lower, upper)
        read = self.base.numbers(first, last)
        return read if rows is None else read[rows]

    def ops(self, lower: int, upper: int) -> np.ndarray:
        first, last, rows = self._places(lower, upper)
        read = self.base.ops(first, last)
        return read if rows is None else read[rows]

    def status(self, lower: int, upper: int) -> np.ndarray | None:
        first, last, rows = self._places(lower, upper)
        read = self.base.status(first, last)
        status = read if read is None or rows is None else read[rows]
        required = self.refit.required.intersection(self.column_ids)
        columns = {i: self.column(i, lower, upper) for i in required}
        return self.refit.status(columns, upper - lower, status)


def refitted(form: Schema, schema: Schema, partitions: PartitionSchema, run: Run) -> Run:
    """The run, which is in the form of another schema, as this schema and these partitions have it."""
    refit = Refit(form, schema)
    columns = [i for i in run.column_ids if refit.keeps(i)]
    added = {column.id: column for column in refit.added(columns)}
    columns += added
    count = max((s.upper for s in run.spans.values()), default=0)
    before = np.empty(count, np.int32)
    for ordinal, span in run.spans.items():
        before[span.lower : span.upper] = ordinal
    block = RowBlock({i: refit.cells(i, run.column(i, 0, count)) for i in schema.key_ids}, count)
    route = partitions.route(block)
    if bool((route == before).all()):
        if columns == list(run.column_ids) and not refit.is_other:
            return run
        return RefittedRun(run, columns, run.spans, None, refit, added)
    order, spans = tablet_spans(encode_keys(schema, block), route)
    return RefittedRun(run, columns, spans, order, refit, added)


__all__ = ["refitted"]
