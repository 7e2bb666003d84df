# Cells of fixed width looked for in mini-blocks that are not decoded.
#
# The cells of a key column become numbers that compare as the cells do, and are searched by these.  For the
# kernels that find keys.  What is read is hostile: every function returns a status where the bytes break
# their format, with ``at`` set to the place in the payload.
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.base.bitpack cimport kc_mask, kc_packed_cell
from kudu_core._ext.pages.cell cimport Layout, fixed_cell, fixed_layout
from kudu_core._ext.pages.head cimport (
    CONSTANT,
    DELTA,
    FOR,
    NO_SCALE,
    RLE,
    Block,
    Page,
    block_open,
    load16,
)
from kudu_core._ext.pages.rows cimport stored_part
from kudu_core._ext.search.outcomes cimport NEEDS_GENERAL_PATH
from kudu_core._ext.base.status cimport BAD_VALUE

cdef enum:
    FEW_EXCEPTIONS = 8          # of a DELTA block whose values are computed


cdef struct Cells:
    # The cells of one mini-block of a column, as numbers that compare as the cells do.
    Block block
    Layout layout
    int width
    uint64_t mask
    uint64_t flip
    bint steps                  # DELTA with equal deltas but for a few: computed
    bint decoded                # ``values`` holds them all
    bint unpacked               # DELTA: ``values`` holds the deltas
    uint8_t values[8192]


cdef inline int find_steps(Cells* cells, int64_t* at) noexcept nogil:
    """Set ``steps`` where a DELTA block's values need not be summed up one by one."""
    cdef int64_t k, last = -1, position
    if cells.block.bits or cells.block.exceptions > FEW_EXCEPTIONS:
        return 0
    for k in range(cells.block.exceptions):
        position = load16(cells.layout.positions + 2 * k)
        if position <= last or position >= cells.block.count:
            at[0] = cells.block.offset
            return BAD_VALUE
        last = position
    cells.steps = True
    return 0


cdef inline int open_block(
    const Page* page, int64_t index, int width, Cells* cells, int64_t* at
) noexcept nogil:
    """Check the head of a mini-block of fixed width; find its parts and, of DELTA, its steps."""
    cdef int status = block_open(page, index, &cells.block, at)
    if status == 0:
        status = fixed_layout(&cells.block, width, &cells.layout, at)
    cells.steps = cells.decoded = cells.unpacked = False
    if status == 0 and cells.block.kind == DELTA and width <= 8:
        status = find_steps(cells, at)
    return status


cdef inline int order_cells(
    const Page* page, int width, uint64_t flip, Cells* cells, int64_t* at
) noexcept nogil:
    """Make the cells of an open mini-block numbers that compare."""
    cdef Block* block = &cells.block
    if width > 8:
        return NEEDS_GENERAL_PATH
    if page.bits != NULL or block.scale != NO_SCALE:
        return BAD_VALUE                    # a key is never null, and no float
    cells.width = width
    cells.mask = kc_mask(8 * width)
    cells.flip = flip
    if block.kind == DELTA and not cells.steps:
        cells.decoded = True
        return stored_part(block, &cells.layout, 0, block.count, cells.values, cells.values, at)
    return 0


cdef inline int open_cells(
    const Page* page, int64_t index, int width, uint64_t flip, Cells* cells, int64_t* at
) noexcept nogil:
    """Check a mini-block and make its cells numbers that compare."""
    cdef int status
    if width > 8:
        return NEEDS_GENERAL_PATH
    status = open_block(page, index, width, cells, at)
    return status if status < 0 else order_cells(page, width, flip, cells, at)


cdef inline uint64_t step_of(const Block* block, const Layout* layout, int64_t i) noexcept nogil:
    """Value i of a DELTA block whose deltas are all equal but for the exceptions."""
    cdef:
        uint64_t word = block.base, raw
        int64_t k, position, listed = 0
        int width = layout.width
    for k in range(block.exceptions):
        position = load16(layout.positions + 2 * k)
        if position > i:
            break
        if position:                        # the delta of the first value means nothing
            raw = 0
            memcpy(&raw, layout.raws + k * width, <size_t>width)
            word += raw
            listed += 1
    return word + layout.least * <uint64_t>(i - listed)


cdef inline uint64_t step_value(const Cells* cells, int64_t i) noexcept nogil:
    return step_of(&cells.block, &cells.layout, i)


cdef inline int cell_number(const Cells* cells, int64_t i, uint64_t* word) noexcept nogil:
    """Cell i < count; its place in the order."""
    cdef:
        const Block* block = &cells.block
        int status = 0
    word[0] = 0
    if cells.decoded:
        memcpy(word, cells.values + i * cells.width, <size_t>cells.width)
    elif cells.steps:
        word[0] = step_value(cells, i)
    elif block.kind == FOR and not block.exceptions:
        word[0] = block.base + kc_packed_cell(cells.layout.packed, block.count, cells.width, block.bits, i)
    elif block.kind == CONSTANT and not block.exceptions:
        word[0] = block.base
    else:
        status = fixed_cell(block, &cells.layout, i, <uint8_t*>word)
    word[0] = (word[0] & cells.mask) ^ cells.flip
    return status


cdef inline int64_t runs_ended(const Cells* cells, int64_t i) noexcept nogil:
    """How many runs end at or before cell i."""
    cdef int64_t first = 0, end = <int64_t>cells.block.base, middle
    while first < end:
        middle = (first + end) >> 1
        if load16(cells.layout.packed + 2 * middle) <= i:
            first = middle + 1
        else:
            end = middle
    return first


cdef inline int64_t bound_of_runs(
    const Cells* cells, int64_t lower, int64_t upper, uint64_t want, bint above
) noexcept nogil:
    """``cells_bound`` where cells are runs: one step a run, not one a cell."""
    cdef:
        int64_t first = runs_ended(cells, lower), end = runs_ended(cells, upper - 1) + 1, middle, start = 0
        int width = cells.layout.width
        uint64_t word
    # Only the runs of [lower, upper) ascend: elsewhere the columns before may differ.
    if end > <int64_t>cells.block.base:
        end = <int64_t>cells.block.base
    while first < end:
        middle = (first + end) >> 1
        word = 0
        memcpy(&word, cells.layout.raws + middle * width, <size_t>width)
        word ^= cells.flip
        if word < want or (above and word == want):
            first = middle + 1
        else:
            end = middle
    if first:
        start = load16(cells.layout.packed + 2 * (first - 1))
    return lower if start < lower else upper if start > upper else start


cdef inline int64_t bound_of_steps(
    const Cells* cells, int64_t lower, int64_t upper, uint64_t want, bint above
) noexcept nogil:
    """``cells_bound`` where cells ascend by equal steps but at exceptions: those first, then a division."""
    cdef:
        int64_t k, position
        uint64_t first, step = cells.layout.least & cells.mask, count
    want += above                           # of cells; a cell that is the largest number is never above
    if above and want == 0:
        return upper
    for k in range(cells.block.exceptions):
        position = load16(cells.layout.positions + 2 * k)
        if position >= upper:
            break
        if position > lower:
            if ((step_value(cells, position) & cells.mask) ^ cells.flip) < want:
                lower = position
            else:
                upper = position
                break
    if lower >= upper:
        return lower
    first = (step_value(cells, lower) & cells.mask) ^ cells.flip
    if first >= want:
        return lower
    if step == 0:
        return upper
    count = (want - first - 1) / step + 1
    return upper if count >= <uint64_t>(upper - lower) else lower + <int64_t>count


cdef inline int64_t cells_bound(
    const Cells* cells, int64_t lower, int64_t upper, uint64_t want, bint above
) noexcept nogil:
    """The first cell of [lower, upper) that is not below ``want`` (``above``: that is above it)."""
    cdef:
        int64_t middle
        uint64_t word = 0
        int status
    if cells.block.kind == RLE:
        return bound_of_runs(cells, lower, upper, want, above)
    if cells.block.kind == CONSTANT and not cells.block.exceptions and lower < upper:
        cell_number(cells, lower, &word)
        return upper if word < want or (above and word == want) else lower
    if cells.steps:
        return bound_of_steps(cells, lower, upper, want, above)
    while lower < upper:
        middle = (lower + upper) >> 1
        status = cell_number(cells, middle, &word)
        if status < 0:
            return status
        if word < want or (above and word == want):
            lower = middle + 1
        else:
            upper = middle
    return lower
