# One column of what a scan reads: where it comes from, where it goes, and room to work in.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

from kudu_core._ext.base.bitmap cimport kc_bit, kc_bits_copy
from kudu_core._ext.changes.patch cimport kc_patch_view
from kudu_core._ext.pages.head cimport BLOCK_ROWS, Page
from kudu_core._ext.pages.rows cimport WORK_BYTES
from kudu_core._ext.scan.column cimport Words
from kudu_core._ext.scan.parts cimport PageMap
from kudu_core._ext.scan.pieces cimport ALL, Piece

cdef enum:
    FORM_CELLS = 0              # fixed cells as they are; strings as offsets and bytes
    FORM_BITS = 1               # bools, packed
    FORM_CODES = 2              # codes of the dictionary, as int32


cdef struct OutputScratch:
    uint8_t cells[WORK_BYTES]
    uint8_t work[WORK_BYTES]
    uint8_t out[WORK_BYTES]
    uint16_t codes[1025]
    uint32_t begins[1024]
    uint32_t sizes[1024]


cdef struct Output:
    int width                   # as stored
    int form
    int status                  # below 0: ask the general path
    bint nullable               # some page of it has nulls, or its patch
    const Words* words
    int page_bits
    const PageMap* map
    Page* pages                 # of the map
    kc_patch_view patch         # .rows is NULL where nothing is laid over
    uint8_t* values
    int32_t* offsets
    uint8_t* bits
    int64_t bytes               # of strings


cdef inline bint is_variable(const Output* o) noexcept nogil:
    """Whether the column leaves as offsets and bytes."""
    return o.form == FORM_CELLS and (o.width == 0 or o.words.count > 0)


cdef inline void write_validity(
    const Page* page, const Piece* piece, const uint16_t* picked, uint8_t* bits
) noexcept nogil:
    """Which of the chosen cells are not null; bits beyond them are 0."""
    cdef int64_t begin = piece.block * BLOCK_ROWS, j, at
    if page.bits == NULL:
        kc_bits_copy(bits, piece.out, NULL, 0, piece.chosen)
    elif piece.state == ALL:
        kc_bits_copy(bits, piece.out, page.bits, begin + piece.first, piece.rows)
    else:
        for j in range(piece.chosen):
            at = piece.out + j
            bits[at >> 3] |= <uint8_t>(kc_bit(page.bits, begin + picked[j] - piece.skip) << (at & 7))
