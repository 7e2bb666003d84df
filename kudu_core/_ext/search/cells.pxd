# Single keys and cells looked for where they lie, in mini-blocks that are not decoded.
#
# A mini-block's cells as numbers that compare as the cells do; ascending strings with their first bytes
# as numbers; searches in both.  For the kernels of point reads.  What is read is hostile: every function
# returns a status where the bytes break their format, with ``at`` set to the place in the payload.
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from kudu_core._ext.base.bitpack cimport kc_mask, kc_packed_cell
from kudu_core._ext.pages.cell cimport (
    RESTART,
    Layout,
    Strings,
    fixed_cell,
    fixed_layout,
    strings_entry,
    strings_group,
    strings_open,
)
from kudu_core._ext.pages.head cimport (
    CONSTANT,
    DELTA,
    FOR,
    NO_SCALE,
    RLE,
    STRING_PREFIX,
    Block,
    Page,
    block_open,
    load16,
)
from kudu_core._ext.pages.rows cimport stored_part
from kudu_core._ext.base.status cimport BAD_VALUE

cdef extern from *:
    """
    static inline void kc_point_fetch(const void *p) { __builtin_prefetch(p, 0, 3); }
    /* The first 8 bytes, as a number that compares as they do; what is missing counts as zeros. */
    static inline uint64_t kc_point_head(const unsigned char *p, int64_t size) {
        uint64_t word = 0;
        if (size > 0) memcpy(&word, p, (size_t)(size < 8 ? size : 8));
        return __builtin_bswap64(word);
    }
    /* How many of n ascending numbers are below x. */
    static inline int64_t kc_point_below(const uint64_t *heads, int64_t n, uint64_t x) {
        const uint64_t *base = heads;
        if (n == 0) return 0;
        while (n > 1) {
            const int64_t half = n >> 1;
            base += base[half - 1] < x ? half : 0;
            n -= half;
        }
        return base - heads + (*base < x);
    }
    """
    void kc_point_fetch(const void* p) noexcept nogil
    uint64_t kc_point_head(const uint8_t* p, int64_t size) noexcept nogil
    int64_t kc_point_below(const uint64_t* heads, int64_t n, uint64_t x) noexcept nogil

cdef enum:
    ABSENT = -1
    NEED_PAGE = -101
    NEEDS_GENERAL_PATH = -102

    FEW_EXCEPTIONS = 8


cdef struct Sorted:
    # Ascending strings.
    int64_t count
    const int64_t* ends         # offsets
    const uint8_t* data
    int64_t common              # bytes that all of them begin with
    const uint64_t* heads       # of each, the 8 bytes behind these


# ------------------------------------------------------------------------------ searching by cells

cdef struct Cells:
    # The cells of one mini-block of a column, as numbers that compare as the cells do.
    Block block
    Layout layout
    int width
    uint64_t mask
    uint64_t flip
    bint steps                  # DELTA with equal deltas but for a few: computed
    bint decoded                # ``values`` holds them all
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
    cells.steps = cells.decoded = False
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
    cdef int status
    if width > 8:
        return NEEDS_GENERAL_PATH
    status = open_block(page, index, width, cells, at)
    return status if status < 0 else order_cells(page, width, flip, cells, at)


cdef inline uint64_t step_value(const Cells* cells, int64_t i) noexcept nogil:
    """Value i of a DELTA block whose deltas are all equal but for the exceptions."""
    cdef:
        uint64_t word = cells.block.base, raw
        int64_t k, position, listed = 0
        int width = cells.layout.width
    for k in range(cells.block.exceptions):
        position = load16(cells.layout.positions + 2 * k)
        if position > i:
            break
        if position:                        # the delta of the first value means nothing
            raw = 0
            memcpy(&raw, cells.layout.raws + k * width, <size_t>width)
            word += raw
            listed += 1
    return word + cells.layout.least * <uint64_t>(i - listed)


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
    """The same where cells are runs: one step a run, not one a cell."""
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
    """The same where cells ascend by equal steps but at exceptions: those first, then a division."""
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


cdef inline int compare_bytes(
    const uint8_t* a, int64_t a_size, const uint8_t* b, int64_t b_size
) noexcept nogil:
    cdef int order = memcmp(a, b, <size_t>(a_size if a_size < b_size else b_size))
    if order:
        return order
    return (a_size > b_size) - (a_size < b_size)


cdef inline int64_t count_below(
    const Sorted* all, const uint8_t* key, int64_t size, bint above
) noexcept nogil:
    """How many of the strings are below the key (``above``: not above it)."""
    cdef:
        int64_t common = all.common, lower, upper, middle
        uint64_t head
        int order
    if all.count == 0:
        return 0
    order = memcmp(key, all.data + all.ends[0], <size_t>(common if common < size else size))
    if order:
        return 0 if order < 0 else all.count
    if size < common:
        return 0
    head = kc_point_head(key + common, size - common)
    lower = kc_point_below(all.heads, all.count, head)
    if lower == all.count or all.heads[lower] != head:
        return lower
    upper = all.count
    if head != ~<uint64_t>0:
        upper = lower + kc_point_below(all.heads + lower, all.count - lower, head + 1)
    while lower < upper:
        middle = (lower + upper) >> 1
        order = compare_bytes(all.data + all.ends[middle], all.ends[middle + 1] - all.ends[middle], key, size)
        if order < 0 or (above and order == 0):
            lower = middle + 1
        else:
            upper = middle
    return lower


cdef inline int64_t word_code(const Sorted* words, const uint8_t* word, int64_t size) noexcept nogil:
    """The code of a word, -1 where the dictionary does not have it."""
    cdef int64_t code = count_below(words, word, size, False)
    if code < words.count and words.ends[code + 1] - words.ends[code] == size:
        if memcmp(words.data + words.ends[code], word, <size_t>size) == 0:
            return code
    return -1


cdef inline int plain_cell(
    const Strings* part, int64_t i, const uint8_t** start, int64_t* size, int64_t* at
) noexcept nogil:
    """Where cell i < count of a STRING_PLAIN block lies."""
    cdef int64_t begin = 0, end
    if part.bits:
        end = <int64_t>kc_packed_cell(part.ends, part.count, 4, part.bits, i)
        if i:
            begin = <int64_t>kc_packed_cell(part.ends, part.count, 4, part.bits, i - 1)
        at[0] = part.offset
        if begin > end or end > part.size:
            return BAD_VALUE
    else:
        begin = i * part.length
        end = begin + part.length
    start[0] = part.data + begin
    size[0] = end - begin
    return 0


cdef inline int64_t find_prefixed(
    const Strings* part, const uint8_t* key, int64_t size, int64_t* at
) noexcept nogil:
    """The entry that equals the key, -1 for none: the group first, then at most 16 entries."""
    cdef:
        int64_t lower = 0, upper = (part.count + RESTART - 1) / RESTART, middle
        int64_t pos = 0, length, shared, same = 0, i, suffix, k
        int status, order
    while lower < upper:
        middle = (lower + upper) >> 1
        status = strings_group(part, middle * RESTART, &pos, at)
        length = shared = 0
        if status == 0:
            status = strings_entry(part, middle * RESTART, &pos, &length, &shared, at)
        if status < 0:
            return status
        order = compare_bytes(part.data + pos, length, key, size)
        if order == 0:
            return middle * RESTART
        if order < 0:
            lower = middle + 1
        else:
            upper = middle
    if lower == 0:
        return ABSENT
    i = (lower - 1) * RESTART
    status = strings_group(part, i, &pos, at)
    if status < 0:
        return status
    length = 0
    for i in range(i, min(i + RESTART, part.count)):
        status = strings_entry(part, i, &pos, &length, &shared, at)
        if status < 0:
            return status
        suffix = length - shared
        if shared <= same:                  # else it differs where the entry before it does
            k = 0
            while k < suffix and shared + k < size and part.data[pos + k] == key[shared + k]:
                k += 1
            same = shared + k
        if same == size and length == size:
            return i
        pos += suffix
    return ABSENT


cdef inline int64_t find_string(
    const Page* page, int64_t index, const uint8_t* key, int64_t size, int64_t* at
) noexcept nogil:
    """The cell of mini-block ``index`` that equals the key, -1 for none, or a status."""
    cdef:
        Strings part
        const uint8_t* start = NULL
        int64_t length = 0, lower = 0, upper, middle
        int order, status = strings_open(page, index, &part, at)
    if status < 0:
        return status
    if page.bits != NULL:
        return BAD_VALUE
    if part.kind == STRING_PREFIX:
        return find_prefixed(&part, key, size, at)
    upper = part.count
    while lower < upper:
        middle = (lower + upper) >> 1
        status = plain_cell(&part, middle, &start, &length, at)
        if status < 0:
            return status
        order = compare_bytes(start, length, key, size)
        if order == 0:
            return middle
        if order < 0:
            lower = middle + 1
        else:
            upper = middle
    return ABSENT
