# CRC-32C of bytes in memory, for kernels.
from libc.stdint cimport uint8_t, uint32_t


cdef uint32_t crc32c_of(uint32_t crc, const uint8_t* first, size_t size) noexcept nogil
