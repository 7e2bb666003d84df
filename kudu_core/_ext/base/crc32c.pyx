"""CRC-32C (Castagnoli) of bytes.

With SSE 4.2, and with the CRC32 extension of ARMv8, three streams run interleaved, since the instruction
has a latency of three cycles and a throughput of one; their results are joined by multiplying with x^(8n)
modulo the polynomial.  Elsewhere eight tables of 256 entries.  Chosen at run time.
Source: RFC 3720 for the polynomial.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define KC_POLY 0x82f63b78u
    #define KC_LONG 8192
    #define KC_SHORT 256
    static uint32_t kc_table[8][256];
    static uint32_t kc_long[4][256], kc_short[4][256];

    static uint32_t kc_gf2_times(const uint32_t *mat, uint32_t vec) {
        uint32_t sum = 0;
        while (vec) { if (vec & 1) sum ^= *mat; vec >>= 1; mat++; }
        return sum;
    }
    static void kc_gf2_square(uint32_t *square, const uint32_t *mat) {
        for (int n = 0; n < 32; n++) square[n] = kc_gf2_times(mat, mat[n]);
    }
    /* Table that appends len (a power of two) zero bytes to a CRC. */
    static void kc_zeros(uint32_t zeros[4][256], size_t len) {
        uint32_t even[32], odd[32], row = 1;
        odd[0] = KC_POLY;
        for (int n = 1; n < 32; n++) { odd[n] = row; row <<= 1; }
        kc_gf2_square(even, odd);
        kc_gf2_square(odd, even);
        const uint32_t *op = odd;
        for (;;) {
            kc_gf2_square(even, odd); op = even; len >>= 1; if (len == 0) break;
            kc_gf2_square(odd, even); op = odd; len >>= 1; if (len == 0) break;
        }
        for (uint32_t n = 0; n < 256; n++)
            for (int k = 0; k < 4; k++) zeros[k][n] = kc_gf2_times(op, n << (8 * k));
    }
    static inline uint32_t kc_shift(uint32_t zeros[4][256], uint32_t crc) {
        return zeros[0][crc & 0xff] ^ zeros[1][(crc >> 8) & 0xff]
             ^ zeros[2][(crc >> 16) & 0xff] ^ zeros[3][crc >> 24];
    }
    static void kc_crc_init(void) {
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t crc = n;
            for (int k = 0; k < 8; k++) crc = crc & 1 ? (crc >> 1) ^ KC_POLY : crc >> 1;
            kc_table[0][n] = crc;
        }
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t crc = kc_table[0][n];
            for (int k = 1; k < 8; k++) { crc = kc_table[0][crc & 0xff] ^ (crc >> 8); kc_table[k][n] = crc; }
        }
        kc_zeros(kc_long, KC_LONG);
        kc_zeros(kc_short, KC_SHORT);
    }
    static uint32_t kc_crc_portable(uint32_t crc, const uint8_t *p, size_t len) {
        crc = ~crc;
        while (len >= 8) {
            uint64_t w; memcpy(&w, p, 8); w ^= crc;
            crc = kc_table[7][w & 0xff] ^ kc_table[6][(w >> 8) & 0xff]
                ^ kc_table[5][(w >> 16) & 0xff] ^ kc_table[4][(w >> 24) & 0xff]
                ^ kc_table[3][(w >> 32) & 0xff] ^ kc_table[2][(w >> 40) & 0xff]
                ^ kc_table[1][(w >> 48) & 0xff] ^ kc_table[0][w >> 56];
            p += 8; len -= 8;
        }
        while (len--) crc = kc_table[0][(crc ^ *p++) & 0xff] ^ (crc >> 8);
        return ~crc;
    }
    #if defined(__x86_64__) && defined(__GNUC__)
    #define KC_CRC_TARGET __attribute__((target("sse4.2")))
    #define KC_CRC_8(crc, word) __builtin_ia32_crc32di(crc, word)
    #define KC_CRC_1(crc, byte) __builtin_ia32_crc32qi((uint32_t)(crc), byte)
    static int kc_crc_has_fast(void) { __builtin_cpu_init(); return __builtin_cpu_supports("sse4.2"); }
    #elif defined(__aarch64__) && defined(__GNUC__) && defined(__AARCH64EL__)
    #include <arm_acle.h>
    #if defined(__clang__)
    #define KC_CRC_TARGET __attribute__((target("crc")))
    #else
    #define KC_CRC_TARGET __attribute__((target("+crc")))
    #endif
    #define KC_CRC_8(crc, word) __crc32cd((uint32_t)(crc), word)
    #define KC_CRC_1(crc, byte) __crc32cb((uint32_t)(crc), byte)
    #if defined(__linux__)
    #include <sys/auxv.h>
    static int kc_crc_has_fast(void) { return (getauxval(AT_HWCAP) >> 7) & 1; }  /* HWCAP_CRC32 */
    #else
    static int kc_crc_has_fast(void) { return 1; }  /* every ARM processor of Apple's has it */
    #endif
    #endif
    #if defined(KC_CRC_TARGET)
    KC_CRC_TARGET
    static uint32_t kc_crc_fast(uint32_t value, const uint8_t *p, size_t len) {
        uint64_t c0 = (uint32_t)~value, c1, c2, w;
        size_t step; int big;
        for (big = 1; big >= 0; big--) {
            step = big ? KC_LONG : KC_SHORT;
            while (len >= 3 * step) {
                const uint8_t *end = p + step;
                c1 = 0; c2 = 0;
                do {
                    uint64_t a, b, c;
                    memcpy(&a, p, 8); memcpy(&b, p + step, 8); memcpy(&c, p + 2 * step, 8);
                    c0 = KC_CRC_8(c0, a);
                    c1 = KC_CRC_8(c1, b);
                    c2 = KC_CRC_8(c2, c);
                    p += 8;
                } while (p < end);
                c0 = (big ? kc_shift(kc_long, (uint32_t)c0) : kc_shift(kc_short, (uint32_t)c0)) ^ c1;
                c0 = (big ? kc_shift(kc_long, (uint32_t)c0) : kc_shift(kc_short, (uint32_t)c0)) ^ c2;
                p += 2 * step; len -= 3 * step;
            }
        }
        while (len >= 8) { memcpy(&w, p, 8); c0 = KC_CRC_8(c0, w); p += 8; len -= 8; }
        while (len--) c0 = KC_CRC_1(c0, *p++);
        return ~(uint32_t)c0;
    }
    #else
    static uint32_t kc_crc_fast(uint32_t value, const uint8_t *p, size_t len) {
        return kc_crc_portable(value, p, len);
    }
    static int kc_crc_has_fast(void) { return 0; }
    #endif
    """
    void kc_crc_init() noexcept nogil
    uint32_t kc_crc_portable(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil
    uint32_t kc_crc_fast(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil
    int kc_crc_has_fast() noexcept nogil

kc_crc_init()
cdef bint _fast = kc_crc_has_fast()

cdef enum:
    RELEASE_BYTES = 4096    # from here on the GIL is worth its handing over


cdef uint32_t crc32c_of(uint32_t crc, const uint8_t* first, size_t size) noexcept nogil:
    return kc_crc_fast(crc, first, size) if _fast else kc_crc_portable(crc, first, size)


def _choose(bint fast):
    """For tests: use the instruction (where there is one) or the tables; return what is used."""
    global _fast
    _fast = fast and kc_crc_has_fast()
    return _fast


def crc32c(data not None, value=0):
    """Return the CRC-32C of what ``value`` is the CRC of, followed by ``data``.

    Parameters
    ----------
    data : any object with contiguous bytes, whatever their format (an Arrow buffer, an array)
    value : int, the CRC of what came before

    Raises
    ------
    TypeError, BufferError
        ``data`` has no buffer, or not a contiguous one.
    OverflowError
        ``value`` is no 32-bit number.
    """
    cdef:
        uint32_t crc = value
        Py_buffer buffer
        const uint8_t* first
        size_t size
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    first = <const uint8_t*>buffer.buf
    size = <size_t>buffer.len
    if size >= RELEASE_BYTES:
        with nogil:
            crc = crc32c_of(crc, first, size)
    elif size:
        crc = crc32c_of(crc, first, size)
    PyBuffer_Release(&buffer)
    return crc
