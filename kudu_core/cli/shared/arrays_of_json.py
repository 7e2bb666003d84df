"""Cells of JSON, or of CSV, as arrays of a type: the way back of ``json_values.py``."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from datetime import time
from typing import Any
from uuid import UUID

import pyarrow as pa

_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def array_of_json(cells: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """An array of the cells; numbers with a fraction may be ``Decimal``.

    Raises
    ------
    ValueError, TypeError, pa.ArrowException
        A cell is no value of the type.
    """
    if isinstance(type_, pa.BaseExtensionType):
        if type_.extension_name == "arrow.uuid":
            bare = pa.array([None if c is None else UUID(c).bytes for c in cells], type_.storage_type)
        elif type_.extension_name == "arrow.bool8":
            bare = pa.array([None if c is None else int(c) for c in cells], type_.storage_type)
        else:
            bare = array_of_json(cells, type_.storage_type)
        return pa.ExtensionArray.from_storage(type_, bare)
    if pa.types.is_dictionary(type_):
        return array_of_json(cells, type_.value_type).dictionary_encode().cast(type_)
    if pa.types.is_nested(type_):
        return _nested(cells, type_)
    if pa.types.is_null(type_):
        return pa.array(cells, type_)
    if "binary" in str(type_):
        return pa.array([None if c is None else b64decode(c, validate=True) for c in cells], type_)
    if pa.types.is_floating(type_):
        return pa.array([None if c is None else float(c) for c in cells], pa.float64()).cast(type_)
    if pa.types.is_decimal(type_):
        return pa.array([None if c is None else str(c) for c in cells], pa.string()).cast(type_)
    if pa.types.is_duration(type_):
        return pa.array(cells, pa.int64()).cast(type_)
    if pa.types.is_interval(type_):
        names = ("months", "days", "nanoseconds")
        return pa.array([None if c is None else tuple(c[name] for name in names) for c in cells], type_)
    if pa.types.is_time(type_):
        counts = [None if c is None else _count_of(c, type_.unit) for c in cells]
        return pa.array(counts, pa.int32() if type_.bit_width == 32 else pa.int64()).cast(type_)
    if pa.types.is_temporal(type_):
        return pa.array(cells, pa.string()).cast(type_)
    if pa.types.is_boolean(type_):
        return pa.array(cells, type_)
    if pa.types.is_integer(type_):
        return pa.array(cells, type_)
    return pa.array(cells, pa.string()).cast(type_)


def _count_of(text: str, unit: str) -> int:
    """A time of day as a count of units, of which Arrow makes none out of text."""
    whole, _, fraction = text.partition(".")
    time_of_day = time.fromisoformat(whole)
    digits = _DIGITS[unit]
    if len(fraction.rstrip("0")) > digits or (fraction and not fraction.isdecimal()):
        raise ValueError(f"{text!r} is no time of day in {unit}")
    seconds = time_of_day.hour * 3600 + time_of_day.minute * 60 + time_of_day.second
    count: int = seconds * 10**digits + int(fraction[:digits].ljust(digits, "0") or 0)
    return count


def _nested(cells: Sequence[Any], type_: pa.DataType) -> pa.Array:
    missing = pa.array([cell is None for cell in cells], pa.bool_())
    if pa.types.is_struct(type_):
        fields = list(type_)
        arrays = [
            array_of_json([None if c is None else c.get(f.name) for c in cells], f.type) for f in fields
        ]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=missing)
    flat = [element for cell in cells if cell is not None for element in cell]
    ends = [0]
    for cell in cells:
        ends.append(ends[-1] + (0 if cell is None else len(cell)))
    offsets = pa.array(ends, pa.int32())
    if pa.types.is_map(type_):
        keys = array_of_json([key for key, _ in flat], type_.key_type)
        items = array_of_json([item for _, item in flat], type_.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=type_, mask=missing)
    elements = array_of_json(flat, type_.value_type)
    return pa.ListArray.from_arrays(offsets, elements, mask=missing).cast(type_)


def is_plain(type_: pa.DataType) -> bool:
    """Whether CSV has it as it is: numbers, truth, text."""
    kinds = pa.types
    plain = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_string, kinds.is_large_string)
    return any(of(type_) for of in plain)


def of_text(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """A column of CSV, as text, in a type that is not plain."""
    cells = column.to_pylist()
    of_json = pa.types.is_nested(type_) or pa.types.is_interval(type_)
    if of_json:
        cells = [None if cell is None else json.loads(cell) for cell in cells]
    elif pa.types.is_duration(type_):
        cells = [None if cell is None else int(cell) for cell in cells]
    return array_of_json(cells, type_)


__all__ = ["array_of_json", "is_plain", "of_text"]
