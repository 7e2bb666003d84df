# Descriptors of open files, for kernels that read from one or write to one.


cdef class Descriptor:
    cdef readonly int fd
    cdef Py_ssize_t read(
        self, char* head, Py_ssize_t head_bytes, char* rest, Py_ssize_t rest_bytes, long long offset
    ) except -1
    cdef int write(self, const char* data, Py_ssize_t size, long long offset) except -1
    cdef bint waits(self, long long offset) noexcept
    cdef void ask(self, long long offset, long long size) noexcept


cdef class PlainFile:
    cdef public Descriptor descriptor
    """None once it is closed."""
