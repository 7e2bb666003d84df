"""Arrow's columns of another kind than the table's: made fit where that loses nothing, or refused.

``common/types/casts.py`` refuses what it cannot cast by the two types.  Of the mistakes that people make here
is said more: the first value at fault, its row, and what to write instead.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.rows.text_times import of_text, takes_text
from kudu_core.common.schema.schema import Schema
from kudu_core.common.types import foreign
from kudu_core.common.types.casts import cast
from kudu_core.common.types.foreign import names_of
from kudu_core.common.types.types import TYPE_BINARY, ColumnType
from kudu_core.errors import SchemaMismatch, shown

_t = pa.types


def brought(batch: pa.RecordBatch, schema: Schema, first_row: int) -> pa.RecordBatch:
    """The batch with text of dates, times and uuids as these.

    ``SchemaMismatch`` where a column is of a kind that the table's is not.  What else may be wrong with a
    batch is found when it is conformed.
    """
    arrays: dict[int, pa.Array] | None = None
    for position, name in enumerate(names_of(batch.schema)):
        column = schema.by_name.get(name)
        if column is None:
            continue
        given = batch.schema.field(position).type
        if given in (column.type.arrow, column.type.declared):
            continue
        array = batch.column(position)
        if foreign.extent_of(array, name)[0] != batch.num_rows:
            continue
        try:
            fitting = _fitting(array, column.type, name, first_row)
        except foreign.CellRefused as refused:
            raise SchemaMismatch(str(refused)) from None
        if fitting is not None:
            arrays = arrays or {}
            arrays[position] = fitting
    if arrays is None:
        return batch
    columns = [arrays[i] if i in arrays else batch.column(i) for i in range(batch.num_columns)]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def fitted(array: pa.Array, type_: ColumnType, name: str, in_row: int | None = None) -> pa.Array:
    """An array within a nested column as its flat type has it.

    ``SchemaMismatch`` as of a flat column; ``CellRefused`` where one value is at fault, in ``in_row``.
    """
    if array.type in (type_.arrow, type_.declared):
        return cast(array, type_, name)
    found = _fitting(array, type_, name, 0, in_row)
    return cast(array, type_, name) if found is None else found


def _fitting(
    array: pa.Array, type_: ColumnType, name: str, first_row: int, in_row: int | None = None
) -> pa.Array | None:
    """The array as the column's type; None: it is left to the cast."""
    given = values = array.type
    while _t.is_dictionary(values):
        values = values.value_type
    parses = is_text(values) and takes_text(type_)
    advice = None if parses else advice_for(values, type_)
    if not parses and advice is None:
        return None
    foreign.check_layout(array, name, first_row)
    if parses:
        plain = array if values == given else pc.cast(array, values)
        return of_text(plain, type_, name, first_row, in_row)
    row = _first_valid(array)
    told = ""
    if row is not None:
        told = f": row {first_row + row if in_row is None else in_row} has {_shown(array[row])}"
    error = SchemaMismatch if row is None else foreign.CellRefused
    raise error(f"column {name!r} is {type_}; data of type {given} does not fit{told}; {advice}")


def is_text(type_: pa.DataType) -> bool:
    return bool(_t.is_string(type_) or _t.is_large_string(type_) or type_ == pa.string_view())


def advice_for(given: pa.DataType, type_: ColumnType) -> str | None:
    """What to write instead of values that mean something else; None: nothing is known of such a mistake."""
    arrow = type_.arrow
    if _t.is_integer(arrow):
        if is_text(given):
            return f"write int(text), or pc.cast(column, pa.{arrow}())"
        if _t.is_floating(given):
            return f"write int(number), or pc.cast(column, pa.{arrow}()), which takes whole numbers only"
    elif _t.is_floating(arrow) and is_text(given):
        return "write float(text), or pc.cast(column, pa.float64())"
    elif _t.is_decimal(arrow) and (is_text(given) or _t.is_floating(given)):
        return "write decimal.Decimal(text), or pc.cast(column, the column's type)"
    elif _t.is_timestamp(arrow) and _t.is_timestamp(given):
        if arrow.tz is not None and given.tz is None:
            return (
                "say in which zone it is: value.replace(tzinfo=timezone.utc), or "
                'pc.assume_timezone(column, "UTC")'
            )
        if arrow.tz is None and given.tz is not None:
            return "write value.astimezone(zone).replace(tzinfo=None), or pc.local_timestamp(column)"
    elif _t.is_date(arrow) and _t.is_timestamp(given):
        return "write value.date(), or pc.cast(column, pa.date32()), which leaves the time of day out"
    elif type_.is_duration and is_text(given):
        return "write datetime.timedelta(seconds=1), or pc.cast(numbers, the column's type)"
    elif type_.kind == TYPE_BINARY and not type_.is_string and is_text(given):
        if type_.is_long_decimal:
            return "write decimal.Decimal(text), or pc.cast(column, the column's type)"
        if type_.value.name == "month_day_nano_interval":
            return "write pyarrow.MonthDayNano((months, days, nanoseconds))"
        return "write text.encode(), or pc.cast(column, pa.binary())"
    elif is_text(arrow) and (_t.is_integer(given) or _t.is_floating(given)):
        return "write str(number), or pc.cast(column, pa.string())"
    return None


def _shown(cell: pa.Scalar) -> str:
    try:
        return shown(cell.as_py())
    except (OverflowError, ValueError):  # a time that Python does not have
        return str(cell.cast(pa.string()))


def _first_valid(array: pa.Array) -> int | None:
    """The first row with a value of a checked array."""
    row = pc.index(array.is_valid(), True).as_py()
    return row if row >= 0 else None


__all__ = ["advice_for", "brought", "fitted"]
