# LZ4 blocks in memory, for kernels.
from libc.stdint cimport int64_t, uint8_t, uint16_t

cdef enum:
    SIDE_BY_SIDE = 2            # blocks that are packed at a time


cdef struct Packing:
    # A block that is being packed.
    const uint8_t* page
    uint8_t* out
    uint16_t* recent            # positions of the block by their hash, as far as they fit
    int64_t size
    int64_t at
    int64_t anchor              # literals begin here
    int64_t near                # places that may match, by their distance: in the block from ``at``,
    int64_t one                 # and two from the end of the text
    int64_t other


cdef inline int64_t packed_bound(int64_t size) noexcept nogil:
    """No block of so many bytes is longer, packed, with what is written behind it for speed."""
    return size + size / 255 + 32


cdef class Lz4Packer:
    cdef:
        readonly bytes text
        const uint8_t* _first
        int64_t _size           # of the text
        uint16_t* _table        # of each bucket two positions, by their distance from the end of the text
    cdef void pack_blocks(self, Packing* blocks, int count) noexcept nogil


cdef struct Unpacking:
    # A block that is being unpacked: what is left of it, and what is there.
    const uint8_t* at
    const uint8_t* end
    uint8_t* first
    uint8_t* out
    uint8_t* last
    const uint8_t* text
    int64_t text_bytes


cdef void lz4_begin(
    Unpacking* u, const uint8_t* at, int64_t size, uint8_t* out, int64_t raw_bytes, const uint8_t* text,
    int64_t text_bytes
) noexcept nogil
cdef int lz4_unpack_to(Unpacking* u, int64_t wanted) noexcept nogil
cdef int lz4_unpack(
    const uint8_t* at, int64_t size, uint8_t* out, int64_t raw_bytes, const uint8_t* text, int64_t text_bytes
) noexcept nogil
