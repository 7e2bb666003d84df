# One open file for point reads: pointread.pyx.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.search.cells cimport Sorted
from kudu_core._ext.row.column cimport Column, Need, PageHolder, PointColumn
from kudu_core._ext.row.codec cimport RowShape

cdef enum:
    NUMBER = 0                  # how the cells of a key column compare
    WORDS = 1                   # by the codes of a sorted dictionary
    STRING = 2

    MOST_KEY_COLUMNS = 32


cdef struct Finder:
    int64_t rows
    Sorted index                        # first keys of the mini-blocks
    const uint8_t* bloom
    uint64_t bloom_blocks
    int keys                            # columns; 0: a column of encoded keys, columns[0]
    Column* columns[MOST_KEY_COLUMNS]


cdef class PointFile(PageHolder):
    cdef:
        Finder f
        dict _columns
        list _keys              # PointColumn in the finder's order
        list _others
        object _index
        object _bloom
        readonly bint can_find
        RowShape _shape         # of the last row, and its columns
        list _shape_columns
    cdef int _resolve(self, int64_t status, const Need* need, int64_t at) except -1
    cdef list columns_of(self, RowShape shape)
    cdef int64_t find_row(self, const uint8_t* key, int64_t size, uint64_t hash) except -2
    cdef void fetch_bloom(self, uint64_t hash) noexcept
