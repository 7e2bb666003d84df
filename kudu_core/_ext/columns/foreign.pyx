"""What buffers of somebody else's must hold before they become columns: offsets, UTF-8, digits.

Arrow's cheap checks look at the ends of a buffer only.  These look at every cell, once, without the GIL:
offsets ascend and stay in the data, text is UTF-8, decimals have no more digits than their type.  A null
cell may hold anything, but its offsets count as everybody's.  Layouts are those of ``columns.pyx``.

Text is looked at sixteen bytes at a time where the machine has SSSE3, elsewhere byte by byte, by a table of
states.  Sources: RFC 3629, section 4 (the syntax); Keiser and Lemire, "Validating UTF-8 In Less Than One
Instruction Per Byte" (2020), for the first; a table with the next state of every state in one word for each
byte, of which a shift takes one (Vognsen), for the other.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

from kudu_core._ext.base.bitmap cimport kc_bit

import numpy as np

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* States are 6 times their number, so that a word of ten has room for every next state. */
    enum {
        KC_TEXT_OK = 0, KC_TEXT_BAD = 6, KC_TEXT_1 = 12, KC_TEXT_2 = 18, KC_TEXT_3 = 24,
        KC_TEXT_E0 = 30, KC_TEXT_ED = 36, KC_TEXT_F0 = 42, KC_TEXT_F4 = 48
    };
    static uint64_t kc_text_steps[256];

    static void kc_text_begin(void) {
        for (unsigned byte = 0; byte < 256; byte++) {
            uint64_t next[9];
            uint64_t word = 0;
            int more = byte >= 0x80 && byte <= 0xBF;
            for (int state = 0; state < 9; state++) next[state] = KC_TEXT_BAD;
            if (byte < 0x80) next[0] = KC_TEXT_OK;
            else if (byte >= 0xC2 && byte <= 0xDF) next[0] = KC_TEXT_1;
            else if (byte == 0xE0) next[0] = KC_TEXT_E0;
            else if (byte == 0xED) next[0] = KC_TEXT_ED;
            else if (byte >= 0xE1 && byte <= 0xEF) next[0] = KC_TEXT_2;
            else if (byte == 0xF0) next[0] = KC_TEXT_F0;
            else if (byte >= 0xF1 && byte <= 0xF3) next[0] = KC_TEXT_3;
            else if (byte == 0xF4) next[0] = KC_TEXT_F4;
            if (more) {
                next[KC_TEXT_1 / 6] = KC_TEXT_OK;
                next[KC_TEXT_2 / 6] = KC_TEXT_1;
                next[KC_TEXT_3 / 6] = KC_TEXT_2;
                if (byte >= 0xA0) next[KC_TEXT_E0 / 6] = KC_TEXT_1;
                else next[KC_TEXT_ED / 6] = KC_TEXT_1;
                if (byte >= 0x90) next[KC_TEXT_F0 / 6] = KC_TEXT_2;
                else next[KC_TEXT_F4 / 6] = KC_TEXT_2;
            }
            for (int state = 0; state < 9; state++) word |= next[state] << (6 * state);
            kc_text_steps[byte] = word;
        }
    }

    static int kc_ascii(const uint8_t *data, int64_t n) {
        int64_t i = 0;
        uint8_t rest = 0;
        while (i + 512 <= n) {      /* a text that is none is found out soon */
            uint64_t any[8] = {0, 0, 0, 0, 0, 0, 0, 0}, words[8];
            for (int k = 0; k < 512; k += 64, i += 64) {
                memcpy(words, data + i, 64);
                for (int j = 0; j < 8; j++) any[j] |= words[j];
            }
            for (int j = 1; j < 8; j++) any[0] |= any[j];
            if (any[0] & 0x8080808080808080ULL) return 0;
        }
        for (; i < n; i++) rest |= data[i];
        return !(rest & 0x80);
    }

    static int kc_utf8_portable(const uint8_t *data, int64_t n) {
        uint64_t state = KC_TEXT_OK;
        int64_t i = 0;
        for (; i + 8 <= n; i += 8) {
            uint64_t word;
            memcpy(&word, data + i, 8);
            if ((state & 63) == KC_TEXT_OK && !(word & 0x8080808080808080ULL)) continue;
            for (int k = 0; k < 8; k++) state = kc_text_steps[data[i + k]] >> (state & 63);
        }
        for (; i < n; i++) state = kc_text_steps[data[i]] >> (state & 63);
        return (state & 63) == KC_TEXT_OK;
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    /* What may be wrong with two bytes that follow each other, a bit each: a fault is what the halves of the
       first byte and the first half of the second all allow. */
    enum {
        KC_SHORT = 1, KC_LONG = 2, KC_OVER3 = 4, KC_LARGE = 8, KC_SURROGATE = 16, KC_OVER2 = 32,
        KC_OVER4 = 64 /* and what is too large by its first byte */, KC_TWO = 128 /* continue one */,
        KC_ANY = KC_SHORT | KC_LONG | KC_TWO, KC_HIGH = KC_ANY | KC_LARGE | KC_OVER4
    };
    __attribute__((target("ssse3")))
    static int kc_utf8_fast(const uint8_t *data, int64_t n) {
        const __m128i first_high = _mm_setr_epi8(
            KC_LONG, KC_LONG, KC_LONG, KC_LONG, KC_LONG, KC_LONG, KC_LONG, KC_LONG,
            (char)KC_TWO, (char)KC_TWO, (char)KC_TWO, (char)KC_TWO, KC_SHORT | KC_OVER2, KC_SHORT,
            KC_SHORT | KC_OVER3 | KC_SURROGATE, KC_SHORT | KC_LARGE | KC_OVER4);
        const __m128i first_low = _mm_setr_epi8(
            (char)(KC_ANY | KC_OVER3 | KC_OVER2 | KC_OVER4), (char)(KC_ANY | KC_OVER2), (char)KC_ANY,
            (char)KC_ANY, (char)(KC_ANY | KC_LARGE), (char)KC_HIGH, (char)KC_HIGH, (char)KC_HIGH,
            (char)KC_HIGH, (char)KC_HIGH, (char)KC_HIGH, (char)KC_HIGH, (char)KC_HIGH,
            (char)(KC_HIGH | KC_SURROGATE), (char)KC_HIGH, (char)KC_HIGH);
        const __m128i second_high = _mm_setr_epi8(
            KC_SHORT, KC_SHORT, KC_SHORT, KC_SHORT, KC_SHORT, KC_SHORT, KC_SHORT, KC_SHORT,
            (char)(KC_LONG | KC_OVER2 | KC_TWO | KC_OVER3 | KC_OVER4),
            (char)(KC_LONG | KC_OVER2 | KC_TWO | KC_OVER3 | KC_LARGE),
            (char)(KC_LONG | KC_OVER2 | KC_TWO | KC_SURROGATE | KC_LARGE),
            (char)(KC_LONG | KC_OVER2 | KC_TWO | KC_SURROGATE | KC_LARGE),
            KC_SHORT, KC_SHORT, KC_SHORT, KC_SHORT);
        const __m128i nibble = _mm_set1_epi8(15), top = _mm_set1_epi8((char)0x80);
        const __m128i last = _mm_setr_epi8(
            -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, (char)0xEF, (char)0xDF, (char)0xBF);
        __m128i before = _mm_setzero_si128(), open = before, wrong = before;
        for (int64_t i = 0; i < n; i += 16) {
            __m128i now;
            if (n - i >= 16) {
                now = _mm_loadu_si128((const __m128i *)(data + i));
            } else {
                uint8_t rest[16] = {0};
                memcpy(rest, data + i, (size_t)(n - i));
                now = _mm_loadu_si128((const __m128i *)rest);
            }
            if (!_mm_movemask_epi8(now)) {
                wrong = _mm_or_si128(wrong, open);
                open = _mm_setzero_si128();
            } else {
                __m128i one = _mm_alignr_epi8(now, before, 15);
                __m128i fault = _mm_and_si128(
                    _mm_and_si128(
                        _mm_shuffle_epi8(first_high, _mm_and_si128(_mm_srli_epi16(one, 4), nibble)),
                        _mm_shuffle_epi8(first_low, _mm_and_si128(one, nibble))),
                    _mm_shuffle_epi8(second_high, _mm_and_si128(_mm_srli_epi16(now, 4), nibble)));
                /* The third byte of three and the third and fourth of four must continue one. */
                __m128i third = _mm_subs_epu8(_mm_alignr_epi8(now, before, 14), _mm_set1_epi8(0x60));
                __m128i fourth = _mm_subs_epu8(_mm_alignr_epi8(now, before, 13), _mm_set1_epi8(0x70));
                __m128i must = _mm_and_si128(_mm_or_si128(third, fourth), top);
                wrong = _mm_or_si128(wrong, _mm_xor_si128(must, fault));
                open = _mm_subs_epu8(now, last);
            }
            before = now;
        }
        wrong = _mm_or_si128(wrong, open);
        return _mm_movemask_epi8(_mm_cmpeq_epi8(wrong, _mm_setzero_si128())) == 0xFFFF;
    }
    static int kc_utf8_has_fast(void) { __builtin_cpu_init(); return __builtin_cpu_supports("ssse3"); }
    #else
    static int kc_utf8_fast(const uint8_t *data, int64_t n) { return kc_utf8_portable(data, n); }
    static int kc_utf8_has_fast(void) { return 0; }
    #endif
    static int kc_utf8_chosen = 0;

    static int kc_utf8(const uint8_t *data, int64_t n) {
        return kc_utf8_chosen && n >= 16 ? kc_utf8_fast(data, n) : kc_utf8_portable(data, n);
    }

    /* Whether n + 1 offsets ascend from 0 or above to `size` at most. */
    static int kc_ascend(const int32_t *offsets, int64_t n, int64_t size) {
        int descends = 0;
        for (int64_t i = 0; i < n; i++) descends |= offsets[i + 1] < offsets[i];
        return !descends && offsets[0] >= 0 && offsets[n] <= size;
    }

    /* Whether text that is UTF-8 as a whole is so cell by cell: none begins inside a character. */
    static int kc_cut_well(const uint8_t *data, const int32_t *offsets, int64_t n) {
        int inside = 0;
        int32_t end = offsets[n];
        for (int64_t i = 0; i < n; i++) {
            int32_t at = offsets[i];
            if (at < end) inside |= (data[at] & 0xC0) == 0x80;
        }
        return !inside;
    }

    /* The first of n views that is not null and does not lie in its part; -1: none. */
    static int64_t kc_bad_view(const uint8_t *views, int64_t n, const uintptr_t *parts, const int64_t *sizes,
                               int64_t part_count, const uint8_t *valid) {
        for (int64_t i = 0; i < n; i++) {
            int32_t words[4];
            memcpy(words, views + 16 * i, 16);
            if (words[0] >= 0 && words[0] <= 12) continue;     /* the text is in the view */
            if (valid && !((valid[i >> 3] >> (i & 7)) & 1)) continue;
            if (words[0] < 0 || words[2] < 0 || words[2] >= part_count || words[3] < 0) return i;
            if ((int64_t)words[3] + words[0] > sizes[words[2]]) return i;
            if (memcmp((const uint8_t *)parts[words[2]] + words[3], words + 1, 4)) return i;
        }
        return -1;
    }

    /* The first of n values that has more digits and is not null; -1: none. */
    static int64_t kc_too_long(const uint8_t *values, int64_t n, int digits, const uint8_t *valid) {
        unsigned __int128 limit = 1, low, high, value;
        int wrong = 0;
        for (int k = 0; k < digits; k++) limit *= 10;
        low = limit - 1;
        high = 2 * low;
        for (int64_t i = 0; i < n; i++) {
            memcpy(&value, values + 16 * i, 16);
            wrong |= value + low > high;
        }
        if (!wrong) return -1;
        for (int64_t i = 0; i < n; i++) {
            memcpy(&value, values + 16 * i, 16);
            if (value + low > high && (!valid || ((valid[i >> 3] >> (i & 7)) & 1))) return i;
        }
        return -1;
    }
    """
    void kc_text_begin() noexcept nogil
    int kc_utf8_has_fast() noexcept nogil
    int kc_utf8_chosen
    int kc_ascii(const uint8_t* data, int64_t n) noexcept nogil
    int kc_utf8(const uint8_t* data, int64_t n) noexcept nogil
    int kc_ascend(const int32_t* offsets, int64_t n, int64_t size) noexcept nogil
    int kc_cut_well(const uint8_t* data, const int32_t* offsets, int64_t n) noexcept nogil
    int64_t kc_bad_view(
        const uint8_t* views, int64_t n, const uintptr_t* parts, const int64_t* sizes, int64_t part_count,
        const uint8_t* valid
    ) noexcept nogil
    int64_t kc_too_long(const uint8_t* values, int64_t n, int digits, const uint8_t* valid) noexcept nogil

kc_text_begin()
kc_utf8_chosen = kc_utf8_has_fast()

OFFSETS = 1
"""A cell's offsets descend or leave the data."""
TEXT = 2
"""A cell is not UTF-8."""

cdef:
    int BAD_OFFSETS = OFFSETS
    int BAD_TEXT = TEXT
    int64_t BLOCK_ROWS = 4096           # offsets and text of so many are looked at while they are in cache


cdef int64_t _bad_offsets(const int32_t* offsets, int64_t n, int64_t size) noexcept nogil:
    """The first row whose offsets descend or leave the data; there is one."""
    cdef int64_t i = 0
    while i < n - 1 and 0 <= offsets[i] <= offsets[i + 1] <= size:
        i += 1
    return i


cdef int64_t _bad_text(
    const uint8_t* data, const int32_t* offsets, int64_t first, int64_t last, const uint8_t* valid
) noexcept nogil:
    """The first of rows ``first`` to before ``last`` that is not null and not UTF-8; -1: none."""
    cdef int64_t i
    for i in range(first, last):
        if valid != NULL and not kc_bit(valid, i):
            continue
        if not kc_utf8(data + offsets[i], offsets[i + 1] - offsets[i]):
            return i
    return -1


cdef int64_t _variable(
    const uint8_t* data, int64_t size, const int32_t* offsets, int64_t n, const uint8_t* valid, bint text,
    int* what
) noexcept nogil:
    cdef int64_t lower = 0, upper, bytes_, row
    while lower < n:
        upper = lower + BLOCK_ROWS if n - lower > BLOCK_ROWS else n
        if not kc_ascend(offsets + lower, upper - lower, size):
            what[0] = BAD_OFFSETS
            return lower + _bad_offsets(offsets + lower, upper - lower, size)
        bytes_ = offsets[upper] - offsets[lower]
        if text and bytes_ and not kc_ascii(data + offsets[lower], bytes_):
            if not (
                kc_utf8(data + offsets[lower], bytes_)
                and kc_cut_well(data, offsets + lower, upper - lower)
            ):
                row = _bad_text(data, offsets, lower, upper, valid)
                if row >= 0:
                    what[0] = BAD_TEXT
                    return row
        lower = upper
    return -1


def _choose(bint fast):
    """For tests: look at sixteen bytes at a time (where the machine can) or at one; return what is used."""
    global kc_utf8_chosen
    kc_utf8_chosen = fast and kc_utf8_has_fast()
    return bool(kc_utf8_chosen)


cdef int _check_valid(const uint8_t[::1] valid, Py_ssize_t n) except -1:
    if valid is not None and valid.shape[0] < (n + 7) >> 3:
        raise ValueError(f"a bitmap of {valid.shape[0]} bytes has no {n} bits")
    return 0


def variable(
    const uint8_t[::1] data not None, const int32_t[::1] offsets not None, const uint8_t[::1] valid, bint text
):
    """What is wrong with a variable column: ``(row, OFFSETS or TEXT)`` of the first row at fault, or None.

    Of text only cells that are not null are looked at.  ValueError for a bitmap that is too short.
    """
    cdef:
        Py_ssize_t n = offsets.shape[0] - 1
        int64_t row
        int what = 0
        const uint8_t* bits = NULL
        const uint8_t* first = NULL
    if n <= 0:
        return None
    _check_valid(valid, n)
    if valid is not None:
        bits = &valid[0]
    if data.shape[0]:
        first = &data[0]
    with nogil:
        row = _variable(first, data.shape[0], &offsets[0], n, bits, text, &what)
    return None if row < 0 else (row, what)


def views(const uint8_t[::1] cells not None, parts not None, const uint8_t[::1] valid):
    """The first row of a column of views that lies outside its part, or begins otherwise than the view says.

    ``cells``: 16 bytes a row, as in Arrow; ``parts``: the buffers that they point into.  Null rows may hold
    anything; -1 where there is no such row.  ValueError for lengths that do not fit.
    """
    cdef:
        Py_ssize_t n = cells.shape[0] // 16, count = len(parts), i
        int64_t row
        const uint8_t[::1] part
        const uint8_t* bits = NULL
        uintptr_t[::1] first
        int64_t[::1] sizes
    if cells.shape[0] % 16:
        raise ValueError(f"{cells.shape[0]} bytes are no whole number of views")
    if n == 0:
        return -1
    _check_valid(valid, n)
    if valid is not None:
        bits = &valid[0]
    first, sizes = np.zeros(count + 1, np.uintp), np.zeros(count + 1, np.int64)
    for i in range(count):
        part = parts[i]
        sizes[i] = part.shape[0]
        if part.shape[0]:
            first[i] = <uintptr_t>&part[0]
    with nogil:
        row = kc_bad_view(&cells[0], n, &first[0], &sizes[0], count, bits)
    return row


def digits(const uint8_t[::1] values not None, int precision, const uint8_t[::1] valid):
    """The first of 16-byte decimals that has more digits than ``precision`` and is not null; -1: none.

    ValueError for a precision outside 1 to 38, or lengths that do not fit.
    """
    cdef:
        Py_ssize_t n = values.shape[0] // 16
        int64_t row
        const uint8_t* bits = NULL
    if precision < 1 or precision > 38:
        raise ValueError(f"a precision of {precision}")
    if values.shape[0] % 16:
        raise ValueError(f"{values.shape[0]} bytes are no whole number of decimals")
    if n == 0:
        return -1
    _check_valid(valid, n)
    if valid is not None:
        bits = &valid[0]
    with nogil:
        row = kc_too_long(&values[0], n, precision, bits)
    return row
