# Rowid -> number of its last change, for kernels that ask for one row: rowid_map.pyx.
from libc.stdint cimport uint32_t, uint64_t


cdef class Slots:
    cdef:
        object array
        unsigned long long* at
        uint64_t mask
        int shift


cdef class RowidMap:
    cdef Slots _table
    cdef readonly Py_ssize_t count
    """How many rowids have a change."""
    cdef uint32_t last_of(self, uint32_t rowid) noexcept
    cdef int put_last(self, uint32_t rowid, uint32_t number) except -1
