# Cells of one row that are looked for side by side: where one of them waits for memory, the others do too.
#
# A cell lies behind three or four addresses, each of which is read from what the one before it points to.
# One cell after the other they are as many waits for each column of the row; step by step for all of them
# they are as many for the whole row.  What is unusual, or breaks its format, is left to ``cells.pxd``, which
# then says what is wrong.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.base.bitpack cimport fetch_packed
from kudu_core._ext.base.loads cimport copy_word, kc_fetch
from kudu_core._ext.pages.cell cimport Strings, fixed_cell, plain_cell, strings_open
from kudu_core._ext.pages.head cimport (
    BLOCK_BITS,
    BLOCK_ROWS,
    CLASS_BINARY,
    DELTA,
    FOR,
    PLAIN,
    STRING_PLAIN,
    Page,
    load32,
    page_open,
    page_values,
)
from kudu_core._ext.row.cells cimport Opened, PagedCells, kc_is_known, open_known, page_of, row_in_page
from kudu_core._ext.search.cells cimport Cells, step_of

cdef enum:
    UNUSUAL = 0                 # not found here
    NULL_CELL = 1
    FIXED_CELL = 2              # ``at`` has ``size`` bytes, in ``cell``
    STRING_CELL = 3             # ``at`` has ``size`` bytes, in the page


cdef struct Ahead:
    # A cell on its way.
    int state
    const PagedCells* column    # NULL: not looked for
    const Page* page
    int64_t row                 # in the page
    int64_t index               # in the mini-block
    Strings part
    const uint8_t* at
    int64_t size
    uint8_t cell[16]


cdef inline void _begin(Ahead* one, int64_t row) noexcept nogil:
    """Find the page; ask for what says where the mini-block lies, and which of its cells are null."""
    cdef:
        const PagedCells* column = one.column
        const Page* page
        int64_t block
    if column == NULL:
        return
    page = &column.pages[page_of(column, row)]
    one.page = page
    one.row = row_in_page(column, row)
    if page.data == NULL or one.row >= page.rows:
        one.column = NULL
        return
    block = one.row >> BLOCK_BITS
    kc_fetch(page.directory + 4 * block)
    if column.width:
        kc_fetch(&column.opened[row >> BLOCK_BITS])
        kc_fetch(<const uint8_t*>&column.opened[row >> BLOCK_BITS] + 64)
    if page.bits != NULL:
        kc_fetch(page.bits + (block << (BLOCK_BITS - 3)))
        kc_fetch(page.bits + (one.row >> 3))


cdef inline void _fetch_cell(const Opened* opened, int64_t i) noexcept nogil:
    if opened.block.kind == PLAIN:
        kc_fetch(opened.layout.packed + i * opened.layout.width)
    elif opened.block.kind == FOR or opened.block.kind == DELTA:
        fetch_packed(opened.layout.packed, opened.block.count, opened.layout.width, opened.block.bits, i)


cdef inline void _find_block(Ahead* one, int64_t row) noexcept nogil:
    """Whether the cell is null.  Ask for the head of its mini-block, or where that is known for the cell."""
    cdef:
        const Page* page = one.page
        int64_t begin
    if one.column == NULL:
        return
    one.index = one.row & (BLOCK_ROWS - 1)
    if page.bits != NULL:
        if not kc_bit(page.bits, one.row):
            one.state = NULL_CELL
            one.column = NULL
            return
        one.index = page_values(page, one.row - one.index, one.index)
    if one.column.width and kc_is_known(&one.column.opened[row >> BLOCK_BITS].known):
        _fetch_cell(&one.column.opened[row >> BLOCK_BITS], one.index)
        return
    begin = load32(page.directory + 4 * (one.row >> BLOCK_BITS))
    if begin < page.size:
        kc_fetch(page.data + begin)


cdef inline void _open(Ahead* one, int64_t row, Cells* cells) noexcept nogil:
    """Read the head where it was not known; ask for the cell, of a string for where it ends."""
    cdef:
        const PagedCells* column = one.column
        Strings* part = &one.part
        int64_t at = 0
    if column == NULL:
        return
    if column.width:
        if kc_is_known(&column.opened[row >> BLOCK_BITS].known):
            return
        if open_known(column, one.page, row >> BLOCK_BITS, cells, &at) == 0:
            _fetch_cell(&column.opened[row >> BLOCK_BITS], one.index)
        else:
            one.column = NULL
        return
    memset(part, 0, sizeof(part[0]))
    if strings_open(one.page, one.row >> BLOCK_BITS, part, &at) < 0 or part.kind != STRING_PLAIN:
        one.column = NULL
    elif part.bits:
        fetch_packed(part.ends, part.count, 4, part.bits, one.index)
        if one.index:
            fetch_packed(part.ends, part.count, 4, part.bits, one.index - 1)


cdef inline void _find_cell(Ahead* one, int64_t row) noexcept nogil:
    """Read a number; ask for the bytes of a string."""
    cdef:
        const PagedCells* column = one.column
        const Opened* opened
        int64_t at = 0
    if column == NULL:
        return
    if column.width == 0:
        if plain_cell(&one.part, one.index, &one.at, &one.size, &at) == 0:
            one.state = STRING_CELL
            kc_fetch(one.at)
            kc_fetch(one.at + 64)
        return
    opened = &column.opened[row >> BLOCK_BITS]
    if opened.layout.width != column.width:
        return
    if opened.block.kind == DELTA:
        if not opened.steps:
            return
        copy_word(one.cell, step_of(&opened.block, &opened.layout, one.index), column.width)
    elif fixed_cell(&opened.block, &opened.layout, one.index, one.cell) < 0:
        return
    one.at = one.cell
    one.size = column.width
    one.state = FIXED_CELL


cdef inline void look_ahead(Ahead* cells, int64_t count, int64_t row) noexcept nogil:
    """Find the cells of a row whose ``column`` is set; ``state`` says which were found."""
    cdef:
        Cells opened
        int64_t i
    for i in range(count):
        cells[i].state = UNUSUAL
        if cells[i].column != NULL:
            kc_fetch(&cells[i].column.pages[page_of(cells[i].column, row)])
    for i in range(count):
        _begin(&cells[i], row)
    for i in range(count):
        _find_block(&cells[i], row)
    for i in range(count):
        _open(&cells[i], row, &opened)
    for i in range(count):
        _find_cell(&cells[i], row)


cdef inline void fetch_head(const void* payload) noexcept nogil:
    """Ask for the first bytes of a page, where also strings' ends most often lie."""
    cdef int64_t i
    for i in range(0, 256, 64):
        kc_fetch(<const uint8_t*>payload + i)


cdef inline void fetch_string(const PagedCells* column, int64_t row, object payload) noexcept:
    """Ask for the cell of a row in the bytes of its page, which is not held."""
    cdef:
        const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(payload)
        int64_t length = PyBytes_GET_SIZE(payload)
        Page page
        Strings part
        int64_t i = row_in_page(column, row), at = 0, bytes = 0
        const uint8_t* start = NULL
    if column.width or page_open(&page, data, length, CLASS_BINARY, 0, &at) < 0 or i >= page.rows:
        return
    if page.bits != NULL and not kc_bit(page.bits, i):
        return
    memset(&part, 0, sizeof(part))
    if strings_open(&page, i >> BLOCK_BITS, &part, &at) < 0 or part.kind != STRING_PLAIN:
        return
    i = page_values(&page, i & ~<int64_t>(BLOCK_ROWS - 1), i & (BLOCK_ROWS - 1))
    if plain_cell(&part, i, &start, &bytes, &at) == 0:
        kc_fetch(start)
        kc_fetch(start + bytes)
