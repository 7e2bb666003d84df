"""Arrays of a nested type as their leaves (``nested_nodes.py`` says which there are).

Values and text are not copied where every element belongs to a row: the cells of a list's streams are cut out
of Arrow's own buffers by other offsets.  What lies below NULL, which may be anything, is left out, or zero,
so that equal values have equal leaves.

Arrays are somebody else's, and so nothing of them is read before it was checked: at each level what belongs
to the rows that are given, so that a slice of a long array costs what a short array does.

Bitmaps begin at bit 0 and say 1 where something is there; None: everywhere.  ``bounds`` (int32, rows + 1,
from 0) are the places in the elements of a list at which its rows begin and end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kudu_core._ext.columns import bitmaps
from kudu_core._ext.columns import columns as kernel
from kudu_core.common.types import foreign
from kudu_core.common.types.nested.nested_nodes import (
    LENGTH_BYTES,
    Bits,
    Bytes,
    FlatNode,
    I32Array,
    ListNode,
    NestedNode,
    StructNode,
    check_size,
)
from kudu_core.common.types.stored_arrays import inward
from kudu_core.errors import ColumnTooLarge, SchemaMismatch

Cells: TypeAlias = tuple[I32Array, Bytes]
"""Offsets and data of a binary column."""

_t = pa.types
_NO_BYTES = np.empty(0, np.uint8)


def flattened(root: NestedNode, array: pa.Array, first_row: int) -> list[pa.Array]:
    """The leaves of an array, each as long as the array.

    ``SchemaMismatch`` names the place and the row of what is broken, or NULL where the type has none,
    ``ColumnTooLarge`` the leaf whose cells exceed 2 GiB.
    """
    foreign.extent_of(array, root.name)
    try:
        array.validate()  # At all levels: that buffers and children are as long as they are to be.
    except (pa.ArrowException, ValueError) as error:
        raise foreign.broken(root.name, error) from None
    leaves: list[pa.Array] = []
    _outside(root, array, None, first_row, leaves)
    return leaves


# ------------------------------------------------------------------------------ outside of lists


def _outside(
    node: NestedNode, array: pa.Array, around: Bits | None, first_row: int, leaves: list[pa.Array]
) -> None:
    """``around``: where all structs around are there."""
    place = _ErrorPlace(node.name, first_row, None)
    if isinstance(node, FlatNode):
        place.check_cells(node, array)
        stored = inward(array, node.type)
        own, _ = foreign.validity_of(stored, node.name)
        place.check(node, own, around, len(array))
        leaves.append(stored if around is None else _masked(stored, node, _both(own, around)))
        return
    array = _storage(array)
    own, _ = foreign.validity_of(array, node.name)
    place.check(node, own, around, len(array))
    there = _both(own, around)
    if isinstance(node, ListNode):
        leaves.extend(_packed(node, array, there, place))
        return
    for number, field in enumerate(node.fields):
        _outside(field, array.field(number), there, first_row, leaves)
    if node.own_flags:
        missing = bitmaps.bits_full(len(array), False) if there is None else np.bitwise_not(there)
        leaves.append(pa.Array.from_buffers(pa.bool_(), len(array), [None, pa.py_buffer(missing)]))


def _masked(stored: pa.Array, node: FlatNode, there: Bits | None) -> pa.Array:
    """The same cells with another validity, which begins with the first of them."""
    rows, first = len(stored), stored.offset
    buffers = stored.buffers()
    values = foreign.bytes_of(buffers[-1])
    validity = None if there is None else pa.py_buffer(there)
    parts: list[npt.NDArray[Any]]
    if node.is_bool:
        parts = [bitmaps.bits_slice(values, first, rows)]
    elif node.type.width:
        parts = [values[first * node.type.width : (first + rows) * node.type.width]]
    else:
        parts = [_offsets_of(stored), values]
    return pa.Array.from_buffers(stored.type, rows, [validity, *map(pa.py_buffer, parts)])


def _packed(node: ListNode, array: pa.Array, there: Bits | None, place: _ErrorPlace) -> list[pa.Array]:
    """The streams of the lists of an array."""
    rows = len(array)
    streams: list[Cells] = []
    elements, counts = _elements(node, array, there, place)
    _inside(node.element, elements, None, place.at(node.element.name, _ends(counts, node.name)), streams)
    made = []
    for number, (offsets, data) in enumerate(streams):
        validity = pa.py_buffer(there) if number == 0 and there is not None else None
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
        made.append(pa.Array.from_buffers(pa.binary(), rows, buffers))
    return made


# ------------------------------------------------------------------------------ in lists


@dataclass(frozen=True, slots=True)
class _ErrorPlace:
    """Where cells are, for a message."""

    name: str
    first_row: int
    bounds: I32Array | None
    """None: each cell is a row."""

    def at(self, name: str, bounds: I32Array | None = None) -> _ErrorPlace:
        return _ErrorPlace(name, self.first_row, self.bounds if bounds is None else bounds)

    def row(self, cell: int) -> int:
        """The number of the row in which a cell is."""
        if self.bounds is not None:
            cell = int(np.searchsorted(self.bounds, cell, "right")) - 1
        return self.first_row + cell

    def check_cells(self, node: FlatNode, array: pa.Array) -> None:
        """Refuse cells of a flat type that it does not have."""
        try:
            _check_cells(node, array, self.name)
        except (pa.ArrowException, ValueError) as error:
            cell = foreign.first_refused(array, lambda some: _check_cells(node, some, self.name))
            if cell is None:
                raise foreign.broken(self.name, error) from None
            try:
                _check_cells(node, array.slice(cell, 1), self.name, self.row(cell))
            except SchemaMismatch as told:
                raise told from None
            except (pa.ArrowException, ValueError) as why:
                raise foreign.broken(self.name, why, self.row(cell)) from None
            raise foreign.broken(self.name, error, self.row(cell)) from None

    def check_ranges(self, wrong: npt.NDArray[np.bool_]) -> None:
        """Refuse lists, of which some are not in their elements."""
        if wrong.any():
            raise foreign.broken(self.name, "a list leaves its elements", self.row(int(np.argmax(wrong))))

    def check(self, node: NestedNode, own: Bits | None, around: Bits | None, cells: int) -> None:
        """Refuse NULL where the type has none and all structs around are there."""
        if node.nullable or own is None:
            return
        wrong = _both(np.bitwise_not(own), around)
        assert wrong is not None
        if bitmaps.bits_count(wrong, cells):
            row = self.row(int(np.argmax(bitmaps.bits_to_bytes(wrong, cells))))
            raise SchemaMismatch(
                f"{foreign.place(self.name, row)}: NULL, where the type is declared not null; give a value, "
                "or declare it nullable"
            )


def _check_cells(node: FlatNode, array: pa.Array, name: str, row: int = 0) -> None:
    """As ``validate(full=True)``, and much faster where the type is stored as it is."""
    if array.type != node.type.arrow:
        array.validate(full=True)
        return
    width = node.type.width
    offsets = None if width else _offsets_of(array)
    values = foreign.bytes_of(array.buffers()[-1])
    if width:  # Of bools these are not their bits, which are not looked at.
        values = values[array.offset * width : (array.offset + len(array)) * width]
    valid, _ = foreign.validity_of(array, name)
    foreign.check_cells(node.type, values, offsets, valid, name, row)


def _inside(
    node: NestedNode, array: pa.Array, around: Bits | None, place: _ErrorPlace, streams: list[Cells]
) -> None:
    """Add the streams of elements, of which all but those outside of ``around`` are there."""
    bounds = place.bounds
    assert bounds is not None
    if isinstance(node, FlatNode):
        place.check_cells(node, array)
        array = inward(array, node.type)
    else:
        array = _storage(array)
    count = len(array)
    own, _ = foreign.validity_of(array, node.name)
    place.check(node, own, around, count)
    there = _both(own, around)
    if isinstance(node, FlatNode):
        _flat_streams(node, array, there, bounds, streams)
    elif isinstance(node, StructNode):
        for number, field in enumerate(node.fields):
            _inside(field, array.field(number), there, place.at(field.name), streams)
    elif node.size is None:
        elements, counts = _elements(node, array, there, place)
        ends = _ends(counts, node.name)
        streams.append((_times(bounds, LENGTH_BYTES, node.name), counts.view(np.uint8)))
        _inside(node.element, elements, None, place.at(node.element.name, ends[bounds]), streams)
    else:
        elements = array.values.slice(array.offset * node.size, count * node.size)
        below = place.at(node.element.name, _times(bounds, node.size, node.name))
        _inside(node.element, elements, _repeated(there, count, node.size), below, streams)
    if node.nullable:
        missing = None if own is None else _both(np.bitwise_not(own), around)
        streams.append(_flags(missing, count, bounds))


def _flat_streams(
    node: FlatNode, array: pa.Array, there: Bits | None, bounds: I32Array, streams: list[Cells]
) -> None:
    count, first, width = len(array), array.offset, node.type.width
    values = foreign.bytes_of(array.buffers()[-1])
    keep = None if there is None else bitmaps.bits_to_bytes(there, count).view(np.bool_)
    if width:
        if node.is_bool:
            values = bitmaps.bits_to_bytes(bitmaps.bits_slice(values, first, count), count)
        else:
            values = values[first * width : (first + count) * width]
        if keep is not None:
            values = _zeroed(values, width, keep)
        streams.append((_times(bounds, width, node.name), values))
        return
    offsets = _offsets_of(array)
    lengths = np.diff(offsets)
    if keep is not None:
        there_only = lengths * keep
        if int(there_only.sum(dtype=np.int64)) != int(offsets[-1]) - int(offsets[0]):
            rows = np.where(keep, np.arange(count), -1)
            offsets, values = kernel.take_var(values, offsets, rows)
        lengths = there_only
    streams.append((_times(bounds, LENGTH_BYTES, node.name), lengths.view(np.uint8)))
    streams.append((offsets[bounds], values))


def _zeroed(values: Bytes, width: int, keep: npt.NDArray[np.bool_]) -> Bytes:
    """Cells of one width, those that are not to be kept as zeros."""
    # Of Arrow's pool, which has memory that was touched before: that of numpy takes ten times as long.
    kept = np.frombuffer(pa.allocate_buffer(len(values)), np.uint8)
    np.copyto(kept, values)
    cells = kept.view(f"<u{width}") if width in (1, 2, 4, 8) else kept.reshape(-1, width)
    cells[~keep] = 0
    return kept


def _flags(missing: Bits | None, count: int, bounds: I32Array) -> Cells:
    """A byte for each element of the rows in which one is NULL."""
    if missing is None or not bitmaps.bits_count(missing, count):
        return np.zeros(len(bounds), np.int32), _NO_BYTES
    flags = bitmaps.bits_to_bytes(missing, count)
    rows = np.full(len(bounds) - 1, -1, np.int64)
    having = np.searchsorted(bounds, np.flatnonzero(flags.view(np.bool_)), "right") - 1
    rows[having] = having
    return kernel.take_var(flags, bounds, rows)


# ------------------------------------------------------------------------------ elements of lists


def _elements(
    node: ListNode, array: pa.Array, there: Bits | None, place: _ErrorPlace
) -> tuple[pa.Array, I32Array]:
    """The elements of the lists that are there, one list after the other, and how many each has."""
    rows, type_ = len(array), array.type
    if not rows:
        return array.values.slice(0, 0), np.empty(0, np.int32)
    if _t.is_fixed_size_list(type_):
        return _of_one_size(node, array, there)
    view = _t.is_list_view(type_) or _t.is_large_list_view(type_)
    wide = _t.is_large_list(type_) or _t.is_large_list_view(type_)
    integer = np.dtype(np.int64 if wide else np.int32)
    buffers = array.buffers()
    starts = np.frombuffer(buffers[1], integer, rows + (not view), integer.itemsize * array.offset)
    if view:
        sizes = np.frombuffer(buffers[2], integer, rows, integer.itemsize * array.offset)
    else:
        sizes = np.diff(starts)
        place.check_ranges((sizes < 0) | (starts[:-1] < 0) | (starts[1:] > len(array.values)))
        starts = starts[:-1]
    if there is not None:
        sizes = sizes * bitmaps.bits_to_bytes(there, rows)
    if view:  # Whatever lies below NULL.
        last = np.int64(len(array.values)) - sizes
        place.check_ranges((sizes < 0) | (sizes > 0) & ((starts < 0) | (starts > last)))
    total = int(sizes.sum(dtype=np.int64))
    # Also of views that overlap: what they come to, before it is made.
    check_size(node.name, rows, total * node.element.stride)
    counts = sizes.astype(np.int32, copy=False)
    if not view and there is None:
        return array.values.slice(int(starts[0]), total), counts
    some = np.flatnonzero(sizes)
    return _joined(node, array.values, starts[some].astype(np.int64), sizes[some].astype(np.int64)), counts


def _of_one_size(node: ListNode, array: pa.Array, there: Bits | None) -> tuple[pa.Array, I32Array]:
    """As ``_elements``, where Arrow has elements also below NULL."""
    rows, size = len(array), array.type.list_size
    counts = np.full(rows, size, np.int32)
    if there is not None:
        counts *= bitmaps.bits_to_bytes(there, rows)
    check_size(node.name, rows, int(counts.sum(dtype=np.int64)) * node.element.stride)
    if there is None or not size:
        return array.values.slice(array.offset * size, rows * size), counts
    some = np.flatnonzero(counts)
    starts = (some + array.offset) * np.int64(size)
    return _joined(node, array.values, starts, np.full(len(some), size, np.int64)), counts


def _joined(
    node: ListNode, values: pa.Array, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> pa.Array:
    """These ranges of elements, of which none is empty, one after the other."""
    if not len(starts):
        return values.slice(0, 0)
    ends = starts + sizes
    breaks = np.flatnonzero(ends[:-1] != starts[1:])
    starts, ends = starts[np.r_[0, breaks + 1]], ends[np.r_[breaks, len(ends) - 1]]
    if len(starts) == 1:
        return values.slice(int(starts[0]), int(ends[0] - starts[0]))
    first = int(starts.min())
    values = values.slice(first, int(ends.max()) - first)
    try:
        values.validate(full=True)  # Arrow reads it next.
    except (pa.ArrowException, ValueError) as error:
        raise foreign.broken(node.element.name, error) from None
    apart = pa.LargeListViewArray.from_arrays(pa.array(starts - first), pa.array(ends - starts), values)
    try:
        return apart.flatten()
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:  # Text of more than 2 GiB.
        raise ColumnTooLarge(f"cells of column {node.name!r} at once: {error}") from None


def _offsets_of(array: pa.Array) -> I32Array:
    """Of the cells of variable width, of which an array without cells need not have any."""
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)


def _ends(counts: npt.NDArray[Any], name: str) -> I32Array:
    """Where cells of these sizes begin and end."""
    check_size(name, len(counts), int(counts.sum(dtype=np.int64)))
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    return ends


def _times(bounds: I32Array, width: int, name: str) -> I32Array:
    """Bounds of elements as those of their bytes, or of what each element has so many of."""
    check_size(name, len(bounds) - 1, int(bounds[-1]) * width)
    return bounds if width == 1 else bounds * np.int32(width)


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _both(own: Bits | None, around: Bits | None) -> Bits | None:
    if own is None or around is None:
        return around if own is None else own
    size = min(len(own), len(around))  # both have the bits that count
    return own[:size] & around[:size]


def _repeated(there: Bits | None, rows: int, times: int) -> Bits | None:
    if there is None:
        return None
    return bitmaps.bytes_to_bits(np.repeat(bitmaps.bits_to_bytes(there, rows), times))


__all__ = ["flattened"]
