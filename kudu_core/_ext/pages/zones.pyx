"""Zone maps: the least and the greatest of some cells, in the order of their type.

NaN lies outside the order and is counted; of -0.0 and 0.0, which are equal, either may be a bound.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from kudu_core._ext.base.bitmap cimport kc_bit, kc_bits_count

import numpy as np

cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <string.h>

    #define KC_ZONE_LOOP(T, LOW, HIGH, USE) \\
        for (int64_t i = 0; i < n; i++) { \\
            if (bits && !kc_bit(bits, i)) continue; \\
            T x; memcpy(&x, in + i * (int64_t)sizeof(T), sizeof(T)); \\
            USE \\
            low = x < low ? x : low; high = x > high ? x : high; \\
        }
    #define KC_ZONE(T, LOW, HIGH, USE) { \\
            T low = LOW, high = HIGH; \\
            if (bits) { KC_ZONE_LOOP(T, LOW, HIGH, USE) } \\
            else { const uint8_t *const bits = 0; KC_ZONE_LOOP(T, LOW, HIGH, USE) } \\
            memcpy(least, &low, sizeof(T)); memcpy(greatest, &high, sizeof(T)); \\
            break; }
    #define KC_ORDERED
    #define KC_NAN nans += x != x;
    #define KC_MIN128 ((__int128)((unsigned __int128)1 << 127))

    /* Where no cell counts, the bounds are the wrong way round.  Return the number of NaN. */
    static int64_t kc_zone(const uint8_t *in, int64_t n, int width, int kind, const uint8_t *bits,
                           uint8_t *least, uint8_t *greatest) {
        int64_t nans = 0;
        if (kind == 2) {
            switch (width) {
                case 4: KC_ZONE(float, INFINITY, -INFINITY, KC_NAN)
                default: KC_ZONE(double, INFINITY, -INFINITY, KC_NAN)
            }
        } else if (kind == 1 || kind == 4) {
            switch (width) {
                case 1: KC_ZONE(int8_t, INT8_MAX, INT8_MIN, KC_ORDERED)
                case 2: KC_ZONE(int16_t, INT16_MAX, INT16_MIN, KC_ORDERED)
                case 4: KC_ZONE(int32_t, INT32_MAX, INT32_MIN, KC_ORDERED)
                case 8: KC_ZONE(int64_t, INT64_MAX, INT64_MIN, KC_ORDERED)
                default: KC_ZONE(__int128, ~KC_MIN128, KC_MIN128, KC_ORDERED)
            }
        } else {
            switch (width) {
                case 1: KC_ZONE(uint8_t, UINT8_MAX, 0, KC_ORDERED)
                case 2: KC_ZONE(uint16_t, UINT16_MAX, 0, KC_ORDERED)
                case 4: KC_ZONE(uint32_t, UINT32_MAX, 0, KC_ORDERED)
                case 8: KC_ZONE(uint64_t, UINT64_MAX, 0, KC_ORDERED)
                default: KC_ZONE(unsigned __int128, ~(unsigned __int128)0, 0, KC_ORDERED)
            }
        }
        return nans;
    }
    """
    int64_t kc_zone(
        const uint8_t* data, int64_t n, int width, int kind, const uint8_t* bits,
        uint8_t* least, uint8_t* greatest,
    ) noexcept nogil


def zone_fixed(
    const uint8_t[::1] values not None, int width, int kind, const uint8_t[::1] validity=None
):
    """Return ``(least, greatest, null_count, nan_count)``; the bounds are ``width`` raw bytes.

    Both are None where every cell is null or NaN.  ``kind`` is 0 unsigned, 1 signed, 2 float (4 or 8
    bytes), 4 decimal (signed), 5 bool (unsigned).  Raises ValueError for a width or kind that is
    none, or a bitmap that is too short.
    """
    cdef:
        Py_ssize_t n
        int64_t nulls = 0, nans
        const uint8_t* bits = NULL
        uint8_t least[16]
        uint8_t greatest[16]
    if width != 1 and width != 2 and width != 4 and width != 8 and width != 16:
        raise ValueError(f"width {width} is not 1, 2, 4, 8 or 16")
    if kind not in (0, 1, 2, 4, 5) or (kind == 2 and width != 4 and width != 8):
        raise ValueError(f"kind {kind} of {width} bytes")
    if values.shape[0] % width:
        raise ValueError(f"{values.shape[0]} bytes are no whole number of cells of {width} bytes")
    n = values.shape[0] // width
    if n == 0:
        return None, None, 0, 0
    if validity is not None:
        if validity.shape[0] < (n + 7) >> 3:
            raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {n} bits")
        bits = &validity[0]
    with nogil:
        if bits != NULL:
            nulls = n - kc_bits_count(bits, 0, n)
            if nulls == 0:
                bits = NULL
        nans = kc_zone(&values[0], n, width, kind, bits, least, greatest)
    if nulls + nans == n:
        return None, None, nulls, nans
    return (
        PyBytes_FromStringAndSize(<const char*>least, width),
        PyBytes_FromStringAndSize(<const char*>greatest, width),
        nulls,
        nans,
    )


cdef int string_order(const uint8_t* a, int64_t a_size, const uint8_t* b, int64_t b_size) noexcept nogil:
    cdef int order = memcmp(a, b, <size_t>(a_size if a_size < b_size else b_size))
    if order:
        return order
    return (a_size > b_size) - (a_size < b_size)


cdef int64_t zone_of_strings(
    const int32_t* offsets,
    int64_t rows,
    const uint8_t* data,
    int64_t data_bytes,
    const uint8_t* bits,
    int64_t* least,
    int64_t* greatest,
) noexcept nogil:
    cdef:
        int64_t i, nulls = 0, begin, end, low = -1, high = -1
    for i in range(rows):
        begin = offsets[i]
        end = offsets[i + 1]
        if begin < 0 or end < begin or end > data_bytes:
            return -1
        if bits != NULL and not kc_bit(bits, i):
            nulls += 1
        elif low < 0:
            low = high = i
        elif string_order(
            data + begin, end - begin, data + offsets[low], offsets[low + 1] - offsets[low]
        ) < 0:
            low = i
        elif string_order(
            data + begin, end - begin, data + offsets[high], offsets[high + 1] - offsets[high]
        ) > 0:
            high = i
    least[0] = low
    greatest[0] = high
    return nulls


def zone_binary(
    const int32_t[::1] offsets not None, const uint8_t[::1] data not None, const uint8_t[::1] validity=None,
    int64_t most_bytes=INT64_MAX,
):
    """Return ``(least, greatest, null_count)``; the bounds are None where all are null.

    They are whole cells, or the first ``most_bytes`` of longer ones.

    Raises ValueError for offsets that descend or leave the data, a bitmap that is too short, or a negative
    ``most_bytes``.
    """
    cdef:
        Py_ssize_t rows = offsets.shape[0] - 1
        int64_t nulls, least = -1, greatest = -1
        const uint8_t* bits = NULL
        const uint8_t* first = b""
    if rows < 0:
        raise ValueError("offsets of a column have at least one entry")
    if most_bytes < 0:
        raise ValueError(f"bounds of {most_bytes} bytes")
    if validity is not None:
        if validity.shape[0] < (rows + 7) >> 3:
            raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {rows} bits")
        if rows:
            bits = &validity[0]
    if data.shape[0]:
        first = &data[0]
    with nogil:
        nulls = zone_of_strings(&offsets[0], rows, first, data.shape[0], bits, &least, &greatest)
    if nulls < 0:
        raise ValueError("offsets descend or lie outside the data")
    if least < 0:
        return None, None, nulls
    return (
        PyBytes_FromStringAndSize(
            <const char*>first + offsets[least], min(offsets[least + 1] - offsets[least], most_bytes)
        ),
        PyBytes_FromStringAndSize(
            <const char*>first + offsets[greatest], min(offsets[greatest + 1] - offsets[greatest], most_bytes)
        ),
        nulls,
    )


cdef void _strings_meet(
    const uint8_t* low, const uint8_t* high, const uint8_t[::1] open_ended, Py_ssize_t width,
    const uint8_t* first, Py_ssize_t first_size, const uint8_t* beyond, Py_ssize_t beyond_size,
    uint8_t[::1] out,
) noexcept nogil:
    cdef:
        int64_t i, size
        const uint8_t* bound
    for i in range(out.shape[0]):
        bound = high + i * width
        size = bound[0] if bound[0] < width else width - 1
        out[i] = open_ended[i] != 0 or string_order(bound + 1, size, first, first_size) >= 0
        if out[i] and beyond != NULL:
            bound = low + i * width
            size = bound[0] if bound[0] < width else width - 1
            out[i] = string_order(bound + 1, size, beyond, beyond_size) < 0


def strings_meet(
    const uint8_t[:, ::1] low not None,
    const uint8_t[:, ::1] high not None,
    const uint8_t[::1] open_ended not None,
    bytes first not None,
    bytes beyond,
):
    """Which bounds of strings may enclose one that is at least ``first`` and below ``beyond`` (None: any).

    A bound is a byte of length and that many bytes, filled up to the row's width; no upper bound
    where ``open_ended`` is not 0.  Returns (n,) uint8.
    """
    cdef:
        Py_ssize_t n = low.shape[0], width = low.shape[1]
        const uint8_t* most = NULL
        Py_ssize_t most_size = 0
        uint8_t[::1] out
    if high.shape[0] != n or high.shape[1] != width or open_ended.shape[0] != n or not 1 <= width <= 256:
        raise ValueError(f"bounds of {n} and {high.shape[0]} pages, {width} and {high.shape[1]} bytes wide")
    result = np.zeros(n, np.uint8)
    if n == 0:
        return result
    out = result
    if beyond is not None:
        most = beyond
        most_size = len(beyond)
    _strings_meet(&low[0, 0], &high[0, 0], open_ended, width, first, len(first), most, most_size, out)
    return result
