"""A column of a MemRowSet: cells are appended, never changed, and read while it grows.

One writer appends (the tablet's mutex sees to that); any number of readers take snapshots.  A snapshot is a
view of the buffers of that moment.  The writer only writes past the rows that a snapshot can name; when a
buffer is full it fills a larger one and puts it in the old one's place, so that nothing moves under a view.

Buffers are made with the first room that is asked for: a table of thousands of columns opens with none of
them.  The bitmap of NOT nulls is there from then on with every bit set: a row that is not null costs it
nothing, and ``reserve`` covers it.  It knows neither types nor timestamps.

A log record is written before what it says is appended here, so whoever writes one reserves first: after
``reserve`` an append of so much allocates nothing and is not refused.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bit, kc_bits_copy, kc_bits_count
from kudu_core._ext.base.copy_cells cimport kc_take
from kudu_core._ext.columns.append cimport append_bits, append_cells, first_zero, measure_cells

import numpy as np

cdef:
    int64_t OFFSET_BYTES = 0x7FFFFFFF       # what an int32 offset can address
    int64_t max_data_bytes = OFFSET_BYTES   # what a variable column takes; only tests make it less
    int64_t MAX_ROWS = 0xFFFFFFFF           # ordinals are uint32
    int64_t FIRST_ROWS = 256
    int64_t FIRST_DATA_BYTES = 2048
    int64_t GENTLE_ROWS = 1 << 22           # from here on grow by half, not by two
    int64_t FAR_BYTES = 1 << 23, FAR_FACTOR = 16    # data: room from here on; the system's pages come later
    int32_t no_end = 0                      # the one offset of a variable column without buffers

NO_BYTES = np.empty(0, np.uint8)
NO_OFFSETS = np.zeros(1, np.int32)


def data_limit():
    """How many bytes of data a variable column takes at most."""
    return max_data_bytes


def limit_data(int64_t limit_bytes):
    """Set ``data_limit`` for all columns of the process and return the one before: for tests of full ones."""
    global max_data_bytes
    cdef int64_t before = max_data_bytes
    if not 0 < limit_bytes <= OFFSET_BYTES:
        raise ValueError(f"a limit of {limit_bytes} bytes")
    max_data_bytes = limit_bytes
    return before


cdef int64_t _larger(int64_t capacity, int64_t needed, int64_t first, int64_t limit) noexcept nogil:
    """The next capacity that holds ``needed``, which is at most ``limit``; the first one is ``first``."""
    cdef int64_t grown = capacity * 2 if capacity < GENTLE_ROWS else capacity + (capacity >> 1)
    if capacity == 0:
        grown = first
    if grown < needed:
        grown = needed
    return grown if grown < limit else limit


cdef int _raise_row(int64_t at, int64_t row, int64_t count) except -1:
    if -1 <= row < count:
        raise ValueError(f"offsets of row {row} lie outside the data or descend")
    raise IndexError(f"no row {row} among {count} (position {at})")


cdef int64_t _rows_given(
    int width, const uint8_t[::1] values, const int32_t[::1] offsets, const uint8_t[::1] validity
) except -1:
    """How many rows a column of cells has that is given to be appended; ValueError where it does not fit."""
    cdef int64_t count
    if (width == 0) != (offsets is not None):
        raise ValueError("offsets go with variable columns, and with no others")
    if width:
        if values.shape[0] % width:
            raise ValueError(f"{values.shape[0]} bytes are no whole number of cells of {width}")
        count = values.shape[0] // width
    else:
        count = offsets.shape[0] - 1
        if count < 0:
            raise ValueError("offsets of a column have at least one entry")
    if validity is not None and validity.shape[0] < (count + 7) >> 3:
        raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {count} bits")
    return count


@cython.final
@cython.auto_pickle(False)
cdef class AppendColumn:
    """A growing column of cells of ``width`` bytes (1, 2, 4, 8, 16), or of any length (0)."""

    def __cinit__(self, int width):
        if width not in (0, 1, 2, 4, 8, 16):
            raise ValueError(f"width {width} is not 0, 1, 2, 4, 8 or 16")
        self.width = width
        self._first_null = -1
        self._values = self._bits = NO_BYTES
        if width == 0:
            self._offsets = NO_OFFSETS
            self._offsets_at = &no_end

    def __len__(self):
        return self._count

    @property
    def nbytes(self):
        """Bytes that the rows take up, bitmap included once there is a null."""
        cdef int64_t total = self._count * self.width
        if self.width == 0:
            total = self._end + 4 * (self._count + 1)
        if self._first_null >= 0:
            total += (self._count + 7) >> 3
        return total

    @property
    def allocated(self):
        """Bytes of the buffers, rows to come included."""
        cdef int64_t total = len(self._values) + len(self._bits)
        return total if self._offsets is None else total + 4 * len(self._offsets)

    @property
    def data_bytes(self):
        """Bytes of the cells of a variable column."""
        return self._end

    @property
    def null_count(self):
        if self._first_null < 0:
            return 0
        return self._count - kc_bits_count(self._bits_at, 0, self._count)

    cdef int _replace_rows(self, int64_t capacity) except -1:
        """Buffers for ``capacity`` rows with the present rows in them; all or nothing."""
        cdef:
            uint8_t[::1] bits, values
            int32_t[::1] offsets
        new_bits = np.full((capacity + 7) >> 3, 0xFF, np.uint8)
        bits = new_bits
        if self.width:
            new_values = np.empty(capacity * self.width, np.uint8)
            values = new_values
            if self._count:
                memcpy(&values[0], self._values_at, self._count * self.width)
                memcpy(&bits[0], self._bits_at, (self._count + 7) >> 3)
            self._values = new_values
            self._values_at = &values[0]
        else:
            new_offsets = np.empty(capacity + 1, np.int32)
            offsets = new_offsets
            memcpy(&offsets[0], self._offsets_at, 4 * (self._count + 1))
            if self._count:
                memcpy(&bits[0], self._bits_at, (self._count + 7) >> 3)
            self._offsets = new_offsets
            self._offsets_at = &offsets[0]
        self._bits = new_bits
        self._bits_at = &bits[0]
        self._rows_capacity = capacity
        return 0

    cdef int _replace_data(self, int64_t capacity) except -1:
        cdef uint8_t[::1] values
        try:  # large data, which is there twice while it is copied, is copied seldom
            far = capacity if capacity < FAR_BYTES else min(FAR_FACTOR * capacity, OFFSET_BYTES)
            new_values = np.empty(far, np.uint8)
        except MemoryError:
            new_values = np.empty(capacity, np.uint8)
        values = new_values
        if self._end:
            memcpy(&values[0], self._values_at, self._end)
        self._values = new_values
        self._values_at = &values[0]
        self._data_capacity = values.shape[0]
        return 0

    def reserve(self, int64_t extra_rows, int64_t extra_bytes=0):
        """Make room, so that appending that much allocates nothing and cannot be refused.

        ``extra_bytes`` counts the data of a variable column; a fixed column ignores it.  Raises
        OverflowError or MemoryError; the rows are then as before.
        """
        self._reserve(extra_rows, extra_bytes)

    cdef int _reserve(self, int64_t extra_rows, int64_t extra_bytes) except -1:
        if extra_rows < 0 or extra_bytes < 0:
            raise ValueError("room for a negative number of rows or bytes")
        if extra_rows > MAX_ROWS - self._count:
            raise OverflowError(f"{self._count} rows and {extra_rows} more exceed {MAX_ROWS}")
        if self.width == 0:
            if extra_bytes > max_data_bytes - self._end:
                raise OverflowError(f"{self._end} bytes and {extra_bytes} more exceed {max_data_bytes}")
            if self._end + extra_bytes > self._data_capacity or self._data_capacity == 0:
                self._replace_data(
                    _larger(self._data_capacity, self._end + extra_bytes, FIRST_DATA_BYTES, OFFSET_BYTES)
                )
        if self._count + extra_rows > self._rows_capacity:
            self._replace_rows(_larger(self._rows_capacity, self._count + extra_rows, FIRST_ROWS, MAX_ROWS))
        return 0

    cdef int reserve_cell(self, object cell) except -1:
        """``reserve`` of one cell.  OverflowError: it would be more than half of what the column takes."""
        cdef int64_t size = 0
        if self.width == 0:
            if isinstance(cell, bytes):
                size = PyBytes_GET_SIZE(cell)
            elif cell is not None:
                size = len(cell)
            if self._end + size > max_data_bytes >> 1:
                raise OverflowError(f"{self._end} bytes and {size} more exceed half of {max_data_bytes}")
        if self._count == self._rows_capacity or (self.width == 0 and self._end + size > self._data_capacity):
            self._reserve(1, size)
        return 0

    cdef int reserve_rows(self, int64_t n) except -1:
        """``reserve`` of rows of a fixed column."""
        if self._count + n > self._rows_capacity:
            self._reserve(n, 0)
        return 0

    def append_number(self, uint64_t number, int64_t n, uint64_t step=0):
        """Append ``n`` numbers to a fixed column of at most 8 bytes: the first, then each ``step`` above
        the one before."""
        if self.width == 0 or self.width > 8:
            raise ValueError(f"numbers in a column of width {self.width}")
        if n > 0:
            self.reserve_rows(n)
            with nogil:
                self._put_numbers(number, step, n)

    cdef void _put_numbers(self, uint64_t number, uint64_t step, int64_t n) noexcept nogil:
        """There is room for them."""
        cdef:
            int64_t _i
            uint8_t* at = self._values_at + self._count * self.width
        if self.width == 1 and step == 0:
            memset(at, <int>(number & 0xFF), n)
        else:
            for _i in range(n):
                memcpy(at, &number, <size_t>self.width)
                number += step
                at += self.width
        self._count += n            # last: from here on the rows exist

    def append(
        self, const uint8_t[::1] values not None, const int32_t[::1] offsets=None,
        const uint8_t[::1] validity=None, const int64_t[::1] rows=None,
    ):
        """Copy cells of a column to the end: all of them, or ``rows`` of it (-1: a null).

        ``values`` holds ``rows * width`` bytes, or is the data that ``offsets`` (rows + 1) point
        into; ``validity`` is a bitmap of the column given, None for no nulls.  Raises ValueError
        for shapes that do not fit, IndexError for a row that does not exist, and what ``reserve``
        raises; nothing is appended then.
        """
        cdef:
            int64_t count = _rows_given(self.width, values, offsets, validity)
            int64_t n = count if rows is None else rows.shape[0]
            int64_t bad = -1, total = 0, first_null = -1
            const uint8_t* source = NULL
            const uint8_t* bits = NULL
            const int64_t* chosen = NULL
            uint8_t* at
        if n == 0:
            return
        if validity is not None and count:
            bits = &validity[0]
        if rows is not None:
            chosen = &rows[0]
        if values.shape[0]:
            source = &values[0]
        if self.width == 0:
            with nogil:
                bad = measure_cells(offsets, values.shape[0], chosen, n, &total)
            if bad >= 0:
                _raise_row(bad, bad if rows is None else rows[bad], count)
        if self._count + n > self._rows_capacity or self._end + total > self._data_capacity:
            self._reserve(n, total)
        with nogil:
            if self.width == 0:
                append_cells(
                    offsets, values, chosen, n, self._values_at, self._data_capacity, self._end,
                    self._offsets_at + self._count + 1,
                )
            elif chosen == NULL:
                memcpy(self._values_at + self._count * self.width, source, n * self.width)
            else:
                at = self._values_at + self._count * self.width
                bad = kc_take(at, source, <uint64_t>count, chosen, n, self.width)
            if bad < 0:
                first_null = self._append_validity(bits, chosen, n)
        if bad >= 0:
            _raise_row(bad, rows[bad], count)
        if first_null >= 0 and self._first_null < 0:
            self._first_null = self._count + first_null
        self._end += total
        self._count += n            # last: from here on the rows exist

    cdef int64_t _append_validity(self, const uint8_t* bits, const int64_t* rows, int64_t n) noexcept nogil:
        """Write the bits of ``n`` new rows; return the position of the first null, or -1."""
        if rows != NULL:
            return append_bits(self._bits_at, self._count, bits, rows, n)
        if bits == NULL or kc_bits_count(bits, 0, n) == n:
            return -1
        kc_bits_copy(self._bits_at, self._count, bits, 0, n)
        return first_zero(bits, 0, n)

    def append_cell(self, cell):
        """Append one cell: bytes of the column's width, or of any length; None is a null."""
        self.put_cell(cell)

    cdef int put_cell(self, object cell) except -1:
        cdef:
            int64_t size = 0
            const uint8_t[::1] given
            const uint8_t* source = NULL
        if isinstance(cell, bytes):             # without a view: four times faster
            size = PyBytes_GET_SIZE(cell)
            source = <const uint8_t*>PyBytes_AS_STRING(cell)
        elif cell is not None:
            given = cell
            size = given.shape[0]
            if size:
                source = &given[0]
        if self.width and cell is not None and size != self.width:
            raise ValueError(f"a cell of {size} bytes in a column of width {self.width}")
        if self._count == self._rows_capacity or (self.width == 0 and self._end + size > self._data_capacity):
            self._reserve(1, size)
        if self.width == 0:
            if size:
                memcpy(self._values_at + self._end, source, size)
            self._end += size
            self._offsets_at[self._count + 1] = <int32_t>self._end
        elif cell is None:
            memset(self._values_at + self._count * self.width, 0, self.width)
        else:
            memcpy(self._values_at + self._count * self.width, source, self.width)
        if cell is None:
            self._bits_at[self._count >> 3] &= <uint8_t>~(1 << (self._count & 7))
            if self._first_null < 0:
                self._first_null = self._count
        self._count += 1
        return 0

    cdef int put_number(self, uint64_t number) except -1:
        """Append the low bytes of a number to a fixed column of at most 8 bytes."""
        if self._count == self._rows_capacity:
            self._reserve(1, 0)
        memcpy(self._values_at + self._count * self.width, &number, <size_t>self.width)
        self._count += 1
        return 0

    def cell(self, int64_t i):
        """The bytes of row ``i``, or None for a null; IndexError when there is no such row."""
        cdef int64_t lower
        if i < 0 or i >= self._count:
            raise IndexError(f"no row {i} among {self._count}")
        if self._first_null >= 0 and not kc_bit(self._bits_at, i):
            return None
        if self.width:
            return PyBytes_FromStringAndSize(<char*>self._values_at + i * self.width, self.width)
        lower = self._offsets_at[i]
        return PyBytes_FromStringAndSize(<char*>self._values_at + lower, self._offsets_at[i + 1] - lower)

    def snapshot(self, int64_t lower, int64_t upper):
        """Rows ``lower..upper`` (half-open) as ``(values, offsets, validity)``, whatever comes later.

        ``values`` is a read-only view: the rows' bytes, or the data up to the end of row
        ``upper - 1``, into which ``offsets`` (a view too; None for a fixed column) points; they
        start above 0 when ``lower`` does.  ``validity`` is None when no row before ``upper`` is
        null; else a bitmap with bit offset 0: a view when ``lower`` is a multiple of 8, else a
        copy.  Bits of it past the last row mean nothing, and may change.

        Raises ValueError for a range beyond the rows appended.
        """
        cdef:
            int64_t n = upper - lower
            uint8_t[::1] bits
        if lower < 0 or n < 0 or upper > self._count:
            raise ValueError(f"no rows {lower}..{upper} among {self._count}")
        offsets = validity = None
        if self.width:
            values = self._values[lower * self.width : upper * self.width]
        else:
            values = self._values[: <int64_t>self._offsets_at[upper]]
            offsets = self._offsets[lower : upper + 1]
            offsets.flags.writeable = False
        values.flags.writeable = False
        if 0 <= self._first_null < upper:
            if lower & 7 == 0:
                validity = self._bits[lower >> 3 : (upper + 7) >> 3]
            else:
                validity = np.zeros((n + 7) >> 3, np.uint8)
                if n:
                    bits = validity
                    kc_bits_copy(&bits[0], 0, self._bits_at, lower, n)
            validity.flags.writeable = False
        return values, offsets, validity
