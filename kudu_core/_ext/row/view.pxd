# The rowsets of a tablet's view as reads of single rows hold them.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.columns.flags cimport AppendFlags
from kudu_core._ext.columns.growing cimport AppendColumn
from kudu_core._ext.index.hash_index cimport KeyTable
from kudu_core._ext.index.rowset_tree cimport BoundsTree
from kudu_core._ext.row.change_log cimport ChangePoints
from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.row.overlay cimport Overlay
from kudu_core._ext.row.shape cimport RowShape


cdef class MemoryPoints:
    cdef:
        KeyTable keys
        AppendColumn inserted
        dict columns
        list _all               # in the order of the schema
        readonly AppendFlags live
        readonly int version
        """Of the schema whose columns these are."""
        readonly uint64_t last_insert_ts
        readonly ChangePoints changes
        list _older             # changes before these, newest first; None: there are none
        RowShape _shape
        list _shape_columns
    cpdef reserve_one(self, bytes key, list cells)
    cpdef insert_one(self, uint64_t ts, bytes key, uint64_t hash, list cells)
    cpdef begin_insert(self, uint64_t ts)
    cdef int64_t find(self, const uint8_t* key, int64_t size, uint64_t hash, uint64_t snapshot) noexcept
    cdef list columns_of(self, RowShape shape)
    cdef Overlay overlaid(self, int64_t ordinal, uint64_t snapshot, RowShape shape)
    cdef object row(
        self, const uint8_t* key, int64_t size, uint64_t hash, uint64_t snapshot, RowShape shape
    )


cdef class RowsetPoints:
    cdef:
        object _open
        PointFile _file
        list stores             # newest first
        uint64_t insert_ts      # of all rows; 0 where they have several
        uint64_t max_insert_ts
        object _times
    cdef PointFile file(self)
    cdef Overlay overlaid(self, PointFile file, int64_t row, uint64_t snapshot, RowShape shape)
    cdef object row(
        self, const uint8_t* key, int64_t size, uint64_t hash, uint64_t snapshot, RowShape shape
    )


cdef class PointView:
    cdef:
        list memories
        list rowsets
        BoundsTree bounds
    cpdef list find(self, bytes key, uint64_t hash)
    cdef int _candidates(self, int64_t* place, int64_t begun, int64_t ended, int64_t* found) noexcept
