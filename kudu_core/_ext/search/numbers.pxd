# Ascending numbers searched.
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef inline int64_t lower_bound(const uint32_t* at, int64_t count, uint32_t want) noexcept nogil:
    """How many of the ascending numbers are below ``want``."""
    cdef:
        const uint32_t* base = at
        int64_t half
    if count == 0:
        return 0
    while count > 1:
        half = count >> 1
        if base[half - 1] < want:
            base += half
        count -= half
    return (base - at) + (base[0] < want)


cdef inline int64_t upper_bound(const uint64_t* at, int64_t count, uint64_t limit) noexcept nogil:
    """How many of the ascending numbers are not above ``limit``."""
    cdef int64_t lower = 0, upper = count, middle
    if upper == 0 or at[upper - 1] <= limit:
        return upper
    while lower < upper:
        middle = (lower + upper) >> 1
        if at[middle] <= limit:
            lower = middle + 1
        else:
            upper = middle
    return lower


cdef inline int64_t places_below(
    const uint32_t* places, int64_t count, const uint32_t* at, int64_t limit
) noexcept nogil:
    """How many of the places, at which numbers ascend, have one below ``limit``."""
    cdef int64_t lower = 0, upper = count, middle
    if upper and at[places[upper - 1]] < limit:
        return upper
    while lower < upper:
        middle = (lower + upper) >> 1
        if at[places[middle]] < limit:
            lower = middle + 1
        else:
            upper = middle
    return lower
