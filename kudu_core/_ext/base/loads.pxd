# Loads of little-endian integers from any address.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef inline uint16_t load16(const uint8_t* p) noexcept nogil:
    cdef uint16_t word
    memcpy(&word, p, 2)
    return word


cdef inline uint32_t load32(const uint8_t* p) noexcept nogil:
    cdef uint32_t word
    memcpy(&word, p, 4)
    return word


cdef inline uint64_t load64(const uint8_t* p) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, p, 8)
    return word
