# Rows whose cells become an Arrow batch, for what finds them.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.columns.growing cimport AppendColumn
from kudu_core._ext.ordered.packed cimport FoundRow
from kudu_core._ext.ordered.row_source cimport Source
from kudu_core._ext.row.shape cimport RowShape


cdef int memory_fixed(AppendColumn column, int64_t row, int width, uint8_t* to) except -1
cdef int memory_string(AppendColumn column, int64_t row, const uint8_t** start, int64_t* size) except -1
cdef int check_columns(RowShape shape, tuple widths, tuple bits) except -1


cdef class RowBatch:
    cdef:
        readonly uint64_t snapshot
        RowShape _shape
        tuple _widths           # of a cell of each column, 0 for strings
        tuple _bits             # whether Arrow has a column as bits, where the table has bytes
        list _sources           # of each row
        list _overlays          # of each row, None where nothing of it was changed
        list _columns           # of each row, its columns: as its source has them
        int64_t* _rows
        FoundRow* _found        # of each row, once they are all there: where the run ends that it begins
        Py_ssize_t _room
        readonly Py_ssize_t count
    cdef int make_room(self, Py_ssize_t more) except -1
    cdef int _find_runs(self) except -1
    cdef int64_t _size(self, Py_ssize_t i) except -1
    cdef bint look(self, Source source, int64_t row) except -1
