"""LZ4 blocks (the format of lz4's ``doc/lz4_Block_format.md``), with a text that comes before each of them.

A block is sequences of literals and a match: so many bytes again, from so many bytes before.  Where a block
has a *text*, a match may lie in it, as if the text came right before the block; the two are not copied
together.  Every position of the text is in a table that is made once, two to a bucket: short blocks find in
it what they share with the rest of their column.

What a match costs is waiting: for the bucket, for the text, and for its length, before the next one can be
looked for.  So two blocks are packed side by side, and lengths of 16 bytes and less come without a branch.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kudu_core._ext.base.loads cimport kc_fetch, load16, load32, load64

cdef extern from *:
    """
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif
    #include <stdint.h>
    #include <string.h>
    /* How many of eight bytes, or of 16, are the same, from the first on. */
    static inline int64_t kc_same8(const uint8_t *one, const uint8_t *other) {
        uint64_t a, b;
        memcpy(&a, one, 8);
        memcpy(&b, other, 8);
        return a == b ? 8 : __builtin_ctzll(a ^ b) >> 3;
    }
    static inline int64_t kc_same16(const uint8_t *one, const uint8_t *other) {
    #if defined(__SSE2__)
        __m128i a = _mm_loadu_si128((const __m128i *)one), b = _mm_loadu_si128((const __m128i *)other);
        return __builtin_ctz(~(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(a, b)));
    #else
        int64_t same = kc_same8(one, other);
        return same < 8 ? same : 8 + kc_same8(one + 8, other + 8);
    #endif
    }
    """
    int64_t kc_same8(const uint8_t* one, const uint8_t* other) noexcept nogil
    int64_t kc_same16(const uint8_t* one, const uint8_t* other) noexcept nogil

cdef enum:
    LEAST_MATCH = 4
    MORE = 15                   # of a length in a token: bytes that follow say how much more
    FAR = 65535                 # the furthest match
    LAST_LITERALS = 5           # at the end of every block, as the format has it
    TAIL = 20                   # no match begins in so many bytes at the end of a block or of the text
    TEXT_BITS = 16              # of the buckets of a text
    RECENT_BITS = 12            # of the positions of a block that are remembered
    MOST_TEXT = FAR

cdef uint64_t PRIME_OF_5 = <uint64_t>889523592379


# ---------------------------------------------------------------------------------- unpacking


cdef int lz4_unpack(
    const uint8_t* at, int64_t size, uint8_t* out, int64_t raw_bytes, const uint8_t* text, int64_t text_bytes
) noexcept nogil:
    """Unpack a block into exactly ``raw_bytes``; 0, or -1 where it is none.

    Any bytes may be given: none is read or written outside of the three pieces of memory.
    """
    cdef Unpacking u
    lz4_begin(&u, at, size, out, raw_bytes, text, text_bytes)
    return 0 if lz4_unpack_to(&u, raw_bytes + 1) == 0 else -1


cdef void lz4_begin(
    Unpacking* u, const uint8_t* at, int64_t size, uint8_t* out, int64_t raw_bytes, const uint8_t* text,
    int64_t text_bytes
) noexcept nogil:
    u.at, u.end = at, at + size
    u.first, u.out, u.last = out, out, out + raw_bytes
    u.text, u.text_bytes = text, text_bytes


cdef int lz4_unpack_to(Unpacking* u, int64_t wanted) noexcept nogil:
    """Unpack until ``wanted`` bytes are there: 1; 0 at the end of the block, -1 where it is none.

    The block's last bytes must be the last of those that were declared; of what comes behind ``wanted``
    nothing is known.  May be called again for more.
    """
    cdef:
        const uint8_t* at = u.at
        const uint8_t* end = u.end
        const uint8_t* first = u.first
        const uint8_t* last = u.last
        const uint8_t* text = u.text
        const uint8_t* source
        uint8_t* out = u.out
        int64_t text_bytes = u.text_bytes, count, offset, piece
        uint8_t token
    while at < end:
        if out - first >= wanted:
            u.at, u.out = at, out
            return 1
        token = at[0]
        at += 1
        count = token >> 4
        if count < MORE and end - at >= 18 and last - out >= 16:
            memcpy(out, at, 16)
        else:
            if count == MORE and not _more(&at, end, &count):
                return -1
            if count > end - at or count > last - out:
                return -1
            memcpy(out, at, <size_t>count)
        out += count
        at += count
        if end - at < 2:        # a block ends with literals
            u.at, u.out = at, out
            return 0 if at == end and out == last else -1
        offset = load16(at)
        at += 2
        count = token & MORE
        if count == MORE and not _more(&at, end, &count):
            return -1
        count += LEAST_MATCH
        if offset == 0 or count > last - out:
            return -1
        piece = out - first
        if offset <= piece:
            source = out - offset
        else:
            offset -= piece
            if offset > text_bytes:
                return -1
            source = text + text_bytes - offset
            if count <= 16 and offset >= 16 and last - out >= 16:
                memcpy(out, source, 16)
                out += count
                continue
            piece = min(count, offset)
            memcpy(out, source, <size_t>piece)
            out += piece
            count -= piece
            # What is left of it is at the begin of the block.
            source = first
            offset = out - first
        out = _copied(out, source, count, offset, last)
    return -1


cdef inline uint8_t* _copied(
    uint8_t* out, const uint8_t* source, int64_t count, int64_t offset, const uint8_t* last
) noexcept nogil:
    """Copy ``count`` bytes from ``offset`` before."""
    if offset < 16 or count > 32 or last - out < 32:
        return _repeated(out, source, count)
    memcpy(out, source, 16)
    memcpy(out + 16, source + 16, 16)
    return out + count


cdef inline uint8_t* _repeated(uint8_t* out, const uint8_t* source, int64_t count) noexcept nogil:
    """Copy bytes that may reach into those that are written: what is there of them doubles."""
    cdef int64_t piece
    while count:
        piece = min(count, <int64_t>(out - source))
        memcpy(out, source, <size_t>piece)
        out += piece
        count -= piece
    return out


cdef inline bint _more(const uint8_t** at, const uint8_t* end, int64_t* count) noexcept nogil:
    """Add the bytes of a length; False where they do not end."""
    cdef uint8_t byte = 255
    while byte == 255:
        if at[0] == end:
            return False
        byte = at[0][0]
        at[0] += 1
        count[0] += byte
    return True


def unpack(const uint8_t[::1] stored not None, int64_t raw_bytes, bytes text not None=b""):
    """The bytes of a block that ``text`` comes before; ValueError where it has not exactly so many."""
    cdef:
        bytes out
        int status
        int64_t size = stored.shape[0], text_bytes = PyBytes_GET_SIZE(text)
        const uint8_t* at = &stored[0] if size else NULL
        const uint8_t* before = <const uint8_t*>PyBytes_AS_STRING(text)
        uint8_t* target
    # No byte stands for more than 255: no memory is taken for a lie.
    if not 0 <= raw_bytes <= 255 * size:
        raise ValueError(f"{size} bytes are no block of {raw_bytes}")
    out = PyBytes_FromStringAndSize(NULL, raw_bytes)
    target = <uint8_t*>PyBytes_AS_STRING(out)
    with nogil:
        status = lz4_unpack(at, size, target, raw_bytes, before, text_bytes)
    if status:
        raise ValueError(f"{size} bytes are no block of {raw_bytes}")
    return out


# ------------------------------------------------------------------------------------ packing


cdef inline uint32_t _hash_of_5(uint64_t word, int bits) noexcept nogil:
    return <uint32_t>(((word << 24) * PRIME_OF_5) >> (64 - bits))


cdef inline void _look(Packing* p, const uint8_t* text_end, const uint16_t* table) noexcept nogil:
    """Note the places that may match what comes next, and have them fetched."""
    cdef:
        uint64_t word = load64(p.page + p.at)
        uint32_t hashed = _hash_of_5(word, RECENT_BITS)
        uint32_t two = load32(<const uint8_t*>(table + 2 * _hash_of_5(word, TEXT_BITS)))
    p.near = <uint16_t>(<uint64_t>p.at - p.recent[hashed])
    p.recent[hashed] = <uint16_t>p.at
    p.one = two & 0xffff
    p.other = two >> 16
    kc_fetch(text_end - p.one)
    kc_fetch(text_end - p.other)


cdef inline bint _step(Packing* p, const uint8_t* text_end, int64_t text_bytes) noexcept nogil:
    """Take the longest of the matches, or go on without one; False at the end of the block."""
    cdef:
        int64_t at = p.at, near = p.near, one = p.one + at, other = p.other + at, best, count, most, literals
        const uint8_t* here = p.page + at
        const uint8_t* source
        uint8_t* out
    near = near if near <= at else 0
    source = here - near
    best = kc_same16(here, source)
    best = best if near else 0
    count = kc_same16(here, text_end - p.one)
    count = count if one <= FAR else 0
    source = text_end - p.one if count > best else source
    near = one if count > best else near
    best = count if count > best else best
    count = kc_same16(here, text_end - p.other)
    count = count if other <= FAR else 0
    source = text_end - p.other if count > best else source
    near = other if count > best else near
    best = count if count > best else best
    if best < LEAST_MATCH:
        p.at = at + 1 + ((at - p.anchor) >> 6)      # bytes that do not pack are passed over
        return p.at <= p.size - TAIL
    if best == 16:
        most = p.size - LAST_LITERALS - at
        if near > at:
            most = min(most, near - at)
        best = min(most, 16)
        while most - best >= 8 and kc_same8(here + best, source + best) == 8:
            best += 8
        while best < most and here[best] == source[best]:
            best += 1
    literals = at - p.anchor
    if literals:
        most = at - near if near <= at else text_bytes - (near - at)
        most = min(most, literals)
        while most > 0 and (here - 1)[0] == (source - 1)[0]:
            here -= 1
            source -= 1
            best += 1
            most -= 1
            literals -= 1
    out = _put_literals(p, literals, min(MORE, best - LEAST_MATCH))
    out[0] = <uint8_t>near
    out[1] = <uint8_t>(near >> 8)
    out += 2
    if best - LEAST_MATCH >= MORE:
        out = _put_more(out, best - LEAST_MATCH - MORE)
    p.out = out
    p.at = p.anchor = p.anchor + literals + best
    if p.at > p.size - TAIL:
        return False
    p.recent[_hash_of_5(load64(p.page + p.at - 2), RECENT_BITS)] = <uint16_t>(p.at - 2)
    return True


cdef inline uint8_t* _put_literals(Packing* p, int64_t literals, int64_t match) noexcept nogil:
    """A token and its literals."""
    cdef uint8_t* out = p.out
    out[0] = <uint8_t>(min(literals, MORE) << 4 | match)
    out += 1
    if literals < MORE and p.size - p.anchor >= 16:
        memcpy(out, p.page + p.anchor, 16)
    else:
        if literals >= MORE:
            out = _put_more(out, literals - MORE)
        memcpy(out, p.page + p.anchor, <size_t>literals)
    return out + literals


cdef inline uint8_t* _put_more(uint8_t* out, int64_t rest) noexcept nogil:
    while rest >= 255:
        out[0] = 255
        out += 1
        rest -= 255
    out[0] = <uint8_t>rest
    return out + 1


cdef void _pack_blocks(
    Packing* blocks, int count, const uint8_t* text, int64_t text_bytes, const uint16_t* table
) noexcept nogil:
    """Pack up to ``SIDE_BY_SIDE`` blocks."""
    cdef:
        int k, running = 0
        Packing* live[SIDE_BY_SIDE]
        const uint8_t* end = text + text_bytes
        bint one, other
    for k in range(count):
        memset(blocks[k].recent, 0, sizeof(uint16_t) << RECENT_BITS)
        blocks[k].at = blocks[k].anchor = 0
        if blocks[k].size >= TAIL:
            live[running] = &blocks[k]
            running += 1
    while running == SIDE_BY_SIDE:
        _look(live[0], end, table)
        _look(live[1], end, table)
        one = _step(live[0], end, text_bytes)
        other = _step(live[1], end, text_bytes)
        if not (one and other):
            running = one + other
            live[0] = live[0] if one else live[1]
    while running:
        _look(live[0], end, table)
        running = _step(live[0], end, text_bytes)
    for k in range(count):
        blocks[k].out = _put_literals(&blocks[k], blocks[k].size - blocks[k].anchor, 0)


@cython.final
@cython.auto_pickle(False)
cdef class Lz4Packer:
    """Packs blocks that ``text``, of 20 bytes to 64 KiB - 1, comes before.  Thread safe."""

    def __cinit__(self, bytes text not None):
        cdef:
            int64_t size = len(text), at
            const uint8_t* first = <const uint8_t*>PyBytes_AS_STRING(text)
            uint16_t* bucket
        if not TAIL <= size <= MOST_TEXT:
            raise ValueError(f"a text of {size} bytes")
        self.text, self._first, self._size = text, first, size
        self._table = <uint16_t*>PyMem_Malloc(sizeof(uint16_t) << (TEXT_BITS + 1))
        if self._table == NULL:
            raise MemoryError
        with nogil:
            for at in range(2 << TEXT_BITS):
                self._table[at] = <uint16_t>size
            for at in range(size - TAIL + 1):
                bucket = self._table + 2 * _hash_of_5(load64(first + at), TEXT_BITS)
                bucket[1] = bucket[0]
                bucket[0] = <uint16_t>(size - at)

    def __dealloc__(self):
        PyMem_Free(self._table)

    cdef void pack_blocks(self, Packing* blocks, int count) noexcept nogil:
        """Pack up to ``SIDE_BY_SIDE`` blocks, of which ``page``, ``size`` and ``out`` are set.

        ``out`` has room for ``packed_bound(size)``, and is behind the last byte in the end.
        """
        cdef:
            uint16_t recent[SIDE_BY_SIDE << RECENT_BITS]
            int k
        for k in range(count):
            blocks[k].recent = recent + (k << RECENT_BITS)
        _pack_blocks(blocks, count, self._first, self._size, self._table)

    def pack(self, list payloads not None):
        """The blocks of ``payloads``, each a ``bytes``."""
        cdef:
            Packing blocks[SIDE_BY_SIDE]
            Py_ssize_t begin, k, count, total = len(payloads)
            list packed = [], now
            bytes payload, room
        payloads = payloads.copy()
        for begin in range(0, total, SIDE_BY_SIDE):
            now = []
            for k in range(min(SIDE_BY_SIDE, total - begin)):
                payload = payloads[begin + k]
                if payload is None:
                    raise TypeError("no payload")
                room = PyBytes_FromStringAndSize(NULL, packed_bound(PyBytes_GET_SIZE(payload)))
                now.append(room)
                blocks[k].page = <const uint8_t*>PyBytes_AS_STRING(payload)
                blocks[k].size = PyBytes_GET_SIZE(payload)
                blocks[k].out = <uint8_t*>PyBytes_AS_STRING(room)
            count = len(now)
            with nogil:
                self.pack_blocks(blocks, <int>count)
            for k in range(count):
                room = now[k]
                packed.append(room[: blocks[k].out - <uint8_t*>PyBytes_AS_STRING(room)])
        return packed
