"""Bitmaps: taken, interleaved, cut, joined, counted, and made bytes and back.

A *bitmap* is LSB first with bit offset 0, where 1 means NOT null and None means that no bit is 0.
Bits past the last row are 0 in every bitmap made here, and ignored in every bitmap read here.

Row numbers are int64.  Row -1 gives a null.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t, uintptr_t

from kudu_core._ext.base.bitmap cimport kc_bit, kc_bits_copy, kc_bits_count

import numpy as np

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* 8 bytes to 8 bits, any byte but 0 being 1; and back to bytes of 0 and 1. */
    static inline __attribute__((always_inline)) uint8_t kc_pack8(const uint8_t *bytes) {
        uint64_t x;
        memcpy(&x, bytes, 8);
        x = ((((x & 0x7f7f7f7f7f7f7f7fULL) + 0x7f7f7f7f7f7f7f7fULL) | x) >> 7) & 0x0101010101010101ULL;
        return (uint8_t)((x * 0x0102040810204080ULL) >> 56);
    }
    static inline __attribute__((always_inline)) void kc_unpack8(uint8_t *bytes, uint8_t bits) {
        uint64_t x = (bits * 0x0101010101010101ULL) & 0x8040201008040201ULL;
        x = ((((x & 0x7f7f7f7f7f7f7f7fULL) + 0x7f7f7f7f7f7f7f7fULL) | x) >> 7) & 0x0101010101010101ULL;
        memcpy(bytes, &x, 8);
    }
    """
    uint8_t kc_pack8(const uint8_t* data) noexcept nogil
    void kc_unpack8(uint8_t* data, uint8_t bits) noexcept nogil


cdef int _check_bits(const uint8_t[::1] bits, Py_ssize_t n) except -1:
    if n < 0:
        raise ValueError(f"a negative number of bits: {n}")
    if bits.shape[0] < (n + 7) >> 3:
        raise ValueError(f"a bitmap of {bits.shape[0]} bytes has no {n} bits")
    return 0


cdef int64_t _bits_take(
    const uint8_t* bits, int64_t count, const int64_t[::1] rows, uint8_t[::1] out, int64_t* nulls
) noexcept nogil:
    cdef:
        int64_t i, row, zeros = 0
        unsigned int byte = 0, bit
    for i in range(rows.shape[0]):
        row = rows[i]
        if <uint64_t>row < <uint64_t>count:
            bit = 1 if bits == NULL else <unsigned int>kc_bit(bits, row)
        elif row == -1:
            bit = 0
        else:
            return i
        zeros += 1 - bit
        byte |= bit << (i & 7)
        if i & 7 == 7:
            out[i >> 3] = <uint8_t>byte
            byte = 0
    if rows.shape[0] & 7:
        out[rows.shape[0] >> 3] = <uint8_t>byte
    nulls[0] = zeros
    return -1


def bits_take(const uint8_t[::1] bits, Py_ssize_t n, const int64_t[::1] rows not None):
    """Gather ``rows`` of a bitmap of ``n`` rows (None: all set); row -1 gives a null.

    Returns None when no null came out.  Raises IndexError for a row outside ``[-1, n)``.
    """
    cdef:
        int64_t bad, nulls = 0
        const uint8_t* first = NULL
        uint8_t[::1] out
    if bits is not None:
        _check_bits(bits, n)
        if bits.shape[0]:
            first = &bits[0]
    result = np.empty((rows.shape[0] + 7) >> 3, np.uint8)
    out = result
    with nogil:
        bad = _bits_take(first, n, rows, out, &nulls)
    if bad >= 0:
        raise IndexError(f"no row {rows[bad]} (position {bad})")
    return result if nulls else None


cdef int64_t _interleave_bits(
    const uintptr_t[::1] parts,
    const int64_t[::1] counts,
    int64_t part_count,
    const int32_t[::1] source,
    const int64_t[::1] position,
    uint8_t[::1] out,
    int64_t* nulls,
) noexcept nogil:
    cdef:
        int64_t i, row, part, zeros = 0
        unsigned int byte = 0, bit
        const uint8_t* bits
    for i in range(source.shape[0]):
        row = position[i]
        bit = 0
        if row != -1:
            part = source[i]
            if <uint64_t>part >= <uint64_t>part_count or <uint64_t>row >= <uint64_t>counts[part]:
                return i
            bits = <const uint8_t*>parts[part]
            bit = 1 if bits == NULL else <unsigned int>kc_bit(bits, row)
        zeros += 1 - bit
        byte |= bit << (i & 7)
        if i & 7 == 7:
            out[i >> 3] = <uint8_t>byte
            byte = 0
    if source.shape[0] & 7:
        out[source.shape[0] >> 3] = <uint8_t>byte
    nulls[0] = zeros
    return -1


def interleave_bits(parts not None, const int32_t[::1] source not None, const int64_t[::1] position not None):
    """Bit i of the result is bit ``position[i]`` of ``parts[source[i]] = (bits or None, rows)``.

    Position -1 gives a null.  Returns None when no null came out.  Raises IndexError for a source
    or a position that does not exist, ValueError for lengths that do not fit.
    """
    cdef:
        Py_ssize_t n = source.shape[0], k, part_count
        int64_t bad, nulls = 0
        const uint8_t[::1] part
        uintptr_t[::1] addresses
        int64_t[::1] counts
        uint8_t[::1] out
    if position.shape[0] != n:
        raise ValueError(f"{n} sources, {position.shape[0]} positions")
    held = [(None if bits is None else memoryview(bits), rows) for bits, rows in parts]
    part_count = len(held)
    addresses = np.zeros(part_count, np.uintp)
    counts = np.zeros(part_count, np.int64)
    for k in range(part_count):
        part, counts[k] = held[k]
        if part is not None:
            _check_bits(part, counts[k])
            if part.shape[0]:
                addresses[k] = <uintptr_t>&part[0]
    result = np.empty((n + 7) >> 3, np.uint8)
    out = result
    with nogil:
        bad = _interleave_bits(addresses, counts, part_count, source, position, out, &nulls)
    if bad >= 0:
        raise IndexError(f"no row {position[bad]} in source {source[bad]} (position {bad})")
    return result if nulls else None


def bits_full(Py_ssize_t n, bint value=True):
    """A bitmap of ``n`` equal bits."""
    cdef uint8_t[::1] out
    result = np.zeros((n + 7) >> 3, np.uint8)
    if value and n > 0:
        out = result
        kc_bits_copy(&out[0], 0, NULL, 0, n)
    return result


def bits_slice(const uint8_t[::1] bits not None, Py_ssize_t offset, Py_ssize_t n):
    """The ``n`` bits from bit ``offset`` on, moved to bit offset 0; always a copy."""
    cdef uint8_t[::1] out
    if offset < 0 or n < 0:
        raise ValueError(f"a negative slice: {n} bits from {offset}")
    _check_bits(bits, offset + n)
    result = np.zeros((n + 7) >> 3, np.uint8)
    if n:
        out = result
        with nogil:
            kc_bits_copy(&out[0], 0, &bits[0], offset, n)
    return result


def bits_concat(parts not None):
    """Bitmaps ``(bits or None, rows)`` one after the other; None when all are None."""
    cdef:
        Py_ssize_t total = 0, at = 0, n
        const uint8_t[::1] bits
        const uint8_t* first
        uint8_t[::1] out
        bint any_bits = False
    held = list(parts)
    for bits, n in held:
        if n < 0:
            raise ValueError(f"a negative number of bits: {n}")
        if bits is not None:
            _check_bits(bits, n)
            any_bits = True
        total += n
    if not any_bits:
        return None
    result = np.zeros((total + 7) >> 3, np.uint8)
    out = result
    for bits, n in held:
        if n:
            first = NULL
            if bits is not None:
                first = &bits[0]
            kc_bits_copy(&out[0], at, first, 0, n)
            at += n
    return result


def bits_count(const uint8_t[::1] bits not None, Py_ssize_t n):
    """How many of the first ``n`` bits are set."""
    cdef int64_t count = 0
    _check_bits(bits, n)
    if n:
        with nogil:
            count = kc_bits_count(&bits[0], 0, n)
    return count


cdef void _bits_to_bytes(const uint8_t[::1] bits, uint8_t[::1] out) noexcept nogil:
    cdef Py_ssize_t i, n = out.shape[0]
    for i in range(n >> 3):
        kc_unpack8(&out[8 * i], bits[i])
    for i in range(n & ~7, n):
        out[i] = kc_bit(&bits[0], i)


def bits_to_bytes(const uint8_t[::1] bits not None, Py_ssize_t n):
    """One byte, 0 or 1, for each of the first ``n`` bits."""
    cdef uint8_t[::1] out
    _check_bits(bits, n)
    result = np.empty(n, np.uint8)
    out = result
    with nogil:
        _bits_to_bytes(bits, out)
    return result


cdef void _bytes_to_bits(const uint8_t[::1] data, uint8_t[::1] out) noexcept nogil:
    cdef:
        Py_ssize_t i, n = data.shape[0]
        unsigned int byte = 0
    for i in range(n >> 3):
        out[i] = kc_pack8(&data[8 * i])
    for i in range(n & ~7, n):
        byte |= <unsigned int>(data[i] != 0) << (i & 7)
    if n & 7:
        out[n >> 3] = <uint8_t>byte


def bytes_to_bits(const uint8_t[::1] data not None):
    """A bitmap with bit i set where byte i is not 0."""
    cdef uint8_t[::1] out
    result = np.empty((data.shape[0] + 7) >> 3, np.uint8)
    out = result
    with nogil:
        _bytes_to_bits(data, out)
    return result
