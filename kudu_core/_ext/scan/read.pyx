"""Columns of the chosen rows of a file, decoded straight into the buffers that leave.

``read`` takes a ``Selection`` and any number of columns: with the GIL it collects the pages that have a
chosen row and the buffers, without it all columns are decoded, page after page, mini-block after
mini-block.  Of a few chosen rows the cells are read one by one, of more of them they are picked from the
unpacked block.  Strings are measured first, so that their bytes get one buffer of the right size.

What is read is hostile.  A column that cannot be read here comes back as None, whether its form is not
known here or its bytes break their format; the caller asks the general path, whose answer or error stands.
"""
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bit, kc_bits_copy, kc_bits_count
from kudu_core._ext.pages.cell cimport Layout, Strings, fixed_cell, fixed_layout, strings_open
from kudu_core._ext.pages.head cimport (
    BITSHUFFLE,
    BLOCK_ROWS,
    CONSTANT,
    DELTA,
    FOR,
    NO_SCALE,
    STRING_PLAIN,
    Block,
    Page,
    block_open,
    block_rows,
    page_values,
)
from kudu_core._ext.pages.rows cimport (
    WORK_BYTES,
    fits_fast_floats,
    kc_unpack_part,
    string_ends,
    values_part,
)
from kudu_core._ext.pages.work cimport kc_sign_extend, kc_spread, kc_to_floats
from kudu_core._ext.scan.selection cimport ALL, NONE, Piece, ScanColumn, Selection, Words
from kudu_core._ext.base.status cimport BAD_VALUE

from kudu_core._ext.base.status import PageError

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
    KC_CLONES static void kc_even_ends(int32_t *restrict out, int64_t n, int64_t total, int64_t size) {
        for (int64_t i = 0; i < n; i++) out[i] = (int32_t)(uint32_t)(uint64_t)(total + (i + 1) * size);
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
    void kc_pick(
        uint8_t* out, const uint8_t* cells, const uint16_t* picked, int first, int64_t n, int width
    ) noexcept nogil
    uint32_t kc_codes(uint16_t* out, const uint8_t* cells, int64_t n, int width) noexcept nogil
    void kc_ordinals(int32_t* out, const uint16_t* codes, int64_t n) noexcept nogil
    void kc_even_ends(int32_t* out, int64_t n, int64_t total, int64_t size) noexcept nogil
    void kc_pack_bools(uint8_t* bits, int64_t at, const uint8_t* cells, int64_t n) noexcept nogil
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

cdef enum:
    FORM_CELLS = 0              # fixed cells as they are; strings as offsets and bytes
    FORM_BITS = 1               # bools, packed
    FORM_CODES = 2              # codes of the dictionary, as int32

    FEW = 24                    # so many cells of a mini-block are read one by one
    TOO_LARGE = -103
    NEEDS_GENERAL_PATH = -102

cdef int64_t MAX_DATA_BYTES = 0x7FFFFFFF


class TooLarge(Exception):
    """The strings of a column take more bytes than allowed: read fewer rows at once."""


cdef struct Scratch:
    uint8_t cells[WORK_BYTES]
    uint8_t work[WORK_BYTES]
    uint8_t out[WORK_BYTES]
    uint16_t codes[1025]
    uint32_t begins[1024]
    uint32_t sizes[1024]


cdef struct Output:
    # One column of the result.
    int width                   # as stored
    int form
    int status                  # below 0: ask the general path
    bint nullable               # some page of it has nulls
    const Words* words
    Page* pages
    uint8_t* values
    int32_t* offsets
    uint8_t* bits
    int64_t bytes               # of strings


# ----------------------------------------------------------------------------------- fixed mini-blocks

cdef inline bint _gives_cells(const Block* block) noexcept nogil:
    return block.kind != DELTA and block.kind != BITSHUFFLE


cdef int _one_by_one(
    const Block* block, const Layout* layout, int width, const uint16_t* picked, int64_t n, uint8_t* out
) noexcept nogil:
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


cdef int _some_dense(
    const Block* block, const Layout* layout, int width, const uint16_t* picked, int64_t n, uint8_t* out,
    Scratch* s, int64_t* at,
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


cdef int _cells(
    const Page* page, const Piece* piece, const uint16_t* picked, int width, uint8_t* out, Scratch* s,
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


cdef void _validity(
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
            bits[at >> 3] |= <uint8_t>(kc_bit(page.bits, begin + picked[j]) << (at & 7))


cdef int _read_fixed(
    const Output* o, const Piece* piece, const uint16_t* picked, Scratch* s, int64_t* at
) noexcept nogil:
    cdef int status
    if o.form == FORM_CELLS:
        return _cells(&o.pages[piece.page], piece, picked, o.width, o.values + piece.out * o.width, s, at)
    status = _cells(&o.pages[piece.page], piece, picked, o.width, s.out, s, at)
    if status < 0:
        return status
    if o.form == FORM_BITS:
        kc_pack_bools(o.values, piece.out, s.out, piece.chosen)
        return 0
    if kc_codes(s.codes, s.out, piece.chosen, o.width) >= o.words.count:
        return BAD_VALUE
    kc_ordinals(<int32_t*>o.values + piece.out, s.codes, piece.chosen)
    return 0


# -------------------------------------------------------------------------------------------- words

cdef int64_t _codes(
    const Output* o, const Piece* piece, const uint16_t* picked, Scratch* s, bint* same, int64_t* at
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
        status = _cells(page, piece, picked, o.width, s.out, s, at)
    elif piece.state == ALL:
        status = fixed_layout(&block, o.width, &layout, at)
        if status < 0:
            return status
        lower = page_values(page, begin, piece.first)
        n = page_values(page, begin + piece.first, piece.rows)
        status = values_part(&block, &layout, o.width, lower, n, s.out, s.work, at)
    else:
        status = _cells(page, piece, picked, o.width, s.out, s, at)
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


cdef int64_t _measure_words(
    const Output* o, const Piece* piece, const uint16_t* picked, int64_t total, Scratch* s, int64_t* at
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


cdef uint8_t* _copy_words(
    const Output* o, const Piece* piece, const uint16_t* picked, uint8_t* out, const uint8_t* end, Scratch* s
) noexcept nogil:
    """The bytes of measured cells."""
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


# ------------------------------------------------------------------------------------------ strings

cdef int _spans(
    const Page* page, const Piece* piece, const uint16_t* picked, const uint8_t** data, Scratch* s,
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
            i = picked[j] - piece.first
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
        v += page_values(page, row + i, picked[j] - piece.first - i)
        i = picked[j] - piece.first
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


cdef int64_t _measure_strings(
    const Output* o, const Piece* piece, const uint16_t* picked, int64_t total, Scratch* s, int64_t* at
) noexcept nogil:
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


cdef uint8_t* _copy_strings(
    const Output* o, const Piece* piece, const uint16_t* picked, uint8_t* out, Scratch* s
) noexcept nogil:
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


# -------------------------------------------------------------------------------------- all columns

cdef bint _is_var(const Output* o) noexcept nogil:
    return o.form == FORM_CELLS and (o.width == 0 or o.words.count > 0)


cdef void _first_pass(
    Output* o, const Piece* pieces, int64_t n, const uint16_t* picked, int64_t most_bytes, Scratch* s
) noexcept nogil:
    """All of a fixed column; validity and offsets of strings."""
    cdef:
        int64_t k, at = 0, total = 0
        const Piece* piece
        int status = 0
        const uint16_t* own
    if _is_var(o):
        o.offsets[0] = 0
    for k in range(n):
        piece = &pieces[k]
        if piece.state == NONE:
            continue
        own = picked + piece.out if picked != NULL else NULL
        if o.nullable:
            _validity(&o.pages[piece.page], piece, own, o.bits)
        if not _is_var(o):
            status = _read_fixed(o, piece, own, s, &at)
        else:
            if o.width:
                total = _measure_words(o, piece, own, total, s, &at)
            else:
                total = _measure_strings(o, piece, own, total, s, &at)
            status = <int>total if total < 0 else TOO_LARGE if total > most_bytes else 0
        if status < 0:
            o.status = status
            return
    o.bytes = total


cdef void _second_pass(
    const Output* o, const Piece* pieces, int64_t n, const uint16_t* picked, Scratch* s
) noexcept nogil:
    """The bytes of strings."""
    cdef:
        int64_t k
        uint8_t* out = o.values
        const uint8_t* end = o.values + o.bytes
        const uint16_t* own
    for k in range(n):
        if pieces[k].state == NONE:
            continue
        own = picked + pieces[k].out if picked != NULL else NULL
        if o.width:
            out = _copy_words(o, &pieces[k], own, out, end, s)
        else:
            out = _copy_strings(o, &pieces[k], own, out, s)


cdef void _run(
    Output* outputs, int64_t count, bint second, const Piece* pieces, int64_t n, const uint16_t* picked,
    int64_t most_bytes,
) noexcept nogil:
    cdef:
        Scratch s
        int64_t k
    for k in range(count):
        if outputs[k].status < 0:
            continue
        if not second:
            _first_pass(&outputs[k], pieces, n, picked, most_bytes, &s)
        elif _is_var(&outputs[k]) and outputs[k].bytes:
            _second_pass(&outputs[k], pieces, n, picked, &s)


cdef class _Room:
    """Writable memory from the caller's pool, as long as it is written to."""

    cdef:
        Py_buffer view
        bint held

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef uint8_t* take(self, buffer, int64_t size) except NULL:
        PyObject_GetBuffer(buffer, &self.view, PyBUF_WRITABLE)
        self.held = True
        if self.view.len < size:
            raise ValueError(f"{self.view.len} bytes allocated where {size} were asked for")
        return <uint8_t*>self.view.buf


cdef uint8_t* _room(list rooms, allocate, int64_t size, list made) except NULL:
    cdef _Room room = _Room.__new__(_Room)
    buffer = allocate(size if size else 1)
    rooms.append(room)
    made.append(buffer)
    return room.take(buffer, size)


def read(
    Selection selection not None,
    list columns not None,
    const uint8_t[::1] forms not None,
    allocate not None,
    Py_ssize_t most_bytes=0x7FFFFFFF,
):
    """Read columns (``ScanColumn``s of the selection's file) of the chosen rows.

    ``forms``, one a column: 0 cells as stored, strings and words of a dictionary as offsets and bytes; 1
    bools as bits; 2 codes of the dictionary as int32.  ``allocate(size)`` gives writable buffers; what
    they hold past ``size`` is not looked at.

    Returns a list of (values, offsets or None, validity or None, null count), in the buffers that
    ``allocate`` gave; offsets are int32 from 0 on; validity is a bitmap, None where no cell is null.  An
    entry is None where the general path must be asked.

    Raises ``TooLarge`` where the strings of one column take more than ``most_bytes`` and there is more than
    one row (a single row may take what int32 offsets can address), and what loading pages does.
    """
    cdef:
        Py_ssize_t count = len(columns), k
        int64_t n, p, nulls
        ScanColumn column
        Output* outputs = NULL
        Output* o
        Page* pages = NULL
        uint8_t* wanted = NULL
        const uint16_t* picked
        list held = [], rooms = [], made
        list buffers = []
        list result = []
    if forms.shape[0] != count or most_bytes < 0:
        raise ValueError(f"{forms.shape[0]} forms of {count} columns")
    selection.settle()
    n = selection.chosen_rows
    picked = selection.picked
    if n <= 1 or most_bytes > MAX_DATA_BYTES:
        most_bytes = MAX_DATA_BYTES
    outputs = <Output*>PyMem_RawCalloc(count + 1, sizeof(Output))
    pages = <Page*>PyMem_RawCalloc(count * selection.page_count + 1, sizeof(Page))
    wanted = <uint8_t*>PyMem_RawCalloc(selection.page_count + 1, 1)
    try:
        if outputs == NULL or pages == NULL or wanted == NULL:
            raise MemoryError
        for p in range(selection.piece_count):
            if selection.pieces[p].state != NONE:
                wanted[selection.pieces[p].page] = 1
        for k in range(count):
            column = columns[k]
            o = &outputs[k]
            o.width = column.width
            o.form = forms[k]
            o.words = &column.words
            o.pages = pages + k * selection.page_count
            if column.rows != selection.file_rows:
                raise ValueError(f"a column of {column.rows} rows, a selection of {selection.file_rows}")
            if o.form > FORM_CODES or (o.form == FORM_BITS and (o.width != 1 or o.words.count)) or (
                o.form == FORM_CODES and not o.words.count
            ):
                raise ValueError(f"form {o.form} of cells of {o.width} bytes")
            try:
                column.pin(selection.numbers, wanted, selection.page_count, o.pages, held)
            except PageError:
                o.status = BAD_VALUE
            made = []
            buffers.append(made)
            if o.status < 0:
                continue
            for p in range(selection.page_count):
                o.nullable |= o.pages[p].data != NULL and o.pages[p].bits != NULL
            if o.nullable:
                o.bits = _room(rooms, allocate, (n + 7) >> 3, made)
                memset(o.bits, 0, <size_t>((n + 7) >> 3))
            else:
                made.append(None)
            if _is_var(o):
                o.offsets = <int32_t*>_room(rooms, allocate, 4 * (n + 1), made)
            elif o.form == FORM_BITS:
                o.values = _room(rooms, allocate, (n + 7) >> 3, made)
                memset(o.values, 0, <size_t>((n + 7) >> 3))
            else:
                o.values = _room(rooms, allocate, n * (4 if o.form == FORM_CODES else o.width), made)
        with nogil:
            _run(outputs, count, False, selection.pieces, selection.piece_count, picked, most_bytes)
        n_var = 0
        for k in range(count):
            o = &outputs[k]
            if o.status == TOO_LARGE and n > 1:
                raise TooLarge
            if o.status == 0 and _is_var(o):
                o.values = _room(rooms, allocate, o.bytes, buffers[k])
                n_var += 1
        if n_var:
            with nogil:
                _run(outputs, count, True, selection.pieces, selection.piece_count, picked, most_bytes)
        for k in range(count):
            o = &outputs[k]
            if o.status < 0:
                result.append(None)
                continue
            made = buffers[k]
            nulls = n - kc_bits_count(o.bits, 0, n) if o.nullable else 0
            offsets = made[1] if _is_var(o) else None
            result.append((made[len(made) - 1], offsets, made[0] if nulls else None, nulls))
        return result
    finally:
        PyMem_RawFree(outputs)
        PyMem_RawFree(pages)
        PyMem_RawFree(wanted)
