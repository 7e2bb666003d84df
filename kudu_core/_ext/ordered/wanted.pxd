# The keys of a call: encoded, with their hashes, and which of them are looked for.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.base.keybytes cimport kc_compare


cdef struct Wanted:
    const uint8_t* data
    const int64_t* offsets
    const uint64_t* hashes
    const int64_t* keys


cdef inline const uint8_t* key_of(const Wanted* wanted, int64_t at, int64_t* size) noexcept nogil:
    cdef int64_t key = wanted.keys[at]
    size[0] = wanted.offsets[key + 1] - wanted.offsets[key]
    return wanted.data + wanted.offsets[key]


cdef inline bint ascend(const Wanted* wanted, int64_t start, int64_t end) noexcept nogil:
    """Whether the keys come in order."""
    cdef:
        int64_t i, size = 0, before_size = 0
        const uint8_t* key
        const uint8_t* before = NULL
    for i in range(start, end):
        key = key_of(wanted, i, &size)
        if before != NULL and kc_compare(before, before_size, key, size) > 0:
            return False
        before, before_size = key, size
    return True


cdef inline int64_t passed(
    const Wanted* wanted, int64_t lower, int64_t upper, const uint8_t* bound, int64_t bound_size, bint above
) noexcept nogil:
    """Where the keys from ``lower`` to ``upper``, which ascend, are no longer below the bound (``above``: are
    above it)."""
    cdef:
        int64_t middle, size = 0
        const uint8_t* key
        int order
    while lower < upper:
        middle = (lower + upper) >> 1
        key = key_of(wanted, middle, &size)
        order = kc_compare(key, size, bound, bound_size)
        if order < 0 or (above and order == 0):
            lower = middle + 1
        else:
            upper = middle
    return lower
