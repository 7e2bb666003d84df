# Where in a log the changes of a bucket of rows are, for the kernel that replays them: positions.pyx.
from libc.stdint cimport int64_t, uint16_t, uint32_t

cdef extern from *:
    """
    #ifndef KUDU_CORE_POSITIONS
    #define KUDU_CORE_POSITIONS
    #define KC_SHIFT 14             /* rows of a bucket of ChangePositions: those of a page */
    #endif
    """
    const int SHIFT "KC_SHIFT"


cdef class ChangePositions:
    cdef:
        uint32_t[::1] starts        # (buckets + 2,): bucket b from starts[b] to starts[b + 1]
        uint16_t[::1] low           # the rowid less that of the bucket's first row
        uint16_t[::1] order         # the position in the log
        int64_t base                # the first bucket
        readonly Py_ssize_t count
