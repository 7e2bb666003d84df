# One stored column as look-ups of single rows hold it.
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from kudu_core._ext.files.page_loader cimport PageLoader
from kudu_core._ext.pages.head cimport Page
from kudu_core._ext.row.cells cimport PagedCells, Span
from kudu_core._ext.pages.holder cimport Held, PageHolder


cdef class PointColumn(Held):
    cdef:
        PagedCells c
        object _room
        object _opened
        object _touched
        object _met
        uint8_t* _met_once      # of each page of strings, whether a cell was read and it was not held
        list _payloads
        object _load
        PageLoader _loader      # None: ``_load`` is asked
        object _remember
        PageHolder _holder
        object _words
        list _texts             # words as Python values, made when first asked for
        dict samples            # mini-block of a page that is held: values of it (``sampled.pxd``)
    cdef const Page* page(self, PageHolder holder, int64_t number) except NULL
    cdef bint lacks(self, int64_t row) noexcept
    cdef PyObject** known_place(self, int64_t row) noexcept
    cdef object ask(self, int64_t row, bint if_cold)
    cdef const Page* _loaded(self, PageHolder holder, int64_t number) except NULL
    cdef const Page* _hold(
        self, PageHolder holder, int64_t number, object place, object payload
    ) except NULL
    cdef object _string_of(
        self, PageHolder holder, int64_t number, int64_t row, int tag, object decode
    )
    cdef object _brief(self, int64_t number, object place, int64_t row, int tag, object decode)
    cdef int _open(self, object payload, Page* page) except -1
    cdef void _publish(self, int64_t number, const Page* page) noexcept
    cdef object value(self, PageHolder holder, int64_t row, int tag, object decode)
    cdef object _cell(self, const Page* page, int64_t row, int tag, object decode)
    cdef tuple cells(self, PageHolder holder, const int64_t[::1] rows)
    cdef object _string(self, const Page* page, int64_t row, int tag, object decode)
    cdef object _word(self, const uint8_t* cell, int tag, object decode)
    cdef int64_t _gather(
        self, PageHolder holder, const int64_t[::1] rows, uint8_t* out, Span* spans, uint8_t* bits
    ) except -1
