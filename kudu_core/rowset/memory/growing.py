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

    def __init__(self, width: int) -> None:
        self.width = width
        self._column = AppendColumn(width)

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


class GrowingFlags:
    """Flags (uint8) that one writer appends and changes in place; readers do not use it."""

    __slots__ = ("_count", "_flags")

    def __init__(self) -> None:
        self._flags = np.zeros(1024, np.uint8)
        self._count = 0

    @property
    def nbytes(self) -> int:
        return self._flags.nbytes

    def reserve(self, count: int) -> None:
        """Make room, so that appending so many allocates nothing."""
        need = self._count + count
        if need > len(self._flags):
            grown = np.zeros(max(need, 2 * len(self._flags)), np.uint8)
            grown[: self._count] = self._flags[: self._count]
            self._flags = grown

    def append(self, count: int, flag: int) -> None:
        self.reserve(count)
        need = self._count + count
        self._flags[self._count : need] = flag
        self._count = need

    def append_one(self, flag: int) -> None:
        """There is room for it."""
        self._flags[self._count] = flag
        self._count += 1

    def get(self, row: int) -> int:
        """One flag."""
        assert 0 <= row < self._count
        return int(self._flags[row])

    @property
    def flags(self) -> np.ndarray:
        return self._flags[: self._count]
