# Bounds of strings, for kernels.
from libc.stdint cimport int32_t, int64_t, uint8_t

# Below, equal to or above 0, as the one is to the other.
cdef int string_order(const uint8_t* a, int64_t a_size, const uint8_t* b, int64_t b_size) noexcept nogil

# Set the rows of the bounds, -1 where all are null; return how many are, or -1 for bad offsets.
cdef int64_t zone_of_strings(
    const int32_t* offsets, int64_t rows, const uint8_t* data, int64_t data_bytes, const uint8_t* bits,
    int64_t* least, int64_t* greatest,
) noexcept nogil
