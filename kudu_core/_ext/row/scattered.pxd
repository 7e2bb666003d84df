# What cells of rows that lie here and there need.
from libc.stdint cimport int64_t

cdef int refuse(int64_t status, int64_t at) except -1
