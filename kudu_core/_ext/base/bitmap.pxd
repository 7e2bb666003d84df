# Bitmaps: LSB first, as Arrow's; bit 1 means NOT null (or chosen).  Shared by the kernels that
# read or write them.  Every function touches only the bytes that hold the bits it is given, and
# stores each byte of a destination once, so bits beside the range never change, not even for an
# instant: a reader may look at the rows before a growing end.
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    #ifndef KUDU_CORE_BITMAP
    #define KUDU_CORE_BITMAP
    #include <stdint.h>
    #include <string.h>

    static inline int kc_bit(const uint8_t *bits, int64_t i) {
        return (bits[i >> 3] >> (i & 7)) & 1;
    }

    /* `count` bits (1..64) from bit `offset` on, the rest zero. */
    static inline uint64_t kc_bits_load(const uint8_t *bits, int64_t offset, int count) {
        const uint8_t *p = bits + (offset >> 3);
        int shift = (int)(offset & 7);
        int bytes = (shift + count + 7) >> 3;
        uint64_t word = 0;
        if (bytes >= 8) {
            memcpy(&word, p, 8);
            word >>= shift;
            if (bytes == 9) word |= (uint64_t)p[8] << (64 - shift);
        } else {
            for (int k = 0; k < bytes; k++) word |= (uint64_t)p[k] << (8 * k);
            word >>= shift;
        }
        return count == 64 ? word : word & ((((uint64_t)1) << count) - 1);
    }

    /* Copy n bits; src NULL stands for bits that are all set. */
    static inline void kc_bits_copy(
        uint8_t *dst, int64_t dst_offset, const uint8_t *src, int64_t src_offset, int64_t n
    ) {
        uint8_t *p = dst + (dst_offset >> 3);
        int shift = (int)(dst_offset & 7);
        if (n <= 0) return;
        if (shift) {
            int count = n < 8 - shift ? (int)n : 8 - shift;
            unsigned mask = ((1u << count) - 1u) << shift;
            unsigned bits = src ? (unsigned)kc_bits_load(src, src_offset, count) << shift : mask;
            *p = (uint8_t)((*p & ~mask) | bits);
            p++;
            n -= count;
            src_offset += count;
        }
        while (n >= 64) {
            uint64_t word = src ? kc_bits_load(src, src_offset, 64) : ~(uint64_t)0;
            memcpy(p, &word, 8);
            p += 8;
            n -= 64;
            src_offset += 64;
        }
        while (n >= 8) {
            *p++ = src ? (uint8_t)kc_bits_load(src, src_offset, 8) : 0xFF;
            n -= 8;
            src_offset += 8;
        }
        if (n) {
            unsigned mask = (1u << n) - 1u;
            unsigned bits = src ? (unsigned)kc_bits_load(src, src_offset, (int)n) : mask;
            *p = (uint8_t)((*p & ~mask) | bits);
        }
    }

    /* How many bits are set; without an instruction for that a compiler calls a function. */
    static inline int64_t kc_bits_set(uint64_t word) {
        word -= (word >> 1) & 0x5555555555555555ULL;
        word = (word & 0x3333333333333333ULL) + ((word >> 2) & 0x3333333333333333ULL);
        return (int64_t)((((word + (word >> 4)) & 0x0F0F0F0F0F0F0F0FULL) * 0x0101010101010101ULL) >> 56);
    }
    static inline int64_t kc_bits_count(const uint8_t *bits, int64_t offset, int64_t n) {
        int64_t total = 0;
        while (n >= 64) {
            total += kc_bits_set(kc_bits_load(bits, offset, 64));
            offset += 64;
            n -= 64;
        }
        if (n > 0) total += kc_bits_set(kc_bits_load(bits, offset, (int)n));
        return total;
    }
    #endif
    """
    int kc_bit(const uint8_t* bits, int64_t i) noexcept nogil
    uint64_t kc_bits_load(const uint8_t* bits, int64_t offset, int count) noexcept nogil
    void kc_bits_copy(
        uint8_t* dst, int64_t dst_offset, const uint8_t* src, int64_t src_offset, int64_t n
    ) noexcept nogil
    int64_t kc_bits_count(const uint8_t* bits, int64_t offset, int64_t n) noexcept nogil
