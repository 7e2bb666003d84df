# LZ4 blocks in memory, for kernels.
from libc.stdint cimport int64_t, uint8_t


cdef int lz4_unpack(
    const uint8_t* at, int64_t size, uint8_t* out, int64_t raw_bytes, const uint8_t* text, int64_t text_bytes
) noexcept nogil
