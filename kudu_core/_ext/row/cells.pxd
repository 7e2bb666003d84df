# Cells of one stored column, read where they lie: which pages of it are held, one cell, cells of many rows.
#
# For look-ups of single rows, which may run without the GIL: they stop at a page that is not held.  What is
# read is hostile: functions return a status where the bytes break their format, with ``at`` set to the place
# in the payload.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.base.bitpack cimport fetch_packed
from kudu_core._ext.base.integers cimport kc_sum, kc_total
from kudu_core._ext.base.loads cimport kc_fetch
from kudu_core._ext.pages.cell cimport Layout, Strings, fixed_cell, plain_cell, strings_open
from kudu_core._ext.pages.head cimport (
    BLOCK_BITS,
    BLOCK_ROWS,
    DELTA,
    FOR,
    PLAIN,
    STRING_PLAIN,
    Block,
    Page,
    load32,
    page_values,
)
from kudu_core._ext.pages.rows cimport deltas_of
from kudu_core._ext.search.cells cimport Cells, open_block, step_value
from kudu_core._ext.search.outcomes cimport NEED_PAGE, NEEDS_GENERAL_PATH
from kudu_core._ext.search.sorted_strings cimport SortedStrings
from kudu_core._ext.base.status cimport BAD_VALUE

cdef extern from *:
    """
    static inline int kc_is_known(const int *known) { return __atomic_load_n(known, __ATOMIC_ACQUIRE); }
    static inline void kc_now_known(int *known) { __atomic_store_n(known, 1, __ATOMIC_RELEASE); }
    """
    bint kc_is_known(const int* known) noexcept nogil
    void kc_now_known(int* known) noexcept nogil

cdef enum:
    AHEAD = 6                   # rows of a gather whose mini-blocks are fetched early
    MAX_DATA_BYTES = 0x7FFFFFFF


cdef struct Opened:
    # A mini-block of a page that is held, its head checked.  The head lies among the values, in memory that
    # is as far away as they are: kept here, a cell costs one look there and not three.
    int known                   # the rest is written: once, or by several threads alike
    bint steps
    Block block
    Layout layout


cdef struct PagedCells:
    Page* pages                 # .data is NULL where the page is not held
    Opened* opened              # of each mini-block; NULL for strings
    uint8_t* touched
    int64_t page_count
    int page_bits               # a page has 1 << page_bits rows; of fixed width no fewer than a mini-block
    int width                   # as stored: of the codes, where there is a dictionary; 0: strings
    SortedStrings words                # the dictionary; count is 0 where there is none
    int order                   # of a key column
    int key_width
    uint64_t flip


cdef struct Need:
    # The page that a look-up lacks.
    int column
    int64_t page


cdef inline int64_t page_of(const PagedCells* column, int64_t row) noexcept nogil:
    return row >> column.page_bits


cdef inline int64_t row_in_page(const PagedCells* column, int64_t row) noexcept nogil:
    return row & (((<int64_t>1) << column.page_bits) - 1)


cdef inline int64_t block_in_page(const PagedCells* column, int64_t block) noexcept nogil:
    """Of a mini-block of a file, in a column whose pages have no fewer rows than that."""
    return block & (((<int64_t>1) << (column.page_bits - BLOCK_BITS)) - 1)


cdef inline int open_known(
    const PagedCells* column, const Page* page, int64_t block, Cells* cells, int64_t* at
) noexcept nogil:
    """Mini-block ``block`` of the column, which lies in ``page``: a status, or 0."""
    cdef:
        Opened* opened = &column.opened[block]
        int status
    if kc_is_known(&opened.known):
        cells.block = opened.block
        cells.layout = opened.layout
        cells.steps = opened.steps
        cells.decoded = cells.unpacked = False
        return 0
    status = open_block(page, block_in_page(column, block), column.width, cells, at)
    if status == 0:
        opened.block = cells.block
        opened.layout = cells.layout
        opened.steps = cells.steps
        kc_now_known(&opened.known)
    return status


cdef inline int _read_summed(Cells* cells, int64_t i, uint8_t* out, int64_t* at) noexcept nogil:
    """Write value i of a DELTA block: the first that is asked for by one sum, the next ones from all sums."""
    cdef:
        int width = cells.layout.width, status
        uint64_t word
    if not cells.decoded and not cells.unpacked:
        status = deltas_of(&cells.block, &cells.layout, cells.block.count, cells.values, at)
        if status < 0:
            return status
        cells.unpacked = True
        word = cells.block.base + kc_total(cells.values + width, i, width)
        memcpy(out, &word, <size_t>width)
        return 0
    if not cells.decoded:
        kc_sum(cells.values, cells.block.count, width, cells.block.base)
        cells.decoded = True
    memcpy(out, cells.values + i * width, <size_t>width)
    return 0


cdef inline int read_fixed(
    const PagedCells* column, const Page* page, int64_t rowid, Cells* cells, int64_t* index, uint8_t* out,
    int64_t* at,
) noexcept nogil:
    """Write the cell of a row, which lies in the page, as stored; 1 where it is null, or a status.

    ``index``: the mini-block that ``cells`` holds, -1 for none; kept for the next cell.
    """
    cdef:
        int64_t row = row_in_page(column, rowid), i = rowid & (BLOCK_ROWS - 1)
        int status, width = column.width
        uint64_t high, word
    if row >= page.rows:
        return BAD_VALUE
    if page.bits != NULL:
        if not kc_bit(page.bits, row):
            memset(out, 0, <size_t>width)
            return 1
        i = page_values(page, row - i, i)
    if rowid >> BLOCK_BITS != index[0]:
        index[0] = -1
        status = open_known(column, page, rowid >> BLOCK_BITS, cells, at)
        if status < 0:
            return status
        index[0] = rowid >> BLOCK_BITS
    if cells.block.kind == DELTA and cells.steps:
        word = step_value(cells, i)
        memcpy(out, &word, <size_t>width)
    elif cells.block.kind == DELTA:
        status = _read_summed(cells, i, out, at)
        if status < 0:
            return status
    else:
        status = fixed_cell(&cells.block, &cells.layout, i, out)
        if status < 0:
            return status
    if cells.layout.width != width:
        high = ~<uint64_t>0 if out[7] & 0x80 else 0
        memcpy(out + 8, &high, 8)
    return 0


cdef inline void fetch_place(const PagedCells* column, int64_t row) noexcept nogil:
    """Ask for what says where the cell of a row lies."""
    cdef:
        const Page* page = &column.pages[page_of(column, row)]
        int64_t block = row_in_page(column, row) >> BLOCK_BITS
    if page.data != NULL and block < page.blocks:
        if column.width:
            kc_fetch(&column.opened[row >> BLOCK_BITS])
            kc_fetch(<const uint8_t*>&column.opened[row >> BLOCK_BITS] + 64)
        else:
            kc_fetch(page.directory + 4 * block)
        if page.bits != NULL:
            kc_fetch(page.bits + (row_in_page(column, row) >> 3))


cdef inline void fetch_cell(const PagedCells* column, int64_t row) noexcept nogil:
    """Ask for the cell of a row, when what says where it lies has come."""
    cdef:
        const Page* page = &column.pages[page_of(column, row)]
        const Opened* opened
        int64_t block = row_in_page(column, row) >> BLOCK_BITS
    if page.data == NULL or block >= page.blocks:
        return
    if column.width:
        opened = &column.opened[row >> BLOCK_BITS]
        row &= BLOCK_ROWS - 1
        if not kc_is_known(&opened.known) or page.bits != NULL or row >= opened.block.count:
            return
        if opened.block.kind == PLAIN:
            kc_fetch(opened.layout.packed + row * opened.layout.width)
        elif opened.block.kind == FOR or opened.block.kind == DELTA:
            fetch_packed(
                opened.layout.packed, opened.block.count, opened.layout.width, opened.block.bits, row
            )
    else:
        row = load32(page.directory + 4 * block)
        if row < page.size:
            kc_fetch(page.data + row)


cdef inline void _fetch_ahead(const PagedCells* column, const int64_t[::1] rows, int64_t k) noexcept nogil:
    """Ask for what the next rows need: where a mini-block lies, and when that has come, the cell."""
    if k + 2 * AHEAD < rows.shape[0]:
        fetch_place(column, rows[k + 2 * AHEAD])
    if k + AHEAD < rows.shape[0]:
        fetch_cell(column, rows[k + AHEAD])


cdef inline int64_t gather_fixed(
    const PagedCells* column, const int64_t[::1] rows, uint8_t* out, uint8_t* bits, int64_t k, Cells* cells,
    Need* need, int64_t* nulls, int64_t* status, int64_t* at,
) noexcept nogil:
    """Write the cells of rows[k:], stored width; stop where a page lacks.  Return how far it came."""
    cdef:
        int64_t number = -1, index = -1
        int width = column.width, found
        const Page* page = NULL
    status[0] = 0
    for k in range(k, rows.shape[0]):
        _fetch_ahead(column, rows, k)
        if page_of(column, rows[k]) != number:
            number = page_of(column, rows[k])
            page = &column.pages[number]
            need.page = number
            if page.data == NULL:
                status[0] = NEED_PAGE
                return k
            column.touched[number] = 1
        found = read_fixed(column, page, rows[k], cells, &index, out + k * width, at)
        if found < 0:
            status[0] = found
            return k
        if found:
            bits[k >> 3] &= <uint8_t>~(1 << (k & 7))
            nulls[0] += 1
    return rows.shape[0]


cdef inline int open_string(
    const Page* page, int64_t row, int64_t* index, Strings* part, int64_t* i, int64_t* at
) noexcept nogil:
    """Have the mini-block of a row of the page at hand: 1 where the row's cell is null, or a status.

    ``i``: the cell in the mini-block; ``index``: as of ``read_fixed``.
    """
    cdef int status
    if row >= page.rows:
        return BAD_VALUE
    i[0] = row & (BLOCK_ROWS - 1)
    if page.bits != NULL:
        if not kc_bit(page.bits, row):
            return 1
        i[0] = page_values(page, row - i[0], i[0])
    if row >> BLOCK_BITS != index[0]:
        index[0] = -1
        status = strings_open(page, row >> BLOCK_BITS, part, at)
        if status == 0 and part.kind != STRING_PLAIN:
            status = NEEDS_GENERAL_PATH
        if status < 0:
            return status
        index[0] = row >> BLOCK_BITS
    return 0


cdef inline int read_string(
    const PagedCells* column, const Page* page, int64_t row, Cells* cells, Strings* part, int64_t* index,
    const uint8_t** start, int64_t* size, int64_t* at
) noexcept nogil:
    """Where the string of a row lies, in the page or in the dictionary; 1 where it is null, or a status.

    ``index``: as of ``read_fixed``, of ``cells`` or ``part``; -1 where the row lies in another page than the
    one before.
    """
    cdef:
        uint8_t cell[16]
        uint32_t code = 0
        int64_t i = 0
        int status
    if column.width == 0:
        if index[0] < 0:
            memset(part, 0, sizeof(part[0]))
        status = open_string(page, row_in_page(column, row), index, part, &i, at)
        return plain_cell(part, i, start, size, at) if status == 0 else status
    if column.words.count == 0:
        return NEEDS_GENERAL_PATH
    status = read_fixed(column, page, row, cells, index, cell, at)
    if status:
        return status
    memcpy(&code, cell, <size_t>min(column.width, 4))
    if code >= column.words.count:
        return BAD_VALUE
    start[0] = column.words.data + column.words.ends[code]
    size[0] = column.words.ends[code + 1] - column.words.ends[code]
    return 0


cdef struct Span:
    const uint8_t* start
    int64_t size


cdef inline int64_t gather_strings(
    const PagedCells* column, const int64_t[::1] rows, Span* out, uint8_t* bits, int64_t k,
    Need* need, int64_t* nulls, int64_t* status, int64_t* at,
) noexcept nogil:
    """Write where the cells of rows[k:] lie; as ``gather_fixed``."""
    cdef:
        int64_t number = -1, index = -1, i = 0
        const Page* page = NULL
        Strings part
        int found
    status[0] = 0
    memset(&part, 0, sizeof(part))
    for k in range(k, rows.shape[0]):
        _fetch_ahead(column, rows, k)
        if page_of(column, rows[k]) != number:
            number = page_of(column, rows[k])
            index = -1
            page = &column.pages[number]
            need.page = number
            if page.data == NULL:
                status[0] = NEED_PAGE
                return k
            column.touched[number] = 1
        out[k].size = 0
        found = open_string(page, row_in_page(column, rows[k]), &index, &part, &i, at)
        if found == 1:
            bits[k >> 3] &= <uint8_t>~(1 << (k & 7))
            nulls[0] += 1
            continue
        if found == 0:
            found = plain_cell(&part, i, &out[k].start, &out[k].size, at)
        if found < 0:
            status[0] = found
            return k
    return rows.shape[0]


cdef inline int64_t place_cells(
    const PagedCells* column, const uint8_t* codes, const uint8_t* bits, Span* spans, int64_t n,
    int32_t* offsets
) noexcept nogil:
    """Offsets of the words of codes (``codes`` NULL: of the spans as they are); the bytes, or a status."""
    cdef:
        int64_t k, total = 0
        uint32_t code
    offsets[0] = 0
    for k in range(n):
        if codes != NULL:
            spans[k].size = 0
            if kc_bit(bits, k):
                code = 0
                memcpy(&code, codes + k * column.width, <size_t>column.width)
                if code >= column.words.count:
                    return BAD_VALUE
                spans[k].start = column.words.data + column.words.ends[code]
                spans[k].size = column.words.ends[code + 1] - column.words.ends[code]
        total += spans[k].size
        if total > MAX_DATA_BYTES:
            return NEEDS_GENERAL_PATH
        offsets[k + 1] = <int32_t>total
    return total


cdef inline void copy_cells(const Span* spans, int64_t n, uint8_t* out) noexcept nogil:
    """Write the bytes of the cells one after the other."""
    cdef int64_t k
    for k in range(n):
        if spans[k].size:
            memcpy(out, spans[k].start, <size_t>spans[k].size)
            out += spans[k].size
