"""Encoded keys: order-preserving encoding, order, sorting, grouping, searching.

Keys of n rows are ``data`` (uint8) and ``offsets`` (int64, n + 1): comparing two keys' bytes compares
the rows' key columns.  Integers are big-endian with the sign bit flipped, strings that are not
last escape 00 as 00 01 and end with 00 00, the last string is raw.

Source of the encoding: Kudu, common/key_encoder.h and common/encoded_key.h.
"""
import numpy as np

from kudu_core._ext.status cimport BAD_VALUE, TRUNCATED, raise_status
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

UNSIGNED = 0
SIGNED = 1
BINARY = 3
DECIMAL = 4

cdef int _UNSIGNED = 0
cdef int _BINARY = 3


cdef extern from *:
    """
    #define KC_BSWAP64 __builtin_bswap64
    #define KC_BSWAP32 __builtin_bswap32
    #define KC_BSWAP16 __builtin_bswap16
    #define KC_PREFETCH(p) __builtin_prefetch(p)
    """
    uint64_t KC_BSWAP64(uint64_t) noexcept nogil
    uint32_t KC_BSWAP32(uint32_t) noexcept nogil
    uint16_t KC_BSWAP16(uint16_t) noexcept nogil
    void KC_PREFETCH(const void*) noexcept nogil


cdef struct Keys:
    const uint8_t* data
    const int64_t* offsets
    Py_ssize_t count


cdef int _sound(const int64_t[::1] offsets, Py_ssize_t size) noexcept nogil:
    """1 when offsets ascend inside ``size`` bytes."""
    cdef Py_ssize_t i
    if offsets.shape[0] == 0 or offsets[0] < 0 or offsets[offsets.shape[0] - 1] > size:
        return 0
    for i in range(offsets.shape[0] - 1):
        if offsets[i] > offsets[i + 1]:
            return 0
    return 1


cdef Keys _keys(const uint8_t[::1] data, const int64_t[::1] offsets) except *:
    """The keys as pointers, checked."""
    cdef:
        Keys keys
        int fine
    with nogil:
        fine = _sound(offsets, data.shape[0])
    if not fine:
        raise ValueError("offsets do not ascend inside the data")
    keys.data = &data[0] if data.shape[0] else NULL
    keys.offsets = &offsets[0]
    keys.count = offsets.shape[0] - 1
    return keys


cdef inline int64_t _size(const Keys* keys, int64_t i) noexcept nogil:
    return keys.offsets[i + 1] - keys.offsets[i]


cdef inline int _compare(
    const uint8_t* a, int64_t a_size, const uint8_t* b, int64_t b_size
) noexcept nogil:
    cdef:
        int64_t shared = a_size if a_size < b_size else b_size
        int order = 0
    if shared:
        order = memcmp(a, b, <size_t>shared)
    if order != 0:
        return order
    return -1 if a_size < b_size else (1 if a_size > b_size else 0)


cdef inline int _compare_rows(const Keys* keys, int64_t i, int64_t j) noexcept nogil:
    return _compare(
        keys.data + keys.offsets[i], _size(keys, i), keys.data + keys.offsets[j], _size(keys, j)
    )


# ---- encoding ----

cdef void _put_fixed(
    int kind,
    Py_ssize_t width,
    const uint8_t* values,
    Py_ssize_t n,
    uint8_t* out,
    int64_t* at,
    Py_ssize_t stride,
) noexcept nogil:
    """Write one fixed column: at ``out + at[i]``, or every ``stride`` bytes where ``at`` is NULL."""
    cdef:
        Py_ssize_t i, j
        uint8_t* p
        uint8_t flip = 0 if kind == _UNSIGNED else 0x80
        uint64_t w8
        uint32_t w4
        uint16_t w2
    for i in range(n):
        if at == NULL:
            p = out + i * stride
        else:
            p = out + at[i]
            at[i] += width
        if width == 8:
            memcpy(&w8, values + 8 * i, 8)
            w8 = KC_BSWAP64(w8)
            memcpy(p, &w8, 8)
        elif width == 4:
            memcpy(&w4, values + 4 * i, 4)
            w4 = KC_BSWAP32(w4)
            memcpy(p, &w4, 4)
        elif width == 2:
            memcpy(&w2, values + 2 * i, 2)
            w2 = KC_BSWAP16(w2)
            memcpy(p, &w2, 2)
        else:
            for j in range(width):
                p[j] = values[width * i + width - 1 - j]
        p[0] ^= flip


cdef inline int64_t _escaped(const uint8_t* cell, int64_t size) noexcept nogil:
    """Bytes of a string that is not last: with escapes and terminator."""
    cdef:
        int64_t total = size + 2
        const uint8_t* p = cell
        const uint8_t* end = cell + size
        const uint8_t* zero
    while p < end:
        zero = <const uint8_t*>memchr(p, 0, <size_t>(end - p))
        if zero == NULL:
            break
        total += 1
        p = zero + 1
    return total


cdef void _add_sizes(
    const uint8_t* values, const int32_t* offsets, Py_ssize_t n, bint last, int64_t* sizes
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        if last:
            sizes[i] += offsets[i + 1] - offsets[i]
        else:
            sizes[i] += _escaped(values + offsets[i], offsets[i + 1] - offsets[i])


cdef void _put_binary(
    const uint8_t* values, const int32_t* offsets, Py_ssize_t n, bint last, uint8_t* out, int64_t* at
) noexcept nogil:
    cdef:
        Py_ssize_t i
        const uint8_t* p
        const uint8_t* end
        const uint8_t* zero
        uint8_t* q
        size_t piece
    for i in range(n):
        p = values + offsets[i]
        end = values + offsets[i + 1]
        q = out + at[i]
        if last:
            if p < end:
                memcpy(q, p, <size_t>(end - p))
            at[i] += end - p
            continue
        while p < end:
            zero = <const uint8_t*>memchr(p, 0, <size_t>(end - p))
            piece = <size_t>((end if zero == NULL else zero) - p)
            memcpy(q, p, piece)
            q += piece
            p += piece
            if zero != NULL:
                q[0] = 0
                q[1] = 1
                q += 2
                p += 1
        q[0] = 0
        q[1] = 0
        at[i] = (q - out) + 2


cdef int _sound32(const int32_t[::1] offsets, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    if offsets[0] < 0 or offsets[offsets.shape[0] - 1] > size:
        return 0
    for i in range(offsets.shape[0] - 1):
        if offsets[i] > offsets[i + 1]:
            return 0
    return 1


def encode(columns not None, n):
    """Encode rows' key columns.

    Parameters
    ----------
    columns : sequence of (kind, width, values, offsets)
        In key order.  ``kind``: UNSIGNED, SIGNED or DECIMAL with ``n`` little-endian values of
        ``width`` bytes and no offsets; BINARY with offsets (n + 1, int32).
    n : int, rows

    Returns
    -------
    (data uint8, offsets (n + 1,) int64)

    Raises
    ------
    ValueError
        Lengths do not fit together.
    """
    cdef:
        Py_ssize_t rows = n, i, width, total_width = 0, done = 0
        const uint8_t[::1] values
        const int32_t[::1] starts
        const uint8_t* base
        int64_t[::1] offsets_view, at_view
        uint8_t[::1] data_view
        int64_t running, size
        int kind, fine
        bint last, fixed = True
        Py_ssize_t count = len(columns)
    if rows < 0 or count == 0:
        raise ValueError("a key has at least one column and no fewer than 0 rows")
    for kind, width, values, starts in columns:
        if kind == _BINARY:
            fixed = False
            if starts is None or starts.shape[0] != rows + 1:
                raise ValueError(f"a binary key column needs {rows + 1} offsets")
            with nogil:
                fine = _sound32(starts, values.shape[0])
            if not fine:
                raise ValueError("offsets do not ascend inside the data")
        else:
            if width not in (1, 2, 4, 8, 16) or values.shape[0] != rows * width:
                raise ValueError(f"{values.shape[0]} bytes for {rows} values of {width} bytes")
            total_width += width
    offsets = np.empty(rows + 1, np.int64)
    offsets_view = offsets
    if fixed:
        data = np.empty(rows * total_width, np.uint8)
        data_view = data
        with nogil:
            for i in range(rows + 1):
                offsets_view[i] = i * total_width
        if rows:
            for kind, width, values, starts in columns:
                with nogil:
                    _put_fixed(kind, width, &values[0], rows, &data_view[done], NULL, total_width)
                done += width
        return data, offsets
    at = np.full(rows, total_width, np.int64)
    at_view = at
    if rows == 0:
        offsets_view[0] = 0
        return np.empty(0, np.uint8), offsets
    i = 0
    for kind, width, values, starts in columns:
        i += 1
        if kind == _BINARY:
            base = &values[0] if values.shape[0] else NULL
            last = i == count
            with nogil:
                _add_sizes(base, &starts[0], rows, last, &at_view[0])
    with nogil:
        running = 0
        for i in range(rows):
            offsets_view[i] = running
            size = at_view[i]
            at_view[i] = running
            running += size
        offsets_view[rows] = running
    data = np.empty(running, np.uint8)
    data_view = data
    if running == 0:
        return data, offsets
    i = 0
    for kind, width, values, starts in columns:
        i += 1
        base = &values[0] if values.shape[0] else NULL
        last = i == count
        with nogil:
            if kind == _BINARY:
                _put_binary(base, &starts[0], rows, last, &data_view[0], &at_view[0])
            else:
                _put_fixed(kind, width, base, rows, &data_view[0], &at_view[0], 0)
    return data, offsets


cdef Py_ssize_t _get_fixed(
    int kind, Py_ssize_t width, const Keys* keys, int64_t* at, uint8_t* out
) noexcept nogil:
    """Decode one fixed column; return -1, or the row whose key is too short."""
    cdef:
        Py_ssize_t i, j
        const uint8_t* p
        uint8_t flip = 0 if kind == _UNSIGNED else 0x80
    for i in range(keys.count):
        if keys.offsets[i + 1] - at[i] < width:
            return i
        p = keys.data + at[i]
        for j in range(width):
            out[width * i + j] = p[width - 1 - j]
        out[width * i + width - 1] ^= flip
        at[i] += width
    return -1


cdef Py_ssize_t _binary_sizes(
    const Keys* keys, const int64_t* at, bint last, int64_t* sizes, int* status
) noexcept nogil:
    """Decoded size of each string; return -1, or the row whose escapes are broken."""
    cdef:
        Py_ssize_t i
        const uint8_t* p
        const uint8_t* end
        const uint8_t* zero
        int64_t size
    for i in range(keys.count):
        p = keys.data + at[i]
        end = keys.data + keys.offsets[i + 1]
        if last:
            sizes[i] = end - p
            continue
        size = 0
        while True:
            zero = <const uint8_t*>memchr(p, 0, <size_t>(end - p)) if p < end else NULL
            if zero == NULL or zero + 1 >= end:
                status[0] = TRUNCATED
                return i
            size += zero - p
            if zero[1] == 0:
                break
            if zero[1] != 1:
                status[0] = BAD_VALUE
                return i
            size += 1
            p = zero + 2
        sizes[i] = size
    return -1


cdef void _get_binary(const Keys* keys, int64_t* at, bint last, const int32_t* starts, uint8_t* out) noexcept nogil:
    cdef:
        Py_ssize_t i
        const uint8_t* p
        const uint8_t* end
        const uint8_t* zero
        uint8_t* q
    for i in range(keys.count):
        p = keys.data + at[i]
        end = keys.data + keys.offsets[i + 1]
        q = out + starts[i]
        if last:
            if p < end:
                memcpy(q, p, <size_t>(end - p))
            at[i] = keys.offsets[i + 1]
            continue
        while True:
            zero = <const uint8_t*>memchr(p, 0, <size_t>(end - p))
            memcpy(q, p, <size_t>(zero - p))
            q += zero - p
            p = zero + 2
            if zero[1] == 0:
                break
            q[0] = 0
            q += 1
        at[i] = p - keys.data


def decode(const uint8_t[::1] data not None, const int64_t[::1] offsets not None, types not None):
    """Decode keys back into their columns.

    Parameters
    ----------
    data, offsets : the encoded keys
    types : sequence of (kind, width), in key order

    Returns
    -------
    list of (values uint8, offsets int32 or None), one for each column

    Raises
    ------
    PageError
        A key is too short, too long, or its escapes are broken; the offset is into ``data``.
    ValueError
        The offsets do not ascend inside the data.
    OverflowError
        The strings of one column exceed 2**31 - 1 bytes.
    """
    cdef:
        Keys keys = _keys(data, offsets)
        Py_ssize_t n = keys.count, i, width, bad, number = 0, count = len(types)
        int64_t[::1] at_view, sizes_view
        int32_t[::1] starts_view
        uint8_t[::1] out_view
        int64_t running
        int kind, status = TRUNCATED
        uint8_t nothing = 0
    at = np.array(np.asarray(offsets)[:n], np.int64)
    at_view = at
    out = []
    for kind, width in types:
        number += 1
        if kind == _BINARY:
            sizes = np.zeros(n, np.int64)
            starts = np.zeros(n + 1, np.int32)
            if n:
                sizes_view = sizes
                bad = -1
                with nogil:
                    bad = _binary_sizes(&keys, &at_view[0], number == count, &sizes_view[0], &status)
                if bad >= 0:
                    raise_status(status, at_view[bad])
                running = int(sizes.sum())
                if running > 0x7FFFFFFF:
                    raise OverflowError(f"{running} bytes of strings in one column")
                starts[1:] = np.cumsum(sizes)
                values = np.empty(running, np.uint8)
                starts_view = starts
                out_view = values
                with nogil:
                    _get_binary(
                        &keys, &at_view[0], number == count, &starts_view[0], &out_view[0] if running else &nothing
                    )
            else:
                values = np.empty(0, np.uint8)
            out.append((values, starts))
        else:
            if width not in (1, 2, 4, 8, 16):
                raise ValueError(f"a fixed key column of {width} bytes")
            values = np.empty(n * width, np.uint8)
            if n:
                out_view = values
                with nogil:
                    bad = _get_fixed(kind, width, &keys, &at_view[0], &out_view[0])
                if bad >= 0:
                    raise_status(TRUNCATED, at_view[bad])
            out.append((values, None))
    for i in range(n):
        if at_view[i] != keys.offsets[i + 1]:
            raise_status(BAD_VALUE, at_view[i])
    return out


# ---- order ----

def order(const uint8_t[::1] data not None, const int64_t[::1] offsets not None):
    """Return 2 when the keys strictly ascend, 1 when none is below the one before, else 0."""
    cdef:
        Keys keys = _keys(data, offsets)
        Py_ssize_t i
        int found = 2, step
    with nogil:
        for i in range(keys.count - 1):
            step = _compare_rows(&keys, i, i + 1)
            if step > 0:
                found = 0
                break
            if step == 0:
                found = 1
    return found


cdef inline uint64_t _word(const Keys* keys, int64_t row, int64_t skip) noexcept nogil:
    """Eight bytes of a key after ``skip``, big-endian, padded with zeros."""
    cdef:
        int64_t left = _size(keys, row) - skip
        const uint8_t* p = keys.data + keys.offsets[row] + skip
        uint64_t word = 0
    if left >= 8:
        memcpy(&word, p, 8)
    elif left > 0:
        memcpy(&word, p, <size_t>left)
    return KC_BSWAP64(word)


cdef int64_t _shared_prefix(const Keys* keys, const int64_t* rows, Py_ssize_t n, int64_t skip) noexcept nogil:
    """How many bytes after ``skip`` all these keys share, in whole words' reach of the first."""
    cdef:
        int64_t first = rows[0], shared = _size(keys, first), size
        const uint8_t* a = keys.data + keys.offsets[first]
        const uint8_t* b
        Py_ssize_t i
        int64_t j
        uint64_t x, y
    for i in range(1, n):
        size = _size(keys, rows[i])
        if size < shared:
            shared = size
        b = keys.data + keys.offsets[rows[i]]
        j = skip
        while j + 8 <= shared:
            memcpy(&x, a + j, 8)
            memcpy(&y, b + j, 8)
            if x != y:
                break
            j += 8
        while j < shared and a[j] == b[j]:
            j += 1
        if j < shared:
            shared = j
        if shared <= skip:
            return skip
    return shared if shared > skip else skip


cdef void _merge_sort(const Keys* keys, int64_t* rows, int64_t* spare, Py_ssize_t n) noexcept nogil:
    """Stable, by the whole keys: insertion for short runs, else bottom-up merging."""
    cdef:
        Py_ssize_t i, j, width, low, mid, high, a, b, k
        int64_t row
        int64_t* source = rows
        int64_t* target = spare
        int64_t* swap
    low = 0
    while low < n:
        high = low + 12 if low + 12 < n else n
        for i in range(low + 1, high):
            row = rows[i]
            j = i
            while j > low and _compare_rows(keys, rows[j - 1], row) > 0:
                rows[j] = rows[j - 1]
                j -= 1
            rows[j] = row
        low = high
    width = 12
    while width < n:
        low = 0
        while low < n:
            mid = low + width if low + width < n else n
            high = low + 2 * width if low + 2 * width < n else n
            a = low
            b = mid
            for k in range(low, high):
                if a < mid and (b >= high or _compare_rows(keys, source[a], source[b]) <= 0):
                    target[k] = source[a]
                    a += 1
                else:
                    target[k] = source[b]
                    b += 1
            low = high
        swap = source
        source = target
        target = swap
        width *= 2
    if source != rows:
        memcpy(rows, source, <size_t>n * sizeof(int64_t))


cdef void _radix(
    uint64_t* words, int64_t* rows, uint64_t* words2, int64_t* rows2, Py_ssize_t n, uint64_t varying
) noexcept nogil:
    """Stable LSD radix sort of (word, row) by the bits that vary, 11 at a time; result in place."""
    cdef:
        uint32_t counts[2048]
        int shift = 0, top
        Py_ssize_t i
        uint32_t digit, running, c
        uint64_t* ws = words
        uint64_t* wt = words2
        int64_t* rs = rows
        int64_t* rt = rows2
        uint64_t* wx
        int64_t* rx
    while shift < 64 and (varying >> shift) != 0:
        # Start at the lowest bit that still varies.
        while ((varying >> shift) & 1) == 0:
            shift += 1
        memset(counts, 0, sizeof(counts))
        for i in range(n):
            counts[(ws[i] >> shift) & 2047] += 1
        running = 0
        for top in range(2048):
            c = counts[top]
            counts[top] = running
            running += c
        for i in range(n):
            digit = <uint32_t>((ws[i] >> shift) & 2047)
            wt[counts[digit]] = ws[i]
            rt[counts[digit]] = rs[i]
            counts[digit] += 1
        wx = ws
        ws = wt
        wt = wx
        rx = rs
        rs = rt
        rt = rx
        shift += 11
    if ws != words:
        memcpy(words, ws, <size_t>n * sizeof(uint64_t))
        memcpy(rows, rs, <size_t>n * sizeof(int64_t))


cdef void _sort(
    const Keys* keys,
    int64_t* rows,
    uint64_t* words,
    int64_t* rows2,
    uint64_t* words2,
    Py_ssize_t n,
    int64_t skip,
    int depth,
) noexcept nogil:
    """Sort rows whose keys share their first ``skip`` bytes."""
    cdef:
        Py_ssize_t i, first
        uint64_t all_or = 0, all_and = <uint64_t>0xFFFFFFFFFFFFFFFF
        int64_t shortest
    if n < 32 or depth > 16:
        _merge_sort(keys, rows, rows2, n)
        return
    skip = _shared_prefix(keys, rows, n, skip)
    for i in range(n):
        words[i] = _word(keys, rows[i], skip)
        all_or |= words[i]
        all_and &= words[i]
    _radix(words, rows, words2, rows2, n, all_or ^ all_and)
    first = 0
    while first < n:
        i = first + 1
        shortest = _size(keys, rows[first])
        while i < n and words[i] == words[first]:
            if _size(keys, rows[i]) < shortest:
                shortest = _size(keys, rows[i])
            i += 1
        if i - first > 1:
            if shortest > skip + 8:
                _sort(
                    keys, rows + first, words + first, rows2 + first, words2 + first, i - first, skip + 8, depth + 1
                )
            else:
                # Zeros of the padding and zeros of a key look alike: compare whole keys.
                _merge_sort(keys, rows + first, rows2 + first, i - first)
        first = i


def sort(const uint8_t[::1] data not None, const int64_t[::1] offsets not None):
    """Return the stable permutation that puts the keys in order, (n,) int64."""
    cdef:
        Keys keys = _keys(data, offsets)
        Py_ssize_t n = keys.count, i
        int64_t[::1] rows, rows2
        uint64_t[::1] words, words2
        bint sorted_ = True
    out = np.arange(n, dtype=np.int64)
    if n < 2:
        return out
    if n > 0xFFFFFFFF:
        raise ValueError("more than 2**32 - 1 keys at once")
    with nogil:
        for i in range(n - 1):
            if _compare_rows(&keys, i, i + 1) > 0:
                sorted_ = False
                break
    if sorted_:
        return out
    rows = out
    rows2 = np.empty(n, np.int64)
    words = np.empty(n, np.uint64)
    words2 = np.empty(n, np.uint64)
    with nogil:
        _sort(&keys, &rows[0], &words[0], &rows2[0], &words2[0], n, 0, 0)
    return out


# ---- grouping ----

cdef Py_ssize_t _group(
    const Keys* keys, const uint64_t* hashes, uint32_t* table, uint64_t mask, int32_t* gid, int64_t* first
) noexcept nogil:
    """Number equal keys; return how many groups there are."""
    cdef:
        Py_ssize_t i, groups = 0
        uint64_t at
        uint32_t slot
        int64_t other
    for i in range(keys.count):
        if i + 8 < keys.count:
            KC_PREFETCH(&table[hashes[i + 8] & mask])
        at = hashes[i] & mask
        while True:
            slot = table[at]
            if slot == 0:
                table[at] = <uint32_t>groups + 1
                gid[i] = <int32_t>groups
                first[groups] = i
                groups += 1
                break
            other = first[slot - 1]
            if hashes[other] == hashes[i] and _compare_rows(keys, other, i) == 0:
                gid[i] = <int32_t>(slot - 1)
                break
            at = (at + 1) & mask
    return groups


def group(
    const uint8_t[::1] data not None, const int64_t[::1] offsets not None, const uint64_t[::1] hashes not None
):
    """Number the distinct keys in the order in which they first appear.

    Returns
    -------
    (group of each row (n,) int32, first row of each group (g,) int64)
    """
    cdef:
        Keys keys = _keys(data, offsets)
        Py_ssize_t n = keys.count, groups
        uint32_t[::1] table
        int32_t[::1] gid
        int64_t[::1] first
    if hashes.shape[0] != n:
        raise ValueError(f"{hashes.shape[0]} hashes for {n} keys")
    if n > 0x7FFFFFFF:
        raise ValueError("more than 2**31 - 1 keys at once")
    out = np.empty(n, np.int32)
    firsts = np.empty(n, np.int64)
    if n == 0:
        return out, firsts
    slots = np.zeros(1 << max(4, (2 * n - 1).bit_length()), np.uint32)
    table = slots
    gid = out
    first = firsts
    with nogil:
        groups = _group(&keys, &hashes[0], &table[0], <uint64_t>table.shape[0] - 1, &gid[0], &first[0])
    return out, firsts[:groups].copy() if groups < n else firsts


# ---- searching ----

cdef inline Py_ssize_t _bound(
    const Keys* keys, Py_ssize_t low, Py_ssize_t high, const uint8_t* probe, int64_t size, bint upper
) noexcept nogil:
    cdef:
        Py_ssize_t mid
        int step
    while low < high:
        mid = (low + high) >> 1
        step = _compare(keys.data + keys.offsets[mid], _size(keys, mid), probe, size)
        if step < 0 or (upper and step == 0):
            low = mid + 1
        else:
            high = mid
    return low


cdef void _bounds(const Keys* keys, const Keys* probes, bint upper, int64_t* out) noexcept nogil:
    cdef:
        Py_ssize_t i, low = 0, high, gallop
        const uint8_t* probe
        int64_t size
        int step
    for i in range(probes.count):
        probe = probes.data + probes.offsets[i]
        size = _size(probes, i)
        if i and _compare_rows(probes, i - 1, i) > 0:
            low = 0
        # The probes mostly ascend: gallop from where the last one ended.
        gallop = 1
        high = low
        while high < keys.count:
            step = _compare(keys.data + keys.offsets[high], _size(keys, high), probe, size)
            if not (step < 0 or (upper and step == 0)):
                break
            low = high + 1
            high += gallop
            gallop *= 2
        if high > keys.count:
            high = keys.count
        low = _bound(keys, low, high, probe, size, upper)
        out[i] = low


def lower_bound(
    const uint8_t[::1] data not None,
    const int64_t[::1] offsets not None,
    const uint8_t[::1] probe_data not None,
    const int64_t[::1] probe_offsets not None,
    bint upper=False,
):
    """For each probe return how many of the sorted keys are below it (``upper``: not above it).

    Fastest when the probes ascend.  Returns (probes,) int64.
    """
    cdef:
        Keys keys = _keys(data, offsets)
        Keys probes = _keys(probe_data, probe_offsets)
        int64_t[::1] view
    out = np.empty(probes.count, np.int64)
    if probes.count:
        view = out
        with nogil:
            _bounds(&keys, &probes, upper, &view[0])
    return out


# ---- taking and joining ----

cdef Py_ssize_t _take_sizes(const Keys* keys, const int64_t[::1] rows, int64_t* starts) noexcept nogil:
    cdef Py_ssize_t i
    starts[0] = 0
    for i in range(rows.shape[0]):
        if rows[i] < 0 or rows[i] >= keys.count:
            return i
        starts[i + 1] = starts[i] + _size(keys, rows[i])
    return -1


cdef void _take(const Keys* keys, const int64_t[::1] rows, const int64_t* starts, uint8_t* out) noexcept nogil:
    cdef:
        Py_ssize_t i, n = rows.shape[0]
        size_t size
    for i in range(n):
        if i + 8 < n:
            KC_PREFETCH(keys.data + keys.offsets[rows[i + 8]])
        size = <size_t>(starts[i + 1] - starts[i])
        if size:
            memcpy(out + starts[i], keys.data + keys.offsets[rows[i]], size)


def take(
    const uint8_t[::1] data not None, const int64_t[::1] offsets not None, const int64_t[::1] rows not None
):
    """Return (data, offsets) of some of the keys.  ``IndexError`` for a row that is not there."""
    cdef:
        Keys keys = _keys(data, offsets)
        int64_t[::1] starts
        uint8_t[::1] out_view
        Py_ssize_t bad
    new_offsets = np.empty(rows.shape[0] + 1, np.int64)
    starts = new_offsets
    with nogil:
        bad = _take_sizes(&keys, rows, &starts[0])
    if bad >= 0:
        raise IndexError(f"row {rows[bad]} of {keys.count} keys")
    out = np.empty(starts[rows.shape[0]], np.uint8)
    if out.size:
        out_view = out
        with nogil:
            _take(&keys, rows, &starts[0], &out_view[0])
    return out, new_offsets


def concat(parts not None):
    """Return (data, offsets) of all keys of several (data, offsets), in order."""
    sizes = []
    for data, offsets in parts:
        _keys(data, offsets)
        sizes.append((int(offsets[0]), int(offsets[len(offsets) - 1])))
    if not sizes:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    data = np.concatenate([np.asarray(d)[a:b] for (d, _), (a, b) in zip(parts, sizes)])
    pieces = [np.zeros(1, np.int64)]
    start = 0
    for (_, offsets), (a, b) in zip(parts, sizes):
        pieces.append(np.asarray(offsets)[1:] + (start - a))
        start += b - a
    return data, np.concatenate(pieces)
