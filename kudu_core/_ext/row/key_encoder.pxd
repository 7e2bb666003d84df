# Keys of single rows, encoded.
from libc.stdint cimport uint8_t

cdef enum:
    MOST_COLUMNS = 32           # of a key

cdef class KeyEncoder:
    cdef:
        readonly Py_ssize_t count
        tuple _names
        int _tags[MOST_COLUMNS]
        int _widths[MOST_COLUMNS]
    cdef Py_ssize_t _written(self, object key, uint8_t* out) except -2
    cdef bytes of_row(self, dict row)
    cdef bytes of_cells(self, list cells, tuple places)
    cdef Py_ssize_t _cell(self, Py_ssize_t i, object value, uint8_t* out, Py_ssize_t room) except -2
