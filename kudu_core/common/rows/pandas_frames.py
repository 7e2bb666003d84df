"""Frames and series of pandas as Arrow, without importing it.

pandas has one word for what is missing, NaN, and so a column in which everything is missing is one of floats:
it says nothing of the type of its values, and comes out as a column of NULLs, which every type takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.schema.given_schema import is_of_pandas, with_named_levels
from kudu_core.common.schema.schema import Schema, StoredColumn
from kudu_core.common.types.foreign import check_chunks, check_text, place
from kudu_core.errors import InvalidArgument

NO_COLUMN = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    ValueError,  # a UnicodeEncodeError is one
)
"""What pyarrow raises where values make no column."""


def is_pandas_frame(data: Any) -> bool:
    """Without importing pandas: a frame exists only where it is imported, which another thread may be at."""
    return is_of_pandas(data, "DataFrame")


def is_pandas_series(data: Any) -> bool:
    """As ``is_pandas_frame``, of one column."""
    return is_of_pandas(data, "Series")


def of_pandas(frame: Any, schema: Schema | None) -> pa.Table:
    """A frame's columns, and the levels of its index that bear names.

    pandas writes missing integers as floats with NaN: a float column for an integer column is
    taken when every value is a whole number.
    """
    frame = with_named_levels(frame)
    maps = {} if schema is None else _maps(frame, schema)
    if maps:
        frame = frame.assign(**maps)
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except NO_COLUMN as error:
        for name in frame.columns if isinstance(error, UnicodeEncodeError) else ():
            check_text(name, "a column's name")
            for row, cell in enumerate(frame[name]):
                check_text(cell, place(name, row))
        raise InvalidArgument(f"pandas frame: {error}".replace("\n", " ")) from None
    if schema is None:
        return table
    for position, field in enumerate(table.schema):
        column = schema.by_name.get(field.name)
        if column is None or not pa.types.is_floating(field.type):
            continue
        fitting = of_floats(table.column(position), column)
        if fitting.type != field.type:
            table = table.set_column(position, field.name, fitting)
    return table


def _maps(frame: Any, schema: Schema) -> dict[str, Any]:
    """Columns of maps with their pairs as structs: Arrow, which is told no type here, makes none of pairs."""
    return {
        one.name: frame[one.name].map(lambda cell, type_=one.type: _entries(cell, type_))
        for one in schema.nested
        if pa.types.is_map(one.type) and one.name in frame.columns and frame[one.name].dtype == object
    }


def _entries(cell: Any, type_: pa.MapType) -> Any:
    pairs = list(cell.items()) if isinstance(cell, Mapping) else cell
    if not isinstance(pairs, list | tuple) or any(not isinstance(p, tuple) or len(p) != 2 for p in pairs):
        return cell
    names = type_.key_field.name, type_.item_field.name
    return [dict(zip(names, pair, strict=True)) for pair in pairs]


def of_series(series: Any, column: StoredColumn | None) -> pa.Array | pa.ChunkedArray:
    """A series' values, as those of a frame's column."""
    given = pa.array(series, from_pandas=True)
    if column is None or not pa.types.is_floating(given.type):
        return given
    return of_floats(given, column)


def of_floats(given: pa.Array | pa.ChunkedArray, column: StoredColumn) -> pa.Array | pa.ChunkedArray:
    """Floats of pandas for a column: all missing, or whole numbers for integers, or as they are."""
    if pa.types.is_floating(column.type.arrow):
        return given
    check_chunks(given, column.name)
    if given.null_count == len(given):
        return pa.nulls(len(given))
    if not pa.types.is_integer(column.type.arrow):
        return given
    try:
        return pc.cast(given, column.type.arrow)
    except pa.ArrowInvalid as error:
        raise InvalidArgument(f"column {column.name!r} is {column.type}: {error}") from None


__all__ = ["NO_COLUMN", "is_pandas_frame", "is_pandas_series", "of_pandas", "of_series"]
