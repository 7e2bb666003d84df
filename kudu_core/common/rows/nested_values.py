"""Python's lists, dicts and tuples as arrays of a nested type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from kudu_core.common.types.foreign import place
from kudu_core.common.types.nested_nodes import is_nested, storage_of
from kudu_core.errors import InvalidArgument, shown

_t = pa.types


def nested_array(name: str, cells: list[Any], type_: pa.DataType, first: int = 0) -> pa.Array:
    """Values as one array of a nested type, which Arrow makes.

    ``InvalidArgument`` for a struct with a field that the type does not have, which Arrow passes over; what
    Arrow refuses passes through.
    """
    made = pa.array(cells, type_)
    if _has_structs(type_):
        for row, cell in enumerate(cells, first):
            _check_fields(cell, type_, name, row)
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def _has_structs(type_: pa.DataType) -> bool:
    storage = storage_of(type_)
    if _t.is_map(storage):
        return _has_structs(storage.item_type) or _has_structs(storage.key_type)
    if _t.is_struct(storage):
        return True
    return is_nested(storage) and _has_structs(storage.value_type)


def _check_fields(value: Any, type_: pa.DataType, name: str, row: int) -> None:
    storage = storage_of(type_)
    if value is None or not _has_structs(storage):
        return
    if _t.is_struct(storage):
        if not isinstance(value, Mapping):
            return
        for field, part in value.items():
            place_of_field = storage.get_field_index(field) if isinstance(field, str) else -1
            if place_of_field < 0:
                known = ", ".join(one.name for one in storage)
                raise InvalidArgument(f"{place(name, row)}: no field {shown(field)}; there are {known}")
            _check_fields(part, storage.field(place_of_field).type, f"{name}.{field}", row)
    elif _t.is_map(storage):
        for part in value.values() if isinstance(value, Mapping) else (item for _, item in value):
            _check_fields(part, storage.item_type, f"{name}[]", row)
    else:
        for part in value:
            _check_fields(part, storage.value_type, f"{name}[]", row)


__all__ = ["nested_array"]
