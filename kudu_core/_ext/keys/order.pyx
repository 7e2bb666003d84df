"""What needs only the order of encoded keys: sort, search, group equal ones.

Keys are ``(data, offsets)`` as in ``keys``, compared as bytes.

The sort gathers the bits in which the keys differ, from the first that does on, 64 at most, into
one integer a key: what all keys share (``host-000``, the high bytes of times) costs nothing, and
bits are order-preserving because the ones left out are the same everywhere.  These integers are
sorted by radix from the lowest digit up; only as many high bits take part as n keys need to be
told apart, what then still ties lies side by side and is sorted by the rest.  Keys whose 64 bits
are equal are sorted again by the bytes behind these, and in the end compared.
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.keybytes cimport kc_compare, kc_fetch, kc_same, kc_word, key_bytes, key_count

cdef extern from *:
    """
    static inline int kc_bits_of(unsigned long long v) { return v ? 64 - __builtin_clzll(v) : 0; }
    static inline int kc_lowest(unsigned long long v) { return __builtin_ctzll(v); }
    """
    int kc_bits_of(uint64_t v) noexcept nogil       # position of the highest 1, from 1
    int kc_lowest(uint64_t v) noexcept nogil

cdef enum:
    WINDOW = 8              # words looked at for bits that differ
    MAX_RUNS = 16           # runs of differing bits gathered one by one
    MAX_PASSES = 4
    MAX_DIGIT = 11
    SMALL_DIGIT = 8
    FEW = 32                # so few are sorted by insertion
    MAX_LEVEL = 8           # how often ties are sorted by radix again before they are compared
    GROUP = 16              # probes of a hash table in flight at once
    AHEAD = 16              # keys whose bytes are fetched before their turn

cdef uint64_t ALL = ~<uint64_t>0


cdef struct Keys:
    const uint8_t* data
    const uint8_t* end
    const int64_t* offsets


cdef struct Element:
    uint64_t bits
    int64_t row


cdef struct Run:
    # Neighbouring bits that differ, in one word of the window.
    int word
    int shift
    int width


cdef struct Plan:
    int words               # of the window that are loaded
    int runs
    int bits                # in all runs
    bint complete           # keys with equal bits are equal
    int64_t depth           # bytes in which keys with equal bits agree
    Run run[WINDOW * 64]


cdef inline int64_t _size(const Keys* keys, int64_t row) noexcept nogil:
    return keys.offsets[row + 1] - keys.offsets[row]


cdef inline int _compare(const Keys* keys, int64_t a, int64_t b, int64_t depth) noexcept nogil:
    """Keys that agree, padded with zeros, in ``depth`` bytes.  Sizes may become negative."""
    return kc_compare(
        keys.data + keys.offsets[a] + depth, _size(keys, a) - depth,
        keys.data + keys.offsets[b] + depth, _size(keys, b) - depth,
    )


# ----------------------------------------------------------------------------------------- order

cdef int _order(const Keys* keys, int64_t n) noexcept nogil:
    cdef:
        int64_t i
        int sign, result = 2
    for i in range(1, n):
        sign = _compare(keys, i - 1, i, 0)
        if sign > 0:
            return 0
        if sign == 0:
            result = 1
    return result


def order(const uint8_t[::1] data not None, const int64_t[::1] offsets not None):
    """2 when the keys ascend strictly, 1 when they never descend, 0 otherwise."""
    cdef:
        Keys keys
        Py_ssize_t n = key_count(data, offsets)
        int result
    _point(&keys, data, offsets)
    with nogil:
        result = _order(&keys, n)
    return result


cdef void _point(Keys* keys, const uint8_t[::1] data, const int64_t[::1] offsets) noexcept:
    keys.data = key_bytes(data)
    keys.end = keys.data + data.shape[0]
    keys.offsets = &offsets[0]


# ------------------------------------------------------------------------------------------ sort

cdef void _plan_sizes(
    const Keys* keys, const Element* a, int64_t n, int64_t* least, int64_t* most
) noexcept nogil:
    cdef int64_t i, size
    least[0] = most[0] = _size(keys, a[0].row)
    for i in range(1, n):
        size = _size(keys, a[i].row)
        if size < least[0]:
            least[0] = size
        if size > most[0]:
            most[0] = size


cdef void _find_differing(
    const Keys* keys, const Element* a, int64_t n, int64_t depth, int words, uint64_t* differing
) noexcept nogil:
    """Which bits of the words behind ``depth`` are not the same in all keys."""
    cdef:
        uint64_t first[WINDOW]
        const uint8_t* key
        int64_t i, size
        int w
    key = keys.data + keys.offsets[a[0].row] + depth
    size = _size(keys, a[0].row) - depth
    for w in range(words):
        first[w] = kc_word(key + 8 * w, size - 8 * w, keys.end)
        differing[w] = 0
    for i in range(1, n):
        key = keys.data + keys.offsets[a[i].row] + depth
        size = _size(keys, a[i].row) - depth
        for w in range(words):
            differing[w] |= kc_word(key + 8 * w, size - 8 * w, keys.end) ^ first[w]


cdef uint64_t _whole_bytes(uint64_t mask) noexcept nogil:
    """All bits of each byte that has one."""
    mask |= (mask >> 4) & <uint64_t>0x0F0F0F0F0F0F0F0F
    mask |= (mask >> 2) & <uint64_t>0x0303030303030303
    mask |= (mask >> 1) & <uint64_t>0x0101010101010101
    return (mask & <uint64_t>0x0101010101010101) * 255


cdef void _choose_runs(Plan* plan, uint64_t* differing, int words, bint whole_bytes) noexcept nogil:
    """The runs of differing bits from the highest on, until 64 bits are gathered."""
    cdef:
        int w, high, low, width
        uint64_t rest
    plan.runs = 0
    plan.bits = 0
    plan.words = 0
    for w in range(words):
        rest = _whole_bytes(differing[w]) if whole_bytes else differing[w]
        while rest:
            high = kc_bits_of(rest)
            low = kc_bits_of(~(rest << (64 - high)))       # the run's bits are 1s at the top
            width = 64 - low
            if width > high:
                width = high
            if plan.bits + width > 64:
                width = 64 - plan.bits
            if width == 0:
                plan.depth += 8 * w + (64 - high) // 8
                plan.complete = False
                return
            plan.run[plan.runs].word = w
            plan.run[plan.runs].shift = high - width
            plan.run[plan.runs].width = width
            plan.runs += 1
            plan.bits += width
            plan.words = w + 1
            rest &= ~((ALL >> (64 - width)) << (high - width))
    plan.depth += 8 * words


cdef inline uint64_t _gather(
    const Keys* keys, int64_t row, int64_t depth, const Plan* plan
) noexcept nogil:
    cdef:
        const uint8_t* key = keys.data + keys.offsets[row] + depth
        int64_t size = _size(keys, row) - depth
        uint64_t bits = 0
        uint64_t word = 0
        int loaded = -1
        int r
        const Run* run
    for r in range(plan.runs):
        run = &plan.run[r]
        if run.word != loaded:
            loaded = run.word
            word = kc_word(key + 8 * loaded, size - 8 * loaded, keys.end)
        if run.width == 64:
            return word
        bits = (bits << run.width) | ((word >> run.shift) & (ALL >> (64 - run.width)))
    return bits


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
            while j > 0 and _compare(keys, a[j - 1].row, moved.row, depth) > 0:
                a[j] = a[j - 1]
                j -= 1
            a[j] = moved
        return
    half = n // 2
    _merge_sort(keys, a, b, half, depth)
    _merge_sort(keys, a + half, b + half, n - half, depth)
    if _compare(keys, a[half - 1].row, a[half].row, depth) <= 0:
        return
    memcpy(b, a, half * sizeof(Element))
    i = 0
    j = half
    while i < half:
        if j < n and _compare(keys, b[i].row, a[j].row, depth) > 0:
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
    _plan_sizes(keys, a, n, &least, &most)
    while True:
        if most <= depth:       # only sizes differ, if anything does
            if least != most:
                _merge_sort(keys, a, b, n, depth)
            return
        words = WINDOW if most - depth > 8 * WINDOW else <int>((most - depth + 7) // 8)
        _find_differing(keys, a, n, depth, words, differing)
        for w in range(words):
            any_differs |= differing[w]
        if any_differs:
            break
        depth += 8 * words
    plan.depth = depth
    plan.complete = least == most and most - depth <= 8 * WINDOW
    _choose_runs(plan, differing, words, False)
    if plan.runs > MAX_RUNS:
        plan.depth = depth
        plan.complete = least == most and most - depth <= 8 * WINDOW
        _choose_runs(plan, differing, words, True)
    target = b if _passes(n, plan.bits) & 1 else a
    for i in range(n):
        target[i].row = a[i].row
        target[i].bits = _gather(keys, a[i].row, depth, plan)
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


cdef object _sorted_rows(const Keys* keys, Py_ssize_t n):
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
    _point(&keys, data, offsets)
    with nogil:
        known = _order(&keys, n)
    if known:
        return np.arange(n, dtype=np.int64)
    return _sorted_rows(&keys, n)


cdef int _repeats(const Keys* keys, const int64_t* rows, int64_t n) noexcept nogil:
    cdef int64_t i, size
    for i in range(1, n):
        if i + AHEAD < n:
            kc_fetch(&keys.offsets[rows[i + AHEAD]])
        if i + AHEAD // 2 < n:
            kc_fetch(keys.data + keys.offsets[rows[i + AHEAD // 2]])
        size = _size(keys, rows[i])
        if size == _size(keys, rows[i - 1]) and _compare(keys, rows[i - 1], rows[i], 0) == 0:
            return 1
    return 0


def repeats(
    const uint8_t[::1] data not None, const int64_t[::1] offsets not None, const int64_t[::1] rows not None
):
    """Whether two keys that follow each other in ``rows``, int64, are equal: with the order of ``sort``,
    whether any key repeats.

    ValueError for offsets outside ``data``, IndexError for a row that does not exist.
    """
    cdef:
        Keys keys
        Py_ssize_t n = key_count(data, offsets)
        Py_ssize_t count = rows.shape[0]
        Py_ssize_t i
        int found = 0
        bint inside = True
    _point(&keys, data, offsets)
    with nogil:
        for i in range(count):
            inside &= 0 <= rows[i] < n
        if inside and count:
            found = _repeats(&keys, &rows[0], count)
    if not inside:
        raise IndexError(f"a row beyond the {n} keys")
    return bool(found)


cdef void _same(const Keys* keys, int64_t n, uint8_t* out) noexcept nogil:
    cdef int64_t i, size
    out[0] = 0
    for i in range(1, n):
        size = _size(keys, i)
        out[i] = size == _size(keys, i - 1) and kc_same(
            keys.data + keys.offsets[i - 1], keys.data + keys.offsets[i], size
        )


def same(const uint8_t[::1] data not None, const int64_t[::1] offsets not None):
    """(n,) uint8: 1 for a key that equals the one before it.  ValueError for offsets outside ``data``."""
    cdef:
        Keys keys
        Py_ssize_t n = key_count(data, offsets)
        uint8_t[::1] out
    flags = np.empty(n, np.uint8)
    if n:
        out = flags
        _point(&keys, data, offsets)
        with nogil:
            _same(&keys, n, &out[0])
    return flags


# ---------------------------------------------------------------------------------------- search

cdef inline int _below(
    const Keys* keys, int64_t i, const uint8_t* probe, int64_t probe_size, bint upper
) noexcept nogil:
    """1: key i is below the probe (with ``upper`` also when equal), 0: it is not, -1: bad offsets."""
    cdef int64_t begin = keys.offsets[i], end = keys.offsets[i + 1]
    if begin < 0 or end < begin or end > keys.end - keys.data:
        return -1
    return kc_compare(keys.data + begin, end - begin, probe, probe_size) < <int>upper


cdef int64_t _lower_bound(
    const Keys* keys, int64_t n, const Keys* probes, const int64_t* turn, bint gallop, int64_t[::1] out,
    bint upper
) noexcept nogil:
    """Return -1, or a key with bad offsets that was met."""
    cdef:
        int64_t i, row, size, step, middle
        int64_t count = out.shape[0]
        int64_t low = 0
        int64_t high
        const uint8_t* probe
        int below
    for i in range(count):
        row = i
        if turn is not NULL:
            row = turn[i]
            if i + 2 * AHEAD < count:
                kc_fetch(&probes.offsets[turn[i + 2 * AHEAD]])
            if i + AHEAD < count:
                kc_fetch(probes.data + probes.offsets[turn[i + AHEAD]])
        probe = probes.data + probes.offsets[row]
        size = _size(probes, row)
        high = n
        if gallop:                  # what was below the probe before this is below this
            step = 1
            while low + step <= n:
                below = _below(keys, low + step - 1, probe, size, upper)
                if below < 0:
                    return low + step - 1
                if not below:
                    high = low + step - 1
                    break
                low += step
                step *= 2
        else:
            low = 0
        while low < high:
            middle = (low + high) >> 1
            below = _below(keys, middle, probe, size, upper)
            if below < 0:
                return middle
            if below:
                low = middle + 1
            else:
                high = middle
        out[row] = low
    return -1


def lower_bound(
    const uint8_t[::1] data not None,
    const int64_t[::1] offsets not None,
    const uint8_t[::1] probe_data not None,
    const int64_t[::1] probe_offsets not None,
    bint upper=False,
):
    """For each probe the number (int64) of keys below it, or with ``upper`` not above it.

    The keys must be in order, else the answers mean nothing; probes may come in any order.  Only
    keys that are looked at are checked: ValueError for their offsets.
    """
    cdef:
        Keys keys
        Keys probes
        Py_ssize_t count = key_count(probe_data, probe_offsets)
        int64_t n = offsets.shape[0] - 1
        int64_t bad
        const int64_t* turn = NULL
        const int64_t[::1] rows
        int64_t[::1] out
        bint in_order
    if n < 0:
        raise ValueError("offsets have at least one entry")
    result = np.empty(count, np.int64)
    if count == 0:
        return result
    out = result
    _point(&keys, data, offsets)
    _point(&probes, probe_data, probe_offsets)
    with nogil:
        in_order = _order(&probes, count) > 0
    if not in_order and count >= 32 and n >= 4096:
        # Searches side by side share what they touch: worth more than the sort costs.
        sorted_rows = _sorted_rows(&probes, count)
        rows = sorted_rows
        turn = &rows[0]
        in_order = True
    with nogil:
        bad = _lower_bound(&keys, n, &probes, turn, in_order, out, upper)
    if bad >= 0:
        raise ValueError(f"offsets of key {bad} descend or lie outside the data")
    return result


# ----------------------------------------------------------------------------------------- group

cdef int64_t _group(
    const Keys* keys, const uint64_t[::1] hashes, uint64_t[::1] slots, int32_t[::1] groups, int64_t[::1] first
) noexcept nogil:
    """Return how many groups there are."""
    cdef:
        uint64_t mask = <uint64_t>slots.shape[0] - 1
        uint64_t at, slot
        int64_t i, j, other, size
        int64_t n = hashes.shape[0]
        int64_t count = 0
        int64_t ahead = 0
    for i in range(n):
        if i == ahead:
            ahead = i + GROUP if n - i > GROUP else n
            for j in range(i, ahead):
                kc_fetch(&slots[hashes[j] & mask])
        size = _size(keys, i)
        at = hashes[i] & mask
        while True:
            slot = slots[at]
            if slot == 0:           # the slot's high half is the hash's, its low half group + 1
                slots[at] = (hashes[i] & <uint64_t>0xFFFFFFFF00000000) | <uint64_t>(count + 1)
                groups[i] = <int32_t>count
                first[count] = i
                count += 1
                break
            if (slot ^ hashes[i]) >> 32 == 0:
                other = first[<uint32_t>slot - 1]
                if _size(keys, other) == size and kc_same(
                    keys.data + keys.offsets[other], keys.data + keys.offsets[i], size
                ):
                    groups[i] = <int32_t>(<uint32_t>slot - 1)
                    break
            at = (at + 1) & mask
    return count


def group(
    const uint8_t[::1] data not None,
    const int64_t[::1] offsets not None,
    const uint64_t[::1] hashes not None,
):
    """Equal keys: ``(group of each row as int32, first row of each group as int64)``.

    Groups are numbered as they first appear.  ``hashes`` are those of ``hashing.murmur3``; others
    cost time, not correctness, as long as equal keys have equal ones.  ValueError for offsets
    outside ``data``, another number of hashes, and 2**31 keys or more.
    """
    cdef:
        Keys keys
        Py_ssize_t n = key_count(data, offsets)
        int64_t count
        uint64_t[::1] slots
        int32_t[::1] groups
        int64_t[::1] first
    if hashes.shape[0] != n:
        raise ValueError(f"{n} keys, {hashes.shape[0]} hashes")
    if n > 0x7FFFFFFF:
        raise ValueError(f"{n} keys are too many for one batch")
    group_of = np.empty(n, np.int32)
    first_row = np.empty(n, np.int64)
    if n == 0:
        return group_of, first_row
    table = np.zeros(1 << (2 * n - 1).bit_length(), np.uint64)
    slots = table
    groups = group_of
    first = first_row
    _point(&keys, data, offsets)
    with nogil:
        count = _group(&keys, hashes, slots, groups, first)
    return group_of, first_row[:count].copy()
