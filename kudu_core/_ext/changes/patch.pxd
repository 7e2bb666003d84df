# All changes of one column of a rowset, laid over cells as these are decoded.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
    #ifndef KUDU_CORE_PATCH
    #define KUDU_CORE_PATCH
    #include <stdint.h>
    #include <string.h>
    #define KC_FEW_PICKED 64

    typedef struct {
        const uint64_t *rows;       /* a bit a row; NULL: there is no patch */
        const uint32_t *before;     /* changes in the words before each word */
        const uint8_t *values;
        const uint8_t *valid;       /* a bit a change; NULL: no value is null */
    } kc_patch_view;

    static inline void kc_patch_bit(uint8_t *bits, int64_t at, const uint8_t *valid, int64_t change) {
        const unsigned bit = valid ? valid[change >> 3] >> (change & 7) & 1u : 1u;
        bits[at >> 3] = (uint8_t)((bits[at >> 3] & ~(1u << (at & 7))) | bit << (at & 7));
    }
    /* Always inlined with a constant width.  `out`: cells of rows first .. first + n - 1. */
    static inline __attribute__((always_inline)) void kc_lay_all_w(const kc_patch_view *patch, uint8_t *out,
        int64_t first, int64_t n, uint8_t *bits, int64_t at, size_t width) {
        const int64_t end = first + n;
        for (int64_t w = first >> 6; w << 6 < end; w++) {
            uint64_t word = patch->rows[w];
            if (!word) continue;
            int64_t change = patch->before[w];
            const int64_t begin = w << 6;
            if (begin < first) {
                const uint64_t below = ((uint64_t)1 << (first - begin)) - 1;
                change += __builtin_popcountll(word & below);
                word &= ~below;
            }
            if (begin + 64 > end) word &= ((uint64_t)1 << (end - begin)) - 1;
            for (; word; word &= word - 1, change++) {
                const int64_t row = begin + __builtin_ctzll(word) - first;
                memcpy(out + row * (int64_t)width, patch->values + change * (int64_t)width, width);
                if (bits) kc_patch_bit(bits, at + row, patch->valid, change);
            }
        }
    }
    /* `out`: cells of the n picked rows, of the 1,024 from `first` on, which begin a word.  Of a few each is
       looked up; of more each change is, in a table of where the rows are picked. */
    static inline __attribute__((always_inline)) void kc_lay_some_w(const kc_patch_view *patch, uint8_t *out,
        int64_t first, const uint16_t *picked, int64_t n, uint8_t *bits, int64_t at, size_t width) {
        if (n > KC_FEW_PICKED) {
            int16_t place[1024];
            memset(place, 0xFF, sizeof place);
            for (int64_t i = 0; i < n; i++) place[picked[i]] = (int16_t)i;
            for (int64_t w = picked[0] >> 6; w <= picked[n - 1] >> 6; w++) {
                uint64_t word = patch->rows[(first >> 6) + w];
                for (int64_t change = patch->before[(first >> 6) + w]; word; word &= word - 1, change++) {
                    const int64_t i = place[(w << 6) + __builtin_ctzll(word)];
                    if (i < 0) continue;
                    memcpy(out + i * (int64_t)width, patch->values + change * (int64_t)width, width);
                    if (bits) kc_patch_bit(bits, at + i, patch->valid, change);
                }
            }
            return;
        }
        for (int64_t i = 0; i < n; i++) {
            const int64_t row = first + picked[i];
            const uint64_t word = patch->rows[row >> 6], bit = (uint64_t)1 << (row & 63);
            if (!(word & bit)) continue;
            const int64_t change = patch->before[row >> 6] + __builtin_popcountll(word & (bit - 1));
            memcpy(out + i * (int64_t)width, patch->values + change * (int64_t)width, width);
            if (bits) kc_patch_bit(bits, at + i, patch->valid, change);
        }
    }
    /* picked NULL: of all rows, from `first` on.  bits, from `at` on: which cells are not null, or NULL. */
    static void kc_lay(const kc_patch_view *patch, uint8_t *out, int64_t first, const uint16_t *picked,
        int64_t n, uint8_t *bits, int64_t at, int width) {
    #define KC_CALL(w) \\
        if (picked) kc_lay_some_w(patch, out, first, picked, n, bits, at, w); \\
        else kc_lay_all_w(patch, out, first, n, bits, at, w); \\
        break;
        switch (width) {
            case 1: KC_CALL(1)
            case 2: KC_CALL(2)
            case 4: KC_CALL(4)
            case 8: KC_CALL(8)
            default: KC_CALL(16)
        }
    #undef KC_CALL
    }
    #endif
    """
    ctypedef struct kc_patch_view:
        const uint64_t* rows
        const uint32_t* before
        const uint8_t* values
        const uint8_t* valid
    void kc_lay(
        const kc_patch_view* patch, uint8_t* out, int64_t first, const uint16_t* picked, int64_t n,
        uint8_t* bits, int64_t at, int width
    ) noexcept nogil


cdef class Patch:
    cdef:
        kc_patch_view view
        readonly int width
        readonly int64_t rows
        readonly Py_ssize_t count
        readonly object source  # what it is made of, as its maker names it
        tuple kept              # what keeps the arrays
        Py_ssize_t size
