# The chosen cells of a piece of a column with a dictionary, as strings: measured first, then copied.
#
# Codes are decoded for each of both, and never kept between them.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from kudu_core._ext.base.bitmap cimport kc_bit    # its C text comes first: kc_bits_load
from kudu_core._ext.base.bitpack cimport kc_mask    # and here types, KC_CLONES
from kudu_core._ext.pages.cell cimport Layout, fixed_layout
from kudu_core._ext.pages.head cimport (
    BLOCK_ROWS,
    CONSTANT,
    Block,
    Page,
    block_open,
    block_rows,
    page_values,
)
from kudu_core._ext.pages.rows cimport values_part
from kudu_core._ext.scan.fixed cimport kc_codes, read_cells
from kudu_core._ext.scan.output cimport Output, OutputScratch
from kudu_core._ext.scan.pieces cimport ALL, Piece
from kudu_core._ext.base.status cimport BAD_VALUE

cdef extern from *:
    """
    #include <string.h>
    KC_CLONES static void kc_even_ends(int32_t *restrict out, int64_t n, int64_t total, int64_t size) {
        for (int64_t i = 0; i < n; i++) out[i] = (int32_t)(uint32_t)(uint64_t)(total + (i + 1) * size);
    }
    /* n copies of a cell. */
    static void kc_repeat(uint8_t *out, const uint8_t *cell, int64_t size, int64_t n) {
        int64_t done = size, all = size * n;
        if (all == 0) return;
        memcpy(out, cell, (size_t)size);
        while (done < all) {
            const int64_t more = all - done < done ? all - done : done;
            memcpy(out + done, out, (size_t)more);
            done += more;
        }
    }
    /* Where the cells of codes end. */
    static int64_t kc_word_ends(int32_t *restrict out, const uint16_t *restrict codes, int64_t n,
        const uint32_t *restrict sizes, int64_t total) {
        for (int64_t i = 0; i < n; i++) {
            total += sizes[codes[i]];
            out[i] = (int32_t)(uint32_t)(uint64_t)total;    /* wraps only where the total is refused */
        }
        return total;
    }
    /* The same of n rows some of which are null: `codes` of the others only. */
    static int64_t kc_word_ends_nulls(int32_t *restrict out, const uint16_t *restrict codes,
        const uint8_t *bits, int64_t first, int64_t n, const uint32_t *restrict sizes, int64_t total) {
        for (int64_t i = 0; i < n; i += 64) {
            const int span = n - i < 64 ? (int)(n - i) : 64;
            uint64_t word = kc_bits_load(bits, first + i, span);
            for (int k = 0; k < span; k++) {
                const uint64_t bit = word & 1;
                total += sizes[*codes] & (uint32_t)-(int32_t)bit;
                codes += bit;
                word >>= 1;
                out[i + k] = (int32_t)(uint32_t)(uint64_t)total;
            }
        }
        return total;
    }
    /* The words of codes, one after the other, each by one store of 16 bytes; `end` is that of the
       buffer, behind which nothing may be written. */
    static uint8_t *kc_short_words(uint8_t *out, const uint8_t *end, const uint16_t *codes, int64_t n,
        const uint32_t *sizes, const uint8_t *slots) {
        int64_t i = 0;
        if (end - out >= 16 * n) {
            for (; i < n; i++) {
                memcpy(out, slots + 16 * (int64_t)codes[i], 16);
                out += sizes[codes[i]];
            }
            return out;
        }
        for (; i < n && end - out >= 16; i++) {
            memcpy(out, slots + 16 * (int64_t)codes[i], 16);
            out += sizes[codes[i]];
        }
        for (; i < n; i++) {
            const int64_t size = sizes[codes[i]];
            if (size) memcpy(out, slots + 16 * (int64_t)codes[i], (size_t)size);
            out += size;
        }
        return out;
    }
    """
    void kc_even_ends(int32_t* out, int64_t n, int64_t total, int64_t size) noexcept nogil
    void kc_repeat(uint8_t* out, const uint8_t* cell, int64_t size, int64_t n) noexcept nogil
    uint8_t* kc_short_words(
        uint8_t* out, const uint8_t* end, const uint16_t* codes, int64_t n, const uint32_t* sizes,
        const uint8_t* slots,
    ) noexcept nogil
    int64_t kc_word_ends(
        int32_t* out, const uint16_t* codes, int64_t n, const uint32_t* sizes, int64_t total
    ) noexcept nogil
    int64_t kc_word_ends_nulls(
        int32_t* out, const uint16_t* codes, const uint8_t* bits, int64_t first, int64_t n,
        const uint32_t* sizes, int64_t total,
    ) noexcept nogil


cdef inline int64_t _codes(
    const Output* o, const Piece* piece, const uint16_t* picked, OutputScratch* s, bint* same, int64_t* at
) noexcept nogil:
    """Codes of the chosen cells that are not null in ``s.codes``; return how many, or a status.

    ``same``: only the first is written, it is that of all.
    """
    cdef:
        const Page* page = &o.pages[piece.page]
        Block block
        Layout layout
        int64_t begin = piece.block * BLOCK_ROWS, lower, j, n = piece.chosen
        int status = block_open(page, piece.block, &block, at)
    same[0] = False
    if status < 0:
        return status
    if block.count == block_rows(page, piece.block):
        if block.kind == CONSTANT and block.exceptions == 0:
            same[0] = True
            s.codes[0] = <uint16_t>(block.base & (0xFF if o.width == 1 else 0xFFFF))
            return BAD_VALUE if s.codes[0] >= o.words.count else n
        status = read_cells(page, piece, picked, o.width, s.out, s, at)
    elif piece.state == ALL:
        status = fixed_layout(&block, o.width, &layout, at)
        if status < 0:
            return status
        lower = page_values(page, begin, piece.first)
        n = page_values(page, begin + piece.first, piece.rows)
        status = values_part(&block, &layout, o.width, lower, n, s.out, s.work, at)
    else:
        status = read_cells(page, piece, picked, o.width, s.out, s, at)
    if status < 0:
        return status
    if kc_codes(s.codes, s.out, n, o.width) >= o.words.count:
        return BAD_VALUE
    if piece.state != ALL and page.bits != NULL:
        n = 0
        for j in range(piece.chosen):
            s.codes[n] = s.codes[j]
            n += kc_bit(o.bits, piece.out + j)
    return n


cdef inline int64_t measure_words(
    const Output* o, const Piece* piece, const uint16_t* picked, int64_t total, OutputScratch* s, int64_t* at
) noexcept nogil:
    """Write the ends of the chosen cells, the first of which begins at ``total``; return the last end."""
    cdef:
        int32_t* out = o.offsets + piece.out + 1
        int64_t n, size
        bint same = False
    n = _codes(o, piece, picked, s, &same, at)
    if n < 0:
        return n
    if same:
        size = o.words.sizes[s.codes[0]]
        kc_even_ends(out, n, total, size)
        return total + size * n
    if n == piece.chosen:
        return kc_word_ends(out, s.codes, n, o.words.sizes, total)
    s.codes[n] = 0                      # looked at, and not counted
    return kc_word_ends_nulls(out, s.codes, o.bits, piece.out, piece.chosen, o.words.sizes, total)


cdef inline uint8_t* copy_words(
    const Output* o, const Piece* piece, const uint16_t* picked, uint8_t* out, const uint8_t* end,
    OutputScratch* s
) noexcept nogil:
    """Write the bytes of measured cells; return where they end."""
    cdef:
        const int32_t* ends = o.words.ends
        int64_t at = 0, j, n, size
        bint same = False
    n = _codes(o, piece, picked, s, &same, &at)
    if n <= 0:
        return out
    if same:
        size = o.words.sizes[s.codes[0]]
        kc_repeat(out, o.words.data + ends[s.codes[0]], size, n)
        return out + size * n
    if o.words.slots != NULL:
        return kc_short_words(out, end, s.codes, n, o.words.sizes, o.words.slots)
    for j in range(n):
        size = o.words.sizes[s.codes[j]]
        if size:
            memcpy(out, o.words.data + ends[s.codes[j]], <size_t>size)
        out += size
    return out
