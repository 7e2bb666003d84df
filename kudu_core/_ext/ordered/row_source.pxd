# One of the sources of rows in the order of keys.
from libc.stdint cimport int32_t, int64_t, uint8_t

from kudu_core._ext.row.file cimport PointFile
from kudu_core._ext.ordered.file_keys cimport FileKeys
from kudu_core._ext.row.view cimport MemoryPoints, PointView, RowsetPoints


cdef class Source:
    cdef:
        int32_t number
        MemoryPoints memory     # of a view: what it is
        RowsetPoints rowset     # likewise
        PointView waiting       # of a view: stands for its rowsets from ``place`` on, none of which is begun
        int64_t place, first_above, ended
        object lists            # an iterator, where rows come so
        PointFile file          # else
        bint begun
        bint taken              # the row was handed out: the next one is to be found
        int64_t row
        object kept             # of a list: what the four below lie in
        const int64_t* rows
        const int64_t* ends
        const uint8_t* data
        Py_ssize_t at, count
        const uint8_t* key      # before it is begun: no key of the source is below it
        int64_t size
        uint8_t few[24]         # the key, where it is put together: in here, or if it is longer
        uint8_t* room           # there
        int64_t room_bytes
        object first            # keeps the first key
    cdef int take(self, FileKeys keys) except -1
    cdef bint next_list(self) except -1
    cdef void stand(self) noexcept
