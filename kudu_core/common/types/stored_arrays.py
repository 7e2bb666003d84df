"""Arrays of columns whose cells are stored as another Arrow type than the one that was declared.

Strings of 64-bit offsets and views are stored as strings of 32-bit offsets, dictionaries as their values,
half floats as floats, decimals of up to 38 digits as decimal128 and longer ones as 32 bytes that have the
order of the numbers, cells of a fixed size and intervals as bytes, extension types as what they are made of.
No value changes on the way in or out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kudu_core.common.types.foreign import check_layout, place
from kudu_core.common.types.types import LONG_DECIMAL_BYTES, ColumnType
from kudu_core.errors import ColumnTooLarge, SchemaMismatch

_t = pa.types
_MOST_BYTES = 0x7FFF_FFFF


def inward(array: pa.Array, type_: ColumnType, name: str = "", first_row: int = 0) -> pa.Array:
    """An array of the declared type, already checked (``foreign.check_layout``), as of ``type_.arrow``.

    ``SchemaMismatch`` names the column and the row of a cell that the type does not have.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type == type_.arrow:
        check_sizes(array, type_, name, first_row)
        return array
    if type_.is_dictionary and _t.is_dictionary(array.type):
        array = dictionary_values(array)
    if _t.is_null(array.type):
        return pa.nulls(len(array), type_.arrow)
    if _t.is_float16(array.type):
        numbers = _cells(array, 1, np.float16).astype(np.float32)
        return _fixed(type_.arrow, numbers, array)
    if _t.is_fixed_size_binary(array.type):
        check_size(array.type.byte_width, type_, name, first_row)
        return _as_binary(array, _cells(array, 1, np.dtype(f"V{array.type.byte_width}")))
    if _t.is_interval(array.type):
        return _as_binary(array, _cells(array, 1, np.dtype("V16")))
    if _t.is_decimal256(array.type) and _t.is_binary(type_.arrow):
        return _as_binary(array, _ordered(_cells(array, LONG_DECIMAL_BYTES, np.uint8)))
    return array.cast(type_.arrow)


def dictionary_values(array: pa.DictionaryArray) -> pa.Array:
    """A dictionary's values in their rows, views as strings: Arrow takes none of those by their codes."""
    values = array.dictionary
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(values.type)
    if plain is not None:
        array = pa.DictionaryArray.from_arrays(array.indices, values.cast(plain))
    return array.dictionary_decode()


def outward(array: pa.Array, type_: ColumnType) -> pa.Array:
    """An array of ``type_.arrow``, as the package stored it, as of the declared type."""
    declared = type_.declared
    if array.type == declared:
        return array
    if _t.is_dictionary(declared):
        return _encoded(array, type_)
    if isinstance(declared, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(declared, _brought(array, type_, declared.storage_type))
    return _brought(array, type_, declared)


def _brought(array: pa.Array, type_: ColumnType, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if _t.is_null(wanted):
        return pa.nulls(len(array))
    if _t.is_float16(wanted):
        return _fixed(wanted, _cells(array, 1, np.float32).astype(np.float16), array)
    if _t.is_fixed_size_binary(wanted):
        return _of_binary(array, wanted, wanted.byte_width)
    if _t.is_interval(wanted):
        return _of_binary(array, wanted, 16)
    if _t.is_decimal256(wanted) and _t.is_binary(array.type):
        return _of_binary(array, wanted, LONG_DECIMAL_BYTES)
    return array.cast(wanted)


def _encoded(array: pa.Array, type_: ColumnType) -> pa.Array:
    """As dictionaries, also what comes so already, with other codes or other strings."""
    declared = type_.declared
    if not _t.is_dictionary(array.type):
        array = array.dictionary_encode()
    values = array.dictionary
    if values.type != declared.value_type:
        values = _brought(values, type_, declared.value_type)
    indices = array.indices
    if indices.type != declared.index_type:
        indices = indices.cast(declared.index_type)
    return pa.DictionaryArray.from_arrays(indices, values, ordered=declared.ordered, safe=False)


# ---- cells of a fixed size


def check_stored(array: pa.Array, type_: ColumnType, name: str = "", first_row: int = 0) -> None:
    """``SchemaMismatch`` for an array of ``type_.arrow`` with a cell that the column cannot have."""
    if type_.cell_bytes is not None or type_.is_long_decimal:
        check_layout(array, name, first_row)
        check_sizes(array, type_, name, first_row)


def check_sizes(array: pa.Array, type_: ColumnType, name: str = "", first_row: int = 0) -> None:
    """``SchemaMismatch`` for bytes of another length than the type's cells have."""
    size = LONG_DECIMAL_BYTES if type_.is_long_decimal else type_.cell_bytes
    if size is None or not len(array):
        return
    offsets = _offsets(array)
    wrong = offsets[1:] - offsets[:-1] != size
    if array.null_count:
        wrong &= array.is_valid().to_numpy(zero_copy_only=False)
    if wrong.any():
        row = int(wrong.argmax())
        raise _wrong_size(int(offsets[row + 1] - offsets[row]), size, type_, name, first_row + row)


def check_size(given: int, type_: ColumnType, name: str, row: int) -> None:
    """The same of one cell."""
    size = type_.cell_bytes
    if size is not None and size != given:
        raise _wrong_size(given, size, type_, name, row)


def _wrong_size(given: int, size: int, type_: ColumnType, name: str, row: int) -> SchemaMismatch:
    return SchemaMismatch(f"{place(name, row)}: {given} bytes are no {type_}, which has {size}")


def _validity(array: pa.Array) -> pa.Buffer | None:
    """An array's validity from bit 0 on."""
    if not array.null_count:
        return None
    bits = np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    return pa.py_buffer(bits)


def _cells(array: pa.Array, per_row: int, dtype: Any) -> npt.NDArray[Any]:
    """The cells of an array of fixed cells as (rows * per_row,)."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array) * per_row, dtype)
    wide = np.dtype(dtype).itemsize * per_row
    return np.frombuffer(buffer, dtype, len(array) * per_row, array.offset * wide)


def _fixed(type_: pa.DataType, cells: npt.NDArray[Any], like: pa.Array) -> pa.Array:
    """An array of fixed cells that is null where ``like`` is."""
    return pa.Array.from_buffers(type_, len(like), [_validity(like), pa.py_buffer(cells)])


def _as_binary(array: pa.Array, cells: npt.NDArray[Any]) -> pa.Array:
    """Fixed cells as a binary array; those of NULLs stay where they are, unread."""
    size = cells.nbytes // max(len(array), 1)
    if cells.nbytes > _MOST_BYTES:
        raise ColumnTooLarge(f"{len(array):,} cells of {size} bytes at once: give fewer rows")
    offsets = np.arange(len(array) + 1, dtype=np.int32) * np.int32(size)
    parts = [_validity(array), pa.py_buffer(offsets), pa.py_buffer(cells.view(np.uint8))]
    return pa.Array.from_buffers(pa.binary(), len(array), parts)


def _of_binary(array: pa.Array, wanted: pa.DataType, size: int) -> pa.Array:
    """A binary array whose values have ``size`` bytes, or none, as one of fixed cells, zeros where it is
    null or has none."""
    rows, offsets = len(array), _offsets(array)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    first, last = int(offsets[0]), int(offsets[-1])
    if last - first == rows * size and (not array.null_count or (np.diff(offsets) == size).all()):
        cells = data[first:last]
    else:
        # Elements below lists of a fixed size that are NULL have no bytes.
        valid = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False) & (np.diff(offsets) != 0))
        places = offsets[:-1][valid].astype(np.int64)
        cells = np.zeros((rows, size), np.uint8)
        if len(valid):
            cells[valid] = np.lib.stride_tricks.sliding_window_view(data, size)[places]
        cells = cells.reshape(-1)
    if _t.is_decimal256(wanted):
        cells = _numbers(cells)
    return _fixed(wanted, cells, array)


def _offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)


def _ordered(numbers: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Little-endian numbers of 32 bytes as bytes in the order of the numbers."""
    turned = numbers.reshape(-1, LONG_DECIMAL_BYTES)[:, ::-1].copy()
    turned[:, 0] ^= 0x80
    return turned.reshape(-1)


def _numbers(ordered: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The inverse of ``_ordered``."""
    flipped = ordered.reshape(-1, LONG_DECIMAL_BYTES).copy()
    flipped[:, 0] ^= 0x80
    return flipped[:, ::-1].copy().reshape(-1)


__all__ = ["check_size", "check_sizes", "check_stored", "dictionary_values", "inward", "outward"]
