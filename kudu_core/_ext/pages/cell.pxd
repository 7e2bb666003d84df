# Single cells of mini-blocks, read where they lie: docs/format.md, "Page payload".
#
# The one source of how a mini-block is laid out, for every kernel that reads one: ``blocks``, ``strings``,
# point reads, scans.  ``rows.pxd`` decodes ranges on top of it.  What is read is hostile: every
# function checks what it is the first to use, and returns a status with ``at`` set to the place in the
# payload.
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.base.bitmap cimport kc_bit
from kudu_core._ext.base.bitpack cimport kc_packed_bytes, kc_packed_cell
from kudu_core._ext.base.loads cimport copy_cell, copy_word, load16, load32, load64
from kudu_core._ext.pages.head cimport (
    BITSHUFFLE,
    BLOCK_HEAD_BYTES,
    CONSTANT,
    DELTA,
    FOR,
    NARROW,
    NO_SCALE,
    PLAIN,
    RLE,
    STRING_PLAIN,
    STRING_PREFIX,
    Block,
    Page,
    block_open,
    padded,
)
from kudu_core._ext.base.decimals cimport kc_to_floats
from kudu_core._ext.base.status cimport BAD_VALUE, TRUNCATED

cdef enum:
    RESTART = 16                # entries of a STRING_PREFIX group
    END_WIDTH = 4               # bytes of an unpacked end
    LARGEST_NUMBER = 0x7FFFFFFF


# ------------------------------------------------------------------------------------- fixed width

cdef struct Layout:
    int width                   # of the values as stored: 8 where they are narrow
    const uint8_t* packed       # packed integers, planes, plain values; of runs their ends
    const uint8_t* positions    # of exceptions
    const uint8_t* raws         # their values; of runs their values
    uint64_t least              # DELTA: added to every packed delta


cdef inline int fixed_layout(const Block* block, int width, Layout* layout, int64_t* at) noexcept nogil:
    """Check the head of a block against its size; find its parts.  Return 0 or a status."""
    cdef:
        int64_t needed, count = block.count
        int stored = width
    at[0] = block.offset + 3
    if block.flags & ~NARROW or (block.flags and width != 16):
        return BAD_VALUE
    if block.flags & NARROW:
        stored = 8
    layout.width = stored
    layout.packed = block.body
    at[0] = block.offset
    if stored == 16 and block.kind != PLAIN and block.kind != RLE:
        return BAD_VALUE
    at[0] = block.offset + 2
    if block.scale != NO_SCALE:
        if block.kind != CONSTANT and block.kind != FOR or block.flags:
            return BAD_VALUE
        if not (width == 8 and block.scale <= 9 or width == 4 and block.scale <= 5):
            return BAD_VALUE
    at[0] = block.offset + 1
    if block.kind == FOR or block.kind == DELTA:
        if block.bits > 8 * stored or (block.bits == 0 and block.kind == FOR):
            return BAD_VALUE
        needed = kc_packed_bytes(count, block.bits)
        if block.kind == DELTA:
            at[0] = block.offset + BLOCK_HEAD_BYTES
            if block.size < 8:
                return TRUNCATED
            layout.least = load64(block.body)
            layout.packed += 8
            needed += 8
    elif block.bits:
        return BAD_VALUE
    elif block.kind == CONSTANT:
        needed = 0
    elif block.exceptions:
        at[0] = block.offset + 6
        return BAD_VALUE
    elif block.kind == PLAIN:
        needed = count * stored
    elif block.kind == RLE:
        at[0] = block.offset + 8
        if block.base > <uint64_t>count or (block.base == 0) != (count == 0):
            return BAD_VALUE
        layout.raws = block.body + padded(2 * <int64_t>block.base)
        needed = padded(2 * <int64_t>block.base) + <int64_t>block.base * stored
    elif block.kind == BITSHUFFLE and (width == 4 or width == 8):
        needed = 8 * width * ((count + 7) >> 3)
    else:
        at[0] = block.offset
        return BAD_VALUE
    if block.exceptions:
        layout.positions = block.body + needed
        layout.raws = layout.positions + padded(2 * block.exceptions)
        needed += padded(2 * block.exceptions) + block.exceptions * stored
    at[0] = block.offset + BLOCK_HEAD_BYTES
    return TRUNCATED if needed > block.size else 0


cdef inline int _exception_of(
    const Block* block, const Layout* layout, int64_t i, uint8_t* out
) noexcept nogil:
    """Write cell i and return 1 where it is an exception."""
    cdef int64_t lower = 0, upper = block.exceptions, middle
    while lower < upper:
        middle = (lower + upper) >> 1
        if load16(layout.positions + 2 * middle) < i:
            lower = middle + 1
        else:
            upper = middle
    if lower == block.exceptions or load16(layout.positions + 2 * lower) != i:
        return 0
    memcpy(out, layout.raws + lower * layout.width, <size_t>layout.width)
    return 1


cdef inline int _cell_of_runs(
    const Block* block, const Layout* layout, int64_t i, uint8_t* out
) noexcept nogil:
    cdef int64_t lower = 0, upper = <int64_t>block.base, middle
    while lower < upper:
        middle = (lower + upper) >> 1
        if load16(layout.packed + 2 * middle) <= i:
            lower = middle + 1
        else:
            upper = middle
    if lower == <int64_t>block.base:
        return BAD_VALUE
    memcpy(out, layout.raws + lower * layout.width, <size_t>layout.width)
    return 0


cdef inline void _cell_of_planes(
    const Block* block, const Layout* layout, int64_t i, uint8_t* out
) noexcept nogil:
    cdef:
        int64_t stride = (block.count + 7) >> 3
        uint64_t word = 0
        int bit
    for bit in range(8 * layout.width):
        word |= <uint64_t>kc_bit(layout.packed + bit * stride, i) << bit
    memcpy(out, &word, <size_t>layout.width)


cdef inline int fixed_cell(const Block* block, const Layout* layout, int64_t i, uint8_t* out) noexcept nogil:
    """Write value i < count of a block that is not DELTA, ``layout.width`` bytes."""
    cdef:
        int width = layout.width
        uint64_t word = block.base
    if block.kind == PLAIN:
        copy_cell(out, layout.packed + i * width, width)
        return 0
    if block.kind == RLE:
        return _cell_of_runs(block, layout, i, out)
    if block.kind == BITSHUFFLE:
        _cell_of_planes(block, layout, i, out)
        return 0
    if block.exceptions and _exception_of(block, layout, i, out):
        return 0
    if block.kind == FOR:
        word += kc_packed_cell(layout.packed, block.count, width, block.bits, i)
    copy_word(out, word, width)
    if block.scale != NO_SCALE:
        kc_to_floats(out, 1, width, block.scale, 0)
    return 0


# ------------------------------------------------------------------------------------------ strings

cdef struct Strings:
    int kind
    int bits
    int64_t count
    const uint8_t* ends         # packed ends, or offsets of the restarts
    const uint8_t* data         # the cells' bytes, or the entries
    int64_t size                # of data
    int64_t length              # of each cell, where bits is 0
    int64_t offset              # of data, in the payload


cdef inline int strings_open(const Page* page, int64_t index, Strings* part, int64_t* at) noexcept nogil:
    cdef:
        Block block
        int64_t listed
        int status = block_open(page, index, &block, at)
    if status < 0:
        return status
    if block.exceptions or block.flags or block.scale != NO_SCALE:
        return BAD_VALUE
    part.kind = block.kind
    part.bits = block.bits
    part.count = block.count
    part.ends = block.body
    part.length = 0
    if block.kind == STRING_PLAIN:
        if block.bits > 32:
            return BAD_VALUE
        listed = kc_packed_bytes(block.count, block.bits)
    elif block.kind == STRING_PREFIX and block.bits == 0:
        listed = padded(4 * ((block.count + RESTART - 1) / RESTART))
    else:
        return BAD_VALUE
    at[0] = block.offset + 8
    if listed > block.size or block.base > <uint64_t>(block.size - listed):
        return TRUNCATED
    part.data = block.body + listed
    part.size = <int64_t>block.base
    part.offset = part.data - page.data
    if block.count == 0:
        return BAD_VALUE if part.size else 0
    if block.kind == STRING_PLAIN and block.bits == 0:
        part.length = part.size / block.count
        if part.length * block.count != part.size:
            return BAD_VALUE
    return 0


cdef inline int _number(const Strings* part, int64_t* pos, int64_t* value) noexcept nogil:
    """A ULEB128 number of at most 31 bits."""
    cdef:
        int shift = 0
        uint64_t word = 0
        uint8_t byte
    while True:
        if pos[0] >= part.size:
            return TRUNCATED
        byte = part.data[pos[0]]
        pos[0] += 1
        word |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            return BAD_VALUE
    if word > <uint64_t><int64_t>LARGEST_NUMBER:
        return BAD_VALUE
    value[0] = <int64_t>word
    return 0


cdef inline int strings_entry(
    const Strings* part, int64_t i, int64_t* pos, int64_t* length, int64_t* shared, int64_t* at
) noexcept nogil:
    """Read the head of entry i, which ``length`` of the one before precedes; leave ``pos`` behind it.

    ``length`` becomes the entry's own; its last ``length - shared`` bytes lie at ``pos``, which the
    caller has to pass.
    """
    cdef:
        int64_t suffix = 0
        int status
    at[0] = part.offset + pos[0]
    status = _number(part, pos, shared)
    if status == 0:
        status = _number(part, pos, &suffix)
    if status < 0:
        return status
    if shared[0] > length[0] or (shared[0] and i % RESTART == 0):
        return BAD_VALUE
    if suffix > part.size - pos[0]:
        return TRUNCATED
    length[0] = shared[0] + suffix
    return 0


cdef inline int strings_group(const Strings* part, int64_t i, int64_t* pos, int64_t* at) noexcept nogil:
    """Where the group of 16 begins that holds entry i."""
    pos[0] = load32(part.ends + 4 * (i / RESTART))
    at[0] = part.ends - part.data + part.offset + 4 * (i / RESTART)
    return BAD_VALUE if pos[0] > part.size else 0


cdef inline int plain_cell(
    const Strings* part, int64_t i, const uint8_t** start, int64_t* size, int64_t* at
) noexcept nogil:
    """Where cell i < count of a STRING_PLAIN block lies."""
    cdef int64_t begin = 0, end
    if part.bits:
        end = <int64_t>kc_packed_cell(part.ends, part.count, END_WIDTH, part.bits, i)
        if i:
            begin = <int64_t>kc_packed_cell(part.ends, part.count, END_WIDTH, part.bits, i - 1)
        at[0] = part.offset
        if begin > end or end > part.size:
            return BAD_VALUE
    else:
        begin = i * part.length
        end = begin + part.length
    start[0] = part.data + begin
    size[0] = end - begin
    return 0
