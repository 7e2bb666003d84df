# A key found in a file: by its bloom, by the first keys of the mini-blocks, by cells in one mini-block.
#
# What is read is hostile: functions return a status where the bytes break their format, with ``at`` set to
# the place in the payload.  They stop at a page that is not held.
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kudu_core._ext.base.loads cimport kc_fetch
from kudu_core._ext.pages.head cimport BLOCK_BITS, BLOCK_ROWS, Page, load32
from kudu_core._ext.row.cells cimport (
    Need,
    Opened,
    PagedCells,
    block_in_page,
    kc_is_known,
    open_known,
)
from kudu_core._ext.search.cells cimport Cells, cell_number, cells_bound, order_cells
from kudu_core._ext.search.outcomes cimport ABSENT, NEED_PAGE, NEEDS_GENERAL_PATH
from kudu_core._ext.search.sorted_strings cimport SortedStrings, count_below, word_code
from kudu_core._ext.search.strings cimport find_string
from kudu_core._ext.base.status cimport BAD_VALUE

cdef extern from *:
    """
    #include <string.h>
    static const unsigned kc_salt[8] = {
        0x47b6137bU, 0x44974d91U, 0x8824ad5bU, 0xa2b7289dU,
        0x705495c7U, 0x2df1424bU, 0x9efc4947U, 0x5c6bfb31U,
    };
    /* docs/format.md, "Rows files"; ``bloom`` has the fast form for batches. */
    static inline int kc_in_bloom(const unsigned char *filter, uint64_t blocks, uint64_t hash) {
        const unsigned char *block = filter + 32 * (((hash >> 32) * blocks) >> 32);
        unsigned found = 1;
        /* Nine of ten keys that are not there fail in the first half. */
        for (int i = 0; i < 8 && found & 1; i += 4)
            for (int k = i; k < i + 4; k++) {
                unsigned word;
                memcpy(&word, block + 4 * k, 4);
                found &= word >> (((unsigned)hash * kc_salt[k]) >> 27);
            }
        return (int)(found & 1);
    }
    static inline uint64_t kc_big_endian(const unsigned char *p, int width) {
        uint64_t word = 0;
        for (int i = 0; i < width; i++) word = word << 8 | p[i];
        return word;
    }
    """
    bint kc_in_bloom(const uint8_t* filter, uint64_t blocks, uint64_t hash) noexcept nogil
    uint64_t kc_big_endian(const uint8_t* p, int width) noexcept nogil

cdef enum:
    NUMBER = 0                  # how the cells of a key column compare
    WORDS = 1                   # by the codes of a sorted dictionary
    STRING = 2

    MOST_KEY_COLUMNS = 32
    GROUP = 16                  # probes whose bloom blocks are fetched together


cdef struct Finder:
    int64_t rows
    SortedStrings index                 # first keys of the mini-blocks
    const uint8_t* bloom
    uint64_t bloom_blocks
    int keys                            # columns; 0: a column of encoded keys, columns[0]
    PagedCells* columns[MOST_KEY_COLUMNS]


cdef inline void fetch_bloom_block(const uint8_t* filter, uint64_t blocks, uint64_t hash) noexcept nogil:
    kc_fetch(filter + 32 * (((hash >> 32) * blocks) >> 32))


cdef inline const Page* _page(const Finder* finder, int k, int64_t block, Need* need) noexcept nogil:
    """The page of column k that has the mini-block; NULL, and ``need`` set, where it is not held."""
    cdef:
        PagedCells* column = finder.columns[k]
        int64_t number = block >> (column.page_bits - BLOCK_BITS)
    if column.pages[number].data == NULL:
        need.column = k
        need.page = number
        return NULL
    column.touched[number] = 1
    return &column.pages[number]


cdef inline int64_t cell_want(
    const PagedCells* column, const uint8_t* key, int64_t size, bint last, int64_t* pos, uint64_t* want
) noexcept nogil:
    """Cut one column's cell off an encoded key: the number to look for.  0, ABSENT or NEEDS_GENERAL_PATH."""
    cdef int64_t begin = pos[0], end, code
    if column.order == NUMBER:
        if size - begin < column.key_width:
            return ABSENT
        want[0] = kc_big_endian(key + begin, column.key_width)
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
            return NEEDS_GENERAL_PATH  # a byte 00 inside the string
    code = word_code(&column.words, key + begin, end - begin)
    if code < 0:
        return ABSENT
    want[0] = <uint64_t>code
    pos[0] = end if last else end + 2
    return 0


cdef inline int64_t find_in_block(
    const Finder* finder,
    int64_t block,
    const uint8_t* key,
    int64_t size,
    Cells* cells,
    Need* need,
    int64_t* at,
) noexcept nogil:
    """The row of a key, ABSENT, NEED_PAGE, NEEDS_GENERAL_PATH or a status of the page in ``need``."""
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
        status = find_string(page, block_in_page(finder.columns[0], block), key, size, at)
        return status if status < 0 else block * BLOCK_ROWS + status
    upper = finder.rows - block * BLOCK_ROWS
    if upper > BLOCK_ROWS:
        upper = BLOCK_ROWS
    for k in range(finder.keys):
        last = k == finder.keys - 1
        status = cell_want(finder.columns[k], key, size, last, &pos, &want)
        if status < 0:
            return status
        page = _page(finder, k, block, need)
        if page == NULL:
            return NEED_PAGE
        status = open_known(finder.columns[k], page, block, cells, at)
        if status == 0:
            status = order_cells(page, finder.columns[k].width, finder.columns[k].flip, cells, at)
        if status == 0 and cells.block.count < upper:
            status = BAD_VALUE
        if status < 0:
            return status
        lower = cells_bound(cells, lower, upper, want, False)
        if lower < 0:
            return lower
        if lower == upper:
            return ABSENT
        if last:
            status = cell_number(cells, lower, &word)
            if status < 0:
                return status
            if word != want:
                return ABSENT
        else:
            upper = cells_bound(cells, lower, upper, want, True)
            if upper < 0:
                return upper
            if lower == upper:
                return ABSENT
    return block * BLOCK_ROWS + lower if pos == size else ABSENT


cdef inline void fetch_block(const Finder* finder, int64_t block, bint places) noexcept nogil:
    """Ask for the memory that a search of the mini-block will read: what is known of it, then its cells."""
    cdef:
        int k, count = finder.keys if finder.keys else 1
        const PagedCells* column
        const Page* page
        const Opened* opened
        int64_t start, index
    for k in range(count):
        column = finder.columns[k]
        index = block_in_page(column, block)
        page = &column.pages[block >> (column.page_bits - BLOCK_BITS)]
        if page.data == NULL or index >= page.blocks:
            continue
        if column.width == 0:
            if places:
                kc_fetch(page.directory + 4 * index)
                continue
            start = load32(page.directory + 4 * index)
            if start < page.size:
                kc_fetch(page.data + start)
                kc_fetch(page.data + start + 64)
            continue
        opened = &column.opened[block]
        if places:
            kc_fetch(opened)
            kc_fetch(<const uint8_t*>opened + 64)
            kc_fetch(page.directory + 4 * index)
        elif kc_is_known(&opened.known):
            kc_fetch(opened.layout.packed)
            kc_fetch(opened.layout.packed + 64)


cdef inline int64_t find_some(
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
                fetch_bloom_block(finder.bloom, finder.bloom_blocks, hashes[i])
        for i in range(first, end):
            blocks[i - first] = -1
            if finder.bloom == NULL or kc_in_bloom(finder.bloom, finder.bloom_blocks, hashes[i]):
                blocks[i - first] = (
                    count_below(&finder.index, data + offsets[i], offsets[i + 1] - offsets[i], True) - 1
                )
                if blocks[i - first] >= 0:
                    fetch_block(finder, blocks[i - first], True)
        for i in range(first, end):
            if blocks[i - first] >= 0:
                fetch_block(finder, blocks[i - first], False)
        for i in range(first, end):
            out[i] = find_in_block(
                finder, blocks[i - first], data + offsets[i], offsets[i + 1] - offsets[i], cells, need, at
            )
            if out[i] < ABSENT:
                status[0] = out[i]
                return i
        first = end
    return n
