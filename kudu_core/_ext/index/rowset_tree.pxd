# Bounds of many rowsets: which of them may hold a key.
from libc.stdint cimport int32_t, int64_t, uint8_t

from kudu_core._ext.search.sorted_strings cimport SortedStrings


cdef enum:
    POINT_NS = 500      # of a look for one key in one more rowset, about
    BATCH_NS = 60       # of one of the keys of a batch


cdef class BoundsTree:
    cdef:
        readonly Py_ssize_t count
        public int64_t overlap_ns   # what looks for keys in more than one rowset have taken, about
        SortedStrings _firsts       # in the order of the rowsets
        SortedStrings _lasts        # in their own order
        object _kept
        int32_t[::1] _of_last       # the rowset of each of ``_lasts``
        int32_t[::1] _ranks         # a binary tree: of leaves, the place in ``_lasts``; of nodes, the largest
        int64_t _leaves

    cdef inline void note_looks(self, int64_t looks, int64_t keys) noexcept nogil:
        """Keys of a batch were looked for so many times in rowsets."""
        if looks > keys:
            self.overlap_ns += BATCH_NS * (looks - keys)

    cdef const uint8_t* first(self, int64_t rowset, int64_t* size) noexcept nogil
    cdef const uint8_t* last(self, int64_t rowset, int64_t* size) noexcept nogil
    cdef int64_t begun(self, const uint8_t* key, int64_t size) noexcept nogil
    cdef int64_t ended(self, const uint8_t* key, int64_t size) noexcept nogil
    cdef int64_t next(self, int64_t at, int64_t begun, int64_t ended) noexcept nogil
    cdef object _collected(self, int64_t begun, int64_t ended)
    cdef object _one_by_one(self, const SortedStrings* keys)
    cdef object _within(self, const SortedStrings* keys, rowsets)
