# Inner loops of the fixed pages: widths, windows, decimals, planes of bits, nulls.
# No function here reads a stored count or position: callers have checked them.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t

from kudu_core._ext.base.bitpack cimport kc_mask     # its C text comes first: types and KC_INLINE
from kudu_core._ext.base.bitmap cimport kc_bit       # kc_bits_load

cdef extern from *:
    """
    #ifndef KUDU_CORE_BLOCKWORK
    #define KUDU_CORE_BLOCKWORK

    typedef int8_t kc_i8;
    typedef int16_t __attribute__((aligned(1), may_alias)) kc_i16;
    typedef int32_t __attribute__((aligned(1), may_alias)) kc_i32;
    typedef int64_t __attribute__((aligned(1), may_alias)) kc_i64;
    typedef double __attribute__((aligned(1), may_alias)) kc_f64;
    typedef float __attribute__((aligned(1), may_alias)) kc_f32;

    #define KC_EACH_VALUE(expression) for (int64_t i = 0; i < n; i++) expression
    #define KC_SIGN ((uint64_t)1 << 63)

    /* ---------------------------------------------------------------- integers to 64 bits */

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

    /* ---------------------------------------------------------------- windows */

    KC_INLINE int kc_bit_length(uint64_t x) { return x ? 64 - __builtin_clzll(x) : 0; }
    KC_INLINE int64_t kc_padded(int64_t size) { return (size + 7) & ~(int64_t)7; }

    /* Bytes after the head of a block of `slots` packed values. */
    static inline int64_t kc_window_bytes(int64_t slots, int bits, int64_t exceptions, int width) {
        return kc_packed_bytes(slots, bits) + kc_padded(2 * exceptions) + kc_padded(exceptions * width);
    }

    /* Positions of the values outside base .. base + 2**bits - 1, or marked in `bad` (may be NULL). */
    KC_CLONES static int64_t kc_outliers(uint16_t *out, const int64_t *v, const uint8_t *bad, int64_t n,
        int64_t base, int bits) {
        const uint64_t mask = kc_mask(bits);
        int64_t count = 0;
        if (bad) {
            for (int64_t i = 0; i < n; i++) {
                out[count] = (uint16_t)i;
                count += ((uint64_t)v[i] - (uint64_t)base > mask) | bad[i];
            }
        } else {
            for (int64_t i = 0; i < n; i++) {
                out[count] = (uint16_t)i;
                count += (uint64_t)v[i] - (uint64_t)base > mask;
            }
        }
        return count;
    }

    KC_CLONES static int64_t kc_count_outside(const int64_t *v, int64_t n, int64_t base, int bits) {
        const uint64_t mask = kc_mask(bits);
        int64_t count = 0;
        for (int64_t i = 0; i < n; i++) count += (uint64_t)v[i] - (uint64_t)base > mask;
        return count;
    }

    #define KC_SAMPLES 32
    #define KC_TRIM 3

    /* Whether the values beyond the trimmed sample reach much further than the sample does. */
    KC_INLINE int kc_far(uint64_t reach, uint64_t inner) { return reach / 2 > inner; }

    /* Base and bits that make a block of these values smallest, others being exceptions.
       A sample without outliers ends the search: most blocks have none.  With outliers above only,
       the window begins at the least value; else it lies around the median of the sample.
       `whole` says that no value is outside. */
    KC_CLONES static int kc_window(const int64_t *v, int64_t n, int64_t slots, int width, int64_t *base,
        int *whole) {
        int64_t least = v[0], most = v[0], sample[KC_SAMPLES], best_bytes, tail = 0;
        int full, bits, best = -1;
        uint32_t count[4][65];
        for (int64_t i = 1; i < n; i++) {
            least = v[i] < least ? v[i] : least;
            most = v[i] > most ? v[i] : most;
        }
        *base = least;
        *whole = 1;
        full = kc_bit_length((uint64_t)most - (uint64_t)least);
        if (full == 0 || n < KC_SAMPLES) return full;
        for (int k = 0; k < KC_SAMPLES; k++) {
            int64_t x = v[k * n / KC_SAMPLES];
            int j = k;
            for (; j > 0 && sample[j - 1] > x; j--) sample[j] = sample[j - 1];
            sample[j] = x;
        }
        const int64_t low_end = sample[KC_TRIM], high_end = sample[KC_SAMPLES - 1 - KC_TRIM];
        const uint64_t inner = (uint64_t)high_end - (uint64_t)low_end;
        const int below = kc_far((uint64_t)low_end - (uint64_t)least, inner);
        if (!below && !kc_far((uint64_t)most - (uint64_t)high_end, inner)) return full;

        best_bytes = kc_window_bytes(slots, full, 0, width);
        memset(count, 0, sizeof count);
        if (!below) {
            for (int64_t i = 0; i < n; i++) count[i & 3][kc_bit_length((uint64_t)v[i] - (uint64_t)least)]++;
            for (bits = full - 1; bits >= 0; bits--) {
                for (int k = 0; k < 4; k++) tail += count[k][bits + 1];
                if (2 * tail > n) break;
                int64_t bytes = kc_window_bytes(slots, bits, tail, width);
                if (bytes < best_bytes) { best_bytes = bytes; best = bits; }
            }
            *whole = best < 0;
            return best < 0 ? full : best;
        }

        /* Level b holds median - 2**b .. median + 2**b - 1. */
        const int64_t median = sample[KC_SAMPLES / 2];
        int64_t level_bytes = best_bytes;
        int level = -1;
        for (int64_t i = 0; i < n; i++) {
            int64_t d = (int64_t)((uint64_t)v[i] - (uint64_t)median);
            count[i & 3][kc_bit_length((uint64_t)(d ^ (d >> 63)))]++;
        }
        for (bits = 62; bits >= 0; bits--) {
            for (int k = 0; k < 4; k++) tail += count[k][bits + 1];
            if (2 * tail > n) break;
            /* The values inside may need one bit less than the level allows. */
            int64_t bytes = kc_window_bytes(slots, bits, tail, width);
            if (bytes < level_bytes) { level_bytes = bytes; level = bits; }
        }
        if (level < 0) return full;
        const uint64_t reach = (uint64_t)1 << level;
        int64_t low = median, high = median;
        for (int64_t i = 0; i < n; i++) {
            if ((uint64_t)v[i] - (uint64_t)median + reach < 2 * reach) {
                low = v[i] < low ? v[i] : low;
                high = v[i] > high ? v[i] : high;
            }
        }
        bits = kc_bit_length((uint64_t)high - (uint64_t)low);
        if (kc_window_bytes(slots, bits, kc_count_outside(v, n, low, bits), width) >= best_bytes) return full;
        *base = low;
        *whole = 0;
        return bits;
    }

    /* Whether a sample of the steps between neighbours spans fewer bits than the values do. */
    static int kc_deltas_may_pay(const int64_t *v, int64_t n, int bits) {
        int64_t sample[KC_SAMPLES];
        if (n <= KC_SAMPLES) return 1;
        for (int k = 0; k < KC_SAMPLES; k++) {
            const int64_t i = 1 + k * (n - 1) / KC_SAMPLES;
            int64_t x = (int64_t)((uint64_t)v[i] - (uint64_t)v[i - 1]);
            int j = k;
            for (; j > 0 && sample[j - 1] > x; j--) sample[j] = sample[j - 1];
            sample[j] = x;
        }
        return kc_bit_length((uint64_t)sample[KC_SAMPLES - 1 - KC_TRIM] - (uint64_t)sample[KC_TRIM]) < bits;
    }

    /* ---------------------------------------------------------------- decimals */

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
    /* ---------------------------------------------------------------- planes of bits */

    KC_INLINE uint64_t kc_transpose8(uint64_t x) {
        uint64_t t;
        t = (x ^ (x >> 7)) & 0x00AA00AA00AA00AAULL;  x ^= t ^ (t << 7);
        t = (x ^ (x >> 14)) & 0x0000CCCC0000CCCCULL; x ^= t ^ (t << 14);
        t = (x ^ (x >> 28)) & 0x00000000F0F0F0F0ULL; x ^= t ^ (t << 28);
        return x;
    }

    /* Plane b is bit b of every value, (n + 7) / 8 bytes, LSB first. */
    KC_INLINE void kc_shuffle_w(uint8_t *restrict out, const uint8_t *restrict in, int64_t n, int width) {
        const int64_t stride = (n + 7) >> 3;
        for (int64_t g = 0; g < stride; g++) {
            uint8_t cells[8 * 8] = {0};
            memcpy(cells, in + g * 8 * width, (size_t)((n - 8 * g < 8 ? n - 8 * g : 8) * width));
            for (int b = 0; b < width; b++) {
                uint64_t x = 0;
                for (int j = 0; j < 8; j++) x |= (uint64_t)cells[j * width + b] << (8 * j);
                x = kc_transpose8(x);
                for (int j = 0; j < 8; j++) out[(8 * b + j) * stride + g] = (uint8_t)(x >> (8 * j));
            }
        }
    }
    KC_INLINE void kc_unshuffle_w(uint8_t *restrict out, const uint8_t *restrict in, int64_t n, int width) {
        const int64_t stride = (n + 7) >> 3;
        for (int64_t g = 0; g < stride; g++) {
            uint8_t cells[8 * 8];
            for (int b = 0; b < width; b++) {
                uint64_t x = 0;
                for (int j = 0; j < 8; j++) x |= (uint64_t)in[(8 * b + j) * stride + g] << (8 * j);
                x = kc_transpose8(x);
                for (int j = 0; j < 8; j++) cells[j * width + b] = (uint8_t)(x >> (8 * j));
            }
            memcpy(out + g * 8 * width, cells, (size_t)((n - 8 * g < 8 ? n - 8 * g : 8) * width));
        }
    }
    static void kc_shuffle(uint8_t *out, const uint8_t *in, int64_t n, int width) {
        if (width == 8) kc_shuffle_w(out, in, n, 8);
        else kc_shuffle_w(out, in, n, 4);
    }
    static void kc_unshuffle(uint8_t *out, const uint8_t *in, int64_t n, int width) {
        if (width == 8) kc_unshuffle_w(out, in, n, 8);
        else kc_unshuffle_w(out, in, n, 4);
    }
    /* About what LZ4 leaves of planes: a byte that repeats its neighbour is nearly free. */
    static int64_t kc_shuffled_estimate(const uint8_t *planes, int64_t size) {
        int64_t same = 0;
        for (int64_t i = 1; i < size; i++) same += planes[i] == planes[i - 1];
        return size - same + same / 16;
    }

    /* ---------------------------------------------------------------- nulls */

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
    void kc_widen(int64_t* out, const uint8_t* data, int64_t n, int width, int is_signed) noexcept nogil
    int kc_narrow(int64_t* out, const uint8_t* data, int64_t n) noexcept nogil
    void kc_sign_extend(uint8_t* out, const uint8_t* data, int64_t n) noexcept nogil
    void kc_fill(uint8_t* out, int64_t n, int width, uint64_t value) noexcept nogil
    int64_t kc_runs(const int64_t* values, int64_t n) noexcept nogil
    void kc_deltas(int64_t* deltas, const int64_t* values, int64_t n, int width) noexcept nogil
    void kc_sum(uint8_t* out, int64_t n, int width, uint64_t first) noexcept nogil
    int64_t kc_window_bytes(int64_t slots, int bits, int64_t exceptions, int width) noexcept nogil
    int64_t kc_outliers(
        uint16_t* out, const int64_t* values, const uint8_t* bad, int64_t n, int64_t base, int bits
    ) noexcept nogil
    int kc_window(
        const int64_t* values, int64_t n, int64_t slots, int width, int64_t* base, int* whole
    ) noexcept nogil
    int kc_deltas_may_pay(const int64_t* values, int64_t n, int bits) noexcept nogil
    int64_t kc_decimals(
        int64_t* integers, uint8_t* bad, const uint8_t* data, int64_t n, int width, int scale
    ) noexcept nogil
    int kc_pick_scale(const uint8_t* data, int64_t n, int width) noexcept nogil
    void kc_to_floats(uint8_t* out, int64_t n, int width, int scale, int small) noexcept nogil
    void kc_shuffle(uint8_t* out, const uint8_t* data, int64_t n, int width) noexcept nogil
    void kc_unshuffle(uint8_t* out, const uint8_t* data, int64_t n, int width) noexcept nogil
    int64_t kc_shuffled_estimate(const uint8_t* planes, int64_t size) noexcept nogil
    void kc_gather(
        uint8_t* out, const uint8_t* data, const uint8_t* bits, int64_t first, int64_t n, int width
    ) noexcept nogil
    void kc_spread(
        uint8_t* out, const uint8_t* data, const uint8_t* bits, int64_t first, int64_t n, int width
    ) noexcept nogil
