"""Bring an Arrow array to a column's type without changing a value.

A cast here keeps every value or fails; it never rounds, truncates or reinterprets.  Units and zones
of instants, widths of numbers, layouts of strings and dictionaries may differ; a time without a
zone is not an instant, bytes are not text, and a number is not a bool.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.types import foreign
from kudu_core.common.types.types import TYPE_BOOL, TYPE_DECIMAL, TYPE_FLOAT, ColumnType
from kudu_core.errors import SchemaMismatch

_t = pa.types


def cast(array: pa.Array, type_: ColumnType, name: str, first_row: int = 0) -> pa.Array:
    """``array`` as exactly ``type_.arrow``; one that has that type comes back unseen.

    What is cast is checked before (``foreign.py``).  ``SchemaMismatch`` names the column ``name``, both
    types, and the row and its value when one is at fault.
    """
    if array.type == type_.arrow:
        return array
    source = _value_type(array.type)
    if not _t.is_null(source) and not _permitted(source, type_):
        raise SchemaMismatch(f"column {name!r} is {type_}; data of type {array.type} does not fit")
    foreign.extent_of(array, name)
    if foreign.is_null_throughout(array, name):
        return pa.nulls(len(array), type_.arrow)
    try:
        foreign.check_bytes(array, name, first_row)
    except SchemaMismatch as error:
        raise SchemaMismatch(f"{error} (data of type {array.type} for {type_})") from None
    try:
        return _brought(array, type_)
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OverflowError) as error:
        row = foreign.first_refused(array, lambda some: _brought(some, type_))
        where = foreign.place(name, None if row is None else first_row + row)
        raise SchemaMismatch(f"{where}: {array.type} does not fit {type_}: {error}") from None


def _brought(array: pa.Array, type_: ColumnType) -> pa.Array:
    plain = _decoded(array)
    return pa.nulls(len(plain), type_.arrow) if _t.is_null(plain.type) else _cast(plain, type_)


def _value_type(type_: pa.DataType) -> pa.DataType:
    """Of what dictionaries and runs stand for."""
    while _t.is_dictionary(type_) or _t.is_run_end_encoded(type_):
        type_ = type_.value_type
    return type_


def _decoded(array: pa.Array) -> pa.Array:
    """Dictionaries and runs as plain arrays."""
    if _t.is_dictionary(array.type):
        return _decoded(array.dictionary_decode())
    if _t.is_run_end_encoded(array.type):
        return _decoded(pc.run_end_decode(array))
    return array


def _permitted(source: pa.DataType, type_: ColumnType) -> bool:
    """Whether values of ``source`` mean the same thing as values of the column."""
    if type_.is_string:
        return bool(_t.is_string(source) or _t.is_large_string(source) or source == pa.string_view())
    if type_.width == 0:
        binary = _t.is_binary(source) or _t.is_large_binary(source) or source == pa.binary_view()
        return bool(binary or _t.is_fixed_size_binary(source))
    if type_.kind == TYPE_BOOL:
        return bool(_t.is_boolean(source))
    if type_.kind == TYPE_FLOAT:
        return bool(_t.is_floating(source) or _t.is_integer(source))
    if type_.kind == TYPE_DECIMAL:
        return bool(_t.is_decimal(source) or _t.is_integer(source))
    if type_.is_date:
        return bool(_t.is_date(source))
    if type_.is_timestamp:
        return bool(_t.is_timestamp(source) and (source.tz is None) == (type_.arrow.tz is None))
    return bool(_t.is_integer(source))


def _cast(array: pa.Array, type_: ColumnType) -> pa.Array:
    if type_.kind == TYPE_DECIMAL and _t.is_integer(array.type):
        # By way of a decimal that holds every integer: Arrow asks for room even when it is not used.
        array = pc.cast(array, pa.decimal128(20, 0))
    if type_.kind == TYPE_DECIMAL:
        return _to_decimal(array, type_)
    result = pc.cast(array, type_.arrow)
    if type_.name == "float32" and _t.is_float64(array.type):
        _check_narrowed(array, result)
    return result


def _to_decimal(array: pa.Array, type_: ColumnType) -> pa.Array:
    """Rescale, where Arrow alone might wrap in the middle: by way of 76 digits."""
    if not _t.is_decimal128(array.type) or array.type.precision - array.type.scale + type_.arrow.scale > 38:
        array = pc.cast(array, pa.decimal256(76, array.type.scale))
        array = pc.cast(array, pa.decimal256(76, type_.arrow.scale))
    return pc.cast(array, type_.arrow)


def _check_narrowed(wide: pa.Array, narrow: pa.Array) -> None:
    """float32 cells must give back the float64 ones, NaN for NaN."""
    back = pc.cast(narrow, pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    given = wide.fill_null(0.0).to_numpy(zero_copy_only=False)
    wrong = (back != given) & ~(np.isnan(back) & np.isnan(given))
    if wrong.any():
        raise pa.ArrowInvalid(f"{given[wrong][0]!r} is not exact; cast to float32 to round it")
