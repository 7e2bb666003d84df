# Floats that are decimals: value = integer / 10**scale, bit for bit.
# No function here reads a stored count or position: callers have checked them.
from libc.stdint cimport int64_t, uint8_t

from kudu_core._ext.base.bitpack cimport kc_mask     # its C text comes first: types and KC_INLINE

cdef extern from *:
    """
    #ifndef KUDU_CORE_DECIMALS
    #define KUDU_CORE_DECIMALS
    typedef double __attribute__((aligned(1), may_alias)) kc_f64;
    typedef float __attribute__((aligned(1), may_alias)) kc_f32;
    #define KC_EACH_VALUE(expression) for (int64_t i = 0; i < n; i++) expression

    /* x + KC_MAGIC has the integer nearest to x in its low bits, for |x| < 2**51. */
    #define KC_MAGIC 6755399441055744.0
    #define KC_MAGIC_BITS 0x4338000000000000ULL

    static const double kc_powers[10] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};

    KC_INLINE uint64_t kc_bits_of(double x) { uint64_t b; memcpy(&b, &x, 8); return b; }
    KC_INLINE double kc_double_of(uint64_t b) { double x; memcpy(&x, &b, 8); return x; }
    KC_INLINE uint32_t kc_bits_of_float(float x) { uint32_t b; memcpy(&b, &x, 4); return b; }

    /* To the nearest integer; beyond 2**52 there is nothing else. */
    KC_INLINE double kc_round(double x) {
        const double all = 4503599627370496.0;
        if (!(x > -all && x < all)) return x;
        return x < 0 ? (x - all) + all : (x + all) - all;
    }

    /* The integer m with m / 10**k == x bit for bit and |m| < limit; 0 where there is none. */
    KC_INLINE int kc_decimal_cell(double x, double power, double limit, int single, int64_t *m) {
        const double y = kc_round(x * power);
        if (!(y > -limit && y < limit)) return 0;
        *m = (int64_t)y;
        if (single) return kc_bits_of_float((float)*m / (float)power) == kc_bits_of_float((float)x);
        return kc_bits_of((double)*m / power) == kc_bits_of(x);
    }

    /* Integers of n values for scale k; marks those that are none and returns how many. */
    KC_CLONES static int64_t kc_decimals(int64_t *restrict m, uint8_t *restrict bad,
        const uint8_t *restrict in, int64_t n, int width, int k) {
        const double power = kc_powers[k];
        uint64_t wrong[KC_BLOCK], any = 0;
        int64_t count = 0;
        if (width == 8) {
            const kc_u64 *bits = (const kc_u64 *)in;
            for (int64_t i = 0; i < n; i++) {
                double t = kc_double_of(bits[i]) * power + KC_MAGIC;
                uint64_t back = kc_bits_of((t - KC_MAGIC) / power);
                uint64_t integer = kc_bits_of(t) - KC_MAGIC_BITS;
                m[i] = (int64_t)integer;
                /* Infinities and NaN come back as they went: only the range tells. */
                wrong[i] = ((integer + ((uint64_t)1 << 51)) >> 52) | (back ^ bits[i]);
                any |= wrong[i];
            }
        } else {
            const float power_single = (float)power;
            for (int64_t i = 0; i < n; i++) {
                float x = ((const kc_f32 *)in)[i];
                double t = (double)x * power + KC_MAGIC;
                uint64_t integer = kc_bits_of(t) - KC_MAGIC_BITS;
                float back = (float)(t - KC_MAGIC) / power_single;
                m[i] = (int64_t)integer;
                wrong[i] = ((integer + ((uint64_t)1 << 24) - 1 >= ((uint64_t)1 << 25) - 1))
                    | (uint64_t)(kc_bits_of_float(back) ^ kc_bits_of_float(x));
                any |= wrong[i];
            }
        }
        memset(bad, 0, (size_t)(n & 2047));
        if (!any) return 0;
        for (int64_t i = 0; i < n; i++) {
            if (!wrong[i]) continue;
            /* 2**51 .. 2**53 is beyond the fast form. */
            if (width == 8 && kc_decimal_cell(((const kc_f64 *)in)[i], power, 9007199254740992.0, 0, &m[i]))
                continue;
            bad[i] = 1;
            count++;
        }
        if (count == n) return count;
        int64_t last = 0;       /* keep the others out of the choice of the window */
        for (int64_t i = 0; i < n; i++) if (!bad[i]) { last = m[i]; break; }
        for (int64_t i = 0; i < n; i++) {
            if (bad[i]) m[i] = last;
            else last = m[i];
        }
        return count;
    }

    /* The scale that stores a sample of the values in the least space, or -1. */
    static int kc_pick_scale(const uint8_t *in, int64_t n, int width) {
        const int scales = width == 8 ? 10 : 6, samples = n < 64 ? (int)n : 64;
        const double limit = width == 8 ? 9007199254740992.0 : 16777216.0;
        int fits[10] = {0}, covered = 0, best = -1, any = 0;
        double best_cost = 0.75 * samples * 8 * width;
        for (int s = 0; s < samples; s++) {
            if (s == 16 && !any) return -1;
            const int64_t i = s * n / samples;
            const double x = width == 8 ? ((const kc_f64 *)in)[i] : (double)((const kc_f32 *)in)[i];
            int64_t m;
            for (int k = 0; k < scales; k++)
                if (kc_decimal_cell(x, kc_powers[k], limit, width == 4, &m)) { fits[k]++; any = 1; break; }
        }
        for (int k = 0; k < scales; k++) {
            covered += fits[k];
            if (!fits[k] || 2 * covered < samples) continue;
            double cost = 3.33 * k * samples + (8.0 * width + 16) * (samples - covered);
            if (cost < best_cost) { best_cost = cost; best = k; }
        }
        return best;
    }

    /* Quotients without a division, three times as fast (bench/kernels/scan/test_read.py, "load").  With
       y the double nearest to 1 / b, q = a * y is less than 1 ulp off a / b where y's relative error is at
       most 2**-54; then the remainder r = a - q * b is exact and q + r * y, rounded once, is a / b
       correctly rounded (Markstein 1990).  10**5 and 10**9 have no y as good as that. */
    #if defined(__x86_64__) && defined(__GNUC__)
    #define KC_INVERTIBLE 0x1DE
    __attribute__((target("avx2,fma"))) static void kc_quotients(kc_u64 *v, int64_t n, double power) {
        const double inverse = 1.0 / power;
        for (int64_t i = 0; i < n; i++) {
            const double a = kc_double_of(v[i] + KC_MAGIC_BITS) - KC_MAGIC, q = a * inverse;
            v[i] = kc_bits_of(__builtin_fma(__builtin_fma(-q, power, a), inverse, q));
        }
    }
    KC_INLINE int kc_has_quotients(int k) {
        return (KC_INVERTIBLE >> k & 1) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    }
    #else
    static void kc_quotients(kc_u64 *v, int64_t n, double power) {}
    KC_INLINE int kc_has_quotients(int k) { return 0; }
    #endif

    KC_CLONES static void kc_divide(uint8_t *out, int64_t n, int width, int k, int small) {
        if (width == 8) {
            const double power = kc_powers[k];
            kc_u64 *v = (kc_u64 *)out;
            if (small) {
                if (k == 0) KC_EACH_VALUE(v[i] = kc_bits_of(kc_double_of(v[i] + KC_MAGIC_BITS) - KC_MAGIC));
                else KC_EACH_VALUE(v[i] = kc_bits_of((kc_double_of(v[i] + KC_MAGIC_BITS) - KC_MAGIC)
                    / power));
            } else KC_EACH_VALUE(v[i] = kc_bits_of((double)(int64_t)v[i] / power));
        } else {
            const float power = (float)kc_powers[k];
            kc_u32 *v = (kc_u32 *)out;
            KC_EACH_VALUE(v[i] = kc_bits_of_float((float)(int32_t)v[i] / power));
        }
    }
    /* Integers in `out` (int64 or int32, as wide as the float) to floats, in place.  `small`: all
       lie within +-2**51. */
    static void kc_to_floats(uint8_t *out, int64_t n, int width, int k, int small) {
        if (width == 8 && small && kc_has_quotients(k)) kc_quotients((kc_u64 *)out, n, kc_powers[k]);
        else kc_divide(out, n, width, k, small);
    }
    #endif
    """
    int64_t kc_decimals(
        int64_t* integers, uint8_t* bad, const uint8_t* data, int64_t n, int width, int scale
    ) noexcept nogil
    int kc_pick_scale(const uint8_t* data, int64_t n, int width) noexcept nogil
    void kc_to_floats(uint8_t* out, int64_t n, int width, int scale, int small) noexcept nogil
