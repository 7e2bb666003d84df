"""Whatever a caller hands to a write, as Arrow record batches.

Knows every container that data comes in, and nothing of what a table does with it: types are
checked in ``conform.py``.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.rows.nested_values import nested_array
from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.foreign import check_chunks, check_text, place
from kudu_core.common.types.scalars import stored_array
from kudu_core.common.types.stored_arrays import outward
from kudu_core.common.types.types import TYPE_DECIMAL, TYPE_FLOAT, ColumnType
from kudu_core.errors import InvalidArgument

_ROWS_AT_ONCE = 65536
_ACCEPTED = (
    "an Arrow table, batch or reader, a polars, pandas or Spark frame, a DuckDB relation, a dict of "
    "columns, a list of dicts, or an iterable of record batches"
)


def batches(data: Any, schema: Schema | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of ``data`` in order, as record batches.

    At least one batch comes (perhaps of no rows) when the data has columns, so that its columns
    can be checked; data without columns and rows gives none.  Batches of one call may have
    different columns: each says which it gives.

    ``schema`` is the table's.  It guides plain Python values, which carry no Arrow type: a list of
    floats for a float32 column is rounded, a list for a decimal column may mix int and Decimal.

    ``InvalidArgument`` for data of no known kind, columns of different lengths, or values that make
    no column; an exception out of a reader or generator passes through.
    """
    return (b for b in _batches(data, schema) if b.num_columns or b.num_rows)


def _batches(data: Any, schema: Schema | None) -> Iterator[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        return iter((data,))
    if isinstance(data, pa.Table):
        return _of_table(data)
    if isinstance(data, Mapping):
        return _of_columns(data, schema)
    if is_pandas_frame(data):
        return _of_table(of_pandas(data, schema))
    if hasattr(data, "__arrow_c_stream__"):
        return _of_reader(_opened(data))
    if hasattr(data, "__arrow_c_array__"):
        return iter((_from_c_array(data),))
    if isinstance(data, str | bytes | bytearray | np.ndarray) or not isinstance(data, Iterable):
        raise InvalidArgument(f"{type(data).__name__} is no kind of rows; give {_ACCEPTED}")
    return _of_iterable(data, schema)


def _opened(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    try:
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidArgument(f"{type(data).__name__} is no stream of rows: {error}") from None


def _of_reader(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    empty = True
    for batch in reader:
        empty = False
        yield batch
    if empty:
        yield _empty(reader.schema)


def _of_table(table: pa.Table) -> Iterator[pa.RecordBatch]:
    if table.num_columns == 0 and table.num_rows:
        raise InvalidArgument(f"{table.num_rows} rows without any column")
    if table.num_rows == 0:
        return iter((_empty(table.schema),))
    return iter(table.to_batches())


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], names=schema.names)


def _from_c_array(data: Any) -> pa.RecordBatch:
    try:
        return pa.record_batch(data)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise InvalidArgument(f"{type(data).__name__} is one column; rows are a struct: {error}") from None


def _of_iterable(data: Iterable[Any], schema: Schema | None) -> Iterator[pa.RecordBatch]:
    """Record batches (or what exports them) and dicts, mixed at will."""
    first = 0
    for is_row, items in groupby(data, lambda item: isinstance(item, Mapping)):
        if is_row:
            while rows := list(islice(items, _ROWS_AT_ONCE)):
                yield from _of_rows(rows, schema, first)
                first += len(rows)
            continue
        for item in items:
            if not hasattr(item, "__arrow_c_stream__") and not hasattr(item, "__arrow_c_array__"):
                raise InvalidArgument(f"{type(item).__name__} among the rows; give {_ACCEPTED}")
            for batch in _batches(item, schema):
                first += batch.num_rows
                yield batch


# ------------------------------------------------------------------------------ plain Python data


def _of_rows(
    rows: Sequence[Mapping[str, Any]], schema: Schema | None, first: int
) -> Iterator[pa.RecordBatch]:
    """A row without a column differs from one with NULL there, so each run of like rows is a batch.

    ``first``: the number of the first row, for messages."""
    for names, run in groupby(rows, frozenset):
        group = list(run)
        if not names:
            raise InvalidArgument("a row without any column")
        yield from _of_columns({name: [row[name] for row in group] for name in group[0]}, schema, first)
        first += len(group)


def _of_columns(
    columns: Mapping[str, Any], schema: Schema | None, first: int = 0
) -> Iterator[pa.RecordBatch]:
    """One batch, or those of the columns' own chunks."""
    arrays: list[pa.Array | pa.ChunkedArray] = []
    names: list[str] = []
    for name, cells in columns.items():
        if not isinstance(name, str):
            raise InvalidArgument(f"a column's name is text, not {name!r}")
        check_text(name, "a column's name")
        array = _column(name, cells, _declared(name, schema), first)
        if arrays and len(array) != len(arrays[0]):
            raise InvalidArgument(f"column {name!r} has {len(array)} rows, {names[0]!r} has {len(arrays[0])}")
        arrays.append(array)
        names.append(name)
    try:
        if any(isinstance(array, pa.ChunkedArray) for array in arrays):
            # Cut where any column is, not joined: nobody has looked at what the chunks hold.
            return _of_table(pa.Table.from_arrays(arrays, names))
        return iter((pa.RecordBatch.from_arrays(arrays, names=names),))
    except pa.ArrowInvalid as error:
        for name, array in zip(names, arrays, strict=True):
            check_chunks(array, name)
        raise InvalidArgument(f"the columns make no rows: {error}".replace("\n", " ")) from None


_Meant: TypeAlias = StoredColumn | NestedColumn


def _declared(name: str, schema: Schema | None) -> _Meant | None:
    """The column that plain values are meant for."""
    if schema is None:
        return None
    found = schema.nested_by_name.get(name) or (schema.part(name) if schema.nested else None)
    return found or schema.by_name.get(name)


def _column(name: str, cells: Any, column: _Meant | None, first: int) -> pa.Array | pa.ChunkedArray:
    if isinstance(cells, pa.ChunkedArray):
        return cells.chunk(0) if cells.num_chunks == 1 else cells
    if isinstance(cells, pa.Array):
        return cells
    try:
        if isinstance(cells, np.ndarray):
            if cells.ndim != 1:
                raise InvalidArgument(f"column {name!r} has {cells.ndim} dimensions")
            if cells.dtype != np.object_:
                return pa.array(cells)
            return _of_cells(name, cells.tolist(), column, first)
        if hasattr(cells, "__arrow_c_stream__"):
            return _column(name, pa.chunked_array(cells), column, first)
        if hasattr(cells, "__arrow_c_array__"):
            return pa.array(cells)
        if hasattr(cells, "__array__") and not isinstance(cells, np.generic):
            return pa.array(cells, from_pandas=True)
    except _NO_COLUMN as error:
        raise _refused(name, cells, error, first) from None
    if isinstance(cells, str | bytes | bytearray | Mapping) or not isinstance(cells, Iterable):
        raise InvalidArgument(
            f"column {name!r} is {cells!r}, not a column of values; one row is given as [{{...}}]"
        )
    return _of_cells(name, list(cells), column, first)


_NO_COLUMN = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    ValueError,  # a UnicodeEncodeError is one
)
"""What pyarrow raises where Python's values make no column."""


def _refused(name: str, cells: Any, error: Exception, first: int) -> InvalidArgument:
    """The error of values that make no column, with the row where that is found."""
    if isinstance(error, InvalidArgument):
        return error
    if isinstance(error, UnicodeEncodeError):
        for row, cell in enumerate(cells, first):
            check_text(cell, place(name, row))
    return InvalidArgument(f"column {name!r}: {error}".replace("\n", " "))


def _of_cells(name: str, cells: list[Any], column: _Meant | None, first: int) -> pa.Array:
    """Python values, without the roundings that Arrow does when it is told a type."""
    if isinstance(column, NestedColumn):
        try:
            return nested_array(name, cells, column.layout.arrow, first)
        except _NO_COLUMN as error:
            raise _refused(name, cells, error, first) from None
    if column is not None and _is_checked(column.type, cells):
        return _checked_cells(name, cells, column, first)
    try:
        array = _as_array(pa.array(cells))
    except _NO_COLUMN as error:
        if column is None:
            raise _refused(name, cells, error, first) from None
        # Not of one Arrow type: find the cell at fault, or integers beyond int64.
        return _checked_cells(name, cells, column, first)
    # Python's floats have no width of their own: a literal means the nearest float32.
    if column is not None and column.type.width == 4 and pa.types.is_float64(array.type):
        return _rounded(name, array, column.type) if column.type.kind == TYPE_FLOAT else array
    return array


_PLAIN_TIMES = frozenset((dt.datetime, dt.date, dt.time, dt.timedelta, type(None)))


def _is_checked(type_: ColumnType, cells: list[Any]) -> bool:
    """Whether Arrow would round or refuse values that the column takes: of pandas' times it drops the
    nanoseconds."""
    if type_.is_temporal:
        return not _PLAIN_TIMES.issuperset(map(type, cells))
    return type_.kind == TYPE_DECIMAL or type_.is_narrower


def _checked_cells(name: str, cells: list[Any], column: StoredColumn, first: int) -> pa.Array:
    return outward(stored_array(column.type, cells, f"column {name!r}", first), column.type)


def _rounded(name: str, array: pa.Array, type_: ColumnType) -> pa.Array:
    narrow = pc.cast(array, type_.declared, safe=False)
    overflow = pc.and_(pc.is_inf(narrow.cast(pa.float64())), pc.is_finite(array))
    if pc.any(overflow).as_py():
        raise InvalidArgument(f"column {name!r}: a value lies outside the range of {type_}")
    return narrow


def _as_array(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


# ----------------------------------------------------------------------------------- pandas frames


def is_pandas_frame(data: Any) -> bool:
    """Without importing pandas: a frame exists only where it is imported, which another thread may be at."""
    frame: type | None = getattr(sys.modules.get("pandas"), "DataFrame", None)
    return frame is not None and isinstance(data, frame)


def of_pandas(frame: Any, schema: Schema | None) -> pa.Table:
    """A frame's columns, and the levels of its index that bear names.

    pandas writes missing integers as floats with NaN: a float column for an integer column is
    taken when every value is a whole number.
    """
    named = [name for name in frame.index.names if isinstance(name, str) and name not in frame.columns]
    if named:
        unnamed = [i for i, name in enumerate(frame.index.names) if name not in named]
        frame = (frame.reset_index(level=unnamed, drop=True) if unnamed else frame).reset_index()
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except _NO_COLUMN as error:
        for name in frame.columns if isinstance(error, UnicodeEncodeError) else ():
            check_text(name, "a column's name")
            for row, cell in enumerate(frame[name]):
                check_text(cell, place(name, row))
        raise InvalidArgument(f"pandas frame: {error}".replace("\n", " ")) from None
    if schema is None:
        return table
    for position, field in enumerate(table.schema):
        column = schema.by_name.get(field.name)
        if column is None or not pa.types.is_floating(field.type) or not _is_integer(column):
            continue
        given = table.column(position)
        check_chunks(given, field.name)
        try:
            whole = pc.cast(given, column.type.arrow)
        except pa.ArrowInvalid as error:
            raise InvalidArgument(f"column {field.name!r} is {column.type}: {error}") from None
        table = table.set_column(position, field.name, whole)
    return table


def _is_integer(column: StoredColumn) -> bool:
    return bool(pa.types.is_integer(column.type.arrow))
