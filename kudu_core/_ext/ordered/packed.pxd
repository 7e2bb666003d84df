# Cells of rows that lie in one mini-block of packed integers, written where their keys stand.
#
# Most mini-blocks of numbers are of this form.  Of rows that lie close together what says how a cell is
# packed is looked at once, and of each only the cell is fetched: a tenth of the steps of ``read_fixed``.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kudu_core._ext.base.bitpack cimport kc_packed_cell, kc_packed_lane
from kudu_core._ext.base.decimals cimport kc_to_floats
from kudu_core._ext.base.loads cimport copy_word
from kudu_core._ext.pages.head cimport BLOCK_BITS, BLOCK_ROWS, FOR, NO_SCALE, Page
from kudu_core._ext.row.cells cimport AHEAD, Opened, PagedCells, fetch_cell, fetch_place, kc_is_known


cdef struct FoundRow:
    int64_t key                 # of the batch: where the row comes to stand
    int64_t row                 # in its source
    int32_t source
    bint laid_over              # something of it was changed


cdef inline void fetch_ahead(
    const PagedCells* column, const FoundRow* found, Py_ssize_t k, Py_ssize_t end
) noexcept nogil:
    """Ask for the memory of the cells of some rows that come behind row k."""
    if k + 2 * AHEAD < end:
        fetch_place(column, found[k + 2 * AHEAD].row)
    if k + AHEAD < end:
        fetch_cell(column, found[k + AHEAD].row)


cdef inline void _lanes(
    const Opened* opened, const FoundRow* found, Py_ssize_t first, Py_ssize_t last, uint8_t* values, int width
) noexcept nogil:
    """``width`` is known where this is called, so that a division is a shift, and a copy a move."""
    cdef:
        Py_ssize_t k
        unsigned int bits = <unsigned int>opened.block.bits
        uint64_t base = opened.block.base
        const uint8_t* packed = opened.layout.packed
    for k in range(first, last):
        copy_word(
            values + found[k].key * width,
            base + kc_packed_lane(packed, width, bits, <unsigned int>(found[k].row & (BLOCK_ROWS - 1))),
            width,
        )


cdef inline Py_ssize_t _of_last_block(
    const Opened* opened, const FoundRow* found, Py_ssize_t first, Py_ssize_t last, uint8_t* values, int width
) noexcept nogil:
    """Of fewer than ``BLOCK_ROWS`` values, which are packed one after the other: return the first row that
    lies behind them."""
    cdef:
        Py_ssize_t k
        int64_t at
        uint64_t base = opened.block.base
    for k in range(first, last):
        at = found[k].row & (BLOCK_ROWS - 1)
        if at >= opened.block.count:
            return k
        copy_word(
            values + found[k].key * width,
            base + kc_packed_cell(
                opened.layout.packed, opened.block.count, width, opened.block.bits, at
            ),
            width,
        )
    return last


cdef inline Py_ssize_t packed_cells(
    const PagedCells* column, const Page* page, const FoundRow* found, Py_ssize_t first, Py_ssize_t end,
    uint8_t* values,
) noexcept nogil:
    """Write the cells of rows that lie in the page and in the mini-block of the first one, up to ``end``.
    Return the first row whose cell was not written: ``first`` where the mini-block is of another form, or has
    not been opened yet, which ``read_fixed`` does."""
    cdef:
        int64_t block = found[first].row >> BLOCK_BITS
        const Opened* opened = &column.opened[block]
        Py_ssize_t last = first + 1, k
        int width = column.width
    if page.bits != NULL or not kc_is_known(&opened.known):
        return first
    if opened.block.kind != FOR or opened.block.exceptions or opened.layout.width != width or width > 8:
        return first
    while last < end and found[last].row >> BLOCK_BITS == block:
        last += 1
    if opened.block.count != BLOCK_ROWS:
        last = _of_last_block(opened, found, first, last, values, width)
    elif width == 8:
        _lanes(opened, found, first, last, values, 8)
    elif width == 4:
        _lanes(opened, found, first, last, values, 4)
    elif width == 2:
        _lanes(opened, found, first, last, values, 2)
    else:
        _lanes(opened, found, first, last, values, 1)
    if opened.block.scale != NO_SCALE:
        for k in range(first, last):
            kc_to_floats(values + found[k].key * width, 1, width, opened.block.scale, 0)
    return last
