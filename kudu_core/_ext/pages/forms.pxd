# The forms of a mini-block of fixed width: how each is measured and written.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.bitpack cimport kc_pack, kc_packed_bytes
from kudu_core._ext.base.integers cimport kc_deltas
from kudu_core._ext.base.loads cimport load64
from kudu_core._ext.base.planes cimport kc_shuffle, kc_shuffled_estimate
from kudu_core._ext.pages.head cimport (
    BLOCK_HEAD_BYTES,
    CONSTANT,
    DELTA,
    FOR,
    NO_SCALE,
    PLAIN,
    padded,
    write_block_head,
)
from kudu_core._ext.pages.windows cimport kc_outliers, kc_window, kc_window_bytes
from kudu_core._ext.pages.rows cimport load_cell

cdef enum:
    BLOCK_BYTES = 16384         # the widest block: 1,024 values of 16 bytes


cdef struct Work:
    # What the encoder of one page needs beside its output.
    int64_t integers[1024]
    int64_t deltas[1024]
    int64_t raws[1024]              # bits of floats
    uint8_t bad[1024]               # not a decimal
    uint16_t outside[1024]          # positions of exceptions: of the frame,
    uint16_t jumps[1024]            # of the deltas
    uint8_t values[BLOCK_BYTES]     # cells that are not null
    uint8_t planes[8 * 256]         # of a sample
    int scale                       # of the blocks so far, or SCALE_*


cdef struct Choice:
    int kind
    int bits
    int64_t exceptions
    int64_t base
    int64_t bytes                   # of the body


cdef inline int64_t _write_exceptions(
    uint8_t* out, const uint16_t* positions, int64_t count, const int64_t* raws, uint64_t flip, int width
) noexcept nogil:
    cdef:
        int64_t i, start = padded(2 * count), end = start + padded(count * width)
        uint64_t word
    if count == 0:
        return 0
    memset(out + start - 8, 0, 8)
    memset(out + end - 8, 0, 8)
    memcpy(out, positions, <size_t>(2 * count))
    for i in range(count):
        word = <uint64_t>raws[positions[i]] ^ flip
        memcpy(out + start + i * width, &word, <size_t>width)
    return end


cdef inline int64_t write_plain(uint8_t* out, const uint8_t* values, int64_t n, int width) noexcept nogil:
    """Return the size of the block."""
    cdef int64_t size = padded(n * width)
    write_block_head(out, PLAIN, 0, NO_SCALE, 0, n, 0, 0)
    out += BLOCK_HEAD_BYTES
    if size:
        memset(out + size - 8, 0, 8)
        memcpy(out, values, <size_t>(n * width))
    return BLOCK_HEAD_BYTES + size


cdef inline bint same_value(const uint8_t* a, const uint8_t* b, int width) noexcept nogil:
    if width == 16:
        return load64(a) == load64(b) and load64(a + 8) == load64(b + 8)
    return load_cell(a, width) == load_cell(b, width)


cdef inline void choose_frame(
    Choice* choice, uint16_t* positions, const int64_t* values, const uint8_t* bad, int64_t n, int width
) noexcept nogil:
    """The smallest frame of reference (of 0 bits: a constant), and its exceptions."""
    cdef int whole = 0
    choice.bits = kc_window(values, n, n, width, &choice.base, &whole)
    choice.exceptions = 0
    if bad != NULL or not whole:
        choice.exceptions = kc_outliers(positions, values, bad, n, choice.base, choice.bits)
    choice.kind = FOR if choice.bits else CONSTANT
    choice.bytes = kc_window_bytes(n, choice.bits, choice.exceptions, width)


cdef inline int64_t write_frame(
    uint8_t* out,
    const Choice* choice,
    const uint16_t* positions,
    const int64_t* integers,
    const int64_t* raws,
    int64_t n,
    int width,
    uint64_t flip,
    int scale,
    int flags,
) noexcept nogil:
    """A FOR or CONSTANT block; ``raws`` holds the exceptions.  Return the size of the block."""
    cdef uint8_t* body = out + BLOCK_HEAD_BYTES
    write_block_head(
        out, choice.kind, choice.bits, scale, flags, n, choice.exceptions, <uint64_t>choice.base ^ flip
    )
    if choice.bits:
        kc_pack(body, integers, n, width, choice.bits, <uint64_t>choice.base)
        body += kc_packed_bytes(n, choice.bits)
    body += _write_exceptions(body, positions, choice.exceptions, raws, flip, width)
    return body - out


cdef inline void choose_deltas(Choice* choice, Work* work, int64_t n, int width) noexcept nogil:
    cdef int whole = 0
    choice.kind = DELTA
    kc_deltas(work.deltas, work.integers, n, width)
    # The first delta is not one: it neither widens the window nor is an exception.
    choice.bits = kc_window(work.deltas + 1, n - 1, n, width, &choice.base, &whole)
    work.deltas[0] = choice.base
    choice.exceptions = 0
    if not whole:
        choice.exceptions = kc_outliers(work.jumps, work.deltas, NULL, n, choice.base, choice.bits)
    choice.bytes = 8 + kc_window_bytes(n, choice.bits, choice.exceptions, width)


cdef inline int64_t write_deltas(
    uint8_t* out, const Choice* choice, const Work* work, int64_t n, int width, uint64_t flip, int flags
) noexcept nogil:
    cdef:
        uint8_t* body = out + BLOCK_HEAD_BYTES
        uint64_t least = <uint64_t>choice.base
    write_block_head(
        out, DELTA, choice.bits, NO_SCALE, flags, n, choice.exceptions, <uint64_t>work.integers[0] ^ flip
    )
    memcpy(body, &least, 8)
    body += 8
    if choice.bits:
        kc_pack(body, work.deltas, n, width, choice.bits, least)
        body += kc_packed_bytes(n, choice.bits)
    body += _write_exceptions(body, work.jumps, choice.exceptions, work.deltas, 0, width)
    return body - out


cdef inline bint planes_pay(
    Work* work, const uint8_t* values, int64_t n, int width, int64_t limit
) noexcept nogil:
    """Whether LZ4 would bring planes of bits below ``limit`` bytes, by the first values."""
    cdef:
        int64_t sample = n if n < 256 else 256
        int64_t size = 8 * width * ((sample + 7) >> 3)
    kc_shuffle(work.planes, values, sample, width)
    return kc_shuffled_estimate(work.planes, size) * n < limit * sample
