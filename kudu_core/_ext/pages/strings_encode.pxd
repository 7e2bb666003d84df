# Payloads of pages of strings, for kernels that write whole pages.
from libc.stdint cimport int32_t, int64_t, uint8_t

# No payload of so many cells is longer.
cdef int64_t strings_bound(int64_t rows, int64_t cell_bytes, bint nulls) noexcept nogil

# Write a whole payload; return its size.  ``bits``: NULL where no cell is null.
cdef int64_t encode_strings(
    uint8_t* out, const int32_t* offsets, int64_t rows, const uint8_t* data, const uint8_t* bits, bint prefix
) noexcept nogil

# The first row whose offsets descend or leave the data, or -1.
cdef int64_t bad_offset(const int32_t[::1] offsets, int64_t size) noexcept nogil
