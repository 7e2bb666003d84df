"""Hashes of encoded keys and of column values.

murmur3 x64-128 (Austin Appleby, public domain algorithm), its low 64 bits, is the one hash of a key
for hash index and bloom.  XXH64 (Yann Collet's specification) routes rows to hash partitions as
Spark's ``xxhash64`` does: the result of a column is the seed of the next.
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

UNSIGNED = 0
SIGNED = 1
BINARY = 3
DECIMAL = 4

cdef int _BINARY = 3
cdef int _DECIMAL = 4


cdef inline uint64_t _rotl(uint64_t x, int r) noexcept nogil:
    return (x << r) | (x >> (64 - r))


cdef inline uint64_t _load64(const uint8_t* p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


cdef inline uint32_t _load32(const uint8_t* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef inline uint64_t _fmix(uint64_t k) noexcept nogil:
    k ^= k >> 33
    k *= <uint64_t>0xff51afd7ed558ccd
    k ^= k >> 33
    k *= <uint64_t>0xc4ceb9fe1a85ec53
    k ^= k >> 33
    return k


cdef uint64_t _murmur3(const uint8_t* p, size_t size) noexcept nogil:
    cdef:
        uint64_t c1 = <uint64_t>0x87c37b91114253d5, c2 = <uint64_t>0x4cf5ad432745937f
        uint64_t h1 = 0, h2 = 0, k1, k2
        size_t blocks = size // 16, tail = size & 15, i
    for i in range(blocks):
        k1 = _load64(p)
        k2 = _load64(p + 8)
        p += 16
        h1 ^= _rotl(k1 * c1, 31) * c2
        h1 = (_rotl(h1, 27) + h2) * 5 + <uint64_t>0x52dce729
        h2 ^= _rotl(k2 * c2, 33) * c1
        h2 = (_rotl(h2, 31) + h1) * 5 + <uint64_t>0x38495ab5
    if tail:
        k1 = 0
        k2 = 0
        if tail > 8:
            memcpy(&k1, p, 8)
            memcpy(&k2, p + 8, tail - 8)
            h2 ^= _rotl(k2 * c2, 33) * c1
        else:
            memcpy(&k1, p, tail)
        h1 ^= _rotl(k1 * c1, 31) * c2
    h1 ^= size
    h2 ^= size
    h1 += h2
    h2 += h1
    h1 = _fmix(h1)
    h2 = _fmix(h2)
    return h1 + h2


cdef int _check(const int64_t[::1] offsets, Py_ssize_t size) noexcept nogil:
    """1 when the offsets ascend inside the data."""
    cdef Py_ssize_t i
    if offsets.shape[0] == 0 or offsets[0] < 0 or offsets[offsets.shape[0] - 1] > size:
        return 0
    for i in range(offsets.shape[0] - 1):
        if offsets[i] > offsets[i + 1]:
            return 0
    return 1


def murmur3(const uint8_t[::1] data not None, const int64_t[::1] offsets not None):
    """Return the low 64 bits of murmur3 x64-128, seed 0, of each key.

    Parameters
    ----------
    data : bytes of the keys
    offsets : (n + 1,) int64, ascending, inside ``data``

    Returns
    -------
    (n,) uint64

    Raises
    ------
    ValueError
        The offsets do not ascend or leave the data.
    """
    cdef:
        Py_ssize_t i, n = offsets.shape[0] - 1
        uint64_t[::1] view
        const uint8_t* base
        int fine
    if n < 0:
        raise ValueError("offsets need at least one element")
    out = np.empty(n, np.uint64)
    if n == 0:
        return out
    view = out
    base = &data[0] if data.shape[0] else NULL
    with nogil:
        fine = _check(offsets, data.shape[0])
        if fine:
            for i in range(n):
                view[i] = _murmur3(base + offsets[i], <size_t>(offsets[i + 1] - offsets[i]))
    if not fine:
        raise ValueError("offsets do not ascend inside the data")
    return out


def murmur3_one(const uint8_t[::1] key not None):
    """Return the same hash of one key."""
    return _murmur3(&key[0] if key.shape[0] else NULL, <size_t>key.shape[0])


cdef:
    uint64_t _P1 = <uint64_t>0x9E3779B185EBCA87
    uint64_t _P2 = <uint64_t>0xC2B2AE3D27D4EB4F
    uint64_t _P3 = <uint64_t>0x165667B19E3779F9
    uint64_t _P4 = <uint64_t>0x85EBCA77C2B2AE63
    uint64_t _P5 = <uint64_t>0x27D4EB2F165667C5


cdef inline uint64_t _round(uint64_t acc, uint64_t lane) noexcept nogil:
    return _rotl(acc + lane * _P2, 31) * _P1


cdef uint64_t _xxh64(const uint8_t* p, size_t size, uint64_t seed) noexcept nogil:
    cdef:
        uint64_t h, v1, v2, v3, v4
        const uint8_t* end = p + size
    if size >= 32:
        v1 = seed + _P1 + _P2
        v2 = seed + _P2
        v3 = seed
        v4 = seed - _P1
        while end - p >= 32:
            v1 = _round(v1, _load64(p))
            v2 = _round(v2, _load64(p + 8))
            v3 = _round(v3, _load64(p + 16))
            v4 = _round(v4, _load64(p + 24))
            p += 32
        h = _rotl(v1, 1) + _rotl(v2, 7) + _rotl(v3, 12) + _rotl(v4, 18)
        h = (h ^ _round(0, v1)) * _P1 + _P4
        h = (h ^ _round(0, v2)) * _P1 + _P4
        h = (h ^ _round(0, v3)) * _P1 + _P4
        h = (h ^ _round(0, v4)) * _P1 + _P4
    else:
        h = seed + _P5
    h += size
    while end - p >= 8:
        h = _rotl(h ^ _round(0, _load64(p)), 27) * _P1 + _P4
        p += 8
    if end - p >= 4:
        h = _rotl(h ^ (<uint64_t>_load32(p) * _P1), 23) * _P2 + _P3
        p += 4
    while p < end:
        h = _rotl(h ^ (<uint64_t>p[0] * _P5), 11) * _P1
        p += 1
    h = (h ^ (h >> 33)) * _P2
    h = (h ^ (h >> 29)) * _P3
    return h ^ (h >> 32)


cdef inline int _minimal(const uint8_t* value, uint8_t* out) noexcept nogil:
    """Shortest big-endian two's complement of a little-endian 16-byte integer; its length.

    What java.math.BigInteger.toByteArray gives.
    """
    cdef:
        int i, first = 0
        uint8_t sign = 0xFF if value[15] & 0x80 else 0x00
        uint8_t big[16]
    for i in range(16):
        big[i] = value[15 - i]
    while first < 15 and big[first] == sign and (big[first + 1] & 0x80) == (sign & 0x80):
        first += 1
    memcpy(out, &big[first], 16 - first)
    return 16 - first


cdef void _chain(
    int kind, Py_ssize_t width, const uint8_t* values, const int32_t* offsets, uint64_t[::1] hashes
) noexcept nogil:
    cdef:
        Py_ssize_t i
        int size
        uint8_t big[16]
    for i in range(hashes.shape[0]):
        if kind == _BINARY:
            hashes[i] = _xxh64(values + offsets[i], <size_t>(offsets[i + 1] - offsets[i]), hashes[i])
        elif kind == _DECIMAL:
            size = _minimal(values + 16 * i, big)
            hashes[i] = _xxh64(big, size, hashes[i])
        else:
            hashes[i] = _xxh64(values + width * i, <size_t>width, hashes[i])


cdef int _check32(const int32_t[::1] offsets, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    if offsets[0] < 0 or offsets[offsets.shape[0] - 1] > size:
        return 0
    for i in range(offsets.shape[0] - 1):
        if offsets[i] > offsets[i + 1]:
            return 0
    return 1


def xxh64_column(
    int kind,
    Py_ssize_t width,
    const uint8_t[::1] values not None,
    const int32_t[::1] offsets,
    uint64_t[::1] hashes not None,
):
    """Chain the cells of one column into ``hashes``, in place: each hash is its cell's seed.

    Parameters
    ----------
    kind : SIGNED or UNSIGNED (``width`` 4 or 8 bytes, as they lie), BINARY, or DECIMAL
        (16 bytes, hashed as the shortest big-endian two's complement bytes)
    values : n cells of ``width`` bytes, or the bytes of a binary column
    offsets : (n + 1,) int32 of a binary column, else None
    hashes : (n,) uint64, written

    Raises
    ------
    ValueError
        The lengths do not fit together; nothing was written.
    """
    cdef:
        Py_ssize_t n = hashes.shape[0]
        const uint8_t* base = &values[0] if values.shape[0] else NULL
        const int32_t* starts = NULL
    if kind == _BINARY:
        if offsets is None or offsets.shape[0] != n + 1 or not _check32(offsets, values.shape[0]):
            raise ValueError("offsets do not ascend inside the data")
        starts = &offsets[0]
    elif kind == _DECIMAL:
        if width != 16 or values.shape[0] != 16 * n:
            raise ValueError(f"{values.shape[0]} bytes for {n} values of 16 bytes")
    elif kind not in (0, 1) or width not in (4, 8) or values.shape[0] != width * n:
        raise ValueError(f"{values.shape[0]} bytes for {n} values of {width} bytes")
    with nogil:
        _chain(kind, width, base, starts, hashes)


def bucket(const uint64_t[::1] hashes not None, buckets):
    """Return ``pmod(hash, buckets)`` of the hashes as signed integers, (n,) int32."""
    cdef:
        Py_ssize_t i
        int64_t m = buckets, r
        int32_t[::1] view
    if not 1 <= m <= 0x7FFFFFFF:
        raise ValueError(f"{buckets} buckets")
    out = np.empty(hashes.shape[0], np.int32)
    view = out
    with nogil:
        for i in range(hashes.shape[0]):
            r = <int64_t>hashes[i] % m
            view[i] = <int32_t>(r + m if r < 0 else r)
    return out
