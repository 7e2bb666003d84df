"""Arrays of a nested type of their leaves (``nested_nodes.py`` says which there are).

Each leaf is a sound Arrow array; what the cells of a list's streams hold is not trusted.  Sizes that do not
agree, lengths below zero, flags that are none, text that is not UTF-8 and NULL where none may be raise
``PageError`` with the leaf and the row: who calls knows in what they were stored.  So no array is made that
``validate(full=True)`` refuses.

Values and text are not copied, unless they begin at an address that Arrow does not like.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kudu_core._ext.base.status import PageError
from kudu_core._ext.columns import bitmaps
from kudu_core._ext.columns import columns as kernel
from kudu_core._ext.columns import foreign as checks
from kudu_core.common.types import foreign
from kudu_core.common.types.nested.nested_nodes import (
    LARGEST_OFFSET,
    LENGTH_BYTES,
    Bits,
    Bytes,
    FlatNode,
    I32Array,
    ListNode,
    NestedNode,
    StructNode,
    check_size,
    streams_of,
)
from kudu_core.common.types.stored_arrays import outward
from kudu_core.common.types.types import TYPE_DECIMAL

Streams: TypeAlias = dict[str, tuple[I32Array, Bytes]]
"""Offsets, which may begin above 0, and data of the cells of streams, by their names."""

_t = pa.types


def assembled(root: NestedNode, leaves: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """The array of the leaves, by their names, each of so many rows."""
    return _outside(root, leaves, rows, None)


def _damaged(name: str, why: str, wrong: npt.NDArray[Any] | None = None) -> NoReturn:
    """``wrong``: which rows."""
    row = 0 if wrong is None else int(np.argmax(wrong))
    raise PageError(f"leaf {name!r} of a nested column, row {row}: {why}", row)


# ------------------------------------------------------------------------------ outside of lists


def _outside(node: NestedNode, leaves: Mapping[str, pa.Array], rows: int, around: Bits | None) -> pa.Array:
    """``around``: where all structs around are there."""
    if isinstance(node, FlatNode):
        stored = leaves[node.name]
        valid, _ = foreign.validity_of(stored, node.name)
        if valid is not None and not node.nullable:
            _check_there(node.name, valid, around, rows)
            stored = _filled(stored, node, valid)
        return outward(stored, node.type)
    if isinstance(node, ListNode):
        return _wrapped(node, _lists(node, leaves, rows, around))
    there = around
    if node.own_flags:
        assert node.flags is not None
        there = _told(node.flags, leaves[node.flags], rows)
    fields = [_outside(field, leaves, rows, there) for field in node.fields]
    return _struct(node, rows, there if node.nullable else None, fields)


def _told(name: str, flags: pa.Array, rows: int) -> Bits | None:
    """Where a struct is there, by its leaf of flags."""
    if flags.null_count:
        _damaged(name, "NULL among flags", _nulls(flags))
    if not rows:
        return None
    bits = bitmaps.bits_slice(foreign.bytes_of(flags.buffers()[1]), flags.offset, rows)
    return np.bitwise_not(bits) if bitmaps.bits_count(bits, rows) else None


def _check_there(name: str, valid: Bits, around: Bits | None, rows: int) -> None:
    """NULL in what the type declares not null, only where a struct around is NULL."""
    wrong = ~bitmaps.bits_to_bytes(valid, rows).view(np.bool_)
    if around is not None:
        wrong &= bitmaps.bits_to_bytes(around, rows).view(np.bool_)
    if wrong.any():
        _damaged(name, "NULL, where the type is declared not null", wrong)


def _filled(stored: pa.Array, node: FlatNode, valid: Bits) -> pa.Array:
    """Zeros, or nothing, in place of NULL: what Arrow's own builders put below a struct that is NULL, where
    a field is not nullable."""
    rows, first, width = len(stored), stored.offset, node.type.width
    values = foreign.bytes_of(stored.buffers()[-1])
    keep = bitmaps.bits_to_bytes(valid, rows).view(np.bool_)
    parts: list[npt.NDArray[Any]]
    if node.is_bool:
        parts = [bitmaps.bits_slice(values, first, rows) & valid[: (rows + 7) // 8]]
    elif width:
        cells = values[first * width : (first + rows) * width].reshape(rows, width).copy()
        cells[~keep] = 0
        parts = [cells.reshape(-1)]
    else:
        parts = list(kernel.take_var(values, _offsets_of(stored), np.where(keep, np.arange(rows), -1)))
    return pa.Array.from_buffers(stored.type, rows, [None, *map(pa.py_buffer, parts)])


def _struct(node: StructNode, rows: int, there: Bits | None, fields: list[pa.Array]) -> pa.Array:
    validity = None if there is None else pa.py_buffer(there)
    return _wrapped(node, pa.Array.from_buffers(node.storage, rows, [validity], children=fields))


def _wrapped(node: StructNode | ListNode, storage: pa.Array) -> pa.Array:
    if isinstance(node.arrow, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(node.arrow, storage)
    return storage


def _lists(node: ListNode, leaves: Mapping[str, pa.Array], rows: int, around: Bits | None) -> pa.Array:
    names = list(streams_of(node.element))
    first = names[0][0]
    valid, _ = foreign.validity_of(leaves[first], first)
    if valid is not None and not node.nullable:
        _check_there(first, valid, around, rows)
    streams: Streams = {}
    for name, _ in names:
        leaf = leaves[name]
        offsets, data = _offsets_of(leaf), foreign.bytes_of(leaf.buffers()[2])
        if name != first and leaf.null_count:
            _damaged(name, "NULL, which only the first leaf of a list may be", _nulls(leaf))
        if valid is not None and name == first:
            keep = bitmaps.bits_to_bytes(valid, rows).view(np.bool_)
            if np.diff(offsets)[~keep].any():  # NULL cells, of which nobody knows what is in them
                offsets, data = kernel.take_var(data, offsets, np.where(keep, np.arange(rows), -1))
        streams[name] = offsets, data
    shown = valid if node.nullable else None
    if node.size is not None:
        check_size(node.name, rows, node.size * rows)
        if valid is not None:
            _complete(node.element, np.cumsum(np.append(False, keep), dtype=np.int32) * node.size, streams)
            _pad(node, streams, keep)
        bounds = np.arange(rows + 1, dtype=np.int32) * np.int32(node.size)
        elements = _inside(node.element, bounds, streams)
    else:
        bounds = _counted(first, streams[first][0], node.element.stride)
        elements = _inside(node.element, bounds, streams)
        if _t.is_fixed_size_list(node.storage) and bounds[-1]:
            _damaged(first, "elements, where the type has none", np.diff(bounds) != 0)
    return _list_array(node, rows, shown, bounds, elements)


def _counted(name: str, offsets: I32Array, stride: int) -> I32Array:
    """Where the lists of rows end among the elements, by the cells of the first stream."""
    ends: I32Array = offsets - offsets[0]
    if stride == 1:
        return ends
    bounds: I32Array = ends // np.int32(stride)
    if (bounds * np.int32(stride) != ends).any():
        _damaged(name, f"a cell has no multiple of {stride} bytes", np.diff(ends) % stride != 0)
    return bounds


def _pad(node: ListNode, streams: Streams, there: npt.NDArray[np.bool_]) -> None:
    """Lists of a fixed size have elements in Arrow also where they are NULL: zeros, or nothing."""
    assert node.size is not None
    for name, width in streams_of(node.element, node.size):
        if not width:
            continue
        offsets, data = streams[name]
        sizes = np.diff(offsets)
        if (sizes != there * np.int64(width)).any():
            _damaged(name, f"a cell has not the {width} bytes of its list", sizes != there * np.int64(width))
        check_size(name, len(there), width * len(there))
        bounds = np.arange(len(offsets), dtype=np.int32) * np.int32(width)
        # Of Arrow's pool, which has memory that was touched before.
        room = pa.allocate_buffer(len(there) * width)
        padded = np.frombuffer(room, np.uint8).reshape(len(there), width)
        padded[~there] = 0
        padded[there] = data[int(offsets[0]) : int(offsets[-1])].reshape(-1, width)
        streams[name] = bounds, padded.reshape(-1)


# ------------------------------------------------------------------------------ in lists


def _inside(node: NestedNode, bounds: I32Array, streams: Streams) -> pa.Array:
    """The elements that streams hold.  ``bounds`` (int32, rows + 1, from 0): where rows begin and end."""
    count = int(bounds[-1])
    if isinstance(node, FlatNode):
        return _declared(_flat(node, bounds, streams), node)
    # Flags come last: what has been read by then proves that there are so many elements.
    if isinstance(node, StructNode):
        fields = [_inside(node.fields[0], bounds, streams)]
        for field in node.fields[1:]:  # The first one was there before any that was added.
            _add_missing(field, bounds, streams)
            fields.append(_inside(field, bounds, streams))
        return _struct(node, count, _unflagged(node, bounds, streams), fields)
    if node.size is not None:
        elements = _inside(node.element, _times(bounds, node.size, node.name), streams)
        return _wrapped(node, _list_array(node, count, _unflagged(node, bounds, streams), None, elements))
    ends = _lengths(f"{node.name}:length", bounds, streams)
    if _t.is_fixed_size_list(node.storage) and ends[-1]:
        _damaged(node.name, "elements, where the type has none")
    elements = _inside(node.element, ends[bounds], streams)
    return _wrapped(node, _list_array(node, count, _unflagged(node, bounds, streams), ends, elements))


def _complete(node: NestedNode, bounds: I32Array, streams: Streams) -> None:
    """Add what is missing of elements that are all of one size: ``_pad`` counts their bytes."""
    if isinstance(node, StructNode):
        _complete(node.fields[0], bounds, streams)
        for field in node.fields[1:]:
            _add_missing(field, bounds, streams)
            _complete(field, bounds, streams)
    elif isinstance(node, ListNode) and node.size is not None:
        _complete(node.element, _times(bounds, node.size, node.name), streams)


def _add_missing(node: NestedNode, bounds: I32Array, streams: Streams) -> None:
    """A field that was added to structs in lists has no bytes in rows that are older: put zeros there, and
    flags that say NULL.  Changes ``streams``."""
    names = list(streams_of(node))
    first, width = names[0]
    offsets = streams[first][0]
    if not node.nullable or int(offsets[-1]) - int(offsets[0]) == int(bounds[-1]) * width:
        return
    missing = (np.diff(offsets) == 0) & (np.diff(bounds) > 0)
    if not missing.any():
        return
    source, every = missing.astype(np.int32), np.arange(len(missing))
    for name, width in names:
        offsets, data = streams[name]
        if (np.diff(offsets)[missing] != 0).any():
            _damaged(name, "bytes, where another leaf has none", missing & (np.diff(offsets) != 0))
        is_flags = name == f"{node.name}:null"
        if is_flags or width:
            ends = _times(bounds, 1 if is_flags else width, name)
            filling = np.full(int(ends[-1]), is_flags, np.uint8)
            streams[name] = kernel.interleave_var([(offsets, data), (ends, filling)], source, every)


def _fixed(name: str, width: int, bounds: I32Array, streams: Streams) -> Bytes:
    """The bytes of a stream that has so many for each element."""
    offsets, data = streams[name]
    first = int(offsets[0])
    ends = _times(bounds, width, name)
    if (offsets - offsets[0] != ends).any():
        _damaged(name, f"a cell has not {width} bytes for each element", np.diff(offsets) != np.diff(ends))
    return data[first : first + int(ends[-1])]


def _lengths(name: str, bounds: I32Array, streams: Streams) -> I32Array:
    """Where elements end, by a stream of lengths: as many as elements and one, from 0."""
    lengths = _fixed(name, LENGTH_BYTES, bounds, streams).view("<i4")
    if len(lengths) and int(lengths.min()) < 0:
        _damaged(name, "a length below zero")
    if int(lengths.sum(dtype=np.int64)) > LARGEST_OFFSET:
        _damaged(name, "lengths of more than 2 GiB")
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return ends


def _unflagged(node: NestedNode, bounds: I32Array, streams: Streams) -> Bits | None:
    """Which elements are not NULL."""
    if not node.nullable:
        return None
    name = f"{node.name}:null"
    offsets, data = streams[name]
    if offsets[0] == offsets[-1]:
        return None
    sizes, told = np.diff(bounds), np.diff(offsets)
    flags = data[int(offsets[0]) : int(offsets[-1])]
    if int(flags.max()) > 1:
        _damaged(name, "a flag that is neither 0 nor 1")
    having = told != 0
    if (told != sizes * having).any():
        _damaged(name, "flags of other elements than there are", told != sizes * having)
    if len(flags) != int(bounds[-1]):
        parts = [(offsets, data), (bounds, np.zeros(int(bounds[-1]), np.uint8))]
        source = (~having).astype(np.int32)
        _, flags = kernel.interleave_var(parts, source, np.arange(len(having)))
    return bitmaps.bytes_to_bits(np.bitwise_xor(flags, np.uint8(1)))


def _declared(stored: pa.Array, node: FlatNode) -> pa.Array:
    """Elements of the declared type, which may have fewer values than the one that stores it."""
    try:
        made = outward(stored, node.type)
        if made is not stored:
            made.validate(full=True)
    except (pa.ArrowInvalid, ValueError) as error:
        _damaged(node.name, str(error))
    return made


def _flat(node: FlatNode, bounds: I32Array, streams: Streams) -> pa.Array:
    count, width = int(bounds[-1]), node.type.width
    if not width:
        ends = _lengths(f"{node.name}:length", bounds, streams)
        valid = _unflagged(node, bounds, streams)
        offsets, data = streams[node.name]
        if (offsets - offsets[0] != ends[bounds]).any():
            _damaged(node.name, "other bytes than lengths", np.diff(offsets) != np.diff(ends[bounds]))
        data = data[int(offsets[0]) : int(offsets[-1])]
        found = checks.variable(data, ends, valid, True) if node.type.is_string else None
        if found is not None:
            _damaged(node.name, "text that is not UTF-8", bounds[1:] > found[0])
        parts = [ends, data]
    else:
        data = _fixed(node.name, width, bounds, streams)
        valid = _unflagged(node, bounds, streams)
        if node.is_bool:
            if len(data) and int(data.max()) > 1:
                _damaged(node.name, "a truth value that is neither 0 nor 1")
            data = bitmaps.bytes_to_bits(data)
        elif node.type.kind == TYPE_DECIMAL and width == 16:
            number = checks.digits(data, node.type.arrow.precision, valid)
            if number >= 0:
                _damaged(node.name, "a decimal has more digits than its type", bounds[1:] > number)
        parts = [_aligned(data, min(width, 8))]
    validity = None if valid is None else pa.py_buffer(valid)
    return pa.Array.from_buffers(node.type.arrow, count, [validity, *map(pa.py_buffer, parts)])


# ------------------------------------------------------------------------------ arrays of lists


def _list_array(
    node: ListNode, rows: int, valid: Bits | None, bounds: I32Array | None, elements: pa.Array
) -> pa.Array:
    """``bounds``: of its cells; not needed where all have the same size."""
    type_ = node.storage
    buffers = [None if valid is None else pa.py_buffer(valid)]
    if not _t.is_fixed_size_list(type_):
        assert bounds is not None
        if _t.is_large_list(type_) or _t.is_large_list_view(type_):
            bounds = bounds.astype(np.int64)
        if _t.is_list_view(type_) or _t.is_large_list_view(type_):
            buffers += [pa.py_buffer(bounds[:-1]), pa.py_buffer(np.diff(bounds))]
        else:
            buffers.append(pa.py_buffer(bounds))
    return pa.Array.from_buffers(type_, rows, buffers, children=[elements])


def _offsets_of(leaf: pa.Array) -> I32Array:
    if not len(leaf):
        return np.zeros(1, np.int32)
    return np.frombuffer(leaf.buffers()[1], np.int32, len(leaf) + 1, 4 * leaf.offset)


def _times(bounds: I32Array, width: int, name: str) -> I32Array:
    """Bounds of elements as those of their bytes, or of what each element has so many of."""
    if int(bounds[-1]) * width > LARGEST_OFFSET:
        _damaged(name, "lists of more than 2 GiB")
    return bounds if width == 1 else bounds * np.int32(width)


def _nulls(leaf: pa.Array) -> npt.NDArray[np.bool_]:
    valid, _ = foreign.validity_of(leaf)
    assert valid is not None
    return ~bitmaps.bits_to_bytes(valid, len(leaf)).view(np.bool_)


def _aligned(data: Bytes, alignment: int) -> Bytes:
    return data if data.ctypes.data % alignment == 0 else data.copy()


__all__ = ["assembled"]
