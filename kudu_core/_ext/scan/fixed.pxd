# The chosen cells of a piece of fixed width: numbers, bools, codes of a dictionary.
#
# Of a few chosen rows the cells are read one by one; of more of them they are picked from the unpacked block.
# What is read is hostile: functions return a status where the bytes break their format.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.base.bitpack cimport kc_mask    # its C text comes first: types, KC_CLONES
from kudu_core._ext.pages.cell cimport Layout, fixed_cell, fixed_layout
from kudu_core._ext.pages.head cimport (
    BITSHUFFLE,
    BLOCK_ROWS,
    DELTA,
    FOR,
    NO_SCALE,
    Block,
    Page,
    block_open,
    block_rows,
    page_values,
)
from kudu_core._ext.pages.rows cimport fits_fast_floats, kc_unpack_part, values_part
from kudu_core._ext.base.decimals cimport kc_to_floats
from kudu_core._ext.base.integers cimport kc_sign_extend
from kudu_core._ext.base.nulls cimport kc_spread
from kudu_core._ext.changes.patch cimport kc_lay
from kudu_core._ext.scan.output cimport FORM_BITS, FORM_CELLS, Output, OutputScratch
from kudu_core._ext.scan.pieces cimport ALL, Piece
from kudu_core._ext.base.status cimport BAD_VALUE

cdef extern from *:
    """
    #include <string.h>
    #define KC_PICK(T, N) { \\
            const T *from = (const T *)in; T *to = (T *)out; \\
            for (int64_t i = 0; i < n; i++) to[N * i] = from[N * (picked[i] - first)]; \\
            break; }
    /* Cells of the picked rows of those from `first` on. */
    static void kc_pick(uint8_t *restrict out, const uint8_t *restrict in, const uint16_t *restrict picked,
        int first, int64_t n, int width) {
        switch (width) {
            case 1: KC_PICK(kc_u8, 1)
            case 2: KC_PICK(kc_u16, 1)
            case 4: KC_PICK(kc_u32, 1)
            case 8: KC_PICK(kc_u64, 1)
            default:
                for (int64_t i = 0; i < n; i++) memcpy(out + 16 * i, in + 16 * (picked[i] - first), 16);
        }
    }
    #undef KC_PICK

    KC_CLONES static uint32_t kc_codes(uint16_t *restrict out, const uint8_t *restrict in, int64_t n,
        int width) {
        uint16_t most = 0;
        if (width == 1) for (int64_t i = 0; i < n; i++) {
            out[i] = in[i];
            most = out[i] > most ? out[i] : most;
        } else for (int64_t i = 0; i < n; i++) {
            out[i] = ((const kc_u16 *)in)[i];
            most = out[i] > most ? out[i] : most;
        }
        return most;
    }
    KC_CLONES static void kc_ordinals(int32_t *restrict out, const uint16_t *restrict in, int64_t n) {
        for (int64_t i = 0; i < n; i++) out[i] = in[i];
    }
    /* Bytes that are not 0 as bits; bits beyond them must be 0 before. */
    static void kc_pack_bools(uint8_t *bits, int64_t at, const uint8_t *in, int64_t n) {
        int64_t i = 0;
        for (; i < n && ((at + i) & 7); i++)
            bits[(at + i) >> 3] |= (uint8_t)((in[i] != 0) << ((at + i) & 7));
        for (; i + 8 <= n; i += 8) {
            uint8_t byte = 0;
            for (int k = 0; k < 8; k++) byte |= (uint8_t)((in[i + k] != 0) << k);
            bits[(at + i) >> 3] = byte;
        }
        for (; i < n; i++) bits[(at + i) >> 3] |= (uint8_t)((in[i] != 0) << ((at + i) & 7));
    }
    """
    void kc_pick(
        uint8_t* out, const uint8_t* cells, const uint16_t* picked, int first, int64_t n, int width
    ) noexcept nogil
    uint32_t kc_codes(uint16_t* out, const uint8_t* cells, int64_t n, int width) noexcept nogil
    void kc_ordinals(int32_t* out, const uint16_t* codes, int64_t n) noexcept nogil
    void kc_pack_bools(uint8_t* bits, int64_t at, const uint8_t* cells, int64_t n) noexcept nogil

cdef enum:
    FEW = 24                    # so many cells of a mini-block are read one by one


cdef inline bint _gives_cells(const Block* block) noexcept nogil:
    """Whether one cell of the mini-block costs less than all."""
    return block.kind != DELTA and block.kind != BITSHUFFLE


cdef inline int _one_by_one(
    const Block* block, const Layout* layout, int width, const uint16_t* picked, int64_t n, uint8_t* out
) noexcept nogil:
    """Read each picked cell by itself."""
    cdef:
        int64_t i
        int status
        uint8_t cell[16]
    for i in range(n):
        status = fixed_cell(block, layout, picked[i], cell)
        if status < 0:
            return status
        if layout.width != width:
            kc_sign_extend(out + 16 * i, cell, 1)
        else:
            memcpy(out + i * width, cell, <size_t>width)
    return 0


cdef inline int _some_dense(
    const Block* block, const Layout* layout, int width, const uint16_t* picked, int64_t n, uint8_t* out,
    OutputScratch* s, int64_t* at,
) noexcept nogil:
    """Picked rows of a mini-block without nulls."""
    cdef:
        int64_t lower = picked[0], span = picked[n - 1] + 1 - picked[0]
        int status
    if n <= FEW and _gives_cells(block):
        return _one_by_one(block, layout, width, picked, n, out)
    if 4 * span > block.count:
        lower = 0               # whole blocks unpack faster
        span = block.count
    if block.kind == FOR and block.scale != NO_SCALE and not block.exceptions:
        # Divide only what stays.
        kc_unpack_part(
            s.cells, layout.packed, block.count, width, block.bits, block.base, lower, span, s.work
        )
        kc_pick(out, s.cells, picked, <int>lower, n, width)
        kc_to_floats(out, n, width, block.scale, fits_fast_floats(block))
        return 0
    status = values_part(block, layout, width, lower, span, s.cells, s.work, at)
    if status == 0:
        kc_pick(out, s.cells, picked, <int>lower, n, width)
    return status


cdef inline int _some_of_few(
    const Page* page, const Block* block, const Layout* layout, int width, int64_t begin,
    const uint16_t* picked, int64_t n, uint8_t* out
) noexcept nogil:
    """A few picked rows of a mini-block with nulls, which begins at row ``begin`` of the page."""
    cdef:
        int64_t i, row = 0, value = 0
        uint16_t place
        int status
    for i in range(n):
        value += page_values(page, begin + row, picked[i] - row)
        row = picked[i]
        if kc_bit(page.bits, begin + row):
            place = <uint16_t>value
            status = _one_by_one(block, layout, width, &place, 1, out + i * width)
            if status < 0:
                return status
        else:
            memset(out + i * width, 0, <size_t>width)
    return 0


cdef inline int read_cells(
    const Page* page, const Piece* piece, const uint16_t* picked, int width, uint8_t* out, OutputScratch* s,
    int64_t* at,
) noexcept nogil:
    """Write the chosen cells of a piece, ``width`` bytes each; null ones are zeros."""
    cdef:
        Block block
        Layout layout
        int64_t begin = piece.block * BLOCK_ROWS, row = begin + piece.first, lower, values
        int status = block_open(page, piece.block, &block, at)
    if status == 0:
        status = fixed_layout(&block, width, &layout, at)
    if status < 0:
        return status
    if block.count == block_rows(page, piece.block):
        if piece.state == ALL:
            return values_part(&block, &layout, width, piece.first, piece.rows, out, s.work, at)
        return _some_dense(&block, &layout, width, picked, piece.chosen, out, s, at)
    if piece.state != ALL and piece.chosen <= FEW and _gives_cells(&block):
        return _some_of_few(page, &block, &layout, width, begin, picked, piece.chosen, out)
    lower = page_values(page, begin, piece.first)
    values = page_values(page, row, piece.rows)
    status = values_part(&block, &layout, width, lower, values, s.cells, s.work, at)
    if status < 0:
        return status
    if piece.state == ALL:
        kc_spread(out, s.cells, page.bits, row, piece.rows, width)
        return 0
    kc_spread(s.work, s.cells, page.bits, row, piece.rows, width)
    kc_pick(out, s.work, picked, piece.first, piece.chosen, width)
    return 0


cdef inline int _read_patched(
    const Output* o, const Piece* piece, int64_t begin, const uint16_t* picked, OutputScratch* s, int64_t* at
) noexcept nogil:
    """Most of the cells of a piece, none of them null: changes are laid over all of them before some go."""
    cdef:
        uint8_t* out = o.values + piece.out * o.width
        uint8_t* all_cells = out
        Piece whole = piece[0]
        int status
    whole.state = ALL
    whole.chosen = whole.rows
    if piece.state != ALL:
        all_cells = s.out
    status = read_cells(&o.pages[piece.page], &whole, NULL, o.width, all_cells, s, at)
    if status == 0:
        kc_lay(&o.patch, all_cells, begin + piece.first, NULL, piece.rows, NULL, 0, o.width)
        if piece.state != ALL:
            kc_pick(out, all_cells, picked, piece.first, piece.chosen, o.width)
    return status


cdef inline int read_fixed(
    const Output* o, const Piece* piece, int64_t begin, const uint16_t* picked, OutputScratch* s, int64_t* at
) noexcept nogil:
    """Write the chosen cells of a piece in the form of the column, its changes laid over.

    ``begin``: the row of the file at which the mini-block of the piece begins.
    """
    cdef:
        uint8_t* out = o.values
        int status
    if o.patch.rows != NULL and o.form == FORM_CELLS and o.bits == NULL and 2 * piece.chosen > piece.rows > 0:
        return _read_patched(o, piece, begin, picked, s, at)
    if o.form == FORM_CELLS:
        out += piece.out * o.width
    else:
        out = s.out
    status = read_cells(&o.pages[piece.page], piece, picked, o.width, out, s, at)
    if status < 0:
        return status
    if o.patch.rows != NULL:
        if piece.state == ALL:
            kc_lay(&o.patch, out, begin + piece.first, NULL, piece.rows, o.bits, piece.out, o.width)
        else:
            kc_lay(&o.patch, out, begin, picked, piece.chosen, o.bits, piece.out, o.width)
    if o.form == FORM_CELLS:
        return 0
    if o.form == FORM_BITS:
        kc_pack_bools(o.values, piece.out, s.out, piece.chosen)
        return 0
    if kc_codes(s.codes, s.out, piece.chosen, o.width) >= o.words.count:
        return BAD_VALUE
    kc_ordinals(<int32_t*>o.values + piece.out, s.codes, piece.chosen)
    return 0
