"""Compares encoded keys with each other, searches them, and groups equal ones.

Keys are ``(data, offsets)`` as in ``keys``, compared as bytes.
"""
import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kudu_core._ext.base.loads cimport kc_fetch
from kudu_core._ext.base.keybytes cimport kc_compare, kc_same, key_count
from kudu_core._ext.keys.compare cimport Keys, compare, order_of, point, size_of
from kudu_core._ext.keys.sort cimport sorted_rows

cdef enum:
    GROUP = 16              # probes of a hash table in flight at once
    AHEAD = 16              # keys whose bytes are fetched before their turn


def order(const uint8_t[::1] data not None, const int64_t[::1] offsets not None):
    """2 when the keys ascend strictly, 1 when they never descend, 0 otherwise."""
    cdef:
        Keys keys
        Py_ssize_t n = key_count(data, offsets)
        int result
    point(&keys, data, offsets)
    with nogil:
        result = order_of(&keys, n)
    return result


cdef int _repeats(const Keys* keys, const int64_t* rows, int64_t n) noexcept nogil:
    cdef int64_t i, size
    for i in range(1, n):
        if i + AHEAD < n:
            kc_fetch(&keys.offsets[rows[i + AHEAD]])
        if i + AHEAD // 2 < n:
            kc_fetch(keys.data + keys.offsets[rows[i + AHEAD // 2]])
        size = size_of(keys, rows[i])
        if size == size_of(keys, rows[i - 1]) and compare(keys, rows[i - 1], rows[i], 0) == 0:
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
    point(&keys, data, offsets)
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
        size = size_of(keys, i)
        out[i] = size == size_of(keys, i - 1) and kc_same(
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
        point(&keys, data, offsets)
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
        size = size_of(probes, row)
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
    point(&keys, data, offsets)
    point(&probes, probe_data, probe_offsets)
    with nogil:
        in_order = order_of(&probes, count) > 0
    if not in_order and count >= 32 and n >= 4096:
        # Searches side by side share what they touch: worth more than the sort costs.
        in_turn = sorted_rows(&probes, count)
        rows = in_turn
        turn = &rows[0]
        in_order = True
    with nogil:
        bad = _lower_bound(&keys, n, &probes, turn, in_order, out, upper)
    if bad >= 0:
        raise ValueError(f"offsets of key {bad} descend or lie outside the data")
    return result


# ----------------------------------------------------------------------------------------- group

cdef int64_t _group(
    const Keys* keys, const uint64_t* hashes, int64_t n, uint64_t* slots, uint64_t mask, int32_t* groups,
    int64_t* first,
) noexcept nogil:
    """Return how many groups there are.  ``mask``: one less than there are slots."""
    cdef:
        uint64_t at, slot
        int64_t i, j, other, size
        int64_t count = 0
        int64_t ahead = 0
    for i in range(n):
        if i == ahead:
            ahead = i + GROUP if n - i > GROUP else n
            for j in range(i, ahead):
                kc_fetch(&slots[hashes[j] & mask])
        size = size_of(keys, i)
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
                if size_of(keys, other) == size and kc_same(
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
    point(&keys, data, offsets)
    with nogil:
        count = _group(&keys, &hashes[0], n, &slots[0], slots.shape[0] - 1, &groups[0], &first[0])
    return group_of, first_row[:count].copy()
