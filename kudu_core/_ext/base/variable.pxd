# Cells of any length: of variable columns, and encoded keys.  They are bytes laid end to end and offsets
# into them, int32 or int64, one more than there are cells, which need not begin at 0.  Here is how
# such cells are gathered from one column, or from several at once.
#
# The loops over parts are functions of their own for the C compiler too: inlined into what checks
# arguments they lose their registers to it.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kudu_core._ext.base.copy_cells cimport kc_take     # its C text comes first: kc_copy_cell

cdef extern from *:
    """
    #ifndef KUDU_CORE_VARIABLE
    #define KUDU_CORE_VARIABLE
    #define KC_OWN static __attribute__((noinline))

    typedef struct {
        const uint8_t *data;
        int64_t data_bytes;
        const void *offsets;
        int64_t count;
    } kc_part;

    #define KC_ENDS(T) \\
    KC_OWN int64_t kc_interleave_ends_##T(T##_t *ends, const kc_part *parts, int64_t part_count, \\
        const int32_t *source, const int64_t *position, int64_t n, int may_lack, int64_t *total) { \\
        int64_t end = 0; \\
        ends[0] = 0; \\
        for (int64_t i = 0; i < n; i++) { \\
            const int64_t row = position[i]; \\
            if (!may_lack || row != -1) { \\
                if ((uint64_t)source[i] >= (uint64_t)part_count) return i; \\
                const kc_part *part = &parts[source[i]]; \\
                if ((uint64_t)row >= (uint64_t)part->count) return i; \\
                const int64_t lower = ((const T##_t *)part->offsets)[row]; \\
                const int64_t upper = ((const T##_t *)part->offsets)[row + 1]; \\
                if ((uint64_t)upper > (uint64_t)part->data_bytes || (uint64_t)lower > (uint64_t)upper) \\
                    return i; \\
                end += upper - lower; \\
            } \\
            ends[i + 1] = (T##_t)end; \\
        } \\
        *total = end; \\
        return -1; \\
    } \\
    KC_OWN void kc_interleave_cells_##T(uint8_t *out, const T##_t *ends, const kc_part *parts, \\
        const int32_t *source, const int64_t *position, int64_t n) { \\
        const uint8_t *out_end = out + ends[n]; \\
        for (int64_t i = 0; i < n; i++) { \\
            if (ends[i + 1] == ends[i]) continue;   /* so the part has data */ \\
            const kc_part *part = &parts[source[i]]; \\
            kc_copy_cell(out + ends[i], out_end, part->data + ((const T##_t *)part->offsets)[position[i]], \\
                part->data + part->data_bytes, ends[i + 1] - ends[i]); \\
        } \\
    }
    KC_ENDS(int32)
    KC_ENDS(int64)
    #undef KC_ENDS
    #endif
    """
    ctypedef struct Part "kc_part":
        # One of several columns.  The caller holds what the addresses point into.
        const uint8_t* data
        int64_t data_bytes
        const void* offsets
        int64_t count

    # As ``take_ends``, where cell i is cell ``position[i]`` of part ``source[i]``; the source of position -1
    # is not looked at.  Then copy the cells whose ends these are.
    int64_t interleave_ends_int32 "kc_interleave_ends_int32"(
        int32_t* ends, const Part* parts, int64_t part_count, const int32_t* source,
        const int64_t* position, int64_t n, bint may_lack, int64_t* total
    ) noexcept nogil
    int64_t interleave_ends_int64 "kc_interleave_ends_int64"(
        int64_t* ends, const Part* parts, int64_t part_count, const int32_t* source,
        const int64_t* position, int64_t n, bint may_lack, int64_t* total
    ) noexcept nogil
    void interleave_cells_int32 "kc_interleave_cells_int32"(
        uint8_t* out, const int32_t* ends, const Part* parts, const int32_t* source,
        const int64_t* position, int64_t n
    ) noexcept nogil
    void interleave_cells_int64 "kc_interleave_cells_int64"(
        uint8_t* out, const int64_t* ends, const Part* parts, const int32_t* source,
        const int64_t* position, int64_t n
    ) noexcept nogil

ctypedef fused offset_t:
    int32_t
    int64_t


cdef inline int set_part(Part* part, const uint8_t[::1] data, const offset_t[::1] offsets) except -1:
    """Point ``part`` at a column; ValueError where it has no offsets."""
    if offsets.shape[0] == 0:
        raise ValueError("offsets have at least one entry")
    part.data = &data[0] if data.shape[0] else NULL
    part.data_bytes = data.shape[0]
    part.offsets = &offsets[0]
    part.count = offsets.shape[0] - 1
    return 0


cdef inline int64_t take_ends(
    const offset_t* offsets, int64_t count, int64_t data_bytes, const int64_t* rows, int64_t n,
    bint may_lack, offset_t* ends, int64_t* total,
) noexcept nogil:
    """Write the offsets of the cells of ``rows`` laid end to end, and their bytes in all.

    ``may_lack``: row -1 gives an empty cell.  Return -1, or the position in ``rows`` of a row that does
    not exist or whose offsets descend or lie outside the data.
    """
    cdef:
        int64_t i, row, lower, upper, end = 0
    ends[0] = 0
    for i in range(n):
        row = rows[i]
        if <uint64_t>row < <uint64_t>count:
            lower = offsets[row]
            upper = offsets[row + 1]
            # What is negative is large without its sign.
            if <uint64_t>upper > <uint64_t>data_bytes or <uint64_t>lower > <uint64_t>upper:
                return i
            end += upper - lower
        elif not may_lack or row != -1:
            return i
        ends[i + 1] = <offset_t>end     # wraps only where the total is refused
    total[0] = end
    return -1
