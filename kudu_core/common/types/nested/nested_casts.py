"""Arrays of lists, structs and maps, brought to a declared type without changing a value.

Kinds of lists, layouts of strings, widths of numbers and units of times may differ, as in ``casts.py``, to
which every flat array below is given.  A struct's fields are found by their names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kudu_core.common.types.casts import cast
from kudu_core.common.types.foreign import CellRefused, check_layout
from kudu_core.common.types.nested.nested_nodes import entries_of, is_nested, storage_of
from kudu_core.common.types.stored_arrays import outward
from kudu_core.common.types.types import ColumnType
from kudu_core.errors import SchemaMismatch

Leaf: TypeAlias = Callable[..., pa.Array]
"""``(array, type, name, in_row=None)``: an array of a flat type as the stored one of another."""
_t = pa.types
_VIEWS = {True: (pa.int32(), pa.ListViewArray), False: (pa.int64(), pa.LargeListViewArray)}


def _cast_leaf(array: pa.Array, type_: ColumnType, name: str, in_row: int | None = None) -> pa.Array:
    return cast(array, type_, name)


def nested_cast(
    array: pa.Array, wanted: pa.DataType, name: str, first_row: int = 0, leaf: Leaf = _cast_leaf
) -> pa.Array:
    """``array`` as exactly ``wanted``; one that has that type comes back unseen.

    ``leaf``: brings flat arrays to their types.  ``SchemaMismatch`` names the place in the column, and both
    types, or the row of a value that ``leaf`` refuses.
    """
    if array.type == wanted:
        return array
    check_layout(array, name, first_row)
    try:
        return _brought(array, wanted, name, leaf)
    except CellRefused:
        row = _first_refused(array, wanted, name, leaf)
        try:
            _brought(array.slice(row, 1), wanted, name, partial(leaf, in_row=first_row + row))
        except CellRefused as refused:
            raise SchemaMismatch(str(refused)) from None
        raise


def _first_refused(array: pa.Array, wanted: pa.DataType, name: str, leaf: Leaf) -> int:
    """The first row with a value that is refused."""
    good, bad = 0, len(array)
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            _brought(array.slice(good, middle - good), wanted, name, leaf)
            good = middle
        except CellRefused:
            bad = middle
        except SchemaMismatch:
            good = middle  # for its type, which holds no value up to there
    return good


def _brought(array: pa.Array, wanted: pa.DataType, name: str, leaf: Leaf) -> pa.Array:
    if array.type == wanted:
        return array
    if _t.is_null(array.type):
        return pa.nulls(len(array), wanted)
    if not is_nested(wanted):
        type_ = ColumnType.from_arrow(wanted)
        return outward(leaf(array, type_, name), type_)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if _t.is_dictionary(array.type):
        array = array.dictionary_decode()
    storage = storage_of(wanted)
    if array.type != storage:
        bring = _struct if _t.is_struct(storage) else _list
        array = bring(array, storage, name, leaf)
    return array if storage is wanted else pa.ExtensionArray.from_storage(wanted, array)


def _misfit(array: pa.Array, wanted: pa.DataType, name: str, why: object = "") -> SchemaMismatch:
    told = f": {why}" if why else ""
    return SchemaMismatch(f"column {name!r} is {wanted}; data of type {array.type} does not fit{told}")


def _struct(array: pa.Array, wanted: pa.DataType, name: str, leaf: Leaf) -> pa.Array:
    if not _t.is_struct(array.type):
        raise _misfit(array, wanted, name)
    have = [field.name for field in array.type]
    known = {field.name for field in wanted}
    for field in have:
        if field not in known:
            raise _misfit(array, wanted, name, f"there is no field {field!r}")
        if have.count(field) > 1:
            raise _misfit(array, wanted, name, f"field {field!r} is there twice")
    fields = []
    # What lies below NULL, which may be anything, is none of its values.
    parts = array.flatten() if array.null_count else [array.field(place) for place in range(len(have))]
    for field in wanted:
        if field.name in have:
            part = parts[have.index(field.name)]
            made = _brought(part, field.type, f"{name}.{field.name}", leaf)
            fields.append(made if field.nullable else _without_nulls_below(array, made))
        elif field.nullable:
            fields.append(pa.nulls(len(array), field.type))
        else:
            raise _misfit(array, wanted, name, f"field {field.name!r}, which takes no NULL, is missing")
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=mask)


def _without_nulls_below(array: pa.Array, part: pa.Array) -> pa.Array:
    """A part of structs that takes no NULL, and has some only where the struct is NULL, without these, since
    Arrow takes no such part for one of its type."""
    if not part.null_count or pc.any(pc.and_(part.is_null(), array.is_valid())).as_py():
        return part
    if isinstance(part, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(part.type, _without_nulls_below(array, part.storage))
    type_ = part.type
    if _t.is_struct(type_):
        return pa.StructArray.from_arrays([part.field(at) for at in range(len(type_))], fields=list(type_))
    if is_nested(type_):
        is_view = _t.is_list_view(type_) or _t.is_large_list_view(type_)
        own = 1 if _t.is_fixed_size_list(type_) else 3 if is_view else 2
        buffers = [None, *part.buffers()[1:own]]
        return pa.Array.from_buffers(type_, len(part), buffers, 0, part.offset, [part.values])
    return pa.Array.from_buffers(type_, len(part), [None, *part.buffers()[1:]], 0, part.offset)


def _list(array: pa.Array, wanted: pa.DataType, name: str, leaf: Leaf) -> pa.Array:
    """By way of a plain list, the elements of which are brought to their type."""
    try:
        plain = _plain(array, wanted, name)
        offsets = plain.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        sizes = np.diff(offsets)
        if plain.null_count and sizes[plain.is_null().to_numpy(zero_copy_only=False)].any():
            # What lies below NULL, which may be anything, is none of its values.
            sizes *= plain.is_valid().to_numpy(zero_copy_only=False)
            offsets, elements = np.concatenate([[0], np.cumsum(sizes)]), plain.flatten()
        else:
            elements = plain.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        made = _brought(elements, _element(wanted), f"{name}[]", leaf)
        ends = pa.array(offsets - offsets[0], pa.int64())
        mask = plain.is_null() if plain.null_count else None
        if _t.is_map(wanted):
            if plain.null_count:  # a map says by its offsets which are NULL
                ends = pc.if_else(pa.concat_arrays([plain.is_null(), pa.array([False])]), None, ends)
            keys, items = made.field(0), made.field(1)
            if keys.null_count:  # Arrow would end the process
                raise _misfit(array, wanted, name, "a key of a map is NULL")
            return pa.MapArray.from_arrays(ends.cast(pa.int32()), keys, items, wanted)
        if _t.is_list_view(wanted) or _t.is_large_list_view(wanted):  # to which Arrow casts no other kind
            integer, views = _VIEWS[_t.is_list_view(wanted)]
            parts = pa.array(offsets[:-1] - offsets[0], integer), pa.array(np.diff(offsets), integer)
            return views.from_arrays(*parts, made, type=wanted, mask=mask)
        if _t.is_list(wanted):  # Arrow's cast from a large list has no way for some extension types
            return pa.ListArray.from_arrays(ends.cast(pa.int32()), made, wanted, mask=mask)
        whole = pa.LargeListArray.from_arrays(ends, made, pa.large_list(_field(wanted)), mask=mask)
        return whole if whole.type == wanted else pc.cast(whole, wanted)
    except (pa.ArrowMemoryError, SchemaMismatch):
        raise
    except (pa.ArrowException, ValueError) as error:
        raise _misfit(array, wanted, name, error) from None


def _plain(array: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """Any kind of list as a list or a large list."""
    type_ = array.type
    if _t.is_map(type_):
        return array.view(pa.list_(entries_of(type_)))
    if _t.is_list(type_) or _t.is_large_list(type_):
        return array
    if _t.is_list_view(type_) or _t.is_large_list_view(type_):
        return _of_views(array)
    if _t.is_fixed_size_list(type_):
        return pc.cast(array, pa.list_(type_.value_field))
    raise _misfit(array, wanted, name)


def _of_views(array: pa.Array) -> pa.Array:
    """A large list of checked views, whose elements may lie in any order.  Arrow's own cast loses those of
    lists that follow an empty one (pyarrow 26)."""
    there = array.is_valid().to_numpy(zero_copy_only=False)
    starts = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    sizes = array.sizes.to_numpy(zero_copy_only=False).astype(np.int64) * there
    ends = np.concatenate([[0], np.cumsum(sizes)])
    within = np.arange(int(ends[-1])) - np.repeat(ends[:-1], sizes)
    elements = array.values.take(pa.array(np.repeat(starts, sizes) + within, pa.int64()))
    mask = pa.array(~there) if array.null_count else None
    type_ = pa.large_list(array.type.value_field)
    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), elements, type_, mask=mask)


def _element(wanted: pa.DataType) -> pa.DataType:
    return _field(wanted).type


def _field(wanted: pa.DataType) -> pa.Field:
    if _t.is_map(wanted):
        return entries_of(wanted)
    field: pa.Field = wanted.value_field
    return field


__all__ = ["nested_cast"]
