# The slots by which a key finds its ordinal, and the arena that they point into: what readers and the
# one writer do with the memory of a KeyTable (hash_index.pyx says who may do what when).
#
# Open addressing with linear probing over u64 slots (tag in the high half, ordinal + 1 in the low
# half), so that a slot is read and written in one piece.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from kudu_core._ext.base.loads cimport kc_fetch, kc_fetch_for_write

cdef extern from *:
    """
    #ifndef KUDU_CORE_KEY_SLOTS
    #define KUDU_CORE_KEY_SLOTS
    typedef unsigned long long kc_slot;
    static inline kc_slot kc_slot_load(const kc_slot *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void kc_slot_store(kc_slot *p, kc_slot v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    /* Both halves of a 128-bit product, folded: every bit of the result depends on every bit of a and b. */
    static inline kc_slot kc_fold(kc_slot a, kc_slot b) {
        unsigned __int128 r = (unsigned __int128)a * b;
        return (kc_slot)r ^ (kc_slot)(r >> 64);
    }
    #endif
    """
    ctypedef unsigned long long kc_slot
    kc_slot kc_slot_load(const kc_slot *p) noexcept nogil
    void kc_slot_store(kc_slot *p, kc_slot v) noexcept nogil
    kc_slot kc_fold(kc_slot a, kc_slot b) noexcept nogil

cdef enum:
    GROUP = 32              # probes in flight at once: enough to hide a miss, few enough for the stack


cdef struct Memory:
    # Plain pointers into the arrays of one Buffers.
    uint8_t* data
    int64_t* offsets
    uint64_t* hashes
    kc_slot* slots
    uint64_t mask
    int shift
    uint64_t seed
    uint64_t multiplier


cdef struct GivenKeys:
    # The caller's keys; rows NULL means all of them.
    const uint8_t* data
    const int64_t* offsets
    const uint64_t* hashes
    const int64_t* rows
    Py_ssize_t count


cdef inline uint64_t mix(const Memory* m, uint64_t key_hash) noexcept nogil:
    # Multiplier and seed are the process's secret: who chooses keys cannot choose slots.
    return kc_fold(key_hash ^ m.seed, m.multiplier)


cdef inline void publish(const Memory* m, uint64_t mixed, uint64_t ordinal) noexcept nogil:
    cdef uint64_t at = mixed >> m.shift
    while m.slots[at] != 0:
        at = (at + 1) & m.mask
    kc_slot_store(&m.slots[at], (mixed << 32) | (ordinal + 1))


cdef inline void index_ordinals(const Memory* m, uint64_t lower, uint64_t upper) noexcept nogil:
    """Enter ordinals [lower, upper) into the slots, from the stored hashes."""
    cdef:
        uint64_t mixed[GROUP]
        uint64_t base = lower
        uint64_t i, group
    while base < upper:
        group = min(upper - base, <uint64_t>GROUP)
        for i in range(group):
            mixed[i] = mix(m, m.hashes[base + i])
            kc_fetch_for_write(&m.slots[mixed[i] >> m.shift])
        for i in range(group):
            publish(m, mixed[i], base + i)
        base += group


cdef inline void append_batch(const Memory* m, const GivenKeys* b, uint64_t first) noexcept nogil:
    cdef:
        int64_t used = m.offsets[first]
        int64_t begin, size
        Py_ssize_t i, row
    if b.rows == NULL:
        begin = b.offsets[0]
        if b.offsets[b.count] > begin:
            memcpy(m.data + used, b.data + begin, b.offsets[b.count] - begin)
        for i in range(b.count):
            m.offsets[first + i + 1] = used + (b.offsets[i + 1] - begin)
        memcpy(m.hashes + first, b.hashes, b.count * sizeof(uint64_t))
    else:
        for i in range(b.count):
            row = b.rows[i]
            begin = b.offsets[row]
            size = b.offsets[row + 1] - begin
            if size > 0:
                memcpy(m.data + used, b.data + begin, size)
            used += size
            m.offsets[first + i + 1] = used
            m.hashes[first + i] = b.hashes[row]
    index_ordinals(m, first, first + <uint64_t>b.count)


cdef inline int64_t _candidate(const Memory* m, uint32_t tag, uint64_t limit, uint64_t* at) noexcept nogil:
    """Return the next ordinal below ``limit`` that carries the tag, -1 at the end of the chain."""
    cdef:
        uint64_t slot, ordinal
    while True:
        slot = kc_slot_load(&m.slots[at[0]])
        if slot == 0:
            return -1
        at[0] = (at[0] + 1) & m.mask
        ordinal = <uint64_t><uint32_t>slot - 1
        if <uint32_t>(slot >> 32) == tag and ordinal < limit:
            return <int64_t>ordinal


cdef inline bint _same(const Memory* m, int64_t ordinal, const uint8_t* key, int64_t size) noexcept nogil:
    cdef int64_t begin = m.offsets[ordinal]
    return m.offsets[ordinal + 1] - begin == size and (size == 0 or memcmp(m.data + begin, key, size) == 0)


cdef inline int64_t find_key_in(
    const Memory* m, const uint8_t* key, int64_t size, uint64_t key_hash, uint64_t limit
) noexcept nogil:
    cdef:
        uint64_t mixed = mix(m, key_hash)
        uint64_t at = mixed >> m.shift
        int64_t ordinal
    while True:
        ordinal = _candidate(m, <uint32_t>mixed, limit, &at)
        if ordinal < 0 or _same(m, ordinal, key, size):
            return ordinal


cdef inline void look_up_batch(
    const Memory* m, const GivenKeys* b, uint64_t limit, int64_t* out
) noexcept nogil:
    """Look a group of keys up in step, so that their cache misses overlap."""
    cdef:
        uint64_t mixed[GROUP]
        uint64_t at[GROUP]
        int64_t found[GROUP]
        Py_ssize_t base = 0
        Py_ssize_t i, row, group
        int64_t begin, size
    while base < b.count:
        group = min(b.count - base, <Py_ssize_t>GROUP)
        for i in range(group):
            row = base + i if b.rows == NULL else b.rows[base + i]
            mixed[i] = mix(m, b.hashes[row])
            at[i] = mixed[i] >> m.shift
            kc_fetch(&m.slots[at[i]])
        for i in range(group):
            found[i] = _candidate(m, <uint32_t>mixed[i], limit, &at[i])
            if found[i] >= 0:
                kc_fetch(&m.offsets[found[i]])
        for i in range(group):
            if found[i] >= 0:
                kc_fetch(m.data + m.offsets[found[i]])
        for i in range(group):
            if found[i] >= 0:
                row = base + i if b.rows == NULL else b.rows[base + i]
                begin = b.offsets[row]
                size = b.offsets[row + 1] - begin
                while found[i] >= 0 and not _same(m, found[i], b.data + begin, size):
                    found[i] = _candidate(m, <uint32_t>mixed[i], limit, &at[i])
            out[base + i] = found[i]
        base += group
