"""Where in a log the changes of which rows are: positions by buckets of rowids.

A *log* is parallel arrays in time order; its rowids are uint32.  A stable counting sort gives the
positions of each bucket in time order, so whoever wants the changes of some rows looks at their
buckets alone.
"""
from libc.stdint cimport int64_t, uint16_t, uint32_t

cimport cython

import numpy as np

cdef enum:
    COUNTED = 65536             # changes counted at once, at most: a position takes 16 bits

cdef int64_t MAX_BUCKETS = 1 << 24


cdef uint32_t _highest(const uint32_t[::1] rowids) noexcept nogil:
    cdef:
        Py_ssize_t i
        uint32_t highest = 0
    for i in range(rowids.shape[0]):
        highest = rowids[i] if rowids[i] > highest else highest
    return highest


cdef void _bucket_sort(
    const uint32_t[::1] rowids, int shift, int64_t[::1] starts, int64_t[::1] perm
) noexcept nogil:
    """``starts`` (zeros, one more than buckets) serves as the counters, shifted by one bucket."""
    cdef:
        int64_t i, here, total = 0, n = rowids.shape[0]
        Py_ssize_t bucket
    for i in range(n):
        starts[(rowids[i] >> shift) + 1] += 1
    for bucket in range(1, starts.shape[0]):        # to the first place of the bucket before
        here = starts[bucket]
        starts[bucket] = total
        total += here
    for i in range(n):
        bucket = (rowids[i] >> shift) + 1
        perm[starts[bucket]] = i
        starts[bucket] += 1


def bucket_sort(const uint32_t[::1] rowids not None, int shift):
    """Stable counting sort of a log's positions by ``rowid >> shift``.

    Returns ``(starts, perm)``, both int64: bucket b holds ``perm[starts[b]:starts[b + 1]]``, in
    time order.  There are buckets up to that of the highest rowid; none for an empty log.  Raises
    ValueError for a shift outside 0..31, and when there would be more than 2**24 buckets.
    """
    cdef:
        int64_t buckets = 0
        int64_t[::1] starts, perm
    if shift < 0 or shift > 31:
        raise ValueError(f"shift {shift} is not in 0..31")
    if rowids.shape[0]:
        buckets = (<int64_t>_highest(rowids) >> shift) + 1
    if buckets > MAX_BUCKETS:
        raise ValueError(f"{buckets} buckets are too many")
    result_starts, result_perm = np.zeros(buckets + 1, np.int64), np.empty(rowids.shape[0], np.int64)
    starts = result_starts
    perm = result_perm
    if rowids.shape[0]:
        with nogil:
            _bucket_sort(rowids, shift, starts, perm)
    return result_starts, result_perm


cdef void _count(
    const uint32_t[::1] rowids, uint32_t base, uint32_t[::1] starts, uint16_t[::1] low, uint16_t[::1] order
) noexcept nogil:
    """``starts`` (zeros, two more than buckets) serves as the counters, shifted by two."""
    cdef:
        int64_t i, bucket, n = rowids.shape[0]
    for i in range(n):
        starts[(rowids[i] >> SHIFT) - base + 2] += 1
    for bucket in range(2, starts.shape[0]):
        starts[bucket] += starts[bucket - 1]
    for i in range(n):
        bucket = (rowids[i] >> SHIFT) - base + 1
        low[starts[bucket]] = <uint16_t>(rowids[i] & ((1 << SHIFT) - 1))
        order[starts[bucket]] = <uint16_t>i
        starts[bucket] += 1


@cython.final
cdef class ChangePositions:
    """Positions of at most 65,536 changes in time order, by buckets of 16,384 rows.  Never changes."""

    def __init__(self, const uint32_t[::1] rowids not None):
        """Raises ValueError for more changes than 16 bits count."""
        cdef:
            Py_ssize_t i, n = rowids.shape[0]
            uint32_t least = 0xFFFFFFFF, most = 0
        if n > COUNTED:
            raise ValueError(f"{n} changes, at most {COUNTED} are counted at once")
        self.count = n
        with nogil:
            for i in range(n):
                least = rowids[i] if rowids[i] < least else least
                most = rowids[i] if rowids[i] > most else most
        self.base = least >> SHIFT if n else 0
        self.starts = np.zeros((most >> SHIFT) - self.base + 3 if n else 2, np.uint32)
        self.low = np.empty(n, np.uint16)
        self.order = np.empty(n, np.uint16)
        if n:
            with nogil:
                _count(rowids, <uint32_t>self.base, self.starts, self.low, self.order)

    @property
    def nbytes(self):
        """Memory it takes."""
        return 4 * (self.starts.shape[0] + self.count)
