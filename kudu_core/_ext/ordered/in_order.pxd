# Rows of several sources in the order of their keys, for what reads their cells.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.ordered.file_keys cimport FileKeys
from kudu_core._ext.ordered.row_source cimport Source


cdef struct Standing:
    uint64_t head               # the first bytes of the key, as a number that compares as they do
    int32_t number              # of the source


cdef class RowsInOrder:
    cdef:
        list sources
        list _files
        object _listed
        Standing* _heap         # the source with the smallest key first
        int32_t _count, _room
        bytes _lower, _upper
        readonly int64_t begun
        FileKeys _keys
        bytes _last
        list _views             # of ``of_views``; those from ``_turn`` on are not looked at yet
        Py_ssize_t _turn
        object _in_memory
        uint64_t snapshot
        bint _ordered
        bint _keyless           # in no order and without bounds: keys say nothing
        Source _behind          # in no order: what comes when the heap is empty
    cdef int _fill(self) except -1
    cdef Source _new(self)
    cdef void _stand_before(self, Source source, const uint8_t* first, int64_t size) noexcept
    cdef int _put(self, Source source) except -1
    cdef void _leave_out(self) noexcept
    cdef bint _before(self, Standing a, Standing b) noexcept
    cdef void _sink(self, int32_t at) noexcept
    cdef int _add_view(self, Py_ssize_t number) except -1
    cdef int _wait(self, Source source, int64_t place) except -1
    cdef int _begin_waiting(self, Source source) except -1
    cdef bint _begin(self, Source source) except -1
    cdef bint _find_first(self, Source source, PointFile file) except -1
    cdef bint _step(self, Source source) except -1
    cdef bint _list(self, Source source, int64_t first) except -1
