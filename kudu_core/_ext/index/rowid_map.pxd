# Rowid -> number of its last change, for kernels that ask for one row: rowid_map.pyx.
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef class RowidSlots:
    cdef:
        object array
        unsigned long long* at
        uint64_t mask
        int shift


cdef class RowidMap:
    cdef RowidSlots _table
    cdef readonly Py_ssize_t count
    """How many rowids have a change."""
    cdef int reserve_rowids(self, int64_t extra) except -1
    cdef void last_of_rows(self, const uint32_t* rowids, int64_t n, uint32_t* out) noexcept nogil
    cdef void put_rows(self, const uint32_t* rowids, uint32_t first, int64_t n) noexcept nogil
    cdef uint32_t last_of(self, uint32_t rowid) noexcept nogil
    cdef int put_last(self, uint32_t rowid, uint32_t number) except -1
