# Single strings looked for in mini-blocks that are not decoded.
#
# For the kernels that find keys in columns of strings and read single cells of them.  What is read is
# hostile: every function returns a status where the bytes break their format, with ``at`` set to the place
# in the payload.
from libc.stdint cimport int64_t, uint8_t

from kudu_core._ext.pages.cell cimport (
    RESTART,
    Strings,
    plain_cell,
    strings_entry,
    strings_group,
    strings_open,
)
from kudu_core._ext.pages.head cimport STRING_PREFIX, Page
from kudu_core._ext.search.outcomes cimport ABSENT
from kudu_core._ext.search.sorted_strings cimport compare_bytes
from kudu_core._ext.base.status cimport BAD_VALUE


cdef inline int64_t find_prefixed(
    const Strings* part, const uint8_t* key, int64_t size, int64_t* at
) noexcept nogil:
    """The entry that equals the key, -1 for none: the group first, then at most 16 entries."""
    cdef:
        int64_t lower = 0, upper = (part.count + RESTART - 1) / RESTART, middle
        int64_t pos = 0, length, shared, same = 0, i, suffix, k
        int status, order
    while lower < upper:
        middle = (lower + upper) >> 1
        status = strings_group(part, middle * RESTART, &pos, at)
        length = shared = 0
        if status == 0:
            status = strings_entry(part, middle * RESTART, &pos, &length, &shared, at)
        if status < 0:
            return status
        order = compare_bytes(part.data + pos, length, key, size)
        if order == 0:
            return middle * RESTART
        if order < 0:
            lower = middle + 1
        else:
            upper = middle
    if lower == 0:
        return ABSENT
    i = (lower - 1) * RESTART
    status = strings_group(part, i, &pos, at)
    if status < 0:
        return status
    length = 0
    for i in range(i, min(i + RESTART, part.count)):
        status = strings_entry(part, i, &pos, &length, &shared, at)
        if status < 0:
            return status
        suffix = length - shared
        if shared <= same:                  # else it differs where the entry before it does
            k = 0
            while k < suffix and shared + k < size and part.data[pos + k] == key[shared + k]:
                k += 1
            same = shared + k
        if same == size and length == size:
            return i
        pos += suffix
    return ABSENT


cdef inline int64_t find_string(
    const Page* page, int64_t index, const uint8_t* key, int64_t size, int64_t* at
) noexcept nogil:
    """The cell of mini-block ``index`` that equals the key, -1 for none, or a status."""
    cdef:
        Strings part
        const uint8_t* start = NULL
        int64_t length = 0, lower = 0, upper, middle
        int order, status = strings_open(page, index, &part, at)
    if status < 0:
        return status
    if page.bits != NULL:
        return BAD_VALUE
    if part.kind == STRING_PREFIX:
        return find_prefixed(&part, key, size, at)
    upper = part.count
    while lower < upper:
        middle = (lower + upper) >> 1
        status = plain_cell(&part, middle, &start, &length, at)
        if status < 0:
            return status
        order = compare_bytes(start, length, key, size)
        if order == 0:
            return middle
        if order < 0:
            lower = middle + 1
        else:
            upper = middle
    return ABSENT
