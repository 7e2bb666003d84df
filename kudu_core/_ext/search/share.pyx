"""How much data lies below each of many keys, when all that is known are bounds and sizes of rowsets.

Inside a rowset its bytes are taken to lie evenly between its first and its last key: by the eight bytes
after what both keys begin with, as a big-endian number.
"""
import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.search.sorted_strings cimport kc_first_bytes


cdef int64_t _shared(const uint8_t* a, int64_t a_size, const uint8_t* b, int64_t b_size) noexcept nogil:
    """How many bytes both begin with."""
    cdef int64_t i = 0
    while i < a_size and i < b_size and a[i] == b[i]:
        i += 1
    return i


cdef inline uint64_t _head(
    const uint8_t* data, const int64_t* offsets, int64_t key, int64_t skip
) noexcept nogil:
    cdef int64_t size = offsets[key + 1] - offsets[key]
    return kc_first_bytes(data + offsets[key] + skip, size - skip) if size > skip else 0


cdef void _below(
    const uint8_t* data, const int64_t* offsets, int64_t keys, const int64_t* first, const int64_t* last,
    const int64_t* weights, int64_t rowsets, double* ended, double* out
) noexcept nogil:
    cdef:
        int64_t i, key, skip
        uint64_t low, high, at
        double each, done = 0
    for i in range(rowsets):
        ended[last[i]] += weights[i]
        if last[i] - first[i] < 2:
            continue
        skip = _shared(
            data + offsets[first[i]], offsets[first[i] + 1] - offsets[first[i]],
            data + offsets[last[i]], offsets[last[i] + 1] - offsets[last[i]],
        )
        low = _head(data, offsets, first[i], skip)
        high = _head(data, offsets, last[i], skip)
        # Keys that differ in trailing zero bytes only have one head: half of the rowset lies below.
        each = weights[i] / (<double>(high - low)) if high > low else 0
        for key in range(first[i] + 1, last[i]):
            at = _head(data, offsets, key, skip)
            out[key] += each * <double>(at - low) if high > low else 0.5 * weights[i]
    for key in range(keys):
        done += ended[key]
        out[key] += done


def below(
    const uint8_t[::1] data not None,
    const int64_t[::1] offsets not None,
    const int64_t[::1] first not None,
    const int64_t[::1] last not None,
    const int64_t[::1] weights not None,
):
    """Bytes at or below each key, (m,) float64, ascending but for rounding.

    Parameters
    ----------
    data, offsets
        ``m`` keys, strictly ascending.
    first, last : (n,)
        Which key is the rowset's first and which its last.
    weights : (n,)
        Bytes of each rowset.

    ValueError for lengths that differ, IndexError for a key that does not exist.
    """
    cdef:
        int64_t keys = offsets.shape[0] - 1
        int64_t rowsets = first.shape[0]
        int64_t i
        double[::1] out, ended
    if keys < 0 or last.shape[0] != rowsets or weights.shape[0] != rowsets:
        raise ValueError(f"{rowsets} first keys, {last.shape[0]} last ones, {weights.shape[0]} weights")
    if keys and (offsets[0] < 0 or offsets[keys] > data.shape[0]):
        raise ValueError("keys lie outside their buffer")
    for i in range(keys):
        if offsets[i + 1] < offsets[i]:
            raise ValueError("offsets of keys descend")
    for i in range(rowsets):
        if not 0 <= first[i] <= last[i] < keys:
            raise IndexError(f"rowset {i}: keys {first[i]} to {last[i]} of {keys}")
        if weights[i] < 0:
            raise ValueError(f"rowset {i}: {weights[i]} bytes")
    result = np.zeros(keys, np.float64)
    if not keys:
        return result
    out, ended = result, np.zeros(keys, np.float64)
    with nogil:
        _below(
            &data[0] if data.shape[0] else NULL, &offsets[0], keys, &first[0] if rowsets else NULL,
            &last[0] if rowsets else NULL, &weights[0] if rowsets else NULL, rowsets, &ended[0], &out[0],
        )
    return result
