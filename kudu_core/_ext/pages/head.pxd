# The head of a page's payload and of its mini-blocks: docs/format.md, "Page payload".
# Everything read from a payload is hostile: what is not checked here is checked where it is used.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.base.bitmap cimport kc_bits_count
from kudu_core._ext.base.loads cimport load16, load32, load64
from kudu_core._ext.base.status cimport BAD_VALUE, OVERRUN, TRUNCATED

cdef enum:
    PAGE_BITS = 14
    MOST_PAGE_ROWS = 1 << PAGE_BITS     # each column has a power of two of its own: ``page_bits``
    BLOCK_BITS = 10
    BLOCK_ROWS = 1 << BLOCK_BITS    # of a page that has more
    HEAD_BYTES = 8          # of a page and of nothing else
    BLOCK_HEAD_BYTES = 16
    CLASS_FIXED = 0
    CLASS_BINARY = 1
    HAS_NULLS = 1           # page flag
    NARROW = 1              # mini-block flag: 16-byte values stored as 8 bytes, sign-extended
    NO_SCALE = 255

cdef enum Kind:
    PLAIN = 0
    CONSTANT = 1
    FOR = 2
    DELTA = 3
    RLE = 4
    BITSHUFFLE = 5
    STRING_PLAIN = 6
    STRING_PREFIX = 7

cdef struct Page:
    const uint8_t* data
    int64_t size
    int64_t rows
    int64_t blocks
    int64_t start               # first byte after the directory
    const uint8_t* directory
    const uint8_t* bits         # NULL where no cell is null

cdef struct Block:
    int kind
    int bits
    int scale
    int flags
    int64_t count               # values held: the cells that are not null
    int64_t exceptions
    uint64_t base
    const uint8_t* body         # after the head
    int64_t size                # of the body
    int64_t offset              # of the head, in the payload


cdef inline int64_t padded(int64_t size) noexcept nogil:
    return (size + 7) & ~<int64_t>7


cdef inline int64_t page_head_bytes(int64_t rows, bint nulls) noexcept nogil:
    """Where the first mini-block of a page begins."""
    cdef int64_t blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS
    return padded(HEAD_BYTES + (padded((rows + 7) >> 3) if nulls else 0) + 4 * (blocks + 1))


cdef inline int page_open(
    Page* page, const uint8_t* data, int64_t size, int klass, int width, int64_t* at
) noexcept nogil:
    """Check the head of a payload; return 0 or a status with ``at`` set.  Class -1 allows any."""
    cdef int64_t directory
    at[0] = 0
    if size < HEAD_BYTES:
        return TRUNCATED
    page.data = data
    page.size = size
    page.rows = load32(data)
    page.blocks = data[7]
    if page.rows > MOST_PAGE_ROWS or page.blocks != (page.rows + BLOCK_ROWS - 1) / BLOCK_ROWS:
        return BAD_VALUE
    at[0] = 4
    if klass >= 0 and (data[4] != klass or data[5] != width):
        return BAD_VALUE
    at[0] = 6
    if data[6] & ~HAS_NULLS:
        return BAD_VALUE
    page.start = page_head_bytes(page.rows, data[6] & HAS_NULLS)
    if page.start > size:
        at[0] = size
        return TRUNCATED
    page.bits = NULL
    directory = HEAD_BYTES
    if data[6] & HAS_NULLS:
        page.bits = data + HEAD_BYTES
        directory += padded((page.rows + 7) >> 3)
    page.directory = data + directory
    # The last entry is the length of the payload, so nothing can be cut off unnoticed.
    at[0] = directory + 4 * page.blocks
    if load32(data + at[0]) != size:
        return BAD_VALUE
    return 0


cdef inline int64_t page_values(const Page* page, int64_t row, int64_t n) noexcept nogil:
    """How many of the cells of rows row .. row + n - 1 are not null."""
    return n if page.bits == NULL else kc_bits_count(page.bits, row, n)


cdef inline int64_t block_rows(const Page* page, int64_t index) noexcept nogil:
    cdef int64_t left = page.rows - index * BLOCK_ROWS
    return BLOCK_ROWS if left > BLOCK_ROWS else left


cdef inline int block_open(const Page* page, int64_t index, Block* block, int64_t* at) noexcept nogil:
    """Check the extent and the head of mini-block ``index``, which the page has."""
    cdef:
        int64_t lower = load32(page.directory + 4 * index)
        int64_t upper = load32(page.directory + 4 * index + 4)
        const uint8_t* head
    at[0] = page.directory - page.data + 4 * index
    if lower & 7 or lower < page.start or upper > page.size or upper < lower:
        return BAD_VALUE
    at[0] = lower
    if upper - lower < BLOCK_HEAD_BYTES:
        return TRUNCATED
    head = page.data + lower
    block.offset = lower
    block.kind = head[0]
    block.bits = head[1]
    block.scale = head[2]
    block.flags = head[3]
    block.count = load16(head + 4)
    block.exceptions = load16(head + 6)
    block.base = load64(head + 8)
    block.body = head + BLOCK_HEAD_BYTES
    block.size = upper - lower - BLOCK_HEAD_BYTES
    at[0] = lower + 4
    if block.count != page_values(page, index * BLOCK_ROWS, block_rows(page, index)):
        return BAD_VALUE
    at[0] = lower + 6
    if block.exceptions > block.count:
        return OVERRUN
    at[0] = lower
    return 0


cdef inline void write_page_head(
    uint8_t* out, int64_t rows, int klass, int width, const uint8_t* bits
) noexcept nogil:
    """Write everything before the directory; bits past the last row become 0."""
    cdef:
        uint32_t count = <uint32_t>rows
        int64_t size = (rows + 7) >> 3, i
    memcpy(out, &count, 4)
    out[4] = <uint8_t>klass
    out[5] = <uint8_t>width
    out[6] = HAS_NULLS if bits != NULL else 0
    out[7] = <uint8_t>((rows + BLOCK_ROWS - 1) / BLOCK_ROWS)
    if bits == NULL:
        return
    memcpy(out + HEAD_BYTES, bits, <size_t>size)
    if rows & 7:
        out[HEAD_BYTES + size - 1] &= <uint8_t>((1 << (rows & 7)) - 1)
    for i in range(size, padded(size)):
        out[HEAD_BYTES + i] = 0


cdef inline uint8_t* directory_of(uint8_t* out, int64_t rows, bint nulls) noexcept nogil:
    return out + HEAD_BYTES + (padded((rows + 7) >> 3) if nulls else 0)


cdef inline void write_block_head(
    uint8_t* out, int kind, int bits, int scale, int flags, int64_t count, int64_t exceptions, uint64_t base
) noexcept nogil:
    cdef:
        uint16_t held = <uint16_t>count
        uint16_t listed = <uint16_t>exceptions
    out[0] = <uint8_t>kind
    out[1] = <uint8_t>bits
    out[2] = <uint8_t>scale
    out[3] = <uint8_t>flags
    memcpy(out + 4, &held, 2)
    memcpy(out + 6, &listed, 2)
    memcpy(out + 8, &base, 8)
