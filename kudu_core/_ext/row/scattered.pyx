"""Rows that lie here and there in files: their encoded keys, and their cells as columns.

``FileKeys`` puts the key of a row together of the cells of the key columns, where these lie; ``in_order``
searches with such keys and compares them.  ``gather`` is what ``PointColumn.cells`` is, for rows that are few
in each of many files: no buffer is made for a file, and nothing is put together afterwards.

What cannot be read cell by cell raises ``NeedsGeneralPath``, stored bytes that break their format raise
``PageError``; in both cases the general path must answer.
"""
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.keybytes cimport kc_compare
from kudu_core._ext.base.status cimport BAD_VALUE, raise_needs_general_path, raise_status
from kudu_core._ext.pages.cell cimport RESTART, Strings, strings_entry, strings_group, strings_open
from kudu_core._ext.pages.head cimport BLOCK_ROWS, STRING_PREFIX, Page
from kudu_core._ext.row.cells cimport open_string, page_of, read_fixed, row_in_page
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.row.find cimport NUMBER, STRING
from kudu_core._ext.search.cells cimport Cells
from kudu_core._ext.search.outcomes cimport NEEDS_GENERAL_PATH
from kudu_core._ext.search.sorted_strings cimport count_below
from kudu_core._ext.search.strings cimport plain_cell

import numpy as np

cdef enum:
    MAX_DATA_BYTES = 0x7FFFFFFF


cdef int _refuse(int64_t status, int64_t at) except -1:
    if status == NEEDS_GENERAL_PATH:
        raise_needs_general_path()
    return raise_status(status, at)


@cython.final
@cython.auto_pickle(False)
cdef class FileKeys:
    """Reads keys of one file at a time.  Files can find (``PointFile.can_find``); rows are theirs."""

    def __dealloc__(self):
        PyMem_RawFree(self.key)
        PyMem_RawFree(self._cells)

    cdef int64_t seek(self, PointFile file, bytes bound) except -1:
        """How many rows have a key below the bound; None: 0."""
        cdef:
            const uint8_t* wanted
            int64_t size, lower, upper, middle
        if bound is None:
            return 0
        wanted, size = <const uint8_t*>PyBytes_AS_STRING(bound), PyBytes_GET_SIZE(bound)
        lower = count_below(&file.f.index, wanted, size, False) - 1
        if lower < 0:
            return 0
        lower *= BLOCK_ROWS
        upper = min(lower + BLOCK_ROWS, file.f.rows)
        lower += 1              # the first key of a mini-block was compared
        while lower < upper:
            middle = (lower + upper) >> 1
            self.read(file, middle)
            if kc_compare(self.key, self.size, wanted, size) < 0:
                lower = middle + 1
            else:
                upper = middle
        return lower

    cdef int read(self, PointFile file, int64_t row) except -1:
        """Have the key of a row at hand."""
        cdef:
            PointColumn column
            const Page* page
            uint8_t cell[16]
            uint64_t word
            int64_t at = 0
            int k, status
        self.enter(file)
        self.size = 0
        if file.f.keys == 0:
            column = file._keys[0]
            return self.put_string(column, column.page(file, page_of(&column.c, row)), row)
        for k in range(file.f.keys):
            column = file._keys[k]
            page = column.page(file, page_of(&column.c, row))
            if column.c.order == STRING:
                return self.put_string(column, page, row)
            status = read_fixed(&column.c, page, row, &self._cells[k], &self._blocks[k], cell, &at)
            if status:
                _refuse(BAD_VALUE if status > 0 else status, at)
            word = 0
            memcpy(&word, cell, <size_t>min(column.c.width, 8))
            if column.c.order == NUMBER:
                self.put_number(word ^ column.c.flip, column.c.key_width)
            else:
                self.put_word(column, word, k + 1 == file.f.keys)
        return 0

    cdef int enter(self, PointFile file) except -1:
        """Read in this file from now on."""
        cdef int k
        if self._file is file:
            return 0
        self.leave()
        if file.f.keys > self._columns:
            PyMem_RawFree(self._cells)
            self._columns = 0
            self._cells = <Cells*>PyMem_RawMalloc(file.f.keys * sizeof(Cells))
            if self._cells == NULL:
                raise MemoryError
            self._columns = file.f.keys
        for k in range(file.f.keys):
            self._blocks[k] = -1
        file._busy += 1
        self._file = file
        return 0

    cdef int leave(self) except -1:
        """Read in no file: pages may go."""
        file, self._file = self._file, None
        if file is not None:
            (<PointFile>file).idle()
        return 0

    cdef int make_room(self, int64_t size) except -1:
        """Have room for so many bytes behind those of the key."""
        cdef uint8_t* grown
        size += self.size
        if size > self.room_bytes:
            grown = <uint8_t*>PyMem_RawRealloc(self.key, <size_t>(2 * size + 64))
            if grown == NULL:
                raise MemoryError
            self.key, self.room_bytes = grown, 2 * size + 64
        return 0

    cdef int put_number(self, uint64_t word, int width) except -1:
        """Append a number to the key."""
        cdef int i
        self.make_room(width)
        for i in range(width):
            self.key[self.size + i] = <uint8_t>(word >> (8 * (width - 1 - i)))
        self.size += width
        return 0

    cdef int put_word(self, PointColumn column, uint64_t code, bint last) except -1:
        """Append a word of a dictionary: escaped and ended, where it is not the last column's."""
        cdef:
            const uint8_t* word
            int64_t i, size
        if code >= <uint64_t>column.c.words.count:
            raise_status(BAD_VALUE, 0)
        word = column.c.words.data + column.c.words.ends[code]
        size = column.c.words.ends[code + 1] - column.c.words.ends[code]
        self.make_room(2 * size + 2)
        if last:
            memcpy(self.key + self.size, word, <size_t>size)
            self.size += size
            return 0
        for i in range(size):
            self.key[self.size] = word[i]
            self.size += 1
            if word[i] == 0:
                self.key[self.size] = 1
                self.size += 1
        self.key[self.size] = self.key[self.size + 1] = 0
        self.size += 2
        return 0

    cdef int put_string(self, PointColumn column, const Page* page, int64_t row) except -1:
        """The key is a string of the page."""
        cdef:
            Strings part
            const uint8_t* start = NULL
            int64_t k, at = 0, pos = 0, length = 0, shared = 0
            int64_t inside = row_in_page(&column.c, row), i = row % BLOCK_ROWS
            int status = BAD_VALUE
        if inside < page.rows and page.bits == NULL:
            status = strings_open(page, inside // BLOCK_ROWS, &part, &at)
        if status == 0 and i >= part.count:
            status = BAD_VALUE
        if status == 0 and part.kind != STRING_PREFIX:
            status = plain_cell(&part, i, &start, &length, &at)
            if status == 0:
                self.make_room(length)
                memcpy(self.key, start, <size_t>length)
        elif status == 0:
            # Each entry is written over the one before, of which it keeps what they share.
            k = i - i % RESTART
            status = strings_group(&part, k, &pos, &at)
            while status == 0 and k <= i:
                status = strings_entry(&part, k, &pos, &length, &shared, &at)
                if status == 0:
                    self.make_room(length)
                    memcpy(self.key + shared, part.data + pos, <size_t>(length - shared))
                    pos += length - shared
                    k += 1
        if status < 0:
            _refuse(status, at)
        self.size = length
        return 0


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
            found = file._columns.get(column_id)
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
            _refuse(status, at)
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
        _refuse(status, at)
    return status == 1
