"""Encoded keys of rows of a file, read where their cells lie, and a bound looked for among them.

``FileKeys`` puts the key of a row together of the cells of the key columns; ``in_order`` searches with such
keys and compares them.

What cannot be read cell by cell raises ``NeedsGeneralPath``, stored bytes that break their format raise
``PageError``; in both cases the general path must answer.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.base.bitpack cimport kc_mask
from kudu_core._ext.base.keybytes cimport kc_compare
from kudu_core._ext.base.status cimport BAD_VALUE, raise_status
from kudu_core._ext.pages.cell cimport (
    RESTART,
    Strings,
    plain_cell,
    strings_entry,
    strings_group,
    strings_open,
)
from kudu_core._ext.pages.head cimport BLOCK_ROWS, STRING_PREFIX, Page
from kudu_core._ext.row.cells cimport PagedCells, open_known, page_of, row_in_page
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.row.find cimport NUMBER, STRING
from kudu_core._ext.ordered.sampled cimport is_sampled, read_sampled, sampled_bound, samples_of
from kudu_core._ext.row.scattered cimport refuse
from kudu_core._ext.search.cells cimport Cells, cells_bound, order_cells
from kudu_core._ext.search.sorted_strings cimport compare_bytes, count_below


cdef bint _cut_cell(
    const PagedCells* column, const uint8_t* bound, int64_t size, bint last, int64_t* pos, uint64_t* want,
    bint* exact
) noexcept nogil:
    """Cut one column's cell off a bound: the number that rows are compared with.  False: bytes must be.

    ``exact``: rows with that number are to be compared on, others lie above the bound.
    """
    cdef:
        int64_t begin = pos[0], end = size, code, width
        int i
    if column.order == NUMBER:
        width = min(size - begin, column.key_width)
        want[0] = 0
        for i in range(column.key_width):
            want[0] = want[0] << 8 | (bound[begin + i] if i < width else 0)
        exact[0] = width == column.key_width
        pos[0] = begin + width
        return True
    if not last:
        end = begin
        while end < size and bound[end] != 0:
            end += 1
        if end + 1 >= size or bound[end + 1] != 0:
            return False        # a part of a string, or a byte 00 inside it
    code = count_below(&column.words, bound + begin, end - begin, False)
    exact[0] = code < column.words.count and compare_bytes(
        column.words.data + column.words.ends[code], column.words.ends[code + 1] - column.words.ends[code],
        bound + begin, end - begin,
    ) == 0
    want[0] = <uint64_t>code
    pos[0] = end if last else end + 2
    return True


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
        middle = self._seek_cells(file, lower, upper, wanted, size)
        if middle >= 0:
            return middle
        lower += 1              # the first key of a mini-block was compared
        while lower < upper:
            middle = (lower + upper) >> 1
            self.read(file, middle)
            if kc_compare(self.key, self.size, wanted, size) < 0:
                lower = middle + 1
            else:
                upper = middle
        return lower

    cdef int64_t _seek_cells(
        self, PointFile file, int64_t first, int64_t end, const uint8_t* wanted, int64_t size
    ) except -2:
        """The first row of a mini-block, rows ``first`` to ``end``, whose key is not below the bound: by
        cells that are compared as numbers, column by column.  -1: keys must be compared as bytes."""
        cdef:
            PointColumn column
            Cells* cells
            int64_t lower = 0, upper = end - first, pos = 0, at = 0
            uint64_t want = 0
            const uint64_t* samples = NULL
            int k, status
            bint last, exact = True
        if file.f.keys == 0:
            return -1
        self.enter(file)
        for k in range(file.f.keys):
            if pos == size or lower == upper:
                break
            column = file._keys[k]
            last = k + 1 == file.f.keys
            if column.c.order == STRING:
                return -1
            if not _cut_cell(&column.c, wanted, size, last, &pos, &want, &exact):
                return -1
            page = column.page(file, page_of(&column.c, first))
            cells = &self._cells[k]
            self._blocks[k] = -1
            status = open_known(&column.c, page, first // BLOCK_ROWS, cells, &at)
            if status == 0 and cells.block.count < upper:
                status = BAD_VALUE
            if status == 0 and is_sampled(column, page, cells):
                samples = samples_of(column, first // BLOCK_ROWS, cells, &status, &at)
                cells.mask, cells.flip = kc_mask(8 * column.c.width), column.c.flip
            elif status == 0:
                samples = NULL
                status = order_cells(page, column.c.width, column.c.flip, cells, &at)
            if status < 0:
                refuse(status, at)
            self._blocks[k] = first // BLOCK_ROWS
            lower = self._bound(samples, cells, lower, upper, want, False)
            if not exact or pos == size:
                break               # rows that have this cell are not to be told apart
            upper = self._bound(samples, cells, lower, upper, want, True)
            if last:
                lower = upper           # what follows the key makes the bound larger
        return first + lower

    cdef int64_t _bound(
        self, const uint64_t* samples, const Cells* cells, int64_t lower, int64_t upper, uint64_t want,
        bint above
    ) except -1:
        cdef int64_t found
        if samples != NULL:
            return sampled_bound(samples, cells, lower, upper, want, above)
        found = cells_bound(cells, lower, upper, want, above)
        if found < 0:
            refuse(found, 0)
        return found

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
            status = read_sampled(column, page, row, &self._cells[k], &self._blocks[k], cell, &at)
            if status:
                refuse(BAD_VALUE if status > 0 else status, at)
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
        """Have room for so many bytes behind those of the key, of which there may be none."""
        cdef uint8_t* grown
        size += self.size
        if size > self.room_bytes or self.key == NULL:
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
            refuse(status, at)
        self.size = length
        return 0
