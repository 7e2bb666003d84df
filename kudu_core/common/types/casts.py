"""Bring an Arrow array to a column's type without changing a value.

A cast here keeps every value or fails; it never rounds, truncates or reinterprets.  Units and zones
of instants, widths of numbers, layouts of strings and dictionaries may differ; a time without a
zone is not an instant, bytes are not text, and a number is not a bool.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.types import foreign, stored_arrays
from kudu_core.common.types.types import TYPE_BINARY, TYPE_BOOL, TYPE_DECIMAL, TYPE_FLOAT, ColumnType
from kudu_core.errors import SchemaMismatch

_t = pa.types
_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def cast(array: pa.Array, type_: ColumnType, name: str, first_row: int = 0) -> pa.Array:
    """``array`` as exactly ``type_.arrow``; one that has that type comes back unseen, unless the declared
    type says more of its cells.

    What is cast is checked before (``foreign.py``).  ``SchemaMismatch`` names the column ``name``, both
    types, and the row and its value when one is at fault.
    """
    if array.type == type_.arrow and not type_.is_narrower:
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
        return _brought(array, type_, name, first_row)
    except (pa.ArrowMemoryError, SchemaMismatch):
        raise
    except (pa.ArrowException, OverflowError) as error:
        row = foreign.first_refused(array, lambda some: _brought(some, type_, name, first_row))
        where = foreign.place(name, None if row is None else first_row + row)
        raise SchemaMismatch(f"{where}: {array.type} does not fit {type_}: {error}") from None


def _brought(array: pa.Array, type_: ColumnType, name: str, first_row: int) -> pa.Array:
    plain = _decoded(array)
    if _t.is_null(plain.type):
        return pa.nulls(len(plain), type_.arrow)
    if type_.is_long_decimal:
        plain = _to_decimal(plain, type_.value.declared)
    if plain.type == type_.value.declared or type_.kind == TYPE_BINARY:
        return stored_arrays.inward(plain, type_, name, first_row)
    return _cast(plain, type_)


def _value_type(type_: pa.DataType) -> pa.DataType:
    """Of what dictionaries, runs and extensions stand for."""
    while True:
        if _t.is_dictionary(type_) or _t.is_run_end_encoded(type_):
            type_ = type_.value_type
        elif isinstance(type_, pa.BaseExtensionType):
            type_ = type_.storage_type
        else:
            return type_


def _decoded(array: pa.Array) -> pa.Array:
    """Dictionaries, runs and extensions as plain arrays."""
    if isinstance(array, pa.ExtensionArray):
        return _decoded(array.storage)
    if _t.is_dictionary(array.type):
        return _decoded(stored_arrays.dictionary_values(array))
    if _t.is_run_end_encoded(array.type):
        return _decoded(pc.run_end_decode(array))
    return array


def _permitted(source: pa.DataType, type_: ColumnType) -> bool:
    """Whether values of ``source`` mean the same thing as values of the column."""
    if type_.value.name == "null":
        return False
    if type_.is_string:
        return bool(_t.is_string(source) or _t.is_large_string(source) or source == pa.string_view())
    if type_.is_long_decimal:
        return bool(_t.is_decimal(source) or _t.is_integer(source))
    if type_.value.name == "month_day_nano_interval":
        return bool(_t.is_interval(source))
    if type_.width == 0:
        binary = _t.is_binary(source) or _t.is_large_binary(source) or source == pa.binary_view()
        return bool(binary or _t.is_fixed_size_binary(source))
    if type_.kind == TYPE_BOOL:
        return bool(_t.is_boolean(source))
    if type_.value.name == "bool8":
        return bool(_t.is_boolean(source) or _t.is_int8(source))
    if type_.kind == TYPE_FLOAT:
        return bool(_t.is_floating(source) or _t.is_integer(source))
    if type_.kind == TYPE_DECIMAL:
        return bool(_t.is_decimal(source) or _t.is_integer(source))
    if type_.is_date:
        return bool(_t.is_date(source))
    if type_.is_timestamp:
        return bool(_t.is_timestamp(source) and (source.tz is None) == (type_.arrow.tz is None))
    if type_.is_time_of_day:
        return bool(_t.is_time(source))
    if type_.is_duration:
        return bool(_t.is_duration(source))
    return bool(_t.is_integer(source))


def _cast(array: pa.Array, type_: ColumnType) -> pa.Array:
    if type_.kind == TYPE_DECIMAL:
        return _to_decimal(array, type_.arrow)
    if _t.is_date64(type_.arrow) and _t.is_date32(array.type):
        return _cast_days(array)
    result = pc.cast(array, type_.arrow)
    if type_.kind == TYPE_FLOAT and _t.is_floating(array.type):
        _check_narrowed(array, result, type_.value.declared)
    return result


def _cast_days(array: pa.Array) -> pa.Array:
    """Days as milliseconds, of which int64 has enough for all."""
    return pc.multiply(array.view(pa.int32()).cast(pa.int64()), 86_400_000).view(pa.date64())


def _to_decimal(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Rescale, where Arrow alone might wrap in the middle: by way of 76 digits."""
    if array.type == wanted:
        return array
    if _t.is_integer(array.type):
        # By way of a decimal that holds every integer: Arrow asks for room even when it is not used.
        array = pc.cast(array, pa.decimal128(20, 0))
    if not _t.is_decimal128(array.type) or array.type.precision - array.type.scale + wanted.scale > 38:
        array = pc.cast(array, pa.decimal256(76, array.type.scale))
        array = pc.cast(array, pa.decimal256(76, wanted.scale))
    return pc.cast(array, wanted)


def _check_narrowed(wide: pa.Array, narrow: pa.Array, declared_type: pa.DataType) -> None:
    """Cells of fewer bits must give back the wider ones, NaN for NaN."""
    given = wide.fill_null(0.0).to_numpy(zero_copy_only=False)
    back = narrow.fill_null(0.0).to_numpy(zero_copy_only=False)
    if _t.is_float16(declared_type):
        with np.errstate(over="ignore"):
            back = back.astype(np.float16)
    elif back.dtype.itemsize >= given.dtype.itemsize:
        return
    back = back.astype(np.float64)
    wrong = (back != given) & ~(np.isnan(back) & np.isnan(given))
    if wrong.any():
        name = "float16" if _t.is_float16(declared_type) else str(narrow.type)
        name = "float32" if name == "float" else name
        raise pa.ArrowInvalid(f"{given[wrong][0]!r} is not exact; cast to {name} to round it")
