"""Ascending strings set up to be searched where they lie.

For the kernels that search key columns, dictionaries and bounds of rowsets: they call ``sorted_strings`` and
then search without the GIL, by the functions of ``sorted_strings.pxd``.  Python calls nothing of it.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t

import numpy as np


cdef object sorted_strings(SortedStrings* out, data, offsets):
    """Set up ascending strings, (n + 1,) offsets into ``data``; return what keeps them alive."""
    cdef:
        const uint8_t[::1] bytes_ = data
        const int64_t[::1] ends
        uint64_t[::1] heads
        int64_t i, last, shorter
        const uint8_t* first
    kept_ends = np.ascontiguousarray(offsets, np.int64)
    ends = kept_ends
    out.count = ends.shape[0] - 1
    if out.count < 0 or ends[0] < 0 or ends[out.count] > bytes_.shape[0] or (np.diff(kept_ends) < 0).any():
        raise ValueError("offsets of strings leave their data or descend")
    kept_heads = np.zeros(out.count + 1, np.uint64)
    heads = kept_heads
    out.ends = &ends[0]
    out.data = first = &bytes_[0] if bytes_.shape[0] else <const uint8_t*>out.ends
    out.heads = &heads[0]
    out.common = 0
    if out.count:
        last = out.count - 1
        shorter = min(ends[1] - ends[0], ends[last + 1] - ends[last])
        while out.common < shorter and first[ends[0] + out.common] == first[ends[last] + out.common]:
            out.common += 1
    for i in range(out.count):
        heads[i] = kc_first_bytes(first + ends[i] + out.common, ends[i + 1] - ends[i] - out.common)
    out.per = 0
    if out.count and heads[out.count - 1] > heads[0]:
        out.per = out.count / <double>(heads[out.count - 1] - heads[0])
    return data, kept_ends, kept_heads
