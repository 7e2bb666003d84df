# What the stores of a rowset make of one row.
from libc.stdint cimport int32_t, int64_t, uint64_t

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.columns.growing cimport AppendColumn
from kudu_core._ext.row.shape cimport RowShape, value_of
from kudu_core._ext.search.numbers cimport upper_bound

cdef enum:
    UNKNOWN = -1                # whether a row lives
    NO_CHANGE = 0xFFFFFFFF

    REDO_UPDATE = 1             # as in ``delta_codes``; of UNDO entries: the old values,
    REDO_DELETE = 2             # absent before,
    REDO_REINSERT = 3           # present before


cdef class Overlay:
    cdef:
        RowShape shape
        uint64_t snapshot
        list values             # by column of the shape
        Py_ssize_t left         # columns without a value
        int lives               # 1, 0 or UNKNOWN
    cdef Py_ssize_t place(self, object column_id) except -2
    cdef int put(self, Py_ssize_t i, object value) except -1
    cdef bint has(self, Py_ssize_t i) noexcept
    cdef bint settled(self) noexcept
    cdef tuple said(self)


cdef class Store:
    cdef int collect(self, int64_t row, Overlay overlay) except -1


cdef Overlay overlay_of(RowShape shape, uint64_t snapshot)


cdef inline object memory_cell(AppendColumn column, int64_t row, RowShape shape, Py_ssize_t i):
    """The Python value of a cell of a column in memory; ``row`` is below its count."""
    cdef int32_t lower
    if column._first_null >= 0 and not kc_bit(column._bits_at, row):
        return None
    if column.width:
        return value_of(
            shape.tags[i], column._values_at + row * column.width, column.width, shape.decoders[i]
        )
    lower = column._offsets_at[row]
    return value_of(
        shape.tags[i], column._values_at + lower, column._offsets_at[row + 1] - lower, shape.decoders[i]
    )


cdef inline int64_t visible_rows(AppendColumn stamps, uint64_t snapshot) noexcept:
    """How many of the ascending timestamps a snapshot sees."""
    return upper_bound(<const uint64_t*>stamps._values_at, stamps._count, snapshot)
