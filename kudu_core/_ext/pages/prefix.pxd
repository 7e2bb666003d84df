# Entries of STRING_PREFIX mini-blocks: sorted keys that leave out what they share with the one before.
#
# Every group of 16 entries starts afresh, so a cell is at most the bytes of its group, and what a
# payload expands to is bounded by 16 times its size.
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from kudu_core._ext.base.status cimport BAD_VALUE
from kudu_core._ext.pages.cell cimport RESTART, Strings, strings_entry, strings_group


cdef struct StringsPiece:
    # The cells of one mini-block that a range of rows needs.
    Strings part
    int64_t lower               # first value
    int64_t upper
    const uint8_t* source       # STRING_PLAIN: their bytes
    int64_t bytes
    int64_t pos                 # STRING_PREFIX: where the group of the first one begins


cdef inline int measure_prefix(StringsPiece* piece, uint32_t* lengths, int64_t* at) noexcept nogil:
    cdef:
        const Strings* part = &piece.part
        int64_t i = piece.lower - piece.lower % RESTART
        int64_t pos = 0, length = 0, shared = 0, group = 0
        int status
    if piece.lower == piece.upper:
        return 0
    status = strings_group(part, i, &pos, at)
    piece.pos = pos
    while status == 0 and i < piece.upper:
        if i % RESTART == 0:
            # The entries lie one after the other, so a cell finds its group where a scan does.
            status = strings_group(part, i, &group, at)
            if status == 0 and group != pos:
                status = BAD_VALUE
            if status < 0:
                return status
            length = 0
        status = strings_entry(part, i, &pos, &length, &shared, at)
        pos += length - shared
        if i >= piece.lower:
            lengths[i - piece.lower] = <uint32_t>length
        i += 1
    return status


cdef inline int64_t _cell_length(const Strings* part, int64_t i, int64_t pos) noexcept nogil:
    """Length of entry i of a checked block, given where its group begins."""
    cdef int64_t k, length = 0, shared = 0, at = 0
    for k in range(i - i % RESTART, i + 1):
        if strings_entry(part, k, &pos, &length, &shared, &at) < 0:
            return 0
        pos += length - shared
    return length


cdef inline void build_prefix_cell(
    const Strings* part, int64_t i, int64_t pos, uint8_t* out, int64_t size
) noexcept nogil:
    """Write entry i of a checked block, ``size`` bytes long, given where its group begins.

    The entries before it are written over each other, as far as it reaches.
    """
    cdef int64_t k, length = 0, shared = 0, at = 0, end
    for k in range(i - i % RESTART, i + 1):
        if strings_entry(part, k, &pos, &length, &shared, &at) < 0:
            return
        end = length if length < size else size
        if shared < end:
            memcpy(out + shared, part.data + pos, <size_t>(end - shared))
        pos += length - shared


cdef inline uint8_t* copy_prefix(const StringsPiece* piece, uint8_t* out) noexcept nogil:
    """Write the cells of a measured piece; return the end of what was written."""
    cdef:
        const Strings* part = &piece.part
        int64_t i = piece.lower - piece.lower % RESTART
        int64_t pos = piece.pos, length = 0, shared = 0, at = 0, before = 0
        uint8_t* last = out         # where the entry before lies, once there is one to keep
        int64_t kept = 0            # of its bytes
    # What precedes the first cell in its group is built in that cell's place, clipped to its size.
    if piece.lower == piece.upper:
        return out
    if i < piece.lower:
        length = _cell_length(part, piece.lower, piece.pos)
        build_prefix_cell(part, piece.lower, piece.pos, out, length)
        while i <= piece.lower:
            if strings_entry(part, i, &pos, &before, &shared, &at) < 0:
                return out
            pos += before - shared
            i += 1
        out += length
        kept = length
    while i < piece.upper:
        if i % RESTART == 0:
            kept = 0
        length = kept
        if strings_entry(part, i, &pos, &length, &shared, &at) < 0:
            return out
        if shared:
            memcpy(out, last, <size_t>shared)
        if length - shared:
            memcpy(out + shared, part.data + pos, <size_t>(length - shared))
        pos += length - shared
        last = out
        kept = length
        out += length
        i += 1
    return out
