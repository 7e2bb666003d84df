# Bit packing of integers: docs/format.md, "Page payload".
#
# Exactly 1,024 values of `width` bytes are packed as rows of 1,024 bits, cut into lanes of that
# width: value i lies in row i / lanes, lane i % lanes, and each lane packs its values one after
# the other.  A row is shifted by one count for all lanes, so one loop serves every number of
# bits and compilers vectorise it.  Any other count is packed as one sequence of bits.  Both are
# whole 64-bit words, so a reader that knows `kc_packed_bytes` never looks past them, and both
# give value i with two loads.
#
# Values are packed as (value - base) modulo 2**bits; bits is 1 .. 8 * width.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.base.loads cimport kc_fetch

cdef extern from *:
    """
    #ifndef KUDU_CORE_BITPACK
    #define KUDU_CORE_BITPACK
    #include <stdint.h>
    #include <string.h>
    #define KC_BLOCK 1024
    #define KC_INLINE static inline __attribute__((always_inline))

    /* The same loop for wider vectors too, chosen when the module is loaded: 1.3 to 1.6 times as fast
       (bench/kernels/pages/test_blocks.py).  Sanitizers cannot run where the choice is made. */
    #if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && !defined(__clang__) \\
        && !defined(__SANITIZE_ADDRESS__) && !defined(KC_CLONES)
    #define KC_CLONES __attribute__((target_clones("avx2", "default")))
    #endif
    #ifndef KC_CLONES
    #define KC_CLONES
    #endif

    /* Stored numbers may lie at any address. */
    typedef uint8_t kc_u8;
    typedef uint16_t __attribute__((aligned(1), may_alias)) kc_u16;
    typedef uint32_t __attribute__((aligned(1), may_alias)) kc_u32;
    typedef uint64_t __attribute__((aligned(1), may_alias)) kc_u64;

    static inline int64_t kc_packed_bytes(int64_t n, int bits) {
        return ((n * bits + 63) >> 6) << 3;
    }
    static inline uint64_t kc_mask(int bits) {
        return bits >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
    }

    #define KC_LANES(T) \\
    KC_CLONES static void kc_unpack_lanes_##T(kc_##T *restrict out, const kc_##T *restrict in, int bits, \\
        uint64_t base64) { \\
        enum { WORD = 8 * sizeof(kc_##T), LANES = KC_BLOCK / WORD }; \\
        const kc_##T mask = (kc_##T)kc_mask(bits), base = (kc_##T)base64; \\
        for (int row = 0; row < WORD; row++) { \\
            const int at = row * bits, shift = at % WORD; \\
            const kc_##T *low = in + at / WORD * LANES; \\
            kc_##T *to = out + row * LANES; \\
            if (shift + bits <= WORD) { \\
                for (int lane = 0; lane < LANES; lane++) \\
                    to[lane] = (kc_##T)(((kc_##T)(low[lane] >> shift) & mask) + base); \\
            } else { \\
                for (int lane = 0; lane < LANES; lane++) \\
                    to[lane] = (kc_##T)((((kc_##T)(low[lane] >> shift) \\
                        | (kc_##T)(low[lane + LANES] << (WORD - shift))) & mask) + base); \\
            } \\
        } \\
    } \\
    KC_CLONES static void kc_pack_lanes_##T(kc_##T *restrict out, const int64_t *restrict in, int bits, \\
        uint64_t base64) { \\
        enum { WORD = 8 * sizeof(kc_##T), LANES = KC_BLOCK / WORD }; \\
        const kc_##T mask = (kc_##T)kc_mask(bits), base = (kc_##T)base64; \\
        memset(out, 0, (size_t)128 * bits); \\
        for (int row = 0; row < WORD; row++) { \\
            const int at = row * bits, shift = at % WORD; \\
            kc_##T *low = out + at / WORD * LANES; \\
            const int64_t *from = in + row * LANES; \\
            if (shift + bits <= WORD) { \\
                for (int lane = 0; lane < LANES; lane++) \\
                    low[lane] |= (kc_##T)((kc_##T)((kc_##T)((kc_##T)from[lane] - base) & mask) << shift); \\
            } else { \\
                for (int lane = 0; lane < LANES; lane++) { \\
                    kc_##T v = (kc_##T)((kc_##T)((kc_##T)from[lane] - base) & mask); \\
                    low[lane] |= (kc_##T)(v << shift); \\
                    low[lane + LANES] |= (kc_##T)(v >> (WORD - shift)); \\
                } \\
            } \\
        } \\
    }
    KC_LANES(u32)
    KC_LANES(u64)
    #undef KC_LANES

    /* Vectors have no shifts of bytes, and compilers widen those of 16 bits: shift several lanes as
       one 64-bit word and mask what crossed; add lane by lane without carries. */
    #define KC_SMALL_LANES(T, WORD, ONES) \\
    KC_CLONES static void kc_unpack_lanes_##T(uint8_t *restrict out, const uint8_t *restrict in, \\
        int bits, uint64_t base) { \\
        const uint64_t all = kc_mask(WORD), mask = kc_mask(bits); \\
        const uint64_t high = ONES << (WORD - 1), add = (base & all) * ONES; \\
        for (int row = 0; row < WORD; row++) { \\
            const int at = row * bits, shift = at % WORD; \\
            const kc_u64 *low = (const kc_u64 *)in + at / WORD * 16; \\
            kc_u64 *to = (kc_u64 *)out + row * 16; \\
            if (shift + bits > WORD) { \\
                const uint64_t keep = (all >> shift) * ONES, left = all << (WORD - shift); \\
                const uint64_t upper = (left & mask) * ONES; \\
                for (int k = 0; k < 16; k++) { \\
                    uint64_t x = ((low[k] >> shift) & keep) | ((low[k + 16] << (WORD - shift)) & upper); \\
                    to[k] = ((x & ~high) + (add & ~high)) ^ ((x ^ add) & high); \\
                } \\
            } else { \\
                const uint64_t keep = mask * ONES; \\
                for (int k = 0; k < 16; k++) { \\
                    uint64_t x = (low[k] >> shift) & keep; \\
                    to[k] = ((x & ~high) + (add & ~high)) ^ ((x ^ add) & high); \\
                } \\
            } \\
        } \\
    } \\
    KC_CLONES static void kc_pack_lanes_##T(uint8_t *restrict out, const int64_t *restrict in, int bits, \\
        uint64_t base64) { \\
        enum { LANES = KC_BLOCK / WORD }; \\
        const kc_##T base = (kc_##T)base64, mask = (kc_##T)kc_mask(bits); \\
        const uint64_t all = kc_mask(WORD); \\
        memset(out, 0, (size_t)128 * bits); \\
        for (int row = 0; row < WORD; row++) { \\
            const int at = row * bits, shift = at % WORD; \\
            kc_u64 *low = (kc_u64 *)out + at / WORD * 16; \\
            uint64_t words[16]; \\
            kc_##T lanes[LANES]; \\
            for (int k = 0; k < LANES; k++) lanes[k] = (kc_##T)((kc_##T)in[row * LANES + k] - base) & mask; \\
            memcpy(words, lanes, 128); \\
            if (shift + bits > WORD) { \\
                const uint64_t keep = ((all << shift) & all) * ONES, upper = (all >> (WORD - shift)) \\
                    * ONES; \\
                for (int k = 0; k < 16; k++) { \\
                    low[k] |= (words[k] << shift) & keep; \\
                    low[k + 16] |= (words[k] >> (WORD - shift)) & upper; \\
                } \\
            } else { \\
                for (int k = 0; k < 16; k++) low[k] |= words[k] << shift; \\
            } \\
        } \\
    }
    KC_SMALL_LANES(u8, 8, 0x0101010101010101ULL)
    KC_SMALL_LANES(u16, 16, 0x0001000100010001ULL)
    #undef KC_SMALL_LANES

    KC_INLINE uint64_t kc_packed_at(const kc_u64 *in, int64_t i, int bits) {
        const int64_t at = i * bits;
        const int shift = (int)(at & 63);
        uint64_t v = in[at >> 6] >> shift;
        if (shift + bits > 64) v |= in[(at >> 6) + 1] << (64 - shift);
        return v & kc_mask(bits);
    }

    /* Eight values take whole bytes, so that the places of each eight are those of the first.  The last ones
       are read alone: a load of 8 bytes may not reach behind the end. */
    #define KC_SEQUENCES(T) \\
    KC_CLONES static void kc_unpack_sequence_##T(kc_##T *restrict out, const uint8_t *restrict in, \\
        int64_t n, int bits, uint64_t base) { \\
        const uint64_t mask = kc_mask(bits); \\
        const int64_t safe = bits ? n - 8 - (64 + bits - 1) / bits : 0; \\
        const uint8_t *p = in; \\
        int64_t i = 0; \\
        if (bits <= 57) \\
            for (; i < safe; i += 8, p += bits) { \\
                uint64_t words[8], shifts[8]; \\
                for (int k = 0; k < 8; k++) { \\
                    words[k] = *(const kc_u64 *)(p + (k * bits >> 3)); \\
                    shifts[k] = (uint64_t)(k * bits & 7); \\
                } \\
                for (int k = 0; k < 8; k++) out[i + k] = (kc_##T)(((words[k] >> shifts[k]) & mask) + base); \\
            } \\
        for (; i < n; i++) out[i] = (kc_##T)(kc_packed_at((const kc_u64 *)in, i, bits) + base); \\
    }
    KC_SEQUENCES(u8)
    KC_SEQUENCES(u16)
    KC_SEQUENCES(u32)
    KC_SEQUENCES(u64)
    #undef KC_SEQUENCES

    /* Write n values of `width` bytes: base + packed, modulo the width. */
    static void kc_unpack(uint8_t *out, const uint8_t *in, int64_t n, int width, int bits, uint64_t base) {
        if (n == KC_BLOCK) {
            switch (width) {
                case 1: kc_unpack_lanes_u8(out, in, bits, base); break;
                case 2: kc_unpack_lanes_u16(out, in, bits, base); break;
                case 4: kc_unpack_lanes_u32((kc_u32 *)out, (const kc_u32 *)in, bits, base); break;
                default: kc_unpack_lanes_u64((kc_u64 *)out, (const kc_u64 *)in, bits, base); break;
            }
            return;
        }
        switch (width) {
            case 1: kc_unpack_sequence_u8(out, in, n, bits, base); break;
            case 2: kc_unpack_sequence_u16((kc_u16 *)out, in, n, bits, base); break;
            case 4: kc_unpack_sequence_u32((kc_u32 *)out, in, n, bits, base); break;
            default: kc_unpack_sequence_u64((kc_u64 *)out, in, n, bits, base); break;
        }
    }

    /* Fill kc_packed_bytes(n, bits) bytes of `out`. */
    static void kc_pack(uint8_t *out, const int64_t *in, int64_t n, int width, int bits, uint64_t base) {
        if (n == KC_BLOCK) {
            switch (width) {
                case 1: kc_pack_lanes_u8(out, in, bits, base); break;
                case 2: kc_pack_lanes_u16(out, in, bits, base); break;
                case 4: kc_pack_lanes_u32((kc_u32 *)out, in, bits, base); break;
                default: kc_pack_lanes_u64((kc_u64 *)out, in, bits, base); break;
            }
            return;
        }
        const uint64_t mask = kc_mask(bits);
        kc_u64 *to = (kc_u64 *)out;
        uint64_t word = 0;
        int used = 0;
        for (int64_t i = 0; i < n; i++) {
            const uint64_t v = ((uint64_t)in[i] - base) & mask;
            word |= v << used;
            used += bits;
            if (used >= 64) {
                *to++ = word;
                used -= 64;
                word = used ? v >> (bits - used) : 0;
            }
        }
        if (used) *to = word;
    }

    /* The first bytes of packed value i. */
    static inline __attribute__((always_inline)) size_t kc_lane_place(
        unsigned width, unsigned bits, unsigned i) {
        const unsigned word = 8 * width, lanes = KC_BLOCK / word;
        return (size_t)(i / lanes * bits / word * lanes + i % lanes) * width;
    }
    static inline int64_t kc_packed_place(int64_t n, int width, int bits, int64_t i) {
        if (n != KC_BLOCK) return i * bits >> 3;
        switch (width) {            /* known to the compiler, a division is a shift */
            case 1: return (int64_t)kc_lane_place(1, (unsigned)bits, (unsigned)i);
            case 2: return (int64_t)kc_lane_place(2, (unsigned)bits, (unsigned)i);
            case 4: return (int64_t)kc_lane_place(4, (unsigned)bits, (unsigned)i);
            default: return (int64_t)kc_lane_place(8, (unsigned)bits, (unsigned)i);
        }
    }
    /* Whether it goes on LANES_BYTES further. */
    static inline int kc_packed_goes_on(int64_t n, int width, int bits, int64_t i) {
        const unsigned word = 8 * (unsigned)width, row = (unsigned)i * (unsigned)width / 128;
        return n == KC_BLOCK && (row * (unsigned)bits & (word - 1)) + (unsigned)bits > word;
    }

    /* Packed value i, without the base. */
    static inline __attribute__((always_inline)) uint64_t kc_packed_lane(
        const uint8_t *in, unsigned width, unsigned bits, unsigned i) {
        const unsigned word = 8 * width, shift = i / (KC_BLOCK / word) * bits % word;
        const uint8_t *low = in + kc_lane_place(width, bits, i);
        /* Where the value ends in its first word, that word once more: what it brings lies above the value.
           Whether it does cannot be foretold, and a wrong guess costs more than the load. */
        uint64_t v = 0, next = 0;
        memcpy(&v, low, width);
        memcpy(&next, low + (shift + bits > word ? 128 : 0), width);
        v = v >> shift | next << 1 << (word - 1 - shift);
        return v & kc_mask((int)bits);
    }
    static inline uint64_t kc_packed_cell(const uint8_t *in, int64_t n, int width, int bits, int64_t i) {
        if (n != KC_BLOCK) return kc_packed_at((const kc_u64 *)in, i, bits);
        switch (width) {            /* likewise, and a copy a move */
            case 1: return kc_packed_lane(in, 1, (unsigned)bits, (unsigned)i);
            case 2: return kc_packed_lane(in, 2, (unsigned)bits, (unsigned)i);
            case 4: return kc_packed_lane(in, 4, (unsigned)bits, (unsigned)i);
            default: return kc_packed_lane(in, 8, (unsigned)bits, (unsigned)i);
        }
    }
    #endif
    """
    int64_t kc_packed_bytes(int64_t n, int bits) noexcept nogil
    uint64_t kc_mask(int bits) noexcept nogil
    void kc_unpack(
        uint8_t* out, const uint8_t* data, int64_t n, int width, int bits, uint64_t base
    ) noexcept nogil
    void kc_pack(
        uint8_t* out, const int64_t* values, int64_t n, int width, int bits, uint64_t base
    ) noexcept nogil
    uint64_t kc_packed_lane(
        const uint8_t* data, unsigned int width, unsigned int bits, unsigned int i
    ) noexcept nogil            # of BLOCK_ROWS values; quick where the compiler knows the width
    uint64_t kc_packed_cell(const uint8_t* data, int64_t n, int width, int bits, int64_t i) noexcept nogil
    int64_t kc_packed_place(int64_t n, int width, int bits, int64_t i) noexcept nogil
    bint kc_packed_goes_on(int64_t n, int width, int bits, int64_t i) noexcept nogil


cdef enum:
    LANES_BYTES = 128           # of a row of lanes: from one word of a lane to its next


cdef inline void fetch_packed(const uint8_t* data, int64_t n, int width, int bits, int64_t i) noexcept nogil:
    """Ask for the memory of packed value i."""
    cdef const uint8_t* first = data + kc_packed_place(n, width, bits, i)
    kc_fetch(first)
    if kc_packed_goes_on(n, width, bits, i):
        kc_fetch(first + LANES_BYTES)
