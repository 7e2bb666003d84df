"""Move cells of columns about: gather, interleave, scatter, and the algebra of bitmaps.

A *fixed column* is ``width`` (1, 2, 4, 8 or 16) little-endian bytes a row in one uint8 array; a
*variable column* is int32 offsets (rows + 1, may start above 0) into uint8 data; a *bitmap* is LSB
first with bit offset 0, where 1 means NOT null and None means that no bit is 0.  Bits past the
last row are 0 in every bitmap made here, and ignored in every bitmap read here.

Row numbers are int64.  Where a gather allows row -1 it gives a zero cell, an empty cell or a null.
Nothing here knows types, schemas or keys.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t, uintptr_t

from kudu_core._ext.base.bitmap cimport kc_bit, kc_bits_copy, kc_bits_count, kc_bits_load
from kudu_core._ext.base.cells cimport kc_copy_cell, kc_take

import numpy as np

cdef extern from *:
    """
    KC_INLINE int64_t kc_interleave_w(uint8_t *out, const uintptr_t *parts, const int64_t *counts,
                                      uint32_t part_count, const int32_t *source,
                                      const int64_t *position, int64_t n, size_t width) {
        for (int64_t i = 0; i < n; i++) {
            uint32_t part = (uint32_t)source[i];
            int64_t row = position[i];
            if (row == -1) { memset(out + i * width, 0, width); continue; }
            if (part >= part_count || (uint64_t)row >= (uint64_t)counts[part]) return i;
            memcpy(out + i * width, (const uint8_t *)parts[part] + row * width, width);
        }
        return -1;
    }

    KC_INLINE int64_t kc_set_w(uint8_t *values, uint64_t count, const int64_t *rows, int64_t n,
                               const uint8_t *cells, size_t width) {
        for (int64_t i = 0; i < n; i++) {
            uint64_t row = (uint64_t)rows[i];
            if (row >= count) return i;
            memcpy(values + row * width, cells + i * width, width);
        }
        return -1;
    }

    static int64_t kc_interleave(uint8_t *out, const uintptr_t *parts, const int64_t *counts,
                                 uint32_t part_count, const int32_t *source,
                                 const int64_t *position, int64_t n, int width) {
    #define KC_CALL(w) kc_interleave_w(out, parts, counts, part_count, source, position, n, w)
        KC_BY_WIDTH(KC_CALL)
    #undef KC_CALL
    }

    static int64_t kc_set(uint8_t *values, uint64_t count, const int64_t *rows, int64_t n,
                          const uint8_t *cells, int width) {
    #define KC_CALL(w) kc_set_w(values, count, rows, n, cells, w)
        KC_BY_WIDTH(KC_CALL)
    #undef KC_CALL
    }

    /* 8 bytes to 8 bits, any byte but 0 being 1; and back to bytes of 0 and 1. */
    KC_INLINE uint8_t kc_pack8(const uint8_t *bytes) {
        uint64_t x;
        memcpy(&x, bytes, 8);
        x = ((((x & 0x7f7f7f7f7f7f7f7fULL) + 0x7f7f7f7f7f7f7f7fULL) | x) >> 7) & 0x0101010101010101ULL;
        return (uint8_t)((x * 0x0102040810204080ULL) >> 56);
    }
    KC_INLINE void kc_unpack8(uint8_t *bytes, uint8_t bits) {
        uint64_t x = (bits * 0x0101010101010101ULL) & 0x8040201008040201ULL;
        x = ((((x & 0x7f7f7f7f7f7f7f7fULL) + 0x7f7f7f7f7f7f7f7fULL) | x) >> 7) & 0x0101010101010101ULL;
        memcpy(bytes, &x, 8);
    }
    """
    int64_t kc_interleave(
        uint8_t* out, const uintptr_t* parts, const int64_t* counts, unsigned int part_count,
        const int32_t* source, const int64_t* position, int64_t n, int width
    ) noexcept nogil
    int64_t kc_set(
        uint8_t* values, uint64_t count, const int64_t* rows, int64_t n, const uint8_t* cells, int width
    ) noexcept nogil
    uint8_t kc_pack8(const uint8_t* data) noexcept nogil
    void kc_unpack8(uint8_t* data, uint8_t bits) noexcept nogil
    int ctz64 "__builtin_ctzll"(uint64_t word) noexcept nogil

cdef:
    int64_t MAX_DATA_BYTES = 0x7FFFFFFF     # what an int32 offset can address

    # Why a pass over rows of a variable column stopped.
    int NO_SUCH_ROW = 1
    int BAD_OFFSETS = 2


# ----------------------------------------------------------------- checks shared by the wrappers

cdef Py_ssize_t _rows_of(Py_ssize_t size, int width) except -1:
    """How many rows of ``width`` bytes are ``size`` bytes."""
    if width != 1 and width != 2 and width != 4 and width != 8 and width != 16:
        raise ValueError(f"width {width} is not 1, 2, 4, 8 or 16")
    if size % width:
        raise ValueError(f"{size} bytes are no whole number of rows of {width} bytes")
    return size // width


cdef int _check_bits(const uint8_t[::1] bits, Py_ssize_t n) except -1:
    if n < 0:
        raise ValueError(f"a negative number of bits: {n}")
    if bits.shape[0] < (n + 7) >> 3:
        raise ValueError(f"a bitmap of {bits.shape[0]} bytes has no {n} bits")
    return 0


cdef int _raise_row(int why, int64_t at, int64_t row) except -1:
    if why == BAD_OFFSETS:
        raise ValueError(f"offsets of row {row} lie outside the data or descend (position {at})")
    raise IndexError(f"no row {row} (position {at})")


# --------------------------------------------------------------------------------- fixed columns

def take_fixed(const uint8_t[::1] values not None, int width, const int64_t[::1] rows not None):
    """Gather ``rows`` of a fixed column; row -1 gives a cell of zeros.

    Raises IndexError for a row outside the column, ValueError for a width or a length that does
    not fit.
    """
    cdef:
        Py_ssize_t count = _rows_of(values.shape[0], width), n = rows.shape[0]
        int64_t bad
        const uint8_t* first = NULL
        uint8_t[::1] out
    result = np.empty(n * width, np.uint8)
    if n == 0:
        return result
    out = result
    if count:
        first = &values[0]
    with nogil:
        bad = kc_take(&out[0], first, <uint64_t>count, &rows[0], n, width)
    if bad >= 0:
        _raise_row(NO_SUCH_ROW, bad, rows[bad])
    return result


def set_fixed(
    uint8_t[::1] values not None,
    int width,
    const int64_t[::1] rows not None,
    const uint8_t[::1] new_values not None,
):
    """Scatter: overwrite ``rows`` of ``values`` in place; of equal rows the later wins.

    Raises IndexError for a row outside the column (the rows before it are written), ValueError
    for lengths that do not fit (nothing is written).
    """
    cdef:
        Py_ssize_t count = _rows_of(values.shape[0], width), n = rows.shape[0]
        int64_t bad
    if _rows_of(new_values.shape[0], width) != n:
        raise ValueError(f"{n} rows, {new_values.shape[0]} bytes of new values")
    if n == 0:
        return
    if count == 0:
        _raise_row(NO_SUCH_ROW, 0, rows[0])
    with nogil:
        bad = kc_set(&values[0], <uint64_t>count, &rows[0], n, &new_values[0], width)
    if bad >= 0:
        _raise_row(NO_SUCH_ROW, bad, rows[bad])


def interleave_fixed(
    parts not None, int width, const int32_t[::1] source not None, const int64_t[::1] position not None
):
    """Row i of the result is row ``position[i]`` of ``parts[source[i]]``, a fixed column.

    Position -1 gives a cell of zeros, whatever the source.  Raises IndexError for a source or a
    position that does not exist, ValueError for lengths that do not fit.
    """
    cdef:
        Py_ssize_t n = source.shape[0], k
        int64_t bad
        const uint8_t[::1] part
        uintptr_t[::1] addresses
        int64_t[::1] counts
        uint8_t[::1] out
    if position.shape[0] != n:
        raise ValueError(f"{n} sources, {position.shape[0]} positions")
    held = [memoryview(values) for values in parts]     # pinned while the GIL is released
    addresses = np.zeros(len(held) + 1, np.uintp)
    counts = np.zeros(len(held) + 1, np.int64)
    for k in range(len(held)):
        part = held[k]
        counts[k] = _rows_of(part.shape[0], width)
        if part.shape[0]:
            addresses[k] = <uintptr_t>&part[0]
    _rows_of(0, width)
    result = np.empty(n * width, np.uint8)
    if n == 0:
        return result
    out = result
    k = len(held)
    with nogil:
        bad = kc_interleave(
            &out[0], &addresses[0], &counts[0], <unsigned int>k, &source[0], &position[0], n, width
        )
    if bad >= 0:
        raise IndexError(f"no row {position[bad]} in source {source[bad]} (position {bad})")
    return result


# ------------------------------------------------------------------------------ variable columns

cdef int64_t _take_lengths(
    const int32_t* offsets,
    int64_t count,
    int64_t data_bytes,
    const int64_t[::1] rows,
    int32_t[::1] out,
    int* why,
    int64_t* total,
) noexcept nogil:
    """Write the new offsets; return -1, or the position whose row is at fault."""
    cdef:
        int64_t i, row, end = 0
        int64_t lower, upper
    out[0] = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        if <uint64_t>row < <uint64_t>count:
            lower = offsets[row]
            upper = offsets[row + 1]
            if lower < 0 or upper < lower or upper > data_bytes:
                why[0] = BAD_OFFSETS
                return i
            end += upper - lower
        elif row != -1:
            why[0] = NO_SUCH_ROW
            return i
        out[i + 1] = <int32_t>end       # wraps only where the total is refused
    total[0] = end
    return -1


cdef void _take_cells(
    const int32_t* offsets,
    const uint8_t[::1] data,
    const int64_t[::1] rows,
    const int32_t[::1] out_offsets,
    uint8_t[::1] out,
) noexcept nogil:
    cdef:
        int64_t i, row
        const uint8_t* first = &data[0]
        const uint8_t* end = first + data.shape[0]
        uint8_t* target = &out[0]
        const uint8_t* target_end = target + out.shape[0]
    for i in range(rows.shape[0]):
        row = rows[i]
        if row >= 0:
            kc_copy_cell(
                target + out_offsets[i], target_end, first + offsets[row], end,
                out_offsets[i + 1] - out_offsets[i],
            )


def take_var(
    const uint8_t[::1] data not None, const int32_t[::1] offsets not None, const int64_t[::1] rows not None
):
    """Gather ``rows`` of a variable column; row -1 gives an empty cell.

    Returns ``(offsets, data)`` with offsets that start at 0.  Raises IndexError for a row outside
    the column, ValueError for offsets that break their rules at a row asked for, OverflowError
    when the result exceeds what int32 offsets can address.
    """
    cdef:
        Py_ssize_t n = rows.shape[0], count = offsets.shape[0] - 1
        int64_t bad, total = 0
        int why = 0
        const int32_t* first = NULL
        int32_t[::1] new_offsets
        uint8_t[::1] out
    if count < 0:
        raise ValueError("offsets of a column have at least one entry")
    first = &offsets[0]
    result_offsets = np.empty(n + 1, np.int32)
    new_offsets = result_offsets
    with nogil:
        bad = _take_lengths(first, count, data.shape[0], rows, new_offsets, &why, &total)
    if bad >= 0:
        _raise_row(why, bad, rows[bad])
    if total > MAX_DATA_BYTES:
        raise OverflowError(f"{total} bytes in one column exceed 2**31 - 1")
    result = np.empty(total, np.uint8)
    if total:
        out = result
        with nogil:
            _take_cells(first, data, rows, new_offsets, out)
    return result_offsets, result


cdef int64_t _interleave_lengths(
    const uintptr_t[::1] offsets,
    const int64_t[::1] counts,
    const int64_t[::1] sizes,
    int64_t parts,
    const int32_t[::1] source,
    const int64_t[::1] position,
    int32_t[::1] out,
    int* why,
    int64_t* total,
) noexcept nogil:
    cdef:
        int64_t i, row, part, lower, upper, end = 0
        const int32_t* ends
    out[0] = 0
    for i in range(source.shape[0]):
        row = position[i]
        if row != -1:
            part = source[i]
            if <uint64_t>part >= <uint64_t>parts or <uint64_t>row >= <uint64_t>counts[part]:
                why[0] = NO_SUCH_ROW
                return i
            ends = <const int32_t*>offsets[part]
            lower = ends[row]
            upper = ends[row + 1]
            if lower < 0 or upper < lower or upper > sizes[part]:
                why[0] = BAD_OFFSETS
                return i
            end += upper - lower
        out[i + 1] = <int32_t>end
    total[0] = end
    return -1


cdef void _interleave_cells(
    const uintptr_t[::1] offsets,
    const uintptr_t[::1] data,
    const int64_t[::1] sizes,
    const int32_t[::1] source,
    const int64_t[::1] position,
    const int32_t[::1] out_offsets,
    uint8_t[::1] out,
) noexcept nogil:
    cdef:
        int64_t i, row, part
        const uint8_t* first
        uint8_t* target = &out[0]
        const uint8_t* target_end = target + out.shape[0]
    for i in range(source.shape[0]):
        row = position[i]
        if out_offsets[i + 1] > out_offsets[i]:     # so the data of the part is not empty
            part = source[i]
            first = <const uint8_t*>data[part]
            kc_copy_cell(
                target + out_offsets[i], target_end,
                first + (<const int32_t*>offsets[part])[row], first + sizes[part],
                out_offsets[i + 1] - out_offsets[i],
            )


def interleave_var(
    parts not None, const int32_t[::1] source not None, const int64_t[::1] position not None
):
    """Row i of the result is row ``position[i]`` of ``parts[source[i]] = (offsets, data)``.

    Position -1 gives an empty cell.  Returns ``(offsets, data)``; raises as ``take_var``.
    """
    cdef:
        Py_ssize_t n = source.shape[0], k, part_count
        int64_t bad, total = 0
        int why = 0
        const int32_t[::1] part_offsets
        const uint8_t[::1] part_data
        uintptr_t[::1] offset_addresses, data_addresses
        int64_t[::1] counts, sizes
        int32_t[::1] new_offsets
        uint8_t[::1] out
    if position.shape[0] != n:
        raise ValueError(f"{n} sources, {position.shape[0]} positions")
    held = [(memoryview(offsets), memoryview(data)) for offsets, data in parts]
    part_count = len(held)
    offset_addresses = np.zeros(part_count, np.uintp)
    data_addresses = np.zeros(part_count, np.uintp)
    counts = np.zeros(part_count, np.int64)
    sizes = np.zeros(part_count, np.int64)
    for k in range(part_count):
        part_offsets, part_data = held[k]
        if part_offsets.shape[0] == 0:
            raise ValueError("offsets of a column have at least one entry")
        offset_addresses[k] = <uintptr_t>&part_offsets[0]
        counts[k] = part_offsets.shape[0] - 1
        sizes[k] = part_data.shape[0]
        if part_data.shape[0]:
            data_addresses[k] = <uintptr_t>&part_data[0]
    result_offsets = np.empty(n + 1, np.int32)
    new_offsets = result_offsets
    with nogil:
        bad = _interleave_lengths(
            offset_addresses, counts, sizes, part_count, source, position, new_offsets, &why, &total
        )
    if bad >= 0:
        _raise_row(why, bad, position[bad])
    if total > MAX_DATA_BYTES:
        raise OverflowError(f"{total} bytes in one column exceed 2**31 - 1")
    result = np.empty(total, np.uint8)
    if total:
        out = result
        with nogil:
            _interleave_cells(offset_addresses, data_addresses, sizes, source, position, new_offsets, out)
    return result_offsets, result


# --------------------------------------------------------------------------------------- bitmaps

cdef int64_t _bits_take(
    const uint8_t* bits, int64_t count, const int64_t[::1] rows, uint8_t[::1] out, int64_t* nulls
) noexcept nogil:
    cdef:
        int64_t i, row, zeros = 0
        unsigned int byte = 0, bit
    for i in range(rows.shape[0]):
        row = rows[i]
        if <uint64_t>row < <uint64_t>count:
            bit = 1 if bits == NULL else <unsigned int>kc_bit(bits, row)
        elif row == -1:
            bit = 0
        else:
            return i
        zeros += 1 - bit
        byte |= bit << (i & 7)
        if i & 7 == 7:
            out[i >> 3] = <uint8_t>byte
            byte = 0
    if rows.shape[0] & 7:
        out[rows.shape[0] >> 3] = <uint8_t>byte
    nulls[0] = zeros
    return -1


def bits_take(const uint8_t[::1] bits, Py_ssize_t n, const int64_t[::1] rows not None):
    """Gather ``rows`` of a bitmap of ``n`` rows (None: all set); row -1 gives a null.

    Returns None when no null came out.  Raises IndexError for a row outside ``[-1, n)``.
    """
    cdef:
        int64_t bad, nulls = 0
        const uint8_t* first = NULL
        uint8_t[::1] out
    if bits is not None:
        _check_bits(bits, n)
        if bits.shape[0]:
            first = &bits[0]
    result = np.empty((rows.shape[0] + 7) >> 3, np.uint8)
    out = result
    with nogil:
        bad = _bits_take(first, n, rows, out, &nulls)
    if bad >= 0:
        _raise_row(NO_SUCH_ROW, bad, rows[bad])
    return result if nulls else None


cdef int64_t _interleave_bits(
    const uintptr_t[::1] parts,
    const int64_t[::1] counts,
    int64_t part_count,
    const int32_t[::1] source,
    const int64_t[::1] position,
    uint8_t[::1] out,
    int64_t* nulls,
) noexcept nogil:
    cdef:
        int64_t i, row, part, zeros = 0
        unsigned int byte = 0, bit
        const uint8_t* bits
    for i in range(source.shape[0]):
        row = position[i]
        bit = 0
        if row != -1:
            part = source[i]
            if <uint64_t>part >= <uint64_t>part_count or <uint64_t>row >= <uint64_t>counts[part]:
                return i
            bits = <const uint8_t*>parts[part]
            bit = 1 if bits == NULL else <unsigned int>kc_bit(bits, row)
        zeros += 1 - bit
        byte |= bit << (i & 7)
        if i & 7 == 7:
            out[i >> 3] = <uint8_t>byte
            byte = 0
    if source.shape[0] & 7:
        out[source.shape[0] >> 3] = <uint8_t>byte
    nulls[0] = zeros
    return -1


def interleave_bits(parts not None, const int32_t[::1] source not None, const int64_t[::1] position not None):
    """Bit i of the result is bit ``position[i]`` of ``parts[source[i]] = (bits or None, rows)``.

    Position -1 gives a null.  Returns None when no null came out.  Raises IndexError for a source
    or a position that does not exist, ValueError for lengths that do not fit.
    """
    cdef:
        Py_ssize_t n = source.shape[0], k, part_count
        int64_t bad, nulls = 0
        const uint8_t[::1] part
        uintptr_t[::1] addresses
        int64_t[::1] counts
        uint8_t[::1] out
    if position.shape[0] != n:
        raise ValueError(f"{n} sources, {position.shape[0]} positions")
    held = [(None if bits is None else memoryview(bits), rows) for bits, rows in parts]
    part_count = len(held)
    addresses = np.zeros(part_count, np.uintp)
    counts = np.zeros(part_count, np.int64)
    for k in range(part_count):
        part, counts[k] = held[k]
        if part is not None:
            _check_bits(part, counts[k])
            if part.shape[0]:
                addresses[k] = <uintptr_t>&part[0]
    result = np.empty((n + 7) >> 3, np.uint8)
    out = result
    with nogil:
        bad = _interleave_bits(addresses, counts, part_count, source, position, out, &nulls)
    if bad >= 0:
        raise IndexError(f"no row {position[bad]} in source {source[bad]} (position {bad})")
    return result if nulls else None


def bits_full(Py_ssize_t n, bint value=True):
    """A bitmap of ``n`` equal bits."""
    cdef uint8_t[::1] out
    result = np.zeros((n + 7) >> 3, np.uint8)
    if value and n > 0:
        out = result
        kc_bits_copy(&out[0], 0, NULL, 0, n)
    return result


def bits_slice(const uint8_t[::1] bits not None, Py_ssize_t offset, Py_ssize_t n):
    """The ``n`` bits from bit ``offset`` on, moved to bit offset 0; always a copy."""
    cdef uint8_t[::1] out
    if offset < 0 or n < 0:
        raise ValueError(f"a negative slice: {n} bits from {offset}")
    _check_bits(bits, offset + n)
    result = np.zeros((n + 7) >> 3, np.uint8)
    if n:
        out = result
        with nogil:
            kc_bits_copy(&out[0], 0, &bits[0], offset, n)
    return result


def bits_concat(parts not None):
    """Bitmaps ``(bits or None, rows)`` one after the other; None when all are None."""
    cdef:
        Py_ssize_t total = 0, at = 0, n
        const uint8_t[::1] bits
        const uint8_t* first
        uint8_t[::1] out
        bint any_bits = False
    held = list(parts)
    for bits, n in held:
        if n < 0:
            raise ValueError(f"a negative number of bits: {n}")
        if bits is not None:
            _check_bits(bits, n)
            any_bits = True
        total += n
    if not any_bits:
        return None
    result = np.zeros((total + 7) >> 3, np.uint8)
    out = result
    for bits, n in held:
        if n:
            first = NULL
            if bits is not None:
                first = &bits[0]
            kc_bits_copy(&out[0], at, first, 0, n)
            at += n
    return result


def bits_count(const uint8_t[::1] bits not None, Py_ssize_t n):
    """How many of the first ``n`` bits are set."""
    cdef int64_t count = 0
    _check_bits(bits, n)
    if n:
        with nogil:
            count = kc_bits_count(&bits[0], 0, n)
    return count


cdef void _bits_to_bytes(const uint8_t[::1] bits, uint8_t[::1] out) noexcept nogil:
    cdef Py_ssize_t i, n = out.shape[0]
    for i in range(n >> 3):
        kc_unpack8(&out[8 * i], bits[i])
    for i in range(n & ~7, n):
        out[i] = kc_bit(&bits[0], i)


def bits_to_bytes(const uint8_t[::1] bits not None, Py_ssize_t n):
    """One byte, 0 or 1, for each of the first ``n`` bits."""
    cdef uint8_t[::1] out
    _check_bits(bits, n)
    result = np.empty(n, np.uint8)
    out = result
    with nogil:
        _bits_to_bytes(bits, out)
    return result


cdef void _bytes_to_bits(const uint8_t[::1] data, uint8_t[::1] out) noexcept nogil:
    cdef:
        Py_ssize_t i, n = data.shape[0]
        unsigned int byte = 0
    for i in range(n >> 3):
        out[i] = kc_pack8(&data[8 * i])
    for i in range(n & ~7, n):
        byte |= <unsigned int>(data[i] != 0) << (i & 7)
    if n & 7:
        out[n >> 3] = <uint8_t>byte


def bytes_to_bits(const uint8_t[::1] data not None):
    """A bitmap with bit i set where byte i is not 0."""
    cdef uint8_t[::1] out
    result = np.empty((data.shape[0] + 7) >> 3, np.uint8)
    out = result
    with nogil:
        _bytes_to_bits(data, out)
    return result


cdef void _bits_and(
    const uint8_t[::1] left, const uint8_t[::1] right, Py_ssize_t n, uint8_t[::1] out
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(out.shape[0]):
        out[i] = left[i] & right[i]
    if n & 7:
        out[n >> 3] &= <uint8_t>((1 << (n & 7)) - 1)


def bits_and(const uint8_t[::1] left, const uint8_t[::1] right, Py_ssize_t n):
    """The first ``n`` bits of both; None stands for all set, and None of both gives None."""
    cdef uint8_t[::1] out
    if left is None and right is None:
        return None
    if left is None:
        return bits_slice(right, 0, n)
    if right is None:
        return bits_slice(left, 0, n)
    _check_bits(left, n)
    _check_bits(right, n)
    result = np.empty((n + 7) >> 3, np.uint8)
    out = result
    with nogil:
        _bits_and(left, right, n, out)
    return result


cdef void _bits_positions(const uint8_t[::1] bits, int64_t n, int64_t[::1] out) noexcept nogil:
    cdef:
        int64_t start = 0, at = 0
        uint64_t word
        int count
    while start < n:
        count = <int>(64 if n - start >= 64 else n - start)
        word = kc_bits_load(&bits[0], start, count)
        while word:
            out[at] = start + ctz64(word)
            at += 1
            word &= word - 1
        start += 64


def bits_positions(const uint8_t[::1] bits not None, Py_ssize_t n):
    """Positions (int64, ascending) of the set bits among the first ``n``."""
    cdef int64_t[::1] out
    result = np.empty(bits_count(bits, n), np.int64)
    if len(result):
        out = result
        with nogil:
            _bits_positions(bits, n, out)
    return result


cdef int64_t _set_bits(
    uint8_t[::1] bits, int64_t n, const int64_t[::1] rows, const uint8_t* new_bits
) noexcept nogil:
    cdef:
        int64_t i, row
        unsigned int mask
    for i in range(rows.shape[0]):
        row = rows[i]
        if <uint64_t>row >= <uint64_t>n:
            return i
        mask = 1u << (row & 7)
        if new_bits == NULL or kc_bit(new_bits, i):
            bits[row >> 3] |= <uint8_t>mask
        else:
            bits[row >> 3] &= <uint8_t>~mask
    return -1


def set_bits(
    uint8_t[::1] bits not None, Py_ssize_t n, const int64_t[::1] rows not None, const uint8_t[::1] new_bits
):
    """Scatter ``new_bits`` (None: all set) to ``rows`` of a bitmap of ``n`` rows, in place.

    Of equal rows the later wins.  Raises IndexError for a row outside ``[0, n)`` (the rows before
    it are written), ValueError for lengths that do not fit (nothing is written).
    """
    cdef:
        int64_t bad
        const uint8_t* first = NULL
    _check_bits(bits, n)
    if new_bits is not None:
        _check_bits(new_bits, rows.shape[0])
        if new_bits.shape[0]:
            first = &new_bits[0]
    with nogil:
        bad = _set_bits(bits, n, rows, first)
    if bad >= 0:
        _raise_row(NO_SUCH_ROW, bad, rows[bad])
