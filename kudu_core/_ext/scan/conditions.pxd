# Whether the cells of a piece belong to a set of values, decided on what is stored.
#
# In this order: by the head of the mini-block (a constant, a frame of reference), by its runs, by the values
# as they are packed, and only then by decoded values; never by decoded strings where there is a dictionary.
#
# What is read is hostile: every function that reads a page returns a status where the bytes break their
# format, with ``at`` set to the place in the payload.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memset

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.pages.cell cimport Layout, Strings, fixed_layout, strings_open
from kudu_core._ext.pages.head cimport (
    BLOCK_ROWS,
    CONSTANT,
    FOR,
    NO_SCALE,
    RLE,
    STRING_PLAIN,
    Block,
    Page,
    block_open,
    load16,
    page_values,
)
from kudu_core._ext.pages.rows cimport (
    WORK_BYTES,
    check_exceptions,
    kc_unpack_part,
    load_cell,
    run_of,
    stored_part,
    string_ends,
    values_part,
)
from kudu_core._ext.base.bitpack cimport kc_mask
from kudu_core._ext.base.decimals cimport kc_to_floats
from kudu_core._ext.base.nulls cimport kc_spread
from kudu_core._ext.scan.cell_set cimport (
    CODE,
    FLOAT,
    SIGNED,
    TOP_BIT,
    Set,
    kc_filter_has,
    kc_filter_string,
)
from kudu_core._ext.scan.intervals cimport (
    Line,
    belongs,
    decide,
    first_reaching,
    kc_float_key,
    kc_largest,
    kc_within,
    test_numbers,
    test_wide,
)
from kudu_core._ext.scan.pieces cimport ALL, NONE, SOME, Piece
from kudu_core._ext.search.outcomes cimport NEEDS_GENERAL_PATH
from kudu_core._ext.search.sorted_strings cimport compare_bytes
from kudu_core._ext.base.status cimport BAD_VALUE, TRUNCATED


# ---- mini-blocks of fixed width ----

cdef struct TestScratch:
    uint8_t cells[WORK_BYTES]
    uint8_t work[WORK_BYTES]
    uint8_t passed[1024]        # of the values
    uint8_t rows[1024]          # of the rows
    uint32_t begins[1024]
    uint32_t sizes[1024]


cdef inline uint64_t _decimal_key(int64_t integer, int width, int scale) noexcept nogil:
    """Where the float that is stored as an integer lies on the line."""
    cdef uint64_t word = <uint64_t>integer
    kc_to_floats(<uint8_t*>&word, 1, width, scale, 0)
    return kc_float_key(word, width)


cdef inline int _test_decimals(
    const Line* line, const Block* block, const Layout* layout, int64_t lower, int64_t n, TestScratch* s
) noexcept nogil:
    """Test floats that are stored as integers: the ends of the interval become integers.

    A quotient grows with its dividend, so the integers of an interval are neighbours.  NEEDS_GENERAL_PATH
    where the values must be decoded and tested as floats.
    """
    cdef:
        int64_t base = <int64_t>block.base, i, low, high, middle
        int64_t most = <int64_t>kc_mask(block.bits)
        int width = line.width, state
        uint64_t first
    if width == 4:
        base = <int64_t><int32_t><uint32_t>block.base
    if block.bits > 53 or base > (<int64_t>1 << 53) or base < -(<int64_t>1 << 53):
        return NEEDS_GENERAL_PATH
    if width == 4 and base + most > 0x7FFFFFFF:
        return NEEDS_GENERAL_PATH
    first = _decimal_key(base, width, block.scale)
    state = decide(line, first, _decimal_key(base + most, width, block.scale))
    if state != SOME:
        return state
    i = first_reaching(line, first)
    if i + 1 < line.n and line.lows[i + 1] <= _decimal_key(base + most, width, block.scale):
        return NEEDS_GENERAL_PATH  # more than one interval: compare floats
    low = 0
    high = most + 1
    while low < high:           # the first integer that is not below
        middle = (low + high) >> 1
        if _decimal_key(base + middle, width, block.scale) < line.lows[i]:
            low = middle + 1
        else:
            high = middle
    first = <uint64_t>low
    high = most + 1
    while low < high:           # the first that is above
        middle = (low + high) >> 1
        if _decimal_key(base + middle, width, block.scale) <= line.highs[i]:
            low = middle + 1
        else:
            high = middle
    if <uint64_t>low == first:
        return NONE
    kc_unpack_part(s.cells, layout.packed, block.count, width, block.bits, 0, lower, n, s.work)
    kc_within(s.passed, s.cells, n, width, first, <uint64_t>low - 1 - first, 0)
    return SOME


cdef inline int _test_frame(
    const Line* line, const Block* block, const Layout* layout, int64_t lower, int64_t n, TestScratch* s
) noexcept nogil:
    """Test by the head, else by the packed values; NEEDS_GENERAL_PATH where they must be decoded."""
    cdef:
        uint64_t least, most, low
        int64_t i
        int state
    if block.scale != NO_SCALE and block.kind == FOR:
        return _test_decimals(line, block, layout, lower, n, s)
    if block.kind == CONSTANT:
        low = block.base
        if block.scale != NO_SCALE:
            kc_to_floats(<uint8_t*>&low, 1, line.width, block.scale, 0)
        return ALL if belongs(line, low) else NONE
    if line.kind == FLOAT:
        return NEEDS_GENERAL_PATH
    least = (block.base & line.mask) ^ line.flip
    most = least + kc_mask(block.bits)
    if most < least or most > line.mask:
        return NEEDS_GENERAL_PATH  # wraps around
    state = decide(line, least, most)
    if state != SOME:
        return state
    i = first_reaching(line, least)
    if i + 1 < line.n and line.lows[i + 1] <= most:
        return NEEDS_GENERAL_PATH
    low = line.lows[i] ^ line.flip
    kc_unpack_part(
        s.cells, layout.packed, block.count, line.width, block.bits, block.base - low, lower, n, s.work
    )
    kc_within(s.passed, s.cells, n, line.width, 0, line.highs[i] - line.lows[i], 0)
    return SOME


cdef inline int _test_runs(
    const Line* line, const Block* block, const Layout* layout, int64_t lower, int64_t n, TestScratch* s,
    int64_t* at,
) noexcept nogil:
    """Test runs: once for each."""
    cdef:
        int64_t run = run_of(block, layout, lower), begin = lower, end, upper = lower + n
        int width = line.width
        bint some = False, every = True, found
    at[0] = block.offset
    while begin < upper:
        if run >= <int64_t>block.base:
            return TRUNCATED
        end = load16(layout.packed + 2 * run)
        if end <= begin:
            return BAD_VALUE
        if end > upper:
            end = upper
        found = belongs(line, load_cell(layout.raws + run * width, width))
        some |= found
        every &= found
        memset(s.passed + begin - lower, found, <size_t>(end - begin))
        begin = end
        run += 1
    return ALL if every else SOME if some else NONE


cdef inline int _test_exceptions(
    const Line* line, const Block* block, const Layout* layout, int64_t lower, int64_t n, int state,
    TestScratch* s, int64_t* at,
) noexcept nogil:
    """Test the values that the packing leaves out, among values lower .. lower + n - 1."""
    cdef:
        int64_t k, position
        int width = line.width
        int status = check_exceptions(block, layout, at)
    if status < 0:
        return status
    for k in range(block.exceptions):
        position = load16(layout.positions + 2 * k) - lower
        if 0 <= position < n:
            if state != SOME:
                memset(s.passed, state == ALL, <size_t>n)
                state = SOME
            s.passed[position] = belongs(line, load_cell(layout.raws + k * width, width))
    return state


cdef inline int _test_values(
    const Set* test, const Block* block, const Layout* layout, int64_t lower, int64_t n, TestScratch* s,
    int64_t* at,
) noexcept nogil:
    """State of values lower .. lower + n - 1, in ``s.passed`` where it is SOME; or a status."""
    cdef:
        Line line
        int state = NEEDS_GENERAL_PATH, status
    line.kind = test.kind
    line.width = layout.width
    line.mask = kc_mask(8 * layout.width) if layout.width < 16 else 0
    line.lows, line.highs, line.n, line.flip = test.lows, test.highs, test.n, test.flip
    line.filtered = test if test.filter != NULL else NULL
    if test.width == 16:
        if layout.width == 16:
            status = values_part(block, layout, 16, lower, n, s.cells, s.work, at)
            if status == 0:
                test_wide(test, s.cells, n, s.passed)
            return SOME if status == 0 else status
        line.lows, line.highs, line.n = test.narrow_lows, test.narrow_highs, test.narrow_n
        line.kind, line.flip = SIGNED, TOP_BIT
    if block.kind == RLE:
        return _test_runs(&line, block, layout, lower, n, s, at)
    if block.kind == FOR or block.kind == CONSTANT:
        state = _test_frame(&line, block, layout, lower, n, s)
        if state != NEEDS_GENERAL_PATH:
            if block.exceptions:
                state = _test_exceptions(&line, block, layout, lower, n, state, s, at)
            return state
    status = stored_part(block, layout, lower, n, s.cells, s.work, at)
    if status < 0:
        return status
    if test.kind == CODE and kc_largest(s.cells, n, layout.width) >= <uint64_t>test.words:
        at[0] = block.offset
        return BAD_VALUE
    test_numbers(&line, s.cells, n, s.passed)
    return SOME


cdef inline int _spread(
    const Page* page, int64_t row, int64_t n, int state, bint nulls, TestScratch* s
) noexcept nogil:
    """From values, which NULLs have none of, to rows: state of them, in ``s.rows`` where it is SOME."""
    cdef int64_t i, values = page_values(page, row, n)
    if state == SOME and memchr(s.passed, 1, <size_t>values) == NULL:
        state = NONE
    if values == n:
        if state == SOME:
            memcpy(s.rows, s.passed, <size_t>n)
        return state
    if values == 0:
        return ALL if nulls else NONE
    if (state == ALL and nulls) or (state == NONE and not nulls):
        return state
    if state != SOME:
        memset(s.passed, state == ALL, <size_t>values)
    kc_spread(s.rows, s.passed, page.bits, row, n, 1)
    if nulls:
        for i in range(n):
            s.rows[i] |= not kc_bit(page.bits, row + i)
    return SOME


cdef inline int test_fixed(
    const Set* test, const Page* page, const Piece* piece, int width, TestScratch* s, int64_t* at
) noexcept nogil:
    """State of the rows of a piece of a fixed column, in ``s.rows`` where it is SOME; or a status."""
    cdef:
        Block block
        Layout layout
        int64_t begin = piece.block * BLOCK_ROWS, row = begin + piece.first, lower, values
        int status = block_open(page, piece.block, &block, at)
    if status == 0:
        status = fixed_layout(&block, width, &layout, at)
    if status < 0:
        return status
    lower = page_values(page, begin, piece.first)
    values = page_values(page, row, piece.rows)
    status = NONE
    if values:
        status = _test_values(test, &block, &layout, lower, values, s, at)
    return status if status < 0 else _spread(page, row, piece.rows, status, test.nulls, s)


# ---- mini-blocks of strings ----

cdef inline bint _has_string(const Set* test, const uint8_t* cell, int64_t size) noexcept nogil:
    cdef:
        int64_t lower = 0, upper = test.n, middle
        const int64_t* ends = test.offsets
    if test.filter != NULL and not kc_filter_has(
        test.filter, kc_filter_string(cell, size, test.filter_shift)
    ):
        return False
    while lower < upper:            # the last interval that does not begin above
        middle = (lower + upper) >> 1
        if compare_bytes(
            test.data + ends[2 * middle], ends[2 * middle + 1] - ends[2 * middle], cell, size
        ) <= 0:
            lower = middle + 1
        else:
            upper = middle
    if lower == 0:
        return False
    lower -= 1
    if test.open_end and lower == test.n - 1:
        return True
    return compare_bytes(
        cell, size, test.data + ends[2 * lower + 1], ends[2 * lower + 2] - ends[2 * lower + 1]
    ) < 0


cdef inline int test_strings(
    const Set* test, const Page* page, const Piece* piece, const uint8_t* mask, TestScratch* s, uint8_t* rows,
    int64_t* at,
) noexcept nogil:
    """Test the rows of a piece of strings, into ``rows``: SOME or a status.

    ``mask``: of the rows of the piece where that is SOME, else NULL; only rows in it are looked at.
    """
    cdef:
        Strings part
        int64_t begin = piece.block * BLOCK_ROWS, row = begin + piece.first, i, v, lower, values
        int status = strings_open(page, piece.block, &part, at)
    if status == 0 and part.kind != STRING_PLAIN:
        status = NEEDS_GENERAL_PATH
    if status < 0:
        return status
    lower = page_values(page, begin, piece.first)
    values = page_values(page, row, piece.rows)
    status = string_ends(&part, lower, values, s.begins, s.sizes, s.work, at)
    if status < 0:
        return status
    v = 0
    for i in range(piece.rows):
        if page.bits != NULL and not kc_bit(page.bits, row + i):
            rows[i] = test.nulls
            continue
        if mask == NULL or mask[i]:
            rows[i] = _has_string(test, part.data + s.begins[v], s.sizes[v])
        v += 1
    return SOME
