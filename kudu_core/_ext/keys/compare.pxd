# Encoded keys as a kernel holds them, ``(data, offsets)`` as in ``keys``, and their compare.
from libc.stdint cimport int64_t, uint8_t

from kudu_core._ext.base.keybytes cimport kc_compare, key_bytes


cdef struct Keys:
    const uint8_t* data
    const uint8_t* end
    const int64_t* offsets


cdef inline int64_t size_of(const Keys* keys, int64_t row) noexcept nogil:
    return keys.offsets[row + 1] - keys.offsets[row]


cdef inline int compare(const Keys* keys, int64_t a, int64_t b, int64_t depth) noexcept nogil:
    """Keys that agree, padded with zeros, in ``depth`` bytes.  Sizes may become negative."""
    return kc_compare(
        keys.data + keys.offsets[a] + depth, size_of(keys, a) - depth,
        keys.data + keys.offsets[b] + depth, size_of(keys, b) - depth,
    )


cdef inline int order_of(const Keys* keys, int64_t n) noexcept nogil:
    cdef:
        int64_t i
        int sign, result = 2
    for i in range(1, n):
        sign = compare(keys, i - 1, i, 0)
        if sign > 0:
            return 0
        if sign == 0:
            result = 1
    return result


cdef inline void point(Keys* keys, const uint8_t[::1] data, const int64_t[::1] offsets) noexcept:
    keys.data = key_bytes(data)
    keys.end = keys.data + data.shape[0]
    keys.offsets = &offsets[0]
