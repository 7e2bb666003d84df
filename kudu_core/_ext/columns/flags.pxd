# Flags of rows, appended and changed in place.
from libc.stdint cimport int64_t, uint8_t


cdef class AppendFlags:
    cdef:
        object _flags
        uint8_t* _at
        int64_t _room
        int64_t _count
    cdef int _replace(self, int64_t room) except -1
    cpdef reserve(self, int64_t count)
    cpdef append(self, int64_t count, bint flag)
