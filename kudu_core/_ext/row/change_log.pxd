# Changes of rows in memory, one row at a time.
from libc.stdint cimport int64_t, uint32_t

from kudu_core._ext.columns.growing cimport AppendColumn
from kudu_core._ext.index.rowid_map cimport RowidMap
from kudu_core._ext.row.overlay cimport Overlay, Store


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
    cdef int64_t _newest(self, tuple log, uint32_t row, int64_t limit) except -2
    cdef int64_t _newest_life(self, uint32_t row, int64_t limit) except -2
    cdef int _cells(self, uint32_t number, Overlay overlay) except -1
