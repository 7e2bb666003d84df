"""Rows that have expired: as a predicate of scans, and as a mask of rows that were looked up.

Every read that users make has one moment by which it tells what has expired: that of the snapshot that it was
given, else the wall clock when it began.  It is looked at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.schema.rowcodec import row_shape
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types import values
from kudu_core.common.types.types import ColumnType
from kudu_core.common.where.predicates import Filter, compile_where
from kudu_core.errors import InternalError
from kudu_core.table.read.moment import PinnedMoment

if TYPE_CHECKING:
    from kudu_core._ext.row.shape import RowShape
    from kudu_core.table.opened.engine import Engine

UNASKED = "\0time"
_SHAPES_KEPT = 64
"""Of one schema, of rows of some columns."""


def expiry_clock(engine: Engine, at: Any) -> int:
    """The moment by which a read at ``at`` tells what has expired, in microseconds of UTC since 1970."""
    known = at.clock_us if isinstance(at, PinnedMoment) else None
    return engine.clock.now_us() if known is None else known


def time_column(schema: Schema) -> StoredColumn:
    """The column with the times of rows, of a schema that has a ``ttl``."""
    assert schema.ttl is not None
    return schema.by_id[schema.ttl.column_id]


def with_time(schema: Schema, columns: Sequence[StoredColumn]) -> tuple[StoredColumn, ...]:
    """Columns of a row, of which the time is read as a number: not every time is one of Python's.

    Where it is not among them it comes last, under a name that is nobody's.
    """
    asked, unasked = _time_as_number(schema)
    time = time_column(schema)
    if time in columns:
        return tuple([asked if column is time else column for column in columns])
    return (*columns, unasked)


def row_alive(schema: Schema, row: dict[str, Any], now_us: int) -> dict[str, Any] | None:
    """The row of ``with_time``, with the time as Python has it or without one; None: it has expired."""
    assert schema.ttl is not None
    time = time_column(schema)
    name = time.name if time.name in row else UNASKED
    cell, last = row[name], schema.ttl.last_expired(time.type, now_us)
    if cell is not None and last is not None and cell <= last:
        return None
    if name == UNASKED:
        del row[name]
    elif cell is not None:
        row[name] = values.python(time.type, cell, f"column {name!r}")
    return row


def _time_as_number(schema: Schema) -> tuple[StoredColumn, StoredColumn]:
    """The column with the time as a number, under its name and under ``UNASKED``."""
    found: tuple[StoredColumn, StoredColumn] | None = schema.kept.get("time as number")
    if found is None:
        column = time_column(schema)
        type_ = ColumnType.parse("int32" if column.type.width == 4 else "int64")
        default = column.read_default
        number = None if default is None else values.physical(column.type, default)
        asked = replace(column, type=type_, read_default=number)
        found = schema.kept["time as number"] = (asked, replace(asked, name=UNASKED))
    return found


def timed_shape(schema: Schema, columns: Sequence[StoredColumn]) -> RowShape:
    """How rows of these columns, one of them the time as a number, become dicts."""
    shapes: dict[tuple[Any, ...], RowShape] = schema.kept.setdefault("timed shapes", {})
    known = (columns[-1].name == UNASKED, *[column.id for column in columns])
    found = shapes.get(known)
    if found is None:
        if len(shapes) >= _SHAPES_KEPT:
            shapes = schema.kept["timed shapes"] = {}
        found = shapes[known] = row_shape(columns)
    return found


def last_expired(schema: Schema, now_us: int) -> pa.Scalar | None:
    """The largest time whose row has expired, as the column has it; None: no row has."""
    assert schema.ttl is not None
    type_ = time_column(schema).type
    last = schema.ttl.last_expired(type_, now_us)
    if last is None:
        return None
    return pa.array([last], pa.int32() if type_.width == 4 else pa.int64()).view(type_.arrow)[0]


def expired(schema: Schema, now_us: int) -> pc.Expression | None:
    """True of rows that have expired; None: there can be none."""
    last = None if schema.ttl is None else last_expired(schema, now_us)
    return None if last is None else pc.field(time_column(schema).name) <= last


def without_expired(where: Filter | None, schema: Schema, now_us: int | None) -> Filter | None:
    """A predicate that besides leaves out what has expired.  ``now_us``: None where nobody has said; then the
    schema has no ``ttl``."""
    if schema.ttl is None:
        return where
    if now_us is None:
        raise InternalError("a read of a table with ttl has no clock by which rows expire")
    last = last_expired(schema, now_us)
    if last is None:
        return where
    column = time_column(schema)
    alive = pc.field(column.name) > last
    if column.nullable:
        alive = pc.field(column.name).is_null() | alive
    return compile_where(alive if where is None else where.expression & alive, schema)


def are_expired(times: pa.Array | pa.ChunkedArray, schema: Schema, now_us: int) -> npt.NDArray[np.bool_]:
    """(rows,) bool: which rows with these times have expired."""
    last = last_expired(schema, now_us)
    if last is None:
        return np.zeros(len(times), np.bool_)
    mask: npt.NDArray[np.bool_] = (
        pc.less_equal(times, last).fill_null(False).to_numpy(zero_copy_only=False)
    )
    return mask


def hidden(rows: pa.RecordBatch, mask: npt.NDArray[np.bool_], keys: frozenset[str]) -> pa.RecordBatch:
    """Rows that were looked up, the last column saying which are there, without those of a mask: they are not
    there, and NULL but for the columns of these names."""
    if not mask.any():
        return rows
    kept = pa.array(~mask)
    arrays = [
        column if field.name in keys else pc.if_else(kept, column, pa.scalar(None, column.type))
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]
    arrays[-1] = pc.and_(rows.columns[-1], kept)
    return pa.RecordBatch.from_arrays(arrays, schema=rows.schema)


__all__ = [
    "are_expired",
    "expired",
    "expiry_clock",
    "hidden",
    "last_expired",
    "row_alive",
    "time_column",
    "timed_shape",
    "with_time",
    "without_expired",
]
