"""Changes as Arrow has them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

from kudu_core.common.rows.rowblock import ColumnBuffers
from kudu_core.rowset.history.window import EVENT_DELETED, EVENT_INSERTED
from kudu_core.table.changes.change_blocks import ChangeBlock
from kudu_core.table.changes.changes_plan import ChangesPlan

OP_NAMES = ("insert", "update", "delete")
BATCH_ROWS = 65_536
_SAME = cache(lambda op: pa.repeat(OP_NAMES[op], BATCH_ROWS))
"""A batch of one operation; made when it is first wanted, as pyarrow imports pandas for it."""


def batch_of(
    plan: ChangesPlan, piece: ChangeBlock, lower: int, upper: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Changes numbered ``[lower, upper)`` of a block as Arrow."""
    ops = piece.ops[lower:upper]
    arrays: list[pa.Array] = [
        _op_names(ops),
        pa.array(piece.timestamps[lower:upper]),
    ]
    after: list[pa.Array] = []
    keys = set(plan.schema.key_ids)
    gone = ops == EVENT_DELETED
    some_gone = bool(gone.any())
    for column in plan.columns:
        values = piece.after[column.id].slice(lower, upper)
        if some_gone and column.id not in keys:
            values = _with_nulls(values, gone)
        after.append(values.to_arrow(column.type))
    arrays += plan.shown.arrays(after, gone)
    if plan.both:
        new = ops == EVENT_INSERTED
        images = [piece.before[c.id].slice(lower, upper).to_arrow(c.type) for c in plan.columns]
        images, fields = plan.shown.arrays(images, new), list(plan.shown.arrow)
        if images:
            arrays.append(pa.StructArray.from_arrays(images, fields=fields, mask=pa.array(new)))
        else:
            present = pa.py_buffer(np.packbits(~new, bitorder="little"))
            arrays.append(pa.Array.from_buffers(pa.struct([]), upper - lower, [present]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _op_names(ops: np.ndarray) -> pa.Array:
    if len(ops) and bool((ops == ops[0]).all()):
        return _SAME(int(ops[0])).slice(0, len(ops))
    return pa.DictionaryArray.from_arrays(pa.array(ops, pa.uint8()), pa.array(OP_NAMES)).cast(pa.string())


def _with_nulls(values: ColumnBuffers, gone: np.ndarray) -> ColumnBuffers:
    bits = np.packbits(~gone, bitorder="little")
    if values.validity is not None:
        bits = bits & values.validity[: len(bits)]
    return ColumnBuffers(values.width, values.length, values.values, values.offsets, bits)


def rows_only(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])


__all__ = ["BATCH_ROWS", "OP_NAMES", "batch_of", "rows_only"]
