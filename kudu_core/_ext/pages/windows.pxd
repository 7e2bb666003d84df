# The frame of reference that makes a mini-block smallest: its base and bits, and what lies outside.
from libc.stdint cimport int64_t, uint8_t, uint16_t

from kudu_core._ext.base.bitpack cimport kc_mask     # its C text comes first: types and KC_INLINE

cdef extern from *:
    """
    #ifndef KUDU_CORE_WINDOWS
    #define KUDU_CORE_WINDOWS
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
    #endif
    """
    int64_t kc_window_bytes(int64_t slots, int bits, int64_t exceptions, int width) noexcept nogil
    int64_t kc_outliers(
        uint16_t* out, const int64_t* values, const uint8_t* bad, int64_t n, int64_t base, int bits
    ) noexcept nogil
    int kc_window(
        const int64_t* values, int64_t n, int64_t slots, int width, int64_t* base, int* whole
    ) noexcept nogil
    int kc_deltas_may_pay(const int64_t* values, int64_t n, int bits) noexcept nogil
