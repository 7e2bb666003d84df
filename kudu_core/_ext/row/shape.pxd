# One row that is read: its columns, and how their cells become Python values.
from libc.stdint cimport uint8_t

cdef enum Tag:
    # How a cell becomes a Python value.  OTHER: by the general path's own function.
    OTHER = 0
    SIGNED = 1
    UNSIGNED = 2
    FLOAT = 3
    BOOL = 4
    TEXT = 5
    BYTES = 6
    DATE = 7
    TIME = 8                    # naive
    TIME_UTC = 9
    RAW = 10                    # the bytes of the cell, of any column

cdef class RowShape:
    cdef:
        readonly tuple names
        readonly tuple ids
        dict empty              # a row of None: a copy of it has room for all columns
        dict places             # column id: position
        readonly Py_ssize_t count
        object _room
        int* tags
        tuple decoders
        tuple defaults

cdef object value_of(int tag, const uint8_t* cell, Py_ssize_t size, object decode)
