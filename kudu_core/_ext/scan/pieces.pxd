# The rows that a scan reads of a file, as pieces that lie in one mini-block of 1,024 rows each, and which of
# them are chosen.
#
# A piece of which all rows are chosen says so; of others a mask has one byte a row, and when the choice is
# settled a list has the places of the chosen rows.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t
from libc.string cimport memcpy

from kudu_core._ext.base.bitpack cimport kc_mask    # its C text comes first: types, KC_CLONES
from kudu_core._ext.pages.head cimport BLOCK_ROWS

cdef extern from *:
    """
    #include <string.h>
    /* Which bits of a byte are set, one after the other: filled once, before kc_positions is called. */
    static uint16_t kc_set_bits[256][8];
    static uint8_t kc_set_count[256];
    static void kc_fill_set_bits(void) {
        for (int byte = 0; byte < 256; byte++) {
            int count = 0;
            for (int bit = 0; bit < 8; bit++) if (byte >> bit & 1) kc_set_bits[byte][count++] = (uint16_t)bit;
            kc_set_count[byte] = (uint8_t)count;
        }
    }
    /* Positions of the rows that a mask of bytes 0 and 1 chooses, plus `first`; up to 7 numbers more are
       written than there are. */
    static void kc_positions(uint16_t *out, const uint8_t *mask, int64_t n, int first) {
        int64_t i = 0;
        for (; i + 8 <= n; i += 8) {
            uint64_t word;
            memcpy(&word, mask + i, 8);
            if (word == 0) continue;
            const int byte = (int)((word * 0x0102040810204080ULL) >> 56);
            const uint16_t at = (uint16_t)(first + i);
            uint16_t eight[8];      /* apart from `out`, so that this is one addition of 16 bytes */
            memcpy(eight, kc_set_bits[byte], 16);
            for (int k = 0; k < 8; k++) eight[k] = (uint16_t)(eight[k] + at);
            memcpy(out, eight, 16);
            out += kc_set_count[byte];
        }
        for (; i < n; i++) if (mask[i]) *out++ = (uint16_t)(first + i);
    }
    KC_CLONES static int64_t kc_mask_sum(const uint8_t *mask, int64_t n) {
        int64_t total = 0;
        for (int64_t i = 0; i < n; i++) total += mask[i];
        return total;
    }
    KC_CLONES static void kc_mask_and(uint8_t *restrict mask, const uint8_t *restrict other, int64_t n) {
        for (int64_t i = 0; i < n; i++) mask[i] &= other[i];
    }
    KC_CLONES static void kc_to_mask(uint8_t *restrict out, const uint8_t *restrict in, int64_t n) {
        for (int64_t i = 0; i < n; i++) out[i] = in[i] != 0;
    }
    """
    void kc_fill_set_bits() noexcept nogil
    void kc_positions(uint16_t* out, const uint8_t* mask, int64_t n, int first) noexcept nogil
    int64_t kc_mask_sum(const uint8_t* mask, int64_t n) noexcept nogil
    void kc_mask_and(uint8_t* mask, const uint8_t* other, int64_t n) noexcept nogil
    void kc_to_mask(uint8_t* out, const uint8_t* bytes_, int64_t n) noexcept nogil


cdef enum State:
    NONE = 0                    # of the rows of a piece, or of a page by its zone map
    ALL = 1
    SOME = 2                    # the mask says which

cdef struct Piece:
    # Rows that lie in one mini-block: of the file, or of one column (``parts.pxd``).
    int32_t page                # of a part: the place of its page among those that are held
    int32_t block               # of the file; of a part: of its page
    int32_t first               # row in the mini-block
    int32_t skip                # of a part: where its mini-block begins in that of the file; else 0
    int32_t rows
    int32_t state
    int32_t chosen
    int64_t at                  # rows of the selection before
    int64_t out                 # chosen rows before


cdef inline void narrow_piece(Piece* piece, uint8_t* mask, const uint8_t* passed, int state) noexcept nogil:
    """Keep of a piece what also passed; ``mask`` is that of its rows."""
    if state == ALL:
        return
    if state == NONE:
        piece.state = NONE
    elif piece.state == ALL:
        memcpy(mask, passed, piece.rows)
        piece.state = SOME
    else:
        kc_mask_and(mask, passed, piece.rows)


cdef inline int64_t count_pieces(
    const int64_t* ranges, int64_t n, int64_t rows, int64_t* total
) noexcept nogil:
    """How many mini-blocks the n ranges touch; -1 for ranges that a file of ``rows`` rows cannot have."""
    cdef int64_t k, pieces = 0, last = 0
    for k in range(n):
        if ranges[2 * k] < last or ranges[2 * k + 1] < ranges[2 * k] or ranges[2 * k + 1] > rows:
            return -1
        last = ranges[2 * k + 1]
        total[0] += last - ranges[2 * k]
        if last > ranges[2 * k]:
            pieces += (last - 1) / BLOCK_ROWS - ranges[2 * k] / BLOCK_ROWS + 1
    return pieces


cdef inline void cut_pieces(
    const int64_t* ranges, int64_t n, Piece* pieces, const uint8_t* mask
) noexcept nogil:
    """Write the pieces."""
    cdef:
        int64_t k, row, stop, at = 0
        Piece* piece = pieces
    for k in range(n):
        row = ranges[2 * k]
        while row < ranges[2 * k + 1]:
            stop = (row / BLOCK_ROWS + 1) * BLOCK_ROWS
            if stop > ranges[2 * k + 1]:
                stop = ranges[2 * k + 1]
            piece.page = piece.skip = 0
            piece.block = <int32_t>(row / BLOCK_ROWS)
            piece.first = <int32_t>(row % BLOCK_ROWS)
            piece.rows = <int32_t>(stop - row)
            piece.at = at
            piece.state = ALL if mask == NULL else SOME
            at += stop - row
            row = stop
            piece += 1


cdef inline int64_t count_chosen(Piece* pieces, int64_t n, const uint8_t* mask) noexcept nogil:
    """Count the chosen rows of each piece; return how many all have.

    The state of a piece becomes ALL or NONE where all or none of its rows are left.
    """
    cdef int64_t k, total = 0, chosen
    for k in range(n):
        chosen = 0
        if pieces[k].state == SOME:
            chosen = kc_mask_sum(mask + pieces[k].at, pieces[k].rows)
            if chosen == pieces[k].rows:
                pieces[k].state = ALL
            elif chosen == 0:
                pieces[k].state = NONE
        if pieces[k].state == ALL:
            chosen = pieces[k].rows
        pieces[k].chosen = <int32_t>chosen
        pieces[k].out = total
        total += chosen
    return total


cdef inline void pick_rows(
    const Piece* pieces, int64_t n, const uint8_t* mask, uint16_t* picked
) noexcept nogil:
    """Write the places of the chosen rows of pieces that are SOME."""
    cdef int64_t k
    for k in range(n):
        if pieces[k].state == SOME:
            kc_positions(picked + pieces[k].out, mask + pieces[k].at, pieces[k].rows, pieces[k].first)


cdef inline void keep_passed(Piece* pieces, int64_t n, uint8_t* mask, const uint8_t* passed) noexcept nogil:
    """Leave of the chosen rows, which are counted, those that also passed."""
    cdef:
        int64_t k, i
        const uint8_t* some
        uint8_t* own
    for k in range(n):
        some = passed + pieces[k].out
        own = mask + pieces[k].at
        if pieces[k].state == ALL:
            kc_to_mask(own, some, pieces[k].rows)
            pieces[k].state = SOME
        elif pieces[k].state == SOME:
            for i in range(pieces[k].rows):
                if own[i]:
                    own[i] = some[0] != 0
                    some += 1


cdef inline void write_rowids(
    const Piece* pieces, int64_t n, const uint16_t* picked, int64_t* out
) noexcept nogil:
    """Write the rows of the file that are chosen."""
    cdef int64_t k, j, base
    for k in range(n):
        base = <int64_t>pieces[k].block * BLOCK_ROWS
        if pieces[k].state == ALL:
            for j in range(pieces[k].rows):
                out[pieces[k].out + j] = base + pieces[k].first + j
        elif pieces[k].state == SOME:
            for j in range(pieces[k].chosen):
                out[pieces[k].out + j] = base + picked[pieces[k].out + j]
