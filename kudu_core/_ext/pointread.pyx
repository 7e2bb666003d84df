"""Find a key in a ``.rows`` file and read its cells where they lie, without decoding mini-blocks.

``PointFile`` holds the pages of one open file that point reads have asked for, as the page cache
keeps them, and raw pointers into them.  A look-up is: bloom, binary search in the first keys of
the mini-blocks, binary search by cells in the one mini-block that may hold the key.  ``row`` makes a dict
of one row's cells, ``cells`` gathers a column's cells of many rows.

It is the fast path beside ``cfile.key_reader`` and ``cfile.column_reader``: what it cannot do (an
encoding without cells, a page that the cache does not keep) raises ``Elsewhere``, stored bytes that break
their format raise ``PageError``; in both cases the caller asks the general path, whose answer or
error stands.  It knows no files, frames or codecs.

Memory: a page is kept while the cache keeps it.  When the cache is about to drop one, it calls ``forget``,
which says whether the page was used since the last time (then it stays) or lets go of it.  All that
changes what is held happens with the GIL; a look-up that runs without it is counted in
``_busy``, and pages dropped meanwhile are let go of when the last such look-up ends.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_SetItem
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from kudu_core._ext.bitmap cimport kc_bit
from kudu_core._ext.bitpack cimport kc_mask, kc_packed_cell
from kudu_core._ext.blockcell cimport (
    RESTART,
    Layout,
    Strings,
    delta_values,
    fixed_cell,
    fixed_layout,
    strings_entry,
    strings_group,
    strings_open,
)
from kudu_core._ext.blockpage cimport (
    BLOCK_ROWS,
    CLASS_BINARY,
    CLASS_FIXED,
    CONSTANT,
    DELTA,
    FOR,
    NO_SCALE,
    RLE,
    STRING_PLAIN,
    STRING_PREFIX,
    Block,
    Page,
    block_open,
    load16,
    load32,
    page_open,
    page_values,
)
from kudu_core._ext.rowcodec cimport RowShape, value_of
from kudu_core._ext.status cimport BAD_VALUE, raise_status

import numpy as np

cdef extern from *:
    """
    static const unsigned kc_point_salt[8] = {
        0x47b6137bU, 0x44974d91U, 0x8824ad5bU, 0xa2b7289dU,
        0x705495c7U, 0x2df1424bU, 0x9efc4947U, 0x5c6bfb31U,
    };
    /* docs/format.md, "Bloom"; ``bloom`` has the fast form for batches. */
    static inline int kc_point_bloom(const unsigned char *filter, uint64_t blocks, uint64_t hash) {
        const unsigned char *block = filter + 32 * (((hash >> 32) * blocks) >> 32);
        unsigned found = 1;
        for (int i = 0; i < 8; i++) {
            unsigned word;
            memcpy(&word, block + 4 * i, 4);
            found &= word >> (((unsigned)hash * kc_point_salt[i]) >> 27);
        }
        return (int)(found & 1);
    }
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
    static inline void kc_point_fetch_bloom(const unsigned char *filter, uint64_t blocks, uint64_t hash) {
        __builtin_prefetch(filter + 32 * (((hash >> 32) * blocks) >> 32), 0, 3);
    }
    static inline uint64_t kc_point_big_endian(const unsigned char *p, int width) {
        uint64_t word = 0;
        for (int i = 0; i < width; i++) word = word << 8 | p[i];
        return word;
    }
    """
    void kc_point_fetch(const void* p) noexcept nogil
    bint kc_point_bloom(const uint8_t* filter, uint64_t blocks, uint64_t hash) noexcept nogil
    void kc_point_fetch_bloom(const uint8_t* filter, uint64_t blocks, uint64_t hash) noexcept nogil
    uint64_t kc_point_big_endian(const uint8_t* p, int width) noexcept nogil
    uint64_t kc_point_head(const uint8_t* p, int64_t size) noexcept nogil
    int64_t kc_point_below(const uint64_t* heads, int64_t n, uint64_t x) noexcept nogil

cdef enum:
    NUMBER = 0                  # how the cells of a key column compare
    WORDS = 1                   # by the codes of a sorted dictionary
    STRING = 2

    ABSENT = -1
    NEED_PAGE = -101
    ELSEWHERE = -102

    MOST_KEY_COLUMNS = 32
    FEW_EXCEPTIONS = 8
    AHEAD = 6                   # rows of a gather whose mini-blocks are fetched early
    GROUP = 16                  # probes whose bloom blocks are fetched together
    KEPT_TEXTS = 1 << 16        # dictionaries up to so many words keep theirs as Python values
    MAX_DATA_BYTES = 0x7FFFFFFF


class Elsewhere(Exception):
    """The general path must answer; nothing is wrong."""


cdef struct Sorted:
    # Ascending strings.
    int64_t count
    const int64_t* ends         # offsets
    const uint8_t* data
    int64_t common              # bytes that all of them begin with
    const uint64_t* heads       # of each, the 8 bytes behind these


cdef struct Column:
    Page* pages                 # .data is NULL where the page is not held
    uint8_t* touched
    int64_t page_count
    int width                   # as stored: of the codes, where there is a dictionary; 0: strings
    Sorted words                # the dictionary; count is 0 where there is none
    int order                   # of a key column
    int key_width
    uint64_t flip


cdef struct Need:
    # The page that a look-up lacks.
    int column
    int64_t page


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


cdef inline int _find_steps(Cells* cells, int64_t* at) noexcept nogil:
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


cdef int _open_cells(const Page* page, int64_t index, int width, uint64_t flip, Cells* cells, int64_t* at) \
        noexcept nogil:
    cdef:
        Block* block = &cells.block
        int status
    if width > 8:
        return ELSEWHERE
    status = block_open(page, index, block, at)
    if status == 0:
        status = fixed_layout(block, width, &cells.layout, at)
    if status < 0:
        return status
    if page.bits != NULL or block.scale != NO_SCALE:
        return BAD_VALUE                    # a key is never null, and no float
    cells.width = width
    cells.mask = kc_mask(8 * width)
    cells.flip = flip
    cells.steps = cells.decoded = False
    if block.kind == DELTA:
        status = _find_steps(cells, at)
        if status == 0 and not cells.steps:
            cells.decoded = True
            return delta_values(block, &cells.layout, cells.values, at)
    return status


cdef inline uint64_t _step_value(const Cells* cells, int64_t i) noexcept nogil:
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


cdef inline int _number(const Cells* cells, int64_t i, uint64_t* word) noexcept nogil:
    """Cell i < count; its place in the order."""
    cdef:
        const Block* block = &cells.block
        int status = 0
    word[0] = 0
    if cells.decoded:
        memcpy(word, cells.values + i * cells.width, <size_t>cells.width)
    elif cells.steps:
        word[0] = _step_value(cells, i)
    elif block.kind == FOR and not block.exceptions:
        word[0] = block.base + kc_packed_cell(cells.layout.packed, block.count, cells.width, block.bits, i)
    elif block.kind == CONSTANT and not block.exceptions:
        word[0] = block.base
    else:
        status = fixed_cell(block, &cells.layout, i, <uint8_t*>word)
    word[0] = (word[0] & cells.mask) ^ cells.flip
    return status


cdef inline int64_t _runs_ended(const Cells* cells, int64_t i) noexcept nogil:
    """How many runs end at or before cell i."""
    cdef int64_t first = 0, end = <int64_t>cells.block.base, middle
    while first < end:
        middle = (first + end) >> 1
        if load16(cells.layout.packed + 2 * middle) <= i:
            first = middle + 1
        else:
            end = middle
    return first


cdef int64_t _bound_of_runs(
    const Cells* cells, int64_t lower, int64_t upper, uint64_t want, bint above
) noexcept nogil:
    """The same where cells are runs: one step a run, not one a cell."""
    cdef:
        int64_t first = _runs_ended(cells, lower), end = _runs_ended(cells, upper - 1) + 1, middle, start = 0
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


cdef int64_t _bound(
    const Cells* cells, int64_t lower, int64_t upper, uint64_t want, bint above
) noexcept nogil:
    """The first cell of [lower, upper) that is not below ``want`` (``above``: that is above it)."""
    cdef:
        int64_t middle
        uint64_t word = 0
        int status
    if cells.block.kind == RLE:
        return _bound_of_runs(cells, lower, upper, want, above)
    if cells.block.kind == CONSTANT and not cells.block.exceptions and lower < upper:
        _number(cells, lower, &word)
        return upper if word < want or (above and word == want) else lower
    while lower < upper:
        middle = (lower + upper) >> 1
        status = _number(cells, middle, &word)
        if status < 0:
            return status
        if word < want or (above and word == want):
            lower = middle + 1
        else:
            upper = middle
    return lower


cdef inline int _compare(const uint8_t* a, int64_t a_size, const uint8_t* b, int64_t b_size) noexcept nogil:
    cdef int order = memcmp(a, b, <size_t>(a_size if a_size < b_size else b_size))
    if order:
        return order
    return (a_size > b_size) - (a_size < b_size)


cdef int64_t _count_below(const Sorted* all, const uint8_t* key, int64_t size, bint above) noexcept nogil:
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
        order = _compare(all.data + all.ends[middle], all.ends[middle + 1] - all.ends[middle], key, size)
        if order < 0 or (above and order == 0):
            lower = middle + 1
        else:
            upper = middle
    return lower


cdef int64_t _code(const Sorted* words, const uint8_t* word, int64_t size) noexcept nogil:
    """The code of a word, -1 where the dictionary does not have it."""
    cdef int64_t code = _count_below(words, word, size, False)
    if code < words.count and words.ends[code + 1] - words.ends[code] == size:
        if memcmp(words.data + words.ends[code], word, <size_t>size) == 0:
            return code
    return -1


cdef inline int _plain_cell(
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


cdef int64_t _find_prefixed(
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
        order = _compare(part.data + pos, length, key, size)
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


cdef int64_t _find_string(
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
        return _find_prefixed(&part, key, size, at)
    upper = part.count
    while lower < upper:
        middle = (lower + upper) >> 1
        status = _plain_cell(&part, middle, &start, &length, at)
        if status < 0:
            return status
        order = _compare(start, length, key, size)
        if order == 0:
            return middle
        if order < 0:
            lower = middle + 1
        else:
            upper = middle
    return ABSENT


# ------------------------------------------------------------------------------------ one key in a file

cdef struct Finder:
    int64_t rows
    Sorted index                        # first keys of the mini-blocks
    const uint8_t* bloom
    uint64_t bloom_blocks
    int keys                            # columns; 0: a column of encoded keys, columns[0]
    Column* columns[MOST_KEY_COLUMNS]


cdef inline const Page* _page(const Finder* finder, int k, int64_t block, Need* need) noexcept nogil:
    cdef Column* column = finder.columns[k]
    if column.pages[block >> 4].data == NULL:
        need.column = k
        need.page = block >> 4
        return NULL
    column.touched[block >> 4] = 1
    return &column.pages[block >> 4]


cdef int64_t _cell_want(
    const Column* column, const uint8_t* key, int64_t size, bint last, int64_t* pos, uint64_t* want
) noexcept nogil:
    """Cut one column's cell off an encoded key: the number to look for.  0, ABSENT or ELSEWHERE."""
    cdef int64_t begin = pos[0], end, code
    if column.order == NUMBER:
        if size - begin < column.key_width:
            return ABSENT
        want[0] = kc_point_big_endian(key + begin, column.key_width)
        pos[0] = begin + column.key_width
        return 0
    end = size
    if not last:
        end = begin
        while end < size and key[end] != 0:
            end += 1
        if end + 1 >= size:
            return ABSENT
        if key[end + 1] != 0:
            return ELSEWHERE                # a byte 00 inside the string
    code = _code(&column.words, key + begin, end - begin)
    if code < 0:
        return ABSENT
    want[0] = <uint64_t>code
    pos[0] = end if last else end + 2
    return 0


cdef int64_t _find_in_block(
    const Finder* finder,
    int64_t block,
    const uint8_t* key,
    int64_t size,
    Cells* cells,
    Need* need,
    int64_t* at,
) noexcept nogil:
    """The row of a key, ABSENT, NEED_PAGE, ELSEWHERE or a status of the page in ``need``."""
    cdef:
        int64_t lower = 0, upper, pos = 0, status
        uint64_t want = 0, word = 0
        const Page* page
        int k
        bint last
    if block < 0:
        return ABSENT
    if finder.keys == 0 or finder.columns[0].order == STRING:
        page = _page(finder, 0, block, need)
        if page == NULL:
            return NEED_PAGE
        status = _find_string(page, block & 15, key, size, at)
        return status if status < 0 else block * BLOCK_ROWS + status
    upper = finder.rows - block * BLOCK_ROWS
    if upper > BLOCK_ROWS:
        upper = BLOCK_ROWS
    for k in range(finder.keys):
        last = k == finder.keys - 1
        status = _cell_want(finder.columns[k], key, size, last, &pos, &want)
        if status < 0:
            return status
        page = _page(finder, k, block, need)
        if page == NULL:
            return NEED_PAGE
        status = _open_cells(page, block & 15, finder.columns[k].width, finder.columns[k].flip, cells, at)
        if status == 0 and cells.block.count < upper:
            status = BAD_VALUE
        if status < 0:
            return status
        lower = _bound(cells, lower, upper, want, False)
        if lower < 0:
            return lower
        if lower == upper:
            return ABSENT
        if last:
            status = _number(cells, lower, &word)
            if status < 0:
                return status
            if word != want:
                return ABSENT
        else:
            upper = _bound(cells, lower, upper, want, True)
            if upper < 0:
                return upper
            if lower == upper:
                return ABSENT
    return block * BLOCK_ROWS + lower if pos == size else ABSENT


cdef void _fetch(const Finder* finder, int64_t block, bint heads) noexcept nogil:
    """Ask for the memory that a search of the mini-block will read: its place, then its head."""
    cdef:
        int k, count = finder.keys if finder.keys else 1
        const Page* page
        int64_t start
    for k in range(count):
        page = &finder.columns[k].pages[block >> 4]
        if page.data == NULL or (block & 15) >= page.blocks:
            continue
        if not heads:
            kc_point_fetch(page.directory + 4 * (block & 15))
            continue
        start = load32(page.directory + 4 * (block & 15))
        if start < page.size:
            kc_point_fetch(page.data + start)
            kc_point_fetch(page.data + start + 64)


cdef int64_t _find_some(
    const Finder* finder,
    const uint8_t* data,
    const int64_t[::1] offsets,
    const uint64_t[::1] hashes,
    int64_t[::1] out,
    int64_t first,
    Cells* cells,
    Need* need,
    int64_t* status,
    int64_t* at,
) noexcept nogil:
    """Look up probes from ``first`` on; stop at the first that cannot go on, with ``status`` set.

    In groups, step by step, so that their cache misses overlap.
    """
    cdef:
        int64_t n = hashes.shape[0], i, end
        int64_t blocks[GROUP]
    status[0] = 0
    while first < n:
        end = min(first + GROUP, n)
        if finder.bloom != NULL:
            for i in range(first, end):
                kc_point_fetch_bloom(finder.bloom, finder.bloom_blocks, hashes[i])
        for i in range(first, end):
            blocks[i - first] = -1
            if finder.bloom == NULL or kc_point_bloom(finder.bloom, finder.bloom_blocks, hashes[i]):
                blocks[i - first] = (
                    _count_below(&finder.index, data + offsets[i], offsets[i + 1] - offsets[i], True) - 1
                )
                if blocks[i - first] >= 0:
                    _fetch(finder, blocks[i - first], False)
        for i in range(first, end):
            if blocks[i - first] >= 0:
                _fetch(finder, blocks[i - first], True)
        for i in range(first, end):
            out[i] = _find_in_block(
                finder, blocks[i - first], data + offsets[i], offsets[i + 1] - offsets[i], cells, need, at
            )
            if out[i] < ABSENT:
                status[0] = out[i]
                return i
        first = end
    return n


# ---------------------------------------------------------------------------------- cells of a column

cdef int _read_fixed(
    const Page* page, int64_t row, int width, Cells* cells, int64_t* index, uint8_t* out, int64_t* at
) noexcept nogil:
    """Write the cell of a row of the page, ``width`` bytes; 1 where it is null, or a status.

    ``index``: the mini-block that ``cells`` holds, -1 for none; kept for the next cell.
    """
    cdef:
        int64_t i = row & (BLOCK_ROWS - 1)
        int status
        uint64_t high, word
    if row >= page.rows:
        return BAD_VALUE
    if page.bits != NULL:
        if not kc_bit(page.bits, row):
            memset(out, 0, <size_t>width)
            return 1
        i = page_values(page, row - i, i)
    if row >> 10 != index[0]:
        index[0] = -1
        status = block_open(page, row >> 10, &cells.block, at)
        if status == 0:
            status = fixed_layout(&cells.block, width, &cells.layout, at)
        if status < 0:
            return status
        index[0] = row >> 10
        cells.decoded = False
        cells.steps = False
        if cells.block.kind == DELTA and width <= 8:
            status = _find_steps(cells, at)
            if status < 0:
                return status
    if cells.block.kind == DELTA and cells.steps:
        word = _step_value(cells, i)
        memcpy(out, &word, <size_t>width)
    elif cells.block.kind == DELTA:
        if not cells.decoded:
            status = delta_values(&cells.block, &cells.layout, cells.values, at)
            if status < 0:
                return status
            cells.decoded = True
        memcpy(out, cells.values + i * cells.layout.width, <size_t>cells.layout.width)
    else:
        status = fixed_cell(&cells.block, &cells.layout, i, out)
        if status < 0:
            return status
    if cells.layout.width != width:
        high = ~<uint64_t>0 if out[7] & 0x80 else 0
        memcpy(out + 8, &high, 8)
    return 0


cdef inline void _fetch_ahead(const Column* column, const int64_t[::1] rows, int64_t k) noexcept nogil:
    """Ask for what the next rows need: the place of a mini-block first, its head when that has come."""
    cdef:
        const Page* page
        int64_t start, block
    if k + 2 * AHEAD < rows.shape[0]:
        block = rows[k + 2 * AHEAD] >> 10
        page = &column.pages[block >> 4]
        if page.data != NULL and (block & 15) < page.blocks:
            kc_point_fetch(page.directory + 4 * (block & 15))
    if k + AHEAD < rows.shape[0]:
        block = rows[k + AHEAD] >> 10
        page = &column.pages[block >> 4]
        if page.data != NULL and (block & 15) < page.blocks:
            start = load32(page.directory + 4 * (block & 15))
            if start < page.size:
                kc_point_fetch(page.data + start)


cdef int64_t _gather_fixed(
    const Column* column, const int64_t[::1] rows, uint8_t* out, uint8_t* bits, int64_t k, Cells* cells,
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
        if rows[k] >> 14 != number:
            number = rows[k] >> 14
            index = -1
            page = &column.pages[number]
            need.page = number
            if page.data == NULL:
                status[0] = NEED_PAGE
                return k
            column.touched[number] = 1
        found = _read_fixed(page, rows[k] & 16383, width, cells, &index, out + k * width, at)
        if found < 0:
            status[0] = found
            return k
        if found:
            bits[k >> 3] &= <uint8_t>~(1 << (k & 7))
            nulls[0] += 1
    return rows.shape[0]


cdef struct Span:
    const uint8_t* start
    int64_t size


cdef int64_t _gather_strings(
    const Column* column, const int64_t[::1] rows, Span* out, uint8_t* bits, int64_t k,
    Need* need, int64_t* nulls, int64_t* status, int64_t* at,
) noexcept nogil:
    """Write where the cells of rows[k:] lie; as ``_gather_fixed``."""
    cdef:
        int64_t number = -1, index = -1, row, i
        const Page* page = NULL
        Strings part
        int found
    status[0] = 0
    memset(&part, 0, sizeof(part))
    for k in range(k, rows.shape[0]):
        _fetch_ahead(column, rows, k)
        if rows[k] >> 14 != number:
            number = rows[k] >> 14
            index = -1
            page = &column.pages[number]
            need.page = number
            if page.data == NULL:
                status[0] = NEED_PAGE
                return k
            column.touched[number] = 1
        row = rows[k] & 16383
        if row >= page.rows:
            status[0] = BAD_VALUE
            return k
        out[k].size = 0
        i = row & (BLOCK_ROWS - 1)
        if page.bits != NULL:
            if not kc_bit(page.bits, row):
                bits[k >> 3] &= <uint8_t>~(1 << (k & 7))
                nulls[0] += 1
                continue
            i = page_values(page, row - i, i)
        if row >> 10 != index:
            index = row >> 10
            found = strings_open(page, index, &part, at)
            if found == 0 and part.kind != STRING_PLAIN:
                found = ELSEWHERE
            if found < 0:
                status[0] = found
                return k
        found = _plain_cell(&part, i, &out[k].start, &out[k].size, at)
        if found < 0:
            status[0] = found
            return k
    return rows.shape[0]


cdef int64_t _place(
    const Column* column, const uint8_t* codes, const uint8_t* bits, Span* spans, int64_t n, int32_t* offsets
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
            return ELSEWHERE
        offsets[k + 1] = <int32_t>total
    return total


cdef void _copy(const Span* spans, int64_t n, uint8_t* out) noexcept nogil:
    cdef int64_t k
    for k in range(n):
        if spans[k].size:
            memcpy(out, spans[k].start, <size_t>spans[k].size)
            out += spans[k].size


# ----------------------------------------------------------------------------------------- the classes

cdef object _sort(Sorted* out, data, offsets):
    """Set up ascending strings, (n + 1,) offsets into ``data``; return what keeps them alive."""
    cdef:
        const uint8_t[::1] bytes_ = data
        const int64_t[::1] ends
        uint64_t[::1] heads
        int64_t i, last, shorter
        const uint8_t* first
    kept_ends = np.ascontiguousarray(offsets, np.int64)
    ends = kept_ends
    out.count = ends.shape[0] - 1
    if out.count < 0 or ends[0] < 0 or ends[out.count] > bytes_.shape[0] or (np.diff(kept_ends) < 0).any():
        raise ValueError("offsets of strings leave their data or descend")
    kept_heads = np.zeros(out.count + 1, np.uint64)
    heads = kept_heads
    out.ends = &ends[0]
    out.data = first = &bytes_[0] if bytes_.shape[0] else <const uint8_t*>out.ends
    out.heads = &heads[0]
    out.common = 0
    if out.count:
        last = out.count - 1
        shorter = min(ends[1] - ends[0], ends[last + 1] - ends[last])
        while out.common < shorter and first[ends[0] + out.common] == first[ends[last] + out.common]:
            out.common += 1
    for i in range(out.count):
        heads[i] = kc_point_head(first + ends[i] + out.common, ends[i + 1] - ends[i] - out.common)
    return data, kept_ends, kept_heads


@cython.final
@cython.auto_pickle(False)
cdef class PointColumn:
    """One stored column: its dictionary, and the pages that are held.

    ``load(number)`` gives the checked payload of a page, and its place in the cache (None: not kept);
    ``stored_width``: of the values or codes in the pages; ``words``: (offsets int32, data), checked.
    """

    cdef:
        Column c
        object _room
        object _touched
        list _payloads
        object _load
        object _words
        list _texts             # words as Python values, made when first asked for

    def __init__(self, load, Py_ssize_t page_count, int stored_width, words=None):
        cdef:
            uint8_t[::1] room
        if stored_width not in (0, 1, 2, 4, 8, 16) or page_count < 0:
            raise ValueError(f"{page_count} pages of values of {stored_width} bytes")
        self._load = load
        self._room = np.zeros((page_count + 1) * sizeof(Page), np.uint8)
        room = self._room
        self.c.pages = <Page*>&room[0]
        self._touched = np.zeros(page_count + 1, np.uint8)
        room = self._touched
        self.c.touched = &room[0]
        self._payloads = [None] * page_count
        self.c.page_count = page_count
        self.c.width = stored_width
        if words is not None:
            if stored_width not in (1, 2, 4):
                raise ValueError(f"codes of {stored_width} bytes")
            self._words = _sort(&self.c.words, words[1], words[0])
            if self.c.words.count < 1:
                raise ValueError("a dictionary without words")
            self._texts = [None] * self.c.words.count if self.c.words.count <= KEPT_TEXTS else None

    cdef const Page* page(self, PointFile file, int64_t number) except NULL:
        """A page of the column, loaded if it is not held."""
        cdef:
            Page page
            const uint8_t[::1] view
            int64_t at = 0
            int status
        if self.c.pages[number].data != NULL:
            self.c.touched[number] = 1
            return &self.c.pages[number]
        payload, place = self._load(number)
        if place is None:
            raise Elsewhere
        view = payload
        memset(&page, 0, sizeof(page))
        status = page_open(
            &page, &view[0] if view.shape[0] else NULL, view.shape[0],
            CLASS_FIXED if self.c.width else CLASS_BINARY, self.c.width, &at,
        )
        if status < 0:
            raise_status(status, at)
        if self.c.pages[number].data == NULL:       # nobody was faster
            if file.closed:
                raise Elsewhere
            self._payloads[number] = payload
            file._places[place] = (self, number)
            self.c.touched[number] = 1
            self._publish(number, &page)
        return &self.c.pages[number]

    cdef void _publish(self, int64_t number, const Page* page) noexcept:
        # The address last: a look-up without the GIL takes the page when it sees it.
        cdef Page* slot = &self.c.pages[number]
        slot.size = page.size
        slot.rows = page.rows
        slot.blocks = page.blocks
        slot.start = page.start
        slot.directory = page.directory
        slot.bits = page.bits
        slot.data = page.data

    cdef object value(self, PointFile file, int64_t row, int tag, object decode):
        """The Python value of one row's cell."""
        cdef:
            const Page* page = self.page(file, row >> 14)
            Cells cells
            Strings part
            uint8_t cell[16]
            int64_t index = -1, i, at = 0, size = 0
            int status
            uint32_t code = 0
            const uint8_t* start = NULL
        memset(&part, 0, sizeof(part))
        if self.c.width:
            status = _read_fixed(page, row & 16383, self.c.width, &cells, &index, cell, &at)
            if status < 0:
                raise_status(status, at)
            if status:
                return None
            if not self.c.words.count:
                return value_of(tag, cell, self.c.width, decode)
            memcpy(&code, cell, <size_t>self.c.width)
            if code >= self.c.words.count:
                raise_status(BAD_VALUE, 0)
            if self._texts is not None:
                found = self._texts[code]
                if found is not None:
                    return found
            found = value_of(
                tag, self.c.words.data + self.c.words.ends[code],
                self.c.words.ends[code + 1] - self.c.words.ends[code], decode,
            )
            if self._texts is not None:
                self._texts[code] = found
            return found
        row &= 16383
        if row >= page.rows:
            raise_status(BAD_VALUE, 0)
        i = row & (BLOCK_ROWS - 1)
        if page.bits != NULL:
            if not kc_bit(page.bits, row):
                return None
            i = page_values(page, row - i, i)
        status = strings_open(page, row >> 10, &part, &at)
        if status == 0 and part.kind != STRING_PLAIN:
            raise Elsewhere
        if status == 0:
            status = _plain_cell(&part, i, &start, &size, &at)
        if status < 0:
            raise_status(status, at)
        return value_of(tag, start, size, decode)


@cython.final
@cython.auto_pickle(False)
cdef class PointFile:
    """The columns, key index and bloom of one open file, for point reads.

    Parameters
    ----------
    columns : {id: PointColumn}
    keys : [(PointColumn, order, width, bias)]
        The key columns in key order; order 0: a number of that many bytes in the key, whose stored
        value differs by the bit ``bias``; 1: a word of the dictionary; 2: a string (the only column).
        None where another encoding is needed: ``find`` then raises ``Elsewhere``.
    encoded : PointColumn or None
        Stored encoded keys; they are searched instead of the columns.
    index : (data uint8, offsets int64)
        First key of each mini-block.
    bloom : uint8 array, or None for none
    """

    cdef:
        Finder f
        dict _columns
        dict _places            # place in the cache: (column, page)
        list _keys              # PointColumn in the finder's order
        object _index
        object _bloom
        readonly bint closed
        readonly bint can_find
        int _busy
        list _leaving           # pages dropped while a look-up runs without the GIL
        RowShape _shape         # of the last row, and its columns
        list _shape_columns

    def __init__(self, int64_t rows, dict columns not None, keys, PointColumn encoded, index, bloom):
        cdef:
            const uint8_t[::1] data
            PointColumn column
            int k
        self._columns = columns
        self._places = {}
        self._leaving = []
        self._keys = []
        self.f.rows = rows
        self.can_find = False
        if index is not None:
            self._index = _sort(&self.f.index, index[0], index[1])
            if self.f.index.count != (rows + BLOCK_ROWS - 1) // BLOCK_ROWS:
                raise ValueError(f"{self.f.index.count} first keys of {rows} rows")
            if encoded is not None:
                self._keys.append(encoded)
                self.f.columns[0] = &encoded.c
                self.can_find = True
            elif keys is not None and 0 < len(keys) <= MOST_KEY_COLUMNS:
                for k, (column, order, width, bias) in enumerate(keys):
                    column.c.order = order
                    column.c.key_width = width
                    column.c.flip = bias
                    self._keys.append(column)
                    self.f.columns[k] = &column.c
                self.f.keys = len(keys)
                self.can_find = True
        if bloom is not None:
            self._bloom = bloom
            data = bloom
            if data.shape[0] == 0 or data.shape[0] % 32:
                raise ValueError(f"a bloom of {data.shape[0]} bytes")
            self.f.bloom = &data[0]
            self.f.bloom_blocks = <uint64_t>(data.shape[0] // 32)

    @property
    def pages(self):
        """How many pages are held."""
        return len(self._places)

    def may_contain(self, uint64_t hash):
        """Whether the bloom lets the key of that hash pass."""
        return self.f.bloom == NULL or kc_point_bloom(self.f.bloom, self.f.bloom_blocks, hash)

    def find(self, bytes key not None, uint64_t hash):
        """The row of an encoded key, -1 where the file does not have it.

        Raises ``Elsewhere`` or ``PageError``: ask the general path.
        """
        cdef:
            Cells cells
            Need need
            int64_t at = 0, found, block
            const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(key)
        if self.closed or not self.can_find:
            raise Elsewhere
        if self.f.bloom != NULL and not kc_point_bloom(self.f.bloom, self.f.bloom_blocks, hash):
            return ABSENT
        need.column = 0
        need.page = 0
        block = _count_below(&self.f.index, data, PyBytes_GET_SIZE(key), True) - 1
        while True:
            found = _find_in_block(&self.f, block, data, PyBytes_GET_SIZE(key), &cells, &need, &at)
            if found >= ABSENT:
                return found
            self._resolve(found, &need, at)

    cdef int _resolve(self, int64_t status, const Need* need, int64_t at) except -1:
        """Load the page that a look-up lacks, or raise what stopped it."""
        if status == NEED_PAGE:
            (<PointColumn>self._keys[need.column]).page(self, need.page)
            return 0
        if status == ELSEWHERE:
            raise Elsewhere
        return raise_status(status, at)

    def find_many(
        self,
        const uint8_t[::1] data not None,
        const int64_t[::1] offsets not None,
        const uint64_t[::1] hashes not None,
    ):
        """The row of each encoded key, (n,) int64, -1 where the file does not have it.

        Raises as ``find``, and ValueError for offsets that leave the data.
        """
        cdef:
            Cells cells
            Need need
            int64_t at = 0, status = 0, i = 0, n = hashes.shape[0]
            const uint8_t* first = <const uint8_t*>&at
            int64_t[::1] out
        if offsets.shape[0] != n + 1:
            raise ValueError(f"{offsets.shape[0]} offsets of {n} keys")
        for i in range(n):
            if offsets[i] < 0 or offsets[i + 1] < offsets[i]:
                raise ValueError("offsets of keys descend")
        if offsets[n] > data.shape[0]:
            raise ValueError("offsets of keys leave the data")
        if self.closed or not self.can_find:
            raise Elsewhere
        result = np.empty(n, np.int64)
        if n == 0:
            return result
        out = result
        if data.shape[0]:
            first = &data[0]
        need.column = 0
        need.page = 0
        self._busy += 1
        try:
            i = 0
            while i < n:
                with nogil:
                    i = _find_some(&self.f, first, offsets, hashes, out, i, &cells, &need, &status, &at)
                if status:
                    self._resolve(status, &need, at)
        finally:
            self._idle()
        return result

    def row(self, int64_t row, RowShape shape not None):
        """The row as a dict of the shape's columns; those that are not stored take their default.

        Raises ``Elsewhere``, ``PageError``, IndexError for a row that the file has not.
        """
        cdef:
            dict out = {}
            Py_ssize_t i
            list columns
        if row < 0 or row >= self.f.rows:
            raise IndexError(f"no row {row} of {self.f.rows}")
        if self.closed:
            raise Elsewhere
        columns = self._columns_of(shape)
        for i in range(shape.count):
            column = columns[i]
            if column is None:
                PyDict_SetItem(out, shape.names[i], shape.defaults[i])
            else:
                PyDict_SetItem(
                    out, shape.names[i],
                    (<PointColumn>column).value(self, row, shape.tags[i], shape.decoders[i]),
                )
        return out

    cdef list _columns_of(self, RowShape shape):
        # One pair at a time under the GIL: a race costs a look-up more, no more.
        if self._shape is not shape:
            columns = [self._columns.get(i) for i in shape.ids]
            self._shape = None
            self._shape_columns = columns
            self._shape = shape
            return columns
        return self._shape_columns

    def cells(self, column_id, const int64_t[::1] rows not None):
        """A column's cells of single rows: ``(values, offsets, validity)`` as a column has them.

        ``offsets`` (n + 1,) int32, None for fixed width; ``validity`` None where no cell is null.  None
        where the column is not stored.  Raises as ``row``.
        """
        cdef:
            PointColumn column
            Cells cells
            Need need
            int64_t at = 0, status = 0, k = 0, n = rows.shape[0], nulls = 0, total
            uint8_t[::1] values, bits, span_room
            int32_t[::1] ends
            uint8_t* to
            uint8_t* codes = NULL
            Span* spans = NULL
        for k in range(n):
            if rows[k] < 0 or rows[k] >= self.f.rows:
                raise IndexError(f"no row {rows[k]} of {self.f.rows}")
        if self.closed:
            raise Elsewhere
        found = self._columns.get(column_id)
        if found is None:
            return None
        column = found
        result = np.empty(n * column.c.width + 16, np.uint8)
        validity = np.full(((n + 7) >> 3) + 1, 255, np.uint8)
        values = result
        bits = validity
        to = &values[0]
        need.column = 0
        need.page = 0
        if column.c.words.count or not column.c.width:
            span_room = np.empty((n + 1) * sizeof(Span), np.uint8)
            spans = <Span*>&span_room[0]
        self._busy += 1
        try:
            k = 0
            while True:
                with nogil:
                    if column.c.width:
                        k = _gather_fixed(
                            &column.c, rows, to, &bits[0], k, &cells, &need, &nulls, &status, &at
                        )
                    else:
                        k = _gather_strings(&column.c, rows, spans, &bits[0], k, &need, &nulls, &status, &at)
                if status == NEED_PAGE:
                    column.page(self, need.page)
                elif status == ELSEWHERE:
                    raise Elsewhere
                elif status:
                    raise_status(status, at)
                else:
                    break
            validity = validity[:(n + 7) >> 3] if nulls else None
            if spans == NULL:
                return result[:n * column.c.width], None, validity
            if column.c.width:
                codes = to
            offsets = np.empty(n + 1, np.int32)
            ends = offsets
            total = _place(&column.c, codes, &bits[0], spans, n, &ends[0])
            if total == ELSEWHERE:
                raise Elsewhere
            if total < 0:
                raise_status(total, 0)
            result = np.empty(total + 1, np.uint8)
            values = result
            to = &values[0]
            with nogil:
                _copy(spans, n, to)
            return result[:total], offsets, validity
        finally:
            self._idle()

    cdef int _idle(self) except -1:
        self._busy -= 1
        if self._busy == 0 and self._leaving:
            leaving, self._leaving = self._leaving, []
            for column, number in leaving:
                self._drop(column, number)
        return 0

    # ---- what the cache and the file tell ----

    def forget(self, place):
        """The cache is about to drop a page: False where it was used since it was last asked."""
        cdef:
            PointColumn column
            Py_ssize_t number
        held = self._places.get(place)
        if held is None:
            return True
        column, number = held
        if column.c.touched[number]:
            column.c.touched[number] = 0
            return False
        del self._places[place]
        self._drop(column, number)
        return True

    cdef int _drop(self, PointColumn column, Py_ssize_t number) except -1:
        # A look-up without the GIL may be reading the page: it stays until the last of them ends.
        if self._busy:
            self._leaving.append((column, number))
            return 0
        column.c.pages[number].data = NULL
        column._payloads[number] = None
        return 0

    def close(self):
        """Let go of every page; look-ups raise ``Elsewhere`` from now on."""
        self.closed = True
        places, self._places = self._places, {}
        for column, number in places.values():
            self._drop(column, number)
