# murmur3 and XXH64 of one key or cell: hashing.pyx says what they are for.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kudu_core._ext.base.loads cimport load32, load64


cdef inline uint64_t _rotl(uint64_t x, int r) noexcept nogil:
    return (x << r) | (x >> (64 - r))


cdef inline uint64_t _load_upto8(const uint8_t* p, size_t size) noexcept nogil:
    """The first 1..8 bytes, little-endian; no byte beyond them is read."""
    if size >= 4:       # two halves that overlap in bits that are the same in both
        return load32(p) | (<uint64_t>load32(p + size - 4) << (8 * (size - 4)))
    return p[0] | (<uint64_t>p[size >> 1] << (8 * (size >> 1))) | (<uint64_t>p[size - 1] << (8 * (size - 1)))


# --------------------------------------------------------------------------------------- murmur3

cdef inline uint64_t _fmix(uint64_t k) noexcept nogil:
    k ^= k >> 33
    k *= <uint64_t>0xff51afd7ed558ccd
    k ^= k >> 33
    k *= <uint64_t>0xc4ceb9fe1a85ec53
    k ^= k >> 33
    return k


cdef inline uint64_t murmur3_bytes(const uint8_t* p, size_t size) noexcept nogil:
    cdef:
        uint64_t c1 = <uint64_t>0x87c37b91114253d5
        uint64_t c2 = <uint64_t>0x4cf5ad432745937f
        uint64_t h1 = 0
        uint64_t h2 = 0
        uint64_t k1, k2
        size_t rest = size & 15
        size_t _block
    for _block in range(size // 16):
        k1 = load64(p)
        k2 = load64(p + 8)
        p += 16
        h1 ^= _rotl(k1 * c1, 31) * c2
        h1 = (_rotl(h1, 27) + h2) * 5 + <uint64_t>0x52dce729
        h2 ^= _rotl(k2 * c2, 33) * c1
        h2 = (_rotl(h2, 31) + h1) * 5 + <uint64_t>0x38495ab5
    if rest:
        if rest > 8:
            h2 ^= _rotl(_load_upto8(p + 8, rest - 8) * c2, 33) * c1
            k1 = load64(p)
        else:
            k1 = _load_upto8(p, rest)
        h1 ^= _rotl(k1 * c1, 31) * c2
    h1 ^= size
    h2 ^= size
    h1 += h2
    h2 += h1
    return _fmix(h1) + _fmix(h2)


# ----------------------------------------------------------------------------------------- XXH64

cdef extern from *:
    """
    #define KC_P1 0x9E3779B185EBCA87ULL
    #define KC_P2 0xC2B2AE3D27D4EB4FULL
    #define KC_P3 0x165667B19E3779F9ULL
    #define KC_P4 0x85EBCA77C2B2AE63ULL
    #define KC_P5 0x27D4EB2F165667C5ULL
    """
    const uint64_t P1 "KC_P1"
    const uint64_t P2 "KC_P2"
    const uint64_t P3 "KC_P3"
    const uint64_t P4 "KC_P4"
    const uint64_t P5 "KC_P5"


cdef inline uint64_t _round(uint64_t acc, uint64_t lane) noexcept nogil:
    return _rotl(acc + lane * P2, 31) * P1


cdef inline uint64_t _finish(uint64_t h) noexcept nogil:
    h = (h ^ (h >> 33)) * P2
    h = (h ^ (h >> 29)) * P3
    return h ^ (h >> 32)


cdef inline uint64_t xxh64_int(uint32_t value, uint64_t seed) noexcept nogil:
    """Of 4 bytes; Spark's hashInt."""
    return _finish(_rotl((seed + P5 + 4) ^ (<uint64_t>value * P1), 23) * P2 + P3)


cdef inline uint64_t xxh64_long(uint64_t value, uint64_t seed) noexcept nogil:
    """Of 8 bytes; Spark's hashLong."""
    return _finish(_rotl((seed + P5 + 8) ^ _round(0, value), 27) * P1 + P4)


cdef inline uint64_t xxh64_bytes(const uint8_t* p, size_t size, uint64_t seed) noexcept nogil:
    cdef:
        uint64_t h, v1, v2, v3, v4
        size_t left = size
    if size >= 32:
        v1 = seed + P1 + P2
        v2 = seed + P2
        v3 = seed
        v4 = seed - P1
        while left >= 32:
            v1 = _round(v1, load64(p))
            v2 = _round(v2, load64(p + 8))
            v3 = _round(v3, load64(p + 16))
            v4 = _round(v4, load64(p + 24))
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
        h = _rotl(h ^ _round(0, load64(p)), 27) * P1 + P4
        p += 8
        left -= 8
    if left >= 4:
        h = _rotl(h ^ (<uint64_t>load32(p) * P1), 23) * P2 + P3
        p += 4
        left -= 4
    while left:
        h = _rotl(h ^ (<uint64_t>p[0] * P5), 11) * P1
        p += 1
        left -= 1
    return _finish(h)


cdef inline uint64_t xxh64_big(uint64_t low, int64_t high, uint64_t seed) noexcept nogil:
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
    return xxh64_bytes(&big[first], 16 - first, seed)
