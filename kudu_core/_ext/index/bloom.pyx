"""Split-block Bloom filters over 64-bit key hashes.

A filter is blocks of 256 bits (eight little-endian u32 words); a key sets one bit in each word
of one block, so that a probe costs one cache line.  The high half of the hash chooses the block
(multiply and shift), the low half the bits.

Source: Putze, Sanders, Singler, "Cache-, Hash- and Space-Efficient Bloom Filters"; the salts are
those of Apache Parquet's BloomFilter.md.  The block count is any number, not a power of two.
"""
import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from kudu_core._ext.base.loads cimport kc_fetch, kc_fetch_for_write

cdef extern from *:
    """
    #include <string.h>
    static const unsigned kc_salt[8] = {
        0x47b6137bU, 0x44974d91U, 0x8824ad5bU, 0xa2b7289dU,
        0x705495c7U, 0x2df1424bU, 0x9efc4947U, 0x5c6bfb31U,
    };
    typedef void (*kc_bloom_set_fn)(unsigned char *, const Py_ssize_t *, const unsigned *, Py_ssize_t);
    typedef void (*kc_bloom_test_fn)(const unsigned char *, const Py_ssize_t *, const unsigned *, Py_ssize_t,
                                     unsigned char *);

    /* Stored filters may begin at any byte: words go through memcpy, which costs nothing. */
    static void kc_bloom_set_any(unsigned char *filter, const Py_ssize_t *places, const unsigned *lows,
                                 Py_ssize_t n) {
        for (Py_ssize_t k = 0; k < n; k++) {
            unsigned words[8];
            memcpy(words, filter + places[k], 32);
            for (int i = 0; i < 8; i++)
                words[i] |= 1U << ((lows[k] * kc_salt[i]) >> 27);
            memcpy(filter + places[k], words, 32);
        }
    }
    static void kc_bloom_test_any(const unsigned char *filter, const Py_ssize_t *places, const unsigned *lows,
                                  Py_ssize_t n, unsigned char *out) {
        for (Py_ssize_t k = 0; k < n; k++) {
            unsigned words[8], found = 1;
            memcpy(words, filter + places[k], 32);
            for (int i = 0; i < 8; i++)
                found &= words[i] >> ((lows[k] * kc_salt[i]) >> 27);
            out[k] = (unsigned char)found;
        }
    }
    static kc_bloom_set_fn kc_bloom_set = kc_bloom_set_any;
    static kc_bloom_test_fn kc_bloom_test = kc_bloom_test_any;

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    /* The eight words at once: SSE2, which is all that a wheel may assume, shifts all by the same count. */
    __attribute__((target("avx2"))) static inline __m256i kc_bloom_mask(unsigned low) {
        __m256i salt = _mm256_loadu_si256((const __m256i *)kc_salt);
        __m256i at = _mm256_mullo_epi32(_mm256_set1_epi32((int)low), salt);
        return _mm256_sllv_epi32(_mm256_set1_epi32(1), _mm256_srli_epi32(at, 27));
    }
    __attribute__((target("avx2")))
    static void kc_bloom_set_avx2(unsigned char *filter, const Py_ssize_t *places, const unsigned *lows,
                                  Py_ssize_t n) {
        for (Py_ssize_t k = 0; k < n; k++) {
            __m256i *block = (__m256i *)(filter + places[k]);
            _mm256_storeu_si256(block, _mm256_or_si256(_mm256_loadu_si256(block), kc_bloom_mask(lows[k])));
        }
    }
    __attribute__((target("avx2")))
    static void kc_bloom_test_avx2(const unsigned char *filter, const Py_ssize_t *places,
                                   const unsigned *lows, Py_ssize_t n, unsigned char *out) {
        for (Py_ssize_t k = 0; k < n; k++)
            out[k] = (unsigned char)_mm256_testc_si256(
                _mm256_loadu_si256((const __m256i *)(filter + places[k])), kc_bloom_mask(lows[k]));
    }
    static int kc_bloom_choose(int fast) {
        fast = fast && __builtin_cpu_supports("avx2");
        kc_bloom_set = fast ? kc_bloom_set_avx2 : kc_bloom_set_any;
        kc_bloom_test = fast ? kc_bloom_test_avx2 : kc_bloom_test_any;
        return fast;
    }
    #else
    static int kc_bloom_choose(int fast) { return 0 * fast; }
    #endif

    """
    void kc_bloom_set(
        uint8_t *filter, const Py_ssize_t *places, const uint32_t *lows, Py_ssize_t n
    ) noexcept nogil
    void kc_bloom_test(
        const uint8_t *filter, const Py_ssize_t *places, const uint32_t *lows, Py_ssize_t n, uint8_t *out
    ) noexcept nogil
    bint kc_bloom_choose(bint fast) noexcept

cdef enum:
    BLOCK = 32      # bytes
    GROUP = 32      # probes in flight at once

MAX_BITS_PER_KEY = 32

# Share of absent keys that a filter of that many bits a key lets through, to two digits.
_FALSE_POSITIVE_RATES = {
    8: 0.033, 9: 0.020, 10: 0.0126, 11: 0.0082, 12: 0.0054, 13: 0.0037, 14: 0.0026, 15: 0.0018, 16: 0.0012,
    17: 0.00097, 18: 0.00072, 19: 0.00055, 20: 0.0004, 22: 0.00026, 24: 0.00016, 28: 0.000073, 32: 0.000036,
}


cdef inline Py_ssize_t _place(uint64_t key_hash, uint64_t blocks) noexcept nogil:
    return <Py_ssize_t>(((key_hash >> 32) * blocks) >> 32) * BLOCK


cdef void _build(const uint64_t[::1] hashes, uint8_t[::1] out) noexcept nogil:
    cdef:
        uint64_t blocks = <uint64_t>(out.shape[0] // BLOCK)
        Py_ssize_t places[GROUP]
        uint32_t lows[GROUP]
        Py_ssize_t base = 0
        Py_ssize_t i, group
    while base < hashes.shape[0]:
        group = min(hashes.shape[0] - base, <Py_ssize_t>GROUP)
        for i in range(group):
            lows[i] = <uint32_t>hashes[base + i]
            places[i] = _place(hashes[base + i], blocks)
            kc_fetch_for_write(&out[places[i]])
        kc_bloom_set(&out[0], places, lows, group)
        base += group


cdef Py_ssize_t _probe(
    const uint8_t[::1] filter, const uint64_t[::1] hashes, const int64_t* rows, uint8_t[::1] mask
) noexcept nogil:
    """Return -1, or the index of the first row that is none; ``mask`` is then undefined."""
    cdef:
        uint64_t blocks = <uint64_t>(filter.shape[0] // BLOCK)
        Py_ssize_t places[GROUP]
        uint32_t lows[GROUP]
        Py_ssize_t base = 0
        Py_ssize_t i, row, group
    while base < mask.shape[0]:
        group = min(mask.shape[0] - base, <Py_ssize_t>GROUP)
        for i in range(group):
            row = base + i
            if rows != NULL:
                row = rows[row]
                if row < 0 or row >= hashes.shape[0]:
                    return base + i
            lows[i] = <uint32_t>hashes[row]
            places[i] = _place(hashes[row], blocks)
            kc_fetch(&filter[places[i]])
        kc_bloom_test(&filter[0], places, lows, group, &mask[base])
        base += group
    return -1


cdef int _check_filter(Py_ssize_t size) except -1:
    if size == 0 or size % BLOCK != 0 or size // BLOCK > 0xFFFFFFFF:
        raise ValueError(f"a bloom filter of {size} bytes: want a positive multiple of {BLOCK}")
    return 0


def bits_per_key(false_positive_rate):
    """Return the fewest bits a key (8 to 32) with at most this rate of false positives.

    Rates beyond what 32 bits reach get 32.  ValueError unless 0 < rate < 1.
    """
    if not 0 < false_positive_rate < 1:
        raise ValueError(f"false positive rate {false_positive_rate} is not between 0 and 1")
    for bits, rate in _FALSE_POSITIVE_RATES.items():
        if rate <= false_positive_rate:
            return bits
    return MAX_BITS_PER_KEY


def build(const uint64_t[::1] hashes not None, bits_per_key):
    """Return a filter of all hashes: (32 * blocks,) uint8, at least one block.

    Raises ValueError unless 1 <= bits_per_key <= 32.
    """
    cdef:
        Py_ssize_t bits = bits_per_key
        uint8_t[::1] view
    if not 1 <= bits <= MAX_BITS_PER_KEY:
        raise ValueError(f"{bits} bits per key: want 1 to {MAX_BITS_PER_KEY}")
    size = max(1, -(-int(hashes.shape[0]) * bits // (8 * BLOCK))) * BLOCK
    _check_filter(size)
    out = np.zeros(size, np.uint8)
    view = out
    with nogil:
        _build(hashes, view)
    return out


def probe(
    const uint8_t[::1] filter not None,
    const uint64_t[::1] hashes not None,
    const int64_t[::1] rows=None,
):
    """Return 1 where the key may be in the filter and 0 where it is not: (n,) uint8.

    Parameters
    ----------
    filter : (32 * blocks,) uint8
        Any bytes of such a length are a filter.
    hashes : (n,) uint64
    rows : (m,) int64, optional
        Which hashes to probe; the mask then has m entries.

    Raises
    ------
    ValueError
        The filter is empty or no whole number of blocks, or a row is out of range.
    """
    cdef:
        uint8_t[::1] view
        const int64_t* chosen = NULL
        Py_ssize_t bad
    _check_filter(filter.shape[0])
    out = np.empty(hashes.shape[0] if rows is None else rows.shape[0], np.uint8)
    view = out
    if rows is not None and rows.shape[0] > 0:
        chosen = &rows[0]
    with nogil:
        bad = _probe(filter, hashes, chosen, view)
    if bad >= 0:
        raise ValueError(f"row {rows[bad]} of {hashes.shape[0]} hashes")
    return out


def _choose(fast):
    """Use the AVX2 body where the machine has it, or the portable one; return which it is.  For tests."""
    return bool(kc_bloom_choose(fast))


_choose(True)
