"""Rows that lie here and there in files: their cells as columns.

``gather`` is what ``PointColumn.cells`` is, for rows that are few in each of many files: no buffer is made
for a file, and nothing is put together afterwards.  (Their keys: ``file_keys``.)

What cannot be read cell by cell raises ``NeedsGeneralPath``, stored bytes that break their format raise
``PageError``; in both cases the general path must answer.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.status cimport BAD_VALUE, raise_needs_general_path, raise_status
from kudu_core._ext.pages.cell cimport Strings, plain_cell
from kudu_core._ext.pages.head cimport Page
from kudu_core._ext.row.cells cimport open_string, page_of, read_fixed, row_in_page
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.search.cells cimport Cells
from kudu_core._ext.search.outcomes cimport NEEDS_GENERAL_PATH

import numpy as np

cdef enum:
    MAX_DATA_BYTES = 0x7FFFFFFF


cdef int refuse(int64_t status, int64_t at) except -1:
    if status == NEEDS_GENERAL_PATH:
        raise_needs_general_path()
    return raise_status(status, at)


cdef class _Place:
    """The page of the row that is read, and the mini-block of it that is at hand."""

    cdef:
        PointFile file
        PointColumn column
        const Page* page
        int64_t number
        int64_t index           # of the mini-block, -1: none
        Cells cells
        Strings part
        object validity         # None before the first null
        uint8_t[::1] bits

    cdef int put_null(self, int64_t i, int64_t n) except -1:
        """Cell ``i`` of ``n`` is null."""
        if self.validity is None:
            self.validity = np.full((n + 7) >> 3, 255, np.uint8)
            self.bits = self.validity
            # Python code ran: another thread or a finalizer may have closed the file or let the page go.
            self.file = None
        self.bits[i >> 3] &= <uint8_t>~(1 << (i & 7))
        return 0

    cdef int go(self, list files, int32_t source, int64_t row, object column_id, int width) except -1:
        """To the page of a row of one of the files."""
        cdef:
            PointFile file = files[source]
            int64_t number
        if file is None:
            raise TypeError("a file is missing")
        if file is not self.file:
            if file.closed:
                raise_needs_general_path()
            found = file._column(column_id)
            if found is None:
                raise_needs_general_path()
            self.file, self.column, self.number = file, found, -1
            if self.column.c.width != width and self.column.c.words.count == 0:
                raise ValueError(f"cells of {self.column.c.width} bytes, {width} are wanted")
        if row < 0 or row >= file.f.rows:
            raise IndexError(f"no row {row} of {file.f.rows}")
        # A page that is held stays where it is until another one is loaded, which only happens here.
        number = page_of(&self.column.c, row)
        if number != self.number:
            self.number, self.index = -1, -1
            self.page = self.column.page(file, number)
            self.number = number
        return 0


def gather(list files not None, const int32_t[::1] sources not None, const int64_t[::1] rows not None,
           column_id, int width):
    """The cells of row ``rows[i]`` of ``files[sources[i]]`` (``PointFile``s) in a column.

    ``width``: of a cell, 0 for strings.  Returns ``(values, offsets, validity)`` as a column has them:
    ``offsets`` (n + 1,) int32, None for fixed width; ``validity`` None where no cell is null.

    Raises ``NeedsGeneralPath`` (also where a file lacks the column), ``PageError``, IndexError for a row or a
    file that is not there, ValueError for another width, OverflowError for strings of 2 GiB.
    """
    cdef:
        int64_t i, n = rows.shape[0]
        _Place place = _Place.__new__(_Place)
    if sources.shape[0] != n:
        raise ValueError(f"{sources.shape[0]} files of {n} rows")
    if width not in (0, 1, 2, 4, 8, 16):
        raise ValueError(f"cells of {width} bytes")
    for i in range(n):
        if sources[i] < 0 or sources[i] >= len(files):
            raise IndexError(f"file {sources[i]} of {len(files)}")
    if width:
        return _fixed(place, files, sources, rows, column_id, width), None, place.validity
    values, offsets = _strings(place, files, sources, rows, column_id)
    return values, offsets, place.validity


cdef object _fixed(
    _Place place, list files, const int32_t[::1] sources, const int64_t[::1] rows, column_id, int width
):
    cdef:
        int64_t i, at = 0, n = rows.shape[0]
        uint8_t[::1] out
        int status
    result = np.empty(n * width + 16, np.uint8)
    out = result
    for i in range(n):
        place.go(files, sources[i], rows[i], column_id, width)
        if place.column.c.width != width:
            raise_needs_general_path()
        status = read_fixed(
            &place.column.c, place.page, rows[i], &place.cells, &place.index, &out[i * width], &at
        )
        if status < 0:
            refuse(status, at)
        if status:
            place.put_null(i, n)
    return result[:n * width]


cdef tuple _strings(
    _Place place, list files, const int32_t[::1] sources, const int64_t[::1] rows, column_id
):
    cdef:
        int64_t i, room = 0, end = 0, n = rows.shape[0], size = 0
        int32_t[::1] ends
        const uint8_t* start = NULL
        bytearray data = bytearray()
    offsets = np.empty(n + 1, np.int32)
    ends = offsets
    ends[0] = 0
    for i in range(n):
        place.go(files, sources[i], rows[i], column_id, 0)
        if _string(place, rows[i], &start, &size):
            place.put_null(i, n)
        elif size:
            if end + size > MAX_DATA_BYTES:
                raise OverflowError(f"{end + size:,} bytes of strings in one column")
            if end + size > room:
                room = 2 * (end + size)
                PyByteArray_Resize(data, room)
            memcpy(PyByteArray_AS_STRING(data) + end, start, <size_t>size)
            end += size
        ends[i + 1] = <int32_t>end
    if 2 * end < room or not room:
        PyByteArray_Resize(data, end + 1)
    return np.frombuffer(data, np.uint8, end), offsets


cdef bint _string(_Place place, int64_t row, const uint8_t** start, int64_t* size) except -1:
    """Where the string of a row lies; True where it is null."""
    cdef:
        uint8_t cell[16]
        uint32_t code = 0
        int64_t i = 0, at = 0
        int status
        PointColumn column = place.column
    if column.c.width:
        status = read_fixed(&column.c, place.page, row, &place.cells, &place.index, cell, &at)
        if status == 0:
            memcpy(&code, cell, <size_t>min(column.c.width, 4))
            if code >= column.c.words.count:
                status = BAD_VALUE
            else:
                start[0] = column.c.words.data + column.c.words.ends[code]
                size[0] = column.c.words.ends[code + 1] - column.c.words.ends[code]
    else:
        if place.index < 0:
            memset(&place.part, 0, sizeof(place.part))
        status = open_string(place.page, row_in_page(&column.c, row), &place.index, &place.part, &i, &at)
        if status == 0:
            status = plain_cell(&place.part, i, start, size, &at)
    if status < 0:
        refuse(status, at)
    return status == 1
