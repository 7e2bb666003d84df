"""Columns of Python values, NumPy's arrays and whatever speaks Arrow, as record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.rows.misfits import advice_for
from kudu_core.common.rows.nested_values import nested_array
from kudu_core.common.rows.pandas_frames import NO_COLUMN, is_pandas_series, of_series
from kudu_core.common.rows.text_times import cell_of_text, takes_text
from kudu_core.common.schema.nested_columns import NestedColumn
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.foreign import check_chunks, check_text, place
from kudu_core.common.types.scalars import stored_array
from kudu_core.common.types.stored_arrays import outward
from kudu_core.common.types.types import TYPE_DECIMAL, TYPE_FLOAT, ColumnType
from kudu_core.errors import InvalidArgument


def of_columns(
    columns: Mapping[str, Any], schema: Schema | None, first: int = 0
) -> Iterator[pa.RecordBatch]:
    """One batch, or those of the columns' own chunks.

    ``first``: the number of the first row, for messages."""
    arrays: list[pa.Array | pa.ChunkedArray] = []
    names: list[str] = []
    for name, cells in columns.items():
        if not isinstance(name, str):
            raise InvalidArgument(f"a column's name is text, not {name!r}")
        check_text(name, "a column's name")
        array = _column(name, cells, _meant(name, schema), first)
        if arrays and len(array) != len(arrays[0]):
            raise InvalidArgument(f"column {name!r} has {len(array)} rows, {names[0]!r} has {len(arrays[0])}")
        arrays.append(array)
        names.append(name)
    try:
        if any(isinstance(array, pa.ChunkedArray) for array in arrays):
            # Cut where any column is, not joined: nobody has looked at what the chunks hold.
            return of_table(pa.Table.from_arrays(arrays, names))
        return iter((pa.RecordBatch.from_arrays(arrays, names=names),))
    except pa.ArrowInvalid as error:
        for name, array in zip(names, arrays, strict=True):
            check_chunks(array, name)
        raise InvalidArgument(f"the columns make no rows: {error}".replace("\n", " ")) from None


_Meant: TypeAlias = StoredColumn | NestedColumn


def _meant(name: str, schema: Schema | None) -> _Meant | None:
    """The column that plain values are meant for."""
    if schema is None:
        return None
    found = schema.nested_by_name.get(name) or (schema.part(name) if schema.nested else None)
    return found or schema.by_name.get(name)


def of_table(table: pa.Table) -> Iterator[pa.RecordBatch]:
    if table.num_columns == 0 and table.num_rows:
        raise InvalidArgument(f"{table.num_rows} rows without any column")
    if table.num_rows == 0:
        return iter((no_rows_of(table.schema),))
    return iter(table.to_batches())


def no_rows_of(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], names=schema.names)


def of_records(records: np.ndarray, schema: Schema | None) -> Iterator[pa.RecordBatch]:
    """A structured array of NumPy: its fields are columns."""
    if records.ndim != 1:
        raise InvalidArgument(f"a structured array of {records.ndim} dimensions is no list of rows; ravel it")
    return of_columns({name: records[name] for name in records.dtype.names or ()}, schema)


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
        if is_pandas_series(cells):
            flat = None if isinstance(column, NestedColumn) else column
            return _column(name, of_series(cells, flat), column, first)
        if hasattr(cells, "__arrow_c_stream__"):
            return _column(name, pa.chunked_array(cells), column, first)
        if hasattr(cells, "__arrow_c_array__"):
            return pa.array(cells)
        if hasattr(cells, "__array__") and not isinstance(cells, np.generic):
            return pa.array(cells, from_pandas=True)
    except NO_COLUMN as error:
        raise _refused(name, cells, error, first) from None
    if isinstance(cells, str | bytes | bytearray | Mapping) or not isinstance(cells, Iterable):
        raise InvalidArgument(
            f"column {name!r} is {cells!r}, not a column of values; one row is given as [{{...}}]"
        )
    return _of_cells(name, list(cells), column, first)


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
            return nested_array(name, cells, column.layout.arrow, _flat_cells, first)
        except NO_COLUMN as error:
            raise _refused(name, cells, error, first) from None
    return _flat_cells(name, cells, None if column is None else column.type, first)


def _flat_cells(
    name: str, cells: list[Any] | np.ndarray | pa.Array, type_: ColumnType | None, first: int = 0
) -> pa.Array:
    """``cells``: also what Arrow has found in values, of a type that is not looked at here."""
    if type_ is not None and _is_checked(type_, cells):
        return _checked_cells(name, list(cells), type_, first)
    if _end_the_process(cells):
        if type_ is None:
            raise InvalidArgument(f"column {name!r}: numpy's datetime64 beside numbers")
        return _checked_cells(name, list(cells), type_, first)
    try:
        array = cells if isinstance(cells, pa.Array) else _as_array(pa.array(cells))
    except NO_COLUMN as error:
        if type_ is None:
            raise _refused(name, cells, error, first) from None
        # Not of one Arrow type: find the cell at fault, or integers beyond int64.
        return _checked_cells(name, list(cells), type_, first)
    # Python's floats have no width of their own: a literal means the nearest float of the column's.
    if type_ is not None and type_.width == 4 and pa.types.is_float64(array.type):
        return _rounded(name, array, type_) if type_.kind == TYPE_FLOAT else array
    return array


def _is_checked(type_: ColumnType, cells: list[Any] | np.ndarray) -> bool:
    """Whether Arrow would round or refuse values that the column takes: of pandas' times it drops the
    nanoseconds."""
    if type_.is_temporal:
        kinds = set(map(type, cells))
        return any(hasattr(kind, "nanosecond") or hasattr(kind, "nanoseconds") for kind in kinds)
    return type_.kind == TYPE_DECIMAL or type_.is_narrower


def _end_the_process(cells: Any) -> bool:
    """Whether Arrow would look for a type of numpy's times with numbers or bools behind them: pyarrow 26 ends
    the process then."""
    if not isinstance(cells, list):
        return False
    first = next((cell for cell in cells if cell is not None), None)
    if type(first) is not np.datetime64:
        return False
    return any(issubclass(kind, np.bool_ | np.number) for kind in set(map(type, cells)))


def _checked_cells(name: str, cells: list[Any], type_: ColumnType, first: int) -> pa.Array:
    if takes_text(type_):
        cells = [cell_of_text(cell, type_, place(name, row)) for row, cell in enumerate(cells, first)]
    try:
        return outward(stored_array(type_, cells, f"column {name!r}", first), type_)
    except InvalidArgument as error:
        advice = advice_for(pa.string(), type_)
        if advice is not None and "(str)" in str(error):
            raise InvalidArgument(f"{error}; {advice}") from None
        raise


def _rounded(name: str, array: pa.Array, type_: ColumnType) -> pa.Array:
    narrow = pc.cast(array, type_.value.declared, safe=False)
    overflow = pc.and_(pc.is_inf(narrow.cast(pa.float64())), pc.is_finite(array))
    if pc.any(overflow).as_py():
        raise InvalidArgument(f"column {name!r}: a value lies outside the range of {type_}")
    return narrow


def _as_array(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


__all__ = ["no_rows_of", "of_columns", "of_records", "of_table"]
