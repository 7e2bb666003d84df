# One cell of an encoded key: how it is written and read.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy

from kudu_core._ext.base.keybytes cimport kc_be_store16, kc_be_store32, kc_be_store64, kc_be64
from kudu_core._ext.base.status cimport BAD_VALUE, TRUNCATED

# How a cell is written: its width in bytes when that is fixed, or one of these.
cdef enum:
    RAW = 0                 # the rest of the key
    PLAIN = 32              # no byte 00 in the whole column: copy, then 00 00
    ESCAPED = 33


cdef struct EncodedColumn:
    int shape                   # width of a fixed cell, RAW, PLAIN or ESCAPED
    uint64_t flip               # the sign bit at the top of a word; 0 for unsigned
    const uint8_t* values       # of a variable column the data bytes
    const uint8_t* end
    const int32_t* offsets
    uint8_t* out                # the rest for decoding only
    uint8_t* out_end
    int32_t* out_offsets


cdef inline bint is_fixed(const EncodedColumn* column) noexcept nogil:
    return RAW < column.shape < PLAIN


cdef inline int64_t escaped_size(const uint8_t* cell, int64_t size) noexcept nogil:
    """Bytes of a cell that is not the last, with its end."""
    cdef int64_t i
    cdef int64_t zeros = 0
    for i in range(size):
        zeros += cell[i] == 0
    return size + zeros + 2


cdef inline uint8_t* write_escaped(uint8_t* out, const uint8_t* cell, int64_t size) noexcept nogil:
    cdef int64_t i
    for i in range(size):
        out[0] = cell[i]
        out += 1
        if cell[i] == 0:
            out[0] = 1
            out += 1
    out[0] = 0
    out[1] = 0
    return out + 2


cdef inline uint8_t* write_fixed(
    uint8_t* out, const uint8_t* cell, int width, uint64_t flip
) noexcept nogil:
    cdef:
        uint64_t word
        uint32_t half
        uint16_t quarter
    if width == 8:
        memcpy(&word, cell, 8)
        kc_be_store64(out, word ^ flip)
    elif width == 4:
        memcpy(&half, cell, 4)
        kc_be_store32(out, half ^ <uint32_t>(flip >> 32))
    elif width == 1:
        out[0] = cell[0] ^ <uint8_t>(flip >> 56)
    elif width == 2:
        memcpy(&quarter, cell, 2)
        kc_be_store16(out, quarter ^ <uint16_t>(flip >> 48))
    else:
        memcpy(&word, cell + 8, 8)
        kc_be_store64(out, word ^ flip)
        memcpy(&word, cell, 8)
        kc_be_store64(out + 8, word)
    return out + width


cdef inline int64_t cell_end(const uint8_t* data, int64_t* at, int64_t end, int64_t* zeros) noexcept nogil:
    """Where the cell at ``at`` ends (its 00 00), or a status with ``at`` where; ``zeros``: escapes."""
    cdef:
        const uint8_t* found
        int64_t place = at[0]
    zeros[0] = 0
    while True:
        found = NULL
        if place < end:
            found = <const uint8_t*>memchr(data + place, 0, end - place)
        if found is NULL or found + 1 == data + end:
            return TRUNCATED
        place = found - data
        if data[place + 1] == 0:
            return place
        if data[place + 1] != 1:
            at[0] = place
            return BAD_VALUE
        zeros[0] += 1
        place += 2


cdef inline void read_fixed(uint8_t* out, const uint8_t* cell, int width, uint64_t flip) noexcept nogil:
    cdef:
        uint64_t word
        int i
    if width == 8:
        word = kc_be64(cell) ^ flip
        memcpy(out, &word, 8)
    elif width == 16:
        word = kc_be64(cell) ^ flip
        memcpy(out + 8, &word, 8)
        word = kc_be64(cell + 8)
        memcpy(out, &word, 8)
    else:
        for i in range(width):
            out[i] = cell[width - 1 - i]
        out[width - 1] ^= <uint8_t>(flip >> 56)
