# Encoded keys of rows of a file, read where their cells lie.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.pages.head cimport Page
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.row.find cimport MOST_KEY_COLUMNS
from kudu_core._ext.search.cells cimport Cells


cdef class FileKeys:
    cdef:
        uint8_t* key            # the one that was read last
        int64_t size
        int64_t room_bytes
        PointFile _file         # that is read in, counted in its ``_busy``
        Cells* _cells           # of each key column of it, the mini-block that was read last
        int64_t _blocks[MOST_KEY_COLUMNS]
        int _columns            # for how many there is room
    cdef int64_t seek(self, PointFile file, bytes bound) except -1
    cdef int64_t _seek_cells(
        self, PointFile file, int64_t first, int64_t end, const uint8_t* wanted, int64_t size
    ) except -2
    cdef int64_t _bound(
        self, const uint64_t* samples, const Cells* cells, int64_t lower, int64_t upper, uint64_t want,
        bint above
    ) except -1
    cdef int read(self, PointFile file, int64_t row) except -1
    cdef int leave(self) except -1
    cdef int enter(self, PointFile file) except -1
    cdef int make_room(self, int64_t size) except -1
    cdef int put_number(self, uint64_t word, int width) except -1
    cdef int put_word(self, PointColumn column, uint64_t code, bint last) except -1
    cdef int put_string(self, PointColumn column, const Page* page, int64_t row) except -1
