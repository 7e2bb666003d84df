"""Changes of a log laid over a block of rows, column by column.

A *log* is parallel arrays in time order: rowids (uint32) and what the change says.  A *block* is
the rows ``first_row .. first_row + rows - 1`` of a rowset.  Replaying a log over a block needs no
sort: each change goes straight to its row, and a later one wins.  ``order`` (int64 positions in
the log) replays only those changes, in that order: a bucket of ``positions.bucket_sort``, say.

The kernel knows neither timestamps nor files: the caller cuts a log where its snapshot ends, and
leaves out the rowids that are not the block's.

Source: Kudu docs/design-docs/tablet.md (patching blocks by direct addressing),
tablet/delta_store.h (ApplyUpdates).
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.base.bitmap cimport kc_bit

import numpy as np

cdef:
    int64_t MAX_DATA_BYTES = 0x7FFFFFFF     # what an int32 offset can address
    int64_t MAX_ROWS = 0xFFFFFFFF           # of a block; rowids are uint32

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #define KC_INLINE static inline __attribute__((always_inline))

    /* Always inlined with a constant width (and order NULL or not), so that a change costs two
       loads and a store.  The row wraps when it lies below the block, and is caught with those
       above it. */
    KC_INLINE int64_t kc_apply_w(uint8_t *values, uint32_t rows, uint32_t first, const uint32_t *rowids,
                                 const uint8_t *cells, const int64_t *order, int64_t log, int64_t n,
                                 size_t width) {
        for (int64_t i = 0; i < n; i++) {
            int64_t k = order ? order[i] : i;
            if (order && (uint64_t)k >= (uint64_t)log) return i;
            uint32_t row = rowids[k] - first;
            if (row >= rows) return i;
            memcpy(values + row * width, cells + k * width, width);
        }
        return -1;
    }
    static int64_t kc_apply(uint8_t *values, uint32_t rows, uint32_t first, const uint32_t *rowids,
                            const uint8_t *cells, const int64_t *order, int64_t log, int64_t n, int width) {
    #define KC_CALL(w) (order ? kc_apply_w(values, rows, first, rowids, cells, order, log, n, w) \\
                              : kc_apply_w(values, rows, first, rowids, cells, NULL, log, n, w))
        switch (width) {
            case 1: return KC_CALL(1);
            case 2: return KC_CALL(2);
            case 4: return KC_CALL(4);
            case 8: return KC_CALL(8);
            default: return KC_CALL(16);
        }
    #undef KC_CALL
    }
    """
    int64_t kc_apply(
        uint8_t* values, uint32_t rows, uint32_t first, const uint32_t* rowids, const uint8_t* cells,
        const int64_t* order, int64_t log, int64_t n, int width
    ) noexcept nogil


# ----------------------------------------------------------------- checks shared by the wrappers

cdef int _check_block(int64_t first_row, int64_t rows) except -1:
    if rows < 0 or first_row < 0 or rows > MAX_ROWS or first_row > MAX_ROWS + 1 - rows:
        raise ValueError(f"no block of {rows} rows from rowid {first_row}")
    return 0


cdef int _raise_outside(
    int64_t at, const uint32_t[::1] rowids, const int64_t[::1] order, int64_t first_row, int64_t rows
) except -1:
    cdef int64_t k = at if order is None else order[at]
    if k < 0 or k >= rowids.shape[0]:
        raise ValueError(f"order has position {k}, the log has {rowids.shape[0]}")
    raise ValueError(f"change {k} is for rowid {rowids[k]}, outside [{first_row}, {first_row + rows})")


# ---------------------------------------------------------------------------------------- replay

def apply_fixed(
    uint8_t[::1] values not None,
    int width,
    int64_t first_row,
    const uint32_t[::1] rowids not None,
    const uint8_t[::1] new_values not None,
    const int64_t[::1] order=None,
):
    """Overwrite cells of ``width`` bytes in place with the changes of a log; later ones win.

    Raises ValueError when lengths do not fit (nothing is written), or for a rowid outside the
    block or a position outside the log (the changes before it are written).
    """
    cdef:
        int64_t rows, n = rowids.shape[0], bad
        const int64_t* chosen = NULL
    if width not in (1, 2, 4, 8, 16):
        raise ValueError(f"width {width} is not 1, 2, 4, 8 or 16")
    if values.shape[0] % width:
        raise ValueError(f"{values.shape[0]} bytes are no whole number of rows of {width} bytes")
    if new_values.shape[0] != n * width:
        raise ValueError(f"{n} rowids, {new_values.shape[0]} bytes of new values")
    rows = values.shape[0] // width
    _check_block(first_row, rows)
    if order is not None:
        n = order.shape[0]
        if n:
            chosen = &order[0]
    if n == 0:
        return
    if rows == 0 or rowids.shape[0] == 0:
        _raise_outside(0, rowids, order, first_row, rows)
    with nogil:
        bad = kc_apply(
            &values[0], <uint32_t>rows, <uint32_t>first_row, &rowids[0], &new_values[0], chosen,
            rowids.shape[0], n, width,
        )
    if bad >= 0:
        _raise_outside(bad, rowids, order, first_row, rows)


cdef int64_t _last_per_row(
    const uint32_t[::1] rowids, uint32_t first, const int64_t* order, int64_t n, int64_t[::1] last
) noexcept nogil:
    """Set ``last[row]`` to the position of its last change; return -1, or where the log is wrong."""
    cdef:
        int64_t i, k, log = rowids.shape[0], rows = last.shape[0]
        uint32_t row
    for i in range(n):
        k = i if order == NULL else order[i]
        if <uint64_t>k >= <uint64_t>log:
            return i
        row = rowids[k] - first     # wraps when below: caught next
        if row >= rows:
            return i
        last[row] = k
    return -1


def last_per_row(
    const uint32_t[::1] rowids not None, int64_t first_row, int64_t n, const int64_t[::1] order=None
):
    """For each of the ``n`` rows of a block the position in the log of its last change, or -1.

    The result (int64) is what ``columns.take_*`` wants for the rows that changed.  Raises
    ValueError for a rowid outside the block.
    """
    cdef:
        int64_t bad, count = rowids.shape[0]
        const int64_t* chosen = NULL
        int64_t[::1] last
    _check_block(first_row, n)
    if order is not None:
        count = order.shape[0]
        if count:
            chosen = &order[0]
    result = np.full(n, -1, np.int64)
    last = result
    with nogil:
        bad = _last_per_row(rowids, <uint32_t>first_row, chosen, count, last)
    if bad >= 0:
        _raise_outside(bad, rowids, order, first_row, n)
    return result


cdef int _overlay_lengths(
    const int32_t[::1] offsets,
    int64_t data_bytes,
    const int64_t[::1] last,
    const int32_t[::1] new_offsets,
    int64_t new_bytes,
    int32_t[::1] out,
    int64_t* total,
) noexcept nogil:
    """Write the offsets of the result; return 0, or 1 when given offsets are wrong."""
    cdef int64_t i, k, lower, upper, end = 0
    out[0] = 0
    for i in range(last.shape[0]):
        k = last[i]
        if k >= 0:
            lower = new_offsets[k]
            upper = new_offsets[k + 1]
            if lower < 0 or upper < lower or upper > new_bytes:
                return 1
        else:
            lower = offsets[i]
            upper = offsets[i + 1]
            if lower < 0 or upper < lower or upper > data_bytes:
                return 1
        end += upper - lower
        out[i + 1] = <int32_t>end       # wraps only where the total is refused
    total[0] = end
    return 0


cdef void _overlay_cells(
    const int32_t[::1] offsets,
    const uint8_t* data,
    const int64_t[::1] last,
    const int32_t[::1] new_offsets,
    const uint8_t* new_data,
    const int32_t[::1] out_offsets,
    uint8_t* out,
) noexcept nogil:
    cdef int64_t i = 0, start, k, size, n = last.shape[0]
    while i < n:
        k = last[i]
        if k >= 0:
            size = new_offsets[k + 1] - new_offsets[k]
            if size:
                memcpy(out + out_offsets[i], new_data + new_offsets[k], size)
            i += 1
        else:                           # rows that keep their cells: one copy for all of them
            start = i
            while i < n and last[i] < 0:
                i += 1
            size = offsets[i] - offsets[start]
            if size:
                memcpy(out + out_offsets[start], data + offsets[start], size)


def overlay_var(
    const int32_t[::1] offsets not None,
    const uint8_t[::1] data not None,
    int64_t first_row,
    const uint32_t[::1] rowids not None,
    const int32_t[::1] new_offsets not None,
    const uint8_t[::1] new_data not None,
    const int64_t[::1] order=None,
):
    """A variable column with the changes of a log in it; later ones win.

    Returns new ``(offsets, data)``, offsets from 0.  Raises ValueError when lengths do not fit,
    for a rowid outside the block or for offsets that break their rules; OverflowError when the
    result exceeds what int32 offsets can address.
    """
    cdef:
        int64_t rows = offsets.shape[0] - 1, total = 0
        int wrong
        const int64_t[::1] last
        int32_t[::1] out_offsets
        uint8_t[::1] out
        const uint8_t* data_at = NULL
        const uint8_t* new_at = NULL
    if rows < 0:
        raise ValueError("offsets of a column have at least one entry")
    if new_offsets.shape[0] != rowids.shape[0] + 1:
        raise ValueError(f"{rowids.shape[0]} rowids, {new_offsets.shape[0]} offsets of new values")
    last = last_per_row(rowids, first_row, rows, order)
    result_offsets = np.empty(rows + 1, np.int32)
    out_offsets = result_offsets
    with nogil:
        wrong = _overlay_lengths(
            offsets, data.shape[0], last, new_offsets, new_data.shape[0], out_offsets, &total
        )
    if wrong:
        raise ValueError("offsets lie outside the data or descend")
    if total > MAX_DATA_BYTES:
        raise OverflowError(f"{total} bytes in one column exceed 2**31 - 1")
    result = np.empty(total, np.uint8)
    if total:
        out = result
        if data.shape[0]:
            data_at = &data[0]
        if new_data.shape[0]:
            new_at = &new_data[0]
        with nogil:
            _overlay_cells(offsets, data_at, last, new_offsets, new_at, out_offsets, &out[0])
    return result_offsets, result


cdef int64_t _apply_bits(
    uint8_t[::1] bits,
    int64_t rows,
    uint32_t first,
    const uint32_t[::1] rowids,
    const uint8_t* new_bits,
    const int64_t* order,
    int64_t n,
) noexcept nogil:
    cdef:
        int64_t i, k, log = rowids.shape[0]
        uint32_t row
        unsigned int bit, shift
    for i in range(n):
        k = i if order == NULL else order[i]
        if <uint64_t>k >= <uint64_t>log:
            return i
        row = rowids[k] - first
        if row >= rows:
            return i
        shift = row & 7
        bit = 1 if new_bits == NULL else <unsigned int>kc_bit(new_bits, k)
        bits[row >> 3] = <uint8_t>((bits[row >> 3] & ~(1u << shift)) | (bit << shift))
    return -1


def apply_bits(
    uint8_t[::1] bits not None,
    int64_t rows,
    int64_t first_row,
    const uint32_t[::1] rowids not None,
    const uint8_t[::1] new_bits,
    const int64_t[::1] order=None,
):
    """Set the bits of a block's ``rows`` in place; ``new_bits`` None: each change sets its bit.

    Raises as ``apply_fixed``.
    """
    cdef:
        int64_t bad, n = rowids.shape[0]
        const int64_t* chosen = NULL
        const uint8_t* new_at = NULL
    _check_block(first_row, rows)
    if bits.shape[0] < (rows + 7) >> 3:
        raise ValueError(f"a bitmap of {bits.shape[0]} bytes has no {rows} bits")
    if new_bits is not None:
        if new_bits.shape[0] < (n + 7) >> 3:
            raise ValueError(f"a bitmap of {new_bits.shape[0]} bytes has no {n} bits")
        if n:
            new_at = &new_bits[0]
    if order is not None:
        n = order.shape[0]
        if n:
            chosen = &order[0]
    with nogil:
        bad = _apply_bits(bits, rows, <uint32_t>first_row, rowids, new_at, chosen, n)
    if bad >= 0:
        _raise_outside(bad, rowids, order, first_row, rows)


def set_live(
    uint8_t[::1] live not None,
    int64_t first_row,
    const uint32_t[::1] rowids not None,
    const uint8_t[::1] flags not None,
    const int64_t[::1] order=None,
):
    """Overwrite the liveness bytes of a block in place: 0 deleted, 1 live (again).

    The same as ``apply_fixed`` of width 1, under the name of what it does.
    """
    apply_fixed(live, 1, first_row, rowids, flags, order)
