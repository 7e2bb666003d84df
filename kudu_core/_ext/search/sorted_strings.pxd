# Ascending strings and how they are searched: by what all begin with, then by the next 8 bytes of each as
# a number, then by comparing.  ``sorted_strings.pyx`` sets them up.
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* The first 8 bytes, as a number that compares as they do; what is missing counts as zeros. */
    static inline uint64_t kc_first_bytes(const unsigned char *p, int64_t size) {
        uint64_t word = 0;
        if (size > 0) memcpy(&word, p, (size_t)(size < 8 ? size : 8));
        return __builtin_bswap64(word);
    }
    /* How many of n ascending numbers are below x. */
    static inline int64_t kc_numbers_below(const uint64_t *heads, int64_t n, uint64_t x) {
        const uint64_t *base = heads;
        if (n == 0) return 0;
        while (n > 1) {
            const int64_t half = n >> 1;
            base += base[half - 1] < x ? half : 0;
            n -= half;
        }
        return base - heads + (*base < x);
    }
    /* The same of numbers of which about ``per`` lie in a difference of one: where they lie evenly, it is
       found in a few lines of memory that are next to each other, and not in as many as there are steps. */
    enum { KC_NEAR = 16 };
    static inline int64_t kc_numbers_below_evenly(const uint64_t *heads, int64_t n, double per, uint64_t x) {
        if (n > 4 * KC_NEAR && x > heads[0]) {
            const double guess = (double)(x - heads[0]) * per - KC_NEAR / 2;
            const int64_t last = n - KC_NEAR;
            const int64_t first = guess < 0 ? 0 : guess > (double)last ? last : (int64_t)guess;
            if (heads[first] < x && x <= heads[first + KC_NEAR - 1])
                return first + kc_numbers_below(heads + first, KC_NEAR, x);
        }
        return kc_numbers_below(heads, n, x);
    }
    """
    uint64_t kc_first_bytes(const uint8_t* p, int64_t size) noexcept nogil
    int64_t kc_numbers_below(const uint64_t* heads, int64_t n, uint64_t x) noexcept nogil
    int64_t kc_numbers_below_evenly(
        const uint64_t* heads, int64_t n, double per, uint64_t x
    ) noexcept nogil


cdef struct SortedStrings:
    int64_t count
    const int64_t* ends         # offsets
    const uint8_t* data
    int64_t common              # bytes that all of them begin with
    const uint64_t* heads       # of each, the 8 bytes behind these
    double per                  # how many of them lie in a difference of one, on the average


cdef object sorted_strings(SortedStrings* out, data, offsets)


cdef inline int compare_bytes(
    const uint8_t* a, int64_t a_size, const uint8_t* b, int64_t b_size
) noexcept nogil:
    cdef int order = memcmp(a, b, <size_t>(a_size if a_size < b_size else b_size))
    if order:
        return order
    return (a_size > b_size) - (a_size < b_size)


cdef inline int64_t count_below(
    const SortedStrings* all, const uint8_t* key, int64_t size, bint above
) noexcept nogil:
    """How many of the strings are below the key (``above``: not above it)."""
    cdef:
        int64_t common = all.common, lower, upper, middle
        uint64_t head
        int order
    if all.count == 0:
        return 0
    order = memcmp(key, all.data + all.ends[0], <size_t>(common if common < size else size))
    if order:
        return 0 if order < 0 else all.count
    if size < common:
        return 0
    head = kc_first_bytes(key + common, size - common)
    lower = kc_numbers_below_evenly(all.heads, all.count, all.per, head)
    if lower == all.count or all.heads[lower] != head:
        return lower
    upper = all.count
    if head != ~<uint64_t>0:
        upper = lower + kc_numbers_below(all.heads + lower, all.count - lower, head + 1)
    while lower < upper:
        middle = (lower + upper) >> 1
        order = compare_bytes(all.data + all.ends[middle], all.ends[middle + 1] - all.ends[middle], key, size)
        if order < 0 or (above and order == 0):
            lower = middle + 1
        else:
            upper = middle
    return lower


cdef inline int64_t word_code(const SortedStrings* words, const uint8_t* word, int64_t size) noexcept nogil:
    """The code of a word, -1 where the dictionary does not have it."""
    cdef int64_t code = count_below(words, word, size, False)
    if code < words.count and words.ends[code + 1] - words.ends[code] == size:
        if memcmp(words.data + words.ends[code], word, <size_t>size) == 0:
            return code
    return -1
