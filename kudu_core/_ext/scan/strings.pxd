# The chosen cells of a piece of a column of strings without a dictionary: measured first, then copied.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.pages.cell cimport Strings, strings_open
from kudu_core._ext.pages.head cimport BLOCK_ROWS, STRING_PLAIN, Page, page_values
from kudu_core._ext.pages.rows cimport string_ends
from kudu_core._ext.scan.output cimport Output, OutputScratch
from kudu_core._ext.scan.pieces cimport ALL, Piece
from kudu_core._ext.search.outcomes cimport NEEDS_GENERAL_PATH


cdef inline int _spans(
    const Page* page, const Piece* piece, const uint16_t* picked, const uint8_t** data, OutputScratch* s,
    int64_t* at,
) noexcept nogil:
    """Where the chosen cells of a piece lie, and their sizes: of null ones 0."""
    cdef:
        Strings part
        int64_t begin = piece.block * BLOCK_ROWS, row = begin + piece.first, lower, values, i, v, j = 0
        int status = strings_open(page, piece.block, &part, at)
    if status == 0 and part.kind != STRING_PLAIN:
        status = NEEDS_GENERAL_PATH
    if status < 0:
        return status
    data[0] = part.data
    lower = page_values(page, begin, piece.first)
    values = page_values(page, row, piece.rows)
    status = string_ends(&part, lower, values, s.begins, s.sizes, s.work, at)
    if status < 0 or (values == piece.rows and piece.state == ALL):
        return status
    if values == piece.rows:
        for j in range(piece.chosen):
            i = picked[j] - piece.skip - piece.first
            s.begins[j] = s.begins[i]
            s.sizes[j] = s.sizes[i]
        return 0
    # From values to chosen rows, from the last one down: there are no fewer rows than values before.
    if piece.state == ALL:
        v = values
        for i in range(piece.rows - 1, -1, -1):
            if kc_bit(page.bits, row + i):
                v -= 1
                s.begins[i] = s.begins[v]
                s.sizes[i] = s.sizes[v]
            else:
                s.begins[i] = s.sizes[i] = 0
        return 0
    # Of some rows in order: the value of a row never lies before its place among the chosen.
    v = 0
    i = 0
    for j in range(piece.chosen):
        v += page_values(page, row + i, picked[j] - piece.skip - piece.first - i)
        i = picked[j] - piece.skip - piece.first
        s.codes[j] = <uint16_t>v if kc_bit(page.bits, row + i) else 0xFFFF
    memcpy(s.cells, s.begins, sizeof(s.begins))
    memcpy(s.work, s.sizes, sizeof(s.sizes))
    for j in range(piece.chosen):
        if s.codes[j] == 0xFFFF:
            s.begins[j] = s.sizes[j] = 0
        else:
            s.begins[j] = (<uint32_t*>s.cells)[s.codes[j]]
            s.sizes[j] = (<uint32_t*>s.work)[s.codes[j]]
    return 0


cdef inline int64_t measure_strings(
    const Output* o, const Piece* piece, const uint16_t* picked, int64_t total, OutputScratch* s, int64_t* at
) noexcept nogil:
    """Write the ends of the chosen cells, the first of which begins at ``total``; return the last end."""
    cdef:
        const uint8_t* data = NULL
        int32_t* out = o.offsets + piece.out + 1
        int64_t j
        int status = _spans(&o.pages[piece.page], piece, picked, &data, s, at)
    if status < 0:
        return status
    for j in range(piece.chosen):
        total += s.sizes[j]
        out[j] = <int32_t>total
    return total


cdef inline uint8_t* copy_strings(
    const Output* o, const Piece* piece, const uint16_t* picked, uint8_t* out, OutputScratch* s
) noexcept nogil:
    """Write the bytes of measured cells; return where they end."""
    cdef:
        const uint8_t* data = NULL
        int64_t at = 0, j, size = 0
    if piece.state == ALL:
        # Null cells hold no bytes, so those of the others are neighbours.
        size = <int64_t>o.offsets[piece.out + piece.rows] - o.offsets[piece.out]
        if size == 0:
            return out
    if _spans(&o.pages[piece.page], piece, picked, &data, s, &at) < 0:
        return out
    if piece.state == ALL:
        for j in range(piece.rows):
            if s.sizes[j]:
                memcpy(out, data + s.begins[j], <size_t>size)
                return out + size
    for j in range(piece.chosen):
        if s.sizes[j]:
            memcpy(out, data + s.begins[j], s.sizes[j])
            out += s.sizes[j]
    return out
