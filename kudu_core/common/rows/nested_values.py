"""Python's lists, dicts and tuples as arrays of a nested type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.types.foreign import place
from kudu_core.common.types.nested_nodes import is_nested, storage_of
from kudu_core.errors import InvalidArgument, shown

_t = pa.types


def nested_array(name: str, cells: list[Any], type_: pa.DataType, first: int = 0) -> pa.Array:
    """Values as one array of a nested type, its extension types as what they store, which Arrow makes.

    ``InvalidArgument`` for a struct with a field that the type does not have, which Arrow passes over; what
    Arrow refuses passes through.
    """
    plain = _plain(type_)
    made = pa.array(cells, plain)
    _check_range(made, cells, plain, name, first)
    if _has_structs(type_):
        for row, cell in enumerate(cells, first):
            _check_fields(cell, type_, name, row)
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def _check_range(made: pa.Array, cells: list[Any], type_: pa.DataType, name: str, first: int) -> None:
    """``InvalidArgument`` for a number that is infinite in the type's floats alone: Arrow makes it so."""
    infinite = _infinities(made)
    if not infinite or infinite == _infinities(pa.array(cells, wider := _plain(type_, wide=True))):
        return
    for row, cell in enumerate(cells, first):  # to name the first
        if _infinities(pa.array([cell], type_)) != _infinities(pa.array([cell], wider)):
            raise InvalidArgument(f"{place(name, row)}: a number lies outside the range of {type_}")


def _infinities(array: pa.Array | pa.ChunkedArray) -> int:
    """How many infinite floats there are in an array and all of its parts."""
    if isinstance(array, pa.ChunkedArray):
        return sum(map(_infinities, array.chunks))
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if _t.is_struct(array.type):
        return sum(map(_infinities, array.flatten()))
    if _t.is_map(array.type):
        return _infinities(array.keys) + _infinities(array.items)
    if is_nested(array.type):
        return _infinities(array.flatten())
    if not _t.is_floating(array.type):
        return 0
    return pc.sum(pc.is_inf(array.cast(pa.float64()))).as_py() or 0


def _plain(type_: pa.DataType, *, wide: bool = False) -> pa.DataType:
    """The type without extension types, of which Arrow makes no parts; ``wide``: with floats of 64 bits."""
    if type_ == pa.bool8():
        return pa.bool_()
    storage = storage_of(type_)
    if wide and _t.is_floating(storage):
        return pa.float64()
    if not is_nested(storage):
        return storage
    if _t.is_struct(storage):
        return pa.struct([field.with_type(_plain(field.type, wide=wide)) for field in storage])
    if _t.is_map(storage):
        parts = storage.key_field, storage.item_field
        key, item = (field.with_type(_plain(field.type, wide=wide)) for field in parts)
        return pa.map_(key, item, storage.keys_sorted)
    element = storage.value_field.with_type(_plain(storage.value_type, wide=wide))
    if _t.is_fixed_size_list(storage):
        return pa.list_(element, storage.list_size)
    for is_kind, kind in _LISTS.items():
        if is_kind(storage):
            return kind(element)
    return pa.list_(element)


_LISTS: dict[Callable[[pa.DataType], bool], Callable[[pa.Field], pa.DataType]] = {
    _t.is_large_list: pa.large_list,
    _t.is_list_view: pa.list_view,
    _t.is_large_list_view: pa.large_list_view,
}


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
