# What stores of changes make of one row: pointchanges.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kudu_core._ext.columns.growing cimport AppendColumn
from kudu_core._ext.row.codec cimport RowShape
from kudu_core._ext.index.rowid_map cimport RowidMap

cdef enum:
    UNKNOWN = -1                # whether a row lives
    NO_CHANGE = 0xFFFFFFFF


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


cdef class Store:
    cdef int collect(self, int64_t row, Overlay overlay) except -1


cdef class HotRow:
    # A row with a long chain: where in each column's log its updates are, ascending.
    cdef:
        uint32_t newest         # the last change that is in here
        dict updates            # column id: AppendColumn of positions
        AppendColumn lives      # numbers of the changes that remove or revive the row


cdef class ChangePoints(Store):
    cdef:
        AppendColumn timestamps, rowids, ops, before
        RowidMap last
        list columns            # (id, numbers, rowids, values)
        dict by_id
        dict _hot               # rowid: HotRow
        readonly int64_t nbytes  # of these
        readonly int64_t liveness
    cdef HotRow _hot_row(self, uint32_t row, uint32_t last)
    cdef int _collect_hot(self, HotRow hot, int64_t limit, Overlay overlay) except -1
    cdef int64_t _place_below(self, AppendColumn mine, AppendColumn numbers, int64_t limit) noexcept
    cdef int64_t _newest(self, tuple log, uint32_t row, int64_t limit) except -2
    cdef int64_t _newest_life(self, uint32_t row, int64_t limit) except -2
    cdef int _cells(self, uint32_t number, Overlay overlay) except -1


cdef Overlay overlay_of(RowShape shape, uint64_t snapshot)
cdef object memory_cell(AppendColumn column, int64_t row, RowShape shape, Py_ssize_t i)
cdef int64_t visible_rows(AppendColumn stamps, uint64_t snapshot) noexcept
