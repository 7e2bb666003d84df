"""Cells of columns moved about: taken by row, and interleaved from several columns.

A *fixed column* is ``width`` (1, 2, 4, 8 or 16) little-endian bytes a row in one uint8 array; a
*variable column* is int32 offsets (rows + 1, may start above 0) into uint8 data.  Their bitmaps:
``bitmaps``.

Row numbers are int64.  Row -1 gives a zero cell or an empty cell.  Nothing here knows types, schemas
or keys.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t, uintptr_t

from kudu_core._ext.base.copy_cells cimport kc_copy_cell, kc_take
from kudu_core._ext.base.variable cimport (
    Part,
    interleave_cells_int32,
    interleave_ends_int32,
    set_part,
    take_ends,
)

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

    KC_INLINE int64_t kc_scatter_w(uint8_t *out, const uintptr_t *parts, const int64_t *counts,
                                   uint32_t part_count, const int32_t *source, const int64_t *position,
                                   const int64_t *target, int64_t n, size_t width) {
        for (int64_t i = 0; i < n; i++) {
            uint32_t part = (uint32_t)source[i];
            int64_t row = position[i];
            if ((uint64_t)target[i] >= (uint64_t)n) return i;
            if (row == -1) { memset(out + target[i] * width, 0, width); continue; }
            if (part >= part_count || (uint64_t)row >= (uint64_t)counts[part]) return i;
            memcpy(out + target[i] * width, (const uint8_t *)parts[part] + row * width, width);
        }
        return -1;
    }

    /* Not inlined into what checks arguments: its loops would lose their registers to that. */
    static __attribute__((noinline)) int64_t kc_interleave(
        uint8_t *out, const uintptr_t *parts, const int64_t *counts, uint32_t part_count,
        const int32_t *source, const int64_t *position, int64_t n, int width) {
    #define KC_CALL(w) kc_interleave_w(out, parts, counts, part_count, source, position, n, w)
        KC_BY_WIDTH(KC_CALL)
    #undef KC_CALL
    }
    static __attribute__((noinline)) int64_t kc_scatter(
        uint8_t *out, const uintptr_t *parts, const int64_t *counts, uint32_t part_count,
        const int32_t *source, const int64_t *position, const int64_t *target, int64_t n, int width) {
    #define KC_CALL(w) kc_scatter_w(out, parts, counts, part_count, source, position, target, n, w)
        KC_BY_WIDTH(KC_CALL)
    #undef KC_CALL
    }
    """
    int64_t kc_interleave(
        uint8_t* out, const uintptr_t* parts, const int64_t* counts, unsigned int part_count,
        const int32_t* source, const int64_t* position, int64_t n, int width
    ) noexcept nogil
    int64_t kc_scatter(
        uint8_t* out, const uintptr_t* parts, const int64_t* counts, unsigned int part_count,
        const int32_t* source, const int64_t* position, const int64_t* target, int64_t n, int width
    ) noexcept nogil

cdef int64_t MAX_DATA_BYTES = 0x7FFFFFFF    # what an int32 offset can address


cdef Py_ssize_t _rows_of(Py_ssize_t size, int width) except -1:
    """How many rows of ``width`` bytes are ``size`` bytes."""
    if width != 1 and width != 2 and width != 4 and width != 8 and width != 16:
        raise ValueError(f"width {width} is not 1, 2, 4, 8 or 16")
    if size % width:
        raise ValueError(f"{size} bytes are no whole number of rows of {width} bytes")
    return size // width


cdef int _raise_row(int64_t at, int64_t row, int64_t count) except -1:
    """Say what is wrong with row ``row`` of ``count``, asked for at position ``at``."""
    if 0 <= row < count:
        raise ValueError(f"offsets of row {row} lie outside the data or descend (position {at})")
    raise IndexError(f"no row {row} (position {at})")


# --------------------------------------------------------------------------------- fixed columns

def take_fixed(
    const uint8_t[::1] values not None, int width, const int64_t[::1] rows not None, out=None
):
    """Gather ``rows`` of a fixed column; row -1 gives a cell of zeros.

    ``out``: bytes of just the size of the result, which it becomes; None: new ones.  Raises IndexError
    for a row outside the column, ValueError for a width or a length that does not fit.
    """
    cdef:
        Py_ssize_t count = _rows_of(values.shape[0], width), n = rows.shape[0]
        int64_t bad
        const uint8_t* first = NULL
        uint8_t[::1] room
    result = np.empty(n * width, np.uint8) if out is None else out
    room = result
    if room.shape[0] != n * width:
        raise ValueError(f"room of {room.shape[0]} bytes for {n} cells of {width}")
    if n == 0:
        return result
    if count:
        first = &values[0]
    with nogil:
        bad = kc_take(&room[0], first, <uint64_t>count, &rows[0], n, width)
    if bad >= 0:
        _raise_row(bad, rows[bad], count)
    return result


def interleave_fixed(
    parts not None, int width, const int32_t[::1] source not None, const int64_t[::1] position not None,
    out=None, const int64_t[::1] target=None,
):
    """Row i of the result is row ``position[i]`` of ``parts[source[i]]``, a fixed column.

    Position -1 gives a cell of zeros, whatever the source.  ``out``: as of ``take_fixed``.  ``target``: a
    permutation; it is row ``target[i]`` of the result instead, which is faster where positions ascend and
    targets in some order of theirs do not.  Raises IndexError for a source, a position or a target that does
    not exist, ValueError for lengths that do not fit.
    """
    cdef:
        Py_ssize_t n = source.shape[0], k
        int64_t bad
        const uint8_t[::1] part
        uintptr_t[::1] addresses
        int64_t[::1] counts
        uint8_t[::1] room
    if position.shape[0] != n:
        raise ValueError(f"{n} sources, {position.shape[0]} positions")
    if target is not None and target.shape[0] != n:
        raise ValueError(f"{n} sources, {target.shape[0]} targets")
    held = [memoryview(values) for values in parts]     # pinned while the GIL is released
    addresses = np.zeros(len(held) + 1, np.uintp)
    counts = np.zeros(len(held) + 1, np.int64)
    for k in range(len(held)):
        part = held[k]
        counts[k] = _rows_of(part.shape[0], width)
        if part.shape[0]:
            addresses[k] = <uintptr_t>&part[0]
    _rows_of(0, width)
    result = np.empty(n * width, np.uint8) if out is None else out
    room = result
    if room.shape[0] != n * width:
        raise ValueError(f"room of {room.shape[0]} bytes for {n} cells of {width}")
    if n == 0:
        return result
    k = len(held)
    with nogil:
        if target is None:
            bad = kc_interleave(
                &room[0], &addresses[0], &counts[0], <unsigned int>k, &source[0], &position[0], n, width
            )
        else:
            bad = kc_scatter(
                &room[0], &addresses[0], &counts[0], <unsigned int>k, &source[0], &position[0], &target[0],
                n, width,
            )
    if bad >= 0 and target is not None and not 0 <= target[bad] < n:
        raise IndexError(f"no row {target[bad]} of {n} to be written (position {bad})")
    if bad >= 0:
        raise IndexError(f"no row {position[bad]} in source {source[bad]} (position {bad})")
    return result


# ------------------------------------------------------------------------------ variable columns

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
        int32_t[::1] new_offsets
        uint8_t[::1] out
    if count < 0:
        raise ValueError("offsets of a column have at least one entry")
    if n == 0:
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    result_offsets = np.empty(n + 1, np.int32)
    new_offsets = result_offsets
    with nogil:
        bad = take_ends(&offsets[0], count, data.shape[0], &rows[0], n, True, &new_offsets[0], &total)
    if bad >= 0:
        _raise_row(bad, rows[bad], count)
    if total > MAX_DATA_BYTES:
        raise OverflowError(f"{total} bytes in one column exceed 2**31 - 1")
    result = np.empty(total, np.uint8)
    if total:
        out = result
        with nogil:
            _take_cells(&offsets[0], data, rows, new_offsets, out)
    return result_offsets, result


def interleave_var(
    parts not None, const int32_t[::1] source not None, const int64_t[::1] position not None
):
    """Row i of the result is row ``position[i]`` of ``parts[source[i]] = (offsets, data)``.

    Position -1 gives an empty cell.  Returns ``(offsets, data)``; raises as ``take_var``.
    """
    cdef:
        Py_ssize_t n = source.shape[0], k
        int64_t bad, total = 0, part_count
        const int32_t[::1] part_offsets
        const uint8_t[::1] part_data
        uint8_t[::1] memory
        Part* at
        int32_t[::1] new_offsets
        uint8_t[::1] out
    if position.shape[0] != n:
        raise ValueError(f"{n} sources, {position.shape[0]} positions")
    held = [(memoryview(offsets), memoryview(data)) for offsets, data in parts]
    part_count = len(held)
    memory = np.empty((part_count + 1) * sizeof(Part), np.uint8)
    at = <Part*>&memory[0]
    for k in range(part_count):
        part_offsets, part_data = held[k]
        set_part(&at[k], part_data, part_offsets)
    if n == 0:
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    result_offsets = np.empty(n + 1, np.int32)
    new_offsets = result_offsets
    with nogil:
        bad = interleave_ends_int32(
            &new_offsets[0], at, part_count, &source[0], &position[0], n, True, &total
        )
    if bad >= 0:
        if 0 <= source[bad] < part_count:
            _raise_row(bad, position[bad], at[source[bad]].count)
        _raise_row(bad, position[bad], 0)
    if total > MAX_DATA_BYTES:
        raise OverflowError(f"{total} bytes in one column exceed 2**31 - 1")
    result = np.empty(total, np.uint8)
    if total:
        out = result
        with nogil:
            interleave_cells_int32(&out[0], &new_offsets[0], at, &source[0], &position[0], n)
    return result_offsets, result
