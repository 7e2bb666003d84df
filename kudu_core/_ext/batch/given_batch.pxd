# A record batch as columns of C, in the order of a schema: given_batch.pyx.
from libc.stdint cimport int32_t, int64_t, uint8_t

from kudu_core._ext.batch.given_arrays cimport ArrowArray, ArrowSchema
from kudu_core._ext.row.row_writer cimport RowWriter


cdef struct BatchColumn:
    bint given                  # by the caller
    bint there                  # given, or filled with the column's default
    int width
    const uint8_t* values       # of row 0; of a variable column the data that offsets point into
    const int32_t* offsets      # of row 0; NULL of a fixed column
    const uint8_t* bits         # from bit 0 on, those past the rows 0; NULL: no cell is null


cdef class GivenBatch:
    cdef:
        readonly Py_ssize_t rows
        readonly object data
        """The encoded keys: uint8, with ``offsets`` int64, and their ``hashes`` uint64."""
        readonly object offsets
        readonly object hashes
        readonly RowWriter writer
        BatchColumn* columns
        object _room
        list _held              # what the columns point into
    cdef uint8_t* _scratch(self, Py_ssize_t size) except NULL
    cdef bint _fill(self, Py_ssize_t place, object cell, int64_t room) except -1
    cdef bint _take(
        self, Py_ssize_t place, bytes format, const ArrowSchema* field, const ArrowArray* given, int64_t room
    ) except -1
    cdef bint _encode(self, tuple kinds) except -1
    cpdef bint complete(self, int64_t room) except -1


cdef int64_t cell_bytes(const BatchColumn* column, const int64_t* rows, int64_t n) noexcept nogil
cdef const int64_t* rows_of(GivenBatch batch, object rows, int64_t* n) except? NULL
