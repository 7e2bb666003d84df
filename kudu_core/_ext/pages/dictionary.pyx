"""Dictionaries of string columns: distinct words, sorted by their bytes, and a code a row.

Codes keep the order of the words, so a range of words is a range of codes.  Null cells have code 0.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.base.status cimport BAD_VALUE, raise_status
from kudu_core._ext.pages.words cimport kc_sort_words, kc_word, kc_word_hash, kc_word_prefix

import os

import numpy as np

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


cdef tuple _words_as_column(const kc_word* words, int64_t count, uint32_t[::1] ranks):
    """``(offsets, data)`` of sorted words; ``ranks`` becomes the place of each word by its number."""
    cdef:
        Py_ssize_t total = 0, k
        int32_t[::1] offsets
        uint8_t[::1] out
    for k in range(count):
        total += words[k].size
    result_offsets = np.zeros(count + 1, np.int32)
    result = np.empty(total, np.uint8)
    offsets = result_offsets
    out = result
    with nogil:
        _write_words(words, count, offsets, &out[0] if total else NULL, ranks)
    return result_offsets, result


cdef object _codes(const uint32_t[::1] ids, const uint32_t[::1] ranks, const uint8_t* bits, int64_t count):
    """The code of each row, in the narrowest type that holds ``count`` words."""
    cdef:
        uint8_t[::1] codes8
        uint16_t[::1] codes16
        uint32_t[::1] codes32
    if count <= 1 << 8:
        codes = np.empty(ids.shape[0], np.uint8)
        codes8 = codes
        with nogil:
            _recode(codes8, ids, ranks, bits)
    elif count <= 1 << 16:
        codes = np.empty(ids.shape[0], np.uint16)
        codes16 = codes
        with nogil:
            _recode(codes16, ids, ranks, bits)
    else:
        codes = np.empty(ids.shape[0], np.uint32)
        codes32 = codes
        with nogil:
            _recode(codes32, ids, ranks, bits)
    return codes


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
        Py_ssize_t rows = offsets.shape[0] - 1, room
        int64_t count
        const uint8_t* bits = NULL
        uint64_t[::1] slots
        uint8_t[::1] word_room
        kc_word* words
        uint32_t[::1] ids, ranks
    if rows < 0:
        raise ValueError("offsets of a column have at least one entry")
    if max_words < 0 or max_words > 0x7FFFFFFF or max_bytes < 0:
        raise ValueError(f"a dictionary of at most {max_words} words and {max_bytes} bytes")
    if validity is not None:
        if validity.shape[0] < (rows + 7) >> 3:
            raise ValueError(f"a bitmap of {validity.shape[0]} bytes has no {rows} bits")
        if rows:
            bits = &validity[0]
    max_bytes = min(max_bytes, MAX_DATA_BYTES)
    room = min(max_words, rows) + 1
    slots = np.zeros(1 << (2 * room).bit_length(), np.uint64)
    word_room = np.empty(room * sizeof(kc_word), np.uint8)
    words = <kc_word*>&word_room[0]
    ids = np.empty(rows, np.uint32)
    with nogil:
        # Where all words are empty there are no data; the C library takes no NULL even for 0 bytes.
        count = _collect(
            offsets, &data[0] if data.shape[0] else <const uint8_t*>words, data.shape[0], bits, slots, words,
            ids, max_words, max_bytes,
        )
        if count > 0:
            kc_sort_words(words, count)
    if count == BAD_OFFSETS:
        raise ValueError("offsets descend or lie outside the data")
    if count == TOO_LARGE:
        return None
    ranks = np.zeros(count + 1, np.uint32)
    word_offsets, word_data = _words_as_column(words, count, ranks)
    return _codes(ids, ranks, bits, count), word_offsets, word_data


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


cdef Py_ssize_t _longest_word(const int32_t[::1] offsets, Py_ssize_t size) except -1:
    """The bytes of the longest word; ValueError for offsets that descend or leave ``size`` bytes."""
    cdef:
        Py_ssize_t words = offsets.shape[0] - 1, k, longest = 0
        bint descends = False
    if words < 0 or offsets[0] < 0 or offsets[words] > size:
        raise ValueError("offsets of words leave the data")
    with nogil:
        for k in range(words):
            if offsets[k + 1] < offsets[k]:
                descends = True
                break
            if offsets[k + 1] - offsets[k] > longest:
                longest = offsets[k + 1] - offsets[k]
    if descends:
        raise ValueError("offsets of words descend")
    return longest


cdef object room_of(allocate, Py_ssize_t size):
    """An array of ``size`` bytes, from the caller's pool where it has one."""
    if allocate is None:
        return np.empty(size, np.uint8)
    room = allocate(size)
    if len(room) != size:
        raise ValueError(f"{len(room)} bytes allocated where {size} were asked for")
    return room


cdef void _fill_slots(const int32_t[::1] offsets, const uint8_t* words, uint8_t[::1] slots) noexcept nogil:
    """Copy each word, none of them longer, to its slot of 16 bytes."""
    cdef Py_ssize_t k
    for k in range(offsets.shape[0] - 1):
        if offsets[k + 1] > offsets[k]:
            memcpy(&slots[SLOT * k], words + offsets[k], <size_t>(offsets[k + 1] - offsets[k]))


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
        Py_ssize_t n, words = word_offsets.shape[0] - 1, longest
        int64_t total, bad = 0
        const uint8_t* bits = NULL
        const uint8_t* first = NULL
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
    longest = _longest_word(word_offsets, word_data.shape[0])
    result_offsets = np.empty(n + 1, np.int32)
    offsets = result_offsets
    if n:
        first = &codes[0]
    with nogil:
        total = _place(first, width, n, bits, word_offsets, &offsets[0], &bad)
    if total < 0 or total > MAX_DATA_BYTES:
        return raise_status(BAD_VALUE, bad * width)
    result = room_of(allocate, total)
    if total == 0:
        return result_offsets, result
    out = result
    if longest <= SLOT and words <= 4 * n + 64:
        slots = np.zeros(SLOT * words, np.uint8)
    with nogil:
        if slots is not None:
            _fill_slots(word_offsets, &word_data[0], slots)
            _expand_short(first, width, n, &offsets[0], &slots[0], &out[0])
        else:
            _expand_any(first, width, n, &offsets[0], &word_offsets[0], &word_data[0], &out[0])
    return result_offsets, result
