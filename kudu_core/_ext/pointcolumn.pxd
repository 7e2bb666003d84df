# One stored column for point reads, and who holds the pages: pointcolumn.pyx.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.blockpage cimport Page
from kudu_core._ext.cellsearch cimport Sorted

cdef struct Column:
    Page* pages                 # .data is NULL where the page is not held
    uint8_t* touched
    int64_t page_count
    int width                   # as stored: of the codes, where there is a dictionary; 0: strings
    Sorted words                # the dictionary; count is 0 where there is none
    int order                   # of a key column
    int key_width
    uint64_t flip


cdef struct Need:
    # The page that a look-up lacks.
    int column
    int64_t page


cdef class Held:
    cdef int used(self, Py_ssize_t number) except -1
    cdef int let_go(self, Py_ssize_t number) except -1


cdef class PageHolder:
    cdef:
        dict _places            # place in the cache: (Held, number)
        readonly bint closed
        int _busy
        list _leaving           # pages dropped while a look-up runs without the GIL
    cdef int hold(self, object place, Held who, Py_ssize_t number) except -1
    cdef int idle(self) except -1
    cdef int drop(self, Held who, Py_ssize_t number) except -1


cdef class PointColumn(Held):
    cdef:
        Column c
        object _room
        object _touched
        list _payloads
        object _load
        PageHolder _holder
        object _words
        list _texts             # words as Python values, made when first asked for
    cdef const Page* page(self, PageHolder holder, int64_t number) except NULL
    cdef void _publish(self, int64_t number, const Page* page) noexcept
    cdef object value(self, PageHolder holder, int64_t row, int tag, object decode)
    cdef tuple cells(self, PageHolder holder, const int64_t[::1] rows)


cdef object sorted_strings(Sorted* out, data, offsets)
cdef int raise_elsewhere() except -1
