"""Which of many rowsets may hold a key, keys of a batch, or keys of a range, by their bounds.

Rowsets are numbered in the order of their first keys.  Those whose first key is at or below a key are a
beginning of that order; of these, those whose last key is at or above it are found by a binary tree over
the places that last keys have in an order of their own: each costs the height of that tree, and rowsets
that do not hold the key cost nothing.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from kudu_core._ext.search.sorted_strings cimport (
    SortedStrings,
    compare_bytes,
    count_below,
    kc_first_bytes,
    sorted_strings,
)

import numpy as np

from kudu_core._ext.keys import keys as keys_kernel

cdef enum:
    FEW = 64        # rowsets for each key of a batch, above which keys are looked for one by one


cdef inline bint _is_passed(
    const SortedStrings* keys, int64_t i, const uint8_t* key, int64_t size, uint64_t head, bint above
) noexcept nogil:
    """Whether key i of the batch is below this one (``above``: not above it)."""
    cdef int order
    if keys.heads[i] != head:
        return keys.heads[i] < head
    order = compare_bytes(keys.data + keys.ends[i], keys.ends[i + 1] - keys.ends[i], key, size)
    return order < 0 or (above and order == 0)


cdef int64_t _passed(
    const SortedStrings* keys, int64_t start, const uint8_t* key, int64_t size, bint above
) noexcept nogil:
    """How many keys of the batch are below this one (``above``: not above it), when ``start`` are: in steps
    that double."""
    cdef:
        int64_t lower = start, upper = start, step = 1, middle, common = keys.common
        uint64_t head
        int order = memcmp(key, keys.data + keys.ends[0], <size_t>(common if common < size else size))
    if order:
        return start if order < 0 else keys.count
    if size < common:
        return start
    head = kc_first_bytes(key + common, size - common)
    while upper < keys.count and _is_passed(keys, upper, key, size, head, above):
        lower = upper + 1
        upper += step
        step *= 2
    if upper > keys.count:
        upper = keys.count
    while lower < upper:
        middle = (lower + upper) >> 1
        if _is_passed(keys, middle, key, size, head, above):
            lower = middle + 1
        else:
            upper = middle
    return lower


@cython.final
@cython.auto_pickle(False)
cdef class BoundsTree:
    """The bounds of n rowsets.

    ``overlap_ns`` counts what looks into more than one rowset have taken, about, so that merges can be
    weighed by it.  It is counted without a lock: that a look gets lost does not matter.

    Parameters
    ----------
    first, last : (data, offsets)
        Encoded keys of the first and the last row of each, int64 offsets (n + 1,); first keys ascend.

    ValueError where first keys descend, a last key is below its first, or offsets leave their data.
    """

    def __init__(self, first, last):
        cdef:
            int64_t i, rank, leaf
            int32_t larger
            SortedStrings given
        first_data, first_offsets = first
        data, offsets = last
        firsts = sorted_strings(&self._firsts, first_data, first_offsets)
        kept = (firsts, sorted_strings(&given, data, offsets))
        if self._firsts.count != given.count or given.count >= 1 << 30:
            raise ValueError(f"{self._firsts.count} first keys, {given.count} last ones")
        self.count = given.count
        for i in range(given.count):
            if i and compare_bytes(
                self._firsts.data + self._firsts.ends[i - 1], self._firsts.ends[i] - self._firsts.ends[i - 1],
                self._firsts.data + self._firsts.ends[i], self._firsts.ends[i + 1] - self._firsts.ends[i],
            ) > 0:
                raise ValueError("rowsets are not in the order of their first keys")
            if compare_bytes(
                given.data + given.ends[i], given.ends[i + 1] - given.ends[i],
                self._firsts.data + self._firsts.ends[i], self._firsts.ends[i + 1] - self._firsts.ends[i],
            ) < 0:
                raise ValueError(f"rowset {i} ends before it begins")
        data, offsets = np.ascontiguousarray(data, np.uint8), np.ascontiguousarray(offsets, np.int64)
        order = keys_kernel.sort(data, offsets)
        self._of_last = of_last = np.ascontiguousarray(order, np.int32)
        data, offsets = keys_kernel.take(data, offsets, order)
        self._kept = (*kept, sorted_strings(&self._lasts, data, offsets))
        self._leaves = 1
        while self._leaves < self.count:
            self._leaves *= 2
        self._ranks = np.full(2 * self._leaves, -1, np.int32)
        for rank in range(self.count):
            self._ranks[self._leaves + self._of_last[rank]] = <int32_t>rank
        for leaf in range(self._leaves - 1, 0, -1):
            larger = self._ranks[2 * leaf]
            if self._ranks[2 * leaf + 1] > larger:
                larger = self._ranks[2 * leaf + 1]
            self._ranks[leaf] = larger

    cdef const uint8_t* first(self, int64_t rowset, int64_t* size) noexcept nogil:
        """The first key of a rowset."""
        size[0] = self._firsts.ends[rowset + 1] - self._firsts.ends[rowset]
        return self._firsts.data + self._firsts.ends[rowset]

    cdef const uint8_t* last(self, int64_t rowset, int64_t* size) noexcept nogil:
        """The last key of a rowset."""
        cdef int64_t rank = self._ranks[self._leaves + rowset]
        size[0] = self._lasts.ends[rank + 1] - self._lasts.ends[rank]
        return self._lasts.data + self._lasts.ends[rank]

    cdef int64_t begun(self, const uint8_t* key, int64_t size) noexcept nogil:
        """How many rowsets have a first key that is not above the key."""
        return count_below(&self._firsts, key, size, True)

    cdef int64_t ended(self, const uint8_t* key, int64_t size) noexcept nogil:
        """How many rowsets have a last key below the key."""
        return count_below(&self._lasts, key, size, False)

    cdef int64_t next(self, int64_t at, int64_t begun, int64_t ended) noexcept nogil:
        """The first rowset from ``at`` on, of those that have begun, that has not ended; -1: none."""
        cdef int64_t node
        if at >= begun:
            return -1
        node = at + self._leaves
        while self._ranks[node] < ended:
            while node & 1:             # everything below this node's parent is behind
                node >>= 1
            if node == 0:
                return -1
            node += 1
        while node < self._leaves:
            node *= 2
            if self._ranks[node] < ended:
                node += 1
        node -= self._leaves
        return node if node < begun else -1

    def point(self, bytes key not None):
        """Rowsets that may hold the key, ascending, (k,) int64."""
        cdef:
            const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(key)
            int64_t size = PyBytes_GET_SIZE(key)
        return self._collected(self.begun(at, size), self.ended(at, size))

    def range(self, lower, upper):
        """Rowsets that may hold keys in [``lower``, ``upper``), bytes or None for an open end; (k,) int64."""
        cdef:
            bytes low = lower
            bytes high = upper
            int64_t begun = self.count, ended = 0
        if high is not None:
            begun = count_below(
                &self._firsts, <const uint8_t*>PyBytes_AS_STRING(high), PyBytes_GET_SIZE(high), False
            )
        if low is not None:
            ended = self.ended(<const uint8_t*>PyBytes_AS_STRING(low), PyBytes_GET_SIZE(low))
        return self._collected(begun, ended)

    cdef object _collected(self, int64_t begun, int64_t ended):
        cdef:
            int64_t count = 0, at
            int64_t[::1] out
        most = min(begun, self.count - ended)
        found = np.empty(max(0, most), np.int64)
        if not len(found):
            return found
        out = found
        with nogil:
            at = self.next(0, begun, ended)
            while at >= 0:
                out[count] = at
                count += 1
                at = self.next(at + 1, begun, ended)
        return found[:count]

    def batch(self, const uint8_t[::1] data not None, const int64_t[::1] offsets not None):
        """Rowsets that may hold keys of an ascending batch: (rowsets, lower, upper), each (k,) int64.

        Keys ``[lower, upper)`` lie within the rowset's bounds; at least one.  Rowsets ascend.

        ValueError where offsets leave their data or descend.  Keys that do not ascend give any answer.
        """
        cdef:
            SortedStrings keys
            int64_t last
        none = np.empty(0, np.int64)
        _kept = sorted_strings(&keys, data, offsets)
        if not keys.count or not self.count:
            return none, none, none
        if keys.count * FEW < self.count:
            return self._within(&keys, self._one_by_one(&keys))
        last = keys.count - 1
        begun = self.begun(keys.data + keys.ends[last], keys.ends[last + 1] - keys.ends[last])
        ended = self.ended(keys.data + keys.ends[0], keys.ends[1] - keys.ends[0])
        return self._within(&keys, self._collected(begun, ended))

    cdef object _one_by_one(self, const SortedStrings* keys):
        """Rowsets that hold a key of the batch, ascending: looked for key by key."""
        cdef:
            uint8_t[::1] seen
            int64_t i, at, begun, ended, size
            const uint8_t* key
        marks = np.zeros(self.count, np.uint8)
        seen = marks
        with nogil:
            for i in range(keys.count):
                key, size = keys.data + keys.ends[i], keys.ends[i + 1] - keys.ends[i]
                begun, ended = self.begun(key, size), self.ended(key, size)
                at = self.next(0, begun, ended)
                while at >= 0:
                    seen[at] = 1
                    at = self.next(at + 1, begun, ended)
        return np.flatnonzero(marks)

    cdef object _within(self, const SortedStrings* keys, rowsets):
        """(rowsets, lower, upper) of those that hold any key of the batch."""
        cdef:
            const int64_t[::1] of = rowsets
            int64_t[::1] lower, upper, kept
            int64_t i, n, start = 0, count = 0, looks = 0
        chosen, low, high = (np.empty(len(rowsets), np.int64) for _ in range(3))
        lower, upper, kept = low, high, chosen
        with nogil:
            for i in range(of.shape[0]):
                n = of[i]
                start = _passed(
                    keys, start, self._firsts.data + self._firsts.ends[n],
                    self._firsts.ends[n + 1] - self._firsts.ends[n], False,
                )
                lower[count] = start
                n = self._ranks[self._leaves + n]
                upper[count] = _passed(
                    keys, start, self._lasts.data + self._lasts.ends[n],
                    self._lasts.ends[n + 1] - self._lasts.ends[n], True,
                )
                kept[count] = of[i]
                looks += upper[count] - start
                count += upper[count] > start
        self.note_looks(looks, keys.count)
        return chosen[:count], low[:count], high[:count]
