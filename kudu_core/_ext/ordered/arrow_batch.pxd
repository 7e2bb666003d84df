# An Arrow batch that a kernel writes.
from libc.stdint cimport int64_t, uint8_t

from kudu_core._ext.base.arrow_array cimport ArrowArray


cdef enum:
    ROOM = 16                   # bytes that readers of Arrow may look at behind a buffer


cdef class ArrowBatch:
    cdef:
        ArrowArray _array
        const void** _lists     # of buffers, three of each column
    cdef int begin(self, int64_t rows, Py_ssize_t columns, int64_t small=*) except -1
    cdef ArrowArray* column(self, Py_ssize_t i, int buffers) noexcept
    cdef uint8_t* buffer(self, int64_t size) except NULL


cdef inline int64_t padded(int64_t size) noexcept nogil:
    """What a buffer of that size takes, with room behind it."""
    return (size + 2 * ROOM - 1) & ~(<int64_t>ROOM - 1)


cdef void* grown(void* room, int64_t size) except NULL
cdef int put_null(ArrowArray* out, int64_t row) except -1
