# How a kernel's nogil body reports that stored bytes break their format.
cdef enum Status:
    TRUNCATED = -1      # the bytes end before the value they promise
    OVERRUN = -2        # they hold more values than there is room for
    BAD_VALUE = -3      # a field lies outside its domain

cdef int raise_status(Py_ssize_t status, Py_ssize_t offset) except -1
cdef int raise_needs_general_path() except -1
