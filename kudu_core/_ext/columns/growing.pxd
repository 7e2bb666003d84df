# A growing column, for kernels that look at single cells of it: growing.pyx.
#
# With the GIL held, rows below ``_count`` are whole; addresses are those of this moment.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


cdef class AppendColumn:
    cdef:
        readonly int width
        int64_t _count          # rows that snapshots may name
        int64_t _end            # data bytes of those rows; variable columns only
        int64_t _rows_capacity
        int64_t _data_capacity
        int64_t _first_null     # -1: none yet
        # The arrays, replaced when they grow, and the addresses of their first bytes.
        object _values
        object _offsets
        object _bits
        uint8_t* _values_at
        int32_t* _offsets_at
        uint8_t* _bits_at
    cdef int _replace_rows(self, int64_t capacity) except -1
    cdef int _replace_data(self, int64_t capacity) except -1
    cdef int _reserve(self, int64_t extra_rows, int64_t extra_bytes) except -1
    cdef int reserve_cell(self, object cell) except -1
    cdef int reserve_rows(self, int64_t n) except -1
    cdef void _put_numbers(self, uint64_t number, uint64_t step, int64_t n) noexcept nogil
    cdef int64_t _append_validity(
        self, const uint8_t* bits, const int64_t* rows, int64_t n
    ) noexcept nogil
    cdef int put_cell(self, object cell) except -1
    cdef int put_number(self, uint64_t number) except -1
