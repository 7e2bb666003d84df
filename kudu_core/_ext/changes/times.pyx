"""Changes in the order of their times: there are many changes, and few writes that made them.

A sort compares the times of changes with each other.  Where there are few different times, each change needs
only be counted to its own and then put where the next of that time belongs.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

import numpy as np

cdef enum:
    MOST_TIMES = 256
    SLOTS = 1024                # of the hash table, a power of two

cdef uint64_t SPREAD = 0x9E3779B97F4A7C15ULL


def order_of_few(const uint64_t[::1] values not None):
    """(n,) int64: the stable permutation that puts n values in order; None where more than 256 of them
    differ."""
    cdef:
        int64_t n = values.shape[0], i, number = 0
        int64_t count = 0
        int64_t slots[SLOTS]        # number of the value that hashes there, -1 for none
        uint64_t known[MOST_TIMES]
        int64_t counts[MOST_TIMES]
        int64_t next_places[MOST_TIMES]
        int64_t slot, k, place
        uint8_t[::1] numbers
        int64_t[::1] out
    if n == 0:
        return np.empty(0, np.int64)
    numbers_of = np.empty(n, np.uint8)
    numbers = numbers_of
    memset(slots, 0xFF, sizeof(slots))
    memset(counts, 0, sizeof(counts))
    with nogil:
        for i in range(n):
            if count == 0 or values[i] != known[number]:
                slot = <int64_t>((values[i] * SPREAD) >> 54)
                while slots[slot] >= 0 and known[slots[slot]] != values[i]:
                    slot = (slot + 1) & (SLOTS - 1)
                if slots[slot] < 0:
                    if count == MOST_TIMES:
                        count += 1
                        break
                    slots[slot] = count
                    known[count] = values[i]
                    count += 1
                number = slots[slot]
            numbers[i] = <uint8_t>number
            counts[number] += 1
    if count > MOST_TIMES:
        return None
    distinct = np.asarray(<uint64_t[:count]>known).copy()
    place = 0
    for k in np.argsort(distinct).tolist():
        next_places[k] = place
        place += counts[k]
    result = np.empty(n, np.int64)
    out = result
    with nogil:
        for i in range(n):
            number = numbers[i]
            out[next_places[number]] = i
            next_places[number] += 1
    return result
