"""Hashes of encoded keys and of cells of columns.

murmur3 x64-128 (Austin Appleby, public domain algorithm), its low 64 bits (h1) with seed 0, is the
one hash of a key for hash index and bloom.  XXH64 (Yann Collet's specification) routes rows to hash
partitions as Spark's ``xxhash64`` does: the result of a column is the seed of the next.

Source: Spark catalyst/expressions/hash.scala (XxHash64Function) for what is fed to XXH64.
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.keybytes cimport key_bytes, key_count

cdef enum:
    KIND_UNSIGNED = 0
    KIND_SIGNED = 1
    KIND_BINARY = 3
    KIND_DECIMAL = 4

UNSIGNED = KIND_UNSIGNED
SIGNED = KIND_SIGNED
BINARY = KIND_BINARY
DECIMAL = KIND_DECIMAL


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


cdef inline uint32_t _load16(const uint8_t* p) noexcept nogil:
    return p[0] | (<uint32_t>p[1] << 8)


cdef inline uint64_t _load_upto8(const uint8_t* p, size_t size) noexcept nogil:
    """The first 1..8 bytes, little-endian; no byte beyond them is read."""
    if size >= 4:       # two halves that overlap in bits that are the same in both
        return _load32(p) | (<uint64_t>_load32(p + size - 4) << (8 * (size - 4)))
    return p[0] | (<uint64_t>p[size >> 1] << (8 * (size >> 1))) | (<uint64_t>p[size - 1] << (8 * (size - 1)))


# --------------------------------------------------------------------------------------- murmur3

cdef inline uint64_t _fmix(uint64_t k) noexcept nogil:
    k ^= k >> 33
    k *= <uint64_t>0xff51afd7ed558ccd
    k ^= k >> 33
    k *= <uint64_t>0xc4ceb9fe1a85ec53
    k ^= k >> 33
    return k


cdef inline uint64_t _murmur3(const uint8_t* p, size_t size) noexcept nogil:
    cdef:
        uint64_t c1 = <uint64_t>0x87c37b91114253d5
        uint64_t c2 = <uint64_t>0x4cf5ad432745937f
        uint64_t h1 = 0
        uint64_t h2 = 0
        uint64_t k1, k2
        size_t rest = size & 15
        size_t _block
    for _block in range(size // 16):
        k1 = _load64(p)
        k2 = _load64(p + 8)
        p += 16
        h1 ^= _rotl(k1 * c1, 31) * c2
        h1 = (_rotl(h1, 27) + h2) * 5 + <uint64_t>0x52dce729
        h2 ^= _rotl(k2 * c2, 33) * c1
        h2 = (_rotl(h2, 31) + h1) * 5 + <uint64_t>0x38495ab5
    if rest:
        if rest > 8:
            h2 ^= _rotl(_load_upto8(p + 8, rest - 8) * c2, 33) * c1
            k1 = _load64(p)
        else:
            k1 = _load_upto8(p, rest)
        h1 ^= _rotl(k1 * c1, 31) * c2
    h1 ^= size
    h2 ^= size
    h1 += h2
    h2 += h1
    return _fmix(h1) + _fmix(h2)


def murmur3(const uint8_t[::1] data not None, const int64_t[::1] offsets not None):
    """The hash of each encoded key, uint64.  ValueError for offsets outside ``data``."""
    cdef:
        Py_ssize_t n = key_count(data, offsets)
        Py_ssize_t i
        uint64_t[::1] out
        const uint8_t* first = key_bytes(data)
    result = np.empty(n, np.uint64)
    out = result
    with nogil:
        for i in range(n):
            out[i] = _murmur3(first + offsets[i], <size_t>(offsets[i + 1] - offsets[i]))
    return result


def murmur3_one(const uint8_t[::1] key not None):
    """The same hash of one key, as int."""
    return _murmur3(key_bytes(key), <size_t>key.shape[0])


# ----------------------------------------------------------------------------------------- XXH64

cdef:
    uint64_t P1 = <uint64_t>0x9E3779B185EBCA87
    uint64_t P2 = <uint64_t>0xC2B2AE3D27D4EB4F
    uint64_t P3 = <uint64_t>0x165667B19E3779F9
    uint64_t P4 = <uint64_t>0x85EBCA77C2B2AE63
    uint64_t P5 = <uint64_t>0x27D4EB2F165667C5


cdef inline uint64_t _round(uint64_t acc, uint64_t lane) noexcept nogil:
    return _rotl(acc + lane * P2, 31) * P1


cdef inline uint64_t _finish(uint64_t h) noexcept nogil:
    h = (h ^ (h >> 33)) * P2
    h = (h ^ (h >> 29)) * P3
    return h ^ (h >> 32)


cdef inline uint64_t _xxh64_int(uint32_t value, uint64_t seed) noexcept nogil:
    """Of 4 bytes; Spark's hashInt."""
    return _finish(_rotl((seed + P5 + 4) ^ (<uint64_t>value * P1), 23) * P2 + P3)


cdef inline uint64_t _xxh64_long(uint64_t value, uint64_t seed) noexcept nogil:
    """Of 8 bytes; Spark's hashLong."""
    return _finish(_rotl((seed + P5 + 8) ^ _round(0, value), 27) * P1 + P4)


cdef uint64_t _xxh64(const uint8_t* p, size_t size, uint64_t seed) noexcept nogil:
    cdef:
        uint64_t h, v1, v2, v3, v4
        size_t left = size
    if size >= 32:
        v1 = seed + P1 + P2
        v2 = seed + P2
        v3 = seed
        v4 = seed - P1
        while left >= 32:
            v1 = _round(v1, _load64(p))
            v2 = _round(v2, _load64(p + 8))
            v3 = _round(v3, _load64(p + 16))
            v4 = _round(v4, _load64(p + 24))
            p += 32
            left -= 32
        h = _rotl(v1, 1) + _rotl(v2, 7) + _rotl(v3, 12) + _rotl(v4, 18)
        h = (h ^ _round(0, v1)) * P1 + P4
        h = (h ^ _round(0, v2)) * P1 + P4
        h = (h ^ _round(0, v3)) * P1 + P4
        h = (h ^ _round(0, v4)) * P1 + P4
    else:
        h = seed + P5
    h += size
    while left >= 8:
        h = _rotl(h ^ _round(0, _load64(p)), 27) * P1 + P4
        p += 8
        left -= 8
    if left >= 4:
        h = _rotl(h ^ (<uint64_t>_load32(p) * P1), 23) * P2 + P3
        p += 4
        left -= 4
    while left:
        h = _rotl(h ^ (<uint64_t>p[0] * P5), 11) * P1
        p += 1
        left -= 1
    return _finish(h)


cdef inline uint64_t _xxh64_big(uint64_t low, int64_t high, uint64_t seed) noexcept nogil:
    """Of the shortest big-endian two's complement bytes, java.math.BigInteger.toByteArray."""
    cdef:
        uint8_t big[16]
        uint8_t sign = 0xFF if high < 0 else 0
        int first = 0
        int i
    for i in range(8):
        big[7 - i] = <uint8_t>(<uint64_t>high >> (8 * i))
        big[15 - i] = <uint8_t>(low >> (8 * i))
    while first < 15 and big[first] == sign and (big[first + 1] ^ sign) < 0x80:
        first += 1
    return _xxh64(&big[first], 16 - first, seed)


cdef void _chain_fixed(
    int kind, int width, const uint8_t* values, Py_ssize_t n, uint64_t[::1] hashes
) noexcept nogil:
    cdef Py_ssize_t i
    if width == 1:
        for i in range(n):
            hashes[i] = _xxh64_int(
                <uint32_t><int32_t>(<signed char>values[i]) if kind == KIND_SIGNED else values[i], hashes[i]
            )
    elif width == 2:
        for i in range(n):
            hashes[i] = _xxh64_int(
                <uint32_t><int32_t><short>_load16(values + 2 * i) if kind == KIND_SIGNED
                else _load16(values + 2 * i), hashes[i]
            )
    elif width == 4 and kind == KIND_SIGNED:
        for i in range(n):
            hashes[i] = _xxh64_int(_load32(values + 4 * i), hashes[i])
    elif width == 4:
        for i in range(n):
            hashes[i] = _xxh64_long(_load32(values + 4 * i), hashes[i])
    elif width == 8 and kind == KIND_SIGNED:
        for i in range(n):
            hashes[i] = _xxh64_long(_load64(values + 8 * i), hashes[i])
    elif width == 8:
        for i in range(n):
            hashes[i] = _xxh64_big(_load64(values + 8 * i), 0, hashes[i])
    elif kind == KIND_SIGNED:
        for i in range(n):
            hashes[i] = _xxh64_long(_load64(values + 16 * i), hashes[i])
    else:
        for i in range(n):
            hashes[i] = _xxh64_big(
                _load64(values + 16 * i), <int64_t>_load64(values + 16 * i + 8), hashes[i]
            )


cdef void _chain_binary(
    const uint8_t* data, const int32_t[::1] offsets, uint64_t[::1] hashes
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(hashes.shape[0]):
        hashes[i] = _xxh64(data + offsets[i], <size_t>(offsets[i + 1] - offsets[i]), hashes[i])


def xxh64_column(
    int kind,
    int width,
    const uint8_t[::1] values not None,
    const int32_t[::1] offsets,
    uint64_t[::1] hashes not None,
):
    """Chain one column into ``hashes``, in place, as Spark's ``xxhash64``: a row's hash so far seeds
    that of its cell.

    ``kind`` and ``width`` say what is hashed:

    * SIGNED 1, 2, 4: the value as 32 bits (also dates); SIGNED 8: as 64 bits (also timestamps);
    * SIGNED 16: the low 64 bits, which is what a decimal of up to 18 digits is to Spark;
    * DECIMAL 16: a decimal of more digits, its shortest big-endian two's complement bytes;
    * UNSIGNED: Spark has none, so as the next wider type: 1 and 2 as 32 bits, 4 as 64 bits, 8 as a
      decimal of 20 digits;
    * BINARY: the bytes between int32 ``offsets``; these are None for all others.

    ValueError when kind, width and lengths do not fit together; nothing is written then.
    """
    cdef:
        Py_ssize_t n = hashes.shape[0]
        Py_ssize_t i
        const uint8_t* first = key_bytes(values)
    if kind == KIND_BINARY:
        if offsets is None or offsets.shape[0] != n + 1:
            raise ValueError(f"a binary column of {n} rows needs {n + 1} offsets")
        for i in range(n):
            if offsets[i + 1] < offsets[i]:
                raise ValueError(f"offsets of row {i} descend")
        if offsets[0] < 0 or offsets[n] > values.shape[0]:
            raise ValueError(f"offsets lie outside the {values.shape[0]} bytes of data")
        with nogil:
            _chain_binary(first, offsets, hashes)
        return
    if not (
        (kind == KIND_SIGNED and width in (1, 2, 4, 8, 16))
        or (kind == KIND_UNSIGNED and width in (1, 2, 4, 8))
        or (kind == KIND_DECIMAL and width == 16)
    ):
        raise ValueError(f"no hash for kind {kind} of width {width}")
    if values.shape[0] != n * width:
        raise ValueError(f"{values.shape[0]} bytes are not {n} rows of {width} bytes")
    with nogil:
        _chain_fixed(kind, width, first, n, hashes)


def bucket(const uint64_t[::1] hashes not None, buckets):
    """``pmod(hash, buckets)`` of the hashes as signed integers, int32: what Spark gives."""
    cdef:
        int64_t count = buckets
        int64_t rest
        Py_ssize_t i
        int32_t[::1] out
    if not 1 <= count <= 0x7FFFFFFF:
        raise ValueError(f"{buckets} buckets")
    result = np.empty(hashes.shape[0], np.int32)
    out = result
    with nogil:
        for i in range(hashes.shape[0]):
            rest = <int64_t>hashes[i] % count
            out[i] = <int32_t>(rest + count if rest < 0 else rest)
    return result
