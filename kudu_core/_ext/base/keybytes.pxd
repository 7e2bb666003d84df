# Byte strings laid end to end (encoded keys): loads, compare, and the check of their offsets.
# int64 offsets, n + 1 of them for n keys, need not begin at 0.
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    #ifndef KUDU_CORE_KEYBYTES
    #define KUDU_CORE_KEYBYTES
    #include <stdint.h>
    #include <string.h>

    static inline uint64_t kc_be64(const uint8_t *p) {
        uint64_t v;
        memcpy(&v, p, 8);
        return __builtin_bswap64(v);
    }
    static inline void kc_be_store16(uint8_t *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); }
    static inline void kc_be_store32(uint8_t *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
    static inline void kc_be_store64(uint8_t *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }

    /* The first 8 of `size` bytes as a big-endian integer, zeros after the last.  Memory up to
       `end` may be read. */
    static inline uint64_t kc_word(const uint8_t *p, int64_t size, const uint8_t *end) {
        if (size >= 8) return kc_be64(p);
        if (size <= 0) return 0;
        if (end - p >= 8) return kc_be64(p) & (~(uint64_t)0 << (64 - 8 * size));
        uint64_t v = 0;
        for (int64_t i = 0; i < size; i++) v |= (uint64_t)p[i] << (56 - 8 * i);
        return v;
    }

    /* Negative, zero or positive as a < b, a == b, a > b. */
    static inline int kc_compare(const uint8_t *a, int64_t a_size, const uint8_t *b, int64_t b_size) {
        const int64_t both = a_size < b_size ? a_size : b_size;
        int64_t at = 0;
        uint64_t x, y;
        if (both >= 8) {
            for (; at + 8 <= both; at += 8) {
                memcpy(&x, a + at, 8);
                memcpy(&y, b + at, 8);
                if (x != y) return __builtin_bswap64(x) < __builtin_bswap64(y) ? -1 : 1;
            }
            if (at < both) {            /* once more, over bytes already found equal */
                x = kc_be64(a + both - 8);
                y = kc_be64(b + both - 8);
                if (x != y) return x < y ? -1 : 1;
            }
        } else {
            for (; at < both; at++)
                if (a[at] != b[at]) return a[at] < b[at] ? -1 : 1;
        }
        return (a_size > b_size) - (a_size < b_size);
    }
    static inline int kc_same(const uint8_t *a, const uint8_t *b, int64_t size) {
        return kc_compare(a, size, b, size) == 0;
    }

    /* -1, or the first key whose bytes do not lie within `size` bytes, after those of the key before. */
    static inline int64_t kc_bad_key(const int64_t *offsets, int64_t n, int64_t size) {
        int descends = 0;
        for (int64_t i = 0; i < n; i++) descends |= offsets[i + 1] < offsets[i];
        if (!descends && offsets[0] >= 0 && offsets[n] <= size) return -1;
        if (offsets[0] < 0 || offsets[0] > size) return 0;
        for (int64_t i = 0; i < n; i++)
            if (offsets[i + 1] < offsets[i] || offsets[i + 1] > size) return i;
        return n;
    }

    #endif
    """
    uint64_t kc_be64(const uint8_t* p) noexcept nogil
    void kc_be_store16(uint8_t* p, int v) noexcept nogil
    void kc_be_store32(uint8_t* p, unsigned int v) noexcept nogil
    void kc_be_store64(uint8_t* p, uint64_t v) noexcept nogil
    uint64_t kc_word(const uint8_t* p, int64_t size, const uint8_t* end) noexcept nogil
    int kc_compare(const uint8_t* a, int64_t a_size, const uint8_t* b, int64_t b_size) noexcept nogil
    bint kc_same(const uint8_t* a, const uint8_t* b, int64_t size) noexcept nogil
    int64_t kc_bad_key(const int64_t* offsets, int64_t n, int64_t size) noexcept nogil


cdef inline Py_ssize_t key_count(const uint8_t[::1] data, const int64_t[::1] offsets) except -1:
    """How many keys there are; ValueError unless all of them lie inside ``data``."""
    cdef int64_t bad
    if offsets.shape[0] == 0:
        raise ValueError("offsets have at least one entry")
    bad = kc_bad_key(&offsets[0], offsets.shape[0] - 1, data.shape[0])
    if bad >= 0:
        raise ValueError(f"offsets of key {bad} descend or lie outside the {data.shape[0]} bytes of data")
    return offsets.shape[0] - 1


cdef inline const uint8_t* key_bytes(const uint8_t[::1] data) noexcept nogil:
    return &data[0] if data.shape[0] else NULL
