# Changes of one column, as other kernels read them.
from libc.stdint cimport int64_t, uint8_t, uint32_t

from kudu_core._ext.changes.positions cimport ChangePositions


cdef class Updates:
    cdef:
        const uint32_t[::1] rowids
        const uint8_t[::1] values
        const uint8_t[::1] bits     # None: no value is null
        ChangePositions positions
        bint ascending
        readonly int width
        readonly Py_ssize_t count
