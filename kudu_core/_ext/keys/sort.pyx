"""Sorts encoded keys, ``(data, offsets)`` as in ``keys``, compared as bytes.

The bits in which the keys differ, from the first that does on, become one integer a key
(``bit_fields.pxd``).  These integers are sorted by radix from the lowest digit up; only as many high
bits take part as n keys need to be told apart, what then still ties lies side by side and is sorted
by the rest.  Keys whose 64 bits are equal are sorted again by the bytes behind these, and in the end
compared.
"""
import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.keybytes cimport key_count
from kudu_core._ext.keys.bit_fields cimport (
    ALL,
    WINDOW,
    Element,
    Plan,
    choose_fields,
    find_differing,
    gather,
    kc_bits_of,
)
from kudu_core._ext.keys.compare cimport Keys, compare, order_of, point, size_of

cdef enum:
    MAX_FIELDS = 16         # fields of differing bits gathered one by one
    MAX_PASSES = 4
    MAX_DIGIT = 11
    SMALL_DIGIT = 8
    FEW = 32                # so few are sorted by insertion
    MAX_LEVEL = 8           # how often ties are sorted by radix again before they are compared


cdef void _find_sizes(
    const Keys* keys, const Element* a, int64_t n, int64_t* least, int64_t* most
) noexcept nogil:
    cdef int64_t i, size
    least[0] = most[0] = size_of(keys, a[0].row)
    for i in range(1, n):
        size = size_of(keys, a[i].row)
        if size < least[0]:
            least[0] = size
        if size > most[0]:
            most[0] = size


cdef void _insert_by_bits(Element* a, int64_t n, uint64_t mask) noexcept nogil:
    cdef:
        int64_t i, j
        Element moved
    for i in range(1, n):
        moved = a[i]
        j = i
        while j > 0 and (a[j - 1].bits & mask) > (moved.bits & mask):
            a[j] = a[j - 1]
            j -= 1
        a[j] = moved


cdef inline int _passes(int64_t n, int bits) noexcept nogil:
    """Digits that tell n keys apart, nearly all of them; 0: sort by insertion."""
    cdef:
        int digit = MAX_DIGIT if n >= 2048 else SMALL_DIGIT
        int enough = kc_bits_of(<uint64_t>n) + 8
    if n <= FEW:
        return 0
    if bits < enough:
        enough = bits
    return (enough + digit - 1) // digit


cdef void _radix(
    Element* a, Element* b, int64_t n, int bits, bint in_b, uint32_t* counts
) noexcept nogil:
    """Sort stably by the low ``bits`` bits into ``a``; input is in a or b.

    ``counts`` is scratch for MAX_PASSES digits.
    """
    cdef:
        int passes = _passes(n, bits)
        int digit, base, p, shift
        uint32_t mask, d, sum_, count
        int64_t i, first
        uint64_t key
        Element* source = b if in_b else a
        Element* target
    if passes == 0:
        if in_b:
            memcpy(a, b, n * sizeof(Element))
        _insert_by_bits(a, n, ALL if bits == 64 else (<uint64_t>1 << bits) - 1)
        return
    digit = MAX_DIGIT if n >= 2048 else SMALL_DIGIT
    if passes * digit >= bits:
        digit = (bits + passes - 1) // passes
    base = bits - passes * digit
    if base < 0:
        base = 0
    if in_b != (passes & 1):
        target = a if in_b else b
        memcpy(target, source, n * sizeof(Element))
        source = target
    mask = (<uint32_t>1 << digit) - 1
    memset(counts, 0, passes * sizeof(uint32_t) << digit)
    for i in range(n):
        key = source[i].bits >> base
        for p in range(passes):
            counts[(p << digit) + (<uint32_t>(key >> (p * digit)) & mask)] += 1
    for p in range(passes):
        sum_ = 0
        for d in range(mask + 1):
            count = counts[(p << digit) + d]
            counts[(p << digit) + d] = sum_
            sum_ += count
    for p in range(passes):
        target = a if source == b else b
        shift = base + p * digit
        for i in range(n):
            d = (p << digit) + (<uint32_t>(source[i].bits >> shift) & mask)
            target[counts[d]] = source[i]
            counts[d] += 1
        source = target
    if base == 0:
        return
    # Neighbours that the digits did not tell apart.
    first = 0
    for i in range(1, n + 1):
        if i == n or (a[i].bits ^ a[first].bits) >> base:
            if i - first > 1:
                _radix(a + first, b + first, i - first, base, False, counts)
            first = i


cdef void _merge_sort(
    const Keys* keys, Element* a, Element* b, int64_t n, int64_t depth
) noexcept nogil:
    """Sort stably by comparing whole keys; b is scratch."""
    cdef:
        int64_t i, j, half
        int64_t at = 0
        Element moved
    if n <= 8:
        for i in range(1, n):
            moved = a[i]
            j = i
            while j > 0 and compare(keys, a[j - 1].row, moved.row, depth) > 0:
                a[j] = a[j - 1]
                j -= 1
            a[j] = moved
        return
    half = n // 2
    _merge_sort(keys, a, b, half, depth)
    _merge_sort(keys, a + half, b + half, n - half, depth)
    if compare(keys, a[half - 1].row, a[half].row, depth) <= 0:
        return
    memcpy(b, a, half * sizeof(Element))
    i = 0
    j = half
    while i < half:
        if j < n and compare(keys, b[i].row, a[j].row, depth) > 0:
            a[at] = a[j]
            j += 1
        else:
            a[at] = b[i]
            i += 1
        at += 1


cdef void _sort(
    const Keys* keys, Element* a, Element* b, int64_t n, int64_t depth, int level, uint32_t* counts,
    Plan* plan,
) noexcept nogil:
    """Sort stably the rows in ``a``, whose keys agree in ``depth`` bytes; all else is scratch."""
    cdef:
        uint64_t differing[WINDOW]
        int64_t least, most, i, first, next_depth
        int words, w
        uint64_t any_differs = 0
        bint complete
        Element* target
    if n <= FEW or level > MAX_LEVEL:
        _merge_sort(keys, a, b, n, depth)
        return
    _find_sizes(keys, a, n, &least, &most)
    while True:
        if most <= depth:       # only sizes differ, if anything does
            if least != most:
                _merge_sort(keys, a, b, n, depth)
            return
        words = WINDOW if most - depth > 8 * WINDOW else <int>((most - depth + 7) // 8)
        find_differing(keys, a, n, depth, words, differing)
        for w in range(words):
            any_differs |= differing[w]
        if any_differs:
            break
        depth += 8 * words
    plan.depth = depth
    plan.complete = least == most and most - depth <= 8 * WINDOW
    choose_fields(plan, differing, words, False)
    if plan.fields > MAX_FIELDS:
        plan.depth = depth
        plan.complete = least == most and most - depth <= 8 * WINDOW
        choose_fields(plan, differing, words, True)
    target = b if _passes(n, plan.bits) & 1 else a
    for i in range(n):
        target[i].row = a[i].row
        target[i].bits = gather(keys, a[i].row, depth, plan)
    next_depth = plan.depth
    complete = plan.complete
    _radix(a, b, n, plan.bits, target == b, counts)
    if complete:
        return
    first = 0
    for i in range(1, n + 1):
        if i == n or a[i].bits != a[first].bits:
            if i - first > 1:
                _sort(keys, a + first, b + first, i - first, next_depth, level + 1, counts, plan)
            first = i


cdef object sorted_rows(const Keys* keys, Py_ssize_t n):
    """The stable permutation, int64."""
    cdef:
        int64_t[::1] rows
        uint8_t[::1] memory
        uint8_t[::1] plan
        uint32_t[::1] counts
        Element* a
        Py_ssize_t i
    if n > 0xFFFFFFFF:
        raise ValueError(f"{n} keys are too many for one sort")
    result = np.empty(n, np.int64)
    if n == 0:
        return result
    rows = result
    memory = np.empty(2 * n * sizeof(Element), np.uint8)
    counts = np.empty(MAX_PASSES << MAX_DIGIT, np.uint32)
    plan = np.empty(sizeof(Plan), np.uint8)
    a = <Element*>&memory[0]
    with nogil:
        for i in range(n):
            a[i].row = i
        _sort(keys, a, a + n, n, 0, 0, &counts[0], <Plan*>&plan[0])
        for i in range(n):
            rows[i] = a[i].row
    return result


def sort(const uint8_t[::1] data not None, const int64_t[::1] offsets not None):
    """The stable permutation, int64, that puts the keys in order.

    ValueError for offsets outside ``data`` and for 2**32 keys or more.
    """
    cdef:
        Keys keys
        Py_ssize_t n = key_count(data, offsets)
        int known
    point(&keys, data, offsets)
    with nogil:
        known = order_of(&keys, n)
    if known:
        return np.arange(n, dtype=np.int64)
    return sorted_rows(&keys, n)
