"""Dictionaries of string columns: distinct words, sorted by their bytes, and a code a row.

Codes keep the order of the words, so a range of words is a range of codes.  Null cells have code 0.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.base.status cimport BAD_VALUE, raise_status

import os

import numpy as np

cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>

    static inline uint64_t kc_read8(const uint8_t *p) { uint64_t x; memcpy(&x, p, 8); return x; }
    static inline uint64_t kc_read4(const uint8_t *p) { uint32_t x; memcpy(&x, p, 4); return x; }
    static inline uint64_t kc_mix(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }

    /* After wyhash (Wang Yi, public domain); never stored. */
    static inline uint64_t kc_word_hash(const uint8_t *p, int64_t size, uint64_t seed) {
        const uint64_t k = 0xa0761d6478bd642fULL;
        uint64_t a, b;
        if (size <= 16) {
            if (size >= 4) {
                const int64_t skip = (size >> 3) << 2;
                a = kc_read4(p) << 32 | kc_read4(p + skip);
                b = kc_read4(p + size - 4) << 32 | kc_read4(p + size - 4 - skip);
            } else if (size > 0) {
                a = (uint64_t)p[0] << 16 | (uint64_t)p[size >> 1] << 8 | p[size - 1];
                b = 0;
            } else a = b = 0;
        } else {
            int64_t left = size;
            for (; left > 16; left -= 16, p += 16)
                seed = kc_mix(kc_read8(p) ^ k, kc_read8(p + 8) ^ seed);
            a = kc_read8(p + left - 16);
            b = kc_read8(p + left - 8);
        }
        return kc_mix(k ^ (uint64_t)size, kc_mix(a ^ k, b ^ seed));
    }

    typedef struct {
        uint64_t prefix;        /* the first 8 bytes, big-endian, padded with zeros */
        const uint8_t *start;
        int64_t size;
        uint32_t id;            /* in order of first appearance */
    } kc_word;

    static inline uint64_t kc_word_prefix(const uint8_t *p, int64_t size) {
        uint64_t x = 0;
        memcpy(&x, p, (size_t)(size < 8 ? size : 8));
        return __builtin_bswap64(x);
    }
    static int kc_word_order(const void *left, const void *right) {
        const kc_word *a = (const kc_word *)left, *b = (const kc_word *)right;
        if (a->prefix != b->prefix) return a->prefix < b->prefix ? -1 : 1;
        int order = memcmp(a->start, b->start, (size_t)(a->size < b->size ? a->size : b->size));
        return order ? order : (a->size > b->size) - (a->size < b->size);
    }
    static void kc_sort_words(kc_word *words, int64_t count) {
        qsort(words, (size_t)count, sizeof *words, kc_word_order);
    }
    """
    uint64_t kc_word_hash(const uint8_t* p, int64_t size, uint64_t seed) noexcept nogil
    uint64_t kc_word_prefix(const uint8_t* p, int64_t size) noexcept nogil
    ctypedef struct kc_word:
        uint64_t prefix
        const uint8_t* start
        int64_t size
        uint32_t id
    void kc_sort_words(kc_word* words, int64_t count) noexcept nogil

cdef:
    int64_t MAX_DATA_BYTES = 0x7FFFFFFF         # what an int32 offset can address
    uint64_t SEED = int.from_bytes(os.urandom(8), "little")     # against chosen collisions
    int64_t TOO_LARGE = -1
    int64_t BAD_OFFSETS = -2
    int SLOT = 16                               # bytes a short word has in the copy of dictionary_expand


cdef int64_t _collect(
    const int32_t[::1] offsets,
    const uint8_t* data,
    int64_t data_bytes,
    const uint8_t* bits,
    uint64_t[::1] slots,
    kc_word* words,
    uint32_t[::1] ids,
    int64_t max_words,
    int64_t max_bytes,
) noexcept nogil:
    """Give each row the number of its word in order of appearance; return how many words.

    A slot holds the upper half of the word's hash and, below it, its number + 1; 0 is free.
    """
    cdef:
        int64_t i, begin, end, size, count = 0, total = 0
        int64_t before_begin = 0, before_size = -1
        uint32_t before = 0, number
        uint64_t hash, mask = <uint64_t>slots.shape[0] - 1, slot
        const uint8_t* p
    for i in range(offsets.shape[0] - 1):
        ids[i] = 0
        begin = offsets[i]
        end = offsets[i + 1]
        if begin < 0 or end < begin or end > data_bytes:
            return BAD_OFFSETS
        if bits != NULL and not kc_bit(bits, i):
            continue
        size = end - begin
        p = data + begin
        if size == before_size and memcmp(p, data + before_begin, <size_t>size) == 0:
            ids[i] = before     # runs are common, and cheap
            continue
        hash = kc_word_hash(p, size, SEED)
        slot = hash & mask
        while True:
            number = <uint32_t>slots[slot]
            if number == 0:
                if count == max_words or total + size > max_bytes:
                    return TOO_LARGE
                words[count].start = p
                words[count].size = size
                words[count].id = <uint32_t>count
                words[count].prefix = kc_word_prefix(p, size)
                total += size
                count += 1
                number = <uint32_t>count
                slots[slot] = (hash >> 32) << 32 | number
                break
            if (
                slots[slot] >> 32 == hash >> 32
                and words[number - 1].size == size
                and memcmp(words[number - 1].start, p, <size_t>size) == 0
            ):
                break
            slot = (slot + 1) & mask
        before = number - 1
        before_begin = begin
        before_size = size
        ids[i] = before
    return count


ctypedef fused code_t:
    uint8_t
    uint16_t
    uint32_t


cdef void _recode(
    code_t[::1] codes, const uint32_t[::1] ids, const uint32_t[::1] ranks, const uint8_t* bits
) noexcept nogil:
    cdef int64_t i
    for i in range(ids.shape[0]):
        codes[i] = <code_t>ranks[ids[i]]
    if bits != NULL:
        for i in range(ids.shape[0]):
            if not kc_bit(bits, i):
                codes[i] = 0


cdef void _write_words(
    const kc_word* words, int64_t count, int32_t[::1] offsets, uint8_t* out, uint32_t[::1] ranks
) noexcept nogil:
    """``words`` are sorted.  The size of ``out`` is that of all words."""
    cdef int64_t k, end = 0
    offsets[0] = 0
    for k in range(count):
        ranks[words[k].id] = <uint32_t>k
        if words[k].size:
            memcpy(out + end, words[k].start, <size_t>words[k].size)
        end += words[k].size
        offsets[k + 1] = <int32_t>end


def dictionary_build(
    const int32_t[::1] offsets not None,
    const uint8_t[::1] data not None,
    const uint8_t[::1] validity,
    Py_ssize_t max_words,
    Py_ssize_t max_bytes=0x7FFFFFFF,
):
    """Return ``(codes, word_offsets, word_data)``, or None for more than ``max_words`` or ``max_bytes``.

    ``codes`` is a uint8, uint16 or uint32 array, the narrowest that holds the number of words - 1;
    ``word_offsets`` is int32 (words + 1).  Raises ValueError for offsets that descend or leave the
    data, or a bitmap that is too short.
    """
    cdef:
        Py_ssize_t rows = offsets.shape[0] - 1, room, total = 0, k
        int64_t count
        const uint8_t* bits = NULL
        const uint8_t* first = NULL
        uint64_t[::1] slots
        uint8_t[::1] word_room
        kc_word* words
        uint32_t[::1] ids
        uint32_t[::1] ranks
        int32_t[::1] word_offsets
        uint8_t[::1] out
        uint8_t* out_first = NULL
        uint8_t[::1] codes8
        uint16_t[::1] codes16
        uint32_t[::1] codes32
    if rows < 0:
        raise ValueError("offsets of a column have at least one entry")
    if max_words < 0 or max_words > 0x7FFFFFFF or max_bytes < 0:
        raise ValueError(f"a dictionary of at most {max_words} words and {max_bytes} bytes")
    if validity is not None:
        if validity.shape[0] < (rows + 7) >> 3:
            raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {rows} bits")
        if rows:
            bits = &validity[0]
    if data.shape[0]:
        first = &data[0]
    max_bytes = min(max_bytes, MAX_DATA_BYTES)
    room = min(max_words, rows) + 1
    slots = np.zeros(1 << (2 * room).bit_length(), np.uint64)
    word_room = np.empty(room * sizeof(kc_word), np.uint8)
    words = <kc_word*>&word_room[0]
    ids = np.empty(rows, np.uint32)
    with nogil:
        count = _collect(offsets, first, data.shape[0], bits, slots, words, ids, max_words, max_bytes)
        if count > 0:
            kc_sort_words(words, count)
    if count == BAD_OFFSETS:
        raise ValueError("offsets descend or lie outside the data")
    if count == TOO_LARGE:
        return None
    for k in range(count):
        total += words[k].size
    result_offsets = np.zeros(count + 1, np.int32)
    result_data = np.empty(total, np.uint8)
    ranks = np.zeros(count + 1, np.uint32)
    codes = np.empty(rows, np.uint8 if count <= 1 << 8 else np.uint16 if count <= 1 << 16 else np.uint32)
    word_offsets = result_offsets
    out = result_data
    if total:
        out_first = &out[0]
    if count <= 1 << 8:
        codes8 = codes
    elif count <= 1 << 16:
        codes16 = codes
    else:
        codes32 = codes
    with nogil:
        _write_words(words, count, word_offsets, out_first, ranks)
        if count <= 1 << 8:
            _recode(codes8, ids, ranks, bits)
        elif count <= 1 << 16:
            _recode(codes16, ids, ranks, bits)
        else:
            _recode(codes32, ids, ranks, bits)
    return codes, result_offsets, result_data


# -------------------------------------------------------------------------------------- expanding

cdef inline int64_t _code(const uint8_t* codes, int64_t i, int width) noexcept nogil:
    cdef uint32_t code = 0
    if width == 1:
        return codes[i]
    if width == 2:
        memcpy(&code, codes + 2 * i, 2)
    else:
        memcpy(&code, codes + 4 * i, 4)
    return code


cdef int64_t _place(
    const uint8_t* codes,
    int width,
    int64_t n,
    const uint8_t* bits,
    const int32_t[::1] word_offsets,
    int32_t* offsets,
    int64_t* bad,
) noexcept nogil:
    """Write the offsets of the result; return its bytes, or -1 with ``bad`` set to the row."""
    cdef:
        int64_t i, code, total = 0, words = word_offsets.shape[0] - 1
    offsets[0] = 0
    for i in range(n):
        if bits == NULL or kc_bit(bits, i):
            code = _code(codes, i, width)
            if code >= words:
                bad[0] = i
                return -1
            total += word_offsets[code + 1] - word_offsets[code]
        offsets[i + 1] = <int32_t>total     # wraps only where the total is refused
    return total


cdef void _expand_short(
    const uint8_t* codes, int width, int64_t n, const int32_t* offsets, const uint8_t* slots, uint8_t* out
) noexcept nogil:
    """Words in slots of 16 bytes; all but the last rows are written with one store of 16.

    What a store writes past its cell, later cells write over, so ``out`` ends before it may not.
    """
    cdef int64_t i, code, size, end = offsets[n]
    for i in range(n):
        size = offsets[i + 1] - offsets[i]
        code = _code(codes, i, width) if size else 0        # a null cell's code is not checked
        if offsets[i] + SLOT <= end:
            memcpy(out + offsets[i], slots + SLOT * code, 16)
        elif size:
            memcpy(out + offsets[i], slots + SLOT * code, <size_t>size)


cdef void _expand_any(
    const uint8_t* codes,
    int width,
    int64_t n,
    const int32_t* offsets,
    const int32_t* word_offsets,
    const uint8_t* words,
    uint8_t* out,
) noexcept nogil:
    cdef int64_t i, size
    for i in range(n):
        size = offsets[i + 1] - offsets[i]
        if size:
            memcpy(out + offsets[i], words + word_offsets[_code(codes, i, width)], <size_t>size)


def dictionary_expand(
    const uint8_t[::1] codes not None,
    int width,
    const int32_t[::1] word_offsets not None,
    const uint8_t[::1] word_data not None,
    const uint8_t[::1] validity=None,
    allocate=None,
):
    """Return ``(offsets, data)`` of the words that ``codes``, ``width`` (1, 2 or 4) bytes each, name.

    Null cells are empty, whatever their code.  ``allocate(size)`` gives the uint8 array for the data.

    Raises ``PageError`` for a code beyond the words or more than 2**31 - 1 bytes, ValueError for
    ``word_offsets`` that descend or leave the data, or lengths that do not fit.
    """
    cdef:
        Py_ssize_t n, words = word_offsets.shape[0] - 1, k, longest = 0
        int64_t total, bad = 0
        const uint8_t* bits = NULL
        const uint8_t* first = NULL
        const uint8_t* source = NULL
        int32_t[::1] offsets
        uint8_t[::1] out
        uint8_t[::1] slots = None
    if width != 1 and width != 2 and width != 4:
        raise ValueError(f"codes of {width} bytes")
    if codes.shape[0] % width:
        raise ValueError(f"{codes.shape[0]} bytes are no whole number of codes of {width} bytes")
    n = codes.shape[0] // width
    if validity is not None:
        if validity.shape[0] < (n + 7) >> 3:
            raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {n} bits")
        if n:
            bits = &validity[0]
    if words < 0 or word_offsets[0] < 0 or word_offsets[words] > word_data.shape[0]:
        raise ValueError("offsets of words leave the data")
    with nogil:
        for k in range(words):
            if word_offsets[k + 1] < word_offsets[k]:
                bad = 1
                break
            if word_offsets[k + 1] - word_offsets[k] > longest:
                longest = word_offsets[k + 1] - word_offsets[k]
    if bad:
        raise ValueError("offsets of words descend")
    result_offsets = np.empty(n + 1, np.int32)
    offsets = result_offsets
    if n:
        first = &codes[0]
    with nogil:
        total = _place(first, width, n, bits, word_offsets, &offsets[0], &bad)
    if total < 0 or total > MAX_DATA_BYTES:
        return raise_status(BAD_VALUE, bad * width)
    if allocate is None:
        result = np.empty(total, np.uint8)
    else:
        result = allocate(total)
        if len(result) != total:
            raise ValueError(f"{len(result)} bytes allocated where {total} were asked for")
    if total == 0:
        return result_offsets, result
    out = result
    source = &word_data[0]
    if longest <= SLOT and words <= 4 * n + 64:
        slots = np.zeros(SLOT * words, np.uint8)
    with nogil:
        if slots is not None:
            for k in range(words):
                if word_offsets[k + 1] > word_offsets[k]:
                    memcpy(
                        &slots[SLOT * k], source + word_offsets[k],
                        <size_t>(word_offsets[k + 1] - word_offsets[k]),
                    )
            _expand_short(first, width, n, &offsets[0], &slots[0], &out[0])
        else:
            _expand_any(first, width, n, &offsets[0], &word_offsets[0], source, &out[0])
    return result_offsets, result
