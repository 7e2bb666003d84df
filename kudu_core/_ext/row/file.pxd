# One open file for look-ups of single rows.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.row.ahead cimport Ahead
from kudu_core._ext.row.cells cimport Need
from kudu_core._ext.row.find cimport Finder
from kudu_core._ext.pages.holder cimport PageHolder
from kudu_core._ext.row.shape cimport RowShape


cdef class PointFile(PageHolder):
    cdef:
        Finder f
        dict _columns
        list _keys              # PointColumn in the finder's order
        list _others
        object _make
        object _index
        object _bloom
        object _late            # gives the bloom once it is there, until then
        readonly bint can_find
        RowShape _shape         # of the last row, and its columns
        list _shape_columns
    cdef int _take_bloom(self, bloom) except -1
    cdef int _resolve(self, int64_t status, const Need* need, int64_t at) except -1
    cdef object _column(self, column_id)
    cdef int _ask(self, list columns, Py_ssize_t i, int64_t row) except -1
    cdef void _begin(self, list columns, int64_t block) noexcept
    cdef int _look_ahead(self, list columns, Py_ssize_t first, int64_t row, Ahead* ahead) noexcept
    cdef bint _fetch_far(self, list columns, Py_ssize_t first, int64_t row, const Ahead* ahead) noexcept
    cdef dict row_of(self, int64_t row, RowShape shape)
    cdef list columns_of(self, RowShape shape)
    cdef int64_t find_row(
        self, const uint8_t* key, int64_t size, uint64_t hash, RowShape shape
    ) except -2
    cdef void fetch_bloom(self, uint64_t hash) noexcept
