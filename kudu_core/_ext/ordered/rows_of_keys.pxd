# Rows that were found for keys, and their cells as an Arrow batch in the order of the keys.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kudu_core._ext.base.arrow_array cimport ArrowArray
from kudu_core._ext.ordered.far_strings cimport FarStrings
from kudu_core._ext.ordered.packed cimport FoundRow
from kudu_core._ext.ordered.row_source cimport Source
from kudu_core._ext.row.cells cimport Span
from kudu_core._ext.row.column cimport PointColumn
from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.row.shape cimport RowShape
from kudu_core._ext.search.cells cimport Cells


cdef class RowsOfKeys:
    cdef:
        readonly uint64_t snapshot
        RowShape _shape
        tuple _widths           # of a cell of each column, 0 for strings
        tuple _bits             # whether Arrow has a column as bits, where the table has bytes
        int64_t _keys
        readonly Py_ssize_t count
        FoundRow* _found        # in the order in which they were found
        Py_ssize_t _room
        object _there
        uint8_t[::1] _marks     # of each key, whether its row is there
        list _sources           # of rows
        list _columns           # of each source
        dict _overlays          # of keys whose rows are laid over
        Cells _cells            # the mini-block that is at hand
    cdef int make_room(self, Py_ssize_t more) except -1
    cdef int32_t add_source(self, Source source) except -1
    cdef bint take(self, int32_t number, int64_t key, int64_t row) except -1
    cdef int _column(self, Py_ssize_t i, int64_t most_bytes, ArrowArray* out) except -1
    cdef Py_ssize_t _alike(self, Py_ssize_t first) noexcept
    cdef object _given(self, Py_ssize_t at, Py_ssize_t i, bint* given)
    cdef int _fixed(self, Py_ssize_t i, int width, uint8_t* values, ArrowArray* out) except -1
    cdef int _file_fixed(
        self, PointFile file, PointColumn column, Py_ssize_t first, Py_ssize_t end, uint8_t* values,
        ArrowArray* out,
    ) except -1
    cdef int _strings(self, Py_ssize_t i, int64_t most_bytes, ArrowArray* out) except -1
    cdef int _find_strings(
        self, Py_ssize_t i, Span* spans, list held, FarStrings far, ArrowArray* out
    ) except -1
    cdef int _find_in_memory(self, Py_ssize_t i, Span* spans, ArrowArray* out) except -1
    cdef int _no_rows(self, ArrowArray* out) except -1
