# Cells that are not null, gathered from those of all rows and spread over them again.
from libc.stdint cimport int64_t, uint8_t

from kudu_core._ext.base.bitpack cimport kc_mask     # its C text comes first: KC_INLINE
from kudu_core._ext.base.bitmap cimport kc_bit       # kc_bits_load

cdef extern from *:
    """
    #ifndef KUDU_CORE_NULLS
    #define KUDU_CORE_NULLS
    KC_INLINE int64_t kc_gather_w(uint8_t *restrict out, const uint8_t *restrict in, const uint8_t *bits,
        int64_t first, int64_t n, size_t width) {
        int64_t count = 0;
        for (int64_t i = 0; i < n; i += 64) {
            const int span = n - i < 64 ? (int)(n - i) : 64;
            uint64_t word = kc_bits_load(bits, first + i, span);
            if (word == ~(uint64_t)0) {
                memcpy(out + count * width, in + i * width, 64 * width);
                count += 64;
                continue;
            }
            while (word) {
                memcpy(out + count * width, in + (i + __builtin_ctzll(word)) * width, width);
                count++;
                word &= word - 1;
            }
        }
        return count;
    }
    KC_INLINE void kc_spread_w(uint8_t *restrict out, const uint8_t *restrict in, const uint8_t *bits,
        int64_t first, int64_t n, size_t width) {
        for (int64_t i = 0; i < n; i += 64) {
            const int span = n - i < 64 ? (int)(n - i) : 64;
            uint64_t word = kc_bits_load(bits, first + i, span);
            if (word == ~(uint64_t)0) {
                memcpy(out + i * width, in, 64 * width);
                in += 64 * width;
                continue;
            }
            uint64_t gaps = ~word & kc_mask(span), more = gaps;
            for (int k = 0; k < 4; k++) more &= more - 1;
            if (more == 0) {            /* few: what lies between two of them is copied at once */
                int from = 0;
                for (; gaps; gaps &= gaps - 1) {
                    const int gap = __builtin_ctzll(gaps);
                    memcpy(out + (i + from) * width, in, (size_t)(gap - from) * width);
                    memset(out + (i + gap) * width, 0, width);
                    in += (size_t)(gap - from) * width;
                    from = gap + 1;
                }
                memcpy(out + (i + from) * width, in, (size_t)(span - from) * width);
                in += (size_t)(span - from) * width;
                continue;
            }
            memset(out + i * width, 0, span * width);
            while (word) {
                memcpy(out + (i + __builtin_ctzll(word)) * width, in, width);
                in += width;
                word &= word - 1;
            }
        }
    }
    #define KC_WIDTHS(name) \\
        switch (width) { \\
            case 1: name(out, in, bits, first, n, 1); break; \\
            case 2: name(out, in, bits, first, n, 2); break; \\
            case 4: name(out, in, bits, first, n, 4); break; \\
            case 8: name(out, in, bits, first, n, 8); break; \\
            default: name(out, in, bits, first, n, 16); break; \\
        }
    /* The cells of n rows that are not null, one after the other. */
    static void kc_gather(uint8_t *out, const uint8_t *in, const uint8_t *bits, int64_t first, int64_t n,
        int width) {
        KC_WIDTHS(kc_gather_w)
    }
    /* Back: zeros where a cell is null. */
    static void kc_spread(uint8_t *out, const uint8_t *in, const uint8_t *bits, int64_t first, int64_t n,
        int width) {
        KC_WIDTHS(kc_spread_w)
    }
    #undef KC_WIDTHS
    #endif
    """
    void kc_gather(
        uint8_t* out, const uint8_t* data, const uint8_t* bits, int64_t first, int64_t n, int width
    ) noexcept nogil
    void kc_spread(
        uint8_t* out, const uint8_t* data, const uint8_t* bits, int64_t first, int64_t n, int width
    ) noexcept nogil
