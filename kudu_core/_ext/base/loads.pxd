# Loads of little-endian integers from any address.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

# Memory is asked for before it is needed, so that several waits for it become one.  A function that only
# prefetches has no effect in the eyes of gcc, which drops its calls where they are not inlined; the empty
# ``asm`` is an effect, and no instruction.
cdef extern from *:
    """
    #ifndef KUDU_CORE_LOADS
    #define KUDU_CORE_LOADS
    static inline void kc_fetch(const void *p) { __builtin_prefetch(p, 0, 3); __asm__ volatile(""); }
    static inline void kc_fetch_for_write(const void *p) {
        __builtin_prefetch(p, 1, 3);
        __asm__ volatile("");
    }
    #endif
    """
    void kc_fetch(const void* p) noexcept nogil
    void kc_fetch_for_write(const void* p) noexcept nogil


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


cdef inline void copy_cell(uint8_t* out, const uint8_t* cell, int width) noexcept nogil:
    """Copy a cell: of widths that the compiler knows this is a move, of others a call."""
    if width == 8:
        memcpy(out, cell, 8)
    elif width == 4:
        memcpy(out, cell, 4)
    elif width == 2:
        memcpy(out, cell, 2)
    elif width == 1:
        out[0] = cell[0]
    else:
        memcpy(out, cell, <size_t>width)


cdef inline void copy_word(uint8_t* out, uint64_t word, int width) noexcept nogil:
    """Write the low bytes of a word, eight at most, likewise."""
    if width == 8:
        memcpy(out, &word, 8)
    elif width == 4:
        memcpy(out, &word, 4)
    elif width == 2:
        memcpy(out, &word, 2)
    else:
        memcpy(out, &word, <size_t>min(width, 8))
