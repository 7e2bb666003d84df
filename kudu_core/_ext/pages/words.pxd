# Words of a dictionary while it is built: their hashes and their order.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #ifndef KUDU_CORE_WORDS
    #define KUDU_CORE_WORDS
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>

    static inline uint64_t kc_read8(const uint8_t *p) { uint64_t x; memcpy(&x, p, 8); return x; }
    static inline uint64_t kc_read4(const uint8_t *p) { uint32_t x; memcpy(&x, p, 4); return x; }
    static inline uint64_t kc_mix(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }

    /* After wyhash (Wang Yi, public domain); never stored. */
    static inline uint64_t kc_word_hash(const uint8_t *p, int64_t size, uint64_t seed) {
        const uint64_t k = 0xa0761d6478bd642fULL;
        uint64_t a, b;
        if (size <= 16) {
            if (size >= 4) {
                const int64_t skip = (size >> 3) << 2;
                a = kc_read4(p) << 32 | kc_read4(p + skip);
                b = kc_read4(p + size - 4) << 32 | kc_read4(p + size - 4 - skip);
            } else if (size > 0) {
                a = (uint64_t)p[0] << 16 | (uint64_t)p[size >> 1] << 8 | p[size - 1];
                b = 0;
            } else a = b = 0;
        } else {
            int64_t left = size;
            for (; left > 16; left -= 16, p += 16)
                seed = kc_mix(kc_read8(p) ^ k, kc_read8(p + 8) ^ seed);
            a = kc_read8(p + left - 16);
            b = kc_read8(p + left - 8);
        }
        return kc_mix(k ^ (uint64_t)size, kc_mix(a ^ k, b ^ seed));
    }

    typedef struct {
        uint64_t prefix;        /* the first 8 bytes, big-endian, padded with zeros */
        const uint8_t *start;
        int64_t size;
        uint32_t id;            /* in order of first appearance */
    } kc_word;

    static inline uint64_t kc_word_prefix(const uint8_t *p, int64_t size) {
        uint64_t x = 0;
        memcpy(&x, p, (size_t)(size < 8 ? size : 8));
        return __builtin_bswap64(x);
    }
    static int kc_word_order(const void *left, const void *right) {
        const kc_word *a = (const kc_word *)left, *b = (const kc_word *)right;
        if (a->prefix != b->prefix) return a->prefix < b->prefix ? -1 : 1;
        int order = memcmp(a->start, b->start, (size_t)(a->size < b->size ? a->size : b->size));
        return order ? order : (a->size > b->size) - (a->size < b->size);
    }
    static void kc_sort_words(kc_word *words, int64_t count) {
        qsort(words, (size_t)count, sizeof *words, kc_word_order);
    }
    #endif
    """
    uint64_t kc_word_hash(const uint8_t* p, int64_t size, uint64_t seed) noexcept nogil
    uint64_t kc_word_prefix(const uint8_t* p, int64_t size) noexcept nogil
    ctypedef struct kc_word:
        uint64_t prefix
        const uint8_t* start
        int64_t size
        uint32_t id
    void kc_sort_words(kc_word* words, int64_t count) noexcept nogil
