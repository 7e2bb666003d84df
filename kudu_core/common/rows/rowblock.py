"""Columns as raw buffers, and blocks of rows made of them: what travels between the floors.

A *fixed column* is ``width`` little-endian bytes a row in one uint8 array (a bool is one byte, 0 or
1); a *variable column* is int32 offsets (rows + 1, may start above 0) into uint8 data; *validity* is
a bitmap, LSB first, bit 1 = NOT null, bit offset 0, None where no cell is null.  The value of a null
cell is unspecified but defined memory.  Buffers are shared freely and never written after they
were handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kudu_core._ext.columns import bitmaps
from kudu_core._ext.columns import columns as kernel
from kudu_core.common.rows.allocation import allocate
from kudu_core.common.types import foreign
from kudu_core.common.types.types import TYPE_BOOL, ColumnType
from kudu_core.common.types.values import raw_bytes
from kudu_core.errors import ColumnTooLarge

T = TypeVar("T")
U8Array = npt.NDArray[np.uint8]
I32Array = npt.NDArray[np.int32]
I64Array = npt.NDArray[np.int64]

_EMPTY = np.empty(0, np.uint8)
_NO_ROWS = np.zeros(1, np.int32)
MAX_DATA_BYTES = 0x7FFF_FFFF
"""Of the cells of a variable column: what int32 offsets address."""


@dataclass(slots=True, eq=False)
class ColumnBuffers:
    """Cells of one column."""

    width: int
    """1, 2, 4, 8, 16; 0 = variable."""
    length: int
    values: U8Array
    """``length * width`` bytes, or the data bytes of a variable column."""
    offsets: I32Array | None = None
    """``length + 1``, variable columns only."""
    validity: U8Array | None = None

    def slice(self, lower: int, upper: int) -> ColumnBuffers:
        """Rows ``[lower, upper)``: views, but for a bitmap that does not begin on a byte."""
        assert 0 <= lower <= upper <= self.length
        rows = upper - lower
        validity = self.validity
        if validity is not None:
            if lower % 8:
                validity = bitmaps.bits_slice(validity, lower, rows)
            else:
                validity = validity[lower // 8 : (upper + 7) // 8]
        if self.offsets is not None:
            return ColumnBuffers(0, rows, self.values, self.offsets[lower : upper + 1], validity)
        values = self.values[lower * self.width : upper * self.width]
        return ColumnBuffers(self.width, rows, values, None, validity)

    def take(self, rows: npt.NDArray[Any]) -> ColumnBuffers:
        """The rows of these numbers, in this order; each in ``[0, length)``."""
        rows = np.ascontiguousarray(rows, np.int64)
        validity = None if self.validity is None else bitmaps.bits_take(self.validity, self.length, rows)
        if self.offsets is not None:
            try:
                offsets, values = kernel.take_var(self.values, self.offsets, rows)
            except OverflowError as error:
                raise too_large(len(rows), error) from error
            check_size(len(rows), len(values))
            return ColumnBuffers(0, len(rows), values, offsets, validity)
        values = kernel.take_fixed(self.values, self.width, rows, allocate(len(rows) * self.width))
        return ColumnBuffers(self.width, len(rows), values, None, validity)

    @staticmethod
    def concat(parts: Sequence[ColumnBuffers]) -> ColumnBuffers:
        """All rows of the parts (at least one, all of one type), in order.

        ``ColumnTooLarge`` when a variable column outgrows what int32 offsets can address.
        """
        assert parts, "nothing says which type an empty list of columns has"
        if len(parts) == 1:
            return parts[0]
        length = sum(part.length for part in parts)
        validity = bitmaps.bits_concat([(part.validity, part.length) for part in parts])
        if parts[0].offsets is None:
            values = np.concatenate([part.values for part in parts])
            return ColumnBuffers(parts[0].width, length, values, None, validity)
        check_size(length, sum(len(part.data) for part in parts))
        values = np.concatenate([part.data for part in parts])
        offsets = np.empty(length + 1, np.int32)
        offsets[0] = row = end = 0
        for part in parts:
            assert part.offsets is not None
            np.add(part.offsets[1:], end - int(part.offsets[0]), out=offsets[row + 1 : row + part.length + 1])
            row += part.length
            end = int(offsets[row])
        return ColumnBuffers(0, length, values, offsets, validity)

    @staticmethod
    def interleave(
        parts: Sequence[ColumnBuffers], source: I32Array, position: I64Array, target: I64Array | None = None
    ) -> ColumnBuffers:
        """Row i is row ``position[i]`` of ``parts[source[i]]`` (at least one part, all of one type).

        ``target``: a permutation, only of fixed columns without nulls; it is row ``target[i]``.
        ``ColumnTooLarge`` when a variable column outgrows what int32 offsets can address.
        """
        validity = None
        if any(part.validity is not None for part in parts):
            bits = [(part.validity, part.length) for part in parts]
            validity = bitmaps.interleave_bits(bits, source, position)
        if parts[0].offsets is None:
            width = parts[0].width
            room = allocate(len(source) * width)
            cells = [part.values for part in parts]
            values = kernel.interleave_fixed(cells, width, source, position, room, target)
            return ColumnBuffers(width, len(source), values, None, validity)
        texts = [(p.offsets, p.values) for p in parts if p.offsets is not None]
        try:
            offsets, values = kernel.interleave_var(texts, source, position)
        except OverflowError as error:
            raise too_large(len(source), error) from error
        check_size(len(source), len(values))
        return ColumnBuffers(0, len(source), values, offsets, validity)

    @property
    def data(self) -> U8Array:
        """The bytes of a variable column that its offsets cover; all values of a fixed one."""
        if self.offsets is None:
            return self.values
        return self.values[int(self.offsets[0]) : int(self.offsets[-1])]

    @property
    def null_count(self) -> int:
        if self.validity is None:
            return 0
        return self.length - bitmaps.bits_count(self.validity, self.length)

    @property
    def nbytes(self) -> int:
        """Bytes that a compact copy would take."""
        bitmap = 0 if self.validity is None else (self.length + 7) // 8
        if self.offsets is None:
            return self.length * self.width + bitmap
        return int(self.offsets[-1]) - int(self.offsets[0]) + 4 * (self.length + 1) + bitmap

    def valid_mask(self) -> npt.NDArray[np.bool_]:
        """(length,) bool: which cells are not null."""
        if self.validity is None:
            return np.ones(self.length, np.bool_)
        return bitmaps.bits_to_bytes(self.validity, self.length).view(np.bool_)

    def is_null(self, row: int) -> bool:
        return self.validity is not None and not self.validity[row >> 3] >> (row & 7) & 1

    def cell(self, row: int) -> bytes:
        """The physical bytes of one cell, whatever its validity."""
        if self.offsets is None:
            return self.values[row * self.width : (row + 1) * self.width].tobytes()
        return self.values[int(self.offsets[row]) : int(self.offsets[row + 1])].tobytes()

    def compact(self) -> ColumnBuffers:
        """The same cells, holding on to no memory beyond them."""
        if self.offsets is None:
            return ColumnBuffers(self.width, self.length, self.values.copy(), None, _copied(self.validity))
        offsets = self.offsets - self.offsets[0]
        return ColumnBuffers(0, self.length, self.data.copy(), offsets, _copied(self.validity))

    def to_arrow(self, type_: ColumnType) -> pa.Array:
        """An Arrow array over the same memory (a bool column is packed into bits)."""
        assert type_.width == self.width, f"a {type_} column has no cells of {self.width} bytes"
        validity = None if self.validity is None else pa.py_buffer(self.validity)
        if self.offsets is not None:
            offsets = pa.py_buffer(_aligned(self.offsets, 4))
            return pa.Array.from_buffers(
                type_.arrow, self.length, [validity, offsets, pa.py_buffer(self.values)]
            )
        if type_.kind == TYPE_BOOL:
            values = bitmaps.bytes_to_bits(self.values)
        else:
            values = _aligned(self.values, min(self.width, 8))
        return pa.Array.from_buffers(type_.arrow, self.length, [validity, pa.py_buffer(values)])

    @staticmethod
    def from_arrow(array: pa.Array, type_: ColumnType, name: str = "", first_row: int = 0) -> ColumnBuffers:
        """The array's memory as a column (a bool column is unpacked to bytes), once it was checked.

        ``array`` has exactly the type ``type_.arrow``; it may be a slice.  ``name`` and ``first_row`` are
        for messages.  ``SchemaMismatch``: see ``common/types/foreign.py``.
        """
        assert array.type == type_.arrow, f"{array.type} where {type_.arrow} was promised"
        length, first = foreign.extent_of(array, name)
        if not length:
            return ColumnBuffers(type_.width, 0, _EMPTY, None if type_.width else _NO_ROWS)
        buffers = array.buffers()
        validity, nulls = foreign.validity_of(array, name, buffers[0])
        if nulls == length:
            # An exporter may leave out what a column has that is null throughout.
            return ColumnBuffers.nulls(type_, length)
        values = foreign.bytes_of(buffers[-1])
        if type_.width == 0:
            foreign.check_size(name, "offsets", buffers[1], 4 * (first + length + 1))
            offsets = np.frombuffer(buffers[1], np.int32, length + 1, 4 * first)
            column = ColumnBuffers(0, length, values, offsets, validity)
        elif type_.kind == TYPE_BOOL:
            foreign.check_size(name, "values", buffers[1], (first + length + 7) // 8)
            values = bitmaps.bits_to_bytes(bitmaps.bits_slice(values, first, length), length)
            return ColumnBuffers(1, length, values, None, validity)
        else:
            start, end = first * type_.width, (first + length) * type_.width
            foreign.check_size(name, "values", buffers[1], end)
            column = ColumnBuffers(type_.width, length, values[start:end], None, validity)
        foreign.check_cells(type_, column.values, column.offsets, validity, name, first_row)
        return column

    @staticmethod
    def nulls(type_: ColumnType, length: int) -> ColumnBuffers:
        """``length`` null cells."""
        validity = bitmaps.bits_full(length, False)
        if type_.width == 0:
            return ColumnBuffers(0, length, _EMPTY, np.zeros(length + 1, np.int32), validity)
        return ColumnBuffers(type_.width, length, np.zeros(length * type_.width, np.uint8), None, validity)

    @staticmethod
    def constant(type_: ColumnType, value: Any, length: int) -> ColumnBuffers:
        """``length`` equal cells: ``value`` as ``values.physical`` takes it, None for nulls.

        ``ColumnTooLarge`` where they outgrow what int32 offsets can address.
        """
        if value is None:
            return ColumnBuffers.nulls(type_, length)
        raw = np.frombuffer(raw_bytes(type_, value), np.uint8)
        if type_.width:
            return ColumnBuffers(type_.width, length, np.tile(raw, length), None, None)
        check_size(length, len(raw) * length)
        offsets = np.arange(length + 1, dtype=np.int32) * np.int32(len(raw))
        return ColumnBuffers(0, length, np.tile(raw, length), offsets, None)


@dataclass(slots=True, eq=False)
class RowBlock:
    """Rows as columns by column id."""

    columns: dict[int, ColumnBuffers]
    rows: int

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def slice(self, lower: int, upper: int) -> RowBlock:
        return RowBlock({i: c.slice(lower, upper) for i, c in self.columns.items()}, upper - lower)

    def take(self, rows: npt.NDArray[Any]) -> RowBlock:
        return RowBlock({i: c.take(rows) for i, c in self.columns.items()}, len(rows))

    def select(self, column_ids: Iterable[int]) -> RowBlock:
        """The same rows with only these columns, in this order."""
        return RowBlock({i: self.columns[i] for i in column_ids}, self.rows)

    @staticmethod
    def concat(parts: Sequence[RowBlock]) -> RowBlock:
        """All rows of the parts (at least one, all with the same columns), in order."""
        assert parts, "nothing says which columns an empty list of blocks has"
        if len(parts) == 1:
            return parts[0]
        assert all(part.columns.keys() == parts[0].columns.keys() for part in parts)
        columns = {i: ColumnBuffers.concat([part.columns[i] for part in parts]) for i in parts[0].columns}
        return RowBlock(columns, sum(part.rows for part in parts))

    def to_arrow(self, columns: Mapping[int, tuple[str, ColumnType]]) -> pa.RecordBatch:
        """A batch of the columns given as ``{id: (name, type)}``, all nullable."""
        arrays = [self.columns[i].to_arrow(type_) for i, (_, type_) in columns.items()]
        fields = [pa.field(name, type_.arrow) for name, type_ in columns.values()]
        if not fields:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * self.rows, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def check_size(rows: int, size_bytes: int) -> None:
    """``ColumnTooLarge`` for cells of one column that int32 offsets cannot address."""
    if size_bytes > MAX_DATA_BYTES:
        raise too_large(rows, f"{size_bytes:,} bytes exceed {MAX_DATA_BYTES:,}")


def too_large(rows: int, why: object) -> ColumnTooLarge:
    return ColumnTooLarge(f"{rows:,} cells of one column at once: {why}")


def in_pieces(lower: int, upper: int, make: Callable[[int, int], T]) -> Iterator[tuple[int, int, T]]:
    """``make(lower, upper)`` of rows, of halves of them where a column is too large: (lower, upper, what was
    made), in order."""
    waiting = [(lower, upper)]
    while waiting:
        lower, upper = waiting.pop()
        try:
            made = make(lower, upper)
        except ColumnTooLarge:
            if upper - lower < 2:
                raise
            middle = (lower + upper) // 2
            waiting += [(middle, upper), (lower, middle)]
            continue
        yield lower, upper, made


def _copied(bits: U8Array | None) -> U8Array | None:
    return None if bits is None else bits.copy()


def _aligned(array: npt.NDArray[Any], alignment: int) -> npt.NDArray[Any]:
    """The array, or a copy where its memory begins on an address that readers of Arrow may refuse."""
    return array if array.ctypes.data % alignment == 0 else array.copy()
