"""Random nested types, and arrays of them with all that Arrow allows: slices, ranges below NULL that are not
empty, views that overlap or go backwards, values below structs that are NULL."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa

from tests.support import cells

FLAT = (
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.float32(), pa.float64(),
    pa.bool_(), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"),
    pa.decimal128(38, 3), pa.decimal128(5, 2),
)  # fmt: skip
LISTS = ("list", "large_list", "list_view", "large_list_view", "fixed_size_list", "map")
_FEW = 3


def nested_type(rng: random.Random, depth: int) -> pa.DataType:
    """A type of lists, structs and maps, of at most so many in one another."""
    kind = rng.choice((*LISTS, "struct", "struct", "struct"))
    if kind == "struct":
        names = rng.sample(("x", "y", "z", "a", "name of a field"), rng.randrange(1, 4))
        return pa.struct([_field(rng, name, depth) for name in names])
    if kind == "map":
        key = rng.choice((pa.string(), pa.int32(), pa.struct([pa.field("k", pa.int8(), False)])))
        return pa.map_(pa.field("key", key, False), _field(rng, "value", depth))
    return list_type(rng, kind, _field(rng, rng.choice(("item", "element")), depth))


def list_type(rng: random.Random, kind: str, element: pa.Field) -> pa.DataType:
    if kind == "fixed_size_list":
        return pa.list_(element, rng.randrange(0, 4))
    return {"list": pa.list_, "large_list": pa.large_list, "list_view": pa.list_view}.get(
        kind, pa.large_list_view
    )(element)


def _field(rng: random.Random, name: str, depth: int) -> pa.Field:
    flat = depth <= 1 or rng.random() < 0.3
    type_ = rng.choice(FLAT) if flat else nested_type(rng, depth - 1)
    return pa.field(name, type_, rng.random() < 0.7)


def nested_array(rng: random.Random, type_: pa.DataType, rows: int, nullable: bool = True) -> pa.Array:
    """Rows of a type, mostly as a slice of more."""
    before, behind = rng.choice(((0, 0), (1, 2), (8, 0), (13, 1)))
    share = rng.choice((0.0, 0.2, 1.0)) if nullable else 0.0
    return array_of(rng, type_, rows + before + behind, share).slice(before, rows)


def array_of(rng: random.Random, type_: pa.DataType, rows: int, share: float) -> pa.Array:
    """Rows of which a share is NULL."""
    present = np.array([rng.random() >= share for _ in range(rows)], np.bool_)
    if pa.types.is_struct(type_):
        fields = [_drawn(rng, field, rows, present) for field in type_]
        return pa.Array.from_buffers(type_, rows, [bitmap(present)], children=fields)
    if pa.types.is_fixed_size_list(type_):
        around = np.repeat(present, type_.list_size)
        element = _drawn(rng, type_.value_field, rows * type_.list_size, around)
        return pa.Array.from_buffers(type_, rows, [bitmap(present)], children=[element])
    if hasattr(type_, "value_field") or pa.types.is_map(type_):
        return _list_of(rng, type_, present)
    drawn = cells.to_arrow(rng.choices(cells.ugly(type_), k=rows), type_)
    return validated(drawn, present)


def _drawn(rng: random.Random, field: pa.Field, rows: int, around: np.ndarray) -> pa.Array:
    """Cells of a field: below a NULL around it anything, also NULL where the field has none."""
    if field.nullable:
        return array_of(rng, field.type, rows, rng.choice((0.0, 0.0, 0.1, 0.5, 1.0)))
    array = array_of(rng, field.type, rows, 0.0)
    return array if rng.random() < 0.5 else validated(array, around)


def _list_of(rng: random.Random, type_: pa.DataType, present: np.ndarray) -> pa.Array:
    rows = len(present)
    if pa.types.is_map(type_):
        element = pa.field("entries", pa.struct([type_.key_field, type_.item_field]), False)
    else:
        element = type_.value_field
    sizes = np.array([rng.choice((0, 0, 1, 2, 3)) for _ in range(rows)], np.int64)
    if rng.random() < 0.5:
        sizes[~present] = 0
    first, behind = rng.randrange(_FEW), rng.randrange(_FEW)
    ends = first + np.concatenate([[0], np.cumsum(sizes)])
    count = int(ends[-1]) + behind
    used = np.zeros(count, np.bool_)
    used[first : int(ends[-1])] = np.repeat(present, sizes)
    wide = pa.types.is_large_list(type_) or pa.types.is_large_list_view(type_)
    integer = np.int64 if wide else np.int32
    if not (pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_)):
        if pa.types.is_map(type_):  # pyarrow aborts where an entry or a key is NULL
            used[:] = True
        children = [_drawn(rng, element, count, used)]
        buffers = [bitmap(present), pa.py_buffer(ends.astype(integer))]
        return pa.Array.from_buffers(type_, rows, buffers, children=children)
    starts = ends[:-1].copy()
    style = rng.randrange(3)
    if style == 1:  # backwards
        starts, sizes = starts[::-1].copy(), sizes[::-1].copy()
    elif style == 2:  # anywhere, one over the other
        starts = np.array([rng.randrange(count - int(size) + 1) for size in sizes], np.int64)
    children = [_drawn(rng, element, count, np.ones(count, np.bool_))]
    buffers = [bitmap(present), *(pa.py_buffer(part.astype(integer)) for part in (starts, sizes))]
    return pa.Array.from_buffers(type_, rows, buffers, children=children)


def bitmap(present: np.ndarray) -> pa.Buffer | None:
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


def validated(array: pa.Array, present: np.ndarray) -> pa.Array:
    """An array that begins at its buffers' first cell, with another validity."""
    assert array.offset == 0
    return _rebuilt(array, array.type, array.type, [bitmap(present)])


# ------------------------------------------------------------------------------ exact comparison


def bits_type(type_: pa.DataType) -> pa.DataType:
    """The type with integers in place of floats, which are compared by their bits then, and of times, not all
    of which Python has."""
    if pa.types.is_floating(type_) or pa.types.is_temporal(type_):
        return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[type_.bit_width]
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(bits_type(field.type)) for field in type_])
    if pa.types.is_map(type_):
        parts = (type_.key_field, type_.item_field)
        return pa.map_(*(field.with_type(bits_type(field.type)) for field in parts))
    if not hasattr(type_, "value_field"):
        return type_
    element = type_.value_field.with_type(bits_type(type_.value_field.type))
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(element, type_.list_size)
    if pa.types.is_large_list(type_):
        return pa.large_list(element)
    if pa.types.is_list_view(type_):
        return pa.list_view(element)
    if pa.types.is_large_list_view(type_):
        return pa.large_list_view(element)
    return pa.list_(element)


def as_bits(array: pa.Array) -> pa.Array:
    """The same array with integers in place of floats."""
    return _rebuilt(array, array.type, bits_type(array.type), None)


def _rebuilt(
    array: pa.Array, type_: pa.DataType, target: pa.DataType, validity: list[Any] | None
) -> pa.Array:
    buffers = array.buffers()
    own = buffers[:1] if validity is None else validity
    if pa.types.is_struct(type_):
        # field() is cut as the struct is: what comes before its first row is put there again.
        children = [
            _whole(array, number, bits_type(field.type) if type_ != target else field.type)
            for number, field in enumerate(type_)
        ]
        return pa.Array.from_buffers(target, len(array), _cut(own, array), children=children)
    if pa.types.is_fixed_size_list(type_) or hasattr(type_, "value_field") or pa.types.is_map(type_):
        values = array.values
        child = values if type_ == target else as_bits(values)
        views = pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_)
        count = 0 if pa.types.is_fixed_size_list(type_) else 2 if views else 1
        return pa.Array.from_buffers(
            target, len(array), [*own, *buffers[1 : 1 + count]], offset=array.offset, children=[child]
        )
    return pa.Array.from_buffers(target, len(array), [*own, *buffers[1:]], offset=array.offset)


def _whole(array: pa.Array, number: int, target: pa.DataType) -> pa.Array:
    field = array.field(number)
    return field if field.type == target else as_bits(field)


def _cut(validity: list[Any], array: pa.Array) -> list[Any]:
    """A struct's validity from its first row on."""
    if validity[0] is None or array.offset == 0:
        return validity
    bits = np.unpackbits(np.frombuffer(validity[0], np.uint8), bitorder="little")
    return [bitmap(bits[array.offset : array.offset + len(array)].astype(np.bool_))]


def same(left: pa.Array, right: pa.Array) -> bool:
    """Equal to the bit, whatever lies below NULL."""
    return bool(left.type == right.type and as_bits(left).equals(as_bits(right)))
