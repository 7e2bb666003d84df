# A set of values of one column, as the tests of a scan take it.
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    #include <string.h>
    #define KC_TOP_BIT ((uint64_t)1 << 63)
    /* Two words, the high one last, in the order of unsigned numbers. */
    static inline int kc_wide_below(const uint64_t *a, const uint64_t *b) {
        return a[1] < b[1] || (a[1] == b[1] && a[0] < b[0]);
    }
    /* Which bit of a filter of 2^(64 - shift) bits a number, or a string, sets. */
    static inline uint64_t kc_filter_bit(uint64_t key, int shift) {
        return (key * 0x9E3779B97F4A7C15ULL) >> shift;
    }
    static inline uint64_t kc_filter_string(const uint8_t *p, int64_t size, int shift) {
        uint64_t head = 0, tail = 0;
        if (size >= 8) {
            memcpy(&head, p, 8);
            memcpy(&tail, p + size - 8, 8);
        } else
            memcpy(&head, p, (size_t)size);
        head = (head ^ (uint64_t)size) * 0xC2B2AE3D27D4EB4FULL;
        return kc_filter_bit((head ^ (head >> 29)) + tail, shift);
    }
    static inline int kc_filter_has(const uint64_t *filter, uint64_t bit) {
        return (int)(filter[bit >> 6] >> (bit & 63) & 1);
    }
    """
    const uint64_t TOP_BIT "KC_TOP_BIT"
    bint kc_wide_below(const uint64_t* a, const uint64_t* b) noexcept nogil
    uint64_t kc_filter_bit(uint64_t key, int shift) noexcept nogil
    uint64_t kc_filter_string(const uint8_t* p, int64_t size, int shift) noexcept nogil
    bint kc_filter_has(const uint64_t* filter, uint64_t bit) noexcept nogil

cdef enum:
    NUMBER = 0                  # how the cells of a set lie on the line of unsigned integers
    SIGNED = 1
    FLOAT = 2
    CODE = 3
    STRING = 4

cdef struct Set:
    int kind
    int width
    bint nulls
    uint64_t flip
    int64_t n
    uint64_t* lows              # n, or 2 n words
    uint64_t* highs
    int64_t narrow_n            # of 16-byte cells: what of the set fits into 8 bytes
    uint64_t* narrow_lows
    uint64_t* narrow_highs
    int64_t words               # of codes
    const uint8_t* data         # of strings: the ends of the half-open intervals
    const int64_t* offsets      # low 0, high 0, low 1, ..
    bint open_end               # the last one has no upper end
    uint64_t* filter            # of many single values: no value whose bit is not set is in the set; or NULL
    int filter_shift
    uint64_t* table             # these numbers, each at its place in 2^(64 - table_shift) or behind that
    int table_shift
    uint64_t filler             # of places where none is: a number that is not in the set

cdef class CellSet:
    cdef:
        Set c
        tuple kept
    cdef bint _ascends(self, int64_t i, int64_t step)
    cdef void _narrow(self, int64_t i)
    cdef int _make_filter(self, int64_t values) except -1
    cdef void _filter_numbers(self)
    cdef int _make_table(self, int64_t values) except -1
