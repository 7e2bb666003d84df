# The loops by which cells of a given column come to the end of a growing one: growing.pyx.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.base.copy_cells cimport kc_copy_cell


cdef inline int64_t measure_cells(
    const int32_t[::1] offsets, int64_t data_bytes, const int64_t* rows, int64_t n, int64_t* total
) noexcept nogil:
    """Add up the bytes of ``rows`` (NULL: of all); return -1, or the position at fault."""
    cdef:
        int64_t i, row, lower, upper, sum = 0
        int64_t count = offsets.shape[0] - 1
    for i in range(n):
        row = i if rows == NULL else rows[i]
        if row == -1:
            continue
        if <uint64_t>row >= <uint64_t>count:
            return i
        lower = offsets[row]
        upper = offsets[row + 1]
        if lower < 0 or upper < lower or upper > data_bytes:
            return i
        sum += upper - lower
    total[0] = sum
    return -1


cdef inline void append_cells(
    const int32_t[::1] offsets,
    const uint8_t[::1] data,
    const int64_t* rows,
    int64_t n,
    uint8_t* target,
    int64_t capacity,
    int64_t end,
    int32_t* ends,
) noexcept nogil:
    """Append the cells at ``target[end..]`` and their ends at ``ends[0..n]``; lengths are checked."""
    cdef int64_t i, row, size
    if rows == NULL:
        size = offsets[n] - <int64_t>offsets[0]
        if size:
            memcpy(target + end, &data[offsets[0]], size)
        for i in range(n):
            ends[i] = <int32_t>(end + (offsets[i + 1] - <int64_t>offsets[0]))
        return
    for i in range(n):
        row = rows[i]
        if row >= 0:
            size = offsets[row + 1] - offsets[row]
            if size:
                kc_copy_cell(
                    target + end, target + capacity, &data[offsets[row]], &data[0] + data.shape[0], size
                )
                end += size
        ends[i] = <int32_t>end


cdef inline int64_t append_bits(
    uint8_t* bits, int64_t at, const uint8_t* source, const int64_t* rows, int64_t n
) noexcept nogil:
    """Clear the bits of nulls among the new rows; return the first one's position, or -1."""
    cdef int64_t i, row, first = -1
    for i in range(n):
        row = rows[i]
        if row == -1 or (source != NULL and not kc_bit(source, row)):
            if first < 0:
                first = i
            bits[(at + i) >> 3] &= <uint8_t>~(1 << ((at + i) & 7))
    return first


cdef inline int64_t first_zero(const uint8_t* bits, int64_t lower, int64_t upper) noexcept nogil:
    while lower < upper:
        if not kc_bit(bits, lower):
            return lower
        lower += 1
    return -1
