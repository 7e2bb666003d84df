# Planes of bits: bit b of every value, one plane after the other.
from libc.stdint cimport int64_t, uint8_t

from kudu_core._ext.base.bitpack cimport kc_mask     # its C text comes first: types and KC_INLINE

cdef extern from *:
    """
    #ifndef KUDU_CORE_PLANES
    #define KUDU_CORE_PLANES
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
    #endif
    """
    void kc_shuffle(uint8_t* out, const uint8_t* data, int64_t n, int width) noexcept nogil
    void kc_unshuffle(uint8_t* out, const uint8_t* data, int64_t n, int width) noexcept nogil
    int64_t kc_shuffled_estimate(const uint8_t* planes, int64_t size) noexcept nogil
