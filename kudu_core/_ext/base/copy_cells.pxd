# How kernels copy cells from row to row.  Each loop is inlined with a constant width, so that a cell
# is one or two moves; rows are checked in the pass that copies them.
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    #ifndef KUDU_CORE_CELLS
    #define KUDU_CORE_CELLS
    #include <stdint.h>
    #include <string.h>
    #define KC_INLINE static inline __attribute__((always_inline))
    #define KC_BY_WIDTH(call) \\
        switch (width) { \\
            case 1: return call(1); case 2: return call(2); case 4: return call(4); \\
            case 8: return call(8); default: return call(16); \\
        }

    KC_INLINE int64_t kc_take_w(uint8_t *out, const uint8_t *values, uint64_t count,
                                const int64_t *rows, int64_t n, size_t width) {
        for (int64_t i = 0; i < n; i++) {
            uint64_t row = (uint64_t)rows[i];
            if (__builtin_expect(row < count, 1)) memcpy(out + i * width, values + row * width, width);
            else if (rows[i] == -1) memset(out + i * width, 0, width);
            else return i;
        }
        return -1;
    }

    /* Gather; row -1 gives zeros.  Returns -1, or the position of a row that does not exist. */
    static inline int64_t kc_take(uint8_t *out, const uint8_t *values, uint64_t count,
                                  const int64_t *rows, int64_t n, int width) {
    #define KC_CALL(w) kc_take_w(out, values, count, rows, n, w)
        KC_BY_WIDTH(KC_CALL)
    #undef KC_CALL
    }

    /* Short cells dominate: 16 bytes at once where neither buffer ends sooner.  What is written
       past `size` belongs to cells that are written later. */
    KC_INLINE void kc_copy_cell(uint8_t *dst, const uint8_t *dst_end, const uint8_t *src,
                                const uint8_t *src_end, int64_t size) {
        if (size <= 16 && dst_end - dst >= 16 && src_end - src >= 16) memcpy(dst, src, 16);
        else if (size) memcpy(dst, src, (size_t)size);
    }
    #endif
    """
    int64_t kc_take(
        uint8_t* out, const uint8_t* values, uint64_t count, const int64_t* rows, int64_t n, int width
    ) noexcept nogil
    void kc_copy_cell(
        uint8_t* dst, const uint8_t* dst_end, const uint8_t* src, const uint8_t* src_end, int64_t size
    ) noexcept nogil
