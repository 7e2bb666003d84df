# A set of values of one column, as the tests of a scan take it.
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    #define KC_TOP_BIT ((uint64_t)1 << 63)
    /* Two words, the high one last, in the order of unsigned numbers. */
    static inline int kc_wide_below(const uint64_t *a, const uint64_t *b) {
        return a[1] < b[1] || (a[1] == b[1] && a[0] < b[0]);
    }
    """
    const uint64_t TOP_BIT "KC_TOP_BIT"
    bint kc_wide_below(const uint64_t* a, const uint64_t* b) noexcept nogil

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

cdef class CellSet:
    cdef:
        Set c
        tuple kept
    cdef bint _ascends(self, int64_t i, int64_t step)
    cdef void _narrow(self, int64_t i)
