# Rows that are written, as cells of a schema's columns: row_writer.pyx.
from libc.stdint cimport uint8_t, uint32_t

from kudu_core._ext.row.key_encoder cimport KeyEncoder

cdef enum:
    ROW_ROOM = 1 << 20          # bytes of a row; larger ones take the general path
    COLUMN_BYTES = 64           # no column of one row takes more beyond its string


cdef struct RowColumn:
    int tag
    int width
    uint32_t id
    bint nullable


cdef class RowWriter:
    cdef:
        readonly Py_ssize_t count
        dict _positions
        tuple _names
        readonly tuple keys
        readonly tuple defaults
        readonly tuple value_ids
        """By column its id, None for key columns."""
        readonly tuple ids
        readonly tuple widths
        KeyEncoder _encoder
        object _room
        RowColumn* _columns
    cpdef complete(self, list cells)
    cpdef tuple prepare(self, dict row, int operation, Py_ssize_t room)
    cdef Py_ssize_t measure(self, list cells, Py_ssize_t* given) except -1
    cdef void write_payload(
        self, uint8_t* head, int op, uint32_t tablet_id, list cells, Py_ssize_t given
    ) noexcept
