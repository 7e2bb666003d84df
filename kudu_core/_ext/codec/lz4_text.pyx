"""Which text of a column helps a codec most: docs/decisions/0008-lz4-with-dictionaries.md.

The scheme of zstd's "fast cover": how often each piece of eight bytes occurs in a sample is counted by its
hash; of each part of the sample the segment is taken whose pieces occur most often, and they count no more.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.loads cimport load64

cdef enum:
    PIECE = 8
    COUNT_BITS = 17

cdef uint64_t PRIME_OF_8 = <uint64_t>0xcf1bbcdcb7a56463


cdef inline uint32_t _hash_of_8(const uint8_t* at) noexcept nogil:
    return <uint32_t>((load64(at) * PRIME_OF_8) >> (64 - COUNT_BITS))


def choose_text(bytes sample not None, int64_t size, int64_t segment):
    """``size`` bytes of the sample, in segments of so many, each from a part of its own."""
    cdef:
        const uint8_t* first = <const uint8_t*>PyBytes_AS_STRING(sample)
        int64_t total = PyBytes_GET_SIZE(sample), parts
        bytes out
        uint32_t* counts
        uint8_t* target
    if segment < PIECE or segment > 128 or size % segment or size <= 0 or size > total:
        raise ValueError(f"{size} bytes in segments of {segment} of {total}")
    parts = size // segment
    out = PyBytes_FromStringAndSize(NULL, size)
    target = <uint8_t*>PyBytes_AS_STRING(out)
    # Behind the counts, how often each hash is in the segment that is looked at: at most 128 times.
    counts = <uint32_t*>PyMem_Malloc((sizeof(uint32_t) + 1) << COUNT_BITS)
    if counts == NULL:
        raise MemoryError
    with nogil:
        _choose(first, total, target, parts, segment, counts, <uint8_t*>(counts + (1 << COUNT_BITS)))
    PyMem_Free(counts)
    return out


cdef void _choose(
    const uint8_t* first, int64_t total, uint8_t* out, int64_t parts, int64_t segment, uint32_t* counts,
    uint8_t* inside
) noexcept nogil:
    cdef:
        int64_t number, at, begin, end, best, score, most, window = segment - PIECE + 1
        uint32_t hashed
    memset(counts, 0, (sizeof(uint32_t) + 1) << COUNT_BITS)
    for at in range(total - PIECE + 1):
        counts[_hash_of_8(first + at)] += 1
    for number in range(parts):
        begin, end = total * number // parts, total * (number + 1) // parts - PIECE + 1
        best, score, most = begin, 0, -1
        for at in range(begin, end):
            hashed = _hash_of_8(first + at)
            if not inside[hashed]:
                score += counts[hashed]
            inside[hashed] += 1
            if at - begin >= window:
                hashed = _hash_of_8(first + at - window)
                inside[hashed] -= 1
                if not inside[hashed]:
                    score -= counts[hashed]
            if at - begin >= window - 1 and score > most:
                best, most = at - window + 1, score
        for at in range(max(begin, end - window), end):
            inside[_hash_of_8(first + at)] = 0
        for at in range(best, best + window):
            counts[_hash_of_8(first + at)] = 0
        memcpy(out + number * segment, first + best, <size_t>segment)
