"""Columns in memory that grow at the end while others read their prefix.

A thin face over ``_ext.columns.growing`` that speaks ``ColumnBuffers``.
"""

from __future__ import annotations

import numpy as np

from kudu_core._ext.columns.growing import AppendColumn
from kudu_core.common.rows.rowblock import ColumnBuffers, U8Array

MAX_ROWS = (1 << 32) - 2
"""Of rows, and of changes, of one store in memory: what its indexes can number."""


class StoreFull(Exception):
    """A store in memory cannot take what is about to be laid into it; nothing of it was.

    ``empty``: nor could any other store: it is too much by itself.
    """

    def __init__(self, reason: str, *, empty: bool) -> None:
        super().__init__(reason)
        self.empty = empty


class GrowingColumn:
    """Append-only values of one column; a prefix, once written, never changes.

    One writer (the tablet's mutex), any number of readers.
    """

    __slots__ = ("_column", "width")

    def __init__(self, width: int, cells: AppendColumn | None = None) -> None:
        """``cells``: what holds them, where that is there already."""
        self.width = width
        self._column = AppendColumn(width) if cells is None else cells

    def __len__(self) -> int:
        return len(self._column)

    @property
    def nbytes(self) -> int:
        return self._column.nbytes

    @property
    def allocated(self) -> int:
        """Bytes of its buffers, with the room in them."""
        return self._column.allocated

    @property
    def data_bytes(self) -> int:
        """Of a variable column: bytes of its cells."""
        return int(self._column.data_bytes)

    @property
    def kernel(self) -> AppendColumn:
        """What holds the cells, for kernels that read single ones."""
        return self._column

    def reserve(self, rows: int, data_bytes: int) -> None:
        """Make room, so that appending so much allocates nothing; ``OverflowError``: it is too much."""
        self._column.reserve(rows, data_bytes)

    def append(self, column: ColumnBuffers, rows: np.ndarray | None = None) -> None:
        self._column.append(column.values, column.offsets, column.validity, rows)

    def read(self, lower: int, upper: int) -> ColumnBuffers:
        """Rows ``[lower, upper)``: views of the column's memory, not to be written."""
        values, offsets, validity = self._column.snapshot(lower, upper)
        return ColumnBuffers(self.width, upper - lower, values, offsets, validity)


class GrowingNumbers:
    """Append-only unsigned integers, read back as a numpy view."""

    __slots__ = ("_column", "_dtype", "_width")

    def __init__(self, dtype: type[np.unsignedinteger]) -> None:
        self._dtype = np.dtype(dtype)
        self._width = self._dtype.itemsize
        self._column = AppendColumn(self._width)

    def __len__(self) -> int:
        return len(self._column)

    @property
    def nbytes(self) -> int:
        return self._column.nbytes

    @property
    def allocated(self) -> int:
        """Bytes of its buffer, with the room in it."""
        return self._column.allocated

    @property
    def kernel(self) -> AppendColumn:
        """What holds the numbers, for kernels that read single ones."""
        return self._column

    def reserve(self, count: int) -> None:
        """Make room, so that appending so many allocates nothing."""
        self._column.reserve(count)

    def append_equal(self, number: int, count: int) -> None:
        """The same number, so many times."""
        self._column.append_number(number, count)

    def append_ascending(self, first: int, count: int) -> None:
        """A number and those that follow it."""
        self._column.append_number(first, count, 1)

    def append(self, numbers: np.ndarray) -> None:
        raw: U8Array = np.ascontiguousarray(numbers, self._dtype).view(np.uint8)
        self._column.append(raw, None, None, None)

    def view(self, lower: int = 0, upper: int | None = None) -> np.ndarray:
        """Numbers ``[lower, upper)``: a read-only view."""
        if upper is None:
            upper = len(self._column)
        values, _, _ = self._column.snapshot(lower, upper)
        return values.view(self._dtype)
