"""``Table.restore_to``: the rows of a past time become those of now, by one record.

Under every flush lane and mutex, as a ``where=`` write of many rows, so that nothing comes between: the net
changes from that time until now are read, each with the row before it, turned round, and applied by a bulk
ingest.  So the cost follows the rows that differ.  A key that came since is deleted, one that went is
inserted, one that changed is updated in all its columns.

Everything is in the columns of today (protocol A3): what that time had in a column that was dropped since
does not come back, and of a column that was added since it has the default.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.schema.column_names import OP_COLUMN
from kudu_core.errors import InvalidArgument, RowErrors
from kudu_core.table.calls.conform import apply_calls
from kudu_core.table.changes.changes import BEFORE_NAME, open_changes
from kudu_core.table.changes.changes_plan import ChangesRequest
from kudu_core.table.ingest.ingest import ingest_made
from kudu_core.table.ingest.spill import sorted_or_spilled
from kudu_core.table.read.moment import snapshot_timestamp
from kudu_core.table.runs.spilled import OpenRuns
from kudu_core.table.write.door import KEPT_DIVISOR

if TYPE_CHECKING:
    from kudu_core.common.schema.schema import Schema
    from kudu_core.table.calls.result import WriteResult
    from kudu_core.table.ingest.build import SortedRows
    from kudu_core.table.opened.handle import Handle

_BACK = {"insert": "delete", "update": "update", "delete": "insert"}
"""What was done, and what takes it back."""


def restore_to(handle: Handle, at: Any) -> WriteResult:
    """The walk behind ``Table.restore_to``."""
    engine = handle.for_writing()
    moment = snapshot_timestamp(engine, at)
    with engine.pins.pin(moment), closing(OpenRuns(engine.fs.local)) as files:

        def made(staging: str) -> SortedRows:
            now = max(engine.log.cut(), moment)
            engine.wait_visible(now)
            request = ChangesRequest(images="both", net=True, stored=True)
            back = _turned_round(engine.schema, iter(open_changes(handle, request, moment, now)))
            calls = apply_calls(engine.schema, back, OP_COLUMN, stored=True)
            most_bytes = engine.options.memory_bytes // KEPT_DIVISOR
            return sorted_or_spilled(engine, calls, staging, files, most_bytes)

        engine.memory.admit()
        try:
            return ingest_made(engine, made)
        except RowErrors as refused:
            raise _dropped_ranges(refused, moment) from None


def _turned_round(schema: Schema, changes: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What takes the changes back."""
    keys = set(schema.key_names)
    done, back = pa.array(list(_BACK)), pa.array(list(_BACK.values()))
    names = [OP_COLUMN, *(column.name for column in schema.columns)]
    for batch in changes:
        before = batch.column(BEFORE_NAME)
        arrays = [back.take(pc.index_in(batch.column(OP_COLUMN), value_set=done))]
        for place, column in enumerate(schema.columns):
            # Of a row that came there is nothing before; its key is in all of them.
            arrays.append(batch.column(column.name) if column.name in keys else before.field(place))
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _dropped_ranges(refused: RowErrors, moment: int) -> Exception:
    """What is told where rows of then belong to no range of now."""
    codes = set(refused.errors["code"].to_pylist())
    if codes != {"no_partition"}:
        return refused
    first = refused.errors["key"][0].as_py()
    return InvalidArgument(
        f"{refused.errors.num_rows:,} rows of {moment} lie in ranges that were dropped since, as {first}: "
        "add these ranges before, with alter(add_range=...); nothing was changed"
    )


__all__ = ["restore_to"]
