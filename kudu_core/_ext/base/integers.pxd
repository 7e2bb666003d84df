# Inner loops over integers of a mini-block: their widths, runs and deltas.
# No function here reads a stored count or position: callers have checked them.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.base.bitpack cimport kc_mask     # its C text comes first: types and KC_INLINE

cdef extern from *:
    """
    #ifndef KUDU_CORE_INTEGERS
    #define KUDU_CORE_INTEGERS
    typedef int8_t kc_i8;
    typedef int16_t __attribute__((aligned(1), may_alias)) kc_i16;
    typedef int32_t __attribute__((aligned(1), may_alias)) kc_i32;
    typedef int64_t __attribute__((aligned(1), may_alias)) kc_i64;

    #define KC_EACH_VALUE(expression) for (int64_t i = 0; i < n; i++) expression
    #define KC_SIGN ((uint64_t)1 << 63)

    /* In an order that int64 has too: unsigned words of 8 bytes lose 2**63. */
    KC_CLONES static void kc_widen(int64_t *restrict out, const uint8_t *restrict in, int64_t n, int width,
        int is_signed) {
        if (is_signed) {
            switch (width) {
                case 1: KC_EACH_VALUE(out[i] = ((const kc_i8 *)in)[i]); break;
                case 2: KC_EACH_VALUE(out[i] = ((const kc_i16 *)in)[i]); break;
                case 4: KC_EACH_VALUE(out[i] = ((const kc_i32 *)in)[i]); break;
                default: memcpy(out, in, (size_t)n * 8); break;
            }
        } else {
            switch (width) {
                case 1: KC_EACH_VALUE(out[i] = in[i]); break;
                case 2: KC_EACH_VALUE(out[i] = ((const kc_u16 *)in)[i]); break;
                case 4: KC_EACH_VALUE(out[i] = ((const kc_u32 *)in)[i]); break;
                default: KC_EACH_VALUE(out[i] = (int64_t)(((const kc_u64 *)in)[i] ^ KC_SIGN)); break;
            }
        }
    }

    /* 16-byte integers to their low words; 0 where one does not fit into 64 bits. */
    KC_CLONES static int kc_narrow(int64_t *restrict out, const uint8_t *restrict in, int64_t n) {
        const kc_i64 *words = (const kc_i64 *)in;
        int64_t wide = 0;
        for (int64_t i = 0; i < n; i++) {
            out[i] = words[2 * i];
            wide |= words[2 * i + 1] ^ (words[2 * i] >> 63);
        }
        return wide == 0;
    }
    static void kc_sign_extend(uint8_t *restrict out, const uint8_t *restrict in, int64_t n) {
        kc_i64 *to = (kc_i64 *)out;
        const kc_i64 *from = (const kc_i64 *)in;
        for (int64_t i = 0; i < n; i++) {
            to[2 * i] = from[i];
            to[2 * i + 1] = from[i] >> 63;
        }
    }

    static void kc_fill(uint8_t *out, int64_t n, int width, uint64_t value) {
        switch (width) {
            case 1: memset(out, (int)(value & 0xFF), (size_t)n); break;
            case 2: KC_EACH_VALUE(((kc_u16 *)out)[i] = (uint16_t)value); break;
            case 4: KC_EACH_VALUE(((kc_u32 *)out)[i] = (uint32_t)value); break;
            default: KC_EACH_VALUE(((kc_u64 *)out)[i] = value); break;
        }
    }

    KC_CLONES static int64_t kc_runs(const int64_t *v, int64_t n) {
        int64_t runs = n > 0;
        for (int64_t i = 1; i < n; i++) runs += v[i] != v[i - 1];
        return runs;
    }

    /* Differences of neighbours, wrapped to `width` bytes; d[0] is 0. */
    KC_CLONES static void kc_deltas(int64_t *restrict d, const int64_t *restrict v, int64_t n, int width) {
        d[0] = 0;
        switch (width) {
            case 1: for (int64_t i = 1; i < n; i++) d[i] = (int8_t)(uint64_t)(v[i] - v[i - 1]); break;
            case 2: for (int64_t i = 1; i < n; i++) d[i] = (int16_t)(uint64_t)(v[i] - v[i - 1]); break;
            case 4: for (int64_t i = 1; i < n; i++) d[i] = (int32_t)(uint64_t)(v[i] - v[i - 1]); break;
            default:
                for (int64_t i = 1; i < n; i++) d[i] = (int64_t)((uint64_t)v[i] - (uint64_t)v[i - 1]);
                break;
        }
    }

    #define KC_SUM(T) { \\
            kc_##T *v = (kc_##T *)out, sum = (kc_##T)first; \\
            v[0] = sum; \\
            for (int64_t i = 1; i < n; i++) { sum = (kc_##T)(sum + v[i]); v[i] = sum; } \\
            break; }
    /* Deltas in `out` (the first is ignored) to values, in place; n > 0. */
    static void kc_sum(uint8_t *out, int64_t n, int width, uint64_t first) {
        switch (width) {
            case 1: KC_SUM(u8)
            case 2: KC_SUM(u16)
            case 4: KC_SUM(u32)
            default: KC_SUM(u64)
        }
    }
    #undef KC_SUM

    #define KC_TOTAL(T) { \\
            const kc_##T *v = (const kc_##T *)deltas; \\
            kc_##T sum = 0; \\
            for (int64_t i = 0; i < n; i++) sum = (kc_##T)(sum + v[i]); \\
            return sum; }
    /* The sum of n of them, wrapped to `width` bytes: unlike sums of all before each it takes no turns. */
    KC_CLONES static uint64_t kc_total(const uint8_t *deltas, int64_t n, int width) {
        switch (width) {
            case 1: KC_TOTAL(u8)
            case 2: KC_TOTAL(u16)
            case 4: KC_TOTAL(u32)
            default: KC_TOTAL(u64)
        }
    }
    #undef KC_TOTAL
    #endif
    """
    void kc_widen(int64_t* out, const uint8_t* data, int64_t n, int width, int is_signed) noexcept nogil
    int kc_narrow(int64_t* out, const uint8_t* data, int64_t n) noexcept nogil
    void kc_sign_extend(uint8_t* out, const uint8_t* data, int64_t n) noexcept nogil
    void kc_fill(uint8_t* out, int64_t n, int width, uint64_t value) noexcept nogil
    int64_t kc_runs(const int64_t* values, int64_t n) noexcept nogil
    void kc_deltas(int64_t* deltas, const int64_t* values, int64_t n, int width) noexcept nogil
    void kc_sum(uint8_t* out, int64_t n, int width, uint64_t first) noexcept nogil
    uint64_t kc_total(const uint8_t* deltas, int64_t n, int width) noexcept nogil
